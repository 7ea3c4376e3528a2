//! The demo page: the files of `web/`, compiled in.
//!
//! The page is served from the address that it talks to, with a policy that lets it load and reach nothing else. It is
//! asked for anew each time and names its files under a folder whose name is the hash of them all, so browsers may keep
//! those for ever. Within the folder they refer to each other as they do in `web/`: nothing has to be rewritten.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sha2::{Digest, Sha256};

/// No inline script, no other origin, no frame around it, and no way from text to markup: a message that smuggles some in
/// finds nothing to run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

/// The page is asked for each time, so a new version of the server shows at the next reload.
const ASK_EACH_TIME: &str = "no-cache";
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// For a file under a hash that is not its own: another version of this server has named it.
const NOT_AT_ALL: &str = "no-store";

const PAGE: &str = include_str!("../../web/index.html");

/// A file that the page needs.
struct Asset {
    path: &'static str,
    text: &'static str,
}

macro_rules! assets {
    ($($path:literal),+ $(,)?) => {
        &[$(Asset { path: $path, text: include_str!(concat!("../../web/", $path)) }),+]
    };
}

const ASSETS: &[Asset] = assets![
    "app.js",
    "icon.svg",
    "minichat.js",
    "style.css",
    "view/composer.js",
    "view/conversation.js",
    "view/dialogs.js",
    "view/dom.js",
    "view/drawing.js",
    "view/journey.js",
    "view/log.js",
    "view/message.js",
    "view/rooms.js",
    "view/status.js",
    "view/travels.js",
    "view/watch.js",
    "view/words.js",
];

/// The page, whose references name the hash, and the mark of this content.
struct Page {
    html: String,
    tag: String,
}

/// The hash of all assets. The same files give the same one, on every server.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let parts = ASSETS.iter().flat_map(|asset| [asset.path, "\0", asset.text, "\0"]);
    hash(parts)
});

static INDEX: LazyLock<Page> = LazyLock::new(|| {
    let html = PAGE.replace("=\"./", &format!("=\"/assets/{}/", *VERSION));
    let tag = format!("\"{}\"", hash([html.as_str()]));
    Page { html, tag }
});

/// The routes of the page. They need no state, so they go into any router.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(index)).route("/assets/{version}/{*path}", get(asset))
}

async fn index(request: HeaderMap) -> Response {
    let Page { html, tag } = &*INDEX;
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::ETAG, tag)];
    let answer =
        if has_tag(&request, tag) { StatusCode::NOT_MODIFIED.into_response() } else { html.as_str().into_response() };
    guarded(ASK_EACH_TIME, (headers, answer).into_response())
}

/// While a cluster moves to a new version, the page may come from one server and its files from another. Then a file of
/// this version is better than none.
async fn asset(Path((version, path)): Path<(String, String)>) -> Response {
    let Some(asset) = ASSETS.iter().find(|asset| asset.path == path) else {
        return guarded(NOT_AT_ALL, StatusCode::NOT_FOUND.into_response());
    };
    let keep = if version == *VERSION { FOR_EVER } else { NOT_AT_ALL };
    guarded(keep, ([(header::CONTENT_TYPE, asset.content_type())], asset.text).into_response())
}

/// What every answer says, with how long it may be kept.
fn guarded(keep: &'static str, mut answer: Response) -> Response {
    let always = [
        (header::CACHE_CONTROL, keep),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    answer.headers_mut().extend(always.map(|(name, value)| (name, HeaderValue::from_static(value))));
    answer
}

impl Asset {
    fn content_type(&self) -> &'static str {
        match self.path.rsplit_once('.') {
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "application/octet-stream",
        }
    }
}

/// The first 64 bits of SHA-256, in hex: enough to tell versions apart.
fn hash<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    parts.into_iter().for_each(|part| hasher.update(part));
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Whether the client has this content already. A proxy that compresses makes the mark a weak one (`W/"..."`).
fn has_tag(request: &HeaderMap, tag: &str) -> bool {
    let known = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    known.flat_map(|value| value.split(',')).any(|known| known.trim().trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests;
