//! How a connection ends: one table of codes, each with a reason and whether the client should come back.

/// What a client does after a close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// Reconnect, after the `reconnect_after_ms` of the `closing` frame if there was one.
    Come,
    /// Reconnect with a growing, random delay.
    Later,
    /// Reconnect only with a fresh token.
    WithToken,
    /// Do not reconnect by itself: the same would happen again.
    Never,
}

/// Why the server ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Close {
    /// The server is about to stop.
    GoingAway,
    /// The bytes are not WebSocket.
    Protocol,
    /// A binary frame: all frames are text.
    Binary,
    /// A text that is not UTF-8.
    NotText,
    /// A frame beyond [`super::MAX_FRAME_BYTES`].
    TooBig,
    /// No valid token in time, or it has expired.
    Unauthenticated,
    /// This user may not connect.
    Forbidden,
    /// Nothing was heard for two ping intervals.
    Silent,
    /// The client does not read: for the limit of a write not one byte could leave.
    Slow,
    /// A newer session of the same user and device exists.
    Replaced,
    /// The application ended the session.
    Kicked,
    /// The server cannot take or keep this session now.
    TryLater,
}

impl Close {
    /// All of them, in the order of the protocol document.
    pub const ALL: [Self; 12] = [
        Self::GoingAway,
        Self::Protocol,
        Self::Binary,
        Self::NotText,
        Self::TooBig,
        Self::Unauthenticated,
        Self::Forbidden,
        Self::Silent,
        Self::Slow,
        Self::Replaced,
        Self::Kicked,
        Self::TryLater,
    ];

    /// The code in the close frame (RFC 6455, section 7.4; 4000 and up are ours), the reason in it, and what the
    /// client does then.
    const fn row(self) -> (u16, &'static str, Return) {
        match self {
            Self::GoingAway => (1001, "going away", Return::Come),
            Self::Protocol => (1002, "protocol error", Return::Never),
            Self::Binary => (1003, "text frames only", Return::Never),
            Self::NotText => (1007, "not UTF-8", Return::Never),
            Self::TooBig => (1009, "frame too big", Return::Never),
            Self::Unauthenticated => (4001, "unauthenticated", Return::WithToken),
            Self::Forbidden => (4003, "forbidden", Return::Never),
            Self::Silent => (4007, "silent", Return::Come),
            Self::Slow => (4008, "slow", Return::Come),
            Self::Replaced => (4009, "replaced", Return::Never),
            Self::Kicked => (4010, "kicked", Return::Never),
            Self::TryLater => (4013, "try later", Return::Later),
        }
    }

    /// The code in the close frame.
    pub const fn code(self) -> u16 {
        self.row().0
    }

    /// The reason in the close frame; also its name in logs and metrics.
    pub const fn reason(self) -> &'static str {
        self.row().1
    }

    /// Whether the client should come back.
    pub const fn comes_back(self) -> Return {
        self.row().2
    }
}
