//! How people are told who are not there: by a webhook, by Firebase Cloud Messaging, by both or not at all.

use std::fmt::{self, Display};
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use super::args::PushArgs;
use super::rules::{is_open, parse_url, read, trim_newline};
use super::show::line;
use super::values::written;
use super::{Secret, SecretUrl};

/// As long as the hash that signs with it.
const MIN_SECRET: usize = 32;

/// Where Firebase Cloud Messaging is.
const FCM_URL: &str = "https://fcm.googleapis.com";

/// How people are told who are not there.
#[derive(Debug, Clone)]
pub struct Push {
    /// How long a message may go unacknowledged: 1 s to 1 h.
    pub after: Duration,
    /// Whether a push says what the message says.
    pub preview: bool,
    /// The application's own backend.
    pub webhook: Option<Webhook>,
    /// Firebase Cloud Messaging.
    pub fcm: Option<Fcm>,
}

/// Where pushes are posted.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// The address, http or https.
    pub url: SecretUrl,
    /// What they are signed with: at least 32 bytes.
    pub secret: Secret,
}

/// Firebase Cloud Messaging, and who asks it.
#[derive(Debug, Clone)]
pub struct Fcm {
    /// Its address, without a path of its own.
    pub url: SecretUrl,
    /// In whose name messages are sent.
    pub account: ServiceAccount,
}

/// A Google service account, as its key file has it.
#[derive(Debug, Clone)]
pub struct ServiceAccount {
    /// The account's name.
    pub client_email: String,
    /// An RSA key in PEM form.
    pub private_key: Secret,
    /// The key's name.
    pub private_key_id: String,
    /// The project that owns the apps.
    pub project_id: String,
    /// Where access tokens are had.
    pub token_uri: SecretUrl,
}

/// Checks the flags of pushes.
pub(super) fn push(args: PushArgs) -> Result<Push, String> {
    let webhook = webhook(&args)?;
    let fcm = fcm(&args)?;
    if args.push_preview == Some(true) && webhook.is_none() && fcm.is_none() {
        return Err("--push-preview is of use with --push-webhook or --fcm-key-file only".into());
    }
    Ok(Push { after: args.push_after, preview: args.push_preview.unwrap_or(false), webhook, fcm })
}

fn webhook(args: &PushArgs) -> Result<Option<Webhook>, String> {
    let secret = webhook_secret(args)?;
    match (&args.push_webhook, secret) {
        (None, None) => Ok(None),
        (None, Some(_)) => Err("a secret for pushes is of use with --push-webhook only".into()),
        (Some(_), None) => Err("--push-webhook needs --push-webhook-secret or --push-webhook-secret-file: whoever \
                                gets a push must be able to tell who sent it"
            .into()),
        (Some(url), Some(secret)) => {
            let url = parse_url("--push-webhook", url, &["http", "https"], "https://app.example/push")?;
            Ok(Some(Webhook { url, secret }))
        }
    }
}

fn webhook_secret(args: &PushArgs) -> Result<Option<Secret>, String> {
    let (flag, secret) = match (&args.push_webhook_secret, &args.push_webhook_secret_file) {
        (None, None) => return Ok(None),
        (Some(secret), None) => ("--push-webhook-secret", secret.clone().into_bytes()),
        (None, Some(path)) => {
            let mut secret = read("--push-webhook-secret-file", path)?;
            trim_newline(&mut secret);
            ("--push-webhook-secret-file", secret)
        }
        (Some(_), Some(_)) => {
            return Err("give only one of --push-webhook-secret and --push-webhook-secret-file".into());
        }
    };
    if secret.len() < MIN_SECRET {
        return Err(format!(
            "{flag} is {} bytes long and needs at least {MIN_SECRET}; openssl rand -hex 32 makes a good one",
            secret.len()
        ));
    }
    Ok(Some(Secret::new(secret)))
}

fn fcm(args: &PushArgs) -> Result<Option<Fcm>, String> {
    let Some(path) = &args.fcm_key_file else {
        let refusal = "--fcm-url is of use with --fcm-key-file only".to_owned();
        return if args.fcm_url.is_some() { Err(refusal) } else { Ok(None) };
    };
    let url = parse_url("--fcm-url", args.fcm_url.as_deref().unwrap_or(FCM_URL), &["http", "https"], FCM_URL)?;
    Ok(Some(Fcm { url, account: account(path)? }))
}

/// Reads a key file. No error repeats what is in it.
fn account(path: &Path) -> Result<ServiceAccount, String> {
    let name = format!("--fcm-key-file {}", path.display());
    let no_account = |what: &str| format!("{name} {what}; it must be the JSON key of a Google service account");
    let fields: Map<String, Value> =
        serde_json::from_slice(&read("--fcm-key-file", path)?).map_err(|_| no_account("is no JSON object"))?;
    let field = |key: &str| match fields.get(key).and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(no_account(&format!("has no {key}"))),
    };
    let token_uri = field("token_uri")?;
    Ok(ServiceAccount {
        client_email: field("client_email")?,
        private_key: Secret::new(field("private_key")?),
        private_key_id: field("private_key_id")?,
        project_id: field("project_id")?,
        token_uri: parse_url(
            "token_uri in --fcm-key-file",
            &token_uri,
            &["http", "https"],
            "https://oauth2.googleapis.com/token",
        )?,
    })
}

impl Push {
    /// Where pushes go, for people; none where they go nowhere.
    pub fn targets(&self) -> Option<String> {
        let webhook = self.webhook.iter().map(|webhook| format!("webhook {}", webhook.url));
        let fcm = self.fcm.iter().map(|fcm| format!("fcm project {}", fcm.account.project_id));
        let targets: Vec<String> = webhook.chain(fcm).collect();
        (!targets.is_empty()).then(|| targets.join(", "))
    }

    /// What is allowed but deserves a word.
    pub(super) fn warnings(&self) -> Vec<String> {
        let webhook = self.webhook.iter().map(|webhook| ("--push-webhook", &webhook.url));
        let fcm = self
            .fcm
            .iter()
            .flat_map(|fcm| [("--fcm-url", &fcm.url), ("token_uri in --fcm-key-file", &fcm.account.token_uri)]);
        let open = webhook.chain(fcm).filter(|(_, url)| is_open(url));
        open.map(|(flag, url)| format!("{flag} {url} is not https: whoever is on the way can read it")).collect()
    }
}

impl Display for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        line(f, "push-after", written(self.after))?;
        match &self.webhook {
            Some(webhook) => {
                line(f, "push-webhook", &webhook.url)?;
                line(f, "push-webhook-secret", &webhook.secret)?;
            }
            None => line(f, "push-webhook", "none")?,
        }
        line(f, "push-preview", self.preview)?;
        match &self.fcm {
            Some(Fcm { url, account }) => {
                line(f, "fcm-key-file", format_args!("{} of {}", account.client_email, account.project_id))?;
                line(f, "fcm-url", url)
            }
            None => line(f, "fcm-key-file", "none"),
        }
    }
}
