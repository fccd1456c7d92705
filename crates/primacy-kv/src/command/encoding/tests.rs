use primacy_core::id::{Incarnation, NodeId};
use primacy_core::rng::Rng;
use primacy_core::time::Duration;

use super::*;
use crate::arbitrary::Arbitrary;
use crate::encoding::{number_length, put_number};
use crate::partitions::{Command as About, GroupName, Ranges};

fn request(command: Command) -> Request {
    let incarnation = Incarnation { count: 300, nonce: 0x0102_0304_0506_0708 };
    let client = Identity { node: NodeId::new("n1").unwrap(), incarnation };
    Request { client, sequence: 5, done_below: 4, command }
}

fn bytes(text: &str) -> Bytes {
    text.as_bytes().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every kind of request, and its bytes forever.
fn golden() -> Vec<(Command, &'static str)> {
    let session = SessionId::new(-2).unwrap();
    let read = Read {
        keys: Keys::Between(bytes("a"), bytes("b")),
        at: Some(Version(9)),
        limit: NonZeroU64::new(7),
        order: Order { key: SortKey::ChangedAt, direction: Direction::Descending },
        made: Bounds { from: Version(1), to: Version(2) },
        changed: Bounds { from: Version(3), to: Version(4) },
        wanted: Wanted::Count,
    };
    let plain = Read::of(Keys::From(bytes("k")));
    let write = Write {
        key: bytes("k"),
        value: Replace::With(bytes("vv")),
        session: Replace::With(Some(session)),
        previous: Previous::Wanted,
    };
    let keep =
        Write { value: Replace::Keep, session: Replace::Keep, previous: Previous::Unwanted, ..write.clone() };
    let free = Write { session: Replace::With(None), ..keep.clone() };
    let delete = Delete { keys: Keys::One(bytes("k")), previous: Previous::Wanted };
    let compared = [
        Compared::Writes(1),
        Compared::MadeAt(2),
        Compared::ChangedAt(-1),
        Compared::Session(-2),
        Compared::Value(bytes("v")),
    ];
    let relations = RELATIONS.into_iter().cycle();
    let comparison = |(compared, relation)| Comparison { keys: Keys::One(bytes("k")), relation, compared };
    let transaction = Transaction {
        comparisons: compared.into_iter().zip(relations).map(comparison).collect(),
        then: vec![Operation::Write(free), Operation::Transaction(Transaction::default())],
        otherwise: vec![Operation::Delete(delete.clone())],
    };
    let operate = Command::Operate;
    let node = NodeId::new("n2").unwrap();
    let group = |name| GroupName::new(name).unwrap();
    let ranges = vec![
        Ranges { group: group("g"), ranges: vec![0..3, 7..8] },
        Ranges { group: group("h"), ranges: std::iter::once(128..129).collect() },
    ];
    let about = Command::Partitions;
    let limits = Limits { quota: 1, history_bytes: 128, history_changes: 3 };
    vec![
        (operate(Operation::Read(Box::new(read))), "01010f030102020161016209070102030 4"),
        (operate(Operation::Read(Box::new(plain))), "01010000000003016b"),
        (operate(Operation::Write(write)), "010207016b02767603"),
        (operate(Operation::Write(keep)), "010200016b"),
        (operate(Operation::Delete(delete)), "01030101016b"),
        (
            operate(Operation::Transaction(transaction)),
            "0104 05 0001016b0102 0101016b0204 0201016b0301 0301016b0403 0001016b050176 \
             02 0202016b00 04000000 01 030101016b",
        ),
        (Command::Compact(Version(128)), "028001"),
        (Command::Begin { session, time_to_live: Duration::from_nanos(5) }, "030305"),
        (Command::End { session }, "0403"),
        (Command::Forget { node }, "05026e32"),
        (Command::Limit(limits), "0601800103"),
        (
            Command::Share(Secret([7; 32])),
            concat!("09", "0707070707070707070707070707070707070707070707070707070707070707"),
        ),
        (Command::Expire { session }, "0703"),
        (about(About::Join { session, time_to_live: Duration::from_nanos(5) }), "08010305"),
        (about(About::Leave { session }), "080203"),
        (
            about(About::Release { session, up_to: 300, ranges }),
            "080303ac02 02 0167 02 0003 0401 0168 01 800101",
        ),
        (about(About::Create { group: group("g"), count: 128 }), "080401678001"),
        (about(About::Drop { group: group("g") }), "08050167"),
        (about(About::Drain { node }), "0806026e32"),
        (about(About::Undrain { node }), "0807026e32"),
        (about(About::Move { group: group("g"), index: 1, node }), "0808016701026e32"),
    ]
}

#[test]
fn requests_are_these_bytes_for_ever() {
    for (command, expected) in golden() {
        let request = request(command);
        let encoded = request.encode();
        let head = "01026e31ac0201020304050607080504";
        assert_eq!(hex(&encoded), format!("{head}{}", expected.replace(' ', "")), "{request:?}");
        assert_eq!(Request::decode(&encoded), Ok(request));
    }
}

#[test]
fn a_request_is_read_as_what_was_written() {
    let mut drawn = Arbitrary { rng: Rng::new(3), version: 300 };
    for _ in 0..20_000 {
        let request = request(drawn.any_command());
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
}

/// Bytes that are taken for a request are one: it is written as the same bytes again. Other bytes are refused, and
/// nothing panics.
#[test]
fn any_bytes_are_a_request_that_is_written_so_or_none() {
    let mut drawn = Arbitrary { rng: Rng::new(4), version: 300 };
    let (mut taken, mut refused) = (0, 0);
    for round in 0..100_000 {
        let mut bytes = request(drawn.any_command()).encode();
        let rng = &mut drawn.rng;
        for _ in 0..=rng.up_to(3) {
            let place = usize::try_from(rng.up_to(bytes.len() as u64 - 1)).unwrap();
            match rng.up_to(5) {
                0 => bytes.truncate(place),
                1 => bytes.insert(place, u8::try_from(rng.up_to(255)).unwrap()),
                2 => bytes[place] ^= 1 << rng.up_to(7),
                3 => bytes[place] = rng.one_of(&[0, 1, 2, 0x7F, 0x80, 0xFF]),
                _ => bytes[place] = u8::try_from(rng.up_to(7)).unwrap(),
            }
            if bytes.is_empty() {
                bytes.push(FORMAT);
            }
        }
        match Request::decode(&bytes) {
            Ok(request) => {
                assert_eq!(request.encode(), bytes, "round {round}");
                taken += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(taken > 10_000 && refused > 10_000, "{taken} {refused}");
}

#[test]
fn bytes_drawn_from_nowhere_do_no_harm() {
    let mut rng = Rng::new(5);
    for _ in 0..100_000 {
        let head = &request(Command::Compact(Version(1))).encode()[..16];
        let tail = (0..rng.up_to(40)).map(|_| u8::try_from(rng.up_to(7)).unwrap());
        let bytes: Vec<u8> = head.iter().copied().chain(tail).collect();
        if let Ok(request) = Request::decode(&bytes) {
            assert_eq!(request.encode(), bytes);
        }
    }
}

#[test]
fn what_is_wrong_is_said() {
    let good = request(Command::Compact(Version(1))).encode();
    let with = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        Request::decode(&bytes).unwrap_err()
    };
    assert_eq!(with(0, 2), DecodeError::Format(2));
    assert_eq!(with(2, b' '), DecodeError::Value("the name of a node"));
    assert_eq!(with(1, 100), DecodeError::Short);
    assert_eq!(with(16, 10), DecodeError::Kind("a command"));
    assert_eq!(Request::decode(&[&good[..], &[0]].concat()), Err(DecodeError::Long));
    assert_eq!(Request::decode(&good[..good.len() - 1]), Err(DecodeError::Short));
    let of = |tail: &[u8]| Request::decode(&[&good[..16], tail].concat()).unwrap_err();
    assert_eq!(of(&[tag::END, 0]), DecodeError::Value("a session"));
    assert_eq!(of(&[tag::COMPACT, 0x80, 0]), DecodeError::Number);
    assert_eq!(of(&[tag::PARTITIONS, 9]), DecodeError::Kind("a command about partitions"));
    assert_eq!(of(&[tag::PARTITIONS, 5, 1, b'/']), DecodeError::Value("the name of a group"));
    assert_eq!(of(&[tag::PARTITIONS, 3, 3, 0, 1, 1, b'g', 1, 1, 0]), DecodeError::Value("a range"));
    let end = [&[tag::COMPACT][..], &[0xFF; 9], &[2]].concat();
    assert_eq!(of(&end), DecodeError::Number, "it has 65 bits");
    // A list that claims to be longer than the bytes that are left takes no room for them.
    let list = [&[tag::OPERATE, tag::TRANSACTION][..], &[0xFF, 0xFF, 0xFF, 0xFF, 0x7F]].concat();
    assert_eq!(of(&list), DecodeError::Short);
}

#[test]
fn transactions_stand_only_so_deep_within_each_other() {
    let nested = |depth: usize| {
        let innermost = Operation::Transaction(Transaction::default());
        let around =
            |within, _| Operation::Transaction(Transaction { then: vec![within], ..Transaction::default() });
        request(Command::Operate((1..depth).fold(innermost, around))).encode()
    };
    assert!(Request::decode(&nested(NESTING_MAX)).is_ok());
    assert_eq!(Request::decode(&nested(NESTING_MAX + 1)), Err(DecodeError::Nesting));
    assert_eq!(Request::decode(&nested(3000)), Err(DecodeError::Nesting), "before the stack ends");
}

#[test]
fn a_number_is_as_long_as_it_says() {
    for shift in 0..64 {
        for number in [1 << shift, (1 << shift) - 1, u64::MAX >> shift] {
            let mut to = Vec::new();
            push_number(&mut to, number);
            assert_eq!(to.len(), number_length(number), "{number}");
            let mut place = vec![0; to.len()];
            put_number(&mut &mut place[..], number);
            assert_eq!(place, to);
            assert_eq!(Reader::new(&to).number(), Ok(number));
            assert_eq!(unsigned(signed(number)), number);
        }
    }
    assert_eq!([0, -1, 1, i64::MIN, i64::MAX].map(unsigned), [0, 1, 2, u64::MAX, u64::MAX - 1]);
}
