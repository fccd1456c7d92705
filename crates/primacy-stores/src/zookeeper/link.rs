//! The link: the sessions of one process with the servers, which its elections share.
//!
//! **The meaning of a keep-alive.** A server answers most requests locally, and may be cut off from the servers' leader without knowing it;
//! so an answer proves nothing about the session unless a majority has agreed on the request. A keep-alive is therefore a write without
//! effect (a transaction that checks one znode): it is answered when the leader still had the session and a majority has logged it. The
//! connected server reports the sessions that it has heard from only when the leader asks, twice a tick: if it answers and crashes at once,
//! that report is lost. But reports and requests reach the leader in order: with the write, the leader knows of all requests that the
//! server had received [`TOLD_WITHIN`] before it. From the newest such request on, the servers wait for the whole timeout; this process
//! sends requests continuously, so that there is always a recent one.
//!
//! **The granted timeout.** A server to which the session moves may grant less, if its limits are lower. The shortest timeout that was
//! granted so far applies to every keep-alive that is answered over the new connection.
//!
//! The client keeps a session alive even if no election needs it any more. So a session that no election has kept alive for its whole
//! timeout is ended here.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use getrandom::u64 as random;
use primacy_core::Instant;
use primacy_core::election::session::SessionId;
use tokio::time::{sleep, sleep_until, timeout};

use super::client::{Acl, ClientError, REQUEST_PATIENCE, ZooKeeperClient};
use super::layout::Guid;
use crate::clock;
use crate::mutex::lock;
use crate::runtime::{self, Aborted};
use crate::sessions::{Begun, SessionError};
use crate::shared_connections::SharedConnections;

/// The timeout of a session on which no election depends: usually below the servers' minimum, so that they grant their minimum.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// The pause between two such sessions, in case servers end each one at once.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// The longest time until the servers' leader knows that a server has heard from this process, as a fraction of the shortest granted
/// timeout. The leader asks twice a tick, and grants at least two ticks by default: so a quarter, and a margin for the network.
const TOLD_WITHIN: f64 = 0.3;

/// The number of requests that are sent to the servers within that time, but at most [`HEARD_MAX`] per session timeout.
const HEARD_WITHIN: u32 = 4;
const HEARD_MAX: u32 = 50;

/// The links to all ZooKeepers of this process.
pub(crate) static SHARED: SharedConnections<Link> = SharedConnections::new();

/// The sessions of this process with one ZooKeeper.
pub(crate) struct Link {
    servers: String,
    login: Option<String>,
    sessions: Arc<Mutex<Vec<Arc<Held>>>>,
    /// The session for requests of elections without a session of their own.
    looking: Mutex<Option<Arc<Held>>>,
    /// The time from which the next such session may begin.
    look_from: Mutex<Option<tokio::time::Instant>>,
    connecting: tokio::sync::Mutex<()>,
    /// The shortest timeout that was granted so far, in nanoseconds.
    shortest: AtomicU64,
}

/// A session that this process holds.
pub(crate) struct Held {
    pub(crate) client: ZooKeeperClient,
    name: SessionId,
    asked: Duration,
    /// The time within which the leader knows of all requests that the connected server has received.
    told_within: Duration,
    users: Mutex<HashSet<String>>,
    life: Mutex<Life>,
    /// The last write that was made for a keep-alive: when it was sent, and how it ended.
    agreed: tokio::sync::Mutex<Option<(Instant, Result<(), SessionError>)>>,
    /// True if a znode that this session has made was found to be another session's.
    replaced: AtomicBool,
    beat: OnceLock<Aborted<()>>,
}

/// The times of a session's keep-alives and requests.
struct Life {
    /// The time of the last keep-alive by an election.
    wanted_at: Instant,
    /// The time of the newest request of which the servers' leader certainly knows.
    known_at: Instant,
    /// Requests of which the leader may not know yet: the times at which each was sent and answered.
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

    /// Returns the ACL of the znodes that this process makes: for clients with the same password, or for everyone without one.
    pub(crate) fn rights(&self) -> Acl {
        if self.has_login() { Acl::creator() } else { Acl::anyone() }
    }

    /// Returns whether this process authenticates with a user and a password.
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
        // The cell is empty: the session is new.
        let _ = held.beat.set(beat.map_err(|why| SessionError::NoAnswer { why })?);
        let begun = Begun { session: held.name.clone(), timeout: held.client.granted() };
        lock(&self.sessions).push(held);
        *lock(&self.looking) = None;
        Ok(begun)
    }

    /// Keeps the session alive with a write; `directory` is a znode that this process may read, or that does not exist.
    pub(crate) async fn keep_alive(
        &self,
        session: &SessionId,
        directory: &str,
    ) -> Result<Duration, SessionError> {
        let held = self.held(session)?;
        let called_at = clock::now();
        lock(&held.life).wanted_at = called_at;
        let sent_at = held.agree(directory).await?;
        let known_at = {
            let mut life = lock(&held.life);
            life.heard_at.push_back((sent_at, clock::now()));
            life.known_at(sent_at, held.told_within)
        };
        // The timeout is at most what was granted with the connection over which the write was answered.
        Ok(known_at.after(held.client.granted().into()).since(called_at).into())
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
        let closed = held.client.end();
        // Dropping the last reference to the client closes the session.
        drop(held);
        let late = "the servers have not confirmed the end of the session; it ends by itself";
        timeout(REQUEST_PATIENCE, closed).await.map_err(|_| SessionError::NoAnswer { why: late.to_owned() })
    }

    /// Removes `user`; returns the sessions that it has begun and not ended. Those that no other election uses are not shared any more.
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

    /// Returns the session of this name.
    pub(crate) fn held(&self, session: &SessionId) -> Result<Arc<Held>, SessionError> {
        let found = lock(&self.sessions).iter().find(|held| held.name == *session).cloned();
        let unknown = "this process has no such session, or has ended it";
        let held = found.ok_or_else(|| SessionError::Ended { why: unknown.to_owned() })?;
        held.ended().map_or(Ok(held), |why| Err(SessionError::Ended { why }))
    }

    /// Returns a session for reads: that of an election, or else a separate one.
    pub(crate) async fn look(&self) -> Result<Arc<Held>, ClientError> {
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

    async fn connect(&self, asked: Duration) -> Result<Held, ClientError> {
        let began_at = clock::now();
        let client = ZooKeeperClient::connect(&self.servers, asked, self.login.clone()).await?;
        let granted = client.granted();
        let shortest = Duration::from_nanos(self.shortest.fetch_min(nanos(granted), Ordering::SeqCst));
        Ok(Held {
            name: SessionId::new(&format!("{:#x}", client.session())),
            asked,
            told_within: shortest.min(granted).mul_f64(TOLD_WITHIN),
            users: Mutex::default(),
            // The leader has created the session, after this time.
            life: Mutex::new(Life { wanted_at: began_at, known_at: began_at, heard_at: VecDeque::new() }),
            agreed: tokio::sync::Mutex::default(),
            replaced: AtomicBool::new(false),
            beat: OnceLock::new(),
            client,
        })
    }
}

impl Held {
    /// Returns the reason that the session has ended, if it has.
    fn ended(&self) -> Option<String> {
        if self.replaced.load(Ordering::SeqCst) {
            return Some("the server has given its znodes to another session".to_owned());
        }
        self.client.ended().map(|error| error.to_string())
    }

    /// Commits a write without effect; after it, the connected server has applied all earlier writes. Returns the time at which it was
    /// sent, which is not before the call.
    pub(crate) async fn agree(&self, directory: &str) -> Result<Instant, SessionError> {
        let called_at = clock::now();
        let mut agreed = self.agreed.lock().await;
        if let Some((sent_at, result)) = &*agreed
            && *sent_at >= called_at
        {
            return result.clone().map(|()| *sent_at);
        }
        let sent_at = clock::now();
        let result = match self.client.check(directory).await {
            // The servers have agreed that the znode does not exist or must not be read, which is sufficient.
            Ok(()) | Err(ClientError::NoNode | ClientError::NoAuth) => Ok(()),
            Err(error) => Err(told(&error)),
        };
        *agreed = Some((sent_at, result.clone()));
        result.map(|()| sent_at)
    }

    /// Compares the owner of a znode that this session has made; another owner means that the session was replaced.
    pub(crate) fn check_owner(&self, owner: i64) -> Result<(), SessionError> {
        if owner != self.client.session() {
            self.replaced.store(true, Ordering::SeqCst);
        }
        self.ended().map_or(Ok(()), |why| Err(SessionError::Ended { why }))
    }
}

impl Life {
    /// Returns the time of the newest request of which the servers' leader knew when it received a write that was sent at `sent_at`.
    fn known_at(&mut self, sent_at: Instant, told_within: Duration) -> Instant {
        // The server may have received a request as late as it answered; but the session is measured from when the request was sent.
        while let Some((told_at, answered_at)) = self.heard_at.front().copied()
            && answered_at.after(told_within.into()) <= sent_at
        {
            self.heard_at.pop_front();
            self.known_at = self.known_at.max(told_at);
        }
        self.known_at
    }
}

/// Sends requests in the session periodically, until no election has kept it alive for its whole timeout.
async fn beat(held: Weak<Held>, sessions: Weak<Mutex<Vec<Arc<Held>>>>) {
    loop {
        let Some((told_within, granted)) =
            held.upgrade().map(|held| (held.told_within, held.client.granted()))
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
        if !held.client.is_connected() {
            continue;
        }
        if let Ok(_) | Err(ClientError::NoAuth) = held.client.stat("/").await {
            lock(&held.life).heard_at.push_back((sent_at, clock::now()));
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Interprets an error.
pub(crate) fn told(error: &ClientError) -> SessionError {
    let why = error.to_string();
    match error {
        ClientError::Ended(_) => SessionError::Ended { why },
        ClientError::NoAuth => SessionError::Refused {
            why:
                "this user lacks a right on the election's znode (read, write, create and delete are needed)"
                    .to_owned(),
        },
        ClientError::AuthFailed | ClientError::Refused(_) => SessionError::Refused { why },
        // The request may have been carried out.
        ClientError::NoAnswer(_)
        | ClientError::NoNode
        | ClientError::BadVersion
        | ClientError::NodeExists => SessionError::NoAnswer { why },
    }
}

/// Draws a new GUID.
pub(crate) fn guid() -> Result<Guid, String> {
    let half =
        || random().map(u128::from).map_err(|error| format!("the system has no random numbers: {error}"));
    Ok(Guid(half()? << 64 | half()?))
}

/// Leaves out the password.
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
        assert!(matches!(told(&ClientError::Ended("gone".to_owned())), SessionError::Ended { .. }));
        assert!(matches!(told(&ClientError::NoAuth), SessionError::Refused { .. }));
        assert!(matches!(told(&ClientError::AuthFailed), SessionError::Refused { .. }));
        assert!(matches!(told(&ClientError::NoAnswer("late".to_owned())), SessionError::NoAnswer { .. }));
        let link = Link::new("a:1".to_owned(), Some("ann:secret".to_owned()));
        assert!(!format!("{link:?}").contains("secret"));
    }
}
