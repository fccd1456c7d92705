//! [`SessionTask`]: the task that keeps a session over one connection after another.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::ClientError;
use super::exchange::{ConnectionEnd, Outgoing, ZnodeWatches};
use super::server_connection::{ServerConnection, SessionRequest, WAITING_MAX};
use crate::attempts;

/// The time limit of one server to accept a connection and a session.
const SERVER_PATIENCE: Duration = Duration::from_secs(2);

/// The part of the session's timeout after which a session without a server counts as expired. The servers may keep
/// its entries longer: by a tick, or by the whole timeout after a change of their leader.
const EXPIRY: f64 = 1.4;

/// The time limit of one server as a part of the session's timeout, so that another one can be tried.
const PATIENCE: f64 = 0.4;

/// The pause after all servers were tried; it doubles each time, up to the longest one.
const ROUND_PAUSE: Duration = Duration::from_millis(100);
const ROUND_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The minimum time between the beginnings of two connections, in case servers end each one at once.
const CONNECTION_PAUSE: Duration = Duration::from_millis(200);

/// The state of a session.
#[derive(Clone, Debug)]
pub(super) struct SessionState {
    /// The shortest timeout that a server has granted so far.
    pub(super) granted: Duration,
    pub(super) phase: SessionPhase,
}

/// The present connection of a session.
#[derive(Clone, Debug)]
pub(super) enum SessionPhase {
    Connected {
        server: String,
        requests: mpsc::Sender<Outgoing>,
    },
    /// The reason of the last failure to reach a server.
    Disconnected(String),
    Over(ClientError),
}

/// A session, which ends when its client is dropped.
pub(super) struct SessionTask {
    servers: Vec<String>,
    request: SessionRequest,
    states: watch::Sender<SessionState>,
    /// Closed when the client is dropped.
    open: mpsc::Receiver<()>,
}

impl SessionTask {
    /// Begins a session.
    pub(super) async fn begin(
        mut servers: Vec<String>,
        mut request: SessionRequest,
        until: Instant,
        open: mpsc::Receiver<()>,
    ) -> Result<(Self, ServerConnection), ClientError> {
        shuffle(&mut servers);
        let failed = |why: &str| attempts::failed(&why);
        let connection = reach(&servers, &request, SERVER_PATIENCE, until, failed).await?;
        request.session = connection.grant.session;
        request.timeout = connection.grant.timeout;
        let phase = SessionPhase::Disconnected("the session begins".to_owned());
        let states = watch::Sender::new(SessionState { granted: request.timeout, phase });
        Ok((Self { servers, request, states, open }, connection))
    }

    pub(super) fn states(&self) -> watch::Receiver<SessionState> {
        self.states.subscribe()
    }

    /// Keeps the session, which has begun over this connection, until it ends.
    pub(super) async fn run(mut self, mut connection: ServerConnection) {
        let mut watches = ZnodeWatches::default();
        let mut close_until = None;
        let over = loop {
            let began_at = Instant::now();
            let mut requests = self.connected(&mut connection);
            // A change may have been missed while there was no connection, so each waiter reads again.
            watches.fire_all();
            let end = connection.serve(&mut requests, &mut watches, &mut self.open).await;
            let why = match end {
                ConnectionEnd::Lost(why) => format!("{}: {why}", connection.server),
                ConnectionEnd::SessionOver(error) => break error,
            };
            tracing::debug!("the connection to ZooKeeper is lost: {why}");
            let until = connection.answered_at + self.request.timeout.mul_f64(EXPIRY);
            // A server that does not close the session must not keep it for ever.
            if self.open.is_closed()
                && Instant::now() > *close_until.get_or_insert(Instant::now() + self.request.timeout)
            {
                break ClientError::Ended("no server has closed it; it expires".to_owned());
            }
            self.request.zxid = self.request.zxid.max(connection.exchange.zxid);
            shuffle(&mut self.servers);
            self.servers.sort_by_key(|server| *server == connection.server);
            // Known first, for it is the reason for which the requests that wait for answers fail when the connection is dropped.
            self.disconnected(&why);
            drop((connection, requests));
            sleep_until(began_at + CONNECTION_PAUSE).await;
            connection = match self.reconnect(until).await {
                Ok(connection) => connection,
                Err(error) => break error,
            };
        };
        self.states.send_modify(|state| state.phase = SessionPhase::Over(over));
        // Dropping the watches and the connection wakes all who wait, and they can see the reason.
    }

    async fn reconnect(&self, until: Instant) -> Result<ServerConnection, ClientError> {
        let patience = SERVER_PATIENCE.min(self.request.timeout.mul_f64(PATIENCE));
        let failed = |why: &str| self.disconnected(why);
        let reached = reach(&self.servers, &self.request, patience, until, failed).await;
        reached.map_err(|error| {
            let ClientError::NoAnswer(why) = error else { return error };
            ClientError::Ended(format!("no server was reached until it must have expired: {why}"))
        })
    }

    /// Takes over what the server has granted, of the timeout the shortest so far, and makes the way to it known.
    fn connected(&mut self, connection: &mut ServerConnection) -> mpsc::Receiver<Outgoing> {
        let (before, granted) = (self.request.timeout, connection.grant.timeout);
        if granted < before {
            tracing::warn!(?before, ?granted, "the servers have cut the timeout of the session of this node");
            self.request.timeout = granted;
        }
        connection.grant.timeout = self.request.timeout;
        self.request.password.clone_from(&connection.grant.password);
        let (sender, requests) = mpsc::channel(WAITING_MAX);
        let phase = SessionPhase::Connected { server: connection.server.clone(), requests: sender };
        self.states.send_replace(SessionState { granted: self.request.timeout, phase });
        requests
    }

    fn disconnected(&self, why: &str) {
        self.states.send_modify(|state| state.phase = SessionPhase::Disconnected(why.to_owned()));
    }
}

/// Tries one server after another until one has accepted the session. The error has the last failure of each.
async fn reach(
    servers: &[String],
    request: &SessionRequest,
    patience: Duration,
    until: Instant,
    failed: impl Fn(&str),
) -> Result<ServerConnection, ClientError> {
    let mut failures = BTreeMap::new();
    let trying = async {
        let mut pause = ROUND_PAUSE;
        loop {
            for server in servers {
                let why = match timeout(patience, ServerConnection::open(server, request)).await {
                    Ok(Ok(connection)) => return Ok(connection),
                    Ok(Err(ConnectionEnd::SessionOver(error))) => return Err(error),
                    Ok(Err(ConnectionEnd::Lost(why))) => why,
                    Err(_) => format!("it has not answered within {patience:?}"),
                };
                let why = format!("{server}: {why}");
                failed(&why);
                failures.insert(server, why);
            }
            sleep(pause + pause.mul_f64(f64::from(drawn(100)) / 100.0)).await;
            pause = ROUND_PAUSE_MAX.min(2 * pause);
        }
    };
    let reached = timeout_at(until, trying).await;
    reached.unwrap_or_else(|_| {
        let failures: Vec<String> = failures.into_values().collect();
        Err(ClientError::NoAnswer(failures.join("; ")))
    })
}

fn shuffle(servers: &mut [String]) {
    for last in (1..servers.len()).rev() {
        // There are far fewer than 2³² servers.
        let drawn = drawn(u32::try_from(last + 1).unwrap_or(u32::MAX));
        servers.swap(last, drawn as usize);
    }
}

/// Draws a number below `limit`; zero if the system has no random numbers.
fn drawn(limit: u32) -> u32 {
    getrandom::u32().unwrap_or(0) % limit
}
