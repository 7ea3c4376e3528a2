//! Who is pushed of what, and who is healed: plain data in, plain data out.

use std::time::Duration;

use crate::clock::millis;
use crate::ids::UserId;
use crate::store::{MAX_PUSHES, OpenMember, OpenMessage, OpenRoom, Settled};

/// How far what is acknowledged may be behind in the store: positions are written once a second. An acknowledgement that
/// came in time must not be missed for that.
const WRITTEN_WITHIN: Duration = Duration::from_millis(1_500);

/// How soon a room is looked at again in which something is open: who leaves meanwhile is noticed by it.
const AGAIN: Duration = Duration::from_secs(2);

/// How soon a room is looked at again that went on meanwhile.
const GONE_ON: Duration = Duration::from_secs(1);

/// How many entries past what a member has acknowledged may be gone through at each look, only to find that they are
/// the member's own.
const OWN: u64 = 100;

/// What a look at a room came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) settled: Settled,
    /// Members who have not acknowledged: if they are connected, their sessions may lack something.
    pub(super) heal: Vec<UserId>,
}

/// What a look came to for one member.
struct Verdict<'a> {
    /// What is to be pushed.
    overdue: Vec<&'a OpenMessage>,
    /// The first that stays open.
    pending: Option<&'a OpenMessage>,
}

/// Whether something in a room may have to be pushed. If not, the first open message of each member is all that
/// [`decide`] needs to know.
pub(super) fn may_push(room: &OpenRoom, gone: &impl Fn(&UserId) -> bool, push_after: Duration) -> bool {
    let limit_ms = millis(push_after + WRITTEN_WITHIN);
    room.members.iter().any(|member| {
        let first = room.open_for(member).next();
        first.is_some_and(|first| first.age_ms >= limit_ms || gone(&member.user))
    })
}

/// Decides about a room: who is `gone` is pushed now, everyone else once a message has waited for `push_after`. At most
/// [`MAX_PUSHES`] come of it; the rest is left to a look right after.
pub(super) fn decide(room: OpenRoom, gone: &impl Fn(&UserId) -> bool, push_after: Duration) -> Decided {
    let limit_ms = millis(push_after + WRITTEN_WITHIN);
    let (mut swept, mut again_ms) = (room.due.upto, None);
    let (mut decided, mut pushes, mut heal) = (Vec::new(), Vec::new(), Vec::new());
    for member in &room.members {
        let gone = gone(&member.user);
        let limit_ms = if gone { 0 } else { limit_ms };
        let Some(verdict) = room.judge(member, limit_ms, MAX_PUSHES - pushes.len()) else {
            if member.done + OWN < room.due.upto {
                decided.push((member.user.clone(), room.due.upto));
            }
            continue;
        };
        if let Some(first) = verdict.pending {
            swept = swept.min(first.seq - 1);
            let soon = limit_ms.saturating_sub(first.age_ms);
            again_ms = Some(soon.min(again_ms.unwrap_or(millis(AGAIN))));
        }
        if !gone {
            heal.push(member.user.clone());
        }
        if !verdict.overdue.is_empty() && !member.muted {
            let done = verdict.pending.map_or(room.due.upto, |first| first.seq - 1);
            decided.push((member.user.clone(), done));
            pushes.extend(verdict.overdue.iter().map(|message| (member.user.clone(), message.seq)));
        }
    }
    decided.retain(|(_, done)| *done > swept);
    Decided {
        settled: Settled { due: room.due, swept, again_ms: again_ms.unwrap_or(millis(GONE_ON)), decided, pushes },
        heal,
    }
}

impl OpenRoom {
    /// The members for whom a message is open.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &UserId> {
        self.members.iter().filter(|member| self.open_for(member).next().is_some()).map(|member| &member.user)
    }

    /// The messages that are open for a member: nobody waits for their own.
    fn open_for<'a>(&'a self, member: &'a OpenMember) -> impl Iterator<Item = &'a OpenMessage> {
        let first = self.messages.partition_point(|message| message.seq <= member.done);
        self.messages[first..].iter().filter(|message| message.sender != member.user)
    }

    /// What is open for a member: what is at least `limit_ms` old, no more than `most` of it to be pushed, and what stays
    /// open; none where nothing is.
    fn judge<'a>(&'a self, member: &'a OpenMember, limit_ms: u64, most: usize) -> Option<Verdict<'a>> {
        let mut open = self.open_for(member).peekable();
        open.peek()?;
        let most = if member.muted { usize::MAX } else { most };
        let mut overdue = Vec::new();
        while let Some(message) = open.next_if(|message| message.age_ms >= limit_ms && overdue.len() < most) {
            overdue.push(message);
        }
        Some(Verdict { overdue, pending: open.next() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::MessageId;
    use crate::store::DueRoom;

    const PUSH_AFTER: Duration = Duration::from_secs(15);

    /// A room whose messages, from seq 2 on, are by these senders and of these ages in ms.
    fn room(messages: &[(&str, u64)], members: &[(&str, u64, bool)]) -> OpenRoom {
        let message = |(index, (sender, age_ms)): (usize, &(&str, u64))| {
            let seq = index as u64 + 2;
            OpenMessage { seq, id: MessageId(seq), sender: sender.parse().unwrap(), age_ms: *age_ms }
        };
        let member = |(user, done, muted): &(&str, u64, bool)| OpenMember {
            user: user.parse().unwrap(),
            done: *done,
            muted: *muted,
        };
        let due = DueRoom { room: "r".parse().unwrap(), swept: 1, upto: messages.len() as u64 + 1, hold: 7 };
        OpenRoom {
            due,
            messages: messages.iter().enumerate().map(message).collect(),
            members: members.iter().map(member).collect(),
        }
    }

    fn names(list: &[(UserId, u64)]) -> Vec<(&str, u64)> {
        list.iter().map(|(user, seq)| (user.as_str(), *seq)).collect()
    }

    fn decided(room: OpenRoom, gone: &[&str]) -> Decided {
        decide(room, &|user| gone.contains(&user.as_str()), PUSH_AFTER)
    }

    #[test]
    fn who_is_gone_is_pushed_each_message_but_their_own_and_all_is_decided() {
        let room = room(&[("a", 900), ("b", 800), ("a", 700)], &[("a", 0, false), ("b", 0, false), ("c", 2, false)]);
        let Decided { settled, heal } = decided(room, &["a", "b", "c"]);
        assert_eq!(names(&settled.pushes), [("a", 3), ("b", 2), ("b", 4), ("c", 3), ("c", 4)]);
        assert_eq!((settled.swept, settled.decided.len(), heal.len()), (4, 0, 0));
    }

    #[test]
    fn who_may_be_there_is_healed_at_once_and_pushed_only_what_has_waited_long_enough() {
        let room = room(&[("a", 17_000), ("a", 16_000)], &[("b", 1, false)]);
        let Decided { settled, heal } = decided(room, &[]);
        assert_eq!(names(&settled.pushes), [("b", 2)]);
        assert_eq!((settled.swept, settled.again_ms), (2, 500), "looked at again when the next one is due");
        assert_eq!(heal, ["b".parse().unwrap()]);
    }

    #[test]
    fn what_is_decided_of_one_does_not_wait_for_another_and_is_noted() {
        let room = room(&[("a", 3_000), ("a", 2_000)], &[("b", 1, false), ("c", 1, false)]);
        let Decided { settled, heal } = decided(room, &["b"]);
        assert_eq!(names(&settled.pushes), [("b", 2), ("b", 3)]);
        assert_eq!((settled.swept, names(&settled.decided)), (1, vec![("b", 3)]));
        assert_eq!((settled.again_ms, heal.len()), (2_000, 1));
    }

    #[test]
    fn who_wants_no_pushes_is_healed_and_never_pushed_and_nobody_is_for_their_own() {
        let young = room(&[("a", 900)], &[("a", 0, false), ("b", 0, true)]);
        assert_eq!(
            young.waiting().collect::<Vec<_>>(),
            ["b"].map(|name| name.parse::<UserId>().unwrap()).iter().collect::<Vec<_>>()
        );
        let Decided { settled, heal } = decided(young, &[]);
        assert_eq!((settled.swept, settled.pushes.len(), heal.len()), (1, 0, 1));
        let Decided { settled, .. } = decided(room(&[("a", 60_000)], &[("a", 0, false), ("b", 0, true)]), &[]);
        assert_eq!((settled.swept, settled.pushes.len(), settled.decided.len()), (2, 0, 0));
    }

    #[test]
    fn while_nothing_is_to_be_pushed_the_first_open_message_of_each_is_enough() {
        let full =
            room(&[("a", 9_000), ("a", 8_000), ("b", 7_000)], &[("a", 0, false), ("b", 0, false), ("c", 3, true)]);
        let mut firsts = full.clone();
        firsts.messages.retain(|message| message.seq != 3);
        assert!(!may_push(&firsts, &|_| false, PUSH_AFTER));
        assert_eq!(decided(firsts.clone(), &[]), decided(full, &[]));
        assert!(may_push(&firsts, &|user| user.as_str() == "c", PUSH_AFTER));
        assert!(may_push(&firsts, &|_| false, Duration::from_secs(7)));
    }

    #[test]
    fn of_who_lacks_nothing_but_many_messages_of_their_own_it_is_noted_while_the_room_is_open() {
        let many = |senders: [&'static str; 2]| senders.map(|sender| [(sender, 900); 100]).concat();
        let one_sided = room(&many(["a", "a"]), &[("a", 0, false), ("b", 0, false)]);
        assert_eq!(names(&decided(one_sided, &[]).settled.decided), [("a", 201)]);
        let settled = room(&many(["a", "a"]), &[("a", 0, false)]);
        assert!(decided(settled, &[]).settled.decided.is_empty());
        let both = room(&many(["a", "b"]), &[("a", 0, false), ("b", 0, false)]);
        assert!(decided(both, &[]).settled.decided.is_empty());
    }

    #[test]
    fn a_large_room_is_decided_about_in_parts_and_who_may_be_there_does_not_hold_up_the_others() {
        let mut large = room(&[("a", 9_000); 30], &[]);
        let member = |number| OpenMember { user: format!("u{number}").parse().unwrap(), done: 1, muted: false };
        large.members = (0..1_000).map(member).collect();
        let all_but_one = |user: &UserId| user.as_str() != "u7";
        let (mut parts, mut pushes) = (0, 0);
        while pushes < 30 * 999 {
            let Decided { settled, .. } = decide(large.clone(), &all_but_one, PUSH_AFTER);
            assert!((1..=MAX_PUSHES).contains(&settled.pushes.len()));
            assert_eq!(settled.swept, 1, "the one is still open");
            parts += 1;
            pushes += settled.pushes.len();
            assert_eq!(settled.again_ms == 0, pushes < 30 * 999, "at once, while there is more");
            for member in &mut large.members {
                let decided = settled.decided.iter().find(|(user, _)| *user == member.user);
                member.done = decided.map_or(member.done, |(_, done)| *done);
            }
        }
        assert_eq!((parts, pushes), (30, 30 * 999));
    }
}
