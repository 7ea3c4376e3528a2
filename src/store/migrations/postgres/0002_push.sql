-- For whom is a message still to be decided, who wants to be pushed, and what is on its way.

ALTER TABLE rooms
    -- Up to this seq all is decided, for every member.
    ADD COLUMN swept BIGINT NOT NULL DEFAULT 0,
    -- When the room is to be looked at, in ms since 1970; null where all is decided.
    ADD COLUMN due BIGINT,
    -- The server that looked last, while something is open.
    ADD COLUMN looker TEXT COLLATE "C";

-- What there was before is not pushed.
UPDATE rooms SET swept = head;

CREATE INDEX rooms_by_due ON rooms (due) WHERE due IS NOT NULL;

ALTER TABLE members
    -- Up to this seq it is decided for this member.
    ADD COLUMN pushed BIGINT NOT NULL DEFAULT 0,
    -- They want no pushes of this room.
    ADD COLUMN muted BOOLEAN NOT NULL DEFAULT false;

-- Settings; who has none wants all pushes.
CREATE TABLE users (
    user_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    muted   BOOLEAN NOT NULL
);

CREATE TABLE device_tokens (
    provider TEXT COLLATE "C" NOT NULL,
    token    TEXT COLLATE "C" NOT NULL,
    -- Who registered it last.
    user_id  TEXT COLLATE "C" NOT NULL,
    device   TEXT COLLATE "C",
    at       BIGINT NOT NULL,
    PRIMARY KEY (provider, token)
);

CREATE INDEX device_tokens_by_user ON device_tokens (user_id, provider);

CREATE TABLE pushes (
    id      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind    TEXT COLLATE "C" NOT NULL,
    -- Of the device; empty for a webhook.
    token   TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    room    TEXT COLLATE "C" NOT NULL,
    seq     BIGINT NOT NULL,
    -- The id of the message.
    message BIGINT NOT NULL,
    made    BIGINT NOT NULL,
    -- When it is to be tried; null once it is given up.
    due     BIGINT,
    tries   BIGINT NOT NULL,
    -- Why it failed last.
    reason  TEXT,
    -- When it was given up.
    died    BIGINT,
    UNIQUE (message, user_id, kind, token)
);

CREATE INDEX pushes_by_due ON pushes (due, id) WHERE due IS NOT NULL;
CREATE INDEX pushes_by_token ON pushes (token) WHERE token <> '';
CREATE INDEX dead_pushes ON pushes (id) WHERE died IS NOT NULL;

-- As it was, and makes its rooms due. What is due already stays as it is, so that the update touches no index.
CREATE OR REPLACE FUNCTION append_messages(p_rooms TEXT[], p_senders TEXT[], p_cids TEXT[], p_ids BIGINT[], p_bodies TEXT[])
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
        UPDATE rooms SET head = tops.head, due = coalesce(rooms.due, v_now + 1000)
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

-- Notes what is decided about rooms, and makes the pushes: for each room all of it or, where its hold was taken by
-- another, nothing. Answers how many pushes were made.
--
-- It is one statement, as append_messages is, and locks rooms in id order as that one does, then members in the order
-- in which positions move on. What is acknowledged, or decided before, is not pushed, whatever was asked for.
CREATE FUNCTION settle_rooms(p_looker TEXT, p_rooms JSON, p_decided JSON, p_pushes JSON, p_kinds TEXT[])
RETURNS BIGINT LANGUAGE plpgsql VOLATILE SET enable_seqscan = off AS $$
DECLARE
    v_now  BIGINT;
    v_kept TEXT[];
    v_made BIGINT;
BEGIN
    SELECT array_agg(held.id) INTO v_kept
    FROM (
        SELECT rooms.id
        FROM json_to_recordset(p_rooms) AS given (room TEXT, hold BIGINT)
        JOIN rooms ON rooms.id = given.room
        WHERE rooms.due = given.hold AND rooms.looker = p_looker
        ORDER BY rooms.id
        FOR UPDATE OF rooms
    ) AS held;
    v_now := clock_ms();

    WITH open AS MATERIALIZED (
        SELECT given.room, given.user_id, given.seq, messages.id AS message
        FROM json_to_recordset(p_pushes) AS given (room TEXT, user_id TEXT, seq BIGINT)
        JOIN rooms ON rooms.id = given.room AND rooms.swept < given.seq
        JOIN messages ON messages.room = given.room AND messages.seq = given.seq AND messages.event IS NULL
        WHERE given.room = ANY (v_kept)
            -- A sub-query, so that each member is looked up by room and user, however large the room.
            AND given.seq > (
                SELECT greatest(members.delivered, members.read, members.pushed, members.since - 1)
                FROM members
                WHERE members.room = given.room AND members.user_id = given.user_id
            )
    ), ways AS (
        SELECT open.*, 'webhook' AS kind, '' AS token FROM open
        UNION ALL
        SELECT open.*, device_tokens.provider, device_tokens.token
        FROM open
        JOIN device_tokens ON device_tokens.user_id = open.user_id
    )
    INSERT INTO pushes (kind, token, user_id, room, seq, message, made, due, tries)
    SELECT ways.kind, ways.token, ways.user_id, ways.room, ways.seq, ways.message, v_now, v_now, 0
    FROM ways
    WHERE ways.kind = ANY (p_kinds)
    ORDER BY ways.room, ways.seq
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_made = ROW_COUNT;

    WITH held AS MATERIALIZED (
        SELECT members.room, members.user_id, given.seq
        FROM json_to_recordset(p_decided) AS given (room TEXT, user_id TEXT, seq BIGINT)
        JOIN members ON members.room = given.room AND members.user_id = given.user_id
        WHERE given.room = ANY (v_kept) AND members.pushed < given.seq
        ORDER BY members.room, members.user_id
        FOR UPDATE OF members
    )
    UPDATE members SET pushed = held.seq
    FROM held
    WHERE members.room = held.room AND members.user_id = held.user_id;

    UPDATE rooms SET swept = greatest(rooms.swept, given.swept),
        due = CASE WHEN rooms.head > greatest(rooms.swept, given.swept) THEN v_now + given.again END,
        looker = CASE WHEN rooms.head > greatest(rooms.swept, given.swept) THEN p_looker END
    FROM json_to_recordset(p_rooms) AS given (room TEXT, swept BIGINT, again BIGINT)
    WHERE rooms.id = given.room AND rooms.id = ANY (v_kept);
    RETURN v_made;
END
$$;
