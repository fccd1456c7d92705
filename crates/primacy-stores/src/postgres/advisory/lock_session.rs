//! Sessions, each of which is a connection: when the server ends one, the locks taken in it are free.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use primacy_core::Instant;
use primacy_core::election::session::SessionId;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::super::link::{self, Live, Parameter};
use super::super::pooler;
use super::super::refusal;
use super::super::settings::Settings;
use super::super::table::{self, LOCK_PATIENCE};
use crate::clock;
use crate::contained::contain_in;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::runtime::{self, Aborted};
use crate::session_users::SessionUsers;
use crate::sessions::{Begun, SessionError};
use crate::singleflight::SingleFlight;
use crate::version_number;

/// The time limit of a request. A request that has been sent is not cancelled then, and the next one waits behind it.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);

const SILENT: &str = "the server did not answer in time";

/// The longest timeout that the server takes: about 24 days, in the milliseconds that it counts.
const TIMEOUT_MAX_MS: u64 = i32::MAX.unsigned_abs() as u64;

/// The sessions that elections of this process use.
#[derive(Debug)]
pub(super) struct Pool {
    settings: Settings,
    sessions: Mutex<Vec<Arc<LockSession>>>,
    /// A session that is being begun, and its timeout. The attempt continues when its callers give up, so that all servers are tried, even
    /// if each takes longer than the callers wait.
    beginning: tokio::sync::Mutex<Option<(Duration, Beginning)>>,
}

type Beginning = Aborted<Result<LockSession, SessionError>>;

/// A session.
pub(super) struct LockSession {
    /// A random number, on which the session holds an advisory lock from its beginning, so that other clients can find the session by it.
    pub(super) number: i64,
    /// The time after which the server ends it if there is no request.
    pub(super) timeout: Duration,
    live: Arc<Live>,
    users: SessionUsers,
    keep_alives: SingleFlight<Result<Duration, SessionError>>,
    /// The time at which the last answered request was sent.
    kept_at: Mutex<Instant>,
}

/// One election's use of sessions.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) election: String,
    pub(super) handle: u64,
}

impl Pool {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            settings: settings.clone(),
            sessions: Mutex::default(),
            beginning: tokio::sync::Mutex::default(),
        }
    }

    pub(super) async fn begin(&self, user: &User, wanted: Duration) -> Result<Begun, SessionError> {
        let wanted = granted(wanted);
        loop {
            let Some(lock_session) = self.join_or_connect(user, wanted).await? else { continue };
            // It may have begun long ago, so its remaining time is requested.
            match lock_session.keep_alive().await {
                Ok(timeout) => return Ok(Begun { session: lock_session.id(), timeout }),
                Err(SessionError::Ended { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns an existing session; `None` if a new one was just begun, which the caller then joins.
    async fn join_or_connect(
        &self,
        user: &User,
        wanted: Duration,
    ) -> Result<Option<Arc<LockSession>>, SessionError> {
        let mut beginning = self.beginning.lock().await;
        if let Some(lock_session) = self.join(user, wanted) {
            return Ok(Some(lock_session));
        }
        if beginning.as_ref().is_none_or(|(timeout, _)| *timeout != wanted) {
            let settings = self.settings.clone();
            let connecting = runtime::spawn(async move {
                let connected = contain_in(LockSession::connect(&settings, wanted)).await;
                connected.unwrap_or_else(|why| Err(super::no_answer(why)))
            });
            *beginning = Some((wanted, connecting.map_err(super::no_answer)?));
        }
        let Some((_, attempt)) = &mut *beginning else { return Ok(None) };
        let begun = attempt.finished().await;
        *beginning = None;
        let lock_session = begun.map_err(super::no_answer)??;
        lock(&self.sessions).push(Arc::new(lock_session));
        Ok(None)
    }

    /// Returns the session of this name, unless it has ended as far as is known.
    pub(super) fn find(&self, session: &SessionId) -> Result<Arc<LockSession>, SessionError> {
        let closed = lock(&self.sessions)
            .iter()
            .find(|lock_session| lock_session.id() == *session)
            .and_then(|lock_session| lock_session.live.end());
        let why = closed.map_or_else(String::new, |why| format!(": {why}"));
        let ended = || SessionError::Ended { why: format!("its connection is closed{why}") };
        self.find_where(|lock_session| lock_session.id() == *session).ok_or_else(ended)
    }

    pub(super) fn find_number(&self, number: i64) -> Option<Arc<LockSession>> {
        self.find_where(|lock_session| lock_session.number == number)
    }

    /// Removes this election from the session. Without other elections, the session ends when its last reference is dropped.
    pub(super) fn leave(&self, lock_session: &LockSession, user: &User) {
        // The lock keeps other elections from joining it meanwhile.
        let mut sessions = lock(&self.sessions);
        if !lock_session.users.leave(&user.election, user.handle) {
            sessions.retain(|other| other.number != lock_session.number);
        }
    }

    /// Returns the sessions that this handle uses.
    pub(super) fn used_by(&self, user: &User) -> Vec<Arc<LockSession>> {
        let is_used = |lock_session: &&Arc<LockSession>| lock_session.users.has(&user.election, user.handle);
        lock(&self.sessions).iter().filter(is_used).map(Arc::clone).collect()
    }

    fn join(&self, user: &User, wanted: Duration) -> Option<Arc<LockSession>> {
        self.find_where(|lock_session| {
            lock_session.timeout == wanted && lock_session.users.join(&user.election, user.handle)
        })
    }

    fn find_where(&self, is_wanted: impl Fn(&LockSession) -> bool) -> Option<Arc<LockSession>> {
        let mut sessions = lock(&self.sessions);
        sessions.retain(|lock_session| !lock_session.has_ended());
        sessions.iter().find(|lock_session| is_wanted(lock_session)).map(Arc::clone)
    }
}

impl LockSession {
    async fn connect(settings: &Settings, timeout: Duration) -> Result<Self, SessionError> {
        let number = version_number::draw().map_err(super::no_answer)?;
        // A network outage that is shorter than the server's timeout does not end the session.
        let live = link::connect(&settings.with_patience(timeout), None).await.map_err(of_opening)?;
        let checking = tokio::time::timeout(REQUEST_PATIENCE, pooler::is_between(&live.client)).await;
        if checking.map_err(|_| super::no_answer(SILENT))?.map_err(|error| of(&error))? {
            return Err(SessionError::Refused { why: super::POOLED.to_owned() });
        }
        let lock_session = Self {
            number,
            timeout,
            live,
            users: SessionUsers::default(),
            keep_alives: SingleFlight::default(),
            kept_at: Mutex::new(clock::now()),
        };
        // One election's request must not hold up the keep-alives of all while it waits for a lock.
        let (milliseconds, patience) = (timeout.as_millis(), LOCK_PATIENCE);
        let limits = format!(
            "SELECT pg_catalog.set_config('idle_session_timeout', '{milliseconds}ms', false), \
             pg_catalog.set_config('lock_timeout', '{patience}', false)"
        );
        lock_session.ask(&limits, &[]).await?;
        lock_session.ask(&format!("SELECT pg_catalog.pg_advisory_lock({number})"), &[]).await?;
        Ok(lock_session)
    }

    pub(super) fn id(&self) -> SessionId {
        SessionId::new(&format!("{:016x}", self.number))
    }

    /// Returns whether it is closed. This closes it if no request was answered for its whole timeout: the server may be gone, and no leader
    /// may rely on the session any more.
    pub(super) fn has_ended(&self) -> bool {
        let until = self.kept_at().after(self.timeout.into());
        if clock::now() > until {
            self.live.close();
            return true;
        }
        self.live.client.is_closed()
    }

    /// Returns a receiver that ends when the connection is closed, by either side; nothing is ever sent.
    pub(super) fn lives(&self) -> watch::Receiver<()> {
        self.live.lives.clone()
    }

    /// Keeps the session alive; any request restarts the server's timeout. If writes wait for standbys, this does too: a server that was
    /// replaced without knowing it cannot keep a session alive.
    pub(super) async fn keep_alive(&self) -> Result<Duration, SessionError> {
        let statement = format!(
            "WITH {} SELECT CASE WHEN pg_catalog.current_setting('synchronous_standby_names') OPERATOR(pg_catalog.<>) '' \
             THEN pg_catalog.pg_logical_emit_message(true, 'primacy', '') END FROM limits",
            table::limits()
        );
        let seek = || async { self.ask(&statement, &[]).await.map(|_| self.timeout) };
        self.keep_alives.ask(seek).await
    }

    /// Sends a statement, and waits for what it returns. The server processes statements in order.
    pub(super) async fn ask(
        &self,
        statement: &str,
        parameters: &[Parameter],
    ) -> Result<Vec<Row>, SessionError> {
        let parameters: Vec<_> =
            parameters.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
        let asked_at = clock::now();
        let asking = self.live.client.query_typed(statement, &parameters);
        match timeout(REQUEST_PATIENCE, asking).await {
            Ok(Ok(rows)) => {
                let mut kept_at = self.kept_at();
                *kept_at = asked_at.max(*kept_at);
                Ok(rows)
            }
            Ok(Err(error)) => Err(of(&error)),
            Err(_) => Err(super::no_answer(SILENT)),
        }
    }

    fn kept_at(&self) -> MutexGuard<'_, Instant> {
        lock(&self.kept_at)
    }
}

/// Leaves out the connection, which holds a password.
impl std::fmt::Debug for LockSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockSession")
            .field("number", &self.number)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

fn granted(timeout: Duration) -> Duration {
    let milliseconds = u64::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    Duration::from_millis(milliseconds.clamp(1, TIMEOUT_MAX_MS))
}

/// Interprets an error in a session. A session that the server ends, or whose connection breaks, is over.
fn of(error: &Error) -> SessionError {
    let why = refusal::told(error);
    match error.as_db_error() {
        Some(told) if *told.code() == SqlState::UNDEFINED_OBJECT && why.contains("idle_session_timeout") => {
            SessionError::Refused { why: super::TOO_OLD.to_owned() }
        }
        // The table is made again.
        Some(told) if *told.code() == SqlState::UNDEFINED_TABLE => SessionError::NoAnswer { why },
        Some(told) if told.parsed_severity() == Some(Severity::Error) => {
            if refusal::is_final(error) {
                SessionError::Refused { why }
            } else {
                SessionError::NoAnswer { why }
            }
        }
        Some(_) | None => SessionError::Ended { why },
    }
}

fn of_opening(error: OpenError) -> SessionError {
    match error {
        OpenError::Refused { why } => SessionError::Refused { why },
        OpenError::Unavailable { .. }
        | OpenError::Malformed { .. }
        | OpenError::UnknownScheme { .. }
        | OpenError::NotBuiltIn { .. }
        | OpenError::KeepsSessions { .. }
        | OpenError::Shortage { .. }
        | OpenError::Election { .. } => SessionError::NoAnswer { why: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_what_the_server_can_count() {
        let (most, ms) = (Duration::from_millis(TIMEOUT_MAX_MS), Duration::from_millis);
        assert_eq!(
            [Duration::ZERO, Duration::from_nanos(1), ms(7), Duration::MAX].map(granted),
            [ms(1), ms(1), ms(7), most]
        );
        assert_eq!(granted(Duration::from_nanos(10_000_000_001)), ms(10_001));
    }
}
