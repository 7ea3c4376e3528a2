//! One frame to many sessions of this server: the time per round, and so many sessions a second.

use divan::Bencher;
use divan::counter::ItemsCount;
use minichat::ids::UserId;
use minichat::protocol::{ClientFrame, Frame, Parsed, ServerFrame};
use minichat::sessions::Sessions;

use crate::support::{body, drain, seats};

fn frame() -> Frame {
    let (from, body) = ("user-1".parse().expect("a user"), body());
    let said = format!("{{\"type\":\"signal\",\"to\":\"user-2\",\"body\":{body}}}");
    let Ok(ClientFrame::Signal { body, .. }) = Parsed::read(&said).frame else { panic!("{said}") };
    ServerFrame::Signal { room: None, from: &from, body: &body }.encode()
}

/// Users are looked up, as for a signal.
#[divan::bench(args = [1, 20, 1_000], sample_size = 16)]
fn look_up_and_push(bencher: Bencher<'_, '_>, count: usize) {
    let sessions = Sessions::default();
    let seats = seats(&sessions, count);
    let users: Vec<UserId> = seats.iter().map(|seat| seat.session.user.clone()).collect();
    let bencher = bencher.counter(ItemsCount::new(count)).with_inputs(|| {
        drain(&seats);
        frame()
    });
    bencher.bench_local_values(|frame| {
        for session in users.iter().flat_map(|user| sessions.of(user)) {
            let _ = divan::black_box(session.push_volatile(&frame));
        }
    });
}

/// The sessions are known, as in a room.
#[divan::bench(args = [1, 20, 1_000], sample_size = 16)]
fn push(bencher: Bencher<'_, '_>, count: usize) {
    let seats = seats(&Sessions::default(), count);
    let bencher = bencher.counter(ItemsCount::new(count)).with_inputs(|| {
        drain(&seats);
        frame()
    });
    bencher.bench_local_values(|frame| {
        for seat in &seats {
            let _ = divan::black_box(seat.session.push(&frame));
        }
    });
}
