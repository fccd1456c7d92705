//! Uses the leader and term of an existing Raft as a fencing token, without a second election.
//!
//! Three nodes of openraft in one process. The leader is cut off from the others and does not notice, like a paused process.
//! Another node is elected, and the resource, which has a fence, refuses the late writes of the former leader.
//!
//! **The token is the term**: a term has at most one leader, because each voter has one vote in it and persists that vote; and a
//! later leader has a higher term. But it is a token only once the leader has **committed an entry in its own term**:
//!
//! - Before that, a node's metrics may say that it leads although it has been replaced. A committed entry proves that a majority
//!   followed it after it had requested the token.
//! - Before that, a new leader does not know which entries of its predecessors are committed (Raft, sections 5.4.2 and 8), so its
//!   state machine may lack acknowledged writes.
//!
//! The token requires three conditions:
//!
//! - The votes are durable. The store in this example is in memory; if a node forgets its vote, a term may have two leaders.
//! - A term has one leader. In openraft that needs the feature `single-term-leader`: without it a second node may lead in the
//!   same term, by a higher node id, and the term alone is no token.
//! - The group is never recreated under the same fence: its terms would begin again, and every write would be refused.
//!
//! `cargo run -p raft-token`

mod network;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use openraft::storage::Adaptor;
use openraft::{Config, Raft};
use openraft_memstore::{ClientRequest, MemStore, TypeConfig};
use primacy::FencingToken;
use primacy::fence::{DurableFence, DurableFenceError};

use network::Network;

/// The ids of the nodes.
const NODES: [u64; 3] = [1, 2, 3];

/// The time for a leader to commit an entry; without a majority it never does.
const COMMIT_PATIENCE: Duration = Duration::from_secs(2);

/// The time for the other nodes to elect a leader: far longer than the election timeout.
const ELECTION_PATIENCE: Duration = Duration::from_secs(60);

type Node = Raft<TypeConfig>;

/// The token of this node's present leadership: the term of an entry that it proposes and commits now.
///
/// # Errors
/// If the node does not lead, or no majority follows it any more.
async fn token(node: &Node) -> Result<FencingToken, Box<dyn Error>> {
    let nothing = ClientRequest { client: "token".to_owned(), serial: 0, status: String::new() };
    let committed = tokio::time::timeout(COMMIT_PATIENCE, node.client_write(nothing)).await;
    let committed = committed.map_err(|_| format!("nothing was committed within {COMMIT_PATIENCE:?}"))??;
    Ok(FencingToken(committed.log_id.leader_id.term))
}

/// Waits until this node's metrics name a leader other than `not`, and returns it.
async fn leader(node: &Node, not: Option<u64>) -> Result<u64, Box<dyn Error>> {
    let is_another = |leader: Option<u64>| leader.is_some() && leader != not;
    let wait = node.wait(Some(ELECTION_PATIENCE));
    let told = wait.metrics(|told| is_another(told.current_leader), "a leader").await?;
    Ok(told.current_leader.ok_or("there is none")?)
}

async fn start(network: &Network) -> Result<BTreeMap<u64, Node>, Box<dyn Error>> {
    let mut nodes = BTreeMap::new();
    for id in NODES {
        // openraft draws a node's election timeout once, at the start: with two similar ones, every vote could be split.
        let election_timeout_min = 500 * id;
        let timers = Config {
            heartbeat_interval: 100,
            election_timeout_min,
            election_timeout_max: election_timeout_min + 200,
            ..Config::default()
        };
        let (log, state) = Adaptor::new(MemStore::new_async().await);
        let node = Raft::new(id, Arc::new(timers.validate()?), network.of(id), log, state).await?;
        network.add(id, node.clone());
        nodes.insert(id, node);
    }
    nodes[&NODES[0]].initialize(BTreeMap::from(NODES.map(|id| (id, ())))).await?;
    Ok(nodes)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("raft-token-{}.fence", std::process::id()));
    let fence = DurableFence::create(&path, "orders", FencingToken(0))?;
    // The resource: it checks the token and writes in one step.
    let mut orders: Vec<String> = Vec::new();
    let mut write =
        |token: FencingToken, order: &str| fence.admit_and(token, || orders.push(order.to_owned()));

    let network = Network::default();
    let nodes = start(&network).await?;
    let first = leader(&nodes[&NODES[0]], None).await?;
    let old = token(&nodes[&first]).await?;
    write(old, "the first leader's")?;
    println!("node {first} leads in term {old}, and writes");

    network.cut_off(first);
    let witness = NODES.iter().find(|&&id| id != first).ok_or("there are three")?;
    let second = leader(&nodes[witness], Some(first)).await?;
    let new = token(&nodes[&second]).await?;
    write(new, "the second leader's")?;
    println!("node {first} is cut off; node {second} leads in term {new}, and writes");
    assert!(new > old, "terms grow");

    // A write that it began earlier, or makes without a check.
    match write(old, "too late") {
        Err(refused @ DurableFenceError::Stale(_)) => println!("node {first} writes: {refused}"),
        other => return Err(format!("a late write was not refused: {other:?}").into()),
    }
    let asked = token(&nodes[&first]).await.expect_err("it has no majority");
    println!("node {first} asks for a token, and gets none: {asked}");

    for node in nodes.values() {
        node.shutdown().await?;
    }
    assert_eq!(orders, ["the first leader's", "the second leader's"]);
    std::fs::remove_file(&path)?;
    Ok(())
}
