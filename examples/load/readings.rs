//! What is read from outside before and after a counted span: processes, the servers' metrics, the loopback device.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a server may take to show its metrics.
const ADMIN_LIMIT: Duration = Duration::from_secs(5);

/// In what the kernel counts time for programs (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;

/// What to read.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    /// Processes by name, the generator itself among them.
    pub(crate) processes: Vec<(String, u32)>,
    pub(crate) admins: Vec<SocketAddr>,
}

/// What was used up to one time.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) at: Instant,
    /// In the order of the sources.
    pub(crate) processes: Vec<Usage>,
    /// Bytes that went over the loopback device.
    pub(crate) loopback: u64,
}

/// What servers count: sums over all of them, by the name of the metric without labels.
pub(crate) type Metrics = BTreeMap<String, f64>;

/// What a process, with its children, has used.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) cpu_seconds: f64,
    pub(crate) switches: u64,
    /// Bytes.
    pub(crate) rss: u64,
    /// The largest it ever was, of the process alone, in bytes.
    pub(crate) peak_rss: u64,
}

impl Sources {
    /// Reads the servers' metrics. That costs the servers something: to be done outside of what is counted, whose metrics
    /// are then of a time that is longer by as much.
    pub(crate) fn metrics(&self) -> io::Result<Metrics> {
        let mut metrics = Metrics::new();
        for admin in &self.admins {
            let page = get(*admin);
            let page = page.map_err(|error| io::Error::new(error.kind(), format!("metrics of {admin}: {error}")))?;
            add_metrics(&mut metrics, &page);
        }
        Ok(metrics)
    }

    /// Reads what was used.
    pub(crate) fn read(&self) -> io::Result<Reading> {
        let children = children();
        let usage = |(name, pid): &(String, u32)| {
            tree_usage(*pid, &children)
                .map_err(|error| io::Error::new(error.kind(), format!("process {name}: {error}")))
        };
        let processes = self.processes.iter().map(usage).collect::<io::Result<_>>()?;
        Ok(Reading { at: Instant::now(), processes, loopback: loopback_bytes()? })
    }
}

fn get(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ADMIN_LIMIT)?;
    stream.set_read_timeout(Some(ADMIN_LIMIT))?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let status = text.split_whitespace().nth(1).unwrap_or("nothing");
    if status == "200" { Ok(text) } else { Err(io::Error::other(format!("it answers {status}"))) }
}

/// Adds each number of a page under its name; what differs by labels only is summed.
fn add_metrics(sums: &mut Metrics, page: &str) {
    for line in page.lines().filter(|line| line.starts_with("minichat_")) {
        let Some((name, value)) = line.rsplit_once(' ') else { continue };
        let name = name.split('{').next().unwrap_or(name);
        *sums.entry(name.to_owned()).or_default() += value.parse().unwrap_or(0.0);
    }
}

/// The children of each process.
fn children() -> HashMap<u32, Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        // A process may be gone by now.
        if let Ok(parent) = parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

fn tree_usage(pid: u32, children: &HashMap<u32, Vec<u32>>) -> io::Result<Usage> {
    let mut usage = usage(pid)?;
    for child in children.get(&pid).into_iter().flatten() {
        // A child may be gone by now.
        if let Ok(more) = tree_usage(*child, children) {
            usage.cpu_seconds += more.cpu_seconds;
            usage.switches += more.switches;
            usage.rss += more.rss;
        }
    }
    Ok(usage)
}

fn usage(pid: u32) -> io::Result<Usage> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = |name: &str| status.lines().find_map(|line| number_after(line, name)).unwrap_or(0) * 1024;
    let threads = threads(pid)?;
    Ok(Usage {
        cpu_seconds: threads.cpu_ns as f64 / 1e9 + of_children_that_ended(pid)?,
        switches: threads.switches,
        rss: kib("VmRSS:"),
        peak_rss: kib("VmHWM:"),
    })
}

#[derive(Debug, Default)]
struct Threads {
    cpu_ns: u64,
    switches: u64,
}

/// What all threads that are there have used: one that has ended takes its part with it. The scheduler's own count of CPU
/// time is in ns; that of the whole process is shown in hundredths of a second, which is much for what costs microseconds.
fn threads(pid: u32) -> io::Result<Threads> {
    let mut sum = Threads::default();
    for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let status = read("status");
        sum.switches +=
            status.lines().filter(|line| line.contains("ctxt_switches")).filter_map(last_number).sum::<u64>();
        sum.cpu_ns += read("schedstat").split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    if sum.cpu_ns == 0 { Err(io::Error::other("the kernel does not show its CPU time (schedstat)")) } else { Ok(sum) }
}

fn number_after(line: &str, name: &str) -> Option<u64> {
    line.strip_prefix(name)?.split_whitespace().next()?.parse().ok()
}

fn last_number(line: &str) -> Option<u64> {
    line.split_whitespace().next_back()?.parse().ok()
}

/// CPU seconds of those children of a process that have ended: what they used is not to be forgotten with them.
fn of_children_that_ended(pid: u32) -> io::Result<f64> {
    let ticks: u64 = [13, 14].into_iter().map(|field| stat(pid, field)).sum::<io::Result<u64>>()?;
    Ok(ticks as f64 / TICKS_PER_SECOND)
}

fn parent(pid: u32) -> io::Result<u32> {
    stat(pid, 1).map(|parent| parent as u32)
}

/// A field of /proc/PID/stat, counted from the one after the name, which is in parentheses and may have blanks.
fn stat(pid: u32, field: usize) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let mut fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.nth(field).and_then(|field| field.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What was received over the loopback device is what was sent over it.
fn loopback_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/net/dev")?;
    Ok(text.lines().find_map(|line| number_after(line.trim_start(), "lo:")).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_of_several_servers_and_labels_are_summed() {
        let mut sums = Metrics::new();
        for page in [
            "# HELP x\nminichat_drops_total{reason=\"a\"} 1\nminichat_drops_total{reason=\"b\"} 2",
            "minichat_drops_total{reason=\"a\"} 4",
        ] {
            add_metrics(&mut sums, page);
        }
        assert_eq!(sums["minichat_drops_total"], 7.0);
    }

    #[test]
    fn what_a_child_used_is_not_forgotten_when_it_ends() {
        let before = of_children_that_ended(std::process::id()).unwrap();
        let count = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";
        assert!(std::process::Command::new("sh").args(["-c", count]).status().unwrap().success());
        assert!(of_children_that_ended(std::process::id()).unwrap() > before);
    }

    #[test]
    fn this_process_has_used_something() {
        let sources = Sources { processes: vec![("this".into(), std::process::id())], admins: Vec::new() };
        let reading = sources.read().unwrap();
        let Usage { cpu_seconds, rss, peak_rss, .. } = reading.processes[0];
        assert!(cpu_seconds > 0.0 && rss > 0 && peak_rss > 0);
    }
}
