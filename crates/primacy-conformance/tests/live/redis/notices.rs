//! Forged notices: the notices that a user without write rights may publish.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use primacy_conformance::live::redis::Redis;
use primacy_stores::open;

use super::server;
use crate::registers::{PATIENCE, record};

/// The number of notices that are published at once, and then again after the pause: 50,000 a second.
const BURST: usize = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// The renewals of the record meanwhile, and their pace.
const RENEWALS: u64 = 100;
const RENEWAL_PAUSE: Duration = Duration::from_millis(50);

/// Publishes notices of an election, which a user did not write, until this is dropped.
struct Flood {
    is_over: Arc<AtomicBool>,
    publishing: Option<std::thread::JoinHandle<()>>,
}

impl Flood {
    fn start(server: &Redis, election: &str) -> Self {
        server.tell(&[
            "ACL",
            "SETUSER",
            "forger",
            "on",
            "nopass",
            "resetkeys",
            "allchannels",
            "-@all",
            "+publish",
        ]);
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.write_all(b"*3\r\n$4\r\nAUTH\r\n$6\r\nforger\r\n$1\r\nx\r\n").unwrap();
        let told = format!("123456789 {election}");
        let notice =
            format!("*3\r\n$7\r\nPUBLISH\r\n$15\r\nprimacy:changed\r\n${}\r\n{told}\r\n", told.len());
        let burst = notice.repeat(BURST);
        let is_over = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&is_over);
        let publishing = std::thread::spawn(move || {
            let mut answers = [0; 1 << 16];
            while !end.load(Ordering::SeqCst) {
                stream.write_all(burst.as_bytes()).unwrap();
                let mut lines = 0;
                while lines < BURST {
                    let length = stream.read(&mut answers).unwrap();
                    assert!(
                        length > 0 && answers[0] != b'-',
                        "{}",
                        String::from_utf8_lossy(&answers[..length])
                    );
                    lines += answers[..length].iter().filter(|byte| **byte == b'\n').count();
                }
                std::thread::sleep(PAUSE);
            }
        });
        Self { is_over, publishing: Some(publishing) }
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let published = self.publishing.take().map(std::thread::JoinHandle::join);
        assert!(std::thread::panicking() || matches!(published, Some(Ok(()))), "the flood has ended");
    }
}

#[tokio::test]
async fn forged_notices_keep_no_leader_from_renewing_and_no_follower_from_noticing() {
    let Some(server) = server(&[]).await else { return };
    let register = open(&server.url(), "flooded").await.unwrap();
    let mut version = register.compare_and_set(None, &record(1)).await.unwrap();
    let follower = open(&server.url(), "flooded").await.unwrap();
    let flood = Flood::start(&server, "flooded");
    for token in 2..=RENEWALS {
        // As a node does: it waits for changes meanwhile, and looks when it is woken.
        let _ = tokio::time::timeout(RENEWAL_PAUSE, register.changed()).await;
        register.read().await.expect("it is answered in time");
        let written = register.compare_and_set(Some(&version), &record(token)).await;
        version = written.expect("it is answered in time");
    }
    assert_eq!(follower.read().await.unwrap().unwrap().1, version);
    let last = register.compare_and_set(Some(&version), &record(RENEWALS + 1)).await.unwrap();
    let noticing = async {
        while follower.read().await.unwrap().unwrap().1 != last {
            follower.changed().await;
        }
    };
    tokio::time::timeout(PATIENCE, noticing).await.expect("it is noticed");
    drop(flood);
}
