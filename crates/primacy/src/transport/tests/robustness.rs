//! Bad input from strangers, while a pair of nodes talks: with TLS and without it.

use std::time::Instant as StdInstant;

use tokio::time::interval;

use crate::transport::tls::tests::{Authority, NOW};

use super::*;

const TIMEOUT: Duration = Duration::from_millis(1500);

/// `a` and `b`, which talk; and everything that strangers do is done to `a`.
struct Target {
    a: Node,
    b: Node,
    /// Its files are removed at the end.
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

    /// Nothing has come between the two since they met.
    async fn undisturbed(&mut self) {
        self.round += 1;
        let message = heartbeat(&hello("b", &[]), self.round);
        assert_eq!(self.b.mesh.send(node("a"), &message), Delivery::Written);
        assert_eq!(self.a.next().await, Arrival::Message { from: node("b"), message });
    }

    /// A peer that was not there before, at the worst time.
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

/// The same story without TLS and with it.
fn both_ways<F: Future<Output = ()>>(story: impl Fn(Option<Authority>) -> F) {
    run(story(None));
    run(story(Some(Authority::new())));
}

fn random(length: usize) -> Vec<u8> {
    let mut random = primacy_core::rng::Rng::new(7);
    (0..length).map(|_| random.next_u64().to_be_bytes()[0]).collect()
}

/// Sends until the other side has heard enough, and waits until it hangs up.
async fn pour(stream: &mut TcpStream, bytes: &[u8]) {
    // Whoever is hung up on in the middle of a sentence cannot end it.
    let _ = stream.write_all(bytes).await;
    let _ = stream.read(&mut [0; 1024]).await;
}

#[test]
fn a_mebibyte_of_random_bytes_costs_one_connection() {
    both_ways(|authority| async {
        let mut target = Target::start(authority, Limits::default()).await;
        let bytes = random(1 << 20);
        pour(&mut target.dial().await, &bytes).await;
        // The same behind what a frame, a handshake of TLS, and a frame of the right size begin with.
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
            // Far too slowly to end in time, and as steadily as a living peer.
            let mut pace = interval(StdDuration::from_millis(40));
            for byte in bytes {
                pace.tick().await;
                if slow.write_all(&[byte]).await.is_err() {
                    break;
                }
            }
            // It may have been told why; then it was hung up on.
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
        let limit = target.a.mesh.shared.limits.strangers_max;
        let mut silent = Vec::new();
        // As many at a time as this process has descriptors for; those that came first are hung up on meanwhile.
        for _ in 0..1000 {
            silent.push(target.dial().await);
            if silent.len() > 2 * limit {
                silent.remove(0);
            }
        }
        let c = target.another_comes().await;
        let counters = target.a.mesh.counters();
        assert!(counters.strangers_over_limit > 0, "{counters:?}");
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
