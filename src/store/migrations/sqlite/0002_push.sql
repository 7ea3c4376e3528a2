-- For whom is a message still to be decided, who wants to be pushed, and what is on its way.

-- Up to this seq all is decided, for every member.
ALTER TABLE rooms ADD COLUMN swept INTEGER NOT NULL DEFAULT 0;
-- When the room is to be looked at, in ms since 1970; null where all is decided.
ALTER TABLE rooms ADD COLUMN due INTEGER;
-- The server that looked last, while something is open.
ALTER TABLE rooms ADD COLUMN looker TEXT;

-- What there was before is not pushed.
UPDATE rooms SET swept = head;

CREATE INDEX rooms_by_due ON rooms (due) WHERE due IS NOT NULL;

-- Up to this seq it is decided for this member.
ALTER TABLE members ADD COLUMN pushed INTEGER NOT NULL DEFAULT 0;
-- They want no pushes of this room.
ALTER TABLE members ADD COLUMN muted BOOLEAN NOT NULL DEFAULT false;

-- Settings; who has none wants all pushes.
CREATE TABLE users (
    user_id TEXT    NOT NULL PRIMARY KEY,
    muted   BOOLEAN NOT NULL
) WITHOUT ROWID;

CREATE TABLE device_tokens (
    provider TEXT    NOT NULL,
    token    TEXT    NOT NULL,
    -- Who registered it last.
    user_id  TEXT    NOT NULL,
    device   TEXT,
    at       INTEGER NOT NULL,
    PRIMARY KEY (provider, token)
) WITHOUT ROWID;

CREATE INDEX device_tokens_by_user ON device_tokens (user_id, provider);

CREATE TABLE pushes (
    -- Never used twice, so that who held one that is gone cannot mean another.
    id      INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    kind    TEXT    NOT NULL,
    -- Of the device; empty for a webhook.
    token   TEXT    NOT NULL,
    user_id TEXT    NOT NULL,
    room    TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    -- The id of the message.
    message INTEGER NOT NULL,
    made    INTEGER NOT NULL,
    -- When it is to be tried; null once it is given up.
    due     INTEGER,
    tries   INTEGER NOT NULL,
    -- Why it failed last.
    reason  TEXT,
    -- When it was given up.
    died    INTEGER,
    UNIQUE (message, user_id, kind, token)
);

CREATE INDEX pushes_by_due ON pushes (due, id) WHERE due IS NOT NULL;
CREATE INDEX pushes_by_token ON pushes (token) WHERE token <> '';
CREATE INDEX dead_pushes ON pushes (id) WHERE died IS NOT NULL;
