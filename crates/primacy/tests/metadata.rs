//! Nodes that keep a map together, in one process, with real sockets and disks.

use std::net::TcpListener;
use std::path::Path;

use primacy::core::metadata::command::{
    Answer, Command, Keys, Operation, Outcome, Previous, Read, Replace, Write,
};
use primacy::metadata::{Durability, Map};
use primacy::{Elector, NodeId, Peers};

fn peers(names: &[&str]) -> Peers {
    let listeners: Vec<TcpListener> =
        names.iter().map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let entries: Vec<String> = names
        .iter()
        .zip(&listeners)
        .map(|(name, listener)| format!("{name}={}", listener.local_addr().unwrap()))
        .collect();
    entries.join(",").parse().unwrap()
}

async fn enter(name: &str, peers: &Peers, dir: &Path) -> Elector {
    Elector::builder()
        .election("meta")
        .node(NodeId::new(name).unwrap())
        .state_dir(dir.join(name))
        .metadata(Durability::Fsync)
        .peers(peers.clone())
        .await
        .unwrap()
}

fn put(key: &str, value: &str) -> Command {
    Command::Operate(Operation::Write(Write {
        key: key.as_bytes().into(),
        value: Replace::With(value.as_bytes().into()),
        session: Replace::With(None),
        previous: Previous::Unwanted,
    }))
}

async fn get(map: &Map, key: &str) -> Vec<u8> {
    let read = Operation::Read(Box::new(Read::of(Keys::One(key.as_bytes().into()))));
    let Outcome { result: Ok(Answer::Found(found)), .. } = map.read(&read).await.unwrap() else {
        panic!("a read finds")
    };
    found.entries[0].value().to_vec()
}

#[tokio::test]
async fn what_one_node_writes_all_can_read() {
    let dir = tempdir();
    let peers = peers(&["a", "b", "c"]);
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        nodes.push(enter(name, &peers, &dir).await);
    }
    let candidate = nodes[0].clone();
    let lead = tokio::spawn(async move { candidate.campaign().await.unwrap() });
    let maps: Vec<Map> = nodes.iter().map(|node| node.map().unwrap().clone()).collect();
    for (index, map) in maps.iter().enumerate() {
        map.write(put(&format!("key{index}"), "value")).await.unwrap().result.unwrap();
    }
    for map in &maps {
        for index in 0..3 {
            assert_eq!(get(map, &format!("key{index}")).await, b"value");
        }
    }
    let leadership = lead.await.unwrap();
    leadership.resign().await;
    for node in nodes {
        node.close().await;
    }
}

fn tempdir() -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("primacy-metadata-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
