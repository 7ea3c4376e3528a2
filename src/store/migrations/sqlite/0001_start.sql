-- There are no foreign keys: rooms are never deleted, and members change only in a transaction that holds their room.

CREATE TABLE meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE rooms (
    id      TEXT    NOT NULL PRIMARY KEY,
    creator TEXT    NOT NULL,
    name    TEXT,
    open    BOOLEAN NOT NULL,
    -- The two users of a direct room, in order; null in all others.
    low     TEXT,
    high    TEXT,
    -- The seq of the latest entry, and of the latest membership change.
    head    INTEGER NOT NULL,
    version INTEGER NOT NULL,
    -- How many members there are.
    size    INTEGER NOT NULL,
    UNIQUE (low, high)
) WITHOUT ROWID;

CREATE TABLE members (
    room      TEXT    NOT NULL,
    user_id   TEXT    NOT NULL,
    -- The seq of their last join.
    since     INTEGER NOT NULL,
    delivered INTEGER NOT NULL,
    read      INTEGER NOT NULL,
    PRIMARY KEY (room, user_id)
) WITHOUT ROWID;

CREATE INDEX members_by_user ON members (user_id, room);

CREATE TABLE cursors (
    user_id TEXT    NOT NULL,
    room    TEXT    NOT NULL,
    device  TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (user_id, room, device)
) WITHOUT ROWID;

CREATE TABLE messages (
    room   TEXT    NOT NULL,
    seq    INTEGER NOT NULL,
    id     INTEGER NOT NULL,
    sender TEXT    NOT NULL,
    -- Null for a membership change.
    cid    TEXT,
    at     INTEGER NOT NULL,
    -- What happened, for a membership change; null for a message.
    event  TEXT,
    -- The JSON text of a message; for a membership change a JSON array of the users it is about.
    body   TEXT    NOT NULL,
    PRIMARY KEY (room, seq)
);

CREATE UNIQUE INDEX messages_by_cid ON messages (sender, cid) WHERE cid IS NOT NULL;

CREATE TABLE workers (
    worker INTEGER NOT NULL PRIMARY KEY,
    holder TEXT,
    -- When the lease ends, in ms since 1970 by the database's clock.
    ends   INTEGER NOT NULL,
    -- The holder makes ids above `above` and up to `high`, in ms since 1970.
    above  INTEGER NOT NULL,
    high   INTEGER NOT NULL
);

INSERT INTO workers (worker, ends, above, high)
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1023)
SELECT n, 0, 0, 0 FROM numbers;
