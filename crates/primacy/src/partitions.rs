//! A node's part in the partitions, which the nodes distribute among themselves: the partitions of which it is the
//! primary.
//!
//! ```text
//!   the state of this node ──► keeper ──► Partitions::next ──► Primary, one for each partition
//!        ▲                       │  ▲                             │
//!        └── Join, Release ◄─────┘  └──────── dropped ◄───────────┘
//! ```
//!
//! The keeper, a thread of its own, keeps the node's session alive, however busy the program is. It compares the node's copy of
//! the state with the leaderships handed out. All leaderships of a node end with its session, so each costs a few bytes, and no
//! timer, task or message.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use primacy_core::{FencingToken, Instant};
use primacy_kv::command::{Refusal, TIME_TO_LIVE_MAX};
use primacy_kv::partitions::GroupName;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::clock;
use crate::config::{PARTITION_DRAIN, SESSION_MIN};
use crate::elector::Elector;
use crate::metadata::Map;

mod keeper;

use keeper::{Keeper, Setup};

/// The default time to live of a session, in leases of the election: long enough to outlast the silent death of a leader.
const LEASES_IN_A_SESSION: u32 = 3;

/// The options of a node in the partitions; made by [`Elector::partitions`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Joining {
    elector: Elector,
    time_to_live: Option<Duration>,
    drain: Duration,
}

/// This node's part in the partitions. Until this is dropped, the node is up, and may be the primary of some partitions.
///
/// Dropping it leaves: all leaderships [end](Primary::ended), and when they are dropped, other nodes become the primaries.
#[derive(Debug)]
pub struct Partitions {
    events: mpsc::UnboundedReceiver<PartitionEvent>,
    /// Dropped to make the node leave.
    leave: Option<oneshot::Sender<()>>,
    left: oneshot::Receiver<()>,
    elector: Elector,
}

/// A change of the partitions of which a node is the primary.
#[derive(Debug)]
pub enum PartitionEvent {
    /// The node has become the primary of another partition.
    Begun(Primary),
    /// The node must stop as the primary of this partition, see [`Primary::ended`]; for programs without a task for each
    /// partition.
    Ending {
        /// The group.
        group: GroupName,
        /// The partition.
        index: u32,
        /// The token under which the node was the primary.
        token: FencingToken,
        /// The reason.
        end: End,
    },
}

/// A node's time as the primary of one partition, present or past: [`check`](Self::check) tells which.
///
/// Dropping it gives the partition back, and only then another node becomes its primary, with a higher [token](Self::token). So keep
/// it until all work in progress for the partition has ended; it can be shared in an `Arc`.
pub struct Primary {
    cell: Arc<Cell>,
    dropped: mpsc::UnboundedSender<Arc<Cell>>,
}

/// The reason why a node stops being the primary of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The partition is taken back: for another node, or because its group is being deleted.
    TakenBack,
    /// The node leaves.
    Left,
    /// No leader has kept the node's session alive in time.
    Expired,
    /// The node's part in the election has ended.
    Halted,
}

/// Error: this node is not the primary of a partition any more, or is about to stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node is not the primary of partition {index} of {group} any more: {}", .end.map_or("its time has passed", End::describe))]
pub struct PartitionLost {
    /// The group.
    pub group: GroupName,
    /// The partition.
    pub index: u32,
    /// The reason, if it is known; `None` if the session expired and nothing else is known.
    pub end: Option<End>,
}

/// The reason why a node cannot take part in the partitions, or no longer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionsError {
    /// The elector was built without metadata.
    #[error("this elector keeps no metadata, and so knows no partitions; build it with `metadata`")]
    NoMetadata,
    /// A session needs a leader whose lease ends by itself.
    #[error("partitions need an election whose leaders have a lease (safety = lease)")]
    NoLease,
    /// A witness votes and does nothing else.
    #[error("this node is a witness: it votes, and is the primary of nothing")]
    Witness,
    /// The time to live is out of range.
    #[error("a session of {0:?} cannot be kept: from {SESSION_MIN:?} to 285 years are allowed")]
    TimeToLive(Duration),
    /// This node has joined already, in this process.
    #[error("this node takes part in the partitions already; there is one `Partitions` for all groups")]
    Joined,
    /// The replicated state refused the session.
    #[error("this node cannot be up: {0}")]
    Refused(Refusal),
    /// The thread that keeps the session could not be started.
    #[error("the thread that keeps the session could not be started: {0}")]
    Thread(String),
    /// The node's part in the election has ended, or it has left.
    #[error("this node takes no part in the partitions any more")]
    Closed,
}

impl End {
    /// Describes the reason.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::TakenBack => "it was wanted back",
            Self::Left => "the node leaves",
            Self::Expired => "the node's session was not kept alive in time",
            Self::Halted => "the node cannot go on",
        }
    }
}

impl Elector {
    /// Prepares to take part in the partitions, which the nodes distribute among themselves: this node may become the
    /// primary of some.
    ///
    /// ```no_run
    /// # async fn example(elector: primacy::Elector) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut partitions = elector.partitions().join().await?;
    /// loop {
    ///     let primary = partitions.next().await?;
    ///     tokio::spawn(async move {
    ///         let token = primary.token(); // For every resource that is written to.
    ///         // Serve the partition `primary.index()` of the group `primary.group()`, with `primary.check()` right before each
    ///         // act, until it shall stop:
    ///         primary.ended().await;
    ///         // Finish what is under way. When `primary` is dropped, another node becomes the primary.
    ///         # let _ = token;
    ///     });
    /// }
    /// # }
    /// ```
    pub fn partitions(&self) -> Joining {
        Joining { elector: self.clone(), time_to_live: None, drain: PARTITION_DRAIN }
    }
}

impl Joining {
    /// The time for which this node stays a primary, and counts as up, after its session was last kept alive. Default: three
    /// leases. It should be longer than the time until another leader is active when one dies: otherwise all nodes lose their
    /// partitions whenever that happens.
    pub const fn time_to_live(mut self, time_to_live: Duration) -> Self {
        self.time_to_live = Some(time_to_live);
        self
    }

    /// The time for the work of a partition to end after the partition is taken back, before the node warns that it has not.
    /// Default: 10 s. However long it takes, the partition is kept until its [`Primary`] is dropped, or the node's session ends:
    /// otherwise the next primary would work at the same time.
    pub const fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Joins: from then on this node is up.
    ///
    /// Cancel safe: if the future is dropped, the node does not join, or leaves.
    ///
    /// # Errors
    /// [`PartitionsError`]; waiting for a leader is no error.
    pub async fn join(self) -> Result<Partitions, PartitionsError> {
        let Self { elector, time_to_live, drain } = self;
        let map: Map = elector.map().ok_or(PartitionsError::NoMetadata)?.clone();
        if !elector.has_lease() {
            return Err(PartitionsError::NoLease);
        }
        if elector.is_witness() {
            return Err(PartitionsError::Witness);
        }
        let timers = elector.timers();
        let time_to_live = time_to_live.unwrap_or(timers.lease * LEASES_IN_A_SESSION);
        if time_to_live < SESSION_MIN || primacy_core::Duration::from(time_to_live) > TIME_TO_LIVE_MAX {
            return Err(PartitionsError::TimeToLive(time_to_live));
        }
        let place = elector.take_place().ok_or(PartitionsError::Joined)?;
        let (tell, events) = mpsc::unbounded_channel();
        let (leave, leaving) = oneshot::channel();
        let (gone, left) = oneshot::channel();
        let (ready, joined) = oneshot::channel();
        let setup = Setup {
            map,
            me: elector.identity().node,
            time_to_live,
            drain,
            end_margin: timers.drain.min(time_to_live / 4),
            drift_max: timers.drift_max,
            elector: elector.clone(),
        };
        let thread = |error: std::io::Error| PartitionsError::Thread(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(thread)?;
        std::thread::Builder::new()
            .name("primacy-keeper".to_owned())
            .spawn(move || {
                runtime.block_on(Keeper::new(setup, tell).keep(leaving, ready));
                drop(place);
                // The caller may have stopped waiting.
                let _ = gone.send(());
            })
            .map_err(thread)?;
        let partitions = Partitions { events, leave: Some(leave), left, elector };
        joined.await.unwrap_or(Err(PartitionsError::Closed))?;
        Ok(partitions)
    }
}

impl Partitions {
    /// The next partition of which this node has become the primary.
    ///
    /// Cancel safe: a partition that a dropped future did not return is returned by the next call, or given back.
    ///
    /// # Errors
    /// [`PartitionsError::Closed`], if there will be no more.
    pub async fn next(&mut self) -> Result<Primary, PartitionsError> {
        loop {
            if let PartitionEvent::Begun(primary) = self.next_event().await? {
                return Ok(primary);
            }
        }
    }

    /// The next partition of which this node has become the primary, or must stop as the primary; for programs without a task
    /// for each partition.
    ///
    /// Cancel safe: an event that a dropped future did not return is returned by the next call; a new partition may be given
    /// back instead.
    ///
    /// # Errors
    /// [`PartitionsError::Closed`], if there will be no more.
    pub async fn next_event(&mut self) -> Result<PartitionEvent, PartitionsError> {
        loop {
            match self.events.recv().await.ok_or(PartitionsError::Closed)? {
                // The partition was taken back before the program got it, and the keeper has given it back.
                PartitionEvent::Begun(primary) if !primary.cell.hand_over() => {}
                event @ (PartitionEvent::Begun(_) | PartitionEvent::Ending { .. }) => return Ok(event),
            }
        }
    }

    /// The elector with which this node has joined.
    #[must_use]
    pub const fn elector(&self) -> &Elector {
        &self.elector
    }

    /// Leaves in order: all leaderships end, and when they are dropped, other nodes become the primaries. Returns when that is
    /// done, so not before the last [`Primary`] is dropped.
    ///
    /// Dropping the future does not cancel the leave.
    pub async fn leave(mut self) {
        self.events.close();
        while self.events.try_recv().is_ok() {} // What nobody has been told of has nothing to drain.
        self.leave = None;
        // An error means that the keeper has ended already.
        let _ = (&mut self.left).await;
    }
}

impl Primary {
    /// The name of the group.
    #[must_use]
    pub fn group(&self) -> &str {
        self.cell.group.as_str()
    }

    /// The index of the partition in the group, from 0.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.cell.index
    }

    /// The fencing token, to present to every resource with every request for this partition. It is higher than that of
    /// every earlier primary of the partition, also in earlier groups of the same name.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        FencingToken(self.cell.number)
    }

    /// Checks that this node may act as the primary now. Call it right before each act, and after each read on which the act
    /// depends.
    ///
    /// It takes no lock and makes no request: it compares the boot clock with the end of the node's session.
    ///
    /// # Errors
    /// [`PartitionLost`] from the moment the work must stop, and in any case from [`valid_until`](Self::valid_until) on.
    pub fn check(&self) -> Result<(), PartitionLost> {
        let cell = &self.cell;
        let end = cell.ended_for();
        if end.is_none() && clock::now().as_nanos() < cell.right.0.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(PartitionLost { group: cell.group.clone(), index: cell.index, end })
    }

    /// The time until which this node is the primary unless its session is kept alive, on the clock of [`clock::now`]. It is the
    /// same for all partitions of a node, and moves with each keep-alive.
    #[must_use]
    pub fn valid_until(&self) -> Instant {
        Instant::from_nanos(self.cell.right.0.load(Ordering::SeqCst))
    }

    /// Resolves when the work must stop, with the reason. From then on [`check`](Self::check) fails; drop the primary when the
    /// work has stopped.
    ///
    /// Cancel safe.
    pub async fn ended(&self) -> End {
        self.cell.until(|state| state.end).await
    }

    /// Resolves when the leadership is over: the session of this node has ended, and another node may be the primary.
    ///
    /// Cancel safe.
    pub async fn lost(&self) -> End {
        self.cell.until(|state| state.end.filter(|_| state.over)).await
    }
}

impl fmt::Debug for Primary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Primary({}/{} under {})", self.cell.group, self.cell.index, self.cell.number)
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        self.cell.end(End::Left);
        // If the keeper has ended, so has the session.
        let _ = self.dropped.send(Arc::clone(&self.cell));
    }
}

/// The time until which this node may act, in nanoseconds of the boot clock; shared by all partitions of one session.
#[derive(Debug)]
pub(super) struct Right(AtomicU64);

/// A leadership of a partition, shared by the keeper and the program.
pub(super) struct Cell {
    group: GroupName,
    index: u32,
    number: u64,
    right: Arc<Right>,
    state: AtomicU8,
    changed: Notify,
}

/// The state of a leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    handed_over: bool,
    end: Option<End>,
    over: bool,
}

mod bit {
    pub(super) const HANDED_OVER: u8 = 1;
    pub(super) const OVER: u8 = 2;
    /// The reason of the end, in the bits from this one on.
    pub(super) const END: u8 = 4;
}

const ENDS: [End; 4] = [End::TakenBack, End::Left, End::Expired, End::Halted];

impl State {
    fn of(bits: u8) -> Self {
        let end = usize::from(bits / bit::END).checked_sub(1).and_then(|place| ENDS.get(place).copied());
        Self { handed_over: bits & bit::HANDED_OVER != 0, end, over: bits & bit::OVER != 0 }
    }
}

impl Cell {
    fn new(group: GroupName, index: u32, number: u64, right: Arc<Right>) -> Self {
        Self { group, index, number, right, state: AtomicU8::new(0), changed: Notify::new() }
    }

    fn state(&self) -> State {
        State::of(self.state.load(Ordering::SeqCst))
    }

    fn ended_for(&self) -> Option<End> {
        self.state().end
    }

    /// Marks that the program has it, and returns true, unless it has ended before.
    fn hand_over(&self) -> bool {
        let hand = |bits: u8| (bits / bit::END == 0).then_some(bits | bit::HANDED_OVER);
        self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, hand).is_ok()
    }

    /// Marks that the work must stop. Returns true if the program has the leadership; if it was never handed out, it is over at
    /// once.
    fn end(&self, end: End) -> bool {
        let place = ENDS.iter().position(|&one| one == end).expect("one of them");
        let code = u8::try_from(place + 1).expect("there are few") * bit::END;
        let ends = |bits: u8| (bits / bit::END == 0).then_some(bits | code);
        if self.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, ends).is_ok() {
            self.changed.notify_waiters();
        }
        self.state().handed_over
    }

    /// Marks that the leadership is over.
    fn finish(&self) {
        self.state.fetch_or(bit::OVER, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    async fn until(&self, reached: impl Fn(State) -> Option<End>) -> End {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(end) = reached(self.state()) {
                return end;
            }
            changed.await;
        }
    }
}

impl Right {
    fn until(end: Instant) -> Self {
        Self(AtomicU64::new(end.as_nanos()))
    }

    fn end(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::SeqCst))
    }

    /// Moves the end of the right, unless it was revoked.
    fn extend(&self, end: Instant) {
        let later = |known: u64| (known != 0 && known < end.as_nanos()).then_some(end.as_nanos());
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
    }

    /// Ends the right at once.
    fn revoke(&self) {
        self.0.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;
