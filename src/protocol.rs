//! What is said on the wire: the frames of clients and servers, the error codes, the close codes.
//!
//! All JSON is read and written here. `docs/protocol.md` shows every frame; a test holds the two together.

mod client;
mod close;
mod reject;
mod server;

pub use client::{Body, ClientFrame, DeviceToken, Hello, HistoryFrom, Parsed, Place, Provider, PushToken, Target};
pub use close::{Close, Return};
pub use reject::{Code, Reject};
pub use server::{Frame, MessageView, ReceiptView, RoomInfo, ServerFrame, TracePath};

/// The largest frame a client may send, in bytes.
pub const MAX_FRAME_BYTES: usize = 64 * 1024;

/// The largest `body` of a `send` or `signal`, in bytes of JSON text.
pub const MAX_BODY_BYTES: usize = 16 * 1024;

/// The most entries that one page of `rooms`, `members` or `history` can have.
pub const MAX_PAGE: u32 = 200;
