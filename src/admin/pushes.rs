//! Pushes that were given up: to be read, and to be made once more.
//!
//! A browser that can reach this port must not be made to do either by a page that it shows: what comes from a page
//! says so in its headers, and is refused.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, Request, State};
use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use super::Admin;
use crate::config::Authority;
use crate::ids::{MessageId, RoomId, UserId};
use crate::store::{DeadLetter, Error};

/// How many are listed at once, unless fewer are asked for.
const MOST_LISTED: u32 = 1_000;

/// How many are listed where nothing is said.
const LISTED: u32 = 100;

/// How many can be named in one request.
const MOST_NAMED: usize = 1_000;

/// Where the list goes on, and how long it may be.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Window {
    #[serde(default)]
    after: i64,
    limit: Option<u32>,
}

/// Which pushes are made once more.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replay {
    ids: Option<Vec<i64>>,
    #[serde(default)]
    all: bool,
}

/// A push that was given up.
#[derive(Debug, Serialize)]
struct Dead {
    id: i64,
    kind: &'static str,
    user: UserId,
    room: RoomId,
    seq: u64,
    message: MessageId,
    tries: u32,
    reason: String,
    at: u64,
}

/// How many pushes are made once more.
#[derive(Debug, Serialize)]
struct Replayed {
    replayed: u64,
}

/// Why a request is not done.
#[derive(Debug)]
enum Refused {
    Page,
    Host,
    Bad(String),
    Store(Error),
}

pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/pushes/dead", get(list))
        .route("/pushes/dead/replay", post(replay))
        .route_layer(middleware::from_fn(refuse_pages))
}

/// Lets pass what does not come from a web page.
async fn refuse_pages(request: Request, next: Next) -> Result<Response, Refused> {
    let headers = request.headers();
    let is_of_page = headers.get("sec-fetch-site").is_some_and(|site| site != "none") || headers.contains_key(ORIGIN);
    match headers.get(HOST) {
        _ if is_of_page => Err(Refused::Page),
        Some(host) if !is_own(host) => Err(Refused::Host),
        _ => Ok(next.run(request).await),
    }
}

/// Whether no stranger can have bound this name to our address. A page under such a name is of the same origin, and its
/// reads say nothing of a page where there is no TLS. A name without a dot is of this network or this machine.
fn is_own(host: &HeaderValue) -> bool {
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    host.is_some_and(|host| host.ip().is_some() || !host.host().contains('.'))
}

async fn list(State(admin): State<Arc<Admin>>, uri: axum::http::Uri) -> Result<Json<Vec<Dead>>, Refused> {
    let window = Query::<Window>::try_from_uri(&uri).map_err(|error| Refused::Bad(error.body_text()))?.0;
    let limit = window.limit.unwrap_or(LISTED);
    if !(1..=MOST_LISTED).contains(&limit) {
        return Err(Refused::Bad(format!("limit must be 1 to {MOST_LISTED}")));
    }
    let letters = admin.router.parts().store.dead_pushes(window.after, limit).await?;
    Ok(Json(letters.into_iter().map(Dead::from).collect()))
}

async fn replay(State(admin): State<Arc<Admin>>, body: Bytes) -> Result<Json<Replayed>, Refused> {
    let asked: Replay = serde_json::from_slice(&body)
        .map_err(|error| Refused::Bad(format!("write {{\"ids\":[1,2]}} or {{\"all\":true}}: {error}")))?;
    let ids = asked.ids()?;
    let replayed = admin.router.parts().store.replay_pushes(ids).await?;
    tracing::info!(replayed, "dead pushes are made once more");
    Ok(Json(Replayed { replayed }))
}

impl Replay {
    /// Those that are named, or none for all.
    fn ids(&self) -> Result<Option<&[i64]>, Refused> {
        match (&self.ids, self.all) {
            (None, true) => Ok(None),
            (Some(ids), false) if ids.len() <= MOST_NAMED => Ok(Some(ids)),
            (Some(_), false) => Err(Refused::Bad(format!("name at most {MOST_NAMED} ids, or all"))),
            _ => Err(Refused::Bad("write {\"ids\":[1,2]} or {\"all\":true}".into())),
        }
    }
}

impl From<DeadLetter> for Dead {
    fn from(letter: DeadLetter) -> Self {
        let DeadLetter { id, kind, user, room, seq, message, tries, reason, at } = letter;
        Self { id, kind: kind.as_str(), user, room, seq, message, tries, reason, at }
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Page => (StatusCode::FORBIDDEN, "this is not for web pages".into()),
            Self::Host => {
                (StatusCode::FORBIDDEN, "ask by an IP address or a name without dots, such as localhost".into())
            }
            Self::Bad(text) => (StatusCode::BAD_REQUEST, text),
            Self::Store(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
        };
        (status, text + "\n").into_response()
    }
}
