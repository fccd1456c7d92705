//! The keeper: keeps a node's session alive, hands out the partitions of which the node is the primary, and gives them back.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::{Drift, FencingToken, Instant, NodeId};
use primacy_kv::command::{Command, Outcome, Refusal, SessionId};
use primacy_kv::partitions::{self, GroupName, Plan, Ranges, Run};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::{Cell, End, PartitionEvent, PartitionsError, Primary, Right};
use crate::clock;
use crate::config::{PARTITION_PAUSE, PARTITION_PAUSE_MAX};
use crate::disk;
use crate::elector::Elector;
use crate::metadata::{Map, MapError};

/// The number of keep-alives within the time to live of a session.
const RENEWALS: u32 = 6;
/// The most partitions in one release, and the most drops processed at once.
const RELEASE_MAX: usize = 20_000;

/// The parameters of a keeper.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) map: Map,
    pub(super) me: NodeId,
    pub(super) time_to_live: Duration,
    pub(super) drain: Duration,
    /// The margin before the end of the session's right at which the node's work must stop.
    pub(super) end_margin: Duration,
    pub(super) drift_max: Drift,
    /// Keeps the node in the election.
    pub(super) elector: Elector,
}

/// The event that woke the keeper.
enum Woken {
    /// The state of the partitions has changed.
    Step,
    /// Primaries were dropped, and are in `list`.
    Dropped,
    KeptAlive(Instant, Result<Option<Duration>, MapError>),
    Released(Result<Outcome, MapError>),
    Deadline,
    Leave,
}

/// The state of one session.
#[derive(Debug)]
struct Session {
    id: SessionId,
    right: Arc<Right>,
    /// The end of the right is near, and all work was asked to stop.
    stopping: bool,
}

pub(super) struct Keeper {
    setup: Setup,
    /// The channel of events to the program.
    tell: mpsc::UnboundedSender<PartitionEvent>,
    drop_to: mpsc::UnboundedSender<Arc<Cell>>,
    dropped: mpsc::UnboundedReceiver<Arc<Cell>>,
    list: Vec<Arc<Cell>>,
    /// The partitions that the program has, or will get, and has not dropped yet.
    acting: HashMap<GroupName, BTreeMap<u32, Arc<Cell>>>,
    /// The stopped partitions, to be given back, each with its number.
    back: BTreeMap<(GroupName, u32), u64>,
    /// The partitions that were asked to stop, each with the time of its warning, in the order of the times.
    draining: VecDeque<(Instant, Arc<Cell>)>,
    renewals: JoinSet<(Instant, Result<Option<Duration>, MapError>)>,
    renew_at: Instant,
    release: JoinSet<Result<Outcome, MapError>>,
    steps: watch::Receiver<u64>,
    /// The id of the last requested session; it may begin even if the answer was never received.
    asked_for: Option<SessionId>,
    /// The pending answer to that request.
    joining: Option<JoinHandle<Result<Outcome, MapError>>>,
}

impl Keeper {
    pub(super) fn new(setup: Setup, tell: mpsc::UnboundedSender<PartitionEvent>) -> Self {
        let (drop_to, dropped) = mpsc::unbounded_channel();
        let steps = setup.map.steps();
        Self {
            setup,
            tell,
            drop_to,
            dropped,
            list: Vec::new(),
            acting: HashMap::new(),
            back: BTreeMap::new(),
            draining: VecDeque::new(),
            renewals: JoinSet::new(),
            renew_at: Instant::NEVER,
            release: JoinSet::new(),
            steps,
            asked_for: None,
            joining: None,
        }
    }

    /// Keeps a session, and another one when it has ended, until the node leaves.
    pub(super) async fn keep(
        mut self,
        mut leave: oneshot::Receiver<()>,
        ready: oneshot::Sender<Result<(), PartitionsError>>,
    ) {
        let mut ready = Some(ready);
        let mut pause = Duration::ZERO;
        loop {
            let joined = tokio::select! {
                biased;
                _ = &mut leave => return self.leave_early().await,
                joined = self.join(ready.is_some(), pause) => joined,
            };
            let mut session = match joined {
                Ok(session) => session,
                Err(error) => {
                    if let Some(ready) = ready {
                        let _ = ready.send(Err(error));
                    }
                    return;
                }
            };
            // The caller may have stopped waiting; then the node leaves.
            if let Some(ready) = ready.take() {
                let _ = ready.send(Ok(()));
            }
            let began = tokio::time::Instant::now();
            match self.hold(&mut session, &mut leave).await {
                Held::Ended => {
                    pause = pause_after(pause, began.elapsed(), self.setup.time_to_live);
                    self.forget(End::Expired);
                    self.asked_for = None; // It is not to be left any more.
                }
                Held::Left => {
                    self.forget(End::Left);
                    return self.leave(session.id).await;
                }
                Held::Halted => return self.forget(End::Halted),
            }
        }
    }

    // ── joining and leaving ─────────────────────────────────────────────────────────────────────────────────

    /// Begins a session after a pause. A refusal of the first attempt is reported to the program.
    async fn join(&mut self, first: bool, pause: Duration) -> Result<Session, PartitionsError> {
        tokio::time::sleep(pause).await;
        loop {
            // An earlier session of this process: its beginning was not confirmed, or it was abandoned.
            if let Some(former) = self.my_session() {
                let _ = self.write(partitions::Command::Leave { session: former }).await;
            }
            let Some(id) = draw() else { return Err(PartitionsError::Closed) };
            self.asked_for = Some(id);
            let asked_at = clock::now();
            let time_to_live = self.setup.time_to_live.into();
            let join = self.write(partitions::Command::Join { session: id, time_to_live });
            let joined = self.joining.insert(tokio::spawn(join)).await;
            self.joining = None;
            match joined.unwrap_or(Err(MapError::Closed)) {
                Ok(Outcome { result: Ok(_), .. }) => {
                    let right = Right::until(self.counted(asked_at, self.setup.time_to_live));
                    self.renew_at = clock::now();
                    return Ok(Session { id, right: Arc::new(right), stopping: false });
                }
                Err(MapError::Closed) => return Err(PartitionsError::Closed),
                // A former session, which will end by itself, or which this node's copy does not show yet.
                Ok(Outcome { result: Err(Refusal::Partitions(partitions::Refusal::NodeUp)), .. }) => {}
                Ok(Outcome { result: Err(Refusal::SessionExists), .. }) => {}
                Ok(Outcome { result: Err(refusal), .. }) if first => {
                    return Err(PartitionsError::Refused(refusal));
                }
                Ok(Outcome { result: Err(refusal), .. }) => {
                    tracing::warn!(%refusal, "this node cannot be up, and asks again");
                }
                Err(MapError::Timeout | MapError::AnswerLost | MapError::Unreadable) => {}
                Err(MapError::Busy | MapError::Voter { .. }) => {}
            }
            tokio::time::sleep(PARTITION_PAUSE).await;
        }
    }

    /// The end of a right: counted from before the request, and shortened by the most that the leader's clock may be faster.
    fn counted(&self, asked_at: Instant, time_to_live: Duration) -> Instant {
        asked_at.after(self.setup.drift_max.shorten(time_to_live.into()))
    }

    fn my_session(&self) -> Option<SessionId> {
        let state = self.setup.map.state();
        let of_this_life =
            state.partitions().life_of(self.setup.me) == Some(self.setup.elector.identity().incarnation);
        of_this_life.then(|| state.partitions().session_of(self.setup.me)).flatten()
    }

    fn write(
        &self,
        command: partitions::Command,
    ) -> impl Future<Output = Result<Outcome, MapError>> + Send + use<> {
        let map = self.setup.map.clone();
        async move { map.write(Command::Partitions(command)).await }
    }

    /// Ends the session, so that other nodes get its partitions at once.
    async fn leave(&mut self, session: SessionId) {
        let left = self.write(partitions::Command::Leave { session });
        // Without a leader for that long, the session ends by itself.
        let _ = tokio::time::timeout(self.setup.time_to_live, left).await;
    }

    /// Leaves before it is known whether the node has joined. A lost join request is sent once more, and may then be applied after a
    /// later request. So its answer is awaited, for as long as that to the leave request. A session without an answer in that time
    /// may begin later still, and then ends by itself.
    async fn leave_early(&mut self) {
        if let Some(joining) = self.joining.take() {
            let _ = tokio::time::timeout(self.setup.time_to_live, joining).await;
        }
        if let Some(session) = self.asked_for {
            self.leave(session).await;
        }
        // An earlier join request may have succeeded after all.
        if let Some(session) = self.my_session().filter(|&session| self.asked_for != Some(session)) {
            self.leave(session).await;
        }
    }

    // ── while the session is alive ──────────────────────────────────────────────────────────────────────────

    async fn hold(&mut self, session: &mut Session, leave: &mut oneshot::Receiver<()>) -> Held {
        let mut leaving = false;
        self.steps.mark_changed();
        loop {
            if leaving && self.acting.is_empty() {
                return Held::Left;
            }
            self.give_back(session);
            let woken = self.wait(session, leave, leaving).await;
            let now = clock::now();
            match woken {
                Woken::Step if leaving => {}
                Woken::Step => {
                    if !self.compare(session, now) {
                        return Held::Ended;
                    }
                }
                Woken::Dropped => self.take_dropped(),
                Woken::KeptAlive(asked_at, Ok(Some(time_to_live))) => {
                    session.right.extend(self.counted(asked_at, time_to_live));
                    let lives = now < session.right.end().before(self.setup.end_margin.into());
                    if session.stopping && lives {
                        // Work that was asked to stop still stops; partitions that the node has not begun may begin now.
                        session.stopping = false;
                        self.steps.mark_changed();
                    }
                }
                Woken::KeptAlive(_, Ok(None)) if leaving => return Held::Left,
                Woken::KeptAlive(_, Ok(None)) => return Held::Ended,
                Woken::KeptAlive(_, Err(MapError::Closed)) => return Held::Halted,
                Woken::KeptAlive(_, Err(_)) => {} // Asked again at the next renewal.
                Woken::Released(Err(MapError::Closed)) => return Held::Halted,
                Woken::Released(_) => {} // What is not given back yet is still in the list.
                Woken::Deadline => self.on_deadline(session, now),
                Woken::Leave => {
                    leaving = true;
                    self.end_all(End::Left, now.after(self.setup.drain.into()));
                }
            }
        }
    }

    async fn wait(&mut self, session: &Session, leave: &mut oneshot::Receiver<()>, leaving: bool) -> Woken {
        let deadline = self.deadline(session);
        let wait = Duration::from(deadline.since(clock::now()));
        tokio::select! {
            biased;
            Some(kept) = self.renewals.join_next() => match kept {
                Ok((asked_at, answer)) => Woken::KeptAlive(asked_at, answer),
                Err(_) => Woken::Deadline,
            },
            () = tokio::time::sleep(wait) => Woken::Deadline,
            _ = &mut *leave, if !leaving => Woken::Leave,
            Some(released) = self.release.join_next() => match released {
                Ok(answer) => Woken::Released(answer),
                Err(_) => Woken::Deadline,
            },
            Ok(()) = self.steps.changed() => Woken::Step,
            _ = self.dropped.recv_many(&mut self.list, RELEASE_MAX) => Woken::Dropped,
        }
    }

    fn deadline(&self, session: &Session) -> Instant {
        let stop_at = match session.stopping {
            true => Instant::NEVER,
            false => session.right.end().before(self.setup.end_margin.into()),
        };
        let drained = self.draining.front().map_or(Instant::NEVER, |&(at, _)| at);
        self.renew_at.min(stop_at).min(drained)
    }

    fn on_deadline(&mut self, session: &mut Session, now: Instant) {
        if now >= self.renew_at {
            let interval = self.setup.time_to_live / RENEWALS;
            self.renew_at = now.after(interval.into());
            if self.renewals.len() > usize::try_from(2 * RENEWALS).expect("a few") {
                self.renewals = JoinSet::new();
            }
            let (map, id) = (self.setup.map.clone(), session.id);
            // Each answer counts from its own request, whichever comes first.
            self.renewals.spawn(async move { (now, map.keep_alive(id).await) });
        }
        if !session.stopping && now >= session.right.end().before(self.setup.end_margin.into()) {
            session.stopping = true;
            self.end_all(End::Expired, now.after(self.setup.drain.into()));
        }
        let mut late = Vec::new();
        while let Some(&(at, _)) = self.draining.front()
            && now >= at
        {
            let (_, cell) = self.draining.pop_front().expect("it was there");
            late.extend(self.is_acting(&cell).then_some(cell));
        }
        if let Some(first) = late.first() {
            // The session is kept alive until the work has ended, as a lead is: otherwise the next primary would work
            // at the same time.
            tracing::warn!(
                partitions = late.len(),
                group = %first.group,
                index = first.index,
                "the work for partitions has not ended in its time to drain; they are kept until it has, or until the session of \
                 this node ends"
            );
        }
    }

    fn is_acting(&self, cell: &Arc<Cell>) -> bool {
        let known = self.acting.get(&cell.group).and_then(|group| group.get(&cell.index));
        known.is_some_and(|known| Arc::ptr_eq(known, cell))
    }

    // ── the partitions of the node ──────────────────────────────────────────────────────────────────────────

    /// Compares the leaderships handed out with this node's copy of the state. Returns false if the session is over.
    fn compare(&mut self, session: &Session, now: Instant) -> bool {
        let me = self.setup.me;
        let runs = {
            let state = self.setup.map.state();
            if state.partitions().session_of(me) != Some(session.id) {
                return false;
            }
            state.partitions().runs_with_primary(me)
        };
        let may_begin = !session.stopping && now < session.right.end();
        for run in runs {
            self.compare_run(session, now, &run, may_begin);
        }
        true
    }

    fn compare_run(&mut self, session: &Session, now: Instant, run: &Run, may_begin: bool) {
        let number = run.partition.number;
        let stays = run.partition.plan == Plan::Stays;
        let acting = self.acting.entry(run.group.clone()).or_default();
        let mut ending = Vec::new();
        for index in run.range.clone() {
            if let Some(cell) = acting.get(&index) {
                if !stays && cell.ended_for().is_none() {
                    ending.push(Arc::clone(cell));
                }
            } else if self.back.get(&(run.group.clone(), index)) == Some(&number) {
                // It waits to be given back.
            } else if !stays {
                self.back.insert((run.group.clone(), index), number);
            } else if may_begin {
                let cell = Cell::new(run.group.clone(), index, number, Arc::clone(&session.right));
                let cell = Arc::new(cell);
                let primary = Primary { cell: Arc::clone(&cell), dropped: self.drop_to.clone() };
                acting.insert(index, cell);
                // If the program has dropped the receiver, this drops the primary, which gives the partition back.
                let _ = self.tell.send(PartitionEvent::Begun(primary));
            }
        }
        if acting.is_empty() {
            self.acting.remove(&run.group);
        }
        for cell in ending {
            self.end_one(&cell, End::TakenBack, now.after(self.setup.drain.into()));
        }
    }

    /// Asks the work of one partition to stop; at `warn_at` the node warns if it has not.
    fn end_one(&mut self, cell: &Arc<Cell>, end: End, warn_at: Instant) {
        if cell.end(end) {
            let (group, index) = (cell.group.clone(), cell.index);
            // If the program has dropped the receiver, the node is about to leave.
            let _ = self.tell.send(PartitionEvent::Ending {
                group,
                index,
                token: FencingToken(cell.number),
                end,
            });
            let place = self.draining.partition_point(|&(at, _)| at <= warn_at);
            self.draining.insert(place, (warn_at, Arc::clone(cell)));
        } else {
            self.stop(cell);
        }
    }

    fn end_all(&mut self, end: End, warn_at: Instant) {
        let cells: Vec<Arc<Cell>> = self.acting.values().flat_map(BTreeMap::values).cloned().collect();
        for cell in cells {
            self.end_one(&cell, end, warn_at);
        }
    }

    /// Ends the leadership of one partition, and queues the partition to be given back.
    fn stop(&mut self, cell: &Arc<Cell>) {
        if !self.is_acting(cell) {
            return;
        }
        cell.finish();
        let group = self.acting.get_mut(&cell.group).expect("it was found just now");
        group.remove(&cell.index);
        if group.is_empty() {
            self.acting.remove(&cell.group);
        }
        self.back.insert((cell.group.clone(), cell.index), cell.number);
    }

    fn take_dropped(&mut self) {
        for cell in std::mem::take(&mut self.list) {
            self.stop(&cell);
        }
        while self.draining.front().is_some_and(|(_, cell)| cell.state().over) {
            self.draining.pop_front();
        }
    }

    /// Ends all leaderships of a session that is over.
    fn forget(&mut self, end: End) {
        for cell in self.acting.values().flat_map(BTreeMap::values) {
            cell.right.revoke();
            cell.end(end);
            cell.finish();
        }
        self.acting.clear();
        self.back.clear();
        self.draining.clear();
        self.renewals = JoinSet::new();
        self.release = JoinSet::new();
    }

    /// Gives back the stopped partitions, one release at a time. It names the step of this node's copy of the state, so that a
    /// late release takes no partition that the node has received since.
    fn give_back(&mut self, session: &Session) {
        if self.back.is_empty() || !self.release.is_empty() {
            return;
        }
        let (up_to, ranges) = {
            let state = self.setup.map.state();
            let (known, me) = (state.partitions(), self.setup.me);
            self.back.retain(|(group, index), number| {
                let partition = known.partition(group, *index);
                partition.is_some_and(|known| known.primary == Some(me) && known.number == *number)
            });
            (known.step(), ranges_of(self.back.keys().take(RELEASE_MAX)))
        };
        if !ranges.is_empty() {
            let release = partitions::Command::Release { session: session.id, up_to, ranges };
            self.release.spawn(self.write(release));
        }
    }
}

/// The reason why `hold` returned.
enum Held {
    /// The session is over; another one may follow.
    Ended,
    /// The node leaves.
    Left,
    /// The node's part in the election has ended.
    Halted,
}

/// The pause before the next session, after one that lasted `lived` and that a pause of `before` preceded. It doubles while sessions
/// end early. For example, a guardian may wrongly report this process as dead; then every session of it is ended at once, and other
/// nodes give up partitions for it each time.
fn pause_after(before: Duration, lived: Duration, time_to_live: Duration) -> Duration {
    let in_vain = lived < time_to_live;
    if in_vain { (before * 2).clamp(PARTITION_PAUSE, PARTITION_PAUSE_MAX) } else { PARTITION_PAUSE }
}

/// Groups partitions, given in their order, into ranges.
fn ranges_of<'a>(partitions: impl Iterator<Item = &'a (GroupName, u32)>) -> Vec<Ranges> {
    let mut all: Vec<Ranges> = Vec::new();
    for (group, index) in partitions {
        if all.last().is_none_or(|last| last.group != *group) {
            all.push(Ranges { group: group.clone(), ranges: Vec::new() });
        }
        let ranges = &mut all.last_mut().expect("it was pushed if there was none").ranges;
        match ranges.last_mut().filter(|last| last.end == *index) {
            Some(last) => last.end += 1,
            None => ranges.push(*index..index + 1),
        }
    }
    all
}

/// Draws a random session id. A collision with another session is refused. `None` if the system returned no random
/// number.
fn draw() -> Option<SessionId> {
    loop {
        let drawn = u64::from_be_bytes(disk::entropy().ok()?);
        if let Some(session) = SessionId::new(drawn.cast_signed()) {
            return Some(session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_ended_at_once_again_and_again_is_begun_less_and_less_often() {
        let (time_to_live, short) = (Duration::from_secs(10), Duration::from_millis(3));
        let mut pause = Duration::ZERO;
        let pauses = [0; 12].map(|_| {
            pause = pause_after(pause, short, time_to_live);
            pause
        });
        assert_eq!(pauses[..3], [200, 400, 800].map(Duration::from_millis));
        assert_eq!(pauses[11], PARTITION_PAUSE_MAX);
        assert_eq!(
            pause_after(pause, time_to_live, time_to_live),
            PARTITION_PAUSE,
            "one that has lived is no such"
        );
    }
}
