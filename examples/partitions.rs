//! Three nodes distribute partitions. One leaves, its partitions move, and its late write is refused.
//!
//! Here all nodes are in one program; normally each is a process of its own. If a node dies instead of leaving, the
//! others take its partitions when its session has expired, or when a guardian reports its death.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use primacy::fence::{Fence, FenceError};
use primacy::kv::partitions::{Command, GroupName};
use primacy::metadata::Durability;
use primacy::partitions::{End, Partitions, Primary};
use primacy::{Elector, FencingToken, Peers};

const NAMES: [&str; 3] = ["a", "b", "c"];
const COUNT: u32 = 6;

/// A resource to which the primary of a partition writes. It records the highest token that it has seen, and refuses lower
/// ones.
#[derive(Default)]
struct Queue {
    fence: Fence,
    jobs: Vec<String>,
}

impl Queue {
    fn push(&mut self, token: FencingToken, job: &str) -> Result<(), FenceError> {
        self.fence.admit(token)?;
        self.jobs.push(job.to_owned());
        Ok(())
    }
}

/// Runs the example.
///
/// # Errors
/// If a node cannot enter the election or take part in partitions, or no leader answers.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let state = std::env::temp_dir().join(format!("primacy-example-partitions-{}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    // Without a majority there is no leader, and everything here would wait for ever.
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), tell(&state)).await })??;
    std::fs::remove_dir_all(&state)?;
    Ok(())
}

async fn tell(state: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let peers = free_peers()?;
    let (mut nodes, mut parts) = (Vec::new(), Vec::new());
    for name in NAMES {
        nodes.push(enter(name, &peers, state).await?);
    }
    for node in &nodes {
        // The time for which a node stays a primary without a keep-alive: longer than usual, for a machine that is busy
        // with tests.
        parts.push(node.partitions().time_to_live(Duration::from_secs(20)).join().await?);
    }
    let [mut a, mut b, mut c] = <[Partitions; 3]>::try_from(parts).map_err(|_| "there are three")?;

    // An operator would run `primacy partitions create queues 6`.
    let map = nodes[0].map().expect("it was built with metadata");
    map.write(Command::Create { group: GroupName::new("queues")?, count: COUNT }).await?.result?;
    let mut of_a = take("a", &mut a, 2).await?;
    let mut of_b = take("b", &mut b, 2).await?;
    let of_c = take("c", &mut c, 2).await?;

    let mut queues: Vec<Queue> = (0..COUNT).map(|_| Queue::default()).collect();
    for (&index, primary) in of_a.iter().chain(&of_b).chain(&of_c) {
        primary.check()?; // Right before each act.
        queue(&mut queues, index).push(primary.token(), "by the first primary")?;
    }

    // Node c leaves: its work is stopped, and no other node begins before it has ended.
    let tokens: BTreeMap<u32, FencingToken> =
        of_c.iter().map(|(&index, primary)| (index, primary.token())).collect();
    let (_, ()) = tokio::join!(c.leave(), stop("c", of_c));
    of_a.extend(take("a", &mut a, 1).await?);
    of_b.extend(take("b", &mut b, 1).await?);
    assert_eq!(of_a.len() + of_b.len(), queues.len(), "all have a primary again");

    for (index, old) in tokens {
        let next = of_a.get(&index).or(of_b.get(&index)).ok_or("nobody has it")?;
        assert!(next.token() > old);
        next.check()?;
        let queue = queue(&mut queues, index);
        queue.push(next.token(), "by the next primary")?;
        // A thread of c was paused meanwhile. It does not know that, and still writes.
        match queue.push(old, "too late") {
            Err(refused) => println!("partition {index}: {refused}"),
            Ok(()) => return Err("a late write was not refused".into()),
        }
        assert_eq!(queue.jobs, ["by the first primary", "by the next primary"]);
    }
    // The partitions of the other nodes have not moved, and keep their tokens.
    assert_eq!(queues.iter().filter(|queue| queue.jobs.len() == 1).count(), 4);

    tokio::join!(a.leave(), stop("a", of_a), b.leave(), stop("b", of_b));
    for node in nodes {
        node.close().await;
    }
    Ok(())
}

/// Returns the next partitions of which this node is the primary.
async fn take(
    node: &str,
    partitions: &mut Partitions,
    count: usize,
) -> Result<BTreeMap<u32, Primary>, Box<dyn std::error::Error>> {
    let mut taken = BTreeMap::new();
    for _ in 0..count {
        let primary = partitions.next().await?;
        println!(
            "{node} is primary of {}/{} with token {}",
            primary.group(),
            primary.index(),
            primary.token()
        );
        taken.insert(primary.index(), primary);
    }
    Ok(taken)
}

/// Ends the work of these partitions when they are taken back.
async fn stop(node: &str, primaries: BTreeMap<u32, Primary>) {
    for primary in primaries.into_values() {
        assert_eq!(primary.ended().await, End::Left);
        assert!(primary.check().is_err());
        println!("{node} stops its work for {}/{}", primary.group(), primary.index());
        // The primaries are dropped here; now another node may begin.
    }
}

fn queue(queues: &mut [Queue], index: u32) -> &mut Queue {
    &mut queues[usize::try_from(index).expect("there are few")]
}

/// The peers' names, with free addresses on this machine.
fn free_peers() -> Result<Peers, Box<dyn std::error::Error>> {
    let mut listeners = Vec::new();
    let mut peers = Vec::new();
    for name in NAMES {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        peers.push(format!("{name}={}", listener.local_addr()?));
        listeners.push(listener); // Until all have one, so that no two have the same.
    }
    Ok(peers.join(",").parse()?)
}

/// Starts a node that campaigns as long as it runs: the partitions need some leader, and any node will do.
async fn enter(name: &str, peers: &Peers, state: &Path) -> Result<Elector, Box<dyn std::error::Error>> {
    let builder = Elector::builder().election("example").node(name.parse()?).state_dir(state.join(name));
    let elector = builder.metadata(Durability::Fsync).peers(peers.clone()).await?;
    let candidate = elector.clone();
    tokio::spawn(async move {
        while let Ok(leadership) = candidate.campaign().await {
            leadership.lost().await;
        }
    });
    Ok(elector)
}
