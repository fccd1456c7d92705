//! Sessions, each of which is a connection: what this process locks by it is free when the server has ended it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use primacy_core::election::session::SessionId;
use tokio::time::timeout;
use tokio_postgres::error::{Severity, SqlState};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use super::super::link::{self, Live, Parameter};
use super::super::pooler;
use super::super::refusal;
use super::super::settings::Settings;
use crate::joint::Joint;
use crate::open::OpenError;
use crate::sessions::{Begun, SessionError};
use crate::users::Users;

/// How long a request may take. What is on its way then is not taken back, and what is asked next waits behind it.
const REQUEST_PATIENCE: Duration = Duration::from_secs(2);

/// The longest time that the server can be told to wait: about 24 days, in the milliseconds that it counts.
const TIMEOUT_MAX_MS: u64 = i32::MAX.unsigned_abs() as u64;

/// The sessions that elections of this process use.
#[derive(Debug)]
pub(super) struct Pool {
    settings: Settings,
    lines: Mutex<Vec<Arc<Line>>>,
    /// So that of many that begin at once, the first one connects.
    beginning: tokio::sync::Mutex<()>,
}

/// A session.
pub(super) struct Line {
    /// Drawn at random, and locked by the session from its beginning: so others find it by its number.
    pub(super) number: i64,
    /// For how long the server keeps it when nothing comes.
    pub(super) timeout: Duration,
    live: Arc<Live>,
    users: Users,
    keep_alives: Joint<Result<Duration, SessionError>>,
}

/// One election's use of sessions.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) election: String,
    pub(super) handle: u64,
}

impl Pool {
    pub(super) fn new(settings: &Settings) -> Self {
        Self { settings: settings.clone(), lines: Mutex::default(), beginning: tokio::sync::Mutex::default() }
    }

    pub(super) async fn begin(&self, user: &User, wanted: Duration) -> Result<Begun, SessionError> {
        let wanted = granted(wanted);
        loop {
            let beginning = self.beginning.lock().await;
            let Some(line) = self.join(user, wanted) else {
                let line = Line::connect(&self.settings, wanted).await?;
                line.users.join(&user.election, user.handle);
                let begun = Begun { session: line.id(), timeout: wanted };
                self.lock().push(Arc::new(line));
                // It began after it was asked for.
                return Ok(begun);
            };
            drop(beginning);
            // It began long ago, so what it has from now on is to be asked.
            match line.keep_alive().await {
                Ok(timeout) => return Ok(Begun { session: line.id(), timeout }),
                Err(SessionError::Ended { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The session of this name, if it lives as far as is known.
    pub(super) fn find(&self, session: &SessionId) -> Result<Arc<Line>, SessionError> {
        let ended = || SessionError::Ended { why: "its connection is closed".to_owned() };
        self.find_where(|line| line.id() == *session).ok_or_else(ended)
    }

    pub(super) fn find_number(&self, number: i64) -> Option<Arc<Line>> {
        self.find_where(|line| line.number == number)
    }

    /// This election uses it no more. Where no other one does, it ends with its last use.
    pub(super) fn leave(&self, line: &Line, user: &User) {
        if !line.users.leave(&user.election, user.handle) {
            self.lock().retain(|other| other.number != line.number);
        }
    }

    /// Those that this handle uses.
    pub(super) fn used_by(&self, user: &User) -> Vec<Arc<Line>> {
        let is_used = |line: &&Arc<Line>| line.users.has(&user.election, user.handle);
        self.lock().iter().filter(is_used).map(Arc::clone).collect()
    }

    fn join(&self, user: &User, wanted: Duration) -> Option<Arc<Line>> {
        self.find_where(|line| line.timeout == wanted && line.users.join(&user.election, user.handle))
    }

    fn find_where(&self, is_wanted: impl Fn(&Line) -> bool) -> Option<Arc<Line>> {
        let mut lines = self.lock();
        lines.retain(|line| !line.has_ended());
        lines.iter().find(|line| is_wanted(line)).map(Arc::clone)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    async fn connect(settings: &Settings, timeout: Duration) -> Result<Self, SessionError> {
        let number = super::super::draw_version()
            .map_err(|error| SessionError::NoAnswer { why: format!("no random number: {error}") })?;
        // A network that is away for a while ends no session, for as long as the server would keep it.
        let live = link::connect(&settings.with_patience(timeout), None).await.map_err(of_opening)?;
        if pooler::is_between(&live.client).await.map_err(|error| of(&error))? {
            return Err(SessionError::Refused { why: super::POOLED.to_owned() });
        }
        let line = Self { number, timeout, live, users: Users::default(), keep_alives: Joint::default() };
        let milliseconds = timeout.as_millis();
        line.ask(&format!("SELECT set_config('idle_session_timeout', '{milliseconds}ms', false)"), &[])
            .await?;
        line.ask(&format!("SELECT pg_advisory_lock({number})"), &[]).await?;
        Ok(line)
    }

    pub(super) fn id(&self) -> SessionId {
        SessionId::new(&format!("{:016x}", self.number))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.live.client.is_closed()
    }

    /// Resolves when the connection is closed, by whomever.
    pub(super) async fn closed(&self) {
        // Nothing is ever sent: it fails when the other end has gone.
        drop(self.live.lives.clone().changed().await);
    }

    /// Any request makes the server wait anew.
    pub(super) async fn keep_alive(&self) -> Result<Duration, SessionError> {
        let seek = || async { self.ask("SELECT 1", &[]).await.map(|_| self.timeout) };
        self.keep_alives.ask(seek).await
    }

    /// Sends a statement, and waits for what it returns. The server does one after the other.
    pub(super) async fn ask(
        &self,
        statement: &str,
        parameters: &[Parameter],
    ) -> Result<Vec<Row>, SessionError> {
        let parameters: Vec<_> =
            parameters.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
        let asking = self.live.client.query_typed(statement, &parameters);
        match timeout(REQUEST_PATIENCE, asking).await {
            Ok(answer) => answer.map_err(|error| of(&error)),
            Err(_) => Err(SessionError::NoAnswer { why: "the server did not answer in time".to_owned() }),
        }
    }
}

/// Of the connection nothing: it holds a password.
impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line")
            .field("number", &self.number)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

fn granted(timeout: Duration) -> Duration {
    let milliseconds = u64::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    Duration::from_millis(milliseconds.clamp(1, TIMEOUT_MAX_MS))
}

/// What the server says in a session. One that it ends, or whose connection breaks, is over.
fn of(error: &Error) -> SessionError {
    let why = refusal::told(error);
    match error.as_db_error() {
        Some(told) if *told.code() == SqlState::UNDEFINED_OBJECT && why.contains("idle_session_timeout") => {
            SessionError::Refused { why: super::TOO_OLD.to_owned() }
        }
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
        other => SessionError::NoAnswer { why: other.to_string() },
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
