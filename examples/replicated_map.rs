//! Three nodes that replicate a map: all nodes read what one of them has written, and it outlives the leader.
//!
//! There is no store and no server. Here all three are in one program; normally each is a process of its own, with the same
//! peers and a state directory on its own disk.

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use primacy::kv::command::{Answer, Command, SessionId, Write};
use primacy::metadata::{Durability, Map};
use primacy::{Elector, Peers};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Runs the example.
///
/// # Errors
/// If a node cannot enter the election, or no leader answers.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let state = std::env::temp_dir().join(format!("primacy-replicated-map-{}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    // Without a majority there is no leader, and everything here would wait for ever.
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), tell(&state)).await })??;
    std::fs::remove_dir_all(&state)?;
    Ok(())
}

async fn tell(state: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let peers = free_peers()?;
    let [a, b, c] = [
        enter("a", &peers, state).await?,
        enter("b", &peers, state).await?,
        enter("c", &peers, state).await?,
    ];
    let [map_a, map_b, map_c] = [map(&a), map(&b), map(&c)];

    // Writing needs a leader. Any node serves the map, whichever node leads.
    let first = a.campaign().await?;
    map_b.write(Write::new("colour", "red")).await?.result?;
    assert_eq!(text(&map_c, "colour").await?.as_deref(), Some("red"));
    println!("{} leads, b has written, and c reads it", first.leader().identity.node);

    // Two nodes have read the same value and want to change it. One is first, and the other one learns that its condition
    // failed.
    let (at_b, at_c) = (map_b.get("colour").await?, map_c.get("colour").await?);
    let of_b = Write::new("colour", "green").if_unchanged(at_b.as_ref());
    let of_c = Write::new("colour", "blue").if_unchanged(at_c.as_ref());
    assert!(held(&map_b.write(of_b).await?.result?));
    assert!(!held(&map_c.write(of_c).await?.result?));
    println!("b has changed what it had read, and c has not: somebody was there before");

    // An entry that shows the presence of a client. It goes with its session, whose number no other client may use.
    let session = SessionId::new(1).ok_or("0 means no session")?;
    let time_to_live = Duration::from_secs(60);
    map_c.write(Command::Begin { session, time_to_live: time_to_live.into() }).await?.result?;
    map_c.write(Write::new("online/c", "since noon").in_session(session)).await?.result?;
    let lives_for = map_c.keep_alive(session).await?; // Again and again, for as long as c is there.
    assert!(lives_for.is_some_and(|lives_for| lives_for <= time_to_live));
    assert!(map_a.get("online/c").await?.is_some());
    // The leader would do this itself if the session were not kept alive.
    let ended = map_c.write(Command::End { session }).await?.result?;
    assert_eq!(ended, Answer::Ended { count: 1 });
    assert_eq!(map_a.get("online/c").await?, None);
    println!("the session has ended, and its entry has gone with it");

    // The leader resigns, and another one is elected. All entries are still there.
    let (old, (_, second)) = (first.token(), tokio::join!(first.resign(), b.campaign()));
    let second = second?;
    assert!(second.token() > old);
    assert_eq!(text(&map_a, "colour").await?.as_deref(), Some("green"));
    map_a.write(Write::new("colour", "yellow")).await?.result?;
    assert_eq!(text(&map_c, "colour").await?.as_deref(), Some("yellow"));
    println!("{} leads now, and the map is still there", second.leader().identity.node);

    second.resign().await;
    for node in [a, b, c] {
        node.close().await;
    }
    Ok(())
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

async fn enter(name: &str, peers: &Peers, state: &Path) -> Result<Elector, Box<dyn std::error::Error>> {
    let builder = Elector::builder().election("example").node(name.parse()?).state_dir(state.join(name));
    // With `Fsync`, an acknowledged write is on the disks of a majority.
    Ok(builder.metadata(Durability::Fsync).peers(peers.clone()).await?)
}

fn map(node: &Elector) -> Map {
    node.map().expect("it was built with metadata").clone()
}

/// Reads the value of a key, with everything that was written before.
async fn text(map: &Map, key: &str) -> Result<Option<String>, Box<dyn std::error::Error>> {
    let entry = map.get(key).await?;
    Ok(entry.map(|entry| String::from_utf8_lossy(entry.value()).into_owned()))
}

/// Returns whether the comparisons of a transaction held, so that it was applied.
fn held(answer: &Answer) -> bool {
    matches!(answer, Answer::Decided { held: true, .. })
}
