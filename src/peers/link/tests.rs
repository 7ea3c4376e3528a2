use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Wake;

use super::*;
use crate::peers::Sent;
use crate::peers::queue::Limits;

fn target(boot: u64) -> Target {
    Target { boot: BootId(boot), address: "there:1".into() }
}

fn link() -> Arc<Link> {
    let limits = Limits { bytes: 1 << 20, deadline: Duration::from_secs(10) };
    Arc::new(Link::new("local2".parse().unwrap(), target(1), Queue::new(limits, Arc::default())))
}

fn push(link: &Link, seq: u64) {
    let item = Item {
        room: None,
        seq,
        id: crate::ids::MessageId(1),
        at: 1,
        ..Item::new("alice".parse().unwrap(), bytes::Bytes::new(), Vec::new())
    };
    assert_eq!(link.put(|queue| queue.push(item, Instant::now())), Sent::Queued);
}

/// The places in the log of what a stream would send now; none if it has ended.
fn poll(link: &Arc<Link>, stream: u64) -> Poll<Option<Vec<u64>>> {
    let mut outgoing = Outgoing { link: link.clone(), stream, hello: None };
    let request = Pin::new(&mut outgoing).poll_next(&mut Context::from_waker(Waker::noop()));
    request.map(|batch| batch.map(|batch| batch.items.iter().map(|out| out.item.seq).collect()))
}

#[test]
fn nothing_goes_out_before_the_hello_was_accepted() {
    let link = link();
    push(&link, 1);
    let stream = link.begin().stream;
    assert_eq!(poll(&link, stream), Poll::Pending);
    assert!(link.open(stream));
    assert_eq!(poll(&link, stream), Poll::Ready(Some(vec![1])));
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn what_is_given_back_wakes_no_stream() {
    let (link, woken) = (link(), Arc::new(Woken::default()));
    let stream = link.begin().stream;
    let mut outgoing = Outgoing { link: link.clone(), stream, hello: None };
    let waker = Waker::from(woken.clone());
    let mut look = || Pin::new(&mut outgoing).poll_next(&mut Context::from_waker(&waker));
    let put = || link.put_if_responding(Instant::now(), Duration::ZERO, 7, |_, what| what);
    assert!(look().is_pending());
    assert_eq!((put(), woken.0.load(Relaxed)), (Err(7), 0), "the hello is not answered yet");
    assert!(link.open(stream) && look().is_ready(), "the status");
    assert!(look().is_pending());
    assert_eq!((put(), woken.0.load(Relaxed)), (Ok(7), 2), "once when it came up, once for this");
}

#[test]
fn a_stream_that_broke_takes_nothing_from_the_next_one() {
    let link = link();
    let before = link.begin().stream;
    assert!(link.open(before));
    push(&link, 1);
    assert_eq!(poll(&link, before), Poll::Ready(Some(vec![1])));
    link.broke(before);
    assert_eq!(poll(&link, before), Poll::Ready(None));
    let next = link.begin().stream;
    assert!(!link.open(before));
    assert!(link.open(next));
    link.broke(before);
    assert!(link.is_up());
    assert_eq!(poll(&link, next), Poll::Ready(Some(vec![1])));
}

#[test]
fn a_stream_to_a_run_that_is_over_gets_nothing_of_what_comes_after() {
    let link = link();
    let stream = link.begin().stream;
    assert!(link.open(stream));
    link.retarget(target(2));
    push(&link, 1);
    assert_eq!(poll(&link, stream), Poll::Ready(None));
    assert!(!link.is_up());
    assert_eq!(link.begin().target, target(2));
}

#[test]
fn a_stream_that_finishes_sends_what_has_queued_and_ends() {
    let link = link();
    let stream = link.begin().stream;
    push(&link, 1);
    link.finish();
    assert_eq!(poll(&link, stream), Poll::Pending);
    assert!(link.open(stream));
    assert_eq!(poll(&link, stream), Poll::Ready(Some(vec![1])));
    assert_eq!(poll(&link, stream), Poll::Ready(None));
}

#[test]
fn only_a_link_that_is_down_can_be_left() {
    let link = link();
    let stream = link.begin().stream;
    assert!(link.open(stream));
    assert!(!link.leave_if_down());
    link.broke(stream);
    push(&link, 1);
    assert!(link.leave_if_down() && link.is_over());
    assert_eq!(link.take_homeless().len(), 1);
}
