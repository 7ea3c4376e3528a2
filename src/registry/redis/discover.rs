//! Finds out which masters there are: the URL says, or nodes of a Cluster do, or Sentinels.

use std::sync::Arc;

use redis::{AsyncConnectionConfig, RedisResult, Value};

use super::address::{Kind, Place};
use super::fleet::Fleet;
use super::layout::{Range, ranges};
use super::node::Node;
use super::reply;

/// The masters and their slots; or what is wrong.
pub(super) async fn discover(fleet: &Fleet) -> Result<Vec<Range>, String> {
    match &fleet.address.kind {
        Kind::Alone => alone(fleet, &fleet.address.seeds[0]).await,
        Kind::Cluster => cluster(fleet).await,
        Kind::Sentinel(name) => sentinels(fleet, name).await,
    }
}

/// Refuses a node of a Cluster, which would turn most keys away.
async fn alone(fleet: &Fleet, place: &Place) -> Result<Vec<Range>, String> {
    let node = connect(fleet, place).await?;
    let told = ask(&node, &["INFO", "cluster"]).await?;
    match reply::info(&told, "cluster_enabled").as_deref() {
        Some("1") => Err("it is a node of a Redis Cluster; use a redis+cluster URL".into()),
        _ => Ok(vec![Range::all(place.clone())]),
    }
}

/// Asks the known masters, then the nodes that the URL names, until one answers.
async fn cluster(fleet: &Fleet) -> Result<Vec<Range>, String> {
    for node in fleet.layout().nodes.iter().filter(|node| !node.is_away()) {
        if let Ok(heard) = slots(node).await {
            return Ok(heard);
        }
    }
    let mut problem = String::new();
    for place in &fleet.address.seeds {
        let heard = match connect(fleet, place).await {
            Ok(node) => slots(&node).await,
            Err(error) => Err(error),
        };
        match heard {
            Ok(heard) => return Ok(heard),
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

async fn slots(node: &Node) -> Result<Vec<Range>, String> {
    match ranges(&ask(node, &["CLUSTER", "SLOTS"]).await?, &node.place) {
        heard if heard.is_empty() => Err("the Redis Cluster has no slots yet".into()),
        heard => Ok(heard),
    }
}

/// Asks the Sentinels that the URL names until one knows the master.
async fn sentinels(fleet: &Fleet, name: &str) -> Result<Vec<Range>, String> {
    let mut problem = String::new();
    for place in &fleet.address.seeds {
        match sentinel(fleet, place, name).await {
            Ok(Some((host, port))) => return Ok(vec![Range::all(Place { host, port })]),
            Ok(None) => problem = format!("the Sentinel knows no master {name}"),
            Err(error) => problem = error.to_string(),
        }
    }
    Err(problem)
}

async fn sentinel(fleet: &Fleet, place: &Place, name: &str) -> RedisResult<Option<(String, u16)>> {
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(fleet.options.connect_timeout))
        .set_response_timeout(Some(fleet.options.response_timeout));
    let client = fleet.address.sentinel_client(place)?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&settings).await?;
    redis::cmd("SENTINEL").arg("get-master-addr-by-name").arg(name).query_async(&mut connection).await
}

async fn connect(fleet: &Fleet, place: &Place) -> Result<Arc<Node>, String> {
    let node = fleet.node(place)?;
    node.connect_to_any().await.map_err(|error| error.to_string())?;
    Ok(node)
}

async fn ask(node: &Node, words: &[&str]) -> Result<Value, String> {
    let mut question = redis::pipe();
    question.cmd(words[0]).arg(&words[1..]);
    match node.send(&question).await.map_err(|error| error.to_string())?.pop() {
        Some(Value::ServerError(error)) => Err(reply::refusal(&error)),
        Some(answer) => Ok(answer),
        None => Err("no answer".into()),
    }
}
