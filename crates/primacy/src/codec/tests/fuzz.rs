//! Properties of any received bytes, and of any frame that is sent.

use primacy_fuzz::Draw;

use super::*;

#[test]
fn frames() {
    primacy_fuzz::hold("frames", |bytes| {
        one_frame(bytes);
        for piece in [1, 7, bytes.len().max(1)] {
            stream_of_frames(bytes, piece);
        }
        drawn_frame(&mut Draw::new(bytes));
    });
}

/// Bytes that decode as a frame can be encoded again, and decode to the same frame.
fn one_frame(bytes: &[u8]) {
    let Ok((election, frame)) = decode(bytes) else { return };
    let again = match said(&election, &frame) {
        Ok(again) => again,
        // A refusal's text grows when characters that could move a cursor are replaced. No other frame grows, and a
        // received refusal is not sent again.
        Err(TooLong(_)) if matches!(frame, Frame::Refused(_)) => return,
        Err(TooLong(length)) => panic!("{} bytes become {length}: {frame:?}", bytes.len()),
    };
    if let Frame::Refused(Refused { text, .. }) = &frame {
        assert!(text.chars().count() <= REFUSAL_TEXT_MAX && !text.contains(char::is_control));
    }
    if let Frame::Hello(hello) | Frame::Welcome(hello) = &frame {
        assert_eq!(hello.election, election);
        let names: Vec<NodeId> = hello.voters.iter().collect();
        assert!(names.is_sorted_by(|name, next| name < next), "voters are a set: {names:?}");
    }
    assert_eq!(decode(&again).unwrap(), (election.clone(), frame.clone()));
    assert_eq!(said(&election, &frame).unwrap(), again, "equal frames have equal bytes");
}

/// Encodes a frame without its length prefix.
fn said(election: &str, frame: &Frame) -> Result<Vec<u8>, TooLong> {
    encode(election, frame).map(|mut bytes| bytes.split_off(PREFIX_LENGTH))
}

/// A stream is split by its length prefixes, whatever pieces it arrives in, and uses no more memory than the received
/// bytes.
fn stream_of_frames(bytes: &[u8], piece: usize) {
    let (mut expected, mut rest) = (Vec::new(), bytes);
    let mut broken = false;
    while let Some((prefix, body)) = rest.split_first_chunk::<PREFIX_LENGTH>() {
        let length = usize::try_from(u32::from_be_bytes(*prefix)).unwrap();
        broken = length > FRAME_LENGTH_MAX;
        let Some(frame) = body.get(..length).filter(|_| !broken) else { break };
        expected.push(frame);
        rest = &body[length..];
    }
    let (mut deframer, mut found, mut pushed) = (Deframer::default(), 0, 0);
    let mut too_long = false;
    for part in bytes.chunks(piece) {
        deframer.push(part);
        pushed += part.len();
        assert!(deframer.bytes.len() <= pushed && deframer.bytes.capacity() <= 2 * pushed.max(64));
        loop {
            match deframer.next_frame() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    assert_eq!(Some(&frame), expected.get(found));
                    found += 1;
                }
                Err(TooLong(length)) => {
                    assert!(length > FRAME_LENGTH_MAX);
                    too_long = true;
                    break;
                }
            }
        }
        if too_long {
            break;
        }
    }
    assert_eq!((found, too_long), (expected.len(), broken));
}

/// Every frame that this node sends decodes to the same frame.
fn drawn_frame(draw: &mut Draw<'_>) {
    let election = draw.text();
    let frame = match draw.byte() % 9 {
        0 => Frame::Hello(drawn_hello(&election, draw)),
        1 => Frame::Welcome(drawn_hello(&election, draw)),
        2 => Frame::Refused(Refused::new(drawn_kind(draw), &draw.text())),
        3 => Frame::Ready,
        4 => Frame::Died(identity(draw)),
        5 => Frame::DiedHeard(identity(draw)),
        6 => Frame::Readmitted(Term(draw.number())),
        7 => Frame::Lost,
        _ => {
            let (incarnation, term) = (life(draw), Term(draw.number()));
            match draw.byte() % 5 {
                0 => Frame::Message(Word::Quorum(Message { incarnation, term, body: drawn_body(draw) })),
                _ => Frame::Message(others::drawn(draw)),
            }
        }
    };
    let bytes = said(&election, &frame).unwrap();
    assert_eq!(decode(&bytes).unwrap(), (election, frame));
}

fn versions(draw: &mut Draw<'_>) -> Versions {
    let (one, other) = (u32::from(draw.short()), u32::from(draw.short()));
    Versions { lowest: one.min(other), highest: one.max(other) }
}

fn drawn_kind(draw: &mut Draw<'_>) -> RefusalKind {
    let kinds: Vec<RefusalKind> =
        REFUSALS.iter().map(|(kind, _)| *kind).chain([RefusalKind::Unknown]).collect();
    draw.one_of(&kinds)
}

fn drawn_hello(election: &str, draw: &mut Draw<'_>) -> Hello {
    let (metadata, _) = draw.one_of(&DURABILITIES);
    let number = LeaderSequence { term: Term(draw.number()), counter: draw.number() };
    Hello {
        versions: versions(draw),
        cluster: draw.text(),
        election: election.to_owned(),
        identity: identity(draw),
        role: draw.one_of(&[Role::Node, Role::GuardianOf]),
        disk: DiskId(std::array::from_fn(|_| draw.byte())),
        voters: (0..draw.byte() % 9).map(|_| name(draw)).collect(),
        safety: draw.one_of(&[Safety::Lease, Safety::Fenced]),
        priority: u32::from(draw.short()),
        witness: draw.one_of(&[false, true]),
        kind: ElectionKind {
            algorithm: draw.one_of(Algorithm::ALL),
            confirmation: draw.one_of(&CONFIRMATIONS).0,
        },
        split_brain: draw.one_of(&[
            None,
            Some(Policy::KeepMajority),
            Some(Policy::StaticQuorum(3)),
            Some(Policy::KeepOldest),
            Some(Policy::Lease),
            Some(Policy::Available),
        ]),
        store: draw.one_of(&[None, Some(StoreId(7))]),
        known_disk: (draw.byte() % 2 == 1).then(|| (name(draw), DiskId([7; 16]))),
        metadata,
        voters_number: metadata.map_or(LeaderSequence::NONE, |_| number),
    }
}

fn drawn_body(draw: &mut Draw<'_>) -> Body {
    let (round, kind) = (Round(draw.number()), draw.byte() % 7);
    let resignation = |draw: &mut Draw<'_>| {
        (draw.byte() % 2 == 1).then(|| Resignation { leader: identity(draw), term: Term(draw.number()) })
    };
    match kind {
        0 => Body::PreVote { round, resignation: resignation(draw) },
        1 => Body::Vote { round, resignation: resignation(draw) },
        2 => Body::PreVoteReply { round, to: life(draw), answer: drawn_answer(draw) },
        3 => Body::VoteReply { round, to: life(draw), answer: drawn_answer(draw) },
        4 => Body::Heartbeat { round },
        5 => Body::HeartbeatReply { round, to: life(draw), promise: Duration::from_nanos(draw.number()) },
        _ => Body::Resigned { successor: (draw.byte() % 2 == 1).then(|| name(draw)) },
    }
}

fn drawn_answer(draw: &mut Draw<'_>) -> Answer {
    match draw.byte() % 6 {
        0 => Answer::Yes,
        1 => Answer::No(No::Term),
        2 => Answer::No(No::HearsLeader(name(draw))),
        3 => Answer::No(No::Promised { left: Duration::from_nanos(draw.number()) }),
        4 => Answer::No(No::JustStarted { left: Duration::from_nanos(draw.number()) }),
        _ => Answer::No(No::DiskLost),
    }
}

pub(super) fn identity(draw: &mut Draw<'_>) -> Identity {
    Identity::new(name(draw), life(draw))
}

pub(super) fn life(draw: &mut Draw<'_>) -> Incarnation {
    Incarnation { count: draw.number(), nonce: draw.number() }
}

/// Any valid node name.
pub(super) fn name(draw: &mut Draw<'_>) -> NodeId {
    const ALLOWED: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:";
    let letters = draw.bytes().iter().take(NodeId::LENGTH_MAX);
    let name: String = letters.map(|byte| char::from(ALLOWED[usize::from(*byte) % ALLOWED.len()])).collect();
    NodeId::new(if name.is_empty() { "a" } else { &name }).unwrap()
}
