//! The link: the sessions of one process with the servers, which its elections share.
//!
//! **The meaning of a keep-alive.** A server answers most requests by itself, and may have lost the leader of the servers without knowing;
//! so an answer proves nothing about the session unless the servers have agreed on something. A keep-alive is therefore a write, though of
//! nothing (a transaction that checks one znode): it is answered when the servers' leader still had the session and a majority has written
//! it down. And the server that this process is connected to reports the sessions that it has heard from only when the leader asks, twice a
//! tick: if it answers and dies at once, that report is lost. But its reports and its requests go the same way in order: with the write,
//! the leader knows of all that was heard a while before it ([`TOLD_WITHIN`]). From the newest such moment on, the servers wait for the
//! whole timeout; and so that there is always a recent one, the servers hear from this process all the time.
//!
//! **The granted timeout.** A server that a client comes back to may cut the session's timeout: another one, or the same with lower limits
//! than before. The client library keeps the session alive for the shorter time then, and does not report it. So after each reconnection
//! every server is asked for a short-lived session of the same timeout, and the shortest that any grants is what counts from then on.
//!
//! The client library keeps a session alive by itself, even if no election wants it any more. So a session without a keep-alive from an
//! election for its whole timeout is ended here.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use getrandom::u64 as random;
use primacy_core::Instant;
use primacy_core::election::session::SessionId;
use tokio::time::{sleep, sleep_until, timeout};
use zookeeper_client::{Acls, Client, CreateMode, Error, SessionState};

use super::layout::Guid;
use crate::attempts;
use crate::clock;
use crate::mutex::lock;
use crate::runtime::{self, Aborted};
use crate::sessions::{Begun, SessionError};
use crate::shared_connections::SharedConnections;

/// The time to reach a server and to begin a session.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The time limit of one request, which includes the wait for a lost connection to be there again.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);

/// The timeout that is requested where nothing depends on the session: as a rule less than servers grant, which shows their lowest one.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause between two such sessions: servers that end each at once are not asked for one as fast as they answer.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// The time for a server to answer with its grant, after a reconnection; the one that this process has come back to serves.
const GRANT_PATIENCE: Duration = Duration::from_secs(1);

/// The longest time for which the servers' leader may not know that this process was heard, as a part of the shortest timeout that was
/// granted. It asks twice a tick, and grants no less than two ticks unless it is configured to; so a quarter, and something for the way.
const TOLD_WITHIN: f64 = 0.3;

/// The servers hear from this process so many times within that time, but no more often than so many times in a session.
const HEARD_WITHIN: u32 = 4;
const HEARD_MAX: u32 = 50;

/// The links to all ZooKeepers of this process.
pub(crate) static SHARED: SharedConnections<Link> = SharedConnections::new();

/// The sessions of this process with one ZooKeeper.
pub(crate) struct Link {
    servers: String,
    login: Option<String>,
    sessions: Arc<Mutex<Vec<Arc<Held>>>>,
    /// The session for requests of elections that have no session, while none has begun.
    looking: Mutex<Option<Arc<Held>>>,
    /// The time from which the next one of those may begin.
    look_from: Mutex<Option<tokio::time::Instant>>,
    connecting: tokio::sync::Mutex<()>,
    /// The shortest timeout that was granted so far, in nanoseconds.
    shortest: AtomicU64,
}

/// A session that this process holds.
pub(crate) struct Held {
    pub(crate) client: Client,
    /// The session's number, as the servers write it into znodes that the session owns.
    pub(crate) owner: i64,
    name: SessionId,
    asked: Duration,
    /// In nanoseconds; it may become less.
    granted: AtomicU64,
    /// The number of times that the connection was lost or made again; and that number when the granted timeout was last checked.
    reconnections: Arc<AtomicU64>,
    seen_reconnections: AtomicU64,
    /// The time within which the servers' leader knows of all that the server has heard.
    told_within: Duration,
    users: Mutex<HashSet<String>>,
    life: Mutex<Life>,
    /// The last write that was made for a keep-alive: when it was sent, and how it ended.
    agreed: tokio::sync::Mutex<Option<(Instant, Result<(), SessionError>)>>,
    /// The connection was lost since the session's identity was last checked.
    suspect: Arc<AtomicBool>,
    verifying: tokio::sync::Mutex<()>,
    /// True if the client's connection goes on with another session.
    replaced: AtomicBool,
    _watch: Aborted<()>,
    beat: OnceLock<Aborted<()>>,
}

/// The times at which the servers have heard of a session.
struct Life {
    /// The time of the last keep-alive by an election.
    wanted_at: Instant,
    /// The leader of the servers knows of this, or of something later.
    known_at: Instant,
    /// Requests that it may not know of yet: when each was sent, and when it was answered.
    heard_at: VecDeque<(Instant, Instant)>,
}

impl Link {
    pub(crate) fn new(servers: String, login: Option<String>) -> Self {
        Self {
            servers,
            login,
            sessions: Arc::default(),
            looking: Mutex::default(),
            look_from: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            shortest: AtomicU64::new(u64::MAX),
        }
    }

    /// The rights on all that this process makes: for clients with the same password, or for everyone where there is none.
    pub(crate) fn rights(&self) -> Acls<'static> {
        if self.has_login() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    /// Returns whether this process shows a user and a password.
    pub(crate) fn has_login(&self) -> bool {
        self.login.is_some()
    }

    /// Begins a session for `user`, or joins one that has begun with the same timeout.
    pub(crate) async fn begin(&self, asked: Duration, user: &str) -> Result<Begun, SessionError> {
        let connecting = self.connecting.lock().await;
        lock(&self.sessions).retain(|held| held.ended().is_none());
        let known = lock(&self.sessions).iter().find(|held| held.asked == asked).cloned();
        if let Some(held) = known {
            lock(&held.users).insert(user.to_owned());
            drop(connecting);
            let timeout = self.keep_alive(&held.name, user).await?;
            return Ok(Begun { session: held.name.clone(), timeout });
        }
        let held = Arc::new(self.connect(asked).await.map_err(|error| told(&error))?);
        lock(&held.users).insert(user.to_owned());
        let beat = runtime::spawn(beat(Arc::downgrade(&held), Arc::downgrade(&self.sessions)));
        // There is none yet.
        let _ = held.beat.set(beat.map_err(|why| SessionError::NoAnswer { why })?);
        let begun = Begun { session: held.name.clone(), timeout: held.granted() };
        lock(&self.sessions).push(held);
        *lock(&self.looking) = None;
        Ok(begun)
    }

    /// Makes the servers hear of this process; `directory` is a znode that may be read, or is not there.
    pub(crate) async fn keep_alive(
        &self,
        session: &SessionId,
        directory: &str,
    ) -> Result<Duration, SessionError> {
        let held = self.held(session)?;
        let called_at = clock::now();
        lock(&held.life).wanted_at = called_at;
        let sent_at = held.agree(directory).await?;
        held.verify(directory, self.rights()).await?;
        self.renegotiate(&held).await;
        let known_at = {
            let mut life = lock(&held.life);
            life.heard_at.push_back((sent_at, clock::now()));
            life.known_at(sent_at, held.told_within)
        };
        Ok(known_at.after(held.granted().into()).since(called_at).into())
    }

    /// Asks the servers for the timeout that they grant, where the connection was lost since the last time.
    async fn renegotiate(&self, held: &Held) {
        let reconnections = held.reconnections.load(Ordering::SeqCst);
        if reconnections == held.seen_reconnections.load(Ordering::SeqCst) {
            return;
        }
        let before = held.granted();
        for server in self.servers.split(',') {
            let connector = Client::connector().with_session_timeout(held.asked);
            attempts::failed(&format_args!("asking {server} what it grants"));
            // A server that does not serve has granted nothing.
            if let Ok(Ok(client)) = timeout(GRANT_PATIENCE, connector.connect(server)).await {
                held.granted.fetch_min(nanos(client.session_timeout()), Ordering::SeqCst);
            }
        }
        // Only now: this may be given up half-way.
        held.seen_reconnections.fetch_max(reconnections, Ordering::SeqCst);
        let granted = held.granted();
        if granted < before {
            tracing::warn!(?before, ?granted, "the servers have cut the timeout of the session of this node");
        }
    }

    /// Ends the session for `user`, and altogether if it was the last one.
    pub(crate) async fn end(&self, session: &SessionId, user: &str) -> Result<(), SessionError> {
        let Ok(held) = self.held(session) else { return Ok(()) };
        let is_last = {
            let mut users = lock(&held.users);
            users.remove(user);
            users.is_empty()
        };
        if !is_last {
            return Ok(());
        }
        lock(&self.sessions).retain(|other| other.name != *session);
        let mut states = held.client.state_watcher();
        // The last client closes the session.
        drop(held);
        let closed = async { while !states.changed().await.is_terminated() {} };
        let late = "the servers have not confirmed the end of the session; it ends by itself";
        timeout(REQUEST_PATIENCE, closed).await.map_err(|_| SessionError::NoAnswer { why: late.to_owned() })
    }

    /// Removes `user`; returns the sessions that it has begun and not ended. Those that no other election uses are shared no more.
    pub(crate) fn forget(&self, user: &str) -> Vec<Arc<Held>> {
        let mut used = Vec::new();
        lock(&self.sessions).retain(|held| {
            let mut users = lock(&held.users);
            if !users.remove(user) {
                return true;
            }
            used.push(Arc::clone(held));
            !users.is_empty()
        });
        used
    }

    /// The session of this name.
    pub(crate) fn held(&self, session: &SessionId) -> Result<Arc<Held>, SessionError> {
        let found = lock(&self.sessions).iter().find(|held| held.name == *session).cloned();
        let unknown = "this process has no such session, or has ended it";
        let held = found.ok_or_else(|| SessionError::Ended { why: unknown.to_owned() })?;
        held.ended().map_or(Ok(held), |why| Err(SessionError::Ended { why }))
    }

    /// Returns a session for reads: one that has begun, or else one of its own.
    pub(crate) async fn look(&self) -> Result<Arc<Held>, Error> {
        let lives = |held: &&Arc<Held>| held.ended().is_none();
        let begun = || lock(&self.sessions).iter().find(lives).cloned();
        let looking = || lock(&self.looking).as_ref().filter(lives).cloned();
        if let Some(held) = begun().or_else(looking) {
            return Ok(held);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(held) = begun().or_else(looking) {
            return Ok(held);
        }
        let look_from = *lock(&self.look_from);
        if let Some(at) = look_from {
            sleep_until(at).await;
        }
        let held = Arc::new(self.connect(LOOK_TIMEOUT).await?);
        *lock(&self.look_from) = Some(tokio::time::Instant::now() + LOOK_PAUSE);
        *lock(&self.looking) = Some(Arc::clone(&held));
        Ok(held)
    }

    async fn connect(&self, asked: Duration) -> Result<Held, Error> {
        let began_at = clock::now();
        let mut connector = Client::connector().with_session_timeout(asked);
        if let Some(login) = &self.login {
            connector = connector.with_auth("digest", login.as_bytes());
        }
        attempts::failed(&format_args!("connecting to {}", self.servers));
        let connected = timeout(CONNECT_PATIENCE, connector.connect(&self.servers)).await;
        let client = connected.unwrap_or(Err(Error::Timeout))?;
        let granted = client.session_timeout();
        let shortest = Duration::from_nanos(self.shortest.fetch_min(nanos(granted), Ordering::SeqCst));
        let (suspect, reconnections) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut states = client.state_watcher();
        let (noted, counted) = (Arc::clone(&suspect), Arc::clone(&reconnections));
        let watch = runtime::spawn(async move {
            while !states.changed().await.is_terminated() {
                noted.store(true, Ordering::SeqCst);
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let owner = client.session_id().0;
        Ok(Held {
            owner,
            name: SessionId::new(&format!("{owner:#x}")),
            asked,
            granted: AtomicU64::new(nanos(granted)),
            reconnections,
            seen_reconnections: AtomicU64::new(0),
            told_within: shortest.min(granted).mul_f64(TOLD_WITHIN),
            users: Mutex::default(),
            // The leader has made the session, and that was later.
            life: Mutex::new(Life { wanted_at: began_at, known_at: began_at, heard_at: VecDeque::new() }),
            agreed: tokio::sync::Mutex::default(),
            suspect,
            verifying: tokio::sync::Mutex::default(),
            replaced: AtomicBool::new(false),
            _watch: watch.map_err(Error::UnexpectedError)?,
            beat: OnceLock::new(),
            client,
        })
    }
}

impl Held {
    /// The least time that the servers wait.
    pub(crate) fn granted(&self) -> Duration {
        Duration::from_nanos(self.granted.load(Ordering::SeqCst))
    }

    /// Returns the reason that there is no such session any more.
    fn ended(&self) -> Option<String> {
        if self.replaced.load(Ordering::SeqCst) {
            return Some("the server went on with another session after the connection was lost".to_owned());
        }
        match self.client.state() {
            SessionState::Disconnected | SessionState::SyncConnected | SessionState::ConnectedReadOnly => {
                None
            }
            SessionState::Expired => Some("it has expired, or no server was reached for too long".to_owned()),
            SessionState::AuthFailed => {
                Some("the server does not accept who this process says it is".to_owned())
            }
            SessionState::Closed => Some("it was closed".to_owned()),
        }
    }

    /// Makes a request, which must be sent when it is first polled, over the present connection.
    pub(crate) async fn ask<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let connected = async {
            let mut states = self.client.state_watcher();
            let mut state = states.state();
            loop {
                match state {
                    SessionState::SyncConnected => return Ok(()),
                    SessionState::Disconnected | SessionState::ConnectedReadOnly => {
                        attempts::failed(&"the connection to the servers of ZooKeeper is lost");
                        state = states.changed().await
                    }
                    SessionState::Expired | SessionState::AuthFailed => return Err(Error::SessionExpired),
                    SessionState::Closed => return Err(Error::ClientClosed),
                }
            }
        };
        timeout(REQUEST_PATIENCE, connected).await.unwrap_or(Err(Error::ConnectionLoss))?;
        timeout(REQUEST_PATIENCE, request).await.unwrap_or(Err(Error::Timeout))
    }

    /// Has the servers agree on a write that changes nothing; after it, the server knows of all that was agreed on before. Returns the time
    /// at which it was sent, which is not before the call.
    pub(crate) async fn agree(&self, directory: &str) -> Result<Instant, SessionError> {
        let called_at = clock::now();
        let mut agreed = self.agreed.lock().await;
        if let Some((sent_at, result)) = &*agreed
            && *sent_at >= called_at
        {
            return result.clone().map(|()| *sent_at);
        }
        let sent_at = clock::now();
        let written = self.ask(async {
            let writer = self.client.new_check_writer(directory, None)?;
            writer.commit().await.map_err(Error::from)
        });
        let result = match written.await {
            // It was decided that the znode is not there, or must not be read, and that is as good.
            Ok(_) | Err(Error::NoNode | Error::NoAuth | Error::RuntimeInconsistent) => Ok(()),
            Err(error) => Err(told(&error)),
        };
        *agreed = Some((sent_at, result.clone()));
        result.map(|()| sent_at)
    }

    /// Checks that this is still the session that has begun. Some servers that are not ZooKeeper go on with a new one where the old one has
    /// expired, and only the owner of what the session makes shows which it is.
    pub(crate) async fn verify(&self, directory: &str, rights: Acls<'_>) -> Result<(), SessionError> {
        let _verifying = self.verifying.lock().await;
        if !self.suspect.swap(false, Ordering::SeqCst) {
            return self.ended().map_or(Ok(()), |why| Err(SessionError::Ended { why }));
        }
        let guid = guid().map_err(|why| SessionError::NoAnswer { why })?;
        let path = format!("{directory}/primacy-session-{:032x}", guid.0);
        let options = CreateMode::Ephemeral.with_acls(rights);
        match self.ask(async { self.client.create(&path, b"", &options).await }).await {
            Ok((stat, _)) => {
                // It goes with the session in any case.
                drop(self.ask(async { self.client.delete(&path, None).await }).await);
                self.check_owner(stat.ephemeral_owner)
            }
            Err(error) => {
                self.suspect.store(true, Ordering::SeqCst);
                // Nothing of this session can be in a znode that is not there.
                if error == Error::NoNode { Ok(()) } else { Err(told(&error)) }
            }
        }
    }

    /// Notes it if something that this session should have made belongs to another one.
    pub(crate) fn check_owner(&self, owner: i64) -> Result<(), SessionError> {
        if owner != self.owner {
            self.replaced.store(true, Ordering::SeqCst);
        }
        self.ended().map_or(Ok(()), |why| Err(SessionError::Ended { why }))
    }
}

impl Life {
    /// Returns the time of the newest request that the servers' leader knew of when it took part in a write that was sent at `sent_at`.
    fn known_at(&mut self, sent_at: Instant, told_within: Duration) -> Instant {
        // A server may have heard as late as it answered; but the session counts from when the request was sent.
        while let Some((told_at, answered_at)) = self.heard_at.front().copied()
            && answered_at.after(told_within.into()) <= sent_at
        {
            self.heard_at.pop_front();
            self.known_at = self.known_at.max(told_at);
        }
        self.known_at
    }
}

/// Has the servers hear of the session again and again, until no election has kept it alive for its whole timeout.
async fn beat(held: Weak<Held>, sessions: Weak<Mutex<Vec<Arc<Held>>>>) {
    loop {
        let Some((told_within, granted)) = held.upgrade().map(|held| (held.told_within, held.granted()))
        else {
            return;
        };
        sleep((told_within / HEARD_WITHIN).max(granted / HEARD_MAX)).await;
        let Some(held) = held.upgrade() else { return };
        let sent_at = clock::now();
        if lock(&held.life).wanted_at.after(granted.into()) <= sent_at {
            if let Some(sessions) = sessions.upgrade() {
                lock(&sessions).retain(|other| !Arc::ptr_eq(other, &held));
            }
            return;
        }
        if held.client.state() != SessionState::SyncConnected {
            continue;
        }
        let heard = timeout(REQUEST_PATIENCE, async { held.client.check_stat("/").await }).await;
        if let Ok(Ok(_) | Err(Error::NoAuth)) = heard {
            lock(&held.life).heard_at.push_back((sent_at, clock::now()));
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Interprets an error that no case of its own explains.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library may have more of them, and is safe to be asked again"
)]
pub(crate) fn told(error: &Error) -> SessionError {
    let why = error.to_string();
    match error {
        Error::SessionExpired | Error::ClientClosed => SessionError::Ended { why },
        Error::NoAuth => SessionError::Refused {
            why:
                "this user lacks a right on the election's znode (read, write, create and delete are needed)"
                    .to_owned(),
        },
        Error::AuthFailed
        | Error::InvalidAcl
        | Error::BadArguments(_)
        | Error::NoChildrenForEphemerals
        | Error::QuotaExceeded
        | Error::Unimplemented => SessionError::Refused { why },
        // An unknown error: the request may have been carried out.
        _ => SessionError::NoAnswer { why },
    }
}

/// A new one.
pub(crate) fn guid() -> Result<Guid, String> {
    let half =
        || random().map(u128::from).map_err(|error| format!("the system has no random numbers: {error}"));
    Ok(Guid(half()? << 64 | half()?))
}

/// Without the password.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("servers", &self.servers).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_may_have_kept_for_itself_does_not_count() {
        let began_at = clock::now();
        let at = |milliseconds| began_at.after(Duration::from_millis(milliseconds).into());
        let mut life = Life { wanted_at: began_at, known_at: began_at, heard_at: VecDeque::new() };
        let told_within = Duration::from_millis(100);
        assert_eq!(life.known_at(at(1000), told_within), began_at, "nothing was heard since");
        life.heard_at.extend([at(1000), at(1100), at(1250)].map(|heard| (heard, heard)));
        assert_eq!(life.known_at(at(1099), told_within), began_at);
        assert_eq!(life.known_at(at(1200), told_within), at(1100));
        assert_eq!(life.known_at(at(1300), told_within), at(1100));
        // An older request with a late answer takes nothing back.
        life.heard_at.push_back((at(900), at(900)));
        assert_eq!(life.known_at(at(2000), told_within), at(1250));
    }

    #[test]
    fn an_error_says_what_may_be_believed() {
        assert!(matches!(told(&Error::SessionExpired), SessionError::Ended { .. }));
        assert!(matches!(told(&Error::NoAuth), SessionError::Refused { .. }));
        assert!(matches!(told(&Error::Timeout), SessionError::NoAnswer { .. }));
        assert!(matches!(told(&Error::SessionMoved), SessionError::NoAnswer { .. }));
        let link = Link::new("a:1".to_owned(), Some("ann:secret".to_owned()));
        assert!(!format!("{link:?}").contains("secret"));
    }
}
