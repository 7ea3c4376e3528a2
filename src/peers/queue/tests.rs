use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::ids::MessageId;

const DEADLINE: Duration = Duration::from_secs(10);

fn queue(bytes: usize) -> Queue {
    Queue::new(Limits { bytes, deadline: DEADLINE }, Arc::default())
}

fn item(seq: u64, text: &str) -> Item {
    Item {
        room: Some("team".parse().unwrap()),
        seq,
        id: MessageId(1),
        at: 1,
        ..Item::new(
            "alice".parse().unwrap(),
            text.to_owned().into(),
            ["bob", "carol"].map(|user| user.parse().unwrap()).into(),
        )
    }
}

fn fill(queue: &mut Queue, seqs: impl IntoIterator<Item = u64>, now: Instant) {
    for seq in seqs {
        assert_eq!(queue.push(item(seq, "x"), now), Sent::Queued);
    }
}

fn sent(queue: &mut Queue, now: Instant) -> Vec<(u64, u64)> {
    let batch = queue.next_batch(now).unwrap_or_default();
    batch.items.iter().map(|out| (out.id, out.item.seq)).collect()
}

fn answered(ids: impl IntoIterator<Item = u64>) -> wire::RelayResponse {
    response(ids.into_iter().map(|id| wire::Answer { id, ..Default::default() }).collect())
}

fn response(answers: Vec<wire::Answer>) -> wire::RelayResponse {
    wire::RelayResponse { answers, ..Default::default() }
}

#[test]
fn what_has_queued_goes_out_together_and_in_order() {
    let (mut queue, now) = (queue(1 << 20), Instant::now());
    fill(&mut queue, [1, 2, 0, 3], now);
    assert_eq!(sent(&mut queue, now), [(1, 1), (2, 2), (3, 0), (4, 3)]);
    assert!(queue.next_batch(now).is_none());
}

#[test]
fn a_message_is_bounded_in_items_and_in_bytes() {
    let (mut queue, now) = (queue(16 << 20), Instant::now());
    fill(&mut queue, 1..=300, now);
    assert_eq!(sent(&mut queue, now).len(), 256);
    assert_eq!(sent(&mut queue, now).len(), 44);
    for seq in [1, 2, 3] {
        assert_eq!(queue.push(item(seq, &"x".repeat(600_000)), now), Sent::Queued);
    }
    assert_eq!(queue.push(item(4, &"x".repeat(2 << 20)), now), Sent::Queued);
    let sizes: Vec<_> = std::iter::from_fn(|| queue.next_batch(now)).map(|batch| batch.items.len()).collect();
    assert_eq!(sizes, [1, 1, 1, 1]);
}

#[test]
fn a_message_is_bounded_in_recipients() {
    let (mut queue, now) = (queue(16 << 20), Instant::now());
    let crowd = |count: usize| (0..count).map(|number| format!("user-{number}").parse().unwrap()).collect();
    for (seq, count) in [(1, 2 * BATCH_WORK), (2, BATCH_WORK / 2), (3, BATCH_WORK / 4), (4, BATCH_WORK / 2)] {
        assert_eq!(queue.push(Item { recipients: crowd(count), ..item(seq, "x") }, now), Sent::Queued);
    }
    let sizes: Vec<_> = std::iter::from_fn(|| queue.next_batch(now)).map(|batch| batch.items.len()).collect();
    assert_eq!(sizes, [1, 2, 1]);
}

#[test]
fn a_burst_in_one_room_does_not_go_before_what_others_send() {
    let (mut queue, now) = (queue(16 << 20), Instant::now());
    fill(&mut queue, 1..=1_000, now);
    let lone = |sender: u32| Item { room: None, sender: format!("s{sender}").parse().unwrap(), ..item(0, "x") };
    (0..8).for_each(|sender| assert_eq!(queue.push(lone(sender), now), Sent::Queued));
    let first = sent(&mut queue, now);
    let signals = first.iter().filter(|(_, seq)| *seq == 0).count();
    assert!(signals >= 5, "one in 256 may share the lane of the room: {signals}");
}

#[test]
fn what_is_late_is_given_up_wherever_it_stands_among_the_unanswered() {
    let (mut queue, now) = (queue(1 << 20), Instant::now());
    let other = Item { room: Some("other".parse().unwrap()), ..item(7, "x") };
    assert_eq!(queue.push(other, now + DEADLINE), Sent::Queued);
    sent(&mut queue, now);
    fill(&mut queue, [1], now);
    sent(&mut queue, now);
    queue.expire(now + DEADLINE);
    assert_eq!((queue.status.dropped, queue.unanswered.len()), (1, 2));
}

#[test]
fn queued_and_unanswered_bytes_share_one_bound() {
    let cost = item(1, "x").cost();
    let (mut queue, now) = (queue(2 * cost), Instant::now());
    fill(&mut queue, [1], now);
    sent(&mut queue, now);
    fill(&mut queue, [2], now);
    assert_eq!(queue.push(item(3, "x"), now), Sent::Full);
    assert_eq!(queue.push(item(0, "x"), now), Sent::Full);
    assert_eq!((queue.status.dropped, queue.stats.dropped_full.load(Relaxed)), (1, 2));
    queue.answer(answered([1]), now);
    fill(&mut queue, [4], now);
    assert_eq!(queue.bytes(), 2 * cost);
}

#[test]
fn an_item_that_no_message_can_carry_is_left_to_the_store() {
    let (mut queue, now) = (queue(64 << 20), Instant::now());
    assert_eq!(queue.push(item(1, &"x".repeat(4 << 20)), now), Sent::Full);
    assert_eq!(queue.next_batch(now).unwrap().head.status.unwrap().dropped, 1);
}

#[test]
fn after_a_break_stored_items_without_an_answer_go_first_and_volatile_ones_do_not_go() {
    let (mut queue, now) = (queue(1 << 20), Instant::now());
    fill(&mut queue, [1, 0, 2, 3], now);
    sent(&mut queue, now);
    fill(&mut queue, [4, 0], now);
    queue.answer(answered([3]), now);
    queue.rewind();
    assert_eq!(sent(&mut queue, now), [(5, 1), (6, 3), (7, 4), (8, 0)]);
    assert_eq!((queue.stats.resent.load(Relaxed), queue.stats.dropped_old.load(Relaxed)), (2, 1));
}

#[test]
fn an_answer_of_the_stream_before_is_of_no_effect() {
    let (mut queue, now) = (queue(1 << 20), Instant::now());
    fill(&mut queue, [1], now);
    sent(&mut queue, now);
    queue.rewind();
    queue.answer(answered([1]), now);
    assert_eq!(sent(&mut queue, now), [(2, 1)]);
    assert_eq!(queue.stats.answers_unknown.load(Relaxed), 1);
}

#[test]
fn a_range_answers_each_of_its_items_once_and_ids_that_never_went_out_cost_no_look() {
    let (mut queue, now) = (queue(1 << 20), Instant::now());
    fill(&mut queue, [1, 2, 3, 4], now);
    sent(&mut queue, now);
    let range = |first, count| {
        let queued = vec![wire::Range { first, count }];
        wire::RelayResponse { queued, ..wire::RelayResponse::default() }
    };
    assert_eq!(queue.answer(range(2, 2), now).1.len(), 2);
    assert_eq!(queue.answer(range(1, 3), now).1.len(), 1, "two of them are answered");
    assert_eq!(queue.answer(range(0, u32::MAX), now).1.len(), 1);
    assert!(queue.answer(range(u64::MAX, u32::MAX), now).1.is_empty());
    assert!(queue.holds_nothing());
    assert!(queue.answer(range(1, 0), now).1.is_empty());
    let unknown = 2 + u64::from(u32::MAX) - 1 + u64::from(u32::MAX);
    assert_eq!((queue.stats.answers.load(Relaxed), queue.stats.answers_unknown.load(Relaxed)), (4, unknown));
}

#[test]
fn who_was_not_or_not_only_there_comes_back_and_garbage_does_not() {
    let (mut queue, now) = (queue(1 << 20), Instant::now());
    fill(&mut queue, [1, 2, 3], now);
    sent(&mut queue, now);
    let answers = vec![
        wire::Answer { id: 1, not_here: vec![1], full: vec![0], elsewhere: vec![0] },
        wire::Answer { id: 2, not_here: vec![9], full: vec![9], elsewhere: vec![9] },
        wire::Answer { id: 99, not_here: vec![0], full: vec![], elsewhere: vec![0] },
    ];
    let (returned, _) = queue.answer(response(answers), now);
    let told: Vec<_> = returned.iter().map(|told| (told.item.seq, told.users[0].as_str(), told.here)).collect();
    assert_eq!(told, [(1, "carol", false), (1, "bob", true)]);
    assert_eq!((queue.stats.answers.load(Relaxed), queue.stats.answers_unknown.load(Relaxed)), (2, 1));
}

#[test]
fn volatile_items_that_waited_two_seconds_are_dropped_sent_or_swept() {
    let (mut queue, now) = (queue(1 << 20), Instant::now());
    fill(&mut queue, [0, 1, 0], now);
    let later = now + VOLATILE_AGE;
    assert_eq!(sent(&mut queue, later), [(1, 1)]);
    fill(&mut queue, [0, 2, 0], now);
    queue.expire(later);
    assert_eq!(queue.waiting.len(), 1);
    assert_eq!(queue.stats.dropped_old.load(Relaxed), 4);
}

#[test]
fn stored_items_past_their_deadline_are_given_up_and_said_to_be() {
    let (mut queue, now) = (queue(1 << 20), Instant::now());
    fill(&mut queue, [1, 0], now);
    sent(&mut queue, now);
    fill(&mut queue, [2], now);
    fill(&mut queue, [3], now + DEADLINE);
    queue.expire(now + DEADLINE);
    let batch = queue.next_batch(now + DEADLINE).unwrap();
    assert_eq!(batch.head.status.unwrap().dropped, 2);
    assert_eq!(batch.items[0].item.seq, 3);
    assert_eq!(queue.bytes, item(3, "x").cost());
}

#[test]
fn another_run_of_the_server_gets_nothing_of_what_was_meant_for_the_one_before() {
    let (mut queue, now) = (queue(1 << 20), Instant::now());
    fill(&mut queue, [1, 0], now);
    sent(&mut queue, now);
    fill(&mut queue, [2, 0], now);
    assert_eq!(queue.kick(wire::Kick::default()), Sent::Queued);
    queue.leave_to_the_store();
    queue.abandon();
    let homeless: Vec<_> = queue.take_homeless().iter().map(|item| item.seq).collect();
    assert_eq!(homeless, [1, 2]);
    let batch = queue.next_batch(now).unwrap();
    assert_eq!((batch.head.status.unwrap().dropped, batch.items.len(), batch.head.kicks.len()), (0, 0, 0));
    assert_eq!(queue.bytes, 0);
}

#[test]
fn kicks_are_said_again_after_a_break_but_only_the_late_ones() {
    let (mut queue, now) = (queue(1 << 20), Instant::now());
    let kick = |newer_than| wire::Kick { newer_than, ..Default::default() };
    let kicks = |queue: &mut Queue, now| queue.next_batch(now).unwrap().head.kicks;
    assert_eq!(queue.kick(kick(1)), Sent::Queued);
    assert_eq!(kicks(&mut queue, now), [kick(1)]);
    assert_eq!(queue.kick(kick(2)), Sent::Queued);
    assert_eq!(kicks(&mut queue, now + DEADLINE), [kick(2)]);
    queue.rewind();
    assert_eq!(kicks(&mut queue, now + DEADLINE), [kick(2)]);
}

#[test]
fn heals_are_bounded_and_few_at_a_time_and_none_is_for_another_run() {
    let (mut queue, now) = (queue(1 << 20), Instant::now());
    let heal = |seq| wire::Heal { seq, ..Default::default() };
    for seq in 0..HEALS as u64 {
        assert_eq!(queue.heal(heal(seq)), Sent::Queued);
    }
    assert_eq!(queue.heal(heal(0)), Sent::Full);
    let heals = queue.next_batch(now).unwrap().head.heals;
    assert_eq!((heals.len(), heals[1].seq), (BATCH_HEALS, 1));
    queue.abandon();
    assert_eq!(queue.next_batch(now).unwrap().head.heals, []);
}

#[test]
fn the_latest_status_is_said_once_per_stream() {
    let (mut queue, now) = (queue(1 << 20), Instant::now());
    queue.leave_to_the_store();
    queue.say(wire::Status { draining: true, ..Default::default() });
    queue.say(wire::Status { degraded: true, ..Default::default() });
    let said = wire::Status { degraded: true, dropped: 1, ..Default::default() };
    assert_eq!(queue.next_batch(now).unwrap().head.status, Some(said));
    assert!(queue.next_batch(now).is_none());
    queue.rewind();
    assert_eq!(queue.next_batch(now).unwrap().head.status, Some(said));
}
