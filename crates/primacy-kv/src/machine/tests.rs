//! The leader's clock ends a session, and repeated requests are written once: three machines, whose messages arrive at
//! once, one of which can be cut off.

mod unreadable;

use primacy_core::election::quorum::Round;
use primacy_core::hard_state::Durability;
use primacy_core::time::Drift;

use super::*;
use crate::command::{self, Operation, Previous, Replace};
use crate::command::{Request, Version};
use crate::partitions::Command as About;

type Node = Metadata<State>;

const NAMES: [&str; 3] = ["a", "b", "c"];
const TIME_TO_LIVE: Duration = Duration::from_secs(5);

fn identity(index: usize) -> Identity {
    let nonce = u64::try_from(index).unwrap();
    Identity::new(NodeId::new(NAMES[index]).unwrap(), Incarnation { count: 1, nonce })
}

fn node(index: usize) -> Node {
    start(index, Stored::default()).unwrap()
}

/// With the log of an earlier incarnation.
fn start(index: usize, log: Stored) -> Result<Node, Unreadable> {
    let millis = Duration::from_millis;
    let names = NAMES.map(|name| NodeId::new(name).unwrap());
    let election = quorum::Config {
        me: identity(index),
        voters: names.into(),
        safety: quorum::Safety::Lease,
        heartbeat_interval: millis(250),
        miss_count: 4,
        promise_duration: millis(1_000),
        initial_wait: millis(500),
        random_wait_max: millis(300),
        round_timeout: millis(500),
        stagger: millis(5),
        drift_max: Drift::from_ppm(10_000),
        priority: 0,
        witness: false,
        pre_vote: true,
        sticky: true,
        seed: u64::try_from(index).unwrap(),
    };
    let replica = replica::Config {
        me: identity(index),
        durability: Durability::Fsync,
        resend_after: millis(250),
        append_max: 1 << 16,
        window: 1 << 20,
        part_max: 1 << 16,
        snapshot_after: 1 << 20,
        kept_max: 1 << 20,
        apply_max: 1,
    };
    let members = names.map(|name| (name, Arc::from("nowhere"))).into();
    let voters = Arc::new(Voters { number: LeaderSequence::NONE, members });
    let stored_state = StoredState { hard: HardState::default(), voters, log, log_lost: false };
    Node::new(Config { election, replica }, stored_state, Instant::default())
}

struct Cluster {
    now: Instant,
    nodes: Vec<Node>,
    packets: VecDeque<(usize, usize, Message)>,
    /// The node that no other hears, and that hears no other.
    cut_off: Option<usize>,
    /// The messages from one node to another that are lost.
    loses: fn(usize, usize, &Message) -> bool,
    tickets: u64,
    /// The answers to clients.
    answers: Vec<Answer>,
}

impl Cluster {
    /// A cluster with a leader, whose index is returned.
    fn start() -> (Self, usize) {
        let nodes = (0..NAMES.len()).map(node).collect();
        let (now, packets, answers) = (Instant::default(), VecDeque::new(), Vec::new());
        let loses = |_: usize, _: usize, _: &Message| false;
        let mut cluster = Self { now, nodes, packets, cut_off: None, loses, tickets: 0, answers };
        for index in 0..NAMES.len() {
            cluster.drain(index);
            cluster.tell(index, Input::Command(Command::Campaign));
        }
        let leader = cluster.wait_for_leader(None);
        (cluster, leader)
    }

    fn wait_for_leader(&mut self, but: Option<usize>) -> usize {
        for _ in 0..1_000 {
            self.pass(Duration::from_millis(10));
            let serves = |index: &usize| self.nodes[*index].serves() && Some(*index) != but;
            if let Some(leader) = (0..NAMES.len()).find(serves) {
                return leader;
            }
        }
        panic!("nobody leads");
    }

    fn tell(&mut self, index: usize, input: Input<Message>) {
        self.nodes[index].handle(self.now, input);
        self.drain(index);
        while let Some((from, to, message)) = self.packets.pop_front() {
            let from = Endpoint::Node(identity(from).node);
            self.nodes[to].handle(self.now, Input::Message { from, message });
            self.drain(to);
        }
    }

    fn drain(&mut self, index: usize) {
        while let Some(output) = self.nodes[index].poll() {
            let Output::Send { to, message } = output else { continue };
            let Endpoint::Node(to) = to else {
                if let Message::Answer(answer) = message {
                    self.answers.push(answer);
                }
                continue;
            };
            let to = NAMES.iter().position(|name| *name == to.as_str()).unwrap();
            if self.cut_off != Some(index) && self.cut_off != Some(to) && !(self.loses)(index, to, &message) {
                self.packets.push_back((index, to, message));
            }
        }
    }

    /// Lets time pass, in which every node does what is due.
    fn pass(&mut self, time: Duration) {
        let until = self.now.after(time);
        loop {
            let due = |index: &usize| self.nodes[*index].deadline().unwrap_or(Instant::NEVER);
            let next = (0..NAMES.len()).min_by_key(due).unwrap();
            let at = due(&next);
            if at > until {
                break;
            }
            self.now = self.now.max(at);
            self.tell(next, Input::Timeout);
        }
        self.now = until;
    }

    fn ask(&mut self, index: usize, command: StateCommand) -> Ticket {
        self.tickets += 1;
        let ask = Message::Ask(Ask::Write(Ticket(self.tickets), command));
        self.tell(index, Input::Message { from: Endpoint::Client, message: ask });
        Ticket(self.tickets)
    }

    fn write(&mut self, index: usize, command: StateCommand) {
        self.ask(index, command);
        self.pass(Duration::from_millis(50));
    }
}

fn put(key: &str, length: usize) -> StateCommand {
    let write = command::Write {
        key: key.as_bytes().into(),
        value: Replace::With(vec![7; length].into()),
        session: Replace::With(None),
        previous: Previous::Unwanted,
    };
    StateCommand::Operate(Operation::Write(write))
}

/// Copies would make the log longer as long as a node is behind, which then stays so.
#[test]
fn a_request_that_is_told_again_is_written_once() {
    let (mut cluster, leader) = Cluster::start();
    let other = identity((leader + 1) % NAMES.len());
    let request = Request { client: other, sequence: 1, done_below: 1, command: put("key", 1) };
    let again = |cluster: &mut Cluster, bytes: &[u8]| {
        let requests = vec![bytes.into(), bytes.into()];
        let incarnation = other.incarnation;
        let message = Message::Propose { incarnation, requests, read: None, sessions: Vec::new() };
        cluster.tell(leader, Input::Message { from: Endpoint::Node(other.node), message });
    };
    let before = cluster.nodes[leader].replica().log().last().counter;
    again(&mut cluster, &request.encode());
    again(&mut cluster, b"no request at all");
    cluster.pass(Duration::from_millis(50));
    assert_eq!(cluster.nodes[leader].state().version(), Version(2), "it is applied");
    again(&mut cluster, &request.encode());
    cluster.pass(Duration::from_millis(50));
    assert_eq!(cluster.nodes[leader].replica().log().last().counter, before + 1);
}

#[test]
fn a_write_that_comes_back_in_a_snapshot_is_answered() {
    let (mut cluster, leader) = Cluster::start();
    let behind = (leader + 1) % NAMES.len();
    let ticket = cluster.ask(behind, put("key", 1));
    cluster.tell(behind, Input::Timeout); // Now the leader knows of it, and has not yet sent it on.
    cluster.cut_off = Some(behind);
    for number in 0..20 {
        cluster.write(leader, put(&number.to_string(), 128 << 10));
    }
    let log = |index: usize| cluster.nodes[index].replica().log();
    assert!(log(leader).base() > log(behind).last(), "what it lacks is forgotten");
    assert!(!cluster.answers.contains(&Answer::Done(ticket)));
    cluster.cut_off = None;
    cluster.pass(Duration::from_secs(5));
    assert!(cluster.answers.contains(&Answer::Done(ticket)), "{:?}", cluster.answers);
    assert_eq!(cluster.nodes[behind].open_writes(), 0);
}

/// It applies them in steps, and one step may be due together with the repetition of what is still open.
#[test]
fn a_write_that_is_applied_when_it_would_be_told_again_has_its_own_answer() {
    let (mut cluster, leader) = Cluster::start();
    let behind = (leader + 1) % NAMES.len();
    let tickets = [(); 3].map(|()| cluster.ask(behind, put("key", 1)));
    cluster.tell(behind, Input::Timeout); // Now the leader knows of them, and has not yet sent them on.
    cluster.cut_off = Some(behind);
    cluster.pass(Duration::from_millis(100));
    let from = cluster.nodes[leader].replica();
    let (after, committed, term) = (cluster.nodes[behind].replica().last(), from.committed(), from.bound());
    let records = from.log().since(after, usize::MAX).expect("they are not forgotten");
    let body = message::Body::Append { round: 1, after, records, committed };
    let message = Message::Log { incarnation: identity(leader).incarnation, term, body };
    cluster.now = cluster.nodes[behind].clients.again_at.expect("it waits for its leader");
    cluster.tell(behind, Input::Message { from: Endpoint::Node(identity(leader).node), message });
    for _ in 0..3 {
        cluster.tell(behind, Input::Timeout);
    }
    for ticket in tickets {
        let written = |answer: &&Answer| matches!(answer, Answer::Written(written, _) if *written == ticket);
        assert_eq!(cluster.answers.iter().filter(written).count(), 1, "{ticket:?}: {:?}", cluster.answers);
        assert!(!cluster.answers.contains(&Answer::Done(ticket)), "its answer counts as lost");
    }
}

#[test]
fn only_the_leader_whose_clock_it_was_ends_a_session() {
    let (mut cluster, leader) = Cluster::start();
    let (session, other) = (SessionId::new(7).unwrap(), (leader + 1) % NAMES.len());
    cluster.write(other, StateCommand::Begin { session, time_to_live: TIME_TO_LIVE });
    let lives = |cluster: &Cluster, index: usize| cluster.nodes[index].state().session(session).is_some();
    assert!((0..NAMES.len()).all(|index| lives(&cluster, index)));

    // Its time is over while the leader is cut off, and leads still.
    cluster.pass(TIME_TO_LIVE.minus(Duration::from_millis(400)));
    cluster.cut_off = Some(leader);
    cluster.pass(Duration::from_millis(500));
    assert!(cluster.nodes[leader].serves() && cluster.nodes[leader].open_writes() == 1, "it wants the end");
    let next = cluster.wait_for_leader(Some(leader));
    cluster.pass(Duration::from_millis(1_000));
    assert!(!cluster.nodes[leader].serves());

    // The next leader has given it its whole time again, and no other node has a say in that.
    cluster.cut_off = None;
    cluster.pass(Duration::from_millis(2_000));
    assert!(cluster.nodes[next].serves() && cluster.nodes[leader].leader() == cluster.nodes[next].leader());
    assert!((0..NAMES.len()).all(|index| lives(&cluster, index)));
    cluster.pass(TIME_TO_LIVE);
    assert!((0..NAMES.len()).all(|index| !lives(&cluster, index)));
}

#[test]
fn a_node_that_is_vouched_to_be_dead_is_down_at_once_and_no_other_life_of_it() {
    let (mut cluster, leader) = Cluster::start();
    let other = (leader + 1) % NAMES.len();
    let session = SessionId::new(7).unwrap();
    cluster.write(other, StateCommand::Partitions(About::Join { session, time_to_live: TIME_TO_LIVE }));
    let dead = identity(other);
    let is_up = |cluster: &Cluster| {
        cluster.nodes.iter().all(|node| node.state().partitions().session_of(dead.node) == Some(session))
    };
    assert!(is_up(&cluster));
    let former = Identity { incarnation: Incarnation { count: 0, nonce: 9 }, ..dead };
    for (life, stays) in [(former, true), (dead, false)] {
        cluster.tell(leader, Input::Evidence(Evidence::Died(life)));
        cluster.pass(Duration::from_millis(50));
        assert_eq!(is_up(&cluster), stays);
    }
}

/// The others are told of its death before one of them leads; and its own requests may come later than the news of its
/// death.
#[test]
fn the_session_of_a_leader_that_is_vouched_to_be_dead_is_ended_by_the_next_one() {
    let (mut cluster, leader) = Cluster::start();
    let dead = identity(leader);
    let [session, another] = [7, 8].map(|number| SessionId::new(number).unwrap());
    let join = |session| StateCommand::Partitions(About::Join { session, time_to_live: TIME_TO_LIVE });
    cluster.write(leader, join(session));
    cluster.cut_off = Some(leader);
    let others = || (0..NAMES.len()).filter(|&index| index != leader);
    let seen = |cluster: &Cluster, index: usize| {
        let partitions = cluster.nodes[index].state().partitions();
        (partitions.session_of(dead.node), partitions.step())
    };
    let (began, step) = seen(&cluster, leader);
    assert!(began == Some(session) && others().all(|index| seen(&cluster, index) == (began, step)));
    // A report about an earlier incarnation comes later, as guardians go on until they are heard.
    let former = Identity { incarnation: Incarnation { count: 0, nonce: 9 }, ..dead };
    for (life, index) in [dead, former].into_iter().flat_map(|life| others().map(move |index| (life, index)))
    {
        cluster.tell(index, Input::Evidence(Evidence::Died(life)));
    }
    let next = cluster.wait_for_leader(Some(leader));
    cluster.pass(Duration::from_millis(50));
    assert!(others().all(|index| seen(&cluster, index) == (None, step + 1)));

    let written = cluster.nodes[next].replica().log().last().counter;
    let late = Request { client: dead, sequence: 9, done_below: 9, command: join(another) };
    let requests = vec![late.encode().into()];
    let other = others().find(|&index| index != next).map(identity).unwrap();
    let message =
        Message::Propose { incarnation: other.incarnation, requests, read: None, sessions: Vec::new() };
    cluster.tell(next, Input::Message { from: Endpoint::Node(other.node), message });
    cluster.tell(next, Input::Evidence(Evidence::Died(dead)));
    cluster.pass(Duration::from_millis(50));
    assert!(others().all(|index| seen(&cluster, index) == (None, step + 3)), "it has begun, and ended");
    cluster.tell(next, Input::Evidence(Evidence::Died(dead)));
    cluster.pass(Duration::from_millis(50));
    assert_eq!(cluster.nodes[next].replica().log().last().counter, written + 2, "once each");
}

/// A leader of a higher term wrote that list, so this one leads no more; and a term that no honest node has is ignored.
#[test]
fn a_leader_that_is_told_voters_of_a_higher_term_leads_no_more() {
    let (mut cluster, leader) = Cluster::start();
    let from = (leader + 1) % NAMES.len();
    let members = cluster.nodes[leader].replica().voters().members.clone();
    let told = |term: Term| {
        let mut members = members.clone();
        members.remove(&identity(from).node);
        let voters = Arc::new(Voters { number: LeaderSequence::first(term), members });
        let message = Message::Voters { incarnation: identity(from).incarnation, voters };
        Input::Message { from: Endpoint::Node(identity(from).node), message }
    };
    let bound = cluster.nodes[leader].replica().bound();
    cluster.tell(leader, told(Term(TERM_MAX.0 + 1)));
    assert!(cluster.nodes[leader].serves());
    assert_eq!(cluster.nodes[leader].replica().voters().count(), 3);
    cluster.tell(leader, told(Term(bound.0 + 1)));
    assert!(!cluster.nodes[leader].serves());
    assert_eq!(cluster.nodes[leader].replica().bound(), Term(bound.0 + 1));
    assert_eq!(cluster.nodes[leader].election().term(), Term(bound.0 + 1));
    assert_eq!(cluster.nodes[leader].replica().voters().count(), 2);
}

/// No honest node counts by such a list, and its consequences would be remembered.
#[test]
fn who_asks_for_votes_by_voters_of_a_term_that_no_honest_node_has_is_not_heard() {
    let (mut cluster, leader) = Cluster::start();
    let (voter, from) = ((leader + 1) % NAMES.len(), identity((leader + 2) % NAMES.len()));
    let seen = |cluster: &Cluster| format!("{:?}", cluster.nodes[voter]);
    let before = seen(&cluster);
    let members = cluster.nodes[voter].replica().voters().members.clone();
    let number = LeaderSequence::first(Term(TERM_MAX.0 + 1));
    let (voters, term) =
        (Arc::new(Voters { number, members }), Term(cluster.nodes[voter].election().term().0 + 1));
    let body = quorum::Body::PreVote { round: Round(1), resignation: None };
    let message = quorum::Message { incarnation: from.incarnation, term, body };
    let message = Message::Election { message, voters: Some(voters) };
    cluster.tell(voter, Input::Message { from: Endpoint::Node(from.node), message });
    assert_eq!(seen(&cluster), before);
}

/// Its lease is by the voters that it counted when it was elected. The present ones have promised it nothing, and may
/// elect another leader.
#[test]
fn a_leader_that_has_learned_of_other_voters_serves_only_when_these_support_it() {
    let (mut cluster, _) = Cluster::start();
    cluster.nodes = (0..NAMES.len()).map(node).collect();
    (0..NAMES.len()).for_each(|index| cluster.drain(index));
    cluster.loses = |from, to, message| from == 2 || to == 2 || matches!(message, Message::Log { .. });
    cluster.tell(0, Input::Command(Command::Campaign));
    while cluster.nodes[0].lead == Lead::None {
        cluster.pass(Duration::from_millis(10));
    }
    let mut members = cluster.nodes[0].replica().voters().members.clone();
    members.remove(&identity(1).node);
    let number = LeaderSequence { term: Term(0), counter: 5 };
    let (incarnation, voters) = (identity(1).incarnation, Arc::new(Voters { number, members }));
    let from = Endpoint::Node(identity(1).node);
    cluster.tell(0, Input::Message { from, message: Message::Voters { incarnation, voters } });
    cluster.loses = |from, to, message| (from == 2 || to == 2) && !matches!(message, Message::Log { .. });
    cluster.pass(Duration::from_millis(400));
    assert!(cluster.nodes[0].replica().is_active() && !cluster.nodes[0].serves());
    cluster.loses = |_, _, _| false;
    cluster.pass(Duration::from_millis(300));
    assert!(cluster.nodes[0].serves());
}
