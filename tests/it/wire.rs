//! One server as it is seen from its public port: what a client may say, in which way it can go wrong, and what must
//! hold whatever others do.

mod bodies;
mod frames;
mod handshake;
mod limits;
mod order;
mod privacy;
mod raw;
mod receipts;
mod resume;
mod settings;
mod silence;
mod slow;

use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::server::Server;

const SECRET: &str = "a secret of at least thirty-two bytes";

/// A server that takes tokens only.
async fn with_tokens(flags: &[&str]) -> Server {
    let secret = format!("--jwt-secret={SECRET}");
    Server::start(&[&[&secret, "--dev-auth=false"], flags].concat()).await
}

/// A token of `user` that ends so many seconds from now.
fn token(user: &str, seconds: i64) -> String {
    let end = get_current_timestamp().saturating_add_signed(seconds);
    let key = EncodingKey::from_secret(SECRET.as_bytes()).unwrap();
    encode(&Header::default(), &json!({"sub": user, "exp": end}), &key).unwrap()
}

/// Sends so many messages into a room and waits until all are stored.
async fn fill(client: &mut Client, room: &str, count: usize, body: impl Fn(usize) -> Value) {
    for start in (0..count).step_by(500) {
        let mut cids = Vec::new();
        for index in start..count.min(start + 500) {
            cids.push(client.send(room, body(index)).await);
        }
        for cid in cids {
            client.expect_sent(&cid).await;
        }
    }
}

/// What a process has in memory, in KiB.
fn resident_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
