//! Many users that write, acknowledge, wander between servers or go, and note all that happens to them.

pub(crate) mod look;
mod member;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::checker::{Counts, Evidence, Life, Muted, Places, Pushes};
use super::client::Client;
use super::cluster::Cluster;
use look::{read_log, read_registry};
use member::Member;
use plan::user;
pub(crate) use plan::{MIXED, Plan, Role, WANDERERS};

/// How long all may take to settle once nobody wanders any more: long, since it only matters when something is lost.
const SETTLING: Duration = Duration::from_secs(90);

/// How often it is looked whether all has settled: looking reads everything.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A variable by which a run is repeated.
pub(crate) const SEED: &str = "MINICHAT_TEST_SEED";

/// What tokens are made with. The crowd shows them in `hello`: who is known by the URL has said an empty one after a
/// second, which a busy machine may take.
const JWT_SECRET: &str = "a secret of at least thirty-two bytes";

/// How long a token is good.
const TOKEN_S: u64 = 24 * 3_600;

/// Users at work.
pub(crate) struct Crowd {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
    muted: Muted,
}

/// What the users share.
struct Shared {
    plan: Plan,
    /// Where each server can be reached now, by its id; one that is down need not be in it.
    doors: Mutex<BTreeMap<String, Door>>,
    /// One for each device.
    lives: Vec<Mutex<Life>>,
    /// Where each device is, as its welcome said.
    places: Mutex<BTreeMap<usize, String>>,
    /// Users who have left for good.
    left: Mutex<BTreeSet<String>>,
    /// Asks who is there for one more message.
    probes: Notify,
    /// Nobody writes or wanders any more.
    calm: CancellationToken,
    end: CancellationToken,
}

/// The URLs of one server.
struct Door {
    open: String,
    /// Through a network that can be broken, where there is one.
    fragile: String,
}

/// The seed of this run: a given one, or a new one. It is printed, to be given again.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var(SEED).ok().map_or_else(rand::random, |text| text.parse().expect("a number"));
    println!("{SEED}={seed}");
    seed
}

/// The flags that a crowd's servers need. A crowd makes too many lines at `debug`.
pub(crate) fn flags() -> Vec<String> {
    vec![format!("--jwt-secret={JWT_SECRET}"), "--dev-auth".into(), "--log=info".into()]
}

fn token(user: &str) -> String {
    let claims = json!({"sub": user, "exp": get_current_timestamp() + TOKEN_S});
    encode(&Header::default(), &claims, &EncodingKey::from_secret(JWT_SECRET.as_bytes()).unwrap()).unwrap()
}

impl Crowd {
    /// Makes the rooms, and lets everyone in.
    pub(crate) async fn gather(cluster: &Cluster, plan: Plan, seed: u64) -> Self {
        make_rooms(cluster, &plan).await;
        let muted = mute(cluster, &plan).await;
        let devices = |number| plan.role(number).devices().iter().map(move |device| (number, *device));
        let devices: Vec<_> = (0..plan.users).flat_map(devices).collect();
        let shared = Arc::new(Shared {
            doors: Mutex::default(),
            lives: devices.iter().map(|(number, device)| Mutex::new(life(&plan, *number, *device))).collect(),
            places: Mutex::default(),
            left: Mutex::default(),
            probes: Notify::new(),
            calm: CancellationToken::new(),
            end: CancellationToken::new(),
            plan,
        });
        let mut crowd = Self { shared, tasks: JoinSet::new(), muted };
        crowd.opens_all(cluster);
        for (life, (number, _)) in devices.into_iter().enumerate() {
            let random = StdRng::seed_from_u64(seed ^ (life as u64) << 32);
            crowd.enters(life, number, random);
        }
        crowd
    }

    fn enters(&mut self, life: usize, number: usize, mut random: StdRng) {
        let plan = &self.shared.plan;
        let role = plan.role(number);
        let goes = role.goes().then(|| Instant::now() + Duration::from_millis(random.random_range(plan.go_ms.clone())));
        let (rooms, token, shared) = (plan.rooms_of(number), token(&user(number)), Arc::clone(&self.shared));
        self.tasks.spawn(Member { shared, number, life, role, random, rooms, token, goes }.live());
    }

    /// The servers can be reached, perhaps elsewhere than before.
    pub(crate) fn opens_all(&self, cluster: &Cluster) {
        for number in 1..=cluster.servers().len() {
            self.opens(cluster, number);
        }
    }

    /// A server can be reached, perhaps elsewhere than before.
    pub(crate) fn opens(&self, cluster: &Cluster, number: usize) {
        let url = |address| format!("ws://{address}/ws");
        let open = url(cluster.server(number).addr());
        let fragile = cluster.client_road(number).map_or_else(|| open.clone(), url);
        self.shared.doors.lock().unwrap().insert(format!("local{number}"), Door { open, fragile });
    }

    /// All that all have seen and done so far.
    pub(crate) fn counts(&self) -> Counts {
        self.shared.lives.iter().map(|life| life.lock().unwrap().counts).sum()
    }

    /// Who wants no pushes of what.
    pub(crate) fn muted(&self) -> &Muted {
        &self.muted
    }

    /// Nobody writes or wanders any more, and some go. What is on its way still arrives.
    pub(crate) fn calms(&self) {
        self.shared.calm.cancel();
    }

    /// Waits until nothing is wrong, and answers what still is after [`SETTLING`].
    ///
    /// Then those who are there write once more, on the connections that they have: who does not hear it there is deaf,
    /// however right everything was until then. And once again, for a gap is noticed by what comes after it.
    pub(crate) async fn settles(
        &self,
        cluster: &Cluster,
        killed: bool,
        pushes: impl Fn() -> Option<Pushes>,
    ) -> Vec<String> {
        self.calms();
        for probe in 0..3 {
            if probe > 0 {
                self.shared.probes.notify_waiters();
            }
            let faults = self.until_right(cluster, killed, &pushes).await;
            if !faults.is_empty() {
                return faults;
            }
        }
        Vec::new()
    }

    async fn until_right(&self, cluster: &Cluster, killed: bool, pushes: impl Fn() -> Option<Pushes>) -> Vec<String> {
        let deadline = Instant::now() + SETTLING;
        loop {
            // What the target got is read last: what the database does not have any more, the target has.
            let mut evidence = self.evidence(cluster, killed).await;
            evidence.pushes = pushes();
            let faults = evidence.faults();
            if faults.is_empty() || Instant::now() > deadline {
                return faults;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    async fn evidence(&self, cluster: &Cluster, killed: bool) -> Evidence {
        let log = read_log(&cluster.database).await.expect("the database is there");
        let lives: Vec<_> = self.shared.lives.iter().map(|life| life.lock().unwrap().clone()).collect();
        let mut places = Places::new();
        for (life, server) in self.shared.places.lock().unwrap().iter() {
            places.entry(lives[*life].user.clone()).or_default().insert(server.clone());
        }
        let left = self.shared.left.lock().unwrap().clone();
        let (registry, muted) = (read_registry(&cluster.redis), self.muted.clone());
        Evidence { lives, left, log, places, registry, killed, muted, pushes: None }
    }

    /// Lets everyone go.
    pub(crate) async fn disperses(mut self) {
        self.shared.end.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a user does not panic");
        }
    }

    /// What is wrong once all has settled; then everyone goes.
    pub(crate) async fn faults(self, cluster: &Cluster, killed: bool) -> Vec<String> {
        let faults = self.settles(cluster, killed, || None).await;
        println!("{} users: {:?}", self.shared.plan.users, self.counts());
        self.disperses().await;
        faults
    }
}

fn life(plan: &Plan, number: usize, device: Option<&str>) -> Life {
    let mut life = Life::of(&user(number));
    life.device = device.map(str::to_owned);
    life.silent = plan.role(number).is_silent();
    life
}

async fn make_rooms(cluster: &Cluster, plan: &Plan) {
    for (room, users) in plan.rooms() {
        let mut client = Client::connect(cluster.server(1), &users[0]).await;
        let others: Vec<_> = users[1..].iter().map(String::as_str).collect();
        client.create(&room, &others).await;
        client.close().await;
    }
}

/// Has those say that they want no pushes who do not want them.
async fn mute(cluster: &Cluster, plan: &Plan) -> Muted {
    let mut muted = Muted::new();
    for number in 0..plan.users {
        let room = match plan.role(number) {
            Role::SilentAndMuted => Some(plan.rooms_of(number)[0].clone()),
            Role::GoesAndMuted => None,
            _ => continue,
        };
        let mut settings = json!({"type": "settings", "muted": true});
        if let Some(room) = &room {
            settings["room"] = room.as_str().into();
        }
        let mut client = Client::connect(cluster.server(1), &user(number)).await;
        client.ask_for("ok", settings).await;
        client.close().await;
        muted.insert((user(number), room));
    }
    muted
}
