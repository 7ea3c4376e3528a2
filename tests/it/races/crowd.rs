//! Many users that write, wander between servers, and note all that happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use tokio_util::sync::CancellationToken;

use crate::support::checker::{Life, Log, Stored, faults, misplaced};
use crate::support::client::{Client, fresh_cid};
use crate::support::cluster::Cluster;

/// How long all may take to settle once nobody wanders any more: long, since it only matters when something is lost.
const SETTLING: Duration = Duration::from_secs(90);

/// How long a connection may take.
const CONNECTING: Duration = Duration::from_secs(10);

/// A variable by which a run is repeated.
const SEED: &str = "MINICHAT_TEST_SEED";

/// What tokens are made with. The crowd shows them in `hello`: who is known by the URL has said an empty one after a
/// second, which a busy machine may take.
const JWT_SECRET: &str = "a secret of at least thirty-two bytes";

/// How often what has no answer is sent again once all is calm: a server that has much to do may have refused it.
const REPEAT: Duration = Duration::from_secs(3);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// How a crowd is to be.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) users: usize,
    /// Users in a room; each user is in two.
    pub(super) room_size: usize,
    /// How long a user stays on one server, in ms.
    pub(super) stay_ms: Range<u64>,
    /// How long a user waits before the next message, in ms.
    pub(super) write_ms: Range<u64>,
}

/// Users at work.
pub(super) struct Crowd {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

struct Shared {
    plan: Plan,
    /// Where each server can be reached now, by its id; one that is down is not in it.
    servers: Mutex<BTreeMap<String, String>>,
    lives: Vec<Mutex<Life>>,
    /// Where each user is, as their welcome said.
    places: Mutex<BTreeMap<String, String>>,
    /// Users who have left for good.
    left: Mutex<BTreeSet<String>>,
    /// Nobody writes or wanders any more.
    calm: CancellationToken,
    end: CancellationToken,
}

/// One user.
struct Wanderer {
    shared: Arc<Shared>,
    number: usize,
    random: StdRng,
    rooms: Vec<String>,
    token: String,
    /// Leaves for good when all is calm.
    leaves: bool,
}

/// Why a stay on a server ended.
enum Turn {
    Move,
    Broken,
    Leave,
}

/// The seed of this run: a given one, or a new one. It is printed, to be given again.
pub(super) fn seed() -> u64 {
    let seed = std::env::var(SEED).ok().map_or_else(rand::random, |text| text.parse().expect("a number"));
    println!("{SEED}={seed}");
    seed
}

/// The flags that a crowd's servers need. A crowd makes too many lines at `debug`.
pub(super) fn flags() -> Vec<String> {
    vec![format!("--jwt-secret={JWT_SECRET}"), "--dev-auth".into(), "--log=info".into()]
}

fn token(user: &str) -> String {
    let claims = json!({"sub": user, "exp": get_current_timestamp() + 3_600});
    encode(&Header::default(), &claims, &EncodingKey::from_secret(JWT_SECRET.as_bytes()).unwrap()).unwrap()
}

fn user(number: usize) -> String {
    format!("u{number}")
}

impl Crowd {
    /// Makes the rooms, and lets everyone in.
    pub(super) async fn gather(cluster: &Cluster, plan: Plan, seed: u64) -> Self {
        make_rooms(cluster, &plan).await;
        let shared = Arc::new(Shared {
            servers: Mutex::default(),
            lives: (0..plan.users).map(|number| Mutex::new(Life::of(&user(number)))).collect(),
            places: Mutex::default(),
            left: Mutex::default(),
            calm: CancellationToken::new(),
            end: CancellationToken::new(),
            plan: plan.clone(),
        });
        for server in cluster.servers() {
            shared.opens(server);
        }
        let mut tasks = JoinSet::new();
        for number in 0..plan.users {
            let random = StdRng::seed_from_u64(seed ^ (number as u64) << 32);
            let rooms = rooms_of(number, &plan).into();
            let (shared, token, leaves) = (Arc::clone(&shared), token(&user(number)), number % 10 == 3);
            tasks.spawn(Wanderer { shared, number, random, rooms, token, leaves }.live());
        }
        Self { shared, tasks }
    }

    /// A server can be reached, perhaps elsewhere than before.
    pub(super) fn opens(&self, server: &crate::support::server::Server) {
        self.shared.opens(server);
    }

    /// Nobody should go to a server any more.
    pub(super) fn closes(&self, id: &str) {
        self.shared.servers.lock().unwrap().remove(id);
    }

    /// How many entries all have seen.
    pub(super) fn count(&self) -> usize {
        self.shared.lives().iter().map(Life::count).sum()
    }

    /// Stops the wandering and writing, waits until all is heard, and gives what is wrong. A registry that is not
    /// `exact` may name servers besides the right one that were killed.
    pub(super) async fn faults(mut self, cluster: &Cluster, exact: bool) -> Vec<String> {
        self.shared.calm.cancel();
        let deadline = Instant::now() + SETTLING;
        let faults = loop {
            let faults = self.look(cluster, exact).await;
            if faults.is_empty() || Instant::now() > deadline {
                break faults;
            }
            sleep(Duration::from_millis(500)).await;
        };
        println!("{} entries were seen by {} users", self.count(), self.shared.plan.users);
        self.shared.end.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a user does not panic");
        }
        faults
    }

    async fn look(&self, cluster: &Cluster, exact: bool) -> Vec<String> {
        let log = read_log(&cluster.database).await;
        let lives = self.shared.lives();
        let left = self.shared.left.lock().unwrap().clone();
        let mut found = faults(&lives, &left, &log);
        let unanswered = lives.iter().filter(|life| !life.is_answered() && !left.contains(&life.user));
        found.extend(unanswered.map(|life| format!("{} waits for an answer: {:?}", life.user, life.to_repeat())));
        let truth = self.shared.places.lock().unwrap().clone();
        let mut registry = read_registry(cluster);
        if !exact {
            registry.retain(|user, _| truth.contains_key(user));
            for (user, servers) in &mut registry {
                let right = servers.split(',').find(|server| truth.get(user).is_some_and(|truth| truth == server));
                *servers = right.unwrap_or(servers).to_owned();
            }
        }
        found.extend(misplaced(&truth, &registry));
        found
    }
}

impl Shared {
    fn opens(&self, server: &crate::support::server::Server) {
        let id = server.flag("--server-id").expect("a server of a cluster has an id");
        self.servers.lock().unwrap().insert(id, format!("ws://{}/ws", server.addr()));
    }

    fn lives(&self) -> Vec<Life> {
        self.lives.iter().map(|life| life.lock().unwrap().clone()).collect()
    }
}

impl Wanderer {
    async fn live(mut self) {
        // Not all at once.
        sleep(Duration::from_millis(self.random.random_range(0..8_000))).await;
        while !self.shared.end.is_cancelled() {
            let Some(socket) = self.connect().await else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            if matches!(self.stay(socket).await, Turn::Leave) {
                return;
            }
        }
    }

    /// Connects to any server, with cursors; none where that fails.
    async fn connect(&mut self) -> Option<Socket> {
        let server = {
            let servers = self.shared.servers.lock().unwrap();
            let index = self.random.random_range(0..servers.len().max(1));
            servers.values().nth(index)?.clone()
        };
        let (mut socket, _) = timeout(CONNECTING, connect_async(server)).await.ok()?.ok()?;
        let cursors = self.life(|life| life.cursors());
        let hello = json!({"type": "hello", "token": self.token, "cursors": cursors});
        let repeats = self.life(|life| life.to_repeat());
        socket.send(Message::text(hello.to_string())).await.ok()?;
        for frame in repeats {
            socket.send(Message::text(frame.to_string())).await.ok()?;
        }
        Some(socket)
    }

    async fn stay(&mut self, mut socket: Socket) -> Turn {
        let stay = Instant::now() + Duration::from_millis(self.random.random_range(self.shared.plan.stay_ms.clone()));
        let mut write = self.next_write();
        let mut repeats = interval(REPEAT);
        let shared = Arc::clone(&self.shared);
        let turn = loop {
            let calm = shared.calm.is_cancelled();
            tokio::select! {
                () = shared.end.cancelled() => break Turn::Leave,
                () = shared.calm.cancelled(), if !calm && self.leaves => {
                    self.shared.left.lock().unwrap().insert(user(self.number));
                    break Turn::Leave;
                }
                () = sleep_until(stay), if !calm => break Turn::Move,
                () = sleep_until(write), if !calm => {
                    write = self.next_write();
                    let frame = self.message();
                    if socket.send(Message::text(frame.to_string())).await.is_err() {
                        break Turn::Broken;
                    }
                }
                _ = repeats.tick(), if calm => {
                    for frame in self.life(|life| life.to_repeat()) {
                        // Where it is broken, the reading tells.
                        let _ = socket.send(Message::text(frame.to_string())).await;
                    }
                }
                message = socket.next() => match message {
                    Some(Ok(Message::Text(text))) => self.hear(&serde_json::from_str(&text).expect("JSON")),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => break Turn::Broken,
                },
            }
        };
        self.shared.places.lock().unwrap().remove(&user(self.number));
        if self.random.random() {
            // Whether it gets there is the server's affair.
            let _ = timeout(CONNECTING, socket.close(None)).await;
        } else if let MaybeTlsStream::Plain(tcp) = socket.get_ref() {
            let _ = tcp.set_zero_linger();
        }
        turn
    }

    fn hear(&self, frame: &Value) {
        if frame["type"] == "welcome" {
            let server = frame["server"].as_str().expect("a server").to_owned();
            self.shared.places.lock().unwrap().insert(user(self.number), server);
        }
        self.life(|life| life.hears(frame));
    }

    fn next_write(&mut self) -> Instant {
        Instant::now() + Duration::from_millis(self.random.random_range(self.shared.plan.write_ms.clone()))
    }

    /// A message to a room, or to another user.
    fn message(&mut self) -> Value {
        let mut frame = json!({"type": "send", "cid": fresh_cid(), "body": {"from": self.number}});
        if self.random.random_range(0..4) == 0 {
            // Few others, so that direct rooms are used more than once.
            let other = (self.number + self.random.random_range(1..4)) % self.shared.plan.users;
            frame["to"] = user(other).into();
        } else {
            frame["room"] = self.rooms[self.random.random_range(0..self.rooms.len())].as_str().into();
        }
        self.life(|life| life.sends(&frame));
        frame
    }

    fn life<T>(&self, act: impl FnOnce(&mut Life) -> T) -> T {
        act(&mut self.shared.lives[self.number].lock().unwrap())
    }
}

/// A room of neighbours, and one of users that are far apart.
fn rooms_of(number: usize, plan: &Plan) -> [String; 2] {
    let rooms = plan.users / plan.room_size;
    [format!("near{}", number / plan.room_size), format!("far{}", number % rooms)]
}

async fn make_rooms(cluster: &Cluster, plan: &Plan) {
    let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for number in 0..plan.users {
        for room in rooms_of(number, plan) {
            members.entry(room).or_default().push(user(number));
        }
    }
    for (room, users) in members {
        let mut client = Client::connect(cluster.server(1), &users[0]).await;
        let others: Vec<_> = users[1..].iter().map(String::as_str).collect();
        client.create(&room, &others).await;
        client.close().await;
    }
}

/// All entries and members, as the database has them.
async fn read_log(database: &str) -> Log {
    let mut connection = PgConnection::connect(database).await.expect("the database is there");
    let rows: Vec<(String, i64, Option<String>)> =
        sqlx::query_as("SELECT room, seq, cid FROM messages ORDER BY room, seq")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    let members: Vec<(String, String)> =
        sqlx::query_as("SELECT user_id, room FROM members").fetch_all(&mut connection).await.unwrap();
    let entries = rows.into_iter().map(|(room, seq, cid)| Stored { room, seq: seq as u64, cid }).collect();
    Log { entries, members }
}

/// Each user's entry in Redis.
fn read_registry(cluster: &Cluster) -> BTreeMap<String, String> {
    const PREFIX: &str = "ws:user:server:";
    let text = cluster.redis.cli(&["KEYS", &format!("{PREFIX}*")]);
    let keys: Vec<_> = text.lines().filter(|key| !key.is_empty()).collect();
    if keys.is_empty() {
        return BTreeMap::new();
    }
    let command: Vec<_> = std::iter::once("MGET").chain(keys.iter().copied()).collect();
    let values = cluster.redis.cli(&command);
    let users = keys.iter().map(|key| key.trim_start_matches(PREFIX).to_owned());
    users.zip(values.lines().map(str::to_owned)).filter(|(_, servers)| !servers.is_empty()).collect()
}
