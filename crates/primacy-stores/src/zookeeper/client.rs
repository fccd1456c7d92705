//! A small client of ZooKeeper: the requests that this store needs, in a session that outlives its connections.
//!
//! A server is not trusted: what it sends is checked before anything is allocated ([`jute`]), an answer must be the one that is due
//! ([`exchange`]), and a server that answers nothing is given up ([`server_connection`]); then the session continues over another
//! connection, if it still exists ([`session_task`]).
//!
//! A request is sent over one connection and never repeated. If the connection is lost before the answer, its outcome is unknown. Dropping
//! the future of a request leaves it unknown too, and the next requests are not affected.
//!
//! A watch fires once: at a change; whenever the session has got another connection, since a change may have been missed meanwhile; and
//! when the session ends.

mod exchange;
mod jute;
mod server_connection;
mod session_task;
#[cfg(test)]
mod tests;

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use self::exchange::{Outgoing, WatchOrder, WatchScope};
pub(crate) use self::jute::{Acl, Stat, permission};
use self::jute::{JuteReader, JuteWriter, Malformed};
use self::server_connection::SessionRequest;
use self::session_task::{SessionPhase, SessionState, SessionTask};
use crate::attempts;
use crate::runtime;

/// The time limit for reaching a server and beginning a session.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);

/// The time limit of a request to be answered, and of a lost connection to be replaced before the request is sent.
pub(crate) const REQUEST_PATIENCE: Duration = Duration::from_secs(5);

/// The maximum length of a request, in bytes: a server reads no more by default (`jute.maxbuffer`).
const REQUEST_MAX: usize = 0xf_ffff;

/// The codes of requests.
mod operation {
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const GET_ACL: i32 = 6;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const PING: i32 = 11;
    pub(crate) const CHECK: i32 = 13;
    pub(crate) const MULTI: i32 = 14;
    /// Creates a znode, and answers with its stat.
    pub(crate) const CREATE: i32 = 15;
    pub(crate) const LOGIN: i32 = 100;
    pub(crate) const CLOSE: i32 = -11;
    /// The part of the answer to a transaction that is an error, and the end of its parts.
    pub(crate) const ERROR: i32 = -1;
}

/// The codes of errors.
mod code {
    pub(crate) const OK: i32 = 0;
    pub(crate) const UNIMPLEMENTED: i32 = -6;
    pub(crate) const BAD_ARGUMENTS: i32 = -8;
    pub(crate) const NO_NODE: i32 = -101;
    pub(crate) const NO_AUTH: i32 = -102;
    pub(crate) const BAD_VERSION: i32 = -103;
    pub(crate) const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
    pub(crate) const NODE_EXISTS: i32 = -110;
    pub(crate) const SESSION_EXPIRED: i32 = -112;
    pub(crate) const INVALID_ACL: i32 = -114;
    pub(crate) const AUTH_FAILED: i32 = -115;
    pub(crate) const AUTH_REQUIRED: i32 = -124;
    pub(crate) const QUOTA_EXCEEDED: i32 = -125;
}

/// The reason that a request has no answer of the kind requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("NoNode: the znode does not exist")]
    NoNode,
    #[error("NoAuth: this user lacks a right on the znode")]
    NoAuth,
    #[error("BadVersion: the znode has changed")]
    BadVersion,
    #[error("NodeExists: the znode exists already")]
    NodeExists,
    #[error("AuthFailed: the server does not accept this user, or any login by name and password")]
    AuthFailed,
    /// The server has refused the request, and will again.
    #[error("{0}")]
    Refused(String),
    /// The session is over.
    #[error("{0}")]
    Ended(String),
    /// The request may have been carried out, or may yet be.
    #[error("{0}")]
    NoAnswer(String),
}

impl ClientError {
    fn expired() -> Self {
        Self::Ended("it has expired".to_owned())
    }

    /// Interprets the error of an answer.
    fn of_code(code: i32) -> Self {
        let refused = |why: &str| Self::Refused(format!("the server refuses the request: {why}"));
        match code {
            code::NO_NODE => Self::NoNode,
            code::NO_AUTH => Self::NoAuth,
            code::BAD_VERSION => Self::BadVersion,
            code::NODE_EXISTS => Self::NodeExists,
            code::UNIMPLEMENTED => refused("Unimplemented: it is older than ZooKeeper 3.5"),
            code::BAD_ARGUMENTS => refused("BadArguments"),
            code::NO_CHILDREN_FOR_EPHEMERALS => {
                refused("NoChildrenForEphemerals: the election's znode is an ephemeral one of another client")
            }
            code::INVALID_ACL => refused("InvalidACL"),
            code::QUOTA_EXCEEDED => refused("QuotaExceeded: a quota above the election's znode is used up"),
            // In a transaction, the servers' leader reports it for a part.
            code::SESSION_EXPIRED => Self::expired(),
            // Such as a move of the session, or a server that is overloaded.
            other => Self::NoAnswer(format!("the server answers with the error {other}")),
        }
    }
}

/// A client with a session, which is closed when the client is dropped.
#[derive(Debug)]
pub(crate) struct ZooKeeperClient {
    /// The session's number, as the servers write it into znodes that the session owns.
    session: i64,
    states: watch::Receiver<SessionState>,
    _open: mpsc::Sender<()>,
}

/// The kind of a znode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZnodeKind {
    Persistent = 0,
    /// Ends with its session, and has a number at the end of its name.
    EphemeralSequential = 3,
}

/// A watch, which fires once.
#[derive(Debug)]
pub(crate) struct ZnodeWatch(oneshot::Receiver<()>);

impl ZnodeWatch {
    /// Waits until the watch fires.
    pub(crate) async fn fired(self) {
        // The client drops the other end.
        let _ = self.0.await;
    }
}

impl ZooKeeperClient {
    /// Begins a session with one of the servers, `HOST:PORT` with commas between them; `login` is `USER:PASSWORD`.
    pub(crate) async fn connect(
        servers: &str,
        timeout: Duration,
        login: Option<String>,
    ) -> Result<Self, ClientError> {
        attempts::failed(&format_args!("connecting to {servers}"));
        let servers = servers.split(',').map(str::to_owned).collect();
        let request = SessionRequest { login, timeout, session: 0, password: vec![0; 16], zxid: 0 };
        let (open, is_open) = mpsc::channel(1);
        let until = Instant::now() + CONNECT_PATIENCE;
        let (task, connection) = SessionTask::begin(servers, request, until, is_open).await?;
        let (session, mut states) = (connection.grant.session, task.states());
        runtime::detach(task.run(connection)).map_err(ClientError::NoAnswer)?;
        // It is connected, or has ended already.
        let _ = states.changed().await;
        Ok(Self { session, states, _open: open })
    }

    pub(crate) const fn session(&self) -> i64 {
        self.session
    }

    /// Returns the shortest timeout that a server has granted this session so far.
    pub(crate) fn granted(&self) -> Duration {
        self.states.borrow().granted
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.states.borrow().phase, SessionPhase::Connected { .. })
    }

    /// Returns the reason that the session has ended, if it has.
    pub(crate) fn ended(&self) -> Option<ClientError> {
        match &self.states.borrow().phase {
            SessionPhase::Over(error) => Some(error.clone()),
            SessionPhase::Connected { .. } | SessionPhase::Disconnected(_) => None,
        }
    }

    /// Returns a future that waits until the session has ended, for example because this client was dropped.
    pub(crate) fn end(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut states = self.states.clone();
        async move {
            // An error means that its task has ended.
            drop(states.wait_for(|state| matches!(state.phase, SessionPhase::Over(_))).await);
        }
    }

    /// Creates a znode, and returns its path, which ends with a number if `kind` is sequential.
    pub(crate) async fn create(
        &self,
        path: &str,
        data: &[u8],
        kind: ZnodeKind,
        acl: &Acl,
    ) -> Result<(String, Stat), ClientError> {
        let body = JuteWriter::default().text(path).buffer(data).acl(acl).int(kind as i32);
        let asked = path.to_owned();
        let parse = move |reader: &mut JuteReader<'_>| {
            let made = reader.path()?;
            let number = made.strip_prefix(&asked);
            let is_asked = match kind {
                ZnodeKind::Persistent => number == Some(""),
                ZnodeKind::EphemeralSequential => number.is_some_and(|number| number.parse::<i32>().is_ok()),
            };
            if !is_asked {
                return Err(Malformed(format!("it names {made:?} as what was made for {asked:?}")));
            }
            Ok((made.to_owned(), Stat::read(reader)?))
        };
        self.request(operation::CREATE, body, None, parse).await
    }

    /// Creates a persistent znode without data, and those above it that do not exist. Whether it existed before is not told.
    pub(crate) async fn create_all(&self, path: &str, acl: &Acl) -> Result<(), ClientError> {
        let ends: Vec<usize> =
            path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]).collect();
        // From below, since a znode above may exist in one where this user may create nothing. Others may remove some meanwhile.
        let mut level = ends.len() - 1;
        for _ in 0..4 * ends.len() {
            match self.create(&path[..ends[level]], b"", ZnodeKind::Persistent, acl).await {
                Ok(_) | Err(ClientError::NodeExists) if level + 1 == ends.len() => return Ok(()),
                Ok(_) | Err(ClientError::NodeExists) => level += 1,
                Err(ClientError::NoNode) if level > 0 => level -= 1,
                Err(error) => return Err(error),
            }
        }
        Err(ClientError::NoNode)
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<(), ClientError> {
        let body = JuteWriter::default().text(path).int(ANY_VERSION);
        self.request(operation::DELETE, body, None, |_| Ok(())).await
    }

    /// Returns the stat of a znode; `None` if it does not exist.
    pub(crate) async fn stat(&self, path: &str) -> Result<Option<Stat>, ClientError> {
        self.look(path, None).await
    }

    /// Returns the stat of a znode, and sets a watch for its creation, its deletion and a change of its data.
    pub(crate) async fn watch_stat(&self, path: &str) -> Result<(Option<Stat>, ZnodeWatch), ClientError> {
        let (order, watch) = order(path, WatchScope::Znode);
        Ok((self.look(path, Some(order)).await?, watch))
    }

    async fn look(&self, path: &str, watch: Option<WatchOrder>) -> Result<Option<Stat>, ClientError> {
        let body = JuteWriter::default().text(path).flag(watch.is_some());
        match self.request(operation::EXISTS, body, watch, Stat::read).await {
            Ok(stat) => Ok(Some(stat)),
            Err(ClientError::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn data(&self, path: &str) -> Result<(Vec<u8>, Stat), ClientError> {
        self.read(path, None).await
    }

    /// Returns the data of a znode, and sets a watch for its deletion and a change of its data.
    pub(crate) async fn watch_data(&self, path: &str) -> Result<(Vec<u8>, Stat, ZnodeWatch), ClientError> {
        let (order, watch) = order(path, WatchScope::Znode);
        let (data, stat) = self.read(path, Some(order)).await?;
        Ok((data, stat, watch))
    }

    async fn read(&self, path: &str, watch: Option<WatchOrder>) -> Result<(Vec<u8>, Stat), ClientError> {
        let body = JuteWriter::default().text(path).flag(watch.is_some());
        let parse = |reader: &mut JuteReader<'_>| Ok((reader.buffer()?.to_vec(), Stat::read(reader)?));
        self.request(operation::GET_DATA, body, watch, parse).await
    }

    /// Returns the names of a znode's children.
    pub(crate) async fn children(&self, path: &str) -> Result<Vec<String>, ClientError> {
        self.list(path, None).await
    }

    /// Returns the names of a znode's children, and sets a watch for a change of this list and the deletion of the znode.
    pub(crate) async fn watch_children(&self, path: &str) -> Result<(Vec<String>, ZnodeWatch), ClientError> {
        let (order, watch) = order(path, WatchScope::Children);
        Ok((self.list(path, Some(order)).await?, watch))
    }

    async fn list(&self, path: &str, watch: Option<WatchOrder>) -> Result<Vec<String>, ClientError> {
        let body = JuteWriter::default().text(path).flag(watch.is_some());
        let parse = |reader: &mut JuteReader<'_>| reader.list(|reader| reader.name().map(str::to_owned));
        self.request(operation::GET_CHILDREN, body, watch, parse).await
    }

    pub(crate) async fn acls(&self, path: &str) -> Result<Vec<Acl>, ClientError> {
        let parse = |reader: &mut JuteReader<'_>| {
            let acls = reader.list(Acl::read)?;
            Stat::read(reader).map(|_| acls)
        };
        self.request(operation::GET_ACL, JuteWriter::default().text(path), None, parse).await
    }

    /// Commits a transaction that changes nothing: it checks that a znode exists.
    pub(crate) async fn check(&self, path: &str) -> Result<(), ClientError> {
        let body = part(JuteWriter::default(), operation::CHECK).text(path).int(ANY_VERSION);
        self.commit(body, &[operation::CHECK]).await
    }

    /// Writes the data of `path` if it has this version, and if `unchanged` has that one.
    pub(crate) async fn set_data_if(
        &self,
        (path, version): (&str, i32),
        data: &[u8],
        (unchanged, unchanged_version): (&str, i32),
    ) -> Result<(), ClientError> {
        let check = part(JuteWriter::default(), operation::CHECK).text(unchanged).int(unchanged_version);
        let body = part(check, operation::SET_DATA).text(path).buffer(data).int(version);
        self.commit(body, &[operation::CHECK, operation::SET_DATA]).await
    }

    /// Commits the transaction with these parts, which are encoded in `body`.
    async fn commit(&self, body: JuteWriter, parts: &'static [i32]) -> Result<(), ClientError> {
        let body = body.int(operation::ERROR).flag(true).int(-1);
        let parse = |reader: &mut JuteReader<'_>| results(reader, parts);
        match self.request(operation::MULTI, body, None, parse).await? {
            code::OK => Ok(()),
            error => Err(ClientError::of_code(error)),
        }
    }

    /// Sends a request over the present connection, or the next one, and waits for its answer.
    async fn request<T: Send + 'static>(
        &self,
        operation: i32,
        body: JuteWriter,
        watch: Option<WatchOrder>,
        parse: impl FnOnce(&mut JuteReader<'_>) -> Result<T, Malformed> + Send + 'static,
    ) -> Result<T, ClientError> {
        if body.0.len() > REQUEST_MAX {
            let why = format!("the request has {} bytes, and may have {REQUEST_MAX}", body.0.len());
            return Err(ClientError::Refused(why));
        }
        let (sender, answer) = oneshot::channel();
        let settle = Box::new(move |answer: Result<&mut JuteReader<'_>, ClientError>| {
            let result = match answer {
                Ok(reader) => {
                    let parsed = parse(reader)?;
                    reader.end()?;
                    Ok(parsed)
                }
                Err(error) => Err(error),
            };
            // An error means that the caller has given up.
            drop(sender.send(result));
            Ok(())
        });
        let (server, requests) = self.connected().await?;
        let answered = async {
            let outgoing = Outgoing { operation, body: body.0, watch, settle };
            if requests.send(outgoing).await.is_ok()
                && let Ok(result) = answer.await
            {
                return result;
            }
            self.lost(&requests).await
        };
        let late = || ClientError::NoAnswer(format!("{server}: no answer within {REQUEST_PATIENCE:?}"));
        timeout(REQUEST_PATIENCE, answered).await.unwrap_or_else(|_| Err(late()))
    }

    /// Waits for a connection.
    async fn connected(&self) -> Result<(String, mpsc::Sender<Outgoing>), ClientError> {
        let mut states = self.states.clone();
        let connecting = async {
            loop {
                match &states.borrow_and_update().phase {
                    SessionPhase::Connected { server, requests } => {
                        return Ok((server.clone(), requests.clone()));
                    }
                    SessionPhase::Disconnected(why) => attempts::failed(why),
                    SessionPhase::Over(error) => return Err(error.clone()),
                }
                if states.changed().await.is_err() {
                    return Err(ClientError::Ended("its task has ended".to_owned()));
                }
            }
        };
        let reached = timeout(REQUEST_PATIENCE, connecting).await;
        reached.unwrap_or_else(|_| match &self.states.borrow().phase {
            SessionPhase::Disconnected(why) => {
                Err(ClientError::NoAnswer(format!("no connection to a server: {why}")))
            }
            SessionPhase::Connected { .. } | SessionPhase::Over(_) => {
                Err(ClientError::NoAnswer("no connection to a server".to_owned()))
            }
        })
    }

    /// Returns the reason that the connection of these requests was lost.
    async fn lost<T>(&self, requests: &mpsc::Sender<Outgoing>) -> Result<T, ClientError> {
        let is_lost = |state: &SessionState| match &state.phase {
            SessionPhase::Connected { requests: present, .. } => !present.same_channel(requests),
            SessionPhase::Disconnected(_) | SessionPhase::Over(_) => true,
        };
        let mut states = self.states.clone();
        let lost = states.wait_for(is_lost).await.map(|state| state.phase.clone());
        Err(match lost {
            Ok(SessionPhase::Over(error)) => error,
            Ok(SessionPhase::Disconnected(why)) => {
                ClientError::NoAnswer(format!("the connection was lost: {why}"))
            }
            Ok(SessionPhase::Connected { .. }) | Err(_) => {
                ClientError::NoAnswer("the connection was lost".to_owned())
            }
        })
    }
}

/// The version of a change that does not depend on the znode's version.
const ANY_VERSION: i32 = -1;

fn order(path: &str, scope: WatchScope) -> (WatchOrder, ZnodeWatch) {
    let (fire, fired) = oneshot::channel();
    (WatchOrder { path: path.to_owned(), scope, fire }, ZnodeWatch(fired))
}

/// Begins a part of a transaction.
fn part(body: JuteWriter, operation: i32) -> JuteWriter {
    body.int(operation).flag(false).int(-1)
}

/// Reads the results of a transaction with these parts; returns the first error, or [`code::OK`].
fn results(reader: &mut JuteReader<'_>, parts: &[i32]) -> Result<i32, Malformed> {
    let mut failed = code::OK;
    for part in parts {
        let (result, is_end, _) = (reader.int()?, reader.flag()?, reader.int()?);
        match result {
            _ if is_end => return Err(Malformed("it has too few results".to_owned())),
            operation::ERROR => {
                let error = reader.int()?;
                // The parts before the one that failed have no error, and those after it a code that says just that.
                failed = if failed == code::OK { error } else { failed };
            }
            operation::SET_DATA if result == *part => drop(Stat::read(reader)?),
            _ if result == *part => {}
            other => return Err(Malformed(format!("it has the result of operation {other}, not of {part}"))),
        }
    }
    let (_, is_end, _) = (reader.int()?, reader.flag()?, reader.int()?);
    if is_end { Ok(failed) } else { Err(Malformed("it has too many results".to_owned())) }
}
