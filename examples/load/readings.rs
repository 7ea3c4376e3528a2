//! What is read from outside before and after a counted span: processes, the servers' metrics, the loopback device.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long a server may take to show its metrics.
const ADMIN_LIMIT: Duration = Duration::from_secs(5);

/// In how many parts of a second the kernel shows CPU time.
const TICKS_PER_SECOND: f64 = 100.0;

/// What to read.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    /// Processes by name, the generator itself among them.
    pub(crate) processes: Vec<(String, u32)>,
    pub(crate) admins: Vec<SocketAddr>,
}

/// All of it at one time.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) at: Instant,
    /// In the order of the sources.
    pub(crate) processes: Vec<Usage>,
    /// Sums over all servers, by the name of the metric without labels.
    pub(crate) metrics: BTreeMap<String, f64>,
    /// Bytes that went over the loopback device.
    pub(crate) loopback: u64,
}

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
    /// Reads everything.
    pub(crate) fn read(&self) -> io::Result<Reading> {
        let mut metrics = BTreeMap::new();
        for admin in &self.admins {
            add_metrics(&mut metrics, &get(*admin)?);
        }
        let children = children();
        let usage = |(name, pid): &(String, u32)| {
            tree_usage(*pid, &children)
                .map_err(|error| io::Error::new(error.kind(), format!("process {name}: {error}")))
        };
        let processes = self.processes.iter().map(usage).collect::<io::Result<_>>()?;
        Ok(Reading { at: Instant::now(), processes, metrics, loopback: loopback_bytes()? })
    }
}

fn get(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ADMIN_LIMIT)?;
    stream.set_read_timeout(Some(ADMIN_LIMIT))?;
    write!(stream, "GET /metrics HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Adds each number of a page under its name; what differs by labels only is summed.
fn add_metrics(sums: &mut BTreeMap<String, f64>, page: &str) {
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
        if let Ok(stat) = Stat::read(pid) {
            children.entry(stat.parent).or_default().push(pid);
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
    Ok(Usage {
        cpu_seconds: Stat::read(pid)?.cpu_seconds,
        switches: switches(pid)?,
        rss: kib("VmRSS:"),
        peak_rss: kib("VmHWM:"),
    })
}

/// Of all threads that are there: one that has ended takes its count with it.
fn switches(pid: u32) -> io::Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        sum += status.lines().filter(|line| line.contains("ctxt_switches")).filter_map(last_number).sum::<u64>();
    }
    Ok(sum)
}

fn number_after(line: &str, name: &str) -> Option<u64> {
    line.strip_prefix(name)?.split_whitespace().next()?.parse().ok()
}

fn last_number(line: &str) -> Option<u64> {
    line.split_whitespace().next_back()?.parse().ok()
}

struct Stat {
    parent: u32,
    cpu_seconds: f64,
}

impl Stat {
    fn read(pid: u32) -> io::Result<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name, in parentheses, may have blanks.
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let number = |place: usize| fields.get(place).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        Ok(Self { parent: number(1) as u32, cpu_seconds: (number(11) + number(12)) as f64 / TICKS_PER_SECOND })
    }
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
        let mut sums = BTreeMap::new();
        for page in [
            "# HELP x\nminichat_drops_total{reason=\"a\"} 1\nminichat_drops_total{reason=\"b\"} 2",
            "minichat_drops_total{reason=\"a\"} 4",
        ] {
            add_metrics(&mut sums, page);
        }
        assert_eq!(sums["minichat_drops_total"], 7.0);
    }

    #[test]
    fn this_process_has_used_something() {
        let sources = Sources { processes: vec![("this".into(), std::process::id())], admins: Vec::new() };
        let reading = sources.read().unwrap();
        assert!(reading.processes[0].rss > 0 && reading.processes[0].peak_rss > 0);
    }
}
