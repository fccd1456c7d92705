use std::collections::{BTreeMap, VecDeque};
use std::future::Future;

use primacy_core::election::lease::Version;
use primacy_stores::Pending;
use serde::Deserialize;
use serde_json::Value;

use super::*;

/// A fault of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The write is done, and its reply is lost.
    LoseReply,
    /// The write is lost, without a reply.
    LoseRequest,
    /// The write is delayed until [`Cell::land`] is called.
    Late,
    /// The write fails, and the writer knows that.
    Unavailable,
}

/// A document in memory.
#[derive(Clone, Debug, Default)]
struct Cell(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    content: Option<Vec<u8>>,
    version: u64,
    /// The faults of the next writes.
    faults: VecDeque<Fault>,
    /// The fault of all other writes.
    persistent: Option<Fault>,
    late: Vec<(Option<Version>, Vec<u8>)>,
    writes: u32,
    /// Contents that another process writes just before each of the next writes.
    rivals: VecDeque<Vec<u8>>,
    /// Writes wait for a permit, if it is set.
    gate: Option<Arc<tokio::sync::Semaphore>>,
}

impl Inner {
    fn set(&mut self, expect: Option<&Version>, bytes: &[u8]) -> Result<Version, SetError> {
        let version = self.content.is_some().then(|| Version::from(self.version));
        if version.as_ref() != expect {
            return Err(SetError::Conflict);
        }
        self.version += 1;
        self.content = Some(bytes.to_vec());
        Ok(Version::from(self.version))
    }

    fn put(&mut self, bytes: &[u8]) {
        self.version += 1;
        self.content = Some(bytes.to_vec());
    }
}

impl Cell {
    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    fn next(&self, fault: Fault) {
        self.inner().faults.push_back(fault);
    }

    fn land(&self) -> Vec<Result<Version, SetError>> {
        let mut inner = self.inner();
        let late = std::mem::take(&mut inner.late);
        late.into_iter().map(|(expect, bytes)| inner.set(expect.as_ref(), &bytes)).collect()
    }

    fn document(&self) -> Value {
        serde_json::from_slice(self.inner().content.as_deref().expect("a document")).unwrap()
    }
}

impl Document for Cell {
    fn read(&self) -> Pending<'_, Result<Option<primacy_stores::document::Content>, ReadError>> {
        Box::pin(async {
            let inner = self.inner();
            Ok(inner.content.clone().map(|bytes| (bytes, Version::from(inner.version))))
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        bytes: &'a [u8],
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            let gate = self.inner().gate.clone();
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            let mut inner = self.inner();
            inner.writes += 1;
            if let Some(rival) = inner.rivals.pop_front() {
                inner.put(&rival);
            }
            let unknown = || SetError::Unknown { why: "no answer".to_owned() };
            let fault = inner.faults.pop_front().or(inner.persistent);
            match fault {
                None => inner.set(expect, bytes),
                Some(Fault::LoseReply) => {
                    let _ = inner.set(expect, bytes);
                    Err(unknown())
                }
                Some(Fault::LoseRequest) => Err(unknown()),
                Some(Fault::Late) => {
                    inner.late.push((expect.cloned(), bytes.to_vec()));
                    Err(unknown())
                }
                Some(Fault::Unavailable) => Err(SetError::Unavailable { why: "away".to_owned() }),
            }
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Queue {
    jobs: Vec<String>,
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

const TIMEOUT: Duration = Duration::from_secs(10);

/// Creates a broker whose clock is `ahead` of the runtime's.
fn broker_ahead(cell: &Cell, address: &str, ahead: Duration) -> LeaderDocument<Queue> {
    let origin = tokio::time::Instant::now();
    let clock = move || {
        let since = Duration::from_secs(1_000) + ahead + origin.elapsed();
        Instant::from_nanos(u64::try_from(since.as_nanos()).unwrap())
    };
    let options = LeaderDocumentOptions { timeout: TIMEOUT, ..LeaderDocumentOptions::new(address) };
    LeaderDocument::with(Arc::new(cell.clone()), options, None, Arc::new(clock)).unwrap()
}

fn broker(cell: &Cell, address: &str) -> LeaderDocument<Queue> {
    broker_ahead(cell, address, Duration::ZERO)
}

async fn elected(broker: &LeaderDocument<Queue>) -> FencingToken {
    match broker.try_elect().await {
        Ok(Election::Elected { token }) => token,
        other => panic!("{other:?}"),
    }
}

fn push(job: &str) -> impl FnOnce(&mut Queue) -> usize + Send + 'static + use<> {
    let job = job.to_owned();
    move |queue| {
        queue.jobs.push(job);
        queue.jobs.len()
    }
}

/// Lets another broker take the lead, unnoticed by the leader.
async fn usurp(cell: &Cell, address: &str) -> LeaderDocument<Queue> {
    let usurper = broker(cell, address);
    assert!(matches!(usurper.try_elect().await, Ok(Election::OtherLeader { .. })));
    let version = Version::from(cell.inner().version);
    // As if this version had been there for long.
    *usurper.observed.lock().unwrap() = Some((version, Instant::from_nanos(1)));
    elected(&usurper).await;
    usurper
}

#[tokio::test(start_paused = true)]
async fn the_four_results() {
    let cell = Cell::default();
    let (a, b) = (broker(&cell, "a:1"), broker(&cell, "b:1"));
    let token = elected(&a).await;
    assert_eq!(a.try_elect().await, Ok(Election::AlreadyLeader { token }));
    let other = b.try_elect().await.unwrap();
    assert!(matches!(&other, Election::OtherLeader { address, .. } if address == "a:1"), "{other:?}");
    a.resign().await;
    // Another process writes just before it.
    let theirs = cell.inner().content.clone().unwrap();
    cell.inner().rivals.push_back(theirs);
    assert_eq!(b.try_elect().await, Ok(Election::Conflict));
    assert!(elected(&b).await > token);
    // And without a document, two that create it.
    let cell = Cell::default();
    cell.inner().rivals.push_back(b"{}".to_vec());
    assert_eq!(broker(&cell, "c").try_elect().await, Ok(Election::Conflict));
}

#[tokio::test(start_paused = true)]
async fn a_change_is_acknowledged_when_it_is_durable_and_all_that_wait_go_together() {
    let cell = Cell::default();
    let a = Arc::new(broker(&cell, "a"));
    elected(&a).await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    cell.inner().gate = Some(Arc::clone(&gate));
    let before = cell.inner().writes;
    let submitting: Vec<_> = (0..50)
        .map(|number| {
            let a = Arc::clone(&a);
            tokio::spawn(async move { a.submit(push(&number.to_string())).await })
        })
        .collect();
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
    assert!(submitting.iter().all(|one| !one.is_finished()), "nothing is durable yet");
    assert_eq!(a.state(), Some(Arc::new(Queue::default())));
    gate.add_permits(2);
    for (number, one) in (1..).zip(submitting) {
        assert_eq!(one.await.unwrap(), Ok(number), "in their order");
    }
    assert!(cell.inner().writes - before <= 2, "the first alone, at most, and all others together");
    assert_eq!(cell.document()["jobs"].as_array().unwrap().len(), 50);
}

/// A change that arrives during a write wakes the writer for the next one; that is skipped if the write has already
/// included the change.
#[tokio::test(start_paused = true)]
async fn nothing_is_written_for_which_nobody_waits() {
    let cell = Cell::default();
    let a = Arc::new(broker(&cell, "a"));
    elected(&a).await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    cell.inner().gate = Some(Arc::clone(&gate));
    let before = cell.inner().writes;
    let settle = || async {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    };
    let submit = |job: &'static str| {
        let a = Arc::clone(&a);
        tokio::spawn(async move { a.submit(push(job)).await })
    };
    let first = submit("first");
    settle().await;
    let second = submit("while the first is written");
    settle().await;
    gate.add_permits(10);
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(1), Ok(2)));
    settle().await;
    assert_eq!(cell.inner().writes - before, 2);
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_is_done_once() {
    let cell = Cell::default();
    let a = broker(&cell, "a");
    cell.next(Fault::LoseReply);
    let token = elected(&a).await;
    for (number, fault) in (1..).zip([Fault::LoseReply, Fault::LoseRequest, Fault::Unavailable]) {
        cell.next(fault);
        assert_eq!(a.submit(push("job")).await, Ok(number), "{fault:?}");
    }
    // A write that arrives after its repetition.
    cell.next(Fault::Late);
    assert_eq!(a.submit(push("late")).await, Ok(4));
    assert_eq!(cell.land(), [Err(SetError::Conflict)]);
    assert_eq!(cell.document()["jobs"].as_array().unwrap().len(), 4);
    assert_eq!(a.leadership(), LeadershipStatus::Leading { token });
}

#[tokio::test(start_paused = true)]
async fn a_write_that_lands_before_it_is_written_again_is_done_once() {
    let cell = Cell::default();
    let a = Arc::new(broker(&cell, "a"));
    elected(&a).await;
    cell.next(Fault::Late);
    // The second attempt conflicts with the first, and its reply is lost too.
    cell.next(Fault::LoseReply);
    let submitting = tokio::spawn({
        let a = Arc::clone(&a);
        async move { a.submit(push("once")).await }
    });
    while cell.inner().late.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(cell.land()[0].is_ok());
    assert_eq!(submitting.await.unwrap(), Ok(1));
    assert_eq!(cell.document()["jobs"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_deposes_and_the_old_leader_never_writes_itself_over_its_successor() {
    let cell = Cell::default();
    let a = broker(&cell, "a");
    elected(&a).await;
    let b = usurp(&cell, "b").await;
    let done = a.submit(push("too late")).await;
    assert!(matches!(done, Err(SubmitError::NotDone { .. })), "{done:?}");
    assert!(matches!(a.ended().await, LeadershipStatus::Ended { why: Ended::Deposed, .. }));
    assert_eq!(a.submit(push("more")).await, Err(SubmitError::NotLeading));
    for _ in 0..200 {
        tokio::time::sleep(TIMEOUT / 20).await;
        assert_eq!(cell.document()["primacy"]["leader"]["address"], "b");
        assert!(matches!(a.try_elect().await, Ok(Election::OtherLeader { .. })));
    }
    assert_eq!(b.submit(push("job")).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn an_idle_leader_finds_out_at_its_next_sign_of_life() {
    let cell = Cell::default();
    let a = broker(&cell, "a");
    elected(&a).await;
    let _b = usurp(&cell, "b").await;
    assert!(matches!(a.ended().await, LeadershipStatus::Ended { why: Ended::Deposed, .. }));
    assert_eq!(a.state(), None);
}

#[tokio::test(start_paused = true)]
async fn who_is_replaced_after_a_lost_answer_does_not_know() {
    let cell = Cell::default();
    let a = Arc::new(broker(&cell, "a"));
    elected(&a).await;
    cell.next(Fault::LoseReply);
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    cell.inner().gate = Some(Arc::clone(&gate));
    let submitting = tokio::spawn({
        let a = Arc::clone(&a);
        async move { a.submit(push("job")).await }
    });
    tokio::task::yield_now().await;
    // Written by this broker and then by another process, before this one can read.
    let theirs = {
        let head = Head {
            token: FencingToken(u64::MAX - 1),
            leader: Some(Broker { id: "b".to_owned(), address: "b".to_owned() }),
            timeout: TIMEOUT.into(),
            beat: 0,
            nonce: "b".to_owned(),
        };
        encode(&Queue::default(), &head).unwrap()
    };
    cell.inner().rivals.push_back(theirs);
    gate.add_permits(10);
    let done = submitting.await.unwrap();
    assert!(matches!(done, Err(SubmitError::Unknown { .. })), "{done:?}");
    assert!(matches!(a.leadership(), LeadershipStatus::Ended { why: Ended::Deposed, .. }));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_could_not_write_for_its_timeout_is_elected_anew_under_another_token() {
    let cell = Cell::default();
    let a = broker(&cell, "a");
    let first = elected(&a).await;
    a.submit(push("kept")).await.unwrap();
    for persistent in [Fault::Unavailable, Fault::LoseRequest] {
        cell.inner().persistent = Some(persistent);
        let done = a.submit(push("lost")).await;
        let is_told = match persistent {
            Fault::Unavailable => matches!(done, Err(SubmitError::NotDone { .. })),
            Fault::LoseReply | Fault::LoseRequest | Fault::Late => {
                matches!(done, Err(SubmitError::Unknown { .. }))
            }
        };
        assert!(is_told, "{done:?}");
        assert!(matches!(a.ended().await, LeadershipStatus::Ended { why: Ended::Expired { .. }, .. }));
        cell.inner().persistent = None;
        assert!(elected(&a).await > first, "nobody else was there, and still it is another leadership");
    }
    assert_eq!(a.state().unwrap().jobs, ["kept"]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_lands_after_its_leadership_does_not_pass_the_next_one() {
    let cell = Cell::default();
    let a = broker(&cell, "a");
    elected(&a).await;
    cell.inner().persistent = Some(Fault::Late);
    assert!(matches!(a.submit(push("late")).await, Err(SubmitError::Unknown { .. })));
    cell.inner().persistent = None;
    let b = broker(&cell, "b");
    assert!(matches!(b.try_elect().await, Ok(Election::OtherLeader { .. })));
    tokio::time::sleep(DRIFT_MAX.lengthen(TIMEOUT.into()).into()).await;
    elected(&b).await;
    assert!(cell.land().iter().all(|landed| *landed == Err(SetError::Conflict)));
    assert_eq!(b.submit(push("job")).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn silence_is_measured_by_the_readers_own_clock_and_only_from_when_it_saw_it() {
    let cell = Cell::default();
    let a = broker(&cell, "a");
    let first = elected(&a).await;
    // The clocks of other machines differ by years, which has no effect.
    let b = broker_ahead(&cell, "b", Duration::from_secs(1 << 30));
    for _ in 0..100 {
        assert!(matches!(b.try_elect().await, Ok(Election::OtherLeader { .. })));
        tokio::time::sleep(TIMEOUT / 4).await;
    }
    // It ends without resigning.
    drop(a);
    let waited = tokio::time::Instant::now();
    let second = loop {
        match b.try_elect().await.unwrap() {
            Election::Elected { token } => break token,
            Election::OtherLeader { remaining, .. } => tokio::time::sleep(remaining).await,
            other @ (Election::AlreadyLeader { .. } | Election::Conflict) => panic!("{other:?}"),
        }
    };
    assert!(second > first);
    // Counted from the last heartbeat, at most a third of the timeout earlier.
    let least = TIMEOUT * 2 / 3;
    assert!(waited.elapsed() >= least && waited.elapsed() < TIMEOUT * 2, "{:?}", waited.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_resignation_hands_over_at_once_with_all_that_was_submitted() {
    let cell = Cell::default();
    let a = Arc::new(broker(&cell, "a"));
    elected(&a).await;
    let submitting = tokio::spawn({
        let a = Arc::clone(&a);
        async move { a.submit(push("last")).await }
    });
    tokio::task::yield_now().await;
    a.resign().await;
    assert_eq!(submitting.await.unwrap(), Ok(1));
    assert!(matches!(a.leadership(), LeadershipStatus::Ended { why: Ended::Resigned, .. }));
    assert!(cell.document()["primacy"]["leader"].is_null());
    let b = broker(&cell, "b");
    elected(&b).await;
    assert_eq!(b.state().unwrap().jobs, ["last"]);
    // It can lead again.
    b.resign().await;
    elected(&a).await;
}

/// There is no next token after it.
const TOO_HIGH: &[u8] =
    br#"{"primacy":{"format":1,"token":18446744073709551615,"leader":null,"timeout_ns":1,"beat":0,"nonce":""}}"#;

#[tokio::test(start_paused = true)]
async fn another_programs_document_is_waited_for_and_its_fields_are_kept() {
    let cell = Cell::default();
    cell.inner().put(br#"{"broker":"0.0.0.0:8080","brokerHeartbeat":1,"jobs":["theirs"],"extra":{"a":[1]}}"#);
    let a = broker(&cell, "a");
    assert!(matches!(a.try_elect().await, Ok(Election::OtherLeader { .. })));
    // The broker of that program is running.
    tokio::time::sleep(TIMEOUT).await;
    cell.inner().put(br#"{"broker":"0.0.0.0:8080","brokerHeartbeat":2,"jobs":["theirs"],"extra":{"a":[1]}}"#);
    assert!(matches!(a.try_elect().await, Ok(Election::OtherLeader { .. })));
    tokio::time::sleep(TIMEOUT * 2).await;
    elected(&a).await;
    assert_eq!(a.submit(push("ours")).await, Ok(2));
    assert_eq!(cell.document()["extra"]["a"][0], 1);
    a.resign().await;
    for wrong in [
        &b"no JSON"[..],
        TOO_HIGH,
        b"[]",
        br#"{"primacy":{"format":2}}"#,
        br#"{"primacy":7}"#,
        br#"{"jobs":3}"#,
    ] {
        cell.inner().put(wrong);
        let refused = broker(&cell, "b").try_elect().await;
        assert!(matches!(refused, Err(LeaderDocumentError::Malformed { .. })), "{refused:?}");
        assert_eq!(cell.inner().content.as_deref(), Some(wrong), "left as it is");
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_copy_that_was_put_back_is_refused_and_a_document_that_was_deleted_begins_above_it() {
    let cell = Cell::default();
    let (a, b) = (broker(&cell, "a"), broker(&cell, "b"));
    let first = elected(&a).await;
    let old = cell.inner().content.clone().unwrap();
    a.resign().await;
    let second = elected(&b).await;
    b.resign().await;
    let newest = cell.inner().content.clone().unwrap();
    cell.inner().put(&old);
    assert!(matches!(b.try_elect().await, Err(LeaderDocumentError::Malformed { .. })));
    cell.inner().put(&newest);
    assert!(elected(&b).await > second);
    b.resign().await;
    b.highest.store(u64::MAX / 2, Ordering::SeqCst);
    cell.inner().content = None;
    assert!(elected(&b).await.0 > u64::MAX / 2);
    assert!(second > first);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_under_a_leader_is_told_as_one_and_a_failure_with_the_stores_words() {
    let cell = Cell::default();
    let a = broker(&cell, "a");
    elected(&a).await;
    cell.inner().content = None;
    assert!(a.submit(push("job")).await.is_err());
    let LeadershipStatus::Ended { why, .. } = a.ended().await else { panic!("it leads nothing") };
    assert_eq!((&why, why.to_string().as_str()), (&Ended::Removed, "the document was deleted"));
    assert_eq!(a.store_troubles(), Vec::new(), "it has answered");
    elected(&a).await;
    cell.inner().persistent = Some(Fault::Unavailable);
    assert!(matches!(a.ended().await, LeadershipStatus::Ended { why: Ended::Expired { .. }, .. }));
    let trouble = a.store_troubles().remove(0);
    assert!(trouble.failures > 0 && trouble.error.contains("away"), "{trouble:?}");
}

#[test]
fn a_state_that_is_too_long_is_refused_before_a_store_does_it_again_and_again() {
    let head =
        Head { token: FencingToken(1), leader: None, timeout: TIMEOUT.into(), beat: 0, nonce: String::new() };
    let whole = encode(&Queue::default(), &head).unwrap();
    assert_eq!(content::encode_within(whole.len(), &Queue::default(), &head), Ok(whole.clone()));
    assert!(content::encode_within(whole.len() - 1, &Queue::default(), &head).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_change_that_cannot_be_written_or_panics_leaves_the_state_as_it_was() {
    let cell = Cell::default();
    let a = broker(&cell, "a");
    elected(&a).await;
    let spoil = |queue: &mut Queue| drop(queue.other.insert("primacy".to_owned(), Value::Null));
    assert!(matches!(a.submit(spoil).await, Err(SubmitError::Rejected { .. })));
    assert_eq!(a.submit(push("job")).await, Ok(1));
    let panicking: Result<(), _> = a.submit(|_: &mut Queue| panic!("on purpose")).await;
    assert_eq!(panicking, Err(SubmitError::NotLeading));
    assert!(matches!(a.ended().await, LeadershipStatus::Ended { .. }));
    elected(&a).await;
    assert_eq!(a.state().unwrap().jobs, ["job"]);
}

/// The write was sent, so its changes must not be reported as not made. A change that arrived too late for it was not
/// made.
#[tokio::test(start_paused = true)]
async fn a_change_whose_write_is_given_up_in_the_middle_is_unknown() {
    let cell = Cell::default();
    let a = broker(&cell, "a");
    elected(&a).await;
    cell.inner().gate = Some(Arc::new(tokio::sync::Semaphore::new(0)));
    let give_up = async {
        tokio::time::sleep(TIMEOUT / 10).await;
        let late = a.submit(push("late"));
        let abort = async { a.term.lock().await.take().expect("a term").abort() };
        tokio::join!(late, abort).0
    };
    let (sent, late) = tokio::join!(a.submit(push("sent")), give_up);
    assert!(matches!(sent, Err(SubmitError::Unknown { .. })), "{sent:?}");
    assert_eq!(late, Err(SubmitError::NotLeading));
}

#[cfg(feature = "file")]
#[tokio::test]
async fn over_a_directory() {
    let directory = std::env::temp_dir().join(format!("primacy-led-{}", std::process::id()));
    let open = || primacy_stores::file::FileDocument::open(&directory, "queue");
    let make =
        |store, address| LeaderDocument::<Queue>::new(store, LeaderDocumentOptions::new(address)).unwrap();
    let (a, b) = (make(open().await.unwrap(), "a"), make(open().await.unwrap(), "b"));
    elected(&a).await;
    assert!(matches!(b.try_elect().await, Ok(Election::OtherLeader { .. })));
    // Far longer than a record may be.
    let long = "x".repeat(1 << 20);
    assert_eq!(a.submit(push(&long)).await, Ok(1));
    a.resign().await;
    elected(&b).await;
    assert_eq!(b.state().unwrap().jobs, [long]);
    b.resign().await;
    std::fs::remove_dir_all(&directory).unwrap();
}

/// The trait is object safe, and the futures are `Send`.
#[test]
fn it_can_be_shared_among_threads() {
    fn is_shared<T: Send + Sync>(_: &T) {}
    fn may_move<T: Send>(_: impl FnOnce(&'static LeaderDocument<Queue>) -> T) {}
    let cell = Cell::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { is_shared(&broker(&cell, "a")) });
    may_move(|led| -> Box<dyn Future<Output = ()> + Send> { Box::new(async { drop(led.ended().await) }) });
}
