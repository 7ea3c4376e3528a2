use std::io::Write;

use super::*;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn parse(flags: &[&str]) -> Result<Config, String> {
    Config::parse_from(std::iter::once("minichat").chain(flags.iter().copied())).map_err(|error| error.to_string())
}

/// The one line that refuses these flags.
fn refusal(flags: &[&str]) -> String {
    let line = parse(flags).expect_err("these flags are refused");
    assert!(!line.contains('\n'), "{line:?}");
    line
}

fn file(content: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    file
}

fn cluster_with(more: &[&'static str]) -> Result<Config, String> {
    let base = [
        "--redis=redis://:hunter2@r:6379",
        "--cluster-secret=0123456789abcdef",
        "--database=postgres://u:hunter2@db/c",
    ];
    parse(&[&base, more].concat())
}

#[test]
fn every_flag_has_a_variable_of_its_name_and_a_help_text() {
    let command = args::Args::command();
    command.clone().debug_assert();
    for arg in command.get_arguments() {
        let long = arg.get_long().expect("every argument is a flag");
        let expected = format!("MINICHAT_{}", long.replace('-', "_").to_uppercase());
        assert_eq!(arg.get_env().and_then(|name| name.to_str()), Some(expected.as_str()));
        let help = arg.get_help().expect("every flag is explained").to_string();
        let default = !arg.get_default_values().is_empty() || help.contains("[default:");
        assert!(default || long == "check", "--{long} does not tell its default");
    }
}

#[test]
fn a_bare_run_is_a_lone_server_on_loopback_that_believes_names() {
    let config = parse(&[]).unwrap();
    assert!(config.gateway.listen.ip().is_loopback());
    assert!(config.auth.dev && config.auth.keys.is_none() && config.gateway.trace_frames);
    assert!(config.cluster.is_none());
    assert_eq!(config.server_id.as_str(), "local1");
    assert_eq!(config.gateway.origins, Origins::Same);
    assert!(config.warnings().is_empty());
}

#[test]
fn an_unknown_flag_is_named_with_the_one_that_was_meant() {
    let line = refusal(&["--lisen=127.0.0.1:1"]);
    assert!(line.contains("--lisen") && line.contains("'--listen'"), "{line}");
}

#[test]
fn a_bad_value_is_answered_with_a_good_one() {
    for (flag, hint) in [
        ("--listen=localhost", "127.0.0.1:8080"),
        ("--ping-interval=25", "10s"),
        ("--lease=1ms", "1s to 5m"),
        ("--allow-origin=chat.example", "https://chat.example"),
        ("--allow-host=a/b", "chat.example"),
        ("--server-id=a,b", "1 to 63"),
        ("--queue-bytes=1", "65536"),
        ("--receipt-members=5001", "5000"),
        ("--log=minichat=loud", "info"),
        ("--log-format=xml", "json"),
        ("--dev-auth=maybe", "dev-auth"),
        ("--admin-listen=on", "127.0.0.1:8080"),
        ("--database=mysql://h/d", "postgres://"),
        ("--database=sqlite:", "sqlite:data/minichat.db"),
        ("--database=sqlite::memory:", "sqlite:data/minichat.db"),
        ("--database=/data/minichat.db", "sqlite:data/minichat.db"),
    ] {
        let line = refusal(&[flag]);
        assert!(line.contains(hint), "{flag}: {line}");
    }
}

#[test]
fn a_public_address_without_keys_must_be_asked_for() {
    assert!(refusal(&["--listen=0.0.0.0:8080"]).contains("--dev-auth"));
    let config = parse(&["--listen=0.0.0.0:8080", "--dev-auth"]).unwrap();
    assert!(config.auth.dev);
    assert_eq!(config.warnings().len(), 1);
}

#[test]
fn a_key_switches_the_development_login_off_unless_it_is_asked_for() {
    let secret = format!("--jwt-secret={SECRET}");
    let config = parse(&["--listen=0.0.0.0:80", &secret]).unwrap();
    assert!(!config.auth.dev && !config.gateway.trace_frames);
    assert!(parse(&["--dev-auth", &secret]).unwrap().auth.dev);
    assert!(refusal(&["--dev-auth=false"]).contains("--dev-auth is off"));
}

#[test]
fn only_one_source_of_keys_is_taken() {
    let line = refusal(&[&format!("--jwt-secret={SECRET}"), "--jwt-jwks-url=https://id.example/keys"]);
    assert!(line.contains("only one"), "{line}");
    assert!(refusal(&["--jwt-audience=chat"]).contains("need a key"));
}

#[test]
fn a_short_secret_is_refused_and_not_repeated() {
    let line = refusal(&["--jwt-secret=hunter2"]);
    assert!(line.contains("at least 32") && !line.contains("hunter2"), "{line}");
}

#[test]
fn a_key_file_holds_a_public_key_or_a_secret() {
    let keys = |content: &[u8]| {
        let file = file(content);
        parse(&[&format!("--jwt-key-file={}", file.path().display())]).map(|config| config.auth.keys.unwrap())
    };
    let secret = keys(format!("{SECRET}\n").as_bytes());
    assert!(matches!(secret, Ok(Keys::Secret(secret)) if secret.expose() == SECRET.as_bytes()));
    assert!(matches!(keys(b"-----BEGIN PUBLIC KEY-----\n..."), Ok(Keys::Pem(_))));
    assert!(keys(b"short").is_err());
    assert!(refusal(&["--jwt-key-file=/nowhere/key"]).contains("/nowhere/key"));
}

#[test]
fn a_public_key_is_never_taken_for_a_secret() {
    let pem = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----";
    assert!(refusal(&[&format!("--jwt-secret={pem}")]).contains("PEM"));
    let der = [&[0x30, 42][..], &[7; 42]].concat();
    for public in [&der[..], br#"{"kty":"RSA","n":"0123456789abcdef"}"#, b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI"] {
        let file = file(public);
        assert!(refusal(&[&format!("--jwt-key-file={}", file.path().display())]).contains("not a secret"));
    }
}

#[test]
fn redis_needs_a_secret_and_a_database_that_can_be_shared() {
    let redis = "--redis=redis://r:6379";
    assert!(refusal(&[redis, "--database=postgres://db/c"]).contains("--cluster-secret"));
    assert!(refusal(&[redis, "--cluster-secret=0123456789abcdef"]).contains("postgres://"));
    assert!(cluster_with(&[]).is_ok());
}

#[test]
fn a_cluster_secret_is_long_enough_and_fit_for_a_header() {
    for bad in ["short", "0123456789 abcdef", "0123456789abcdeü"] {
        let line = refusal(&["--redis=redis://r", "--database=postgres://db/c", &format!("--cluster-secret={bad}")]);
        assert!(line.contains("16 to 256") && !line.contains(bad), "{line}");
    }
    let file = file(b"0123456789abcdef\n");
    let flag = format!("--cluster-secret-file={}", file.path().display());
    let config = parse(&["--redis=redis://r", "--database=postgres://db/c", &flag]).unwrap();
    assert_eq!(config.cluster.unwrap().secret.expose(), b"0123456789abcdef");
}

#[test]
fn a_wildcard_relay_address_needs_one_to_advertise() {
    assert!(cluster_with(&["--relay-listen=0.0.0.0:9090"]).unwrap_err().contains("--relay-advertise"));
    let config = cluster_with(&["--relay-listen=[::]:9090", "--relay-advertise=chat1:9090"]).unwrap();
    assert_eq!(config.cluster.unwrap().relay_advertise.as_deref(), Some("chat1:9090"));
}

#[test]
fn flags_of_a_cluster_without_one_are_refused() {
    for flag in ["--relay-listen=127.0.0.1:1", "--relay-advertise=a:1", "--cluster-secret=0123456789abcdef"] {
        assert!(refusal(&[flag]).contains("--redis"), "{flag}");
    }
}

#[test]
fn lists_are_separated_by_commas_or_repeated() {
    let config =
        parse(&["--allow-origin=https://a,https://b", "--allow-origin=http://c:1", "--allow-host=a,b:2"]).unwrap();
    assert!(matches!(config.gateway.origins, Origins::Only(list) if list.len() == 3));
    assert_eq!(config.gateway.hosts.len(), 2);
    assert_eq!(parse(&["--allow-origin=*"]).unwrap().gateway.origins, Origins::Any);
}

#[test]
fn the_printed_configuration_shows_no_secret() {
    let secret = format!("--jwt-secret={SECRET}");
    let shown = [cluster_with(&[]).unwrap(), parse(&[&secret]).unwrap()].map(|config| format!("{config}\n{config:?}"));
    for text in &shown {
        for secret in ["hunter2", "0123456789abcdef"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
    assert!(shown[0].contains("redis = redis://:********@r:6379"), "{}", shown[0]);
    assert!(shown[0].contains("cluster-secret = ********") && shown[1].contains("jwt-secret = ********"));
}

#[test]
fn a_bad_url_is_refused_without_its_password() {
    for flag in
        ["--redis=redis://u:hunter2@h:notaport", "--database=postgres://u:hunter2@:x", "--redis=http://u:hunter2@h"]
    {
        let line = refusal(&[flag]);
        assert!(!line.contains("hunter2"), "{line}");
    }
}

#[test]
fn help_and_version_are_no_errors_of_usage() {
    for flag in ["--help", "--version"] {
        let Err(Error::Information(text)) = Config::parse_from(["minichat", flag]) else { panic!("{flag}") };
        assert!(text.contains("minichat"));
    }
}

#[test]
fn a_test_gets_free_ports() {
    let config = Config::for_test(std::path::Path::new("/tmp/x.db"));
    assert_eq!(config.gateway.listen.port(), 0);
    assert!(matches!(config.store.database, Database::Sqlite(path) if path.as_os_str() == "/tmp/x.db"));
}

/// The key file of a service account, without this field.
fn account_without(field: &str) -> tempfile::NamedTempFile {
    let fields = ["client_email", "private_key", "private_key_id", "project_id"];
    let fields = fields.iter().map(|name| (*name, format!("hunter2 {name}")));
    let all = fields.chain([("token_uri", "https://oauth2.googleapis.com/token".to_owned())]);
    let kept: std::collections::BTreeMap<_, _> = all.filter(|(name, _)| *name != field).collect();
    file(serde_json::to_string(&kept).unwrap().as_bytes())
}

fn fcm(file: &tempfile::NamedTempFile) -> String {
    format!("--fcm-key-file={}", file.path().display())
}

#[test]
fn nobody_is_pushed_unless_a_target_is_named() {
    let push = parse(&[]).unwrap().push;
    assert!(push.webhook.is_none() && push.fcm.is_none() && !push.preview && push.targets().is_none());
    assert_eq!(push.after, Duration::from_secs(15));
    assert_eq!(parse(&["--push-after=2m"]).unwrap().push.after, Duration::from_secs(120));
    assert!(refusal(&["--push-after=2h"]).contains("1s to 1h"));
}

#[test]
fn a_webhook_is_signed_with_a_long_secret() {
    let webhook = "--push-webhook=https://app.example/push";
    let secret = format!("--push-webhook-secret={SECRET}");
    assert!(refusal(&[webhook]).contains("--push-webhook-secret"));
    assert!(refusal(&[&secret]).contains("--push-webhook only"));
    assert!(refusal(&["--push-webhook=app.example", &secret]).contains("https://app.example/push"));
    let line = refusal(&[webhook, "--push-webhook-secret=hunter2"]);
    assert!(line.contains("at least 32") && !line.contains("hunter2"), "{line}");
    let file = file(format!("{SECRET}\n").as_bytes());
    let from_file = format!("--push-webhook-secret-file={}", file.path().display());
    assert!(refusal(&[webhook, &secret, &from_file]).contains("only one"));
    let push = parse(&[webhook, &from_file]).unwrap().push;
    assert_eq!(push.webhook.unwrap().secret.expose(), SECRET.as_bytes());
}

#[test]
fn a_key_file_of_a_service_account_is_whole() {
    let push = parse(&[&fcm(&account_without(""))]).unwrap().push.fcm.unwrap();
    assert_eq!(push.account.project_id, "hunter2 project_id");
    assert_eq!(push.url.to_string(), "https://fcm.googleapis.com/");
    for field in ["client_email", "private_key", "private_key_id", "project_id", "token_uri"] {
        let line = refusal(&[&fcm(&account_without(field))]);
        assert!(line.contains(&format!("has no {field};")) && !line.contains("hunter2"), "{line}");
    }
    for no_account in [&b"hunter2"[..], b"[]", b"{\"private_key\":5}"] {
        let line = refusal(&[&fcm(&file(no_account))]);
        assert!(line.contains("service account") && !line.contains("hunter2"), "{line}");
    }
}

#[test]
fn flags_of_pushes_without_a_target_are_refused() {
    assert!(refusal(&["--push-preview"]).contains("--push-webhook or --fcm-key-file"));
    assert!(refusal(&["--fcm-url=http://localhost"]).contains("--fcm-key-file"));
}

#[test]
fn the_printed_configuration_shows_no_secret_of_pushes() {
    let account = account_without("");
    let (secret, url) =
        (format!("--push-webhook-secret={SECRET}"), "--push-webhook=http://me:hunter3@app.example/push");
    let config = parse(&[&secret, url, "--push-preview", &fcm(&account)]).unwrap();
    let text = format!("{config}\n{config:?}");
    for secret in [SECRET, "hunter3", "hunter2 private_key\""] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert!(text.contains("push-webhook-secret = ********\n") && text.contains("push-preview = true\n"), "{text}");
    assert!(matches!(&config.warnings()[..], [line] if line.contains("--push-webhook http://me:********@app.example")));
}
