//! Three electors on loopback, one of which leads, and strangers who would rather have it otherwise.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use primacy::transport::TlsFiles;
use primacy::{Elector, Leadership, NodeId, Peers, Reason};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

/// Longer than anything here may take on a busy machine.
const BOUND: Duration = Duration::from_secs(30);
const NODES: [&str; 3] = ["a", "b", "c"];

async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    tokio::time::timeout(BOUND, future).await.unwrap_or_else(|_| panic!("{what} did not happen in {BOUND:?}"))
}

/// Three electors that know each other, in a directory of their own.
struct Three {
    dir: PathBuf,
    peers: Peers,
    authority: Option<Issuer<'static, KeyPair>>,
    electors: Vec<Elector>,
}

impl Three {
    async fn start(name: &str, tls: bool) -> Self {
        let dir = std::env::temp_dir().join(format!("primacy-hostile-{name}-{tls}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let listeners: Vec<TcpListener> = NODES.map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).into();
        let at = |index: usize| listeners[index].local_addr().unwrap();
        let peers = format!("a={},b={},c={}", at(0), at(1), at(2)).parse().unwrap();
        drop(listeners);
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

    fn dial(&self, node: &str) -> TcpStream {
        TcpStream::connect(self.peers.address(NodeId::new(node).unwrap()).unwrap()).unwrap()
    }
}

impl Drop for Three {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
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

async fn bad_input_unseats_nobody(tls: bool) {
    let mut three = Three::start("input", tls).await;
    let leadership = three.elect().await;
    let mut held = Vec::new();
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
        // One that begins and never ends, and connections that say nothing: they stay while the rest goes on.
        let mut slow = three.dial(node);
        slow.write_all(&[0, 0, 0]).unwrap();
        held.push(slow);
    }
    for _ in 0..100 {
        held.extend(NODES.map(|node| three.dial(node)));
    }
    goes_on(&leadership).await;
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
    for (from, until) in [(2020, 2021), (2998, 2999)] {
        three.issue("c", (from, until));
        let c = three.enter("c").await;
        goes_on(&leadership).await;
        goes_on(&leadership).await;
        c.close().await;
    }
    let c = three.enter("c").await;
    let campaign = tokio::spawn(async move { c.campaign().await.unwrap() });
    goes_on(&leadership).await;
    // While it runs: it reads its files again, and so do those who dial it.
    three.issue("c", (2020, 2999));
    let target = NodeId::new("c").unwrap();
    assert_eq!(soon("the transfer", leadership.transfer(target)).await, Reason::Transferred(target));
    soon("the election of the one that was let in", campaign).await.unwrap();
}
