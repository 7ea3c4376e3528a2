//! What a broken frame is called when its connection is closed.

use tungstenite::Error;
use tungstenite::error::CapacityError;

use crate::protocol::Close;

/// The close for a fault that a socket met in what it read; none where the connection is gone anyway.
pub(super) fn close_of(error: axum::Error) -> Option<Close> {
    let inner = error.into_inner();
    match inner.downcast_ref::<Error>() {
        Some(Error::Utf8(_)) => Some(Close::NotText),
        Some(Error::Capacity(CapacityError::MessageTooLong { .. })) => Some(Close::TooBig),
        Some(Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake)) => None,
        Some(Error::Protocol(_)) => Some(Close::Protocol),
        _ => None,
    }
}
