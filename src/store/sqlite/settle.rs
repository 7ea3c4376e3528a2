//! Rooms are settled in SQLite, in a transaction of four statements.

use std::collections::HashSet;

use super::super::connection::{Arg, Db};
use super::super::failure::Failure;
use super::super::sweep::Decisions;
use super::super::{PushKind, Settled};
use crate::ids::ServerId;

/// Which rooms are still held. `$1` a JSON array of rooms with their holds, `$2` by whom.
const HELD: &str =
    "SELECT r.id FROM (SELECT value ->> 'room' AS room, value ->> 'hold' AS hold FROM json_each($1)) AS g
    JOIN rooms r ON r.id = g.room AND r.due = g.hold AND r.looker = $2";

/// `$1` a JSON array of pushes to be made, `$2` one of kinds.
const MAKE: &str = "WITH open AS MATERIALIZED (
        SELECT g.room, g.user_id, g.seq, s.id AS message, CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now
        FROM (
            SELECT value ->> 'room' AS room, value ->> 'user_id' AS user_id, value ->> 'seq' AS seq FROM json_each($1)
        ) AS g
        JOIN rooms r ON r.id = g.room AND r.swept < g.seq
        JOIN messages s ON s.room = g.room AND s.seq = g.seq AND s.event IS NULL
        WHERE g.seq > (
            SELECT max(m.delivered, m.read, m.pushed, m.since - 1) FROM members m
            WHERE m.room = g.room AND m.user_id = g.user_id
        )
    ), ways AS (
        SELECT open.*, 'webhook' AS kind, '' AS token FROM open
        UNION ALL
        SELECT open.*, t.provider, t.token FROM open JOIN device_tokens t ON t.user_id = open.user_id
    )
    INSERT INTO pushes (kind, token, user_id, room, seq, message, made, due, tries)
    SELECT kind, token, user_id, room, seq, message, now, now, 0 FROM ways
    WHERE kind IN (SELECT value FROM json_each($2)) ORDER BY room, seq
    ON CONFLICT DO NOTHING";

/// `$1` a JSON array of members who are decided further.
const DECIDE: &str = "UPDATE members SET pushed = g.seq
    FROM (
        SELECT value ->> 'room' AS room, value ->> 'user_id' AS user_id, value ->> 'seq' AS seq FROM json_each($1)
    ) AS g
    WHERE members.room = g.room AND members.user_id = g.user_id AND members.pushed < g.seq";

/// `$1` a JSON array of rooms, `$2` the looker.
const SWEEP: &str = "UPDATE rooms SET swept = max(rooms.swept, g.swept),
        due = iif(rooms.head > max(rooms.swept, g.swept), CAST(unixepoch('subsec') * 1000 AS INTEGER) + g.again, NULL),
        looker = iif(rooms.head > max(rooms.swept, g.swept), $2, NULL)
    FROM (
        SELECT value ->> 'room' AS room, value ->> 'swept' AS swept, value ->> 'again' AS again FROM json_each($1)
    ) AS g
    WHERE rooms.id = g.room";

/// Settles what is still held, within the transaction that is open.
pub(in crate::store) async fn settle(
    db: &mut Db,
    looker: &ServerId,
    settled: &[Settled],
    kinds: &[PushKind],
) -> Result<u64, Failure> {
    let asked = Decisions::new(&settled.iter().collect::<Vec<_>>());
    let looker = looker.as_str();
    let held: Vec<(String,)> = db.all(HELD, &[Arg::Text(&asked.rooms), Arg::Text(looker)]).await?;
    let held: HashSet<_> = held.iter().map(|(room,)| room.as_str()).collect();
    let kept: Vec<_> = settled.iter().filter(|settled| held.contains(settled.due.room.as_str())).collect();

    let kept = Decisions::new(&kept);
    let kinds = Arg::Texts(kinds.iter().map(|kind| kind.as_str()).collect());
    let made = db.execute(MAKE, &[Arg::Text(&kept.pushes), kinds]).await?;
    db.execute(DECIDE, &[Arg::Text(&kept.decided)]).await?;
    db.execute(SWEEP, &[Arg::Text(&kept.rooms), Arg::Text(looker)]).await?;
    Ok(made)
}
