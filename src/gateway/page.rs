//! The demo page: static files, compiled in.
//!
//! The page is served from the address that it talks to, with a policy that lets it load and reach nothing else.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// No inline script, no other origin, no frame around it: a message that smuggles in markup finds nothing to run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file of the page.
struct File {
    path: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

const FILES: [File; 5] = [
    File { path: "/", content_type: "text/html; charset=utf-8", text: include_str!("../../web/index.html") },
    File { path: "/style.css", content_type: "text/css; charset=utf-8", text: include_str!("../../web/style.css") },
    File { path: "/app.js", content_type: SCRIPT, text: include_str!("../../web/app.js") },
    File { path: "/connection.js", content_type: SCRIPT, text: include_str!("../../web/connection.js") },
    File { path: "/icon.svg", content_type: "image/svg+xml", text: include_str!("../../web/icon.svg") },
];

/// The routes of the page. They need no state, so they go into any router.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, file| {
        let tag = file.tag();
        router.route(file.path, get(async move |headers: HeaderMap| file.answer(&headers, &tag)))
    })
}

impl File {
    /// The mark of its content. The same binary gives the same mark, on every server.
    fn tag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        format!("\"{:016x}\"", hasher.finish())
    }

    fn answer(&self, request: &HeaderMap, tag: &str) -> Response {
        let headers = [
            (header::CONTENT_TYPE, self.content_type),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            // Browsers keep it and ask each time, so a new version of the server shows at the next reload.
            (header::CACHE_CONTROL, "no-cache"),
            (header::ETAG, tag),
        ];
        if has_tag(request, tag) {
            (StatusCode::NOT_MODIFIED, headers).into_response()
        } else {
            (headers, self.text).into_response()
        }
    }
}

/// Whether the client has this content already. A proxy that compresses makes the mark a weak one (`W/"..."`).
fn has_tag(request: &HeaderMap, tag: &str) -> bool {
    let known = request.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    known.flat_map(|value| value.split(',')).any(|known| known.trim().trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use tower::Service;

    use super::*;

    async fn ask(path: &str, known: Option<&str>) -> Response {
        let mut request = Request::get(path);
        if let Some(tag) = known {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let mut router: Router = router();
        router.call(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    #[tokio::test]
    async fn each_file_comes_with_its_type_and_under_the_policy() {
        for file in &FILES {
            let response = ask(file.path, None).await;
            assert_eq!(response.status(), StatusCode::OK);
            let headers = response.headers();
            assert_eq!(headers[header::CONTENT_TYPE], file.content_type);
            assert_eq!(headers[header::CONTENT_SECURITY_POLICY], POLICY);
            assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
            assert_eq!(headers[header::REFERRER_POLICY], "no-referrer");
            assert_eq!(to_bytes(response.into_body(), usize::MAX).await.unwrap(), file.text);
        }
    }

    #[tokio::test]
    async fn a_browser_that_has_the_content_is_not_sent_it_again() {
        let tag = ask("/app.js", None).await.headers()[header::ETAG].to_str().unwrap().to_owned();
        for known in [tag.clone(), format!("\"old\", W/{tag}")] {
            let response = ask("/app.js", Some(&known)).await;
            assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
            assert!(to_bytes(response.into_body(), usize::MAX).await.unwrap().is_empty());
        }
        assert_eq!(ask("/app.js", Some("\"old\"")).await.status(), StatusCode::OK);
    }

    #[test]
    fn the_page_has_no_inline_script_and_no_inline_style() {
        for tag in FILES[0].text.split('<').filter_map(|rest| rest.split('>').next()) {
            assert!(!tag.starts_with("style") && !tag.contains(" style=") && !tag.contains(" on"), "{tag}");
            assert!(!tag.starts_with("script") || tag.contains(" src=\"/"), "{tag}");
        }
    }
}
