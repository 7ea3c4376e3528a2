//! Health, metrics and dead pushes, on a port of their own.
//!
//! `/livez` is this process. `/readyz` fails for what this server alone has lost; what all have lost only degrades it,
//! or an outage of Redis would take every server out of the load balancer.

mod pushes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use tokio::time::timeout;

use crate::config::SecretUrl;
use crate::lifecycle::Lifecycle;
use crate::relay::Probe;
use crate::router;

/// How long one check may take.
const CHECK_LIMIT: Duration = Duration::from_secs(2);

/// How long a probe waits, all checks being made side by side.
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// What the admin port looks at.
#[derive(Debug)]
pub struct Admin {
    /// The server's parts.
    pub router: router::Router,
    /// Asks the own relay, where there is one.
    pub relay: Option<Probe>,
    /// Whether the server is about to stop.
    pub lifecycle: Lifecycle,
}

/// What `/readyz` says.
#[derive(Debug, Serialize)]
struct Readiness {
    ready: bool,
    /// Works, but users of this server may not be found by the others.
    degraded: bool,
    checks: BTreeMap<&'static str, String>,
}

impl Admin {
    /// What is served on the admin address.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/livez", get(|| async { "ok\n" }))
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .merge(pushes::routes())
            .with_state(Arc::new(self))
    }

    async fn readiness(&self) -> Readiness {
        let parts = self.router.parts();
        let (degraded, others_are_well) = (parts.cluster.is_degraded(), parts.cluster.others_are_well());
        let (database, relay) = tokio::join!(self.check_database(), self.check_relay());
        let faults = [
            ("database", database),
            ("relay", relay),
            ("lease", fault(!parts.cluster.has_lease() && others_are_well, "it has ended, and the others have theirs")),
            (
                "registry",
                fault(degraded && others_are_well, "users here cannot be registered, and others can register theirs"),
            ),
            ("drain", fault(self.lifecycle.stop.is_cancelled(), "this server is about to stop")),
        ];
        let ready = faults.iter().all(|(_, fault)| fault.is_none());
        let checks = faults.map(|(name, fault)| (name, fault.unwrap_or_else(|| "ok".into()))).into();
        Readiness { ready, degraded, checks }
    }

    async fn check_database(&self) -> Option<String> {
        match timeout(CHECK_LIMIT, self.router.parts().store.ping()).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("it does not answer in time".into()),
        }
    }

    async fn check_relay(&self) -> Option<String> {
        let probe = self.relay.as_ref()?;
        match timeout(CHECK_LIMIT, probe.ask()).await {
            Ok(Ok(())) => None,
            Ok(Err(problem)) => Some(problem),
            Err(_) => Some("it does not answer in time".into()),
        }
    }
}

fn fault(is_fault: bool, text: &str) -> Option<String> {
    is_fault.then(|| text.to_owned())
}

async fn readyz(State(admin): State<Arc<Admin>>) -> Response {
    let readiness = admin.readiness().await;
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness)).into_response()
}

async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    admin.router.refresh_metrics();
    let text = admin.router.parts().metrics.text();
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}

/// Asks a health URL of a running server; what a container's health check calls.
///
/// # Errors
/// In one line, where it does not answer 200 in time.
pub async fn probe(url: &SecretUrl) -> anyhow::Result<()> {
    crate::tls::install_provider();
    let client = reqwest::Client::builder().no_proxy().timeout(PROBE_LIMIT).build()?;
    let answer = client.get(url.expose().clone()).send().await.map_err(reqwest::Error::without_url);
    let answer = answer.with_context(|| format!("{url} does not answer"))?;
    let status = answer.status();
    let text = answer.text().await.unwrap_or_default();
    if status.is_success() { Ok(()) } else { bail!("{url} answers {status}: {}", text.trim()) }
}
