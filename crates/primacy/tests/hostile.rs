//! Three electors on loopback, one of which leads, and attackers.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use primacy::status::{PeersView, View};
use primacy::transport::TlsFiles;
use primacy::{Elector, Leadership, NodeId, Peers, Reason};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use support::{Dir, peers, soon};

const NODES: [&str; 3] = ["a", "b", "c"];
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The number of connections that send nothing to the leader.
const SILENT: usize = 1000;

/// The most connections that may be in their handshake with a node at a time.
const STRANGERS_MAX: u64 = 64;

/// Three electors that know each other, in a directory of their own.
struct Three {
    dir: Dir,
    peers: Peers,
    authority: Option<Issuer<'static, KeyPair>>,
    electors: Vec<Elector>,
}

impl Three {
    async fn start(name: &str, tls: bool) -> Self {
        let (dir, peers) = (Dir::new(&format!("hostile-{name}-{tls}")), peers(&NODES));
        let authority = tls.then(|| authority(&dir.join("ca.pem")));
        let mut three = Self { dir, peers, authority, electors: Vec::new() };
        for node in NODES {
            if three.authority.is_some() {
                three.issue(node, (2020, 2999));
            }
            let elector = three.enter(node).await;
            three.electors.push(elector);
        }
        three
    }

    async fn enter(&self, node: &str) -> Elector {
        let builder = Elector::builder().election("test").cluster("hostile").node(NodeId::new(node).unwrap());
        let builder = builder.lease(Duration::from_secs(2)).state_dir(self.dir.join(node));
        let builder = if self.authority.is_some() { builder.tls(self.files(node)) } else { builder };
        builder.peers(self.peers.clone()).await.unwrap()
    }

    fn files(&self, node: &str) -> TlsFiles {
        TlsFiles {
            certificate: self.dir.join(format!("{node}.pem")),
            key: self.dir.join(format!("{node}.key")),
            ca: self.dir.join("ca.pem"),
        }
    }

    fn issue(&self, node: &str, (from, until): (i32, i32)) {
        let mut params = CertificateParams::new(vec![node.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(until, 1, 1));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, self.authority.as_ref().unwrap()).unwrap();
        let files = self.files(node);
        replace(&files.certificate, &certificate.pem());
        replace(&files.key, &key.serialize_pem());
    }

    /// `a` leads.
    async fn elect(&self) -> Leadership {
        soon("the first election", self.electors[0].campaign()).await.unwrap()
    }

    /// Waits until the node at this position sees its peers, and other connections, like that.
    async fn until(&self, position: usize, what: &str, fits: impl Fn(&PeersView) -> bool) {
        let looking = async {
            loop {
                let View::Peers(view) = self.electors[position].status().await.unwrap().view else {
                    panic!("these are peers")
                };
                if fits(&view) {
                    return;
                }
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        soon(what, looking).await;
    }

    fn dial(&self, node: &str) -> TcpStream {
        TcpStream::connect(self.peers.address(NodeId::new(node).unwrap()).unwrap()).unwrap()
    }
}

fn authority(pem: &Path) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    replace(pem, &params.self_signed(&key).unwrap().pem());
    Issuer::new(params, key)
}

fn replace(path: &Path, content: &str) {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, content).unwrap();
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&fresh, path).unwrap();
}

/// The leadership goes on: it is renewed once more, under the same token.
async fn goes_on(leadership: &Leadership) {
    leadership.check().unwrap();
    let renewed = soon("a renewal", leadership.renewed(leadership.valid_until())).await;
    assert!(renewed.is_some(), "the lead was lost");
    leadership.check().unwrap();
}

/// Says all of it, or as much as the other side wants to hear, and waits until that hangs up.
fn pour(mut stream: TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes);
    let _ = stream.read(&mut [0; 1024]);
}

/// Says a byte a second of something that would be well-formed, until it is hung up on. How many bytes that were.
fn trickle(mut stream: TcpStream, tls: bool) -> std::thread::JoinHandle<usize> {
    let begun = if tls { &[0x16, 3, 1, 0, 200, 1, 0, 0, 196][..] } else { &[0, 0, 0, 200] };
    let bytes = begun.iter().copied().chain(std::iter::repeat_n(3, 200)).enumerate();
    stream.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    std::thread::spawn(move || {
        for (said, byte) in bytes {
            if stream.write_all(&[byte]).is_err() {
                return said;
            }
            match stream.read(&mut [0; 1024]) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                // It may have been sent the reason.
                Ok(_) | Err(_) => return said + 1,
            }
        }
        panic!("it was never hung up on");
    })
}

/// A connection has two ends in this process.
fn allow_many_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let needed = 8 * SILENT as u64;
    if current.is_some_and(|current| current < needed) {
        let enough = Rlimit { current: Some(maximum.unwrap_or(needed).max(needed)), maximum };
        setrlimit(Resource::Nofile, enough).expect("this test needs many descriptors: raise the hard limit");
    }
}

async fn bad_input_unseats_nobody(tls: bool) {
    allow_many_descriptors();
    let mut three = Three::start("input", tls).await;
    let leadership = three.elect().await;
    let mut held = Vec::new();
    let slow = NODES.map(|node| trickle(three.dial(node), tls));
    for node in NODES {
        let mut random = 7_u64;
        let garbage: Vec<u8> = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            random.to_be_bytes()[0]
        })
        .take(1 << 20)
        .collect();
        pour(three.dial(node), &garbage);
        pour(three.dial(node), &[0xff; 4]);
        pour(three.dial(node), &[&[0x16, 3, 1, 2, 0][..], &garbage].concat());
        goes_on(&leadership).await;
    }
    // Connections that send nothing: most of them to the leader, and on this side they stay.
    for _ in 0..SILENT {
        held.push(three.dial("a"));
    }
    for _ in 0..100 {
        held.extend(["b", "c"].map(|node| three.dial(node)));
    }
    goes_on(&leadership).await;
    while !slow.iter().all(std::thread::JoinHandle::is_finished) {
        goes_on(&leadership).await;
    }
    for slow in slow {
        let said = slow.join().unwrap();
        assert!(said >= 3, "it was heard for {said} seconds only, though silent ones could have gone");
    }
    for (position, node) in NODES.into_iter().enumerate() {
        let silent = if node == "a" { SILENT as u64 } else { 100 };
        let counted = |view: &PeersView| {
            let counters = &view.counters;
            let refused = counters.refused.iter().any(|(kind, _)| kind.name() == "tls_not_cleartext");
            counters.frames_too_long >= 1
                && counters.handshakes_timed_out >= 1
                && counters.pending_over_limit >= silent - STRANGERS_MAX
                && if tls { counters.handshakes_broken >= 1 } else { refused }
        };
        three.until(position, "what was counted", counted).await;
    }
    // A node that comes back meanwhile takes part at once: the leader hands over to it.
    three.electors.pop().unwrap().close().await;
    let c = three.enter("c").await;
    let campaign = tokio::spawn({
        let c = c.clone();
        async move { c.campaign().await.unwrap() }
    });
    goes_on(&leadership).await;
    let token = leadership.token();
    let target = NodeId::new("c").unwrap();
    assert_eq!(soon("the transfer", leadership.transfer(target)).await, Reason::Transferred(target));
    let next = soon("the election of the one that came back", campaign).await.unwrap();
    assert!(next.token() > token);
    drop(held);
}

#[tokio::test]
async fn bad_input_unseats_nobody_in_cleartext() {
    bad_input_unseats_nobody(false).await;
}

#[tokio::test]
async fn bad_input_unseats_nobody_under_tls() {
    bad_input_unseats_nobody(true).await;
}

/// `c` comes back with certificates that are refused; the leader stays, and `c` is let in when it has a good one.
#[tokio::test]
async fn bad_certificates_unseat_nobody_and_good_ones_are_taken_when_they_come() {
    let mut three = Three::start("certificates", true).await;
    let leadership = three.elect().await;
    three.electors.pop().unwrap().close().await;
    for (valid, reason) in [((2020, 2021), "tls_expired"), ((2998, 2999), "tls_not_yet_valid")] {
        three.issue("c", valid);
        let c = three.enter("c").await;
        // By the leader and by a follower, and both when they dial it and when it dials them.
        for position in [0, 1] {
            let refused = |view: &PeersView| {
                let of_c = |peer: &&primacy::transport::PeerStatus| peer.node.as_str() == "c";
                let with_c = view.peers.iter().find(of_c).unwrap().refusal.as_ref();
                with_c.is_some_and(|refusal| !refusal.by_peer && refusal.kind.name() == reason)
                    && view.unidentified_refused.as_ref().is_some_and(|refusal| refusal.kind.name() == reason)
            };
            three.until(position, reason, refused).await;
        }
        goes_on(&leadership).await;
        goes_on(&leadership).await;
        c.close().await;
    }
    let c = three.enter("c").await;
    let campaign = tokio::spawn(async move { c.campaign().await.unwrap() });
    goes_on(&leadership).await;
    // While it runs: it reads its files again, and so do the nodes that dial it.
    three.issue("c", (2020, 2999));
    let target = NodeId::new("c").unwrap();
    assert_eq!(soon("the transfer", leadership.transfer(target)).await, Reason::Transferred(target));
    soon("the election of the one that was let in", campaign).await.unwrap();
}
