//! A cluster, a crowd that uses it, and what is done to them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::{JoinSet, block_in_place};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until};

use super::fault::{Event, Fault};
use super::hands::STARTING;
use super::report::{Done, Report, keep_logs};
use crate::support::checker::{Pushes, Watch};
use crate::support::cluster::{Cluster, Options};
use crate::support::crowd::look::read_positions;
use crate::support::crowd::{self, Crowd, MIXED, Plan};
use crate::support::postgres::Postgres;
use crate::support::server::Server;
use crate::support::target::{Call, Reply, Target};

/// How long a message goes unacknowledged before it is pushed: acknowledgements come every second.
const PUSH_AFTER: &str = "--push-after=3s";

/// What pushes are signed with.
const PUSH_SECRET: &str = "--push-webhook-secret=a secret that is of thirty-two bytes";

/// Every so many calls the target of pushes fails.
const TARGET_FAILS: usize = 20;

/// How often it is said how far a run is.
const PROGRESS: Duration = Duration::from_secs(10);

/// How often the positions are looked at, whether one went back.
const WATCH: Duration = Duration::from_secs(2);

/// How many entries are heard before the next fault, where faults come one after the other.
const FLOW: usize = 200;

/// What is to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) servers: usize,
    pub(super) users: usize,
}

/// The fields are dropped from the top: the crowd goes first.
pub(super) struct Run {
    seed: u64,
    pub(super) size: Size,
    crowd: Crowd,
    /// Servers that were killed and are being started.
    pub(super) starting: JoinSet<(usize, Server)>,
    watching: JoinSet<()>,
    went_back: Arc<Mutex<Vec<String>>>,
    _target: Target,
    pushes: Arc<Mutex<Pushes>>,
    pub(super) cluster: Cluster,
    pub(super) postgres: Postgres,
    begun: Instant,
    progress: Interval,
    done: Vec<Done>,
    /// What servers have logged that are gone.
    logs: Vec<(String, Vec<String>)>,
    faults: Vec<String>,
}

impl Run {
    /// Everyone is in and writes.
    pub(super) async fn start(seed: u64, size: Size) -> Self {
        let postgres = Postgres::start();
        let pushes = Arc::<Mutex<Pushes>>::default();
        let target = target(Arc::clone(&pushes)).await;
        let webhook = format!("--push-webhook={}", target.url("/push"));
        let flags = vec!["--ping-interval=2s".into(), PUSH_AFTER.into(), PUSH_SECRET.into(), webhook];
        let flags = [crowd::flags(), flags].concat();
        let database = Some(postgres.fresh_database().await);
        let options = Options { servers: size.servers, proxied: true, database, flags, ..Options::default() };
        let cluster = Cluster::with(options).await;
        let plan = Plan {
            users: size.users,
            room_size: 8,
            stay_ms: 2_000..15_000,
            write_ms: 500..4_000,
            acknowledge_ms: 1_000,
            go_ms: 2_000..10_000,
            roles: MIXED,
        };
        let crowd = Crowd::gather(&cluster, plan, seed).await;
        let went_back = Arc::default();
        let mut watching = JoinSet::new();
        watching.spawn(watch(cluster.database.clone(), Arc::clone(&went_back)));
        let (starting, done, logs, faults) = (JoinSet::new(), Vec::new(), Vec::new(), Vec::new());
        let mut progress = interval(PROGRESS);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        progress.reset();
        let begun = Instant::now();
        Self {
            seed,
            size,
            crowd,
            starting,
            watching,
            went_back,
            _target: target,
            pushes,
            cluster,
            postgres,
            begun,
            progress,
            done,
            logs,
            faults,
        }
    }

    /// Lets one fault after the other happen, each when messages flow.
    pub(super) async fn in_turn(&mut self, events: &[Event]) {
        for event in events {
            self.until_flow().await;
            let done = self.begin(event.fault).await;
            self.wait_until(Instant::now() + event.lasts).await;
            self.end(done).await;
        }
    }

    /// Lets each fault happen at its time, once messages flow.
    pub(super) async fn on_time(&mut self, events: &[Event], length: Duration) {
        self.until_flow().await;
        self.begun = Instant::now();
        let mut steps: Vec<(Duration, usize, bool)> = Vec::new();
        for (index, event) in events.iter().enumerate() {
            steps.extend([(event.at, index, false), (event.at + event.lasts, index, true)]);
        }
        steps.sort_unstable();
        let mut under_way: Vec<Option<Done>> = vec![None; events.len()];
        for (at, index, is_end) in steps {
            self.wait_until(self.begun + at).await;
            match is_end {
                false => under_way[index] = Some(self.begin(events[index].fault).await),
                true => self.end(under_way[index].take().expect("it has begun")).await,
            }
        }
        self.wait_until(self.begun + length).await;
    }

    /// Waits until all is well again, and judges the run.
    pub(super) async fn finish(mut self) -> Report {
        let deadline = Instant::now() + 2 * STARTING;
        while !self.starting.is_empty() {
            assert!(Instant::now() < deadline, "a server does not come back");
            self.wait_until(Instant::now() + Duration::from_millis(50)).await;
        }
        self.note_ended();
        let killed = !self.logs.is_empty();
        let pushes = || Some(self.pushes.lock().unwrap().clone());
        self.faults.extend(self.crowd.settles(&self.cluster, killed, pushes).await);
        self.watching.shutdown().await;
        self.faults.append(&mut self.went_back.lock().unwrap());
        let logs = (!self.faults.is_empty()).then(|| {
            let last = self.cluster.servers().iter().map(|server| (name(server), server.log_lines()));
            keep_logs(self.seed, self.logs.drain(..).chain(last))
        });
        let counts = self.crowd.counts();
        self.crowd.disperses().await;
        self.done.sort_by_key(|done| done.began);
        let (took, faults, pushes) = (self.begun.elapsed(), self.faults, self.pushes.lock().unwrap().clone());
        Report { seed: self.seed, size: self.size, took, done: self.done, counts, pushes, faults, logs }
    }

    async fn until_flow(&mut self) {
        let before = self.crowd.counts().heard;
        let deadline = Instant::now() + STARTING;
        while self.crowd.counts().heard < before + FLOW || !self.starting.is_empty() {
            assert!(Instant::now() < deadline, "messages do not flow: {:?}", self.crowd.counts());
            self.wait_until(Instant::now() + Duration::from_millis(50)).await;
        }
    }

    /// Waits, takes in what was started, and says how far it is.
    async fn wait_until(&mut self, time: Instant) {
        loop {
            tokio::select! {
                () = sleep_until(time) => return,
                Some(started) = self.starting.join_next() => self.takes(started.expect("it starts")),
                _ = self.progress.tick() => println!("{:5.0} s: {}", self.begun.elapsed().as_secs_f64(), self.so_far()),
            }
        }
    }

    fn so_far(&self) -> String {
        let counts = self.crowd.counts();
        format!(
            "{} faults done, {} sent, {} answered, {} delivered, {} connects",
            self.done.len(),
            counts.sent,
            counts.answered,
            counts.heard,
            counts.connects
        )
    }

    fn takes(&mut self, (number, server): (usize, Server)) {
        let old = self.cluster.server(number);
        self.logs.push((name(old), old.log_lines()));
        self.cluster.replace(number, server);
    }

    async fn begin(&mut self, fault: Fault) -> Done {
        let left_out = match fault {
            Fault::Kill(n) | Fault::KillBeforeRelay(n) | Fault::Stop(n) => !self.cluster.server(n).runs(),
            _ => false,
        };
        let (began, answered) = (self.begun.elapsed(), self.crowd.counts().answered);
        if !left_out {
            block_in_place(|| self.injure(fault));
        }
        Done { fault, began, ended: began, answered, left_out }
    }

    async fn end(&mut self, mut done: Done) {
        if !done.left_out {
            block_in_place(|| self.mend(done.fault));
        }
        done.ended = self.begun.elapsed();
        done.answered = self.crowd.counts().answered - done.answered;
        self.done.push(done);
    }

    /// Servers that have ended by themselves.
    fn note_ended(&mut self) {
        for server in self.cluster.servers().iter().filter(|server| !server.runs()) {
            let lines = server.log_lines();
            self.faults.push(format!("{} has ended by itself: {:?}", name(server), lines.last()));
        }
    }
}

/// Takes pushes, and fails now and then.
async fn target(pushes: Arc<Mutex<Pushes>>) -> Target {
    let mut count = 0;
    let answer = move |call: &Call| {
        count += 1;
        if count % TARGET_FAILS == 0 {
            return Reply::status(503);
        }
        let push = call.json();
        let text = |value: &serde_json::Value| value.as_str().expect("a string").to_owned();
        pushes.lock().unwrap().note(&text(&push["message"]["id"]), &text(&push["user"]), &text(&push["key"]));
        Reply::status(200)
    };
    Target::start(answer).await
}

fn name(server: &Server) -> String {
    server.flag("--server-id").expect("it has one")
}

/// Looks at the positions all the time, while the database is there.
async fn watch(database: String, went_back: Arc<Mutex<Vec<String>>>) {
    let mut watch = Watch::default();
    loop {
        if let Ok(members) = read_positions(&database).await {
            went_back.lock().unwrap().extend(watch.sees(&members));
        }
        sleep(WATCH).await;
    }
}
