//! Starts one server.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use minichat::auth::Auth;
use minichat::config::{Config, Error, LogFormat, Logs};
use minichat::lifecycle::Lifecycle;
use minichat::{push, runtime};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// How the process ends when it was called wrongly, as shells have it.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let config = match Config::from_args() {
        Ok(config) => config,
        Err(Error::Information(text)) => {
            return say(&text);
        }
        Err(Error::Usage(line)) => return fail(USAGE, &line),
    };
    if let Err(error) = Auth::check(&config.auth) {
        return fail(USAGE, &error.to_string());
    }
    if let Err(error) = push::check(&config.push) {
        return fail(USAGE, &error.to_string());
    }
    if config.check {
        config.warnings().iter().for_each(|warning| eprintln!("minichat: warning: {warning}"));
        return say(&config.to_string());
    }
    start_logs(&config.logs);
    match runtime::new().context("cannot start the runtime").and_then(|runtime| runtime.block_on(run(config))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, &format!("{error:#}")),
    }
}

/// What was asked for. Whoever has heard enough may close the pipe.
fn say(text: &str) -> ExitCode {
    let _ = io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// One line for a person, apart from the log, and the code to exit with.
fn fail(code: u8, line: &str) -> ExitCode {
    eprintln!("minichat: {line}");
    ExitCode::from(code)
}

/// What is never logged, whatever the filter says: the WebSocket library shows all that clients write, tokens included.
const SILENCED: &str = "tungstenite=off,tokio_tungstenite=off";

/// The log goes to standard error, so that standard output stays what was asked for.
fn start_logs(logs: &Logs) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(format!("{},{SILENCED}", directives(&logs.filter))))
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal());
    match logs.format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}

/// A level alone is about this server: what its libraries say below a warning is of use to those who name them only.
fn directives(filter: &str) -> String {
    match filter.parse::<LevelFilter>() {
        Ok(level) if level > LevelFilter::WARN => format!("warn,minichat={level}"),
        _ => filter.to_owned(),
    }
}

async fn run(config: Config) -> anyhow::Result<()> {
    if let Some(url) = &config.probe {
        return minichat::admin::probe(url).await;
    }
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let lifecycle = Lifecycle::new();
    lifecycle.stop_on_signals().context("cannot listen for signals")?;
    minichat::server::run(config, lifecycle).await
}
