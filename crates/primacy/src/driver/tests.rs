//! Unexpected ends of a driver.

use std::collections::VecDeque;

use primacy_core::{ElectionTrigger, Evidence, FencingToken, Incarnation};

use super::*;
use crate::config::Venue;

/// A machine that is elected as soon as it campaigns, until its lease ends or until it resigns and has drained; on evidence,
/// it persists its state and then sends.
#[derive(Default)]
struct Machine {
    advisory: bool,
    /// True if it is always due again at once, as with a long log to apply.
    busy: bool,
    outputs: VecDeque<Output<(), ()>>,
}

impl Protocol for Machine {
    type Message = ();
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<()>) {
        let (mandate, valid_until) = if self.advisory {
            (Mandate::Advisory, Instant::NEVER)
        } else {
            (Mandate::Fenced(FencingToken(1)), now.after(Duration::from_secs(60)))
        };
        let mut tell = |event| self.outputs.push_back(Output::Event(event));
        match input {
            Input::Command(Command::Campaign) => tell(Event::Elected { term: Term(1), mandate, valid_until }),
            Input::Command(Command::Resign) => tell(Event::Resigning(Reason::Resigned)),
            Input::Command(Command::Drained) => tell(Event::Deposed(Reason::Resigned)),
            Input::Evidence(_) => {
                self.outputs.push_back(Output::Persist(()));
                self.outputs.push_back(Output::Send { to: Endpoint::Store, message: () });
            }
            Input::Command(_) | Input::Message { .. } | Input::Timeout => {}
        }
    }

    fn poll(&mut self) -> Option<Output<(), ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        self.busy.then(Instant::default)
    }
}

impl Announces for Machine {}

impl Quiescent for Machine {
    fn is_settled(&self) -> bool {
        true
    }

    fn trigger(&self) -> Option<ElectionTrigger> {
        None
    }
}

/// An effect handler whose disk is full; on request it delivers evidence.
struct FullDisk {
    told: oneshot::Receiver<()>,
    /// The number of sent messages.
    sent: usize,
}

impl EffectHandler<Machine> for FullDisk {
    fn persist(&mut self, (): ()) -> Result<(), Halt> {
        Err(Halt::Failed { why: "the disk is full".to_owned() })
    }

    fn send(&mut self, _: Endpoint, (): ()) {
        self.sent += 1;
    }

    async fn arrival(&mut self) -> Result<Input<()>, Halt> {
        (&mut self.told).await.expect("it is told");
        Ok(Input::Evidence(Evidence::Disconnected(NodeId::new("b").expect("a name"))))
    }
}

impl AdminView<Machine> for FullDisk {
    fn view(&self, _: &Machine) -> View {
        unreachable!("nobody asks")
    }

    fn readmit(&mut self, _: NodeId) -> Result<DiskId, AdminError> {
        unreachable!("nobody asks")
    }
}

/// The frontend of a node, and the sender of its requests.
fn frontend(stats: &Arc<Stats>) -> (Frontend, mpsc::UnboundedSender<Request>) {
    let (requests, received) = mpsc::unbounded_channel();
    let node = NodeId::new("a").expect("a name");
    let frontend = Frontend {
        election: "test".to_owned(),
        identity: Identity::new(node, Incarnation { count: 1, nonce: 1 }),
        witness: false,
        cordon: Cordon::load(None, "test", node).expect("nothing is read"),
        healthy: true,
        not_campaigning: None,
        has_campaigned: false,
        stopped: None,
        timers: Timers::new(Venue::Peers, None),
        requests: received,
        sender: requests.downgrade(),
        publisher: Publisher::new(),
        stats: Arc::clone(stats),
        promises: Promises::default(),
        candidate: None,
        cell: None,
        drain_until: None,
        promises_of_others: BTreeMap::new(),
        releasing: None,
        closing: None,
        halted: Arc::default(),
    };
    (frontend, requests)
}

#[tokio::test]
async fn a_leader_whose_state_cannot_be_written_is_none_in_the_figures_either() {
    let stats = Arc::new(Stats::new());
    let (mut frontend, requests) = frontend(&stats);
    let (fail, told) = oneshot::channel();
    let (mut machine, mut effects) = (Machine::default(), FullDisk { told, sent: 0 });
    let (answer, elected) = oneshot::channel();
    requests.send(Request::Campaign(answer)).expect("the frontend is there");
    let application = async {
        let leadership = elected.await.expect("an answer").expect("a leadership");
        assert_eq!(stats.history().lead.map(|lead| lead.term()), Some(Term(1)));
        fail.send(()).expect("the effects is there");
        // This may close the connections; the test does not wait for that.
        leadership.lost().await
    };
    let (ended, reason) = tokio::join!(drive(&mut machine, &mut effects, &mut frontend), application);
    assert_eq!(
        (ended.map_err(|halt| halt.why().to_owned()), reason),
        (Err("the disk is full".to_owned()), Reason::Halted)
    );
    let history = stats.history();
    assert!(history.lead.is_none() && history.leader.is_none());
    assert_eq!(history.ends.into_iter().collect::<Vec<_>>(), [("halted", 1)]);
}

/// Found by chaos (arm `metadata-1`, seed 29): a paused node was elected while its application campaigned again, and the campaign was
/// refused.
#[tokio::test]
async fn an_application_that_stands_anew_while_its_node_is_elected_is_not_refused() {
    let (mut frontend, requests) = frontend(&Arc::new(Stats::new()));
    let (_fail, told) = oneshot::channel();
    let (mut machine, mut effects) = (Machine::default(), FullDisk { told, sent: 0 });
    let (answer, unwanted) = oneshot::channel();
    requests.send(Request::Campaign(answer)).expect("the frontend is there");
    let (answer, elected) = oneshot::channel();
    requests.send(Request::Campaign(answer)).expect("the frontend is there");
    drop(unwanted);
    tokio::select! {
        ended = drive(&mut machine, &mut effects, &mut frontend) => panic!("it goes on: {ended:?}"),
        answer = elected => {
            answer.expect("an answer").expect("a leadership");
        }
    }
}

#[tokio::test]
async fn what_was_to_follow_a_write_that_failed_is_not_sent() {
    let failed = |ended: Result<(), Halt>| ended.expect_err("the disk is full").why().to_owned();

    let (mut frontend, _orders) = frontend(&Arc::new(Stats::new()));
    let (fail, told) = oneshot::channel();
    fail.send(()).expect("the effects is there");
    let (mut machine, mut effects) = (Machine::default(), FullDisk { told, sent: 0 });
    let ended = drive(&mut machine, &mut effects, &mut frontend).await;
    assert_eq!((failed(ended).as_str(), effects.sent), ("the disk is full", 0));

    let (fail, told) = oneshot::channel();
    fail.send(()).expect("the effects is there");
    let (mut machine, mut effects) = (Machine::default(), FullDisk { told, sent: 0 });
    let ended = drive_alone(&mut machine, &mut effects, |_| false).await;
    assert_eq!((failed(ended).as_str(), effects.sent), ("the disk is full", 0));
}

#[tokio::test]
async fn a_lead_is_kept_until_its_work_has_ended_however_long_that_takes() {
    let (mut frontend, requests) = frontend(&Arc::new(Stats::new()));
    frontend.timers.drain = std::time::Duration::from_millis(20);
    frontend.timers.kill_margin = std::time::Duration::from_millis(10);
    let (_fail, told) = oneshot::channel();
    let mut machine = Machine { advisory: true, ..Machine::default() };
    let mut effects = FullDisk { told, sent: 0 };
    let (answer, elected) = oneshot::channel();
    requests.send(Request::Campaign(answer)).expect("the frontend is there");
    let application = async {
        let leadership = elected.await.expect("an answer").expect("a leadership");
        let work = leadership.guard().expect("it leads");
        assert!(leadership.check().is_ok());
        let resigned = leadership.resign();
        tokio::pin!(resigned);
        // Longer than the drain and the kill margin together.
        let early = tokio::time::timeout(std::time::Duration::from_millis(90), &mut resigned).await;
        assert!(early.is_err(), "released before its work had ended");
        drop(work);
        resigned.await
    };
    tokio::select! {
        ended = drive(&mut machine, &mut effects, &mut frontend) => panic!("it goes on: {ended:?}"),
        reason = application => assert_eq!(reason, Reason::Resigned),
    }
}

#[tokio::test]
async fn a_machine_that_is_always_due_keeps_no_lead_from_draining_and_no_node_from_ending() {
    let (mut frontend, requests) = frontend(&Arc::new(Stats::new()));
    let (_fail, told) = oneshot::channel();
    let mut machine = Machine { busy: true, ..Machine::default() };
    let mut effects = FullDisk { told, sent: 0 };
    let (answer, elected) = oneshot::channel();
    requests.send(Request::Campaign(answer)).expect("the frontend is there");
    let application = async {
        let leadership = elected.await.expect("an answer").expect("a leadership");
        assert_eq!(leadership.resign().await, Reason::Resigned);
        let (answer, unwanted) = oneshot::channel();
        requests.send(Request::Campaign(answer)).expect("the frontend is there");
        drop(unwanted);
        drop(requests);
    };
    let (ended, ()) = tokio::join!(drive(&mut machine, &mut effects, &mut frontend), application);
    ended.expect("it ends with its last user");
}
