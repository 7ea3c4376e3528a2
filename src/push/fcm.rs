//! Pushes by Firebase Cloud Messaging (HTTP v1): one message for each device.

mod answer;
mod message;

use reqwest::Client;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};

use super::Error;
use super::call::{Answer, call, client};
use super::google::{Access, Google, NoAccess};
use super::verdict::Verdict;
use crate::config::{self, SecretUrl};
use crate::store::Push;

use answer::{is_stale, judge};

/// Firebase Cloud Messaging, in the name of one project.
#[derive(Debug)]
pub(super) struct Fcm {
    client: Client,
    url: SecretUrl,
    google: Google,
    preview: bool,
}

impl Fcm {
    /// Makes the client for it, and the key ready.
    pub(super) fn new(config: &config::Fcm, preview: bool) -> Result<Self, Error> {
        let client = client(&[config.url.expose(), config.account.token_uri.expose()])?;
        let google = Google::new(client.clone(), config.account.clone())?;
        let mut url = config.url.expose().clone();
        // A URL of http or https has segments.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["v1", "projects", &config.account.project_id, "messages:send"]);
        }
        Ok(Self { client, url: SecretUrl::new(url), google, preview })
    }

    /// Tries once to make a push; once more where the access token was refused.
    pub(super) async fn send(&self, push: &Push) -> Verdict {
        let body = message::encode(push, self.preview);
        match self.send_with_access(&body).await {
            Ok((answer, access)) if is_stale(&answer) => {
                self.google.withdraw(&access);
                self.send_with_access(&body).await.map_or_else(|verdict| verdict, |(answer, _)| judge(&answer))
            }
            Ok((answer, _)) => judge(&answer),
            Err(verdict) => verdict,
        }
    }

    async fn send_with_access(&self, body: &str) -> Result<(Answer, Access), Verdict> {
        let no_access = |NoAccess { reason, closed }| Verdict::Closed { reason, closed };
        let access = self.google.access().await.map_err(no_access)?;
        let failed = |reason| Verdict::Failed { reason, wait: None };
        let mut bearer = HeaderValue::from_bytes(&access.header())
            .map_err(|_| failed("the access token does not fit a header".into()))?;
        bearer.set_sensitive(true);
        let request = self.client.post(self.url.expose().clone()).header(AUTHORIZATION, bearer);
        let request = request.header(CONTENT_TYPE, "application/json").body(body.to_owned());
        Ok((call(request).await.map_err(failed)?, access))
    }
}
