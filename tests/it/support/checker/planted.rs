//! The checker finds what is planted, and nothing in what is right.

use serde_json::{Value, json};

use super::*;

/// Ann, Bob, Cid and Dot are in a room. Ann wrote 2 and 4, Bob wrote 3. Ann and Bob acknowledge all, Cid never does and
/// is pushed, Dot never does and is muted.
fn sound() -> Evidence {
    let users = ["ann", "bob", "cid", "dot"].map(str::to_owned);
    let created = Stored { event: Some("created".into()), users: users.to_vec(), ..stored(1, "ann") };
    let entries = vec![created, stored(2, "ann"), stored(3, "bob"), stored(4, "ann")];
    let member = |user: &String| {
        let acknowledged = if ["ann", "bob"].contains(&user.as_str()) { 4 } else { 0 };
        Member { user: user.clone(), room: "r".into(), since: 1, delivered: acknowledged, read: 0 }
    };
    let mut pushes = Pushes::default();
    for seq in [2, 3, 4] {
        pushes.note(&format!("id{seq}"), "cid", &format!("key{seq}"));
    }
    let on = |server: &str| BTreeSet::from([server.to_owned()]);
    let places: Places = users.iter().map(|user| (user.clone(), on("local1"))).collect();
    Evidence {
        lives: vec![life("ann", &[2, 4]), life("bob", &[3]), life("cid", &[]), life("dot", &[])],
        log: Log { entries, members: users.iter().map(member).collect(), pushes: Vec::new() },
        registry: places.clone(),
        places,
        muted: Muted::from([("dot".into(), Some("r".into()))]),
        pushes: Some(pushes),
        ..Evidence::default()
    }
}

fn stored(seq: u64, sender: &str) -> Stored {
    let (id, cid) = (format!("id{seq}"), (seq > 1).then(|| format!("cid{seq}")));
    Stored { room: "r".into(), seq, id, sender: sender.into(), cid, ..Stored::default() }
}

fn message(seq: u64) -> Value {
    json!({"type": "message", "room": "r", "seq": seq})
}

fn sent(cid: &str, seq: u64) -> Value {
    json!({"type": "sent", "cid": cid, "room": "r", "seq": seq})
}

/// Someone who has heard all four entries, and wrote some of them.
fn life(user: &str, own: &[u64]) -> Life {
    let mut life = Life::of(user);
    life.silent = ["cid", "dot"].contains(&user);
    for seq in 1..=4 {
        if own.contains(&seq) {
            let cid = format!("cid{seq}");
            life.sends(&json!({"type": "send", "cid": cid}));
            life.hears(&sent(&cid, seq));
        } else {
            life.hears(&message(seq));
        }
    }
    drop(life.positions());
    life
}

/// Someone who has heard these entries and no others.
fn listener(seqs: &[u64]) -> Life {
    let mut life = Life::of("bob");
    seqs.iter().for_each(|seq| life.hears(&message(*seq)));
    life
}

/// What is found when this is planted: all of it must be of that kind.
#[track_caller]
fn assert_found(kind: &str, plant: impl FnOnce(&mut Evidence)) {
    let mut evidence = sound();
    plant(&mut evidence);
    let faults = evidence.faults();
    assert!(!faults.is_empty(), "{kind}: nothing was found");
    assert!(faults.iter().all(|fault| fault.contains(kind)), "{kind}: {faults:#?}");
}

fn pushed(evidence: &mut Evidence) -> &mut Pushes {
    evidence.pushes.as_mut().unwrap()
}

#[test]
fn the_checker_is_content_with_what_is_right() {
    assert_eq!(sound().faults(), [""; 0]);
    let mut repeated = sound();
    // Answers that come again, pushes that come again under their key, and a receipt that says the same again.
    repeated.lives[0].hears(&sent("cid4", 4));
    pushed(&mut repeated).note("id3", "cid", "key3");
    for _ in 0..2 {
        repeated.lives[0].hears(&json!({"type": "receipt", "room": "r", "user": "bob", "delivered": 4}));
    }
    assert_eq!(repeated.faults(), [""; 0]);
    assert_eq!(repeated.pushes.unwrap().repeats(), 1);
}

#[test]
fn the_checker_finds_what_was_lost_doubled_or_reordered() {
    for (kind, seqs) in [
        ("out of order", &[1, 2, 4][..]),
        ("out of order", &[2, 3, 4]),
        ("twice", &[1, 2, 2, 3, 4]),
        ("heard", &[1, 3, 2, 4]),
        ("was heard up to 3", &[1, 2, 3]),
        ("was heard up to 0", &[]),
    ] {
        let evidence = Evidence { lives: vec![listener(seqs)], ..sound() };
        let faults = evidence.faults();
        assert!(faults.iter().any(|fault| fault.starts_with("bob: ") && fault.contains(kind)), "{seqs:?}: {faults:?}");
    }
}

#[test]
fn the_checker_lets_a_second_device_begin_where_the_first_stands_and_no_further() {
    let with_a_second = |seqs: &[u64]| {
        // The first has said 2 when the second comes.
        let mut first = listener(&[1, 2]);
        drop(first.positions());
        (3..=4).for_each(|seq| first.hears(&message(seq)));
        let mut second = Life::of("bob");
        second.device = Some("second".into());
        seqs.iter().for_each(|seq| second.hears(&message(*seq)));
        let evidence = Evidence { lives: vec![first, second], ..sound() };
        let faults = evidence.faults();
        faults.into_iter().filter(|fault| fault.contains("(second)")).collect::<Vec<_>>()
    };
    assert_eq!(with_a_second(&[3, 4]), [""; 0]);
    assert_eq!(with_a_second(&[1, 2, 3, 4]), [""; 0]);
    assert_eq!(with_a_second(&[4]), ["bob (second): r was heard from 4 on"]);
    assert_eq!(with_a_second(&[3]), ["bob (second): r ends at 4, and it was heard up to 3"]);
    assert_eq!(with_a_second(&[]), ["bob (second): r ends at 4, and it was heard up to 0"]);
}

#[test]
fn the_checker_takes_the_answer_to_a_repeat_for_no_beginning_of_a_room() {
    let mut device = Life::of("bob");
    device.device = Some("phone".into());
    for cid in ["one", "two"] {
        device.sends(&json!({"type": "send", "cid": cid}));
    }
    device.hears(&sent("one", 3));
    device.hears(&message(9));
    device.hears(&sent("two", 10));
    assert_eq!(device.wrong().collect::<Vec<_>>(), [""; 0]);
    assert_eq!((device.began().collect::<Vec<_>>(), device.last("r")), (vec![("r", 9)], 10));
    device.hears(&message(12));
    assert!(device.wrong().next().unwrap().contains("12 after 10"));
}

#[test]
fn the_checker_finds_an_answer_without_a_stored_message_and_a_log_with_a_hole() {
    assert_found("is not stored so", |evidence| {
        evidence.lives[0].sends(&json!({"type": "send", "cid": "cid9"}));
        evidence.lives[0].hears(&sent("cid9", 4));
    });
    assert_found("is not stored so", |evidence| evidence.log.entries[3].cid = None);
    assert_found("goes from 1 to 3", |evidence| {
        evidence.log.entries.remove(1);
        evidence.lives.remove(0);
        evidence.log.members.clear();
        evidence.pushes = None;
    });
    let faults = |cid, seq| {
        let mut evidence = sound();
        evidence.lives[0].hears(&sent(cid, seq));
        evidence.faults().join("; ")
    };
    assert!(faults("cid4", 2).contains("another than before"));
    assert!(faults("cid8", 4).contains("an answer to nothing"));
}

#[test]
fn the_checker_finds_what_was_never_answered() {
    assert_found("waits for 1 answers", |evidence| evidence.lives[1].sends(&json!({"type": "send", "cid": "cid7"})));
}

#[test]
fn the_checker_finds_who_is_not_registered_or_still_is_or_elsewhere() {
    let on = |servers: &[&str]| servers.iter().map(|server| (*server).to_owned()).collect::<BTreeSet<_>>();
    assert_found("the registry says {}", |evidence| drop(evidence.registry.remove("ann")));
    assert_found("bob is on {\"local1\"}", |evidence| drop(evidence.registry.insert("bob".into(), on(&["local2"]))));
    assert_found("eve is on {}", |evidence| drop(evidence.registry.insert("eve".into(), on(&["local2"]))));
    assert_found("ann is on", |evidence| {
        evidence.killed = true;
        evidence.registry.insert("bob".into(), on(&["local1", "local2"]));
        evidence.registry.insert("ann".into(), on(&["local2"]));
    });
}

#[test]
fn the_checker_finds_positions_that_are_not_what_was_said_and_that_went_back() {
    assert_found("bob is at (3, 0)", |evidence| {
        evidence.log.members[1].delivered = 3;
        evidence.pushes = None;
    });
    assert_found("bob is at (4, 2)", |evidence| evidence.log.members[1].read = 2);
    let mut watch = Watch::default();
    let mut members = sound().log.members;
    assert_eq!(watch.sees(&members), [""; 0]);
    members[0].delivered = 5;
    assert_eq!(watch.sees(&members), [""; 0]);
    members[0].delivered = 4;
    assert!(watch.sees(&members)[0].contains("from (5, 0) to (4, 0)"));
    // A new join counts from anew.
    (members[0].since, members[0].delivered) = (9, 0);
    assert_eq!(watch.sees(&members), [""; 0]);
}

#[test]
fn the_checker_finds_receipts_that_went_back_or_are_not_true() {
    let receipt = |delivered: u64| json!({"type": "receipt", "room": "r", "user": "bob", "delivered": delivered});
    assert_found("went back", |evidence| [4, 3].iter().for_each(|at| evidence.lives[0].hears(&receipt(*at))));
    assert_found("beyond what is stored", |evidence| evidence.lives[0].hears(&receipt(7)));
}

#[test]
fn the_checker_finds_who_was_not_pushed_and_says_how_far_it_came() {
    let forget = |evidence: &mut Evidence| drop(pushed(evidence).by.remove(&("id3".into(), "cid".into())));
    let keep = |evidence: &mut Evidence, dead| {
        forget(evidence);
        evidence.log.pushes.push(KeptPush { user: "cid".into(), message: "id3".into(), dead });
    };
    assert_found("cid was not pushed r/3 by bob: it is not decided", forget);
    assert_found("cid was not pushed r/3 by bob: it waits", |evidence| keep(evidence, false));
    assert_found("cid was not pushed r/3 by bob: it was given up", |evidence| keep(evidence, true));
    // Who leaves for good is to be pushed as well.
    assert_found("bob was not pushed r/4", |evidence| {
        evidence.left.insert("bob".into());
        evidence.log.members[1].delivered = 3;
    });
}

#[test]
fn the_checker_finds_who_should_not_have_been_pushed() {
    assert_found("bob was pushed an own message", |evidence| pushed(evidence).note("id3", "bob", "key"));
    assert_found("dot was pushed though it is muted", |evidence| pushed(evidence).note("id3", "dot", "key"));
    assert_found("cid was pushed though it is muted", |evidence| {
        evidence.muted.insert(("cid".into(), None));
    });
    assert_found("which is no message", |evidence| pushed(evidence).note("id1", "cid", "key"));
    assert_found("without being in it then", |evidence| pushed(evidence).note("id3", "eve", "key"));
    assert_found("without being in it then", |evidence| {
        evidence.log.entries[2].event = Some("left".into());
        evidence.log.entries[2].users = vec!["cid".into()];
        evidence.log.members.retain(|member| member.user != "cid");
        pushed(evidence).by.remove(&("id3".into(), "cid".into()));
    });
}

#[test]
fn the_checker_finds_a_push_that_was_repeated_under_another_key() {
    assert_found("under several keys", |evidence| pushed(evidence).note("id3", "cid", "another"));
}
