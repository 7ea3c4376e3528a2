-- As it was, but cheaper: each message is looked up by itself, and none is searched for in a list of others.
--
-- The plan is made once (force_generic_plan), since to make it takes longer than to append a few messages. So it must be
-- good for tables of any size, and the planner does not know how many messages there will be. Hence what is known of a
-- message is looked up by LATERAL ... LIMIT 1, which leaves nothing but an index to do it with: a join was planned as one
-- with all messages while the tables were small. What messages of one batch have to do with each other is told by windows.
CREATE OR REPLACE FUNCTION append_messages(p_rooms TEXT[], p_senders TEXT[], p_cids TEXT[], p_ids BIGINT[], p_bodies TEXT[])
RETURNS TABLE (place BIGINT, outcome TEXT, seq BIGINT, id BIGINT, at BIGINT, version BIGINT)
LANGUAGE plpgsql VOLATILE SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
    v_now BIGINT;
BEGIN
    PERFORM 1 FROM rooms WHERE rooms.id = ANY (p_rooms) ORDER BY rooms.id FOR UPDATE;
    v_now := clock_ms();
    RETURN QUERY
    WITH checked AS (
        SELECT given.room, given.sender COLLATE "C" AS sender, given.cid COLLATE "C" AS cid, given.id, given.body,
            given.place, home.head, home.version, known.seq AS known_seq, known.id AS known_id, known.at AS known_at,
            known.room = given.room AND known.body = given.body AS same,
            known.seq IS NULL AND member.since IS NOT NULL AS storable
        FROM unnest(p_rooms, p_senders, p_cids, p_ids, p_bodies)
            WITH ORDINALITY AS given (room, sender, cid, id, body, place)
        LEFT JOIN LATERAL (
            SELECT rooms.head, rooms.version FROM rooms WHERE rooms.id = given.room LIMIT 1
        ) AS home ON true
        LEFT JOIN LATERAL (
            SELECT members.since FROM members
            WHERE members.room = given.room AND members.user_id = given.sender LIMIT 1
        ) AS member ON true
        LEFT JOIN LATERAL (
            SELECT messages.room, messages.seq, messages.id, messages.at, messages.body FROM messages
            WHERE messages.sender = given.sender AND messages.cid = given.cid LIMIT 1
        ) AS known ON true
    ), led AS (
        -- A cid may come twice in one batch: the first that can be stored leads, the others are repeats of it.
        SELECT checked.*,
            min(checked.place) FILTER (WHERE checked.storable) OVER (PARTITION BY checked.sender, checked.cid) AS leader
        FROM checked
    ), counted AS (
        SELECT led.*,
            led.head + count(*) FILTER (WHERE led.place = led.leader) OVER (PARTITION BY led.room ORDER BY led.place)
                AS seq
        FROM led
    ), numbered AS MATERIALIZED (
        SELECT counted.*, first_value(counted.seq) OVER same_cid AS leader_seq,
            first_value(counted.id) OVER same_cid AS leader_id,
            first_value(counted.room) OVER same_cid = counted.room
                AND first_value(counted.body) OVER same_cid = counted.body AS same_as_leader
        FROM counted
        WINDOW same_cid AS (
            PARTITION BY counted.sender, counted.cid ORDER BY counted.place IS DISTINCT FROM counted.leader
        )
    ), stored AS (
        INSERT INTO messages (room, seq, id, sender, cid, at, body)
        SELECT numbered.room, numbered.seq, numbered.id, numbered.sender, numbered.cid, v_now, numbered.body
        FROM numbered
        WHERE numbered.place = numbered.leader
        ORDER BY numbered.sender, numbered.cid
    ), grown AS (
        UPDATE rooms SET head = tops.head, due = coalesce(rooms.due, v_now + 1000)
        FROM (
            SELECT numbered.room, max(numbered.seq) AS head FROM numbered
            WHERE numbered.place = numbered.leader GROUP BY numbered.room
        ) AS tops
        WHERE rooms.id = tops.room
    )
    SELECT numbered.place,
        CASE
            WHEN numbered.same THEN 'repeat'
            WHEN numbered.known_seq IS NOT NULL THEN 'cid_reused'
            WHEN numbered.place = numbered.leader THEN 'fresh'
            WHEN numbered.place < numbered.leader OR numbered.leader IS NULL THEN 'not_member'
            WHEN numbered.same_as_leader THEN 'repeat'
            ELSE 'cid_reused'
        END,
        coalesce(numbered.known_seq, numbered.leader_seq),
        coalesce(numbered.known_id, numbered.leader_id),
        coalesce(numbered.known_at, v_now),
        numbered.version
    FROM numbered;
END
$$;
