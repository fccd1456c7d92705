//! Golden bytes, mixed versions, bytes of unauthenticated clients, and frames in pieces.

mod fuzz;
mod metadata;
mod others;

use primacy_core::Duration;
use primacy_core::election::quorum::{Answer, Body, Message, Refusal as No, Resignation, Round};
use primacy_core::rng::Rng;

use super::*;
use crate::handshake::tests::{hello, keeper, node};

fn incarnation() -> Incarnation {
    Incarnation { count: 7, nonce: 0x0102_0304_0506_0708 }
}

fn message(body: Body) -> Frame {
    Frame::Message(Word::Quorum(Message { incarnation: incarnation(), term: Term(300), body }))
}

/// The golden bytes of a version. They stay for as long as the version is spoken, beside those of a later one.
fn golden_of(version: u32) -> Vec<(Frame, &'static str)> {
    match version {
        1 => golden(),
        _ => panic!("version {version} has no golden bytes"),
    }
}

/// Every kind of frame, with its bytes in version 1 after the length prefix.
fn golden() -> Vec<(Frame, &'static str)> {
    let (round, to) = (Round(5), Incarnation { count: 1, nonce: 2 });
    let resignation = Some(Resignation { leader: Identity::new(node("b"), to), term: Term(4) });
    let reply = |answer| message(Body::VoteReply { round, to, answer });
    let left = Duration::from_nanos(1000);
    let mut frames = vec![
        (Frame::Hello(Hello { priority: 3, witness: true, ..hello("a", &["a", "b"]) }), HELLO),
        (Frame::Welcome(Hello { safety: Safety::Fenced, ..hello("b", &["a", "b"]).of_guardian() }), WELCOME),
        (Frame::Hello(keeper("a", 5, &["a", "b"])), HELLO_OF_A_KEEPER),
        (
            Frame::Hello(Hello { versions: Versions { lowest: 1, highest: 2 }, ..hello("a", &["a", "b"]) }),
            HELLO_OF_TWO_VERSIONS,
        ),
        (
            Frame::Hello(Hello {
                known_disk: Some((node("b"), hello("b", &[]).disk)),
                ..hello("a", &["a", "b"])
            }),
            HELLO_TO_A_NODE_THAT_WAS_MET,
        ),
        (Frame::Refused(Refused { kind: RefusalKind::Voters, text: "no".into() }), REFUSED),
        (Frame::Ready, READY),
        (Frame::Died(Identity::new(node("a"), to)), DIED),
        (Frame::DiedHeard(Identity::new(node("a"), to)), DIED_HEARD),
        (Frame::Readmitted(Term(300)), READMITTED),
        (Frame::Lost, LOST),
        (message(Body::PreVote { round, resignation }), PRE_VOTE),
        (message(Body::PreVoteReply { round, to, answer: Answer::Yes }), PRE_VOTE_REPLY),
        (message(Body::Vote { round, resignation: None }), VOTE),
        (message(Body::Heartbeat { round }), HEARTBEAT),
        (message(Body::HeartbeatReply { round, to, promise: left }), HEARTBEAT_REPLY),
        (message(Body::Resigned { successor: None }), RESIGNED),
        (message(Body::Resigned { successor: Some(node("c")) }), RESIGNED_TO),
    ];
    frames.extend([
        (reply(Answer::Yes), VOTE_YES),
        (reply(Answer::No(No::Term)), VOTE_TERM),
        (reply(Answer::No(No::HearsLeader(node("b")))), VOTE_HEARS),
        (reply(Answer::No(No::Promised { left })), VOTE_PROMISED),
        (reply(Answer::No(No::JustStarted { left })), VOTE_JUST_STARTED),
        (reply(Answer::No(No::DiskLost)), VOTE_FORGOTTEN),
    ]);
    frames.extend(metadata::golden());
    frames.extend(others::golden());
    frames
}

const HELLO: &str = "0a046d61696e124308011204746573741a100a0161120b080111610000000000000020012a1061616161616161616161616161616161317680400d82d740ab3a01613a0162400148035001";
const HELLO_OF_A_KEEPER: &str = "0a046d61696e124908011204746573741a100a0161120b080111610000000000000020012a1061616161616161616161616161616161317680400d82d740ab3a01613a016240018001018a010408051001";
const HELLO_OF_TWO_VERSIONS: &str = "0a046d61696e124208021204746573741a100a0161120b080111610000000000000020012a1061616161616161616161616161616161317680400d82d740ab3a01613a01624001900101";
const HELLO_TO_A_NODE_THAT_WAS_MET: &str = "0a046d61696e125708011204746573741a100a0161120b080111610000000000000020012a1061616161616161616161616161616161317680400d82d740ab3a01613a016240019a01150a0162121062626262626262626262626262626262";
const WELCOME: &str = "0a046d61696e1a3f08011204746573741a100a0162120b080111620000000000000020022a1062626262626262626262626262626262317680400d82d740ab3a01613a01624002";
const REFUSED: &str = "0a046d61696e2206080612026e6f";
const READY: &str = "0a046d61696e2a00";
const DIED: &str = "0a046d61696e3a100a0161120b0801110200000000000000";
const DIED_HEARD: &str = "0a046d61696e42100a0161120b0801110200000000000000";
const READMITTED: &str = "0a046d61696e48ac02";
const LOST: &str = "0a046d61696e5200";
const PRE_VOTE: &str =
    "0a046d61696e322a0a0b080711080706050403020110ac021a18080512140a100a0162120b08011102000000000000001004";
const PRE_VOTE_REPLY: &str =
    "0a046d61696e32230a0b080711080706050403020110ac0222110805120b08011102000000000000001a00";
const VOTE: &str = "0a046d61696e32140a0b080711080706050403020110ac022a020805";
const HEARTBEAT: &str = "0a046d61696e32140a0b080711080706050403020110ac023a020805";
const HEARTBEAT_REPLY: &str =
    "0a046d61696e32240a0b080711080706050403020110ac0242120805120b080111020000000000000018e807";
const RESIGNED: &str = "0a046d61696e32120a0b080711080706050403020110ac024a00";
const RESIGNED_TO: &str = "0a046d61696e32150a0b080711080706050403020110ac024a030a0163";
const VOTE_YES: &str =
    "0a046d61696e32230a0b080711080706050403020110ac0232110805120b08011102000000000000001a00";
const VOTE_TERM: &str =
    "0a046d61696e32230a0b080711080706050403020110ac0232110805120b08011102000000000000002200";
const VOTE_HEARS: &str =
    "0a046d61696e32240a0b080711080706050403020110ac0232120805120b08011102000000000000002a0162";
const VOTE_PROMISED: &str =
    "0a046d61696e32240a0b080711080706050403020110ac0232120805120b080111020000000000000030e807";
const VOTE_JUST_STARTED: &str =
    "0a046d61696e32240a0b080711080706050403020110ac0232120805120b080111020000000000000038e807";
const VOTE_FORGOTTEN: &str =
    "0a046d61696e32230a0b080711080706050403020110ac0232110805120b08011102000000000000004200";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Encodes a frame without its length prefix.
fn body(frame: &Frame) -> Vec<u8> {
    encode("main", frame).unwrap().split_off(PREFIX_LENGTH)
}

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

#[test]
fn the_bytes_of_every_spoken_version_are_read() {
    for version in SPOKEN.lowest..=SPOKEN.highest {
        for (frame, golden) in golden_of(version) {
            assert_eq!(decode(&bytes(golden)).unwrap(), ("main".to_owned(), frame), "version {version}");
        }
    }
}

#[test]
fn the_bytes_on_the_wire_are_these() {
    for (frame, golden) in golden_of(SPOKEN.highest) {
        assert_eq!(hex(&body(&frame)), golden, "{frame:?}");
    }
    assert_eq!(hex(&encode("e", &Frame::Ready).unwrap()), "000000050a01652a00");
}

#[test]
fn fields_of_a_later_version_are_skipped() {
    for (frame, _) in golden() {
        // Field 500 of the envelope, with the wire type "length-delimited".
        let mut bytes = body(&frame);
        bytes.extend_from_slice(&[0xa2, 0x1f, 3, 1, 2, 3]);
        assert_eq!(decode(&bytes).unwrap().1, frame);
    }
}

#[test]
fn kinds_of_a_later_version_are_told_apart_from_broken_ones() {
    // A frame with the tag 100.
    assert_eq!(decode(&[0xa2, 0x06, 0]), Err(DecodeError::Unknown("the frame")));
    let incarnation = Some(incarnation().into());
    let unknown = wire::Quorum { incarnation, term: 1, body: None };
    let envelope = wire::Envelope { election: String::new(), frame: Some(envelope::Frame::Quorum(unknown)) };
    assert_eq!(decode(&envelope.encode_to_vec()), Err(DecodeError::Unknown("the message")));
    assert!(matches!(decode(&[0xff]), Err(DecodeError::Malformed(_))));
}

/// Decodes a hello after `change`.
fn decode_hello(change: impl FnOnce(&mut wire::Hello)) -> Result<(String, Frame), DecodeError> {
    let mut said = wire::Hello::from(&hello("a", &["a", "b"]));
    change(&mut said);
    let envelope = wire::Envelope { election: "main".into(), frame: Some(envelope::Frame::Hello(said)) };
    decode(&envelope.encode_to_vec())
}

#[test]
fn a_hello_with_any_wrong_field_is_none() {
    assert!(decode_hello(|_| {}).is_ok());
    let invalid = |field| Err(DecodeError::Invalid(field));
    assert_eq!(decode_hello(|said| said.role = 0), invalid("hello.role"));
    assert_eq!(decode_hello(|said| said.safety = 3), invalid("hello.safety"));
    assert_eq!(decode_hello(|said| said.disk.truncate(15)), invalid("hello.disk"));
    assert_eq!(decode_hello(|said| said.voters_hash ^= 1), invalid("hello.voters_hash"));
    assert_eq!(decode_hello(|said| said.voters.push("c d".into())), invalid("hello.voters"));
    let number = Some(LeaderSequence::first(Term(1)).into());
    assert_eq!(decode_hello(|said| said.voters_number = number), invalid("hello.voters_number"));
    assert_eq!(decode_hello(|said| said.identity = None), Err(DecodeError::Missing("hello.identity")));
    let nameless = wire::Identity { node: String::new(), incarnation: Some(incarnation().into()) };
    assert_eq!(decode_hello(|said| said.identity = Some(nameless)), invalid("identity.node"));
    assert_eq!(decode_hello(|said| said.oldest_version = Some(2)), invalid("hello.oldest_version"));
}

#[test]
fn of_versions_that_are_not_spoken_nothing_is_known_but_who_speaks_them() {
    let of = |newest: u32, oldest: Option<u32>| {
        decode_hello(|said| (said.newest_version, said.oldest_version, said.role) = (newest, oldest, 9))
    };
    let other = |lowest, highest| {
        Err(DecodeError::OtherVersion { node: node("a"), versions: Versions { lowest, highest } })
    };
    assert_eq!((of(2, None), of(7, Some(3)), of(0, None)), (other(2, 2), other(3, 7), other(0, 0)));
    // To a node that speaks version 1 too, the sender must use fields that version 1 knows.
    assert_eq!(of(2, Some(1)), Err(DecodeError::Invalid("hello.role")));
    // If all of the hello can be read, the handshake judges it.
    assert!(decode_hello(|said| said.newest_version = 2).is_ok());
}

#[test]
fn a_refusals_text_cannot_act_on_a_terminal() {
    let said = Frame::Refused(Refused { kind: RefusalKind::Unknown, text: "\u{1b}[2J".repeat(1000) });
    let Ok((_, Frame::Refused(heard))) = decode(&body(&said)) else { panic!("a refusal") };
    assert_eq!(heard.text.chars().count(), REFUSAL_TEXT_MAX);
    assert!(heard.text.starts_with("\u{fffd}[2J"));
    for (kind, _) in REFUSALS {
        let said = Frame::Refused(Refused { kind, text: String::new() });
        assert_eq!(decode(&body(&said)).unwrap().1, said);
    }
}

#[test]
fn random_bytes_cannot_panic_us() {
    let mut random = Rng::new(2);
    let frames: Vec<Vec<u8>> = golden().iter().map(|(frame, _)| body(frame)).collect();
    for round in 0..50_000 {
        let mut bytes = frames[round % frames.len()].clone();
        for _ in 0..random.up_to(4) {
            let position = usize::try_from(random.up_to(bytes.len() as u64 - 1)).unwrap();
            bytes[position] = random.next_u64().to_be_bytes()[0];
        }
        bytes.truncate(usize::try_from(random.up_to(bytes.len() as u64 * 4)).unwrap());
        // Bytes that decode as a frame can be encoded again by this version.
        if let Ok((election, frame)) = decode(&bytes) {
            let again = encode(&election, &frame).unwrap().split_off(PREFIX_LENGTH);
            assert_eq!(decode(&again).unwrap(), (election, frame));
        }
    }
}

#[test]
fn frames_come_in_any_pieces() {
    let frames: Vec<Vec<u8>> = golden().iter().map(|(frame, _)| encode("main", frame).unwrap()).collect();
    let stream = frames.concat();
    for piece in [1, 3, 7, 1000, stream.len()] {
        let (mut deframer, mut found) = (Deframer::default(), Vec::new());
        for bytes in stream.chunks(piece) {
            deframer.push(bytes);
            while let Some(frame) = deframer.next_frame().unwrap() {
                found.push(frame.to_vec());
            }
        }
        assert!(frames.iter().map(|frame| &frame[PREFIX_LENGTH..]).eq(found.iter().map(Vec::as_slice)));
    }
}

#[test]
fn a_length_above_the_limit_is_refused_before_memory_is_taken() {
    let mut deframer = Deframer::default();
    deframer.push(&u32::MAX.to_be_bytes());
    assert_eq!(deframer.next_frame(), Err(TooLong(0xffff_ffff)));
    let mut deframer = Deframer::default();
    deframer.push(&u32::try_from(FRAME_LENGTH_MAX).unwrap().to_be_bytes());
    assert_eq!(deframer.next_frame(), Ok(None));
    assert!(deframer.bytes.capacity() < 1024);
    let long = Hello { cluster: "x".repeat(FRAME_LENGTH_MAX), ..hello("a", &["a"]) };
    assert!(encode("main", &Frame::Hello(long)).is_err());
}
