//! A client is connected only if it has sent what a peer sends, in the right order.

use std::cmp::Ordering;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use tokio::runtime::{Builder, Runtime};

use primacy_fuzz::Draw;

use crate::codec::{DecodeError, Deframer, decode};
use crate::handshake::tests::keeper;
use crate::handshake::{ElectionKind, Role};
use crate::transport::accept::shake_hands;
use crate::transport::dial::{OutboundPeer, introduce};
use crate::versions::PROTOCOL_VERSION;

use super::*;

#[test]
fn handshake() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    primacy_fuzz::hold("handshake", move |bytes| {
        let mut draw = Draw::new(bytes);
        // The first byte decides on which side this node is, whether it has recorded the disk of `b`, and whether it
        // keeps metadata.
        let kind = draw.byte();
        let (disk_is_known, keeps) = (kind & 2 != 0, kind & 4 != 0);
        let input = PeerInput { disk_is_known, keeps, bytes: draw.rest() };
        if kind & 1 == 0 { input.by_one_that_dials(&runtime) } else { input.by_one_that_answers(&runtime) }
    });
}

#[test]
fn the_kept_inputs_meet_both_ends_of_a_handshake() {
    let (bytes_of_b, bytes_of_z) = (
        include_bytes!("../../../../primacy-fuzz/corpus/handshake/a_peer_dials"),
        include_bytes!("../../../../primacy-fuzz/corpus/handshake/not_a_voter"),
    );
    let (older, newer, without) = (
        include_bytes!("../../../../primacy-fuzz/corpus/handshake/a_voter_with_an_older_set_dials"),
        include_bytes!("../../../../primacy-fuzz/corpus/handshake/a_stranger_with_a_newer_set_dials"),
        include_bytes!(
            "../../../../primacy-fuzz/corpus/handshake/a_stranger_whose_newer_set_is_without_this_node"
        ),
    );
    let peer = |bytes: &[u8]| {
        let input = PeerInput { disk_is_known: false, keeps: bytes[0] & 4 != 0, bytes: &bytes[1..] };
        let [Some(Frame::Hello(hello)), Some(Frame::Ready)] = &input.frames(2)[..] else {
            panic!("no handshake")
        };
        input.agrees(hello)
    };
    assert!(peer(bytes_of_b) && !peer(bytes_of_z));
    assert!(peer(older) && peer(newer) && peer(without));
}

/// The bytes that the other side sends to `a`, whose peers are `b` and `c`.
struct PeerInput<'a> {
    disk_is_known: bool,
    keeps: bool,
    bytes: &'a [u8],
}

impl PeerInput<'_> {
    fn me(&self) -> Hello {
        let voters = ["a", "b", "c"];
        if self.keeps { keeper("a", 4, &voters) } else { hello("a", &voters) }
    }

    fn known_disk(&self) -> Option<(NodeId, DiskId)> {
        self.disk_is_known.then(|| (node("b"), hello("b", &[]).disk))
    }

    fn by_one_that_dials(&self, runtime: &Runtime) {
        let frames = self.frames(2);
        let came = match frames.as_slice() {
            [Some(Frame::Hello(hello)), ..] => Some(hello),
            _ => None,
        };
        let welcome = came.filter(|hello| self.agrees(hello));
        let is_peer = welcome.filter(|_| matches!(frames.get(1), Some(Some(Frame::Ready))));
        let (connected, said) = self.talk(runtime, async |shared, tcp| {
            let pending = shared.enter(&tcp);
            let address = SocketAddr::from(([127, 0, 0, 1], 1));
            shake_hands(shared, &tcp, address, &pending).await.ok().map(|(_, caller)| caller.hello)
        });
        assert_eq!(connected.as_ref(), is_peer);
        // TLS is recognised before anything is decoded as a frame.
        let is_tls = self.bytes.first() == Some(&0x16);
        match (came, welcome) {
            (_, Some(_)) => assert_eq!(said, [Frame::Welcome(self.me())]),
            (Some(_), None) => assert!(matches!(said.as_slice(), [Frame::Refused(_)]), "{said:?}"),
            (None, None) if is_tls || self.is_of_other_versions() => {
                assert!(matches!(said.as_slice(), [Frame::Refused(_)]), "{said:?}")
            }
            (None, None) => assert_eq!(said, []),
        }
    }

    fn by_one_that_answers(&self, runtime: &Runtime) {
        let frames = self.frames(1);
        let came = match frames.as_slice() {
            [Some(Frame::Welcome(hello)), ..] => Some(hello),
            _ => None,
        };
        let is_peer = came.filter(|hello| self.agrees(hello) && hello.identity.node == node("b"));
        let (connected, said) = self.talk(runtime, async |shared, tcp| {
            let link = OutboundPeer::new(node("b"), "127.0.0.1:1".to_owned());
            introduce(shared, &link, tcp, None).await.ok().map(|(_, theirs)| theirs)
        });
        assert_eq!(connected.as_ref(), is_peer);
        match (said.as_slice(), came.is_some(), is_peer.is_some()) {
            ([Frame::Hello(hello), Frame::Ready], true, true)
            | ([Frame::Hello(hello), Frame::Refused(_)], true, false)
            | ([Frame::Hello(hello)], false, false) => {
                assert_eq!(*hello, Hello { known_disk: self.known_disk(), ..self.me() });
            }
            said => panic!("{said:?}"),
        }
    }

    /// The frames that a correct node decodes from the bytes; `None` for an invalid frame.
    fn frames(&self, count: usize) -> Vec<Option<Frame>> {
        let mut deframer = Deframer::default();
        deframer.push(self.bytes);
        let mut frames = Vec::new();
        while let (true, Ok(Some(frame))) = (frames.len() < count, deframer.next_frame()) {
            frames.push(decode(frame).ok().map(|(_, frame)| frame));
        }
        frames
    }

    /// True if only the sender and the versions of the first frame can be read, and `a` speaks none of these.
    fn is_of_other_versions(&self) -> bool {
        let mut deframer = Deframer::default();
        deframer.push(self.bytes);
        let Ok(Some(frame)) = deframer.next_frame() else { return false };
        matches!(decode(frame), Err(DecodeError::OtherVersion { .. }))
    }

    /// True if `a` must accept this hello. The rule is spelled out here, because [`judge`] is under test.
    ///
    /// [`judge`]: crate::handshake::judge
    fn agrees(&self, theirs: &Hello) -> bool {
        let (mine, it) = (self.me(), theirs.identity.node);
        let names: Vec<NodeId> = theirs.voters.iter().collect();
        let votes = [node("b"), node("c")].contains(&it);
        let voters_fit = match theirs.voters_number.cmp(&mine.voters_number) {
            Ordering::Equal => votes && names == [node("a"), node("b"), node("c")],
            Ordering::Less => votes,
            Ordering::Greater => votes || it != node("a") && names.contains(&it),
        };
        (theirs.versions.lowest..=theirs.versions.highest).contains(&PROTOCOL_VERSION)
            && theirs.cluster == "test"
            && theirs.election == "main"
            && voters_fit
            && theirs.safety == Safety::Lease
            && theirs.kind == ElectionKind::default()
            && (theirs.split_brain, theirs.store, theirs.metadata) == (None, None, mine.metadata)
            && (it != node("b") || !self.disk_is_known || theirs.disk == hello("b", &[]).disk)
            && matches!(theirs.role, Role::Node | Role::GuardianOf)
    }

    /// Sends all bytes to `a` at once. Returns the node with which `a` is connected afterwards, and its frames.
    fn talk(
        &self,
        runtime: &Runtime,
        handshake: impl AsyncFnOnce(&Shared, Rc<TcpStream>) -> Option<Hello>,
    ) -> (Option<Hello>, Vec<Frame>) {
        let mut config = config(self.me(), &[]);
        if self.disk_is_known {
            config.peer_disks.insert(node("b"), PeerDisk::first(hello("b", &[]).disk));
        }
        let (inbox, _arrivals) = mpsc::channel(1);
        let shared = Shared::new(config, BTreeMap::new(), inbox).unwrap();
        // Both ends are in this process; TCP would use up ports, of which a fuzzer needs thousands per second.
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(self.bytes).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        ours.set_nonblocking(true).unwrap();
        let connected = runtime.block_on(async {
            let ours = std::net::TcpStream::from(OwnedFd::from(ours));
            let tcp = Rc::new(TcpStream::from_std(ours).unwrap());
            let done = tokio::time::timeout(BOUND, handshake(&shared, tcp));
            done.await.expect("it waits, though nothing more will be said")
        });
        drop(shared);
        let mut said = Vec::new();
        match theirs.read_to_end(&mut said) {
            // `a` has closed the connection with unread bytes.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            read => drop(read.unwrap()),
        }
        let mut deframer = Deframer::default();
        deframer.push(&said);
        let mut frames = Vec::new();
        while let Some(frame) = deframer.next_frame().unwrap() {
            let (election, frame) = decode(frame).unwrap();
            assert_eq!(election, "main");
            frames.push(frame);
        }
        (connected, frames)
    }
}
