-- There are no foreign keys: rooms are never deleted, and members change only in a transaction that holds their room.
-- Names are compared byte by byte (COLLATE "C"), as in SQLite. Rows that are updated in place leave room for it.

CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE rooms (
    id      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    creator TEXT COLLATE "C" NOT NULL,
    name    TEXT,
    open    BOOLEAN NOT NULL,
    -- The two users of a direct room, in order; null in all others.
    low     TEXT COLLATE "C",
    high    TEXT COLLATE "C",
    -- The seq of the latest entry, and of the latest membership change.
    head    BIGINT NOT NULL,
    version BIGINT NOT NULL,
    -- How many members there are.
    size    BIGINT NOT NULL,
    UNIQUE (low, high)
) WITH (fillfactor = 50);

CREATE TABLE members (
    room      TEXT COLLATE "C" NOT NULL,
    user_id   TEXT COLLATE "C" NOT NULL,
    -- The seq of their last join.
    since     BIGINT NOT NULL,
    delivered BIGINT NOT NULL,
    read      BIGINT NOT NULL,
    PRIMARY KEY (room, user_id)
) WITH (fillfactor = 50);

CREATE INDEX members_by_user ON members (user_id, room);

CREATE TABLE cursors (
    user_id TEXT COLLATE "C" NOT NULL,
    room    TEXT COLLATE "C" NOT NULL,
    device  TEXT COLLATE "C" NOT NULL,
    seq     BIGINT NOT NULL,
    PRIMARY KEY (user_id, room, device)
) WITH (fillfactor = 50);

CREATE TABLE messages (
    room   TEXT COLLATE "C" NOT NULL,
    seq    BIGINT NOT NULL,
    id     BIGINT NOT NULL,
    sender TEXT COLLATE "C" NOT NULL,
    -- Null for a membership change.
    cid    TEXT COLLATE "C",
    at     BIGINT NOT NULL,
    -- What happened, for a membership change; null for a message.
    event  TEXT,
    -- The JSON text of a message; for a membership change a JSON array of the users it is about. Never jsonb, which
    -- alters numbers, drops duplicate keys and refuses \u0000.
    body   TEXT NOT NULL,
    PRIMARY KEY (room, seq)
);

CREATE UNIQUE INDEX messages_by_cid ON messages (sender, cid) WHERE cid IS NOT NULL;

CREATE TABLE workers (
    worker BIGINT NOT NULL PRIMARY KEY,
    holder TEXT,
    -- When the lease ends, in ms since 1970 by the database's clock.
    ends   BIGINT NOT NULL,
    -- The holder makes ids above `above` and up to `high`, in ms since 1970.
    above  BIGINT NOT NULL,
    high   BIGINT NOT NULL
);

INSERT INTO workers (worker, ends, above, high) SELECT n, 0, 0, 0 FROM generate_series(0, 1023) AS n;

-- The time in ms since 1970, by this database's clock.
CREATE FUNCTION clock_ms() RETURNS BIGINT LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT
$$;

-- Appends a batch of messages, given as arrays of one length: all of it or, on any error, nothing. Answers one row
-- per message, numbered by its place in the arrays.
--
-- It is one statement, so it needs nothing more from its client to commit: a client that stops holds no room. Rooms
-- are locked in id order and messages inserted in (sender, cid) order, so that two batches never wait for each other
-- in a circle. What is known and who is a member is read by a later statement than the one that locks, hence with a
-- snapshot that sees all that was committed before the locks were ours.
--
-- Two batches that bring one cid into two rooms at once fail on messages_by_cid: then nothing was stored, so no seq
-- was used, and the batch may be tried again.
--
-- Sequential scans are off because the plan is kept, and may have been made when the tables were empty.
CREATE FUNCTION append_messages(p_rooms TEXT[], p_senders TEXT[], p_cids TEXT[], p_ids BIGINT[], p_bodies TEXT[])
RETURNS TABLE (place BIGINT, outcome TEXT, seq BIGINT, id BIGINT, at BIGINT, version BIGINT)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v_now BIGINT;
BEGIN
    PERFORM 1 FROM rooms WHERE rooms.id = ANY (p_rooms) ORDER BY rooms.id FOR UPDATE;
    v_now := clock_ms();
    RETURN QUERY
    WITH input AS MATERIALIZED (
        SELECT given.room, given.sender, given.cid, given.id, given.body, given.place
        FROM unnest(p_rooms, p_senders, p_cids, p_ids, p_bodies)
            WITH ORDINALITY AS given (room, sender, cid, id, body, place)
    ), checked AS MATERIALIZED (
        SELECT input.*, known.seq AS known_seq, known.id AS known_id, known.at AS known_at,
            known.room = input.room AND known.body = input.body AS same,
            known.seq IS NULL AND EXISTS (
                SELECT 1 FROM members WHERE members.room = input.room AND members.user_id = input.sender
            ) AS storable
        FROM input
        LEFT JOIN messages AS known
            ON known.sender = input.sender AND known.cid = input.cid
    ), led AS MATERIALIZED (
        -- A cid may come twice in one batch: the first that can be stored leads, the others are repeats of it.
        SELECT checked.*,
            min(checked.place) FILTER (WHERE checked.storable) OVER (PARTITION BY checked.sender, checked.cid) AS leader
        FROM checked
    ), fresh AS MATERIALIZED (
        SELECT led.place, led.room, led.sender, led.cid, led.id, led.body,
            rooms.head + row_number() OVER (PARTITION BY led.room ORDER BY led.place) AS seq
        FROM led
        JOIN rooms ON rooms.id = led.room
        WHERE led.place = led.leader
    ), stored AS (
        INSERT INTO messages (room, seq, id, sender, cid, at, body)
        SELECT fresh.room, fresh.seq, fresh.id, fresh.sender, fresh.cid, v_now, fresh.body
        FROM fresh
        ORDER BY fresh.sender COLLATE "C", fresh.cid COLLATE "C"
    ), grown AS (
        UPDATE rooms SET head = tops.head
        FROM (SELECT fresh.room, max(fresh.seq) AS head FROM fresh GROUP BY fresh.room) AS tops
        WHERE rooms.id = tops.room
    )
    SELECT led.place,
        CASE
            WHEN led.same THEN 'repeat'
            WHEN led.known_seq IS NOT NULL THEN 'cid_reused'
            WHEN led.place = led.leader THEN 'fresh'
            WHEN led.place < led.leader OR led.leader IS NULL THEN 'not_member'
            WHEN fresh.room = led.room AND fresh.body = led.body THEN 'repeat'
            ELSE 'cid_reused'
        END,
        coalesce(led.known_seq, fresh.seq),
        coalesce(led.known_id, fresh.id),
        coalesce(led.known_at, v_now),
        rooms.version
    FROM led
    LEFT JOIN fresh ON fresh.place = led.leader
    LEFT JOIN rooms ON rooms.id = led.room;
END
$$;
