//! The program as an operator meets it: flags, variables, one-line errors, exit codes.

use std::net::TcpListener;
use std::process::{Command, Output};

/// Ports that no other test takes.
const FREE: &str = "--listen=127.0.0.1:0";
const OFF: &str = "--admin-listen=off";

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn minichat(flags: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minichat"));
    command.args(flags).env_clear().envs(variables.iter().copied());
    command.output().expect("the program runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line on standard error, after the program's name.
fn complaint(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.trim_end().strip_prefix("minichat: ").expect("the line begins with the program's name").to_owned()
}

#[test]
fn check_prints_the_effective_configuration_without_secrets() {
    let output = minichat(&["--check", "--ping-interval=500ms"], &[("MINICHAT_JWT_SECRET", SECRET)]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0));
    assert!(text.contains("ping-interval = 500ms\n") && text.contains("jwt-secret = ********\n"), "{text}");
    assert!(!text.contains(SECRET));
}

#[test]
fn a_flag_wins_over_its_variable() {
    let output = minichat(&["--check", "--listen=127.0.0.1:2"], &[("MINICHAT_LISTEN", "127.0.0.1:1")]);
    assert!(stdout(&output).contains("listen = 127.0.0.1:2\n"));
    let output = minichat(&[], &[("MINICHAT_CHECK", "true"), ("MINICHAT_LISTEN", "127.0.0.1:1")]);
    assert!(stdout(&output).contains("listen = 127.0.0.1:1\n"));
}

#[test]
fn wrong_use_is_one_line_and_exit_code_2() {
    for (flags, variables, expected) in [
        (&["--lisen=x"][..], &[][..], "--listen"),
        (&["--ping-interval=25"], &[], "10s"),
        (&["stray"], &[], "stray"),
        (&["--listen=0.0.0.0:1"], &[], "--dev-auth"),
        (&["--redis=redis://r"], &[], "--cluster-secret"),
        (&[], &[("MINICHAT_PING_INTERVALL", "1s")], "MINICHAT_PING_INTERVAL"),
        (&[], &[("MINICHAT_DEV_AUTH", "perhaps")], "MINICHAT_DEV_AUTH: "),
        (&[], &[("MINICHAT_JWT_SECRET", "")], "at least 32"),
        (&["--jwt-key-file=Cargo.toml", "--check"], &[("MINICHAT_JWT_SECRET", SECRET)], "only one"),
    ] {
        let output = minichat(flags, variables);
        let line = complaint(&output);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.contains(expected), "{line}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_key_that_is_none_is_found_by_check() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n").unwrap();
    let output = minichat(&["--check", "--jwt-key-file", file.path().to_str().unwrap()], &[]);
    assert!(complaint(&output).contains("RSA, EC P-256, Ed25519"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_key_of_a_service_account_that_is_none_is_found_by_check() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let fields =
        ["client_email", "private_key", "private_key_id", "project_id"].map(|name| format!("\"{name}\":\"x\""));
    let token_uri = "\"token_uri\":\"https://oauth2.googleapis.com/token\"";
    std::fs::write(file.path(), format!("{{{},{token_uri}}}", fields.join(","))).unwrap();
    let output = minichat(&["--check", "--fcm-key-file", file.path().to_str().unwrap()], &[]);
    assert!(complaint(&output).contains("private_key in --fcm-key-file"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn help_explains_every_flag_and_shows_no_variable_s_value() {
    let output = minichat(&["--help"], &[("MINICHAT_JWT_SECRET", SECRET)]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0));
    for word in ["--listen", "MINICHAT_LISTEN", "25s", "--cluster-secret-file", "--log-format"] {
        assert!(text.contains(word), "{word}");
    }
    assert!(!text.contains(SECRET));
}

#[test]
fn keys_that_cannot_be_fetched_end_the_start_with_one_line() {
    let output = minichat(&[FREE, OFF, "--log=off", "--jwt-jwks-url=http://127.0.0.1:1/keys"], &[]);
    assert!(complaint(&output).contains("http://127.0.0.1:1/keys does not answer"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_cause_is_told_once() {
    let output = minichat(&[FREE, OFF, "--log=off", "--jwt-jwks-url=http://127.0.0.1:1/keys"], &[]);
    assert_eq!(complaint(&output).matches("127.0.0.1:1").count(), 1);
}

#[test]
fn what_cannot_be_had_is_one_line_and_exit_code_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let nowhere = "--database=sqlite:/dev/null/chat.db";
    for (flags, what) in [
        (&["--listen", &taken, OFF, nowhere][..], ["cannot listen", &taken, "--listen"]),
        (&[FREE, "--admin-listen", &taken, nowhere], ["cannot listen", &taken, "--admin-listen"]),
        (&[FREE, OFF, nowhere], ["database", "/dev/null/chat.db", "cannot be written"]),
        (&[FREE, OFF, "--database=postgres://me:hunter2@127.0.0.1:1/chat"], ["database", "127.0.0.1:1", "refused"]),
    ] {
        let output = minichat(flags, &[]);
        let line = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(what.iter().all(|word| line.contains(word)) && !line.contains("hunter2"), "{line}");
    }
}
