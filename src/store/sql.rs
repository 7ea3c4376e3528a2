//! SQL that several places need, and what of it differs between the databases.

mod push;

pub(super) use push::Texts;

/// The id of the database.
pub(super) const DATABASE_ID: &str = "SELECT value FROM meta WHERE name = 'database_id'";

/// Gives the database an id, where it has none.
pub(super) const GIVE_DATABASE_ID: &str =
    "INSERT INTO meta (name, value) VALUES ('database_id', $1) ON CONFLICT DO NOTHING";

/// The texts that differ: how a list is unfolded, what the clock is called, and that PostgreSQL locks rows where SQLite
/// has one writer anyway.
pub(super) struct Dialect {
    /// Begins a transaction that writes.
    pub(super) begin: &'static str,
    /// Makes a room with its first entry. `$1` room, `$2` creator, `$3` name, `$4` open, `$5` low, `$6` high, `$7` size.
    pub(super) make_room: &'static str,
    /// Notes a membership change at a room. `$1` room, `$2` its seq, `$3` how many members more.
    pub(super) grow_room: &'static str,
    /// A room, held until the transaction ends. `$1` room.
    pub(super) hold_room: &'static str,
    /// Which of some users are members, in order, held until the transaction ends. `$1` room, `$2` users.
    pub(super) hold_members: &'static str,
    /// Makes users members. `$1` room, `$2` since, `$3` users.
    pub(super) add_members: &'static str,
    /// Takes members out. `$1` room, `$2` users.
    pub(super) remove_members: &'static str,
    /// Forgets where the devices of users stand. `$1` room, `$2` users.
    pub(super) remove_cursors: &'static str,
    /// Writes a membership change into the log, and answers when. `$1` room, `$2` seq, `$3` id, `$4` sender, `$5` event,
    /// `$6` users as JSON.
    pub(super) log_event: &'static str,
    /// The head and the start of the view for each room of some users. `$1` users.
    pub(super) heads: &'static str,
    /// Which of some users are in a room with one. `$1` the one, `$2` users.
    pub(super) sharing: &'static str,
    /// Moves positions of members on, and answers those that grew. `$1` a JSON array of objects with `room`, `user_id`,
    /// `delivered`, `read`.
    pub(super) advance_members: &'static str,
    /// Moves positions of devices on. `$1` a JSON array of objects with `user_id`, `room`, `device`, `seq`.
    pub(super) advance_cursors: &'static str,
    /// Leases the lowest free worker number. `$1` holder, `$2` lease in ms.
    pub(super) lease_worker: &'static str,
    /// Renews a lease. `$1` holder, `$2` lease in ms, `$3` worker, `$4` used, in ms since 1970.
    pub(super) renew_worker: &'static str,
    /// All about pushes.
    pub(super) push: Texts,
}

/// `unixepoch('subsec')` has milliseconds since SQLite 3.42; the one that is compiled in is later.
pub(super) const SQLITE: Dialect = Dialect {
    begin: "BEGIN IMMEDIATE",
    make_room: "INSERT INTO rooms (id, creator, name, open, low, high, head, version, size, swept, due)
        VALUES ($1, $2, $3, $4, $5, $6, 1, 1, $7, 0, CAST(unixepoch('subsec') * 1000 AS INTEGER) + 1000) ON CONFLICT DO NOTHING",
    grow_room: "UPDATE rooms SET head = $2, version = $2, size = size + $3,
            due = coalesce(due, CAST(unixepoch('subsec') * 1000 AS INTEGER) + 1000)
        WHERE id = $1",
    hold_room: "SELECT creator, low IS NOT NULL AS direct, open, head, size FROM rooms WHERE id = $1",
    hold_members: "SELECT user_id FROM members
        WHERE room = $1 AND user_id IN (SELECT value FROM json_each($2)) ORDER BY user_id",
    add_members: "INSERT INTO members (room, user_id, since, delivered, read)
        SELECT $1, value, $2, $2 - 1, $2 - 1 FROM json_each($3)",
    remove_members: "DELETE FROM members WHERE room = $1 AND user_id IN (SELECT value FROM json_each($2))",
    remove_cursors: "DELETE FROM cursors WHERE room = $1 AND user_id IN (SELECT value FROM json_each($2))",
    log_event: "INSERT INTO messages (room, seq, id, sender, at, event, body)
        VALUES ($1, $2, $3, $4, CAST(unixepoch('subsec') * 1000 AS INTEGER), $5, $6) RETURNING at",
    heads: "SELECT m.user_id, m.room, r.head, m.since FROM members m JOIN rooms r ON r.id = m.room
        WHERE m.user_id IN (SELECT value FROM json_each($1))",
    sharing: "SELECT DISTINCT o.user_id FROM members m JOIN members o ON o.room = m.room
        WHERE m.user_id = $1 AND o.user_id IN (SELECT value FROM json_each($2))",
    advance_members: "UPDATE members SET delivered = max(members.delivered, held.delivered),
            read = max(members.read, held.read)
        FROM (
            SELECT g.room, g.user_id, iif(g.delivered <= r.head, g.delivered, 0) AS delivered,
                iif(g.read <= r.head, g.read, 0) AS read
            FROM (
                SELECT value ->> 'room' AS room, value ->> 'user_id' AS user_id, value ->> 'delivered' AS delivered,
                    value ->> 'read' AS read
                FROM json_each($1)
            ) AS g
            JOIN rooms r ON r.id = g.room
        ) AS held
        WHERE members.room = held.room AND members.user_id = held.user_id
            AND (members.delivered < held.delivered OR members.read < held.read)
        RETURNING members.room, members.user_id, members.delivered, members.read",
    advance_cursors: "INSERT INTO cursors (user_id, room, device, seq)
        SELECT g.user_id, g.room, g.device, g.seq
        FROM (
            SELECT value ->> 'user_id' AS user_id, value ->> 'room' AS room, value ->> 'device' AS device,
                value ->> 'seq' AS seq
            FROM json_each($1)
        ) AS g
        JOIN rooms r ON r.id = g.room AND g.seq <= r.head
        JOIN members m ON m.room = g.room AND m.user_id = g.user_id
        WHERE true
        ON CONFLICT (user_id, room, device) DO UPDATE SET seq = excluded.seq WHERE cursors.seq < excluded.seq",
    lease_worker: "UPDATE workers SET holder = $1, ends = now + $2, above = high, high = max(high, now) + $2
        FROM (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now)
        WHERE worker = (SELECT min(worker) FROM workers WHERE ends <= unixepoch('subsec') * 1000)
        RETURNING worker, above, high",
    renew_worker: "UPDATE workers SET ends = now + $2, high = max(high, max($4, now) + $2)
        FROM (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now)
        WHERE worker = $3 AND holder = $1
        RETURNING worker, above, high",
    push: push::SQLITE,
};

/// `clock_ms()` is made by the first migration.
pub(super) const POSTGRES: Dialect = Dialect {
    begin: "BEGIN",
    make_room: "INSERT INTO rooms (id, creator, name, open, low, high, head, version, size, swept, due)
        VALUES ($1, $2, $3, $4, $5, $6, 1, 1, $7, 0, clock_ms() + 1000) ON CONFLICT DO NOTHING",
    grow_room: "UPDATE rooms SET head = $2, version = $2, size = size + $3,
            due = coalesce(due, clock_ms() + 1000)
        WHERE id = $1",
    hold_room: "SELECT creator, low IS NOT NULL AS direct, open, head, size FROM rooms WHERE id = $1 FOR UPDATE",
    hold_members: "SELECT user_id FROM members WHERE room = $1 AND user_id = ANY ($2) ORDER BY user_id FOR UPDATE",
    add_members: "INSERT INTO members (room, user_id, since, delivered, read)
        SELECT $1, added, $2, $2 - 1, $2 - 1 FROM unnest($3) AS added",
    remove_members: "DELETE FROM members WHERE room = $1 AND user_id = ANY ($2)",
    remove_cursors: "DELETE FROM cursors WHERE room = $1 AND user_id = ANY ($2)",
    log_event: "INSERT INTO messages (room, seq, id, sender, at, event, body)
        VALUES ($1, $2, $3, $4, clock_ms(), $5, $6) RETURNING at",
    heads: "SELECT m.user_id, m.room, r.head, m.since FROM members m JOIN rooms r ON r.id = m.room
        WHERE m.user_id = ANY ($1)",
    sharing: "SELECT DISTINCT o.user_id FROM members m JOIN members o ON o.room = m.room
        WHERE m.user_id = $1 AND o.user_id = ANY ($2)",
    advance_members: "WITH held AS MATERIALIZED (
            SELECT m.room, m.user_id, CASE WHEN g.delivered <= r.head THEN g.delivered ELSE 0 END AS delivered,
                CASE WHEN g.read <= r.head THEN g.read ELSE 0 END AS read
            FROM json_to_recordset($1::json) AS g (room text, user_id text, delivered bigint, read bigint)
            JOIN rooms r ON r.id = g.room
            JOIN members m ON m.room = g.room AND m.user_id = g.user_id
            WHERE m.delivered < g.delivered OR m.read < g.read
            ORDER BY m.room, m.user_id
            FOR UPDATE OF m
        )
        UPDATE members SET delivered = greatest(members.delivered, held.delivered),
            read = greatest(members.read, held.read)
        FROM held
        WHERE members.room = held.room AND members.user_id = held.user_id
            AND (members.delivered < held.delivered OR members.read < held.read)
        RETURNING members.room, members.user_id, members.delivered, members.read",
    advance_cursors: "INSERT INTO cursors (user_id, room, device, seq)
        SELECT g.user_id, g.room, g.device, g.seq
        FROM json_to_recordset($1::json) AS g (user_id text, room text, device text, seq bigint)
        JOIN rooms r ON r.id = g.room AND g.seq <= r.head
        JOIN members m ON m.room = g.room AND m.user_id = g.user_id
        ORDER BY m.user_id, m.room, g.device COLLATE \"C\"
        ON CONFLICT (user_id, room, device) DO UPDATE SET seq = excluded.seq WHERE cursors.seq < excluded.seq",
    lease_worker: "UPDATE workers SET holder = $1, ends = now + $2, above = high, high = greatest(high, now) + $2
        FROM clock_ms() AS now
        WHERE worker = (
            SELECT worker FROM workers WHERE ends <= clock_ms() ORDER BY worker LIMIT 1 FOR UPDATE SKIP LOCKED)
        RETURNING worker, above, high",
    renew_worker: "UPDATE workers SET ends = now + $2, high = greatest(high, greatest($4, now) + $2)
        FROM clock_ms() AS now
        WHERE worker = $3 AND holder = $1
        RETURNING worker, above, high",
    push: push::POSTGRES,
};
