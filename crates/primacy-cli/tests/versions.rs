//! `primacy node` with files of another version on its disk, and with peers of another version: the error is clear and
//! Primacy's own, and no data is lost.

#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::path::{Path, PathBuf};

use primacy_testbed::keepers::Keepers;
use primacy_testbed::segment::{PAGE, blocks, crc32};
use primacy_testbed::{Node, PATIENCE, Place, get, peers, stderr, stdout, strings, wait_until};
use rustix::process::Signal;
use serde_json::Value;

/// Where both have their version.
const VERSION: Range<usize> = 8..12;

/// Where both have the checksum of the rest.
const CHECKSUM: Range<usize> = 12..16;
/// The length of a sector of the state file.
const SECTOR: usize = 512;

/// The fields of a version 9 hello that every version has: the name of the election, the newest version, the
/// sender, and the oldest version.
const HELLO_OF_VERSION_9: &[u8] =
    b"\0\0\0\x1c\x0a\x01e\x12\x17\x08\x09\x1a\x10\x0a\x01b\x12\x0b\x08\x01\x11\0\0\0\0\0\0\0\x62\x90\x01\x08";

/// The same of a node that is older than all that this one speaks with.
const HELLO_OF_VERSION_0: &[u8] =
    b"\0\0\0\x1c\x0a\x01e\x12\x17\x08\x00\x1a\x10\x0a\x01b\x12\x0b\x08\x01\x11\0\0\0\0\0\0\0\x62\x90\x01\x00";

/// A node that keeps metadata by itself.
struct Keeper {
    place: Place,
    args: Vec<String>,
}

impl Keeper {
    fn new(test: &str) -> Self {
        let place = Place::new(test);
        let (peers, dir) = (peers(&["a"]), place.text("a"));
        let args =
            ["node", "--json", "--election", "e", "--node", "a", "--peers", &peers, "--state-dir", &dir];
        let args = [&args[..], &["--metadata", "fsync"]].concat();
        Self { args: strings(&args), place }
    }

    /// Has it lead, runs the verb `args` on it, and ends it.
    fn live(&self, args: &[&str]) -> Value {
        let mut node = Node::start(&self.place, "a", &self.args);
        node.told.wait_for_event("elected");
        let dir = self.place.text("a");
        let target = ["--election", "e", "--state-dir", &dir, "--json"];
        let output = self.place.output(&[&["partitions"], args, &target].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        node.signal(Signal::TERM);
        assert_eq!(node.wait().code(), Some(143));
        serde_json::from_str(&stdout(&output)).unwrap()
    }

    fn state(&self) -> PathBuf {
        self.place.path("a").join("e@a.state")
    }

    fn log(&self, file: &str) -> PathBuf {
        self.place.path("a").join("e@a.log").join(file)
    }

    /// With these bytes in this file it does not start, reports all of this, and leaves them as they are.
    fn refuses(&self, file: &Path, bytes: &[u8], says: &[&str]) {
        fs::write(file, bytes).unwrap();
        let mut node = Node::start(&self.place, "a", &self.args);
        let status = node.wait();
        assert_eq!(status.code(), Some(74), "{}: {}", file.display(), node.history());
        // The last lines may be read only after its end.
        for text in says {
            wait_until(&format!("{text:?} in what it says"), || node.history().contains(text));
        }
        assert!(!node.history().contains("panicked"), "{}", node.history());
        assert!(fs::read(file).unwrap() == bytes, "{} was left as it is", file.display());
    }

    /// The group that was made before is there.
    fn has_lost_nothing(&self) {
        let shown = self.live(&["show"]);
        assert_eq!(shown["groups"][0]["group"], "g", "{shown}");
    }
}

/// The slot of a state file with another version, and with the checksum that its first sector then has.
fn slot_of_version(slot: &[u8], version: u32) -> Vec<u8> {
    let mut slot = slot.to_vec();
    slot[VERSION].copy_from_slice(&version.to_be_bytes());
    let sum = crc32(&[&[0; 8], &slot[..CHECKSUM.start], &slot[CHECKSUM.end..SECTOR]]);
    slot[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
    slot
}

/// The page with another version, and with the checksum that it then has. Its last sector is not part of that.
fn of_version(page: &[u8], version: u32) -> Vec<u8> {
    let mut page = page.to_vec();
    page[VERSION].copy_from_slice(&version.to_be_bytes());
    let sum = crc32(&[&page[..CHECKSUM.start], &page[CHECKSUM.end..PAGE - SECTOR]]);
    page[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
    page
}

/// A segment in which the first request is in the format 2, in a block that is whole.
fn with_a_request_of_format_2(segment: &[u8]) -> Vec<u8> {
    let mut bytes = segment.to_vec();
    // The tag of a payload, its length, the format, and the name of the client with its length.
    let is_request = |five: &[u8]| five[0] == 0x2a && five[2..] == [1, 1, b'a'];
    for block in blocks(segment) {
        let mut content = primacy_testbed::segment::content(segment, &block);
        if let Some(found) = content.windows(5).position(is_request) {
            content[found + 2] = 2;
            let newer = primacy_testbed::segment::block(segment, block.start, &content);
            bytes[block].copy_from_slice(&newer);
            return bytes;
        }
    }
    panic!("there is no request in the segment");
}

#[test]
fn what_a_newer_version_has_written_is_refused_and_left_as_it_is() {
    let keeper = Keeper::new("versions-disk");
    keeper.live(&["create", "g", "3"]);

    let state = fs::read(keeper.state()).unwrap();
    let newer = [slot_of_version(&state[..PAGE], 3), state[PAGE..].to_vec()].concat();
    keeper.refuses(
        &keeper.state(),
        &newer,
        &["e@a.state", "its version is 3, this one reads up to 2", "start the newer one"],
    );
    fs::write(keeper.state(), state).unwrap();
    keeper.has_lost_nothing();

    let segment = keeper.log("0000000000000001.segment");
    let written = fs::read(&segment).unwrap();
    let newer = [of_version(&written[..PAGE], 2), written[PAGE..].to_vec()].concat();
    let says = ["its version is 2, this one reads up to 1", "start the newer one"];
    keeper.refuses(&segment, &newer, &[&["0000000000000001.segment"], &says[..]].concat());

    let of_format_2 = with_a_request_of_format_2(&written);
    let unknown =
        ["the record (", "cannot be read: the format 2 is not known", "start the newer one", "left as it is"];
    keeper.refuses(&segment, &of_format_2, &unknown);
    fs::write(&segment, written).unwrap();

    let snapshot = keeper.log("snapshot");
    let newer = of_version(&[&b"PRIMSNP\x1a"[..], &[0; PAGE - 8]].concat(), 2);
    keeper.refuses(&snapshot, &newer, &[&["snapshot"], &says[..]].concat());
    fs::remove_file(&snapshot).unwrap();
    keeper.has_lost_nothing();
}

/// Returns the answer to these bytes, up to the end of the connection.
fn answer(address: &str, said: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(said).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the number of handshakes that a node has refused because they speak no version that it speaks.
fn refused(metrics: &str) -> u64 {
    let (_, figures) = get(metrics, "GET", "/metrics");
    let counted = |line: &&str| {
        line.starts_with("primacy_handshakes_refused_total") && line.contains("protocol_version")
    };
    let count = figures.lines().find(counted).and_then(|line| line.rsplit_once(' '));
    count.map_or(0, |(_, count)| count.parse().unwrap())
}

#[tokio::test]
async fn a_node_of_another_version_is_refused_and_that_is_to_be_seen_and_the_others_go_on() {
    let mut keepers = Keepers::reserve("versions-peer", &["a", "b", "c"]);
    for name in ["a", "c"] {
        keepers.launch(name, &["--metrics", "0"]);
    }
    let serving = keepers.node("a").told.wait_for_event("serving");
    let metrics = serving["metrics"].as_str().unwrap();
    keepers.write("c", "before").await;

    let mut written = BTreeSet::from(["before".to_owned()]);
    for (hello, speaks, older, after) in [
        (HELLO_OF_VERSION_9, "versions 8 to 9", "a", "after one that is newer"),
        (HELLO_OF_VERSION_0, "version 0", "b", "after one that is older"),
    ] {
        let text = format!(
            "b speaks {speaks} of the protocol, a speaks version 1, and they have none in common; upgrade {older}, one version \
             after the other"
        );
        let refused_before = refused(metrics);
        let told = answer(keepers.address("a"), hello);
        assert!(told.contains(&format!("a refuses b: {text}")), "{told}");

        assert_eq!(refused(metrics), refused_before + 1, "it is counted");
        let who = keepers.who("a");
        let others = who["peers"]["others"].as_array().unwrap();
        let of = |name: &str| others.iter().find(|other| other["node"] == name).unwrap();
        assert_eq!(of("b")["refusal"]["kind"], "protocol_version", "{who}");
        assert!(of("b")["refusal"]["text"].as_str().unwrap().contains(&text), "{who}");
        assert_eq!((&of("c")["version"], &of("c")["refusal"]), (&1.into(), &Value::Null), "{who}");
        assert_eq!(who["peers"]["refused"]["protocol_version"], refused_before + 1, "{who}");

        // Both nodes are needed for what is written now, and both have all of it.
        keepers.write("a", after).await;
        written.insert(after.to_owned());
        for name in ["a", "c"] {
            assert_eq!(keepers.keys(name).await, written);
        }
    }
}
