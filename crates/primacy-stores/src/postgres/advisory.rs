//! `?recipe=advisory`: a session advisory lock, and a row that names its holder and counts the leaderships.
//!
//! Promises  the first has the lock, and a token that is higher than all before it; a session ends after its timeout if it is not kept
//!           alive, and at once if its process is killed; [`changed`](Sessions::changed) within [`CHANGE_BOUND`](super::CHANGE_BOUND), and
//!           at once when a leader leaves.
//! Assumes   the same as the lease over PostgreSQL; a server of version 14 or later, and no pooler between it and this process.
//! Leaves    everything else in the database as it is, other advisory locks too.
//!
//! A session is a connection ([`lock_session`]), and the server frees its locks when it ends: because the process has died, or sent nothing
//! for too long (`idle_session_timeout`), or because the connection broke or the server was restarted. The owner knows only of the first
//! two. So **the lock alone does not make a candidate the first.** The row of the previous holder states whether that holder has given the
//! lock back, which it does when it has stopped, or its guardian does when it is gone. If not, the next candidate keeps the lock and waits
//! as long as the previous holder may believe that it leads: from the time at which it got the lock itself, for the timeout in the row.
//!
//! The server processes the requests of a session in order, so no request takes effect after a later one. A write names the version of the
//! row that it replaces, as with the lease, and so no token is given twice, whatever happens to locks.
//!
//! There is no queue: a waiting candidate has no entry in the store, and the first one that requests the free lock gets it.

mod lock_session;
mod statements;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use primacy_core::election::lease::{Holder, Record, ResignRequest};
use primacy_core::election::session::{Entry, QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity, Incarnation, Instant, NodeId};
use tokio::sync::watch;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use self::lock_session::{LockSession, Pool, User};
use self::statements::IDLE_TIMEOUT;
pub(super) use self::statements::LockStatements;
use super::link::{Link, Parameter};
use super::refusal::Failure;
use super::settings::Settings;
use super::table::Table;
use crate::changes::Changes;
use crate::clock;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::record;
use crate::register::Pending;
use crate::runtime;
use crate::sessions::{Begun, SessionError, Sessions};
use crate::shared_connections::{Share, SharedConnections};
use crate::version_number;

/// The maximum number of attempts of an operation when other clients change the row. In each failed attempt, another client has won.
const ROUNDS_MAX: usize = 8;

/// The time between taking the lock and writing the row: a round trip and a commit, of which the server notifies.
const BETWEEN: Duration = Duration::from_millis(100);

/// The number of remembered sessions by which a handle may have written itself into the row.
const WROTE_BY_MAX: usize = 16;

/// The pause between attempts to give back the lock of a dropped handle.
const TIDY_PAUSE: Duration = Duration::from_millis(500);

const POOLED: &str = "a pooler stands in between, which may lend the connection that has the lock to others. Name the server \
                      itself, or leave `recipe=advisory` out: a lease goes through a pooler";

const TOO_OLD: &str = "the server is older than PostgreSQL 14, and keeps a session of which nothing is heard any more. Leave \
                       `recipe=advisory` out: a lease needs nothing of this";

static CONNECTIONS: SharedConnections<Connected> = SharedConnections::new();

/// The state that elections of one process share.
#[derive(Clone, Debug)]
struct Connected {
    /// For requests without a session: those of observers, guardians and operators.
    link: Arc<Link>,
    pool: Arc<Pool>,
}

/// A handle on one election.
#[derive(Debug)]
pub(super) struct AdvisorySessions {
    share: Share<Connected>,
    task: Task,
}

/// The parts of a handle that a request needs, which continues when the handle is dropped.
#[derive(Clone, Debug)]
struct Task {
    connected: Connected,
    user: User,
    /// The table may be made.
    create: bool,
    changes: Arc<Changes>,
    own: Arc<Mutex<Own>>,
    /// Notified when [`Sessions::changed`] may have to wait for something else.
    moved: Arc<watch::Sender<()>>,
}

/// The state of a handle.
#[derive(Debug, Default)]
struct Own {
    /// The session with which it has requested the lock.
    lock_session: Option<Arc<LockSession>>,
    /// The time from which that session is known to have had it.
    locked_at: Option<Instant>,
    /// The time until which the previous holder may believe that it leads.
    wait_until: Option<Instant>,
    /// The version of the row that this handle has written as the first, and its record.
    first: Option<(i64, Record)>,
    /// The numbers of the sessions by which this handle may have written itself into the row.
    wrote_by: Vec<u64>,
    /// The highest token that was seen.
    spent: FencingToken,
}

impl Own {
    fn may_have_written_by(&mut self, session: u64) {
        if !self.wrote_by.contains(&session) {
            self.wrote_by.push(session);
            let too_many = self.wrote_by.len().saturating_sub(WROTE_BY_MAX);
            self.wrote_by.drain(..too_many);
        }
    }

    /// Forgets the present session, but not the facts that outlast it.
    fn forget_session(&mut self) {
        *self = Self { wrote_by: std::mem::take(&mut self.wrote_by), spent: self.spent, ..Self::default() };
    }
}

/// The answer to a request for the lock.
struct Taken {
    is_own: bool,
    /// True if the session had the lock before.
    was_own: bool,
    /// The server process that has the lock.
    process: Option<i32>,
    row: Option<(i64, Record)>,
}

pub(super) async fn start(
    key: &str,
    settings: &Settings,
    election: &str,
    create: bool,
) -> Result<AdvisorySessions, OpenError> {
    static HANDLES: AtomicU64 = AtomicU64::new(0);
    let share = CONNECTIONS.join(key, election, || {
        let link = Arc::new(Link::new(settings, Table::Lock));
        Ok::<_, OpenError>(Connected { link, pool: Arc::new(Pool::new(settings)) })
    })?;
    let handle = HANDLES.fetch_add(1, Ordering::Relaxed);
    let user = User { election: election.to_owned(), handle };
    let changes = Arc::new(share.link.elections().add(election));
    let (own, moved) = (Arc::default(), Arc::new(watch::Sender::new(())));
    let task = Task { connected: Connected::clone(&share), user, create, changes, own, moved };
    let sessions = AdvisorySessions { share, task };
    let answer = sessions.share.link.ask(IDLE_TIMEOUT).await?;
    let refused = |why: &str| OpenError::Refused { why: why.to_owned() };
    if answer.is_pooled {
        return Err(refused(POOLED));
    }
    let is_known = answer.rows.first().and_then(|row| row.first()).is_some_and(Option::is_some);
    if !is_known {
        return Err(refused(TOO_OLD));
    }
    sessions.share.link.open(create).await?;
    Ok(sessions)
}

impl AdvisorySessions {
    /// Runs a request on the stores' thread.
    fn run<'a, T, F>(
        &'a self,
        request: impl FnOnce(Task) -> F + Send + 'a,
    ) -> Pending<'a, Result<T, SessionError>>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, SessionError>> + Send + 'static,
    {
        let task = self.task.clone();
        Box::pin(async move { runtime::run(request(task)).await.unwrap_or_else(|why| Err(no_answer(why))) })
    }
}

impl Sessions for AdvisorySessions {
    fn begin(&self, timeout: Duration) -> Pending<'_, Result<Begun, SessionError>> {
        self.run(move |task| async move { task.connected.pool.begin(&task.user, timeout).await })
    }

    fn keep_alive<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<Duration, SessionError>> {
        let session = session.clone();
        self.run(move |task| async move { task.connected.pool.find(&session)?.keep_alive().await })
    }

    fn campaign<'a>(
        &'a self,
        session: &'a SessionId,
        holder: &'a Holder,
    ) -> Pending<'a, Result<QueuePosition, SessionError>> {
        let (session, holder) = (session.clone(), holder.clone());
        self.run(move |task| async move {
            let place = match task.connected.pool.find(&session) {
                Ok(lock_session) => task.campaign(&lock_session, &holder).await,
                Err(ended) => Err(ended),
            };
            if matches!(place, Err(SessionError::Ended { .. })) {
                task.forget();
            }
            task.moved.send_replace(());
            place
        })
    }

    fn leave<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        let session = session.clone();
        self.run(move |task| async move {
            let lock_session = task.connected.pool.find(&session)?;
            let left = task.leave(&lock_session).await;
            task.moved.send_replace(());
            left
        })
    }

    fn end<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        let session = session.clone();
        self.run(move |task| async move {
            let lock_session = task.connected.pool.find(&session)?;
            // If other elections go on using the session, the lock must still be released.
            match task.leave(&lock_session).await {
                Ok(()) | Err(SessionError::Ended { .. }) => {}
                Err(error @ (SessionError::NoAnswer { .. } | SessionError::Refused { .. })) => {
                    return Err(error);
                }
            }
            task.connected.pool.leave(&lock_session, &task.user);
            task.moved.send_replace(());
            Ok(())
        })
    }

    fn first(&self) -> Pending<'_, Result<Option<Entry>, SessionError>> {
        self.run(move |task| async move {
            let first = task.first().await;
            task.moved.send_replace(());
            first
        })
    }

    fn evict<'a>(&'a self, dead: &'a Identity) -> Pending<'a, Result<bool, SessionError>> {
        let dead = *dead;
        self.run(move |task| async move { task.evict(&dead).await })
    }

    fn ask_to_resign<'a>(
        &'a self,
        token: FencingToken,
        by: &'a str,
    ) -> Pending<'a, Result<bool, SessionError>> {
        let by = by.to_owned();
        self.run(move |task| async move { task.ask_to_resign(token, &by).await })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let task = self.task.clone();
        Box::pin(async move {
            if runtime::run(async move { task.changed().await }).await.is_err() {
                // No change can be noticed here; the caller's periodic checks find it.
                std::future::pending::<()>().await;
            }
        })
    }
}

/// A dropped handle may have the lock in a session that other elections go on using, or that would be closed at once. Its leadership, if it
/// had one, is valid for the timeout of the session, so the lock is given back after that time.
impl Drop for AdvisorySessions {
    fn drop(&mut self) {
        self.share.link.elections().remove(&self.task.user.election);
        let Connected { pool, .. } = &*self.share;
        for lock_session in pool.used_by(&self.task.user) {
            pool.leave(&lock_session, &self.task.user);
            let task = self.task.clone();
            // Without the thread no request can be sent, and the server ends sessions that are not kept alive.
            drop(runtime::detach(async move {
                tokio::time::sleep(lock_session.timeout).await;
                while !lock_session.has_ended() && task.leave(&lock_session).await.is_err() {
                    tokio::time::sleep(TIDY_PAUSE).await;
                }
            }));
        }
    }
}

impl Task {
    async fn campaign(
        &self,
        lock_session: &Arc<LockSession>,
        holder: &Holder,
    ) -> Result<QueuePosition, SessionError> {
        if self.create {
            // The table may have been dropped.
            self.connected.link.make_table().await.map_err(|error| no_answer(error.to_string()))?;
        }
        let mut process = None;
        for _ in 0..ROUNDS_MAX {
            let count = self.changes.count();
            let taken = self.take(lock_session, count).await?;
            let Taken { is_own, row, .. } = taken;
            process = taken.process.filter(|_| !is_own);
            let before = row
                .as_ref()
                .and_then(|(_, record)| Some(Entry { holder: record.holder.clone()?, token: record.token }));
            // True if an earlier session of this handle wrote the row: that session is over, because the handle uses another one now.
            let is_left_over =
                row.as_ref().is_some_and(|(_, record)| self.wrote_earlier(record, lock_session));
            if !is_own {
                match (before, row) {
                    (Some(_), Some((version, record))) if is_left_over => {
                        self.bury(lock_session, version, record).await?;
                    }
                    (Some(first), _) => return Ok(QueuePosition::Behind { first }),
                    // The holder of the lock is about to write its row.
                    (None, _) => {
                        let news = self.connected.link.news(&self.changes);
                        drop(tokio::time::timeout(BETWEEN, news).await);
                    }
                }
                continue;
            }
            if let Some((version, record)) = &row
                && is_of(record, lock_session)
                && record.holder.as_ref() == Some(holder)
            {
                self.own().first = Some((*version, record.clone()));
                let request = record.resign_request.as_ref();
                let asked_to_resign = request.is_some_and(|request| request.token == record.token);
                return Ok(QueuePosition::First { token: record.token, asked_to_resign });
            }
            if let (Some(first), Some((_, record))) = (before, &row)
                && !is_left_over
                && self.must_wait_for(record)
            {
                return Ok(QueuePosition::Behind { first });
            }
            match self.write_first(lock_session, holder, row, count).await {
                Ok(Some(token)) => return Ok(QueuePosition::First { token, asked_to_resign: false }),
                Ok(None) => {}
                Err(error) => {
                    if matches!(error, SessionError::Refused { .. }) {
                        // Other candidates may have the right that this one lacks.
                        self.unlock(lock_session).await?;
                    }
                    return Err(error);
                }
            }
        }
        match process {
            Some(process) => Ok(QueuePosition::Behind {
                first: Entry { holder: stranger(process), token: self.own().spent },
            }),
            None => Err(no_answer("others changed the row each time that the lock was taken")),
        }
    }

    /// Takes the lock if it is free, and notes the row that was seen.
    async fn take(&self, lock_session: &Arc<LockSession>, count: u64) -> Result<Taken, SessionError> {
        {
            let mut own = self.own();
            if own.lock_session.as_ref().is_none_or(|other| other.number != lock_session.number) {
                own.forget_session();
                own.lock_session = Some(Arc::clone(lock_session));
            }
        }
        let known = if self.own().first.is_some() { self.find_by(lock_session).await?.1 } else { None };
        let taken = if let Some(row) = known.filter(|(_, record)| is_of(record, lock_session)) {
            // It still has the lock, which is kept as long as its session and the row are.
            Taken { is_own: true, was_own: true, process: None, row: Some(row) }
        } else {
            let election = (Box::new(self.user.election.clone()) as _, Type::TEXT);
            let rows = lock_session.ask(&self.connected.link.statements().lock.take, &[election]).await?;
            self.taken(rows.first().ok_or_else(|| no_answer("the server has answered nothing"))?)?
        };
        let (version, token) =
            taken.row.as_ref().map_or((0, FencingToken(0)), |(version, record)| (*version, record.token));
        self.changes.saw(count, version.cast_unsigned());
        let mut own = self.own();
        own.spent = own.spent.max(token);
        own.wait_until = None;
        match (taken.is_own, taken.was_own) {
            // The session already had the lock, so it had it before this answer at the latest.
            (true, true) => drop(own.locked_at.get_or_insert_with(clock::now)),
            (true, false) => own.locked_at = Some(clock::now()),
            (false, _) => (own.locked_at, own.first) = (None, None),
        }
        drop(own);
        Ok(taken)
    }

    fn taken(&self, row: &Row) -> Result<Taken, SessionError> {
        let strange = |error: tokio_postgres::Error| no_answer(super::refusal::told(&error));
        let (version, bytes) = (row.try_get::<_, Option<i64>>(3), row.try_get::<_, Option<Vec<u8>>>(4));
        let kept = match (version.map_err(strange)?, bytes.map_err(strange)?) {
            (Some(version), Some(bytes)) => Some((version, self.decode(&bytes)?)),
            (None, _) | (_, None) => None,
        };
        Ok(Taken {
            is_own: row.try_get(0).map_err(strange)?,
            was_own: row.try_get(1).map_err(strange)?,
            process: row.try_get(2).map_err(strange)?,
            row: kept,
        })
    }

    /// Returns whether this handle wrote the row in another session.
    fn wrote_earlier(&self, record: &Record, lock_session: &LockSession) -> bool {
        record.nonce != lock_session.number.unsigned_abs() && self.own().wrote_by.contains(&record.nonce)
    }

    /// Returns whether the previous holder may still believe that it leads: it has not given the lock back, and its timeout has not passed
    /// since this session got the lock.
    fn must_wait_for(&self, record: &Record) -> bool {
        let mut own = self.own();
        let until = own.locked_at.unwrap_or_else(clock::now).after(record.duration);
        let must_wait = clock::now() < until;
        own.wait_until = must_wait.then_some(until);
        must_wait
    }

    /// Writes this node into the row; returns its token, or none if another client has changed the row.
    async fn write_first(
        &self,
        lock_session: &LockSession,
        holder: &Holder,
        row: Option<(i64, Record)>,
        count: u64,
    ) -> Result<Option<FencingToken>, SessionError> {
        // Without a row, there may have been one earlier: the first token is above all tokens that were counted from such a start, as with
        // a record that is made again.
        let start = if row.is_none() { milliseconds_since_1970() } else { 0 };
        let spent = self.own().spent.max(FencingToken(start));
        let too_many = || SessionError::Refused { why: "there is no higher token".to_owned() };
        let token = FencingToken(spent.0.checked_add(1).ok_or_else(too_many)?);
        let (expect, unknown) =
            row.map_or((None, Box::default()), |(version, record)| (Some(version), record.unknown));
        let record = Record {
            holder: Some(holder.clone()),
            token,
            duration: lock_session.timeout.into(),
            renewal: 0,
            nonce: lock_session.number.unsigned_abs(),
            resign_request: None,
            young: false,
            unknown,
        };
        let write = self.write(&record, expect)?;
        self.own().may_have_written_by(record.nonce);
        if lock_session.ask(&write.statement, &write.parameters).await?.is_empty() {
            return Ok(None);
        }
        self.changes.saw(count, write.version.cast_unsigned());
        {
            let mut own = self.own();
            own.wrote_by = vec![record.nonce];
            (own.spent, own.first) = (token, Some((write.version, record)));
        }
        self.tell(write.version).await;
        Ok(Some(token))
    }

    async fn leave(&self, lock_session: &LockSession) -> Result<(), SessionError> {
        if self.own().lock_session.as_ref().is_none_or(|other| other.number != lock_session.number) {
            return if lock_session.has_ended() { Err(ended()) } else { Ok(()) };
        }
        self.give_back(lock_session).await?;
        let mut own = self.own();
        (own.lock_session, own.locked_at, own.wait_until) = (None, None, None);
        Ok(())
    }

    /// Makes sure that this session does not have the lock, and that the row says so.
    async fn give_back(&self, lock_session: &LockSession) -> Result<(), SessionError> {
        let statements = self.connected.link.statements();
        let mut known = self.own().first.take();
        let election = || (Box::new(self.user.election.clone()) as _, Type::TEXT);
        for _ in 0..ROUNDS_MAX {
            let count = self.changes.count();
            let (version, record) = match known.take() {
                Some(known) => known,
                // Read in the session itself, whose earlier requests are finished then.
                None => match self.find_by(lock_session).await?.1 {
                    Some((version, record)) if is_of(&record, lock_session) => (version, record),
                    Some(_) | None => return self.unlock(lock_session).await,
                },
            };
            let (next, bytes) = (draw()?, encode(&given_back(record))?);
            let parameters: [Parameter; 4] = [
                election(),
                (Box::new(next), Type::INT8),
                (Box::new(bytes), Type::BYTEA),
                (Box::new(version), Type::INT8),
            ];
            if !lock_session.ask(&statements.lock.give_back, &parameters).await?.is_empty() {
                self.changes.saw(count, (-next).cast_unsigned());
                self.tell(next).await;
                return Ok(());
            }
        }
        Err(no_answer("others changed the row each time that the lock was to be given back"))
    }

    async fn first(&self) -> Result<Option<Entry>, SessionError> {
        let count = self.changes.count();
        let (is_held, row) = self.find().await?;
        let version = row.as_ref().map_or(0, |(version, _)| *version);
        let shown = if is_held { version } else { -version };
        self.changes.saw(count, shown.cast_unsigned());
        {
            let mut own = self.own();
            if own.lock_session.as_ref().is_some_and(|lock_session| lock_session.has_ended()) {
                own.forget_session();
            }
            own.wait_until = None;
        }
        let entry = |(_, record): (i64, Record)| Some(Entry { holder: record.holder?, token: record.token });
        Ok(row.filter(|_| is_held).and_then(entry))
    }

    async fn evict(&self, dead: &Identity) -> Result<bool, SessionError> {
        for _ in 0..ROUNDS_MAX {
            let (_, row) = self.find().await?;
            let is_dead = |(_, record): &(i64, Record)| {
                record.holder.as_ref().is_some_and(|holder| holder.identity == *dead)
            };
            let Some((version, record)) = row.filter(is_dead) else { return Ok(false) };
            // Its connection was closed with its process, but the server may not have noticed yet.
            if let Some(session) = number_of(&record) {
                self.query(&self.connected.link.statements().lock.end, vec![(Box::new(session), Type::INT8)])
                    .await?;
            }
            let write = self.write(&given_back(record), Some(version))?;
            if !self.query(&write.statement, write.parameters).await?.is_empty() {
                self.tell(write.version).await;
                return Ok(true);
            }
        }
        Err(no_answer("others changed the row each time that the dead one was to be taken out"))
    }

    /// Removes the lock and the row of an earlier session of this handle, so that neither keeps other candidates waiting.
    async fn bury(
        &self,
        lock_session: &LockSession,
        version: i64,
        record: Record,
    ) -> Result<(), SessionError> {
        if let Some(earlier) = number_of(&record) {
            // Other elections may go on using it.
            let shared = self.connected.pool.find_number(earlier);
            let is_unlocked = match shared {
                Some(shared) => self.unlock_by(&shared).await.is_ok(),
                None => false,
            };
            if !is_unlocked {
                let number = (Box::new(earlier) as _, Type::INT8);
                lock_session.ask(&self.connected.link.statements().lock.end, &[number]).await?;
            }
        }
        let write = self.write(&given_back(record), Some(version))?;
        // If the row has changed, the next round sees that.
        if !lock_session.ask(&write.statement, &write.parameters).await?.is_empty() {
            self.tell(write.version).await;
        }
        Ok(())
    }

    async fn ask_to_resign(&self, token: FencingToken, by: &str) -> Result<bool, SessionError> {
        for _ in 0..ROUNDS_MAX {
            let (is_held, row) = self.find().await?;
            let is_asked =
                |(_, record): &(i64, Record)| is_held && record.holder.is_some() && record.token == token;
            let Some((version, mut record)) = row.filter(is_asked) else { return Ok(false) };
            record.resign_request = Some(ResignRequest { token, by: by.to_owned() });
            let write = self.write(&record, Some(version))?;
            if !self.query(&write.statement, write.parameters).await?.is_empty() {
                self.tell(write.version).await;
                return Ok(true);
            }
        }
        Err(no_answer("others changed the row each time that the request was to be written"))
    }

    async fn changed(&self) {
        let mut moved = self.moved.subscribe();
        loop {
            let (lives, until) = {
                let own = self.own();
                (own.lock_session.as_ref().map(|lock_session| lock_session.lives()), own.wait_until)
            };
            let closed = async {
                match lives {
                    // Nothing is ever sent: it fails when the sender is dropped.
                    Some(mut lives) => drop(lives.changed().await),
                    None => std::future::pending().await,
                }
            };
            let waited = async {
                match until {
                    Some(until) => tokio::time::sleep(until.since(clock::now()).into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.connected.link.news(&self.changes) => return,
                () = closed => return,
                () = waited => return,
                // The event to wait for may be another one now. The sender exists as long as this handle.
                _ = moved.changed() => {}
            }
        }
    }

    /// Releases the lock without a write to the row.
    async fn unlock(&self, lock_session: &LockSession) -> Result<(), SessionError> {
        self.unlock_by(lock_session).await?;
        self.own().locked_at = None;
        Ok(())
    }

    async fn unlock_by(&self, lock_session: &LockSession) -> Result<(), SessionError> {
        let election = (Box::new(self.user.election.clone()) as _, Type::TEXT);
        lock_session.ask(&self.connected.link.statements().lock.unlock, &[election]).await.map(drop)
    }

    /// Like [`find`](Self::find), in a session, whose earlier requests are finished then.
    async fn find_by(
        &self,
        lock_session: &LockSession,
    ) -> Result<(bool, Option<(i64, Record)>), SessionError> {
        let elections = (Box::new(vec![self.user.election.clone()]) as _, Type::TEXT_ARRAY);
        self.found(&lock_session.ask(&self.connected.link.statements().read, &[elections]).await?)
    }

    /// Returns whether a session has the lock, and the row.
    async fn find(&self) -> Result<(bool, Option<(i64, Record)>), SessionError> {
        let elections: Vec<Parameter> = vec![(Box::new(vec![self.user.election.clone()]), Type::TEXT_ARRAY)];
        let rows = match self.connected.link.query(&self.connected.link.statements().read, elections).await {
            Err(Failure::NoTable) => vec![],
            answer => answer.map_err(|failure| self.failed(failure))?,
        };
        self.found(&rows)
    }

    fn found(&self, rows: &[Row]) -> Result<(bool, Option<(i64, Record)>), SessionError> {
        let Some(row) = rows.first() else { return Ok((false, None)) };
        let strange = |error: tokio_postgres::Error| no_answer(super::refusal::told(&error));
        let version: i64 = row.try_get(1).map_err(strange)?;
        let bytes: Vec<u8> = row.try_get(2).map_err(strange)?;
        Ok((version > 0, Some((version.saturating_abs(), self.decode(&bytes)?))))
    }

    async fn query(&self, statement: &str, parameters: Vec<Parameter>) -> Result<Vec<Row>, SessionError> {
        self.connected.link.query(statement, parameters).await.map_err(|failure| self.failed(failure))
    }

    /// Notifies other processes of a version of the row that was written.
    async fn tell(&self, version: i64) {
        self.connected.link.notify(version, &self.user.election).await;
    }

    fn failed(&self, failure: Failure) -> SessionError {
        match failure {
            Failure::NoTable => no_answer(self.connected.link.no_table()),
            Failure::NotDone(why) | Failure::Unknown(why) => no_answer(why),
        }
    }

    /// Returns the write of this record, in place of the version `expect`.
    fn write(&self, record: &Record, expect: Option<i64>) -> Result<Write, SessionError> {
        let version = draw()?;
        let mut parameters: Vec<Parameter> = vec![
            (Box::new(self.user.election.clone()), Type::TEXT),
            (Box::new(version), Type::INT8),
            (Box::new(record.token.to_string()), Type::TEXT),
            (Box::new(encode(record)?), Type::BYTEA),
        ];
        let statements = self.connected.link.statements();
        let statement = match expect {
            None => statements.insert.clone(),
            Some(expect) => {
                parameters.push((Box::new(expect), Type::INT8));
                statements.update.clone()
            }
        };
        Ok(Write { statement, parameters, version })
    }

    fn decode(&self, bytes: &[u8]) -> Result<Record, SessionError> {
        record::decode(bytes).map_err(|error| {
            let (statements, election) = (self.connected.link.statements(), &self.user.election);
            SessionError::Refused {
                why: format!("the record of {election:?} in {}: {error}", statements.table),
            }
        })
    }

    /// Forgets the session, which has ended.
    fn forget(&self) {
        self.own().forget_session();
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        lock(&self.own)
    }
}

/// A write to the row.
struct Write {
    statement: String,
    parameters: Vec<Parameter>,
    version: i64,
}

/// Returns the session that wrote the record; `None` if another program did.
fn number_of(record: &Record) -> Option<i64> {
    i64::try_from(record.nonce).ok().filter(|number| *number > 0)
}

fn milliseconds_since_1970() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns whether the record was written by this session, and not given back.
fn is_of(record: &Record, lock_session: &LockSession) -> bool {
    record.nonce == lock_session.number.unsigned_abs() && record.holder.is_some()
}

/// Returns the record as it is after the lock was given back: without a holder.
fn given_back(record: Record) -> Record {
    Record { holder: None, resign_request: None, ..record }
}

/// Describes a holder of the lock that has not written the row.
fn stranger(process: i32) -> Holder {
    let node = NodeId::new(&format!("process-{process}"))
        .unwrap_or_else(|_| NodeId::new("stranger").expect("it is a name"));
    let incarnation = Incarnation { count: 0, nonce: u64::from(process.unsigned_abs()) };
    Holder { identity: Identity { node, incarnation }, address: String::new() }
}

fn draw() -> Result<i64, SessionError> {
    version_number::draw().map_err(no_answer)
}

fn encode(record: &Record) -> Result<Vec<u8>, SessionError> {
    record::encode(record)
        .map_err(|error| SessionError::Refused { why: format!("the record cannot be written: {error}") })
}

fn ended() -> SessionError {
    SessionError::Ended { why: "its connection is closed".to_owned() }
}

fn no_answer(why: impl Into<String>) -> SessionError {
    SessionError::NoAnswer { why: why.into() }
}
