//! Bad input from unauthenticated clients while two nodes communicate, with and without TLS.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant as StdInstant;

use tokio::time::interval;

use crate::transport::tls::dns_name;
use crate::transport::tls::tests::{Authority, NOW, credentials};

use super::*;

const TIMEOUT: Duration = Duration::from_millis(1500);

/// `a` and `b`, which are connected; all bad input goes to `a`.
struct Target {
    a: Node,
    b: Node,
    /// The authority, whose files are removed at the end.
    authority: Option<Authority>,
    round: u64,
}

impl Target {
    async fn start(authority: Option<Authority>, limits: Limits) -> Self {
        let [place_a, place_b] = places();
        let (at_a, at_b) = (at(&place_a), at(&place_b));
        let voters = ["a", "b", "c"];
        let mesh = |name: &'static str, peer: (&'static str, String)| MeshConfig {
            security: match &authority {
                Some(authority) => Security::Tls(authority.issue(name, NOW)),
                None => Security::Loopback,
            },
            limits,
            ..config(hello(name, &voters), &[peer])
        };
        let mut a = start(place_a, mesh("a", ("b", at_b))).await;
        let mut b = start(place_b, mesh("b", ("a", at_a))).await;
        a.connected("b").await;
        b.connected("a").await;
        b.link_to("a").await;
        Self { a, b, authority, round: 0 }
    }

    async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.a.mesh.local_addr()).await.unwrap()
    }

    /// Checks that the two nodes are still connected as at the start.
    async fn undisturbed(&mut self) {
        self.round += 1;
        let message = heartbeat(&hello("b", &[]), self.round);
        assert_eq!(self.b.mesh.send(node("a"), Word::Quorum(message.clone())), Delivery::Written);
        assert_eq!(self.a.next().await, Arrival::Message { from: node("b"), message: Word::Quorum(message) });
    }

    /// Connects a new peer, at the worst time.
    async fn another_comes(&mut self) -> Node {
        let [place] = places();
        let security = match &self.authority {
            Some(authority) => Security::Tls(authority.issue("c", NOW)),
            None => Security::Loopback,
        };
        let peers = [("a", self.a.mesh.local_addr().to_string())];
        let c = start(place, MeshConfig { security, ..config(hello("c", &["a", "b", "c"]), &peers) }).await;
        c.link_to("a").await;
        self.a.connected("c").await;
        c
    }
}

/// A client that sends without a pause, from a thread of its own.
struct Torrent {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<bool>,
}

impl Torrent {
    /// Sends `opening`, and then `rest` repeatedly, until the connection is closed; or until half of the test's time is
    /// over, because a test whose thread is blocked could not end it.
    fn start(mut to: impl Write + Send + 'static, opening: Vec<u8>, rest: Vec<u8>) -> Self {
        let (stop, stopped) = (Arc::new(AtomicBool::new(false)), StdInstant::now() + BOUND / 2);
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut said = to.write_all(&opening);
            while said.is_ok() && !told.load(Ordering::Relaxed) && StdInstant::now() < stopped {
                said = to.write_all(&rest);
            }
            said.is_err()
        });
        Self { stop, thread }
    }

    /// Returns true if the connection was closed by the other side.
    async fn end(self) -> bool {
        self.stop.store(true, Ordering::Relaxed);
        self.was_hung_up_on().await
    }

    async fn was_hung_up_on(self) -> bool {
        until(|| self.thread.is_finished()).await;
        self.thread.join().unwrap()
    }
}

/// Runs the same test with and without TLS.
fn both_ways<F: Future<Output = ()>>(story: impl Fn(Option<Authority>) -> F) {
    run(story(None));
    run(story(Some(Authority::new())));
}

fn random(length: usize) -> Vec<u8> {
    let mut random = primacy_core::rng::Rng::new(7);
    (0..length).map(|_| random.next_u64().to_be_bytes()[0]).collect()
}

/// Sends bytes until the other side closes the connection.
async fn pour(stream: &mut TcpStream, bytes: &[u8]) {
    // Writing fails if the connection is closed in the middle of a frame.
    let _ = stream.write_all(bytes).await;
    let _ = stream.read(&mut [0; 1024]).await;
}

#[test]
fn a_mebibyte_of_random_bytes_costs_one_connection() {
    both_ways(|authority| async {
        let mut target = Target::start(authority, Limits::default()).await;
        let bytes = random(1 << 20);
        pour(&mut target.dial().await, &bytes).await;
        // The same after the beginning of a frame, of a TLS handshake, and of a frame of a valid length.
        for start in [&[0, 0, 0xff, 0xff][..], &[0x16, 3, 1, 0x02, 0], &[0x16, 0xff, 0xff], &[0, 0, 0, 9]] {
            let bytes = [start, &bytes].concat();
            pour(&mut target.dial().await, &bytes).await;
        }
        let dropped = |counters: &Counters| {
            let refused: u64 = counters.refused.values().sum();
            counters.handshakes_broken + counters.frames_too_long + refused
        };
        target.a.until(|counters| dropped(counters) == 5).await;
        target.undisturbed().await;
    });
}

#[test]
fn a_frame_that_claims_four_gibibytes_is_refused_before_it_comes() {
    both_ways(|authority| async {
        let mut target = Target::start(authority, Limits::default()).await;
        let mut claim = target.dial().await;
        claim.write_all(&[0xff; 4]).await.unwrap();
        assert_eq!(claim.read(&mut [0; 1]).await.unwrap_or(0), 0, "it hangs up though nothing has followed");
        assert_eq!(target.a.mesh.counters().frames_too_long, 1);
        target.undisturbed().await;
    });
}

#[test]
fn one_that_says_a_byte_at_a_time_has_no_more_time_than_others() {
    both_ways(|authority| async {
        let limits = Limits { handshake_timeout: TIMEOUT, ..Limits::default() };
        let mut target = Target::start(authority, limits).await;
        let hello = codec::encode("main", &Frame::Hello(hello("c", &["a", "b", "c"]))).unwrap();
        let of_tls = [&[0x16, 3, 1, 0, 200, 1, 0, 0, 196][..], &[3; 196]].concat();
        let begun = StdInstant::now();
        for bytes in [hello, of_tls] {
            let mut slow = target.dial().await;
            // Too slow to end in time, and as regular as a running peer.
            let mut pace = interval(StdDuration::from_millis(40));
            for byte in bytes {
                pace.tick().await;
                if slow.write_all(&[byte]).await.is_err() {
                    break;
                }
            }
            // It may have received the reason; then the connection was closed.
            let _ = slow.read_to_end(&mut Vec::new()).await;
        }
        let gone = |counters: &Counters| {
            let refused: u64 = counters.refused.values().sum();
            counters.handshakes_timed_out + refused == 2 && counters.handshakes_timed_out >= 1
        };
        target.a.until(gone).await;
        assert!(begun.elapsed() >= StdDuration::from(TIMEOUT), "it was given its time");
        target.undisturbed().await;
    });
}

#[test]
fn a_thousand_connections_that_say_nothing_keep_no_peer_out() {
    both_ways(|authority| async {
        let mut target = Target::start(authority, Limits::default()).await;
        let limit = target.a.mesh.shared.limits.pending_max;
        let mut silent = Vec::new();
        // As many at a time as this process has descriptors for; the first ones are closed meanwhile.
        for _ in 0..1000 {
            silent.push(target.dial().await);
            if silent.len() > 2 * limit {
                silent.remove(0);
            }
        }
        let c = target.another_comes().await;
        let counters = target.a.mesh.counters();
        assert!(counters.pending_over_limit > 0, "{counters:?}");
        assert_eq!(counters.handshakes_timed_out, 0, "nobody had to wait for that");
        assert_eq!(c.mesh.counters().connects_failed, 0, "it got through at once");
        target.undisturbed().await;
        drop(silent);
    });
}

#[test]
fn connections_that_say_one_byte_keep_no_peer_out_either() {
    both_ways(|authority| async {
        let mut target = Target::start(authority, Limits::default()).await;
        let mut begun = Vec::new();
        for first in [0, 0x16].into_iter().cycle().take(200) {
            let mut stream = target.dial().await;
            stream.write_all(&[first]).await.unwrap();
            begun.push(stream);
        }
        let _c = target.another_comes().await;
        target.undisturbed().await;
        drop(begun);
    });
}

#[test]
fn strangers_that_talk_on_after_they_were_refused_take_no_time_from_others() {
    both_ways(|authority| async {
        let mut target = Target::start(authority, Limits::default()).await;
        let hello = codec::encode("main", &Frame::Hello(hello("c", &["a", "b", "c"]))).unwrap();
        // The protocol that `a` does not expect.
        let opening = if target.authority.is_some() { hello } else { vec![0x16, 3, 1] };
        let count = target.a.mesh.shared.limits.pending_max;
        let mut torrents = Vec::new();
        for _ in 0..count {
            let to = std::net::TcpStream::connect(target.a.mesh.local_addr()).unwrap();
            torrents.push(Torrent::start(to, opening.clone(), random(1 << 16)));
            target.undisturbed().await;
        }
        let refused = |counters: &Counters| counters.refused.values().sum::<u64>() == count as u64;
        target.a.until(refused).await;
        for torrent in torrents {
            assert!(torrent.was_hung_up_on().await, "it was listened to for as long as it talked");
        }
        target.undisturbed().await;
    });
}

#[test]
fn a_peer_that_talks_without_a_pause_takes_no_time_from_others() {
    both_ways(|authority| async {
        let mut target = Target::start(authority, Limits::default()).await;
        let tcp = std::net::TcpStream::connect(target.a.mesh.local_addr()).unwrap();
        let guardian = hello("c", &["a", "b", "c"]).of_guardian();
        // It does not wait for an answer, and reads none.
        let opening =
            [Frame::Hello(guardian), Frame::Ready].map(|frame| codec::encode("main", &frame).unwrap());
        let garbage = [0, 0, 0, 1, 0xff].repeat(1000);
        let torrent = match &target.authority {
            None => Torrent::start(tcp, opening.concat(), garbage),
            Some(authority) => {
                let mine = credentials(&authority.issue("c", NOW), "c");
                let name = dns_name(node("a")).unwrap();
                let session = rustls::ClientConnection::new(mine.dialler.clone(), name).unwrap();
                Torrent::start(rustls::StreamOwned::new(session, tcp), opening.concat(), garbage)
            }
        };
        target.a.until(|counters| counters.frames_malformed > 0).await;
        for _ in 0..100 {
            target.undisturbed().await;
        }
        assert!(!torrent.thread.is_finished(), "it has talked all the time");
        assert!(!torrent.end().await, "it was listened to all the time");
    });
}
