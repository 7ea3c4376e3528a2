//! The first frames of a connection: who it is, by request or by `hello`, and where the client was.

use std::time::Duration;

use axum::extract::ws::Message;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::fault::close_of;
use super::socket::Socket;
use crate::auth::{Auth, Identity};
use crate::protocol::{ClientFrame, Close, Hello, Parsed};

/// How long a client without a token in its request may take to say who it is.
const HELLO_LIMIT: Duration = Duration::from_secs(5);

/// How long a client with a token in its request is waited for; one that says nothing has said an empty `hello`.
const EMPTY_HELLO: Duration = Duration::from_secs(1);

/// The most cursors that are taken; those past it are as if they were not given.
const MAX_CURSORS: usize = 20_000;

/// A client that has said who it is.
#[derive(Debug)]
pub(super) struct Greeted {
    pub(super) identity: Identity,
    pub(super) hello: Hello,
    /// A frame that came in place of a `hello`, to be answered after the welcome.
    pub(super) first: Option<Parsed>,
}

/// How a connection ended before it began.
#[derive(Debug)]
pub(super) enum Failed {
    /// The client went away.
    Gone,
    /// It is to be closed.
    Close(Close),
}

/// Hears the client's `hello`. `known` is who it is by its request, if that said so.
pub(super) async fn greet(socket: &mut Socket, auth: &Auth, known: Option<Identity>) -> Result<Greeted, Failed> {
    let limit = if known.is_some() { EMPTY_HELLO } else { HELLO_LIMIT };
    let first = match (next_frame(socket, Instant::now() + limit).await?, &known) {
        (Some(first), _) => first,
        (None, Some(_)) => Parsed { cid: None, frame: Ok(ClientFrame::Hello(Hello::default())) },
        (None, None) => return Err(Failed::Close(Close::Unauthenticated)),
    };
    let (mut hello, first) = match (first, &known) {
        (Parsed { frame: Ok(ClientFrame::Hello(hello)), .. }, _) => (hello, None),
        (other, Some(_)) => (Hello::default(), Some(other)),
        (_, None) => return Err(Failed::Close(Close::Unauthenticated)),
    };
    let identity = identify(auth, known, &hello).await?;
    collect_cursors(socket, &mut hello).await?;
    Ok(Greeted { identity, hello, first })
}

/// A token in the `hello` counts over what the request said, but not for another user.
async fn identify(auth: &Auth, known: Option<Identity>, hello: &Hello) -> Result<Identity, Failed> {
    let Some(token) = &hello.token else { return known.ok_or(Failed::Close(Close::Unauthenticated)) };
    let identity = auth.verify(token).await.map_err(|denied| {
        debug!(reason = %denied, "a token was refused");
        Failed::Close(Close::Unauthenticated)
    })?;
    match known {
        Some(known) if known.user != identity.user => Err(Failed::Close(Close::Forbidden)),
        _ => Ok(identity),
    }
}

/// While a `hello` says that more cursors follow, they are waited for.
async fn collect_cursors(socket: &mut Socket, hello: &mut Hello) -> Result<(), Failed> {
    let end = Instant::now() + HELLO_LIMIT;
    while hello.more {
        let next = next_frame(socket, end).await?.map(|parsed| parsed.frame);
        let Some(Ok(ClientFrame::Hello(more))) = next else { return Err(Failed::Close(Close::Protocol)) };
        hello.more = more.more;
        let room = MAX_CURSORS.saturating_sub(hello.cursors.len());
        hello.cursors.extend(more.cursors.into_iter().take(room));
    }
    Ok(())
}

/// The next text frame; none where none came in time.
async fn next_frame(socket: &mut Socket, end: Instant) -> Result<Option<Parsed>, Failed> {
    loop {
        let Ok(message) = timeout_at(end, socket.recv()).await else { return Ok(None) };
        match message {
            Some(Ok(Message::Text(text))) => return Ok(Some(Parsed::read(&text))),
            Some(Ok(Message::Binary(_))) => return Err(Failed::Close(Close::Binary)),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_))) | None => return Err(Failed::Gone),
            Some(Err(error)) => return Err(close_of(error).map_or(Failed::Gone, Failed::Close)),
        }
    }
}
