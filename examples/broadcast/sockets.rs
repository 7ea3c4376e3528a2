//! The sockets of clients: one task each. Shared by the examples, which differ in what their `Server` does.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::response::Response;
use futures_util::SinkExt;
use minichat::gateway::{READ_BUFFER_BYTES, WRITE_BUFFER_BYTES};
use tokio::sync::mpsc;

use crate::Server;
use crate::directory::Session;

/// The longest frame of a client, in bytes.
pub(crate) const MESSAGE_LIMIT: usize = 64 * 1024;

/// How many frames may wait for one socket; what comes then is dropped.
const OUTBOX: usize = 512;

/// Takes a client in.
pub(crate) async fn open(
    State(server): State<Arc<Server>>,
    Query(query): Query<HashMap<String, String>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let user = query.get("user").map_or("nobody", String::as_str).into();
    let upgrade = upgrade
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_message_size(MESSAGE_LIMIT);
    upgrade.on_upgrade(move |socket| async move {
        let (outbox, frames) = mpsc::channel(OUTBOX);
        let session = Session { id: server.next_id(), user, outbox };
        server.enter(&session).await;
        // However it ended, it has.
        let _ = serve(socket, &server, &session, frames).await;
        server.leave(&session).await;
    })
}

async fn serve(
    mut socket: WebSocket,
    server: &Server,
    session: &Session,
    mut frames: mpsc::Receiver<Utf8Bytes>,
) -> Result<(), axum::Error> {
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            biased;
            message = socket.recv() => match message {
                Some(Ok(Message::Text(text))) => {
                    if let Some(answer) = server.accept(session, &text).await {
                        socket.send(Message::Text(answer.into())).await?;
                    }
                }
                Some(Ok(Message::Close(_))) | None => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
            },
            _ = frames.recv_many(&mut batch, OUTBOX) => {
                for frame in batch.drain(..) {
                    socket.feed(Message::Text(frame)).await?;
                }
                socket.flush().await?;
            }
        }
    }
}
