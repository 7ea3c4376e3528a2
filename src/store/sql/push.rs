//! SQL about rooms to be looked at and pushes to be made: one text for both databases, with what differs filled in.

/// The texts for one database.
pub(in crate::store) struct Texts {
    /// Since when a room is due, if one is. `$1` who asks, `$2` for how many ms a room is left to who looked last.
    pub(in crate::store) rooms_due: &'static str,
    /// Takes rooms that are due. `$1` and `$2` as above, `$3` how many, `$4` for how many ms, `$5` how many entries one
    /// look goes through.
    pub(in crate::store) take_rooms: &'static str,
    /// Makes rooms due that would be no sooner than in `$1` ms.
    pub(in crate::store) bring_rooms: &'static str,
    /// Makes pushes due that would be no sooner than in `$1` ms.
    pub(in crate::store) bring_pushes: &'static str,
    /// The undecided messages of rooms. `$1` a JSON array of objects with `room`, `swept`, `upto`.
    pub(in crate::store) open_messages: &'static str,
    /// The members for whom something is undecided, each with the first message of another that is: a JSON array of its
    /// seq, id, sender and age. `$1` as above.
    pub(in crate::store) open_members: &'static str,
    /// Since when a push is due, if one is. `$1` kinds.
    pub(in crate::store) pushes_due: &'static str,
    /// Takes pushes that are due. `$1` kinds, `$2` how many, `$3` for how many ms.
    pub(in crate::store) take_pushes: &'static str,
    /// All about pushes. `$1` their ids.
    pub(in crate::store) look_at_pushes: &'static str,
    /// Forgets pushes. `$1` a JSON array of objects with `id`, `hold`.
    pub(in crate::store) forget_pushes: &'static str,
    /// Puts pushes off. `$1` as above, with `wait` in ms, `tries` to be added, and `reason`.
    pub(in crate::store) put_off_pushes: &'static str,
    /// Gives pushes up. `$1` as above, with `tries` to be added and `reason`.
    pub(in crate::store) give_up_pushes: &'static str,
    /// Forgets the device tokens of pushes. `$1` a JSON array of objects with `id`, `hold`.
    pub(in crate::store) forget_tokens: &'static str,
    /// Forgets pushes, and all others to the same device tokens that are not given up. `$1` as above.
    pub(in crate::store) forget_pushes_to: &'static str,
    /// Makes pushes that were given up due. `$1` their ids.
    pub(in crate::store) replay_pushes: &'static str,
    /// Forgets pushes that were given up. `$1` for how many ms, `$2` how many.
    pub(in crate::store) purge_pushes: &'static str,
    /// Lets only one at a time register device tokens of a user, until the transaction ends. `$1` user.
    pub(in crate::store) hold_user: &'static str,
    /// Gives a device token to a user. `$1` user, `$2` provider, `$3` token, `$4` device.
    pub(in crate::store) give_token: &'static str,
}

macro_rules! texts {
    (
        now: $now:literal,
        greatest: $greatest:literal,
        // Makes a JSON array of values.
        array: $array:literal,
        // Follows a column: it is in the list `$1`.
        listed: $listed:literal,
        // The objects in the JSON array `$1`, by the name of `g`.
        rooms: $rooms:literal,
        outcomes: $outcomes:literal,
        // Locks rows, and leaves out those that are locked; locks the rows of `p` in the order in which they come.
        skip_locked: $skip_locked:literal,
        lock: $lock:literal,
        hold_user: $hold_user:literal $(,)?
    ) => {
        Texts {
            // The order has the index used also by a planner that expects every other row to be due.
            rooms_due: concat!("SELECT due FROM rooms ", texts!(@ripe $now), " ORDER BY due LIMIT 1"),
            // The locks are not waited for, so their order does not matter.
            take_rooms: concat!(
                "WITH ripe AS MATERIALIZED (SELECT id FROM rooms ", texts!(@ripe $now), " ORDER BY due LIMIT $3 ",
                $skip_locked, ")
                UPDATE rooms SET due = ", $now, " + $4, looker = $1 WHERE id IN (SELECT id FROM ripe)
                RETURNING id, swept, CASE WHEN head < swept + $5 THEN head ELSE swept + $5 END AS upto, due"
            ),
            bring_rooms: texts!(@bring "rooms", $now, $skip_locked),
            bring_pushes: texts!(@bring "pushes", $now, $skip_locked),
            open_messages: concat!(
                "SELECT m.room, m.seq, m.id, m.sender, ", $now, " - m.at AS age
                FROM ", $rooms, "
                JOIN messages m ON m.room = g.room AND m.seq > g.swept AND m.seq <= g.upto
                WHERE m.event IS NULL ORDER BY m.room, m.seq"
            ),
            open_members: concat!(
                "SELECT m.room, m.user_id, ", texts!(@done $greatest), " AS done,
                    m.muted OR coalesce(u.muted, false) AS muted,
                    (
                        SELECT CAST(", $array, "(s.seq, s.id, s.sender, ", $now, " - s.at) AS TEXT)
                        FROM messages s
                        WHERE s.room = m.room AND s.seq > ", texts!(@done $greatest), " AND s.seq <= g.upto
                            AND s.event IS NULL AND s.sender <> m.user_id
                        ORDER BY s.seq LIMIT 1
                    ) AS first
                FROM ", $rooms, "
                JOIN members m ON m.room = g.room
                LEFT JOIN users u ON u.user_id = m.user_id
                WHERE ", texts!(@done $greatest), " < g.upto ORDER BY m.room, m.user_id"
            ),
            pushes_due: concat!(
                "SELECT due FROM pushes WHERE due <= ",
                $now,
                " AND kind ",
                $listed,
                " ORDER BY due, id LIMIT 1"
            ),
            take_pushes: concat!(
                "WITH ripe AS MATERIALIZED (
                    SELECT id FROM pushes WHERE due <= ", $now, " AND kind ", $listed, "
                    ORDER BY due, id LIMIT $2 ", $skip_locked, "
                )
                UPDATE pushes SET due = ", $now, " + $3 WHERE id IN (SELECT id FROM ripe) RETURNING id, due"
            ),
            look_at_pushes: concat!(
                "SELECT p.id, p.due AS hold, p.kind, p.token, p.user_id, p.room, r.name, p.seq, p.message, s.sender,
                    s.at, s.body, p.tries, ", $now, " - p.made AS age,
                    m.user_id IS NOT NULL AND m.since <= p.seq AND m.delivered < p.seq AND m.read < p.seq
                        AND NOT m.muted AND NOT coalesce(u.muted, false)
                        AND (p.token = '' OR EXISTS (
                            SELECT 1 FROM device_tokens t
                            WHERE t.provider = p.kind AND t.token = p.token AND t.user_id = p.user_id
                        )) AS wanted
                FROM pushes p
                JOIN messages s ON s.room = p.room AND s.seq = p.seq
                JOIN rooms r ON r.id = p.room
                LEFT JOIN members m ON m.room = p.room AND m.user_id = p.user_id
                LEFT JOIN users u ON u.user_id = p.user_id
                WHERE p.id ", $listed, " AND p.due IS NOT NULL ORDER BY p.id"
            ),
            forget_pushes: concat!(texts!(@held $outcomes, $lock), "DELETE FROM pushes WHERE id IN (SELECT id FROM held)"),
            put_off_pushes: concat!(
                texts!(@held $outcomes, $lock),
                "UPDATE pushes SET due = ", $now, " + held.wait, tries = pushes.tries + held.tries,
                    reason = held.reason
                FROM held WHERE pushes.id = held.id"
            ),
            give_up_pushes: concat!(
                texts!(@held $outcomes, $lock),
                "UPDATE pushes SET due = NULL, died = ", $now, ", tries = pushes.tries + held.tries,
                    reason = held.reason
                FROM held WHERE pushes.id = held.id"
            ),
            forget_tokens: concat!(
                "DELETE FROM device_tokens WHERE (provider, token) IN (
                    SELECT p.kind, p.token FROM ", $outcomes, " JOIN pushes p ON p.id = g.id AND p.due = g.hold
                )"
            ),
            forget_pushes_to: concat!(
                "WITH held AS MATERIALIZED (
                    SELECT p.id FROM pushes p
                    WHERE p.token <> '' AND p.due IS NOT NULL AND (p.kind, p.token) IN (
                        SELECT q.kind, q.token FROM ", $outcomes, " JOIN pushes q ON q.id = g.id AND q.due = g.hold
                    )
                    ORDER BY p.id ", $lock, "
                ) DELETE FROM pushes WHERE id IN (SELECT id FROM held)"
            ),
            replay_pushes: concat!(
                "UPDATE pushes SET due = ", $now, ", made = ", $now, ", tries = 0, reason = NULL, died = NULL
                WHERE died IS NOT NULL AND id ", $listed
            ),
            purge_pushes: concat!(
                "DELETE FROM pushes WHERE id IN (
                    SELECT id FROM pushes WHERE died IS NOT NULL AND died <= ", $now, " - $1 ORDER BY id LIMIT $2
                )"
            ),
            hold_user: $hold_user,
            give_token: concat!(
                "INSERT INTO device_tokens (user_id, provider, token, device, at) VALUES ($1, $2, $3, $4, ", $now, ")
                ON CONFLICT (provider, token) DO UPDATE
                SET user_id = excluded.user_id, device = excluded.device, at = excluded.at"
            ),
        }
    };
    (@ripe $now:literal) => {
        concat!(
            "WHERE due <= ", $now, " AND (looker IS NULL OR looker = $1 OR due <= ", $now, " - $2)"
        )
    };
    (@bring $table:literal, $now:literal, $skip_locked:literal) => {
        concat!(
            "WITH late AS MATERIALIZED (
                SELECT id FROM ", $table, " WHERE due > ", $now, " + $1 ORDER BY due ", $skip_locked, "
            ) UPDATE ", $table, " SET due = ", $now, " WHERE id IN (SELECT id FROM late)"
        )
    };
    (@done $greatest:literal) => {
        concat!($greatest, "(m.delivered, m.read, m.pushed, m.since - 1, g.swept)")
    };
    (@held $outcomes:literal, $lock:literal) => {
        concat!(
            "WITH held AS MATERIALIZED (
                SELECT p.id, g.wait, g.tries, g.reason
                FROM ", $outcomes, " JOIN pushes p ON p.id = g.id AND p.due = g.hold
                ORDER BY p.id ", $lock, "
            ) "
        )
    };
}

pub(super) const SQLITE: Texts = texts! {
    now: "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
    greatest: "max",
    array: "json_array",
    listed: "IN (SELECT value FROM json_each($1))",
    rooms: "(
            SELECT value ->> 'room' AS room, value ->> 'swept' AS swept, value ->> 'upto' AS upto FROM json_each($1)
        ) AS g",
    outcomes: "(
            SELECT value ->> 'id' AS id, value ->> 'hold' AS hold, value ->> 'wait' AS wait, value ->> 'tries' AS tries,
                value ->> 'reason' AS reason
            FROM json_each($1)
        ) AS g",
    skip_locked: "",
    lock: "",
    hold_user: "SELECT $1",
};

/// The clock is asked in a sub-query, once, so that an index can be used with what it says.
pub(super) const POSTGRES: Texts = texts! {
    now: "(SELECT clock_ms())",
    greatest: "greatest",
    array: "json_build_array",
    listed: "= ANY ($1)",
    rooms: "json_to_recordset($1::json) AS g (room text, swept bigint, upto bigint)",
    outcomes: "json_to_recordset($1::json) AS g (id bigint, hold bigint, wait bigint, tries bigint, reason text)",
    skip_locked: "FOR UPDATE SKIP LOCKED",
    lock: "FOR UPDATE OF p",
    hold_user: "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))",
};
