use std::collections::BTreeSet;
use std::fs;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request};
use tower::Service;

use super::*;

async fn ask(request: axum::http::request::Builder) -> Response {
    let mut router: Router = router();
    router.call(request.body(Body::empty()).unwrap()).await.unwrap()
}

async fn get_path(path: &str) -> Response {
    ask(Request::get(path)).await
}

async fn text(response: Response) -> String {
    String::from_utf8(to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec()).unwrap()
}

fn address(asset: &Asset) -> String {
    format!("/assets/{}/{}", *VERSION, asset.path)
}

/// What stands in quotes after `before`, wherever that is.
fn quoted_after<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(|rest| rest.split('"').next())
}

#[tokio::test]
async fn each_file_comes_as_it_is_with_its_type_under_the_policy_and_for_ever() {
    for asset in ASSETS {
        let response = get_path(&address(asset)).await;
        assert_eq!(response.status(), StatusCode::OK);
        let headers = response.headers();
        assert_eq!(headers[header::CONTENT_TYPE], asset.content_type());
        assert_ne!(asset.content_type(), "application/octet-stream", "{}", asset.path);
        assert_eq!(headers[header::CONTENT_SECURITY_POLICY], POLICY);
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(headers[header::REFERRER_POLICY], "no-referrer");
        assert_eq!(headers[header::CACHE_CONTROL], FOR_EVER);
        assert_eq!(text(response).await, asset.text);
    }
}

#[tokio::test]
async fn a_file_under_another_hash_is_kept_by_nobody() {
    let response = get_path("/assets/0123456789abcdef/view/log.js").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[header::CACHE_CONTROL], NOT_AT_ALL);
}

#[tokio::test]
async fn a_file_that_is_not_there_is_not_found_and_that_is_kept_by_nobody() {
    for path in ["nothing.js", "index.html", "../app.js", "view"] {
        let response = get_path(&format!("/assets/{}/{path}", *VERSION)).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
        assert_eq!(response.headers()[header::CACHE_CONTROL], NOT_AT_ALL);
        assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
    }
}

#[tokio::test]
async fn a_browser_asks_for_the_page_each_time_and_is_not_sent_what_it_has() {
    let first = get_path("/").await;
    assert_eq!(first.headers()[header::CACHE_CONTROL], ASK_EACH_TIME);
    assert_eq!(first.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
    let tag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
    for known in [tag.clone(), format!("\"old\", W/{tag}")] {
        let response = ask(Request::get("/").header(header::IF_NONE_MATCH, known)).await;
        assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(response.headers()[header::ETAG], tag);
        assert!(text(response).await.is_empty());
    }
    let other = ask(Request::get("/").header(header::IF_NONE_MATCH, "\"old\"")).await;
    assert_eq!(other.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_head_has_the_headers_and_no_body() {
    for path in ["/".to_owned(), address(&ASSETS[0])] {
        let whole = get_path(&path).await;
        let head = ask(Request::builder().method(Method::HEAD).uri(&path)).await;
        assert_eq!(head.status(), StatusCode::OK);
        for name in [header::CONTENT_TYPE, header::CACHE_CONTROL, header::CONTENT_SECURITY_POLICY] {
            assert_eq!(head.headers()[&name], whole.headers()[&name]);
        }
        assert!(text(head).await.is_empty());
    }
}

#[test]
fn all_that_the_page_names_is_there_under_the_hash() {
    let folder = format!("/assets/{}/", *VERSION);
    let named: Vec<_> = quoted_after(&INDEX.html, &folder).collect();
    assert!(named.len() > 3);
    for path in named {
        assert!(ASSETS.iter().any(|asset| asset.path == path), "{path}");
    }
}

/// A module that is not preloaded is asked for only when the one before it has come.
#[test]
fn every_script_is_compiled_in_and_named_by_the_page() {
    let web = concat!(env!("CARGO_MANIFEST_DIR"), "/web");
    let scripts = ["", "view/"].into_iter().flat_map(|folder| {
        fs::read_dir(format!("{web}/{folder}"))
            .unwrap()
            .map(move |file| format!("{folder}{}", file.unwrap().file_name().display()))
    });
    let scripts: BTreeSet<_> = scripts.filter(|name| name.ends_with(".js")).collect();
    let compiled: BTreeSet<_> =
        ASSETS.iter().map(|asset| asset.path.to_owned()).filter(|path| path.ends_with(".js")).collect();
    assert_eq!(compiled, scripts);
    for script in scripts {
        assert!(PAGE.contains(&format!("\"./{script}\"")), "{script}");
    }
}

#[test]
fn scripts_import_each_other_by_paths_that_hold_within_the_folder() {
    for asset in ASSETS.iter().filter(|asset| asset.path.ends_with(".js")) {
        for path in quoted_after(asset.text, " from \"") {
            assert!(path.starts_with("./"), "{}: {path}", asset.path);
            let folder = asset.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let whole = format!("{folder}/{}", &path[2..]);
            assert!(ASSETS.iter().any(|asset| asset.path == whole.trim_start_matches('/')), "{}: {path}", asset.path);
        }
    }
}

#[test]
fn the_page_has_no_inline_script_and_no_inline_style() {
    for tag in PAGE.split('<').filter_map(|rest| rest.split('>').next()) {
        assert!(!tag.starts_with("style") && !tag.contains(" style=") && !tag.contains(" on"), "{tag}");
        assert!(!tag.starts_with("script") || tag.contains(" src=\"./"), "{tag}");
    }
}
