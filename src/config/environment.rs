//! The environment: a misspelt variable is an error, since otherwise nobody would notice it; and the host's name.

use std::ffi::OsString;

use crate::ids::ServerId;

const PREFIX: &str = "MINICHAT_";

/// Refuses variables that begin like ours and are none of ours.
pub(super) fn check(command: &clap::Command, names: impl Iterator<Item = OsString>) -> Result<(), String> {
    let known: Vec<&str> = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();
    for name in names {
        let name = name.to_string_lossy();
        if name.starts_with(PREFIX) && !known.contains(&name.as_ref()) && !is_of_orchestrator(&name) {
            let nearest = known.iter().min_by_key(|known| distance(&name, known)).copied().unwrap_or_default();
            return Err(format!("unknown variable {name}; the nearest known one is {nearest}"));
        }
    }
    Ok(())
}

/// Kubernetes tells every container about services: one named `minichat` gives `MINICHAT_SERVICE_HOST`, `MINICHAT_PORT`,
/// `MINICHAT_PORT_8080_TCP_ADDR` and the like. None of our flags is named so.
fn is_of_orchestrator(name: &str) -> bool {
    let is_port = |rest: &str| rest.is_empty() || rest.starts_with("_") && rest.contains(|c: char| c.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.find("_PORT").is_some_and(|at| is_port(&name[at + "_PORT".len()..]))
}

/// How many letters must be changed, added or taken away to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let other = other.as_bytes();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, byte) in one.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for j in 0..other.len() {
            let replaced = diagonal + usize::from(byte != other[j]);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

/// The host's name, when it can be a server's name.
pub(super) fn host_name() -> Option<ServerId> {
    let name =
        ["/proc/sys/kernel/hostname", "/etc/hostname"].iter().find_map(|path| std::fs::read_to_string(path).ok());
    name?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::args::Args;
    use super::*;

    fn verdict(name: &str) -> Result<(), String> {
        check(&Args::command(), std::iter::once(name.into()))
    }

    #[test]
    fn a_misspelt_variable_is_named_with_the_nearest_known_one() {
        let error = verdict("MINICHAT_LISTN").unwrap_err();
        assert_eq!(error, "unknown variable MINICHAT_LISTN; the nearest known one is MINICHAT_LISTEN");
        assert!(verdict("MINICHAT_REDIS_URL").unwrap_err().ends_with("MINICHAT_REDIS"));
    }

    #[test]
    fn known_variables_and_those_of_others_pass() {
        for name in ["MINICHAT_LISTEN", "MINICHAT_JWT_SECRET", "PATH", "MINICHATTER"] {
            assert_eq!(verdict(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn what_kubernetes_sets_for_a_service_of_our_name_passes() {
        for name in [
            "MINICHAT_SERVICE_HOST",
            "MINICHAT_SERVICE_PORT",
            "MINICHAT_SERVICE_PORT_HTTP",
            "MINICHAT_PORT",
            "MINICHAT_PORT_8080_TCP",
            "MINICHAT_PORT_8080_TCP_ADDR",
            "MINICHAT_RELAY_SERVICE_HOST",
        ] {
            assert_eq!(verdict(name), Ok(()), "{name}");
        }
        assert!(verdict("MINICHAT_PORTS").is_err());
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
