//! Requests of a later version in the log: nothing is done about them here, and no node passes over them.

use super::*;
use crate::command::Limits;
use crate::command::REQUEST_FORMAT;
use crate::encoding::DecodeError;
use crate::replication::log::{Record, RecordBody, Snapshot};
use crate::replication::replica::PartOfLog;
use crate::state::FORMAT as SNAPSHOT_FORMAT;

const LATER: u64 = REQUEST_FORMAT as u64 + 1;

/// The first request of a node, as this version writes it.
fn request(index: usize) -> Vec<u8> {
    let command = StateCommand::Limit(Limits::default());
    Request { client: identity(index), sequence: 1, done_below: 1, command }.encode()
}

/// The same in the format of a later version, of which only the head is known.
fn later(index: usize) -> Arc<[u8]> {
    let mut bytes = request(index);
    bytes[0] = REQUEST_FORMAT + 1;
    bytes.extend_from_slice(b"whatever comes");
    bytes.into()
}

fn said(node: &mut Node) -> Vec<Message> {
    let sent = |output| match output {
        Output::Send { message, .. } => Some(message),
        Output::Persist(_) | Output::Event(_) => None,
    };
    core::iter::from_fn(|| node.poll()).filter_map(sent).collect()
}

fn hear(node: &mut Node, now: Instant, from: usize, message: Message) -> Vec<Message> {
    node.handle(now, Input::Message { from: Endpoint::Node(identity(from).node), message });
    said(node)
}

#[test]
fn a_request_that_the_leader_cannot_read_is_refused_to_its_sender_and_never_written() {
    let (mut cluster, leader) = Cluster::start();
    let (now, sender) = (cluster.now, (leader + 1) % NAMES.len());
    // The client waits, and no other node has heard of it.
    let ask = Ask::Write(Ticket(7), StateCommand::Limit(Limits::default()));
    cluster.nodes[sender].handle(now, Input::Message { from: Endpoint::Client, message: Message::Ask(ask) });
    said(&mut cluster.nodes[sender]);
    assert_eq!(cluster.nodes[sender].open_writes(), 1);

    let broken = Arc::from(&request(sender)[..8]);
    let propose = |requests| Message::Propose {
        incarnation: identity(sender).incarnation,
        requests,
        read: None,
        sessions: Vec::new(),
    };
    let last = cluster.nodes[leader].replica().last();
    let told =
        hear(&mut cluster.nodes[leader], now, sender, propose(vec![later(sender), broken, later(leader)]));
    let refused = Message::Told {
        incarnation: identity(leader).incarnation,
        to: identity(sender).incarnation,
        read: None,
        sessions: Vec::new(),
        unreadable: vec![1],
    };
    assert_eq!(told, core::slice::from_ref(&refused));
    cluster.nodes[leader].handle(now, Input::Timeout);
    assert_eq!(cluster.nodes[leader].replica().last(), last);
    let answered = hear(&mut cluster.nodes[sender], now, leader, refused);
    assert_eq!(answered, [Message::Answer(Answer::Unreadable(Ticket(7)))]);
    assert_eq!(cluster.nodes[sender].open_writes(), 0, "it is told to nobody else");

    // A readable request is written.
    hear(&mut cluster.nodes[leader], now, sender, propose(vec![later(sender), request(sender).into()]));
    cluster.nodes[leader].handle(now, Input::Timeout);
    assert_eq!(cluster.nodes[leader].replica().last(), last.next());
}

/// A node checks its clients' requests; the leader checks those of other nodes, too: a record that cannot be applied
/// must not exist.
#[test]
fn a_request_that_would_cost_too_much_is_refused_to_its_sender_and_never_written() {
    let (mut cluster, leader) = Cluster::start();
    let (now, sender) = (cluster.now, (leader + 1) % NAMES.len());
    let all = Operation::Read(Box::new(command::Read::of(command::Keys::all())));
    let list = |then| Operation::Transaction(command::Transaction { then, ..Default::default() });
    let nested = list(vec![list(vec![list(vec![all; 26]); 26]); 26]);
    let command = StateCommand::Operate(nested);
    let sent = Request { client: identity(sender), sequence: 1, done_below: 1, command: command.clone() };
    let last = cluster.nodes[leader].replica().last();
    let propose = Message::Propose {
        incarnation: identity(sender).incarnation,
        requests: vec![sent.encode().into()],
        read: None,
        sessions: Vec::new(),
    };
    let told = hear(&mut cluster.nodes[leader], now, sender, propose);
    assert!(matches!(&told[..], [Message::Told { unreadable, .. }] if *unreadable == [1]), "{told:?}");
    // Its own client is told at once, at the leader and elsewhere.
    for node in [leader, sender] {
        let ask = Message::Ask(Ask::Write(Ticket(7), command.clone()));
        cluster.nodes[node].handle(now, Input::Message { from: Endpoint::Client, message: ask });
        let told = said(&mut cluster.nodes[node]);
        let [Message::Answer(Answer::Written(Ticket(7), outcome))] = &told[..] else { panic!("{told:?}") };
        assert_eq!(outcome.result, Err(Refused::TooManyOperations));
        assert_eq!(cluster.nodes[node].open_writes(), 0);
    }
    cluster.nodes[leader].handle(now, Input::Timeout);
    assert_eq!(cluster.nodes[leader].replica().last(), last);
}

#[test]
fn a_follower_takes_and_acknowledges_nothing_that_it_cannot_read_and_goes_no_further() {
    let (mut cluster, leader) = Cluster::start();
    let (now, follower) = (cluster.now, (leader + 1) % NAMES.len());
    cluster.write(leader, StateCommand::Limit(Limits::default()));
    let node = &mut cluster.nodes[follower];
    let (term, last, digest) = (node.replica().bound(), node.replica().last(), node.state().digest());
    let append = |number: LeaderSequence, payload: Arc<[u8]>| {
        let records = vec![Record { number, body: RecordBody::Payload(payload) }];
        let body = message::Body::Append { round: 1 << 20, after: last, records, committed: number };
        Message::Log { incarnation: identity(leader).incarnation, term, body }
    };
    assert_eq!(hear(node, now, leader, append(last.next(), later(leader))), []);
    let why = DecodeError::Format(LATER);
    let unreadable = Unreadable { what: PartOfLog::Record, number: last.next(), why };
    assert_eq!(node.replica().unreadable(), Some(unreadable));
    assert!(unreadable.to_string().contains("cannot be read: the format 2 is not known"), "{unreadable}");
    // Nor does it take any later record, though it could be decoded.
    assert_eq!(hear(node, now, leader, append(last.next(), request(leader).into())), []);
    node.handle(now, Input::Timeout);
    let acknowledged = |message: &Message| matches!(message, Message::Log { body: message::Body::AppendReply { last: it, .. }, .. } if *it > last);
    assert!(!said(node).iter().any(acknowledged));
    assert_eq!((node.replica().last(), node.state().digest()), (last, digest));
}

#[test]
fn a_follower_that_is_sent_a_snapshot_that_it_cannot_read_goes_no_further() {
    let (mut cluster, leader) = Cluster::start();
    let (now, follower) = (cluster.now, (leader + 1) % NAMES.len());
    let node = &mut cluster.nodes[follower];
    let (term, last, digest) = (node.replica().bound(), node.replica().last(), node.state().digest());
    let (incarnation, to) = (identity(leader).incarnation, identity(follower).incarnation);
    let number = LeaderSequence { counter: last.counter + 9, ..last };
    let log = |body| Message::Log { incarnation, term, body };
    let asked = hear(node, now, leader, log(message::Body::Offer { number }));
    assert!(matches!(asked[..], [Message::Log { body: message::Body::Part { .. }, .. }]), "{asked:?}");
    let bytes: Arc<[u8]> = Arc::from([u8::try_from(SNAPSHOT_FORMAT).unwrap() + 1, 1, 2, 3]);
    let (voters, length) = (Arc::clone(node.replica().voters()), bytes.len() as u64);
    let part = message::Body::PartReply { to, number, voters, offset: 0, length, bytes };
    assert_eq!(hear(node, now, leader, log(part)), []);
    let why = DecodeError::Format(SNAPSHOT_FORMAT + 1);
    assert_eq!(node.replica().unreadable(), Some(Unreadable { what: PartOfLog::Snapshot, number, why }));
    assert_eq!((node.replica().last(), node.state().digest()), (last, digest));
}

#[test]
fn a_node_does_not_start_on_a_log_that_it_cannot_read() {
    let voters = Arc::clone(node(0).replica().voters());
    let first = LeaderSequence::first(Term(1));
    let begin = RecordBody::Begin { after: LeaderSequence::NONE, voters: Arc::new(voters.restated(first)) };
    let records = |payload: Arc<[u8]>| {
        let payload = Record { number: first.next(), body: RecordBody::Payload(payload) };
        Stored { snapshot: None, records: vec![Record { number: first, body: begin.clone() }, payload] }
    };
    let snapshot = |state: Vec<u8>| {
        let snapshot = Snapshot { number: first, voters: Arc::clone(&voters), state: state.into() };
        Stored { snapshot: Some(Arc::new(snapshot)), records: Vec::new() }
    };
    let starts = |log: Stored| start(0, log).map(|_| ()).map_err(|it| (it.what, it.number, it.why));
    let mut later_state = State::new().snapshot();
    assert_eq!(starts(records(request(0).into())), Ok(()));
    assert_eq!(starts(snapshot(later_state.clone())), Ok(()));
    let why = DecodeError::Format(LATER);
    assert_eq!(starts(records(later(0))), Err((PartOfLog::Record, first.next(), why)));
    later_state[0] += 1;
    assert_eq!(starts(snapshot(later_state)), Err((PartOfLog::Snapshot, first, why)));
}
