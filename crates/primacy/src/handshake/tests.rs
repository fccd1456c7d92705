//! Refusals: their reasons and their texts.

use primacy_core::Term;

use super::*;
use crate::versions::SPOKEN;

pub(crate) fn node(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

pub(crate) fn hello(name: &str, voters: &[&str]) -> Hello {
    let byte = name.as_bytes()[0];
    Hello {
        versions: SPOKEN,
        cluster: "test".into(),
        election: "main".into(),
        identity: Identity::new(node(name), Incarnation { count: 1, nonce: u64::from(byte) }),
        role: Role::Node,
        disk: DiskId([byte; DiskId::LENGTH]),
        known_disk: None,
        voters: voters.iter().map(|name| node(name)).collect(),
        voters_number: LeaderSequence::NONE,
        safety: Safety::Lease,
        priority: 0,
        witness: false,
        kind: ElectionKind::default(),
        split_brain: None,
        metadata: None,
        store: None,
    }
}

/// The hello of a node with metadata, whose voters are from the record `(term, 1)`, or from its configuration if `term`
/// is 0.
pub(crate) fn keeper(name: &str, term: u64, voters: &[&str]) -> Hello {
    let voters_number = LeaderSequence { term: Term(term), counter: u64::from(term > 0) };
    Hello { voters_number, metadata: Some(Durability::Fsync), ..hello(name, voters) }
}

/// The knowledge of a node that has recorded these disks and has no peers.
fn known(disks: &BTreeMap<NodeId, PeerDisk>) -> Known<'_> {
    Known { disks, peers: const { &BTreeSet::new() } }
}

/// The kind and the text of the refusal of an acceptable peer after `change`.
fn refused(change: impl FnOnce(&mut Hello)) -> (RefusalKind, String) {
    let mine = hello("a", &["a", "b", "c"]);
    let mut theirs = hello("b", &["c", "b", "a"]);
    change(&mut theirs);
    let recorded = BTreeMap::from([(node("b"), PeerDisk::first(DiskId([b'b'; DiskId::LENGTH])))]);
    let refusal = judge(&mine, known(&recorded), &theirs).unwrap_err();
    (refusal.kind(), refusal.to_string())
}

#[test]
fn nodes_that_agree_talk_in_any_role_and_order_of_voters() {
    let (a, b) = (hello("a", &["a", "b"]), hello("b", &["b", "a", "b"]));
    assert_eq!(judge(&a, known(&BTreeMap::new()), &b), Ok(()));
    let disks = BTreeMap::from([(node("b"), PeerDisk::first(b.disk))]);
    assert_eq!(judge(&a, known(&disks), &b.of_guardian()), Ok(()));
    assert_eq!(judge_answer(&b, known(&BTreeMap::new()), node("a"), &a), Ok(()));
    // Nodes may differ in priority and in the role of a witness.
    let witness = Hello { witness: true, priority: 9, ..b.clone() };
    assert_eq!(judge(&a, known(&BTreeMap::new()), &witness), Ok(()));
    let newer = Hello { versions: Versions { lowest: 1, highest: 2 }, ..b };
    assert_eq!(judge(&a, known(&BTreeMap::new()), &newer), Ok(()));
}

#[test]
fn a_refusal_names_both_sides_values() {
    let cases: [(RefusalKind, (RefusalKind, String), &[&str]); 13] = [
        (
            RefusalKind::ProtocolVersion,
            refused(|b| b.versions = Versions { lowest: 2, highest: 3 }),
            &["b speaks versions 2 to 3", "a speaks version 1", "upgrade a"],
        ),
        (
            RefusalKind::ProtocolVersion,
            refused(|b| b.versions = Versions { lowest: 0, highest: 0 }),
            &["b speaks version 0", "a speaks version 1", "upgrade b"],
        ),
        (RefusalKind::Cluster, refused(|b| b.cluster = "prod\n".into()), &[r#""test""#, r#""prod\n""#]),
        (RefusalKind::Election, refused(|b| b.election = "x".into()), &[r#""main""#, r#""x""#]),
        (RefusalKind::MyOwnName, refused(|b| b.identity.node = node("a")), &["1.0000000000000061"]),
        (
            RefusalKind::Voters,
            refused(|b| b.voters = [node("a"), node("b")].into_iter().collect()),
            &["{a, b, c}", "{a, b}"],
        ),
        (
            RefusalKind::SplitBrain,
            refused(|b| b.split_brain = Some(Policy::StaticQuorum(2))),
            &["static-quorum:2", "nothing"],
        ),
        (
            RefusalKind::Metadata,
            refused(|b| b.metadata = Some(Durability::Memory)),
            &["metadata in memory", "no metadata"],
        ),
        (RefusalKind::Store, refused(|b| b.store = Some(StoreId(10))), &["000000000000000a", "of none"]),
        (RefusalKind::NotAVoter, refused(|b| b.identity.node = node("z")), &["z", "{a, b, c}"]),
        (
            RefusalKind::Algorithm,
            refused(|b| {
                b.kind = ElectionKind { algorithm: Algorithm::Ring, confirmation: Some(Confirmation::Store) }
            }),
            &["by quorum;", "by ring, confirmed by a store"],
        ),
        (RefusalKind::Safety, refused(|b| b.safety = Safety::Fenced), &["= lease", "= fenced"]),
        (
            RefusalKind::Disk,
            refused(|b| b.disk = DiskId([7; DiskId::LENGTH])),
            &["0707070707070707", "6262626262626262", "readmit"],
        ),
    ];
    for (expected, (kind, text), parts) in cases {
        assert_eq!(kind, expected, "{text}");
        assert!(text.starts_with("a refuses "), "{text}");
        for part in parts {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
}

#[test]
fn where_metadata_is_kept_the_newer_voters_are_no_reason_to_refuse() {
    let verdict = |mine: &Hello, peers: &[&str], theirs: &Hello| {
        let (disks, peers) = (BTreeMap::new(), peers.iter().map(|name| node(name)).collect());
        let judged = judge(mine, Known { disks: &disks, peers: &peers }, theirs);
        judged.map_err(|refusal| (refusal.kind(), refusal.to_string()))
    };
    let refused = |mine: &Hello, peers: &[&str], theirs: &Hello, kind: RefusalKind, part: &str| {
        let (found, text) = verdict(mine, peers, theirs).unwrap_err();
        assert!(found == kind && text.contains(part), "{text}");
    };
    let (old, new) = (keeper("a", 0, &["a", "b", "c"]), keeper("b", 4, &["a", "b", "d"]));
    assert_eq!((verdict(&old, &[], &new), verdict(&new, &[], &old)), (Ok(()), Ok(())));
    // A node that was removed, with and without knowing it, and a node that was not added yet.
    let (removed, knows) = (keeper("c", 0, &["a", "b", "c"]), keeper("c", 5, &["a", "b", "d"]));
    let stranger = keeper("x", 0, &["a", "b", "d", "x"]);
    for (other, name) in [(&removed, "c"), (&knows, "c"), (&stranger, "x")] {
        let add = format!(
            "of the record (4, 1); stop it, or add it on a node of the cluster: `primacy member add {name}="
        );
        refused(&new, &[], other, RefusalKind::NotAVoter, &add);
        assert_eq!(verdict(&new, &[name], other), Ok(()), "it is being added");
        assert_eq!(verdict(other, &[], &new), Ok(()));
    }
    // A node that was away while all others were replaced learns of it from them, also from a leader that adds it again; but not from a
    // node that is not one of the newer voters itself.
    let away = keeper("c", 1, &["a", "b", "c"]);
    let replaced = keeper("d", 9, &["c", "d", "e"]);
    assert_eq!(verdict(&away, &[], &replaced), Ok(()));
    assert_eq!(verdict(&away, &[], &keeper("d", 9, &["d", "e"])), Ok(()));
    refused(&away, &[], &keeper("d", 9, &["c", "e"]), RefusalKind::NotAVoter, "{a, b, c}");
    // If neither set is newer, they must be equal; without metadata they must always be equal.
    let configured = keeper("b", 0, &["a", "b"]);
    refused(&old, &["b"], &configured, RefusalKind::Voters, "give all nodes the same voters");
    refused(&keeper("a", 4, &["a", "b"]), &[], &new, RefusalKind::Voters, "two clusters");
    let plain = Hello { metadata: None, ..removed };
    refused(
        &hello("a", &["a", "b"]),
        &["c"],
        &hello("c", &["a", "b"]),
        RefusalKind::NotAVoter,
        "all nodes' voters",
    );
    refused(&old, &[], &plain, RefusalKind::Metadata, "no metadata");
}

#[test]
fn a_voter_with_another_disk_is_told_that_before_anything_that_follows_from_it() {
    let mine = keeper("a", 4, &["a", "b"]);
    let disks = BTreeMap::from([(node("b"), PeerDisk::first(DiskId([7; DiskId::LENGTH])))]);
    let kind = |theirs: &Hello| judge(&mine, known(&disks), theirs).map_err(|refusal| refusal.kind());
    assert_eq!(kind(&keeper("b", 4, &["b"])), Err(RefusalKind::Disk), "it has begun anew");
    // Two removed nodes that have lost their disks could elect each other.
    let disks = BTreeMap::from([(node("c"), PeerDisk::first(DiskId([7; DiskId::LENGTH])))]);
    let refusal = judge(&mine, known(&disks), &keeper("c", 0, &["a", "b", "c"])).unwrap_err();
    let text = refusal.to_string();
    assert!(refusal.kind() == RefusalKind::Disk && text.contains("none of the voters any more"), "{text}");
}

#[test]
fn a_wrong_address_is_told_apart() {
    let a = hello("a", &["a", "b", "c"]);
    let itself = judge_answer(&a, known(&BTreeMap::new()), node("b"), &a).unwrap_err();
    assert!(itself.to_string().contains("back to itself"), "{itself}");
    let c = hello("c", &["a", "b", "c"]);
    let other = judge_answer(&a, known(&BTreeMap::new()), node("b"), &c).unwrap_err();
    assert_eq!(other.kind(), RefusalKind::OtherNode);
    assert!(other.to_string().contains("c answers where b should be"), "{other}");
}

#[test]
fn a_disk_id_is_parsed_as_it_is_printed() {
    let disk = DiskId([0x0f, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert_eq!(DiskId::parse(&disk.to_string()), Some(disk));
    for wrong in ["", "0f", "+f0102030405060708090a0b0c0d0e0f", "zz0102030405060708090a0b0c0d0e0f"] {
        assert_eq!(DiskId::parse(wrong), None, "{wrong}");
    }
}

#[test]
fn voter_sets_have_a_stable_number() {
    assert_eq!(Voters::default().hash(), 0xcbf2_9ce4_8422_2325);
    assert_ne!(hello("a", &["ab", "c"]).voters.hash(), hello("a", &["a", "bc"]).voters.hash());
    assert_eq!(hello("a", &["a", "b"]).voters.hash(), hello("a", &["b", "a"]).voters.hash());
}
