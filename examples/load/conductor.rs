//! The main thread: what is done when, and the readings around it.

use std::io::{self, IsTerminal, Write};
use std::process::Command as Process;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};

use crate::args::{Args, Scenario};
use crate::control::{Command, Shared, UNCOUNTED};
use crate::plan::{Share, plan};
use crate::readings::{Metrics, Reading, Sources};
use crate::stats::Totals;
use crate::traffic::Pace;
use crate::worker::{Manner, Worker};

/// How often the state of things is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How often a line of progress is shown.
const PROGRESS: Duration = Duration::from_secs(2);

/// How long to wait for something of which nothing moves any more.
const STUCK: Duration = Duration::from_secs(10);

/// How long what was sent may take to arrive when nothing more is sent and nothing moves.
const LAST_ARRIVALS: Duration = Duration::from_secs(4);

/// How long servers are given to settle after many have come or gone.
const SETTLE: Duration = Duration::from_secs(3);

/// A counted span, as it is seen from outside.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) before: Reading,
    pub(crate) after: Reading,
    /// By how much the servers' counts have grown.
    pub(crate) metrics: Metrics,
    /// What was delivered while these grew, which is for somewhat longer than the span.
    pub(crate) metrics_delivered: u64,
    /// How many connections came in it.
    pub(crate) connected: usize,
}

/// Everything that came of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// One for each span of the totals.
    pub(crate) spans: Vec<Measured>,
    pub(crate) totals: Totals,
}

struct Conductor<'a> {
    args: &'a Args,
    shared: Arc<Shared>,
    sources: Sources,
    commands: Vec<Sender<Command>>,
    threads: Vec<JoinHandle<io::Result<Totals>>>,
    spans: Vec<Measured>,
    /// Users who take part, and those who do nothing.
    users: (usize, usize),
    rooms: usize,
    shown: Instant,
}

/// Does what was asked for.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let shares = plan(args);
    let crowd = shares.iter().map(|share| share.crowd).sum();
    let users = shares.iter().map(|share| share.users.len()).sum::<usize>() - crowd;
    let rooms = shares.iter().map(|share| share.rooms.len()).sum();
    let mut processes = args.pids.clone();
    processes.push(("load".into(), std::process::id()));
    let mut conductor = Conductor {
        args,
        shared: Arc::default(),
        sources: Sources { processes, admins: args.admins.clone() },
        commands: Vec::new(),
        threads: Vec::new(),
        spans: Vec::new(),
        users: (users, crowd),
        rooms,
        shown: Instant::now(),
    };
    conductor.start_threads(shares)?;
    conductor.prepare()?;
    match args.scenario {
        Scenario::Direct | Scenario::Rooms => conductor.steady()?,
        Scenario::Idle => conductor.idle()?,
        Scenario::Storm => conductor.storm()?,
        Scenario::Slow => conductor.slow()?,
        Scenario::Stopped => conductor.stopped()?,
        Scenario::Burst => conductor.burst()?,
    }
    conductor.finish()
}

fn grown(before: &Metrics, after: &Metrics) -> Metrics {
    let growth = |(name, count): (&String, &f64)| (name.clone(), count - before.get(name).unwrap_or(&0.0));
    after.iter().map(growth).collect()
}

/// What the threads do alike; each sends its part of the rate.
fn manner(args: &Args, groups: usize, all_groups: usize) -> Manner {
    let pace = match args.rate {
        Some(rate) => Pace::Every(1e9 / (rate * groups as f64 / all_groups.max(1) as f64)),
        None => Pace::Window(args.window),
    };
    Manner {
        servers: args.servers.clone().into(),
        dialect: args.dialect,
        auth_token: args.auth_token.as_deref().map(Into::into),
        secret: args.jwt_secret.as_deref().map(Into::into),
        durable: args.is_durable(),
        payload: args.payload,
        acks: args.acks,
        pace,
        crowd_period: 1e9 / args.connect_rate * f64::from(args.threads),
    }
}

impl Conductor<'_> {
    fn start_threads(&mut self, shares: Vec<Share>) -> anyhow::Result<()> {
        let steady = |share: &Share| share.groups.iter().filter(|group| !group.burst).count();
        let all = shares.iter().map(steady).sum();
        for share in shares {
            let (sender, receiver) = channel();
            let manner = manner(self.args, steady(&share), all);
            let worker = Worker::new(share, manner, Arc::clone(&self.shared), receiver)?;
            self.commands.push(sender);
            self.threads.push(std::thread::Builder::new().name("load".into()).spawn(|| worker.run())?);
        }
        Ok(())
    }

    fn tell(&self, command: Command) -> anyhow::Result<()> {
        for commands in &self.commands {
            commands.send(command).map_err(|_| anyhow!("a thread of the generator has ended"))?;
        }
        Ok(())
    }

    /// Connects those who take part, makes the rooms, and waits until all servers know of it.
    fn prepare(&mut self) -> anyhow::Result<()> {
        let (users, rooms) = (self.users.0, self.rooms);
        self.tell(Command::Connect)?;
        self.wait("connected", users, |shared| shared.open.load(Relaxed))?;
        self.tell(Command::MakeRooms)?;
        self.wait("rooms made", rooms, |shared| shared.rooms.load(Relaxed))?;
        self.rest(self.args.dialect.settles_in())
    }

    fn steady(&mut self) -> anyhow::Result<()> {
        self.begin()?;
        self.count("load", |this| this.rest(this.args.seconds))
    }

    fn idle(&mut self) -> anyhow::Result<()> {
        let hosts = self.users.0;
        self.rest(SETTLE)?;
        self.count("before", |this| this.rest(SETTLE))?;
        self.count("connect", |this| {
            this.connect_crowd()?;
            this.rest(SETTLE)
        })?;
        self.count("idle", |this| this.rest(this.args.seconds))?;
        self.count("leave", |this| {
            this.tell(Command::DismissCrowd)?;
            this.wait_for("left", |shared| shared.open.load(Relaxed) <= hosts)?;
            this.rest(SETTLE)
        })?;
        self.count("return", |this| {
            this.connect_crowd()?;
            this.rest(SETTLE)
        })
    }

    fn storm(&mut self) -> anyhow::Result<()> {
        // Who storms has been there before: what a first visit stores and tells is another matter.
        let hosts = self.users.0;
        self.connect_crowd()?;
        self.tell(Command::DismissCrowd)?;
        self.wait_for("left", |shared| shared.open.load(Relaxed) <= hosts)?;
        self.rest(SETTLE)?;
        self.begin()?;
        self.count("before", |this| this.rest(this.args.seconds))?;
        self.count("storm", Self::connect_crowd)?;
        self.count("after", |this| this.rest(this.args.seconds))
    }

    fn slow(&mut self) -> anyhow::Result<()> {
        self.begin()?;
        self.count("before", |this| this.rest(this.args.seconds))?;
        self.count("slow", |this| {
            this.tell(Command::Slow(true))?;
            this.rest(this.args.seconds)
        })?;
        self.tell(Command::Slow(false))
    }

    fn stopped(&mut self) -> anyhow::Result<()> {
        self.begin()?;
        self.count("before", |this| this.rest(this.args.seconds))?;
        let stopped = self.count("stopped", |this| {
            this.signal("-STOP")?;
            this.rest(this.args.seconds)
        });
        let outcome = stopped.and_then(|()| {
            self.count("after", |this| {
                this.signal("-CONT")?;
                this.rest(this.args.seconds)
            })
        });
        // Whatever failed, it is not left stopped.
        self.signal("-CONT")?;
        outcome
    }

    /// Sends a signal to the process that is to be stopped.
    fn signal(&self, name: &str) -> anyhow::Result<()> {
        let Some(pid) = self.args.stop else { bail!("--stop names no process") };
        let status = Process::new("kill").args([name, &pid.to_string()]).status()?;
        if status.success() { Ok(()) } else { bail!("kill {name} {pid} failed") }
    }

    fn burst(&mut self) -> anyhow::Result<()> {
        self.begin()?;
        self.count("before", |this| this.rest(this.args.seconds))?;
        self.count("burst", |this| {
            this.tell(Command::Burst(this.args.burst))?;
            this.rest(this.args.seconds)
        })
    }

    fn begin(&mut self) -> anyhow::Result<()> {
        self.tell(Command::Start)?;
        self.rest(self.args.warm_up)
    }

    /// Whom the servers refuse is counted, and not waited for.
    fn connect_crowd(&mut self) -> anyhow::Result<()> {
        let ended = self.shared.ended.load(Relaxed);
        self.tell(Command::ConnectCrowd)?;
        let all = self.users.0 + self.users.1 + ended;
        self.wait("connected", all, |shared| shared.open.load(Relaxed) + shared.ended.load(Relaxed))
    }

    /// Counts what happens meanwhile as a span of its own. Whatever the span is of has to begin in there: to read what was
    /// used takes longer with more servers.
    fn count(
        &mut self,
        name: &'static str,
        meanwhile: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let open = self.shared.open.load(Relaxed);
        let counted = (self.sources.metrics()?, self.shared.delivered.load(Relaxed));
        // Each reading takes a moment. Both are taken before the switch, so that what is used is of as long as what is counted.
        let before = self.sources.read()?;
        self.shared.count_for(self.spans.len());
        meanwhile(self)?;
        let after = self.sources.read()?;
        self.shared.count_for(UNCOUNTED);
        let connected = self.shared.open.load(Relaxed).saturating_sub(open);
        let metrics = grown(&counted.0, &self.sources.metrics()?);
        let metrics_delivered = self.shared.delivered.load(Relaxed) - counted.1;
        self.spans.push(Measured { name, before, after, metrics, metrics_delivered, connected });
        Ok(())
    }

    /// Waits for the last arrivals, then for the threads.
    fn finish(mut self) -> anyhow::Result<Outcome> {
        self.tell(Command::Stop)?;
        let (mut seen, mut since) = (0, Instant::now());
        while since.elapsed() < LAST_ARRIVALS {
            let delivered = self.shared.delivered.load(Relaxed);
            let answered = self.shared.answered.load(Relaxed);
            if delivered >= self.shared.expected.load(Relaxed) && answered >= self.shared.asked.load(Relaxed) {
                // What comes twice comes now.
                sleep(LOOK * 5);
                break;
            }
            if delivered + answered > seen {
                (seen, since) = (delivered + answered, Instant::now());
            }
            sleep(LOOK);
        }
        let totals = self.end_threads()?;
        Ok(Outcome { spans: self.spans, totals })
    }

    /// Ends the threads and adds up what they counted.
    fn end_threads(&mut self) -> anyhow::Result<Totals> {
        self.commands.clear();
        let mut totals = Totals::default();
        for thread in self.threads.drain(..) {
            totals += thread.join().map_err(|_| anyhow!("a thread of the generator panicked"))?.context("a poll")?;
        }
        Ok(totals)
    }

    fn rest(&mut self, time: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
            self.look()?;
        }
        Ok(())
    }

    /// Waits until so many are there, as long as any come.
    fn wait(&mut self, what: &str, many: usize, count: impl Fn(&Shared) -> usize) -> anyhow::Result<()> {
        let (mut seen, mut since) = (0, Instant::now());
        while seen < many {
            sleep(LOOK);
            self.look()?;
            let now = count(&self.shared);
            if now > seen {
                (seen, since) = (now, Instant::now());
            }
            if since.elapsed() > STUCK {
                let Totals { ended, errors, .. } = self.end_threads()?;
                bail!("only {seen} of {many} {what}; connections that ended: {ended:?}; errors: {errors:?}");
            }
        }
        Ok(())
    }

    fn wait_for(&mut self, what: &str, is_so: impl Fn(&Shared) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        while !is_so(&self.shared) {
            if began.elapsed() > STUCK {
                bail!("not all have {what} in time");
            }
            sleep(LOOK);
        }
        Ok(())
    }

    /// Shows how far things are, now and then, to a person who waits; ends where a thread has ended.
    fn look(&mut self) -> anyhow::Result<()> {
        if self.threads.iter().any(JoinHandle::is_finished) {
            bail!("a thread of the generator has ended");
        }
        if self.shown.elapsed() >= PROGRESS {
            self.shown = Instant::now();
            let load = |count: &std::sync::atomic::AtomicU64| count.load(Relaxed);
            let line = format!(
                "{:6.1} s: {} connected, {} deliveries due, {} came",
                self.shared.now() as f64 / 1e9,
                self.shared.open.load(Relaxed),
                load(&self.shared.expected),
                load(&self.shared.delivered)
            );
            let end = if io::stderr().is_terminal() { "\r" } else { "\n" };
            // Who does not want to see it may close the pipe.
            let _ = write!(io::stderr(), "{line}{end}");
        }
        Ok(())
    }
}
