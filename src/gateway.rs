//! The public side: who may connect, and the sockets of those who did.

mod catch_up;
mod connection;
mod fault;
mod handshake;
mod heads;
mod link;
pub mod listener;
pub mod origin;
pub mod page;
mod socket;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Extension, Query, State};
use axum::http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{debug, info};

use crate::auth::{Auth, Identity};
use crate::config;
use crate::ids::{RoomId, SessionId, Snowflakes};
use crate::lifecycle::Lifecycle;
use crate::metrics::Metrics;
use crate::protocol::{Close, MAX_FRAME_BYTES, ServerFrame};
use crate::router::Router;
use crate::sessions::{Seat, Session};
use crate::store::{Comer, Stand};
use catch_up::CatchUp;
use connection::{Connection, End, Given, Limits};
use handshake::{Failed, Greeted};
use heads::{Heads, ROOMS_PAGE};
use link::Link;
use socket::Socket;

/// What a socket reads at a time. The default of the library, 128 KiB, would be allocated for every connection.
pub const READ_BUFFER_BYTES: usize = 1024;

/// What a socket gathers before it writes.
pub const WRITE_BUFFER_BYTES: usize = 16 * 1024;

/// How long a connection waits for the registry to know its user; shorter where the registry is known to be away.
const CLAIM_PATIENCE: (Duration, Duration) = (Duration::from_secs(3), Duration::from_millis(100));

/// How far apart clients are told to come back after a close.
const COME_BACK_WITHIN: Duration = Duration::from_secs(2);

/// What every connection works with.
#[derive(Debug)]
pub struct Gateway {
    config: config::Gateway,
    believed: bool,
    auth: Auth,
    router: Router,
    heads: Heads,
    ids: Arc<Snowflakes>,
    places: Arc<Semaphore>,
    metrics: Arc<Metrics>,
    lifecycle: Lifecycle,
}

/// What a request for a socket may say in its URL.
#[derive(Deserialize)]
struct Asked {
    token: Option<String>,
    user: Option<String>,
}

impl Gateway {
    /// A gateway for at most `places` sockets at a time. With `believed`, `?user=alice` is enough.
    pub fn new(
        config: config::Gateway,
        believed: bool,
        places: usize,
        auth: Auth,
        router: Router,
        lifecycle: Lifecycle,
    ) -> Self {
        let (ids, metrics) = (Arc::clone(&router.parts().ids), Arc::clone(&router.parts().metrics));
        let (heads, places) =
            (Heads::start(router.parts().store.clone(), &lifecycle), Arc::new(Semaphore::new(places)));
        Self { config, believed, auth, router, heads, ids, places, metrics, lifecycle }
    }

    /// What is served on the public address.
    pub fn routes(self) -> axum::Router {
        axum::Router::new().route("/ws", get(upgrade)).with_state(Arc::new(self)).merge(page::router())
    }
}

async fn upgrade(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    Query(asked): Query<Asked>,
    Extension(link): Extension<Link>,
    socket: WebSocketUpgrade,
) -> Response {
    if let Err(refused) = gateway.check(&headers) {
        return (StatusCode::FORBIDDEN, refused.to_string()).into_response();
    }
    let Some(place) = gateway.place() else {
        return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "2")], "no place left; try again").into_response();
    };
    let known = match gateway.identify(&headers, asked).await {
        Ok(known) => known,
        Err(refusal) => return refusal,
    };
    // Counted from here, so that an upgrade under way is waited for at the end, too.
    let counted = gateway.lifecycle.tasks.token();
    socket
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(WRITE_BUFFER_BYTES + 4 * MAX_FRAME_BYTES)
        .max_message_size(MAX_FRAME_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        .on_upgrade(async move |socket| {
            let _counted = counted;
            let socket = Socket::new(socket, link, gateway.config.write_timeout);
            // A task of its own: this one would hold all that the upgrade took to the end of the connection.
            let lifecycle = gateway.lifecycle.clone();
            lifecycle.spawn("connection", gateway.serve(socket, known, place));
        })
}

/// Who someone is by their request: known, to be said in `hello`, or refused for a token in the URL, which a browser
/// can only learn from the close code.
enum Known {
    Yes(Identity),
    NotYet,
    Refused,
}

impl Gateway {
    fn check(&self, headers: &HeaderMap) -> Result<(), origin::Refused> {
        origin::check_host(headers, &self.config.hosts, self.believed)?;
        origin::check_origin(headers, &self.config.origins)
    }

    fn place(&self) -> Option<OwnedSemaphorePermit> {
        let stopping = self.lifecycle.stop.is_cancelled();
        Arc::clone(&self.places).try_acquire_owned().ok().filter(|_| !stopping)
    }

    async fn identify(&self, headers: &HeaderMap, asked: Asked) -> Result<Known, Response> {
        if let Some(header) = headers.get(AUTHORIZATION) {
            let token = header.to_str().ok().and_then(bearer);
            let Some(token) = token else { return Err(refuse("the Authorization header must be: Bearer <token>")) };
            return match self.auth.verify(token).await {
                Ok(identity) => Ok(Known::Yes(identity)),
                Err(denied) => {
                    debug!(reason = %denied, "a token was refused");
                    Err(refuse(denied.reason()))
                }
            };
        }
        let verdict = match (asked.token, asked.user) {
            (Some(token), _) => self.auth.verify(&token).await,
            (None, Some(user)) => self.auth.believe(&user),
            (None, None) => return Ok(Known::NotYet),
        };
        Ok(verdict.map_or_else(
            |denied| {
                debug!(reason = %denied, "a request was refused");
                Known::Refused
            },
            Known::Yes,
        ))
    }

    /// Serves one socket from its upgrade to its end. What begins and what ends it is boxed, so that the memory for it
    /// is there only meanwhile; most connections are idle most of the time.
    async fn serve(self: Arc<Self>, socket: Socket, known: Known, _place: OwnedSemaphorePermit) {
        self.metrics.connects.inc();
        let _open = Open::new(&self.metrics);
        let (socket, end) = match Box::pin(self.greet(socket, known)).await {
            Ok((mut connection, seat)) => {
                let since = Instant::now();
                let end = connection.run().await;
                // One line for a session, not two: each is a call of the system.
                let Session { user, id, .. } = &*seat.session;
                info!(%user, session = %id, ?end, seconds = since.elapsed().as_secs(), "session ended");
                // The seat, and with it the user's place in the registry, is free before the last words are said.
                let socket = connection.into_socket();
                drop(seat);
                (socket, end)
            }
            Err(ended) => ended,
        };
        Box::pin(self.part(socket, end)).await;
    }

    /// Hears who it is and begins the session; if there is none, says how it ends.
    async fn greet(&self, mut socket: Socket, known: Known) -> Result<(Connection, Seat), (Socket, End)> {
        let known = match known {
            Known::Yes(identity) => Some(identity),
            Known::NotYet => None,
            Known::Refused => return Err((socket, End::Close(Close::Unauthenticated))),
        };
        match handshake::greet(&mut socket, &self.auth, known).await {
            Ok(greeted) => self.begin(socket, greeted).await,
            Err(Failed::Close(close)) => Err((socket, End::Close(close))),
            Err(Failed::Gone) => Err((socket, End::Gone)),
        }
    }

    /// Seats the session, tells the registry, and only then says welcome and looks for what the client has missed: so
    /// a message is either found there, or its sender finds the session.
    async fn begin(&self, socket: Socket, greeted: Greeted) -> Result<(Connection, Seat), (Socket, End)> {
        let Ok(id) = self.ids.next() else { return Err((socket, End::Close(Close::TryLater))) };
        let Greeted { identity, hello, first } = greeted;
        let trace = hello.trace && self.config.trace_frames;
        let queue_bytes = self.config.queue_bytes;
        let session = Session::new(SessionId(id), identity.user.clone(), hello.device.clone(), trace, queue_bytes);
        let seat = self.router.parts().sessions.seat(session);
        if self.lifecycle.stop.is_cancelled() {
            return Err((socket, End::Close(Close::GoingAway)));
        }
        self.router.register(&seat.session, CLAIM_PATIENCE).await;
        let mut connection = self.connection(socket, &seat, &identity);
        connection.queue(self.welcome(&seat.session));
        if self.enter_rooms(&mut connection, &seat.session, &hello.cursors).await.is_err() {
            return Err((connection.into_socket(), End::Close(Close::TryLater)));
        }
        seat.entered();
        if let Some(first) = first {
            connection.answer(first).await;
        }
        debug!(user = %identity.user, session = %seat.session.id, "session began");
        Ok((connection, seat))
    }

    fn connection(&self, socket: Socket, seat: &Seat, identity: &Identity) -> Connection {
        let session = Arc::clone(&seat.session);
        let catch_up = CatchUp::new(self.router.parts(), self.lifecycle.clone(), Arc::clone(&session));
        let limits = Limits { ping_interval: self.config.ping_interval, queue_bytes: self.config.queue_bytes };
        let (router, auth) = (self.router.clone(), self.auth.clone());
        Connection::new(Given { socket, session, router, auth, catch_up, limits }, identity)
    }

    fn welcome(&self, session: &Session) -> crate::protocol::Frame {
        let ping_interval_ms = self.config.ping_interval.as_millis() as u64;
        let (user, server) = (&session.user, &self.router.parts().own);
        ServerFrame::Welcome { user, session: session.id, server, ping_interval_ms }.encode()
    }

    /// Enters all rooms of the user, each where the client left off.
    async fn enter_rooms(
        &self,
        connection: &mut Connection,
        session: &Session,
        cursors: &HashMap<RoomId, u64>,
    ) -> Result<(), crate::store::Error> {
        let mut after = None;
        loop {
            let (user, device) = (session.user.clone(), session.device.clone());
            let page = self.heads.of(Comer { user, device, after }).await?;
            for stand in &page {
                let cursor = start_of(stand, cursors.get(&stand.room).copied());
                // While nobody of the room was here, this server was not told of changes.
                self.router.parts().rooms.changed(&stand.room, stand.members_version);
                connection.enter(&stand.room, cursor, stand.head);
                if cursor > stand.delivered {
                    self.router.note_cursor(session, &stand.room, cursor);
                }
            }
            if page.len() < ROOMS_PAGE as usize {
                return Ok(());
            }
            after = page.into_iter().map(|stand| stand.room).max();
        }
    }

    async fn part(&self, socket: Socket, end: End) {
        match end {
            End::Close(close) => {
                self.metrics.closed(close);
                socket.close(close, COME_BACK_WITHIN).await;
            }
            End::Gone => socket.part().await,
        }
    }
}

/// Where a session starts in a room: what the client says it has, if there is so much; else where its device was; else
/// where the user was. Nothing before the user's last join is seen.
fn start_of(stand: &Stand, said: Option<u64>) -> u64 {
    let cursor = said.filter(|said| *said <= stand.head).or(stand.cursor).unwrap_or(stand.delivered);
    cursor.max(stand.since.saturating_sub(1))
}

/// The token in an `Authorization` header; the case of the scheme is the client's to choose.
fn bearer(header: &str) -> Option<&str> {
    header.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token)
}

fn refuse(reason: &str) -> Response {
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], reason.to_owned()).into_response()
}

/// Counts a socket as open for as long as it is.
struct Open<'a>(&'a Metrics);

impl<'a> Open<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        metrics.connections.inc();
        Self(metrics)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the future that serves a connection.
    fn future_bytes<F>(_: impl FnOnce(Arc<Gateway>, Socket, Known, OwnedSemaphorePermit) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_connection_holds_no_memory_for_what_it_is_not_doing() {
        let bytes = future_bytes(Gateway::serve);
        assert!(bytes <= 2_560, "{bytes} bytes for each connection: box what is rare");
    }

    #[test]
    fn a_session_starts_where_the_client_the_device_or_the_user_left_off_and_never_before_the_last_join() {
        let stand =
            |cursor| Stand { room: "r".parse().unwrap(), head: 10, since: 4, delivered: 6, cursor, members_version: 4 };
        assert_eq!(start_of(&stand(Some(8)), Some(9)), 9);
        assert_eq!(start_of(&stand(Some(8)), None), 8);
        assert_eq!(start_of(&stand(None), None), 6);
        assert_eq!(start_of(&stand(None), Some(11)), 6, "a cursor past the head is none");
        assert_eq!(start_of(&stand(None), Some(1)), 3);
    }
}
