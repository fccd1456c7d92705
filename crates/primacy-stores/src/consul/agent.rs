//! HTTP to the Consul agents that a URL names, over this module's own connections, with one request at a time on each.
//!
//! A connection whose request was abandoned is closed, so no answer is ever taken for that of another request. A
//! request that fails on a reused connection is tried once on a new one, and then with the next agent: every request
//! may be carried out twice, see [`api`](super::api).

use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::attempts;
use crate::mutex::lock;
use crate::replaced_files::FromFiles;
use crate::runtime::{self, Aborted};
use crate::store_url::Host;

/// The time limit of a connection, TLS included. An agent runs on the same machine, or near.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The longest answer that is read, in bytes. The longest value of a key is half of that by default.
const BODY_MAX: usize = 1 << 20;

/// The number of connections kept for later requests.
const IDLE_MAX: usize = 8;

/// The agents, in the order of the URL, and the token for all of them.
pub(super) struct Agents {
    hosts: Vec<Host>,
    default_port: u16,
    tls: Option<Arc<ClientConfig>>,
    token: Token,
    /// The agent to which requests go first.
    current: AtomicUsize,
    idle: Mutex<Vec<(usize, Connection)>>,
}

/// A request to an agent.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) method: Method,
    /// The path and query, percent-encoded.
    pub(super) target: String,
    pub(super) body: Vec<u8>,
}

/// The answer of an agent.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// The value of `X-Consul-Index`.
    pub(super) index: Option<u64>,
    pub(super) body: Vec<u8>,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Closes the connection when it is dropped.
    _serving: Aborted<()>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The token that is sent to agents.
#[derive(Debug)]
pub(super) enum Token {
    /// The token when the store was opened, if there is one.
    Fixed(Option<HeaderValue>),
    /// The token in a file.
    File(Arc<FromFiles<HeaderValue>>),
}

impl Token {
    /// Returns the present token.
    pub(super) fn current(&self) -> Option<HeaderValue> {
        match self {
            Self::Fixed(token) => token.clone(),
            Self::File(file) => Some(file.current()),
        }
    }
}

/// A guard that makes the next agent the current one when a request is abandoned.
struct Turn<'a> {
    agents: &'a Agents,
    agent: usize,
    is_over: bool,
}

impl Agents {
    pub(super) fn new(hosts: Vec<Host>, tls: Option<Arc<ClientConfig>>, token: Token) -> Self {
        let default_port = if tls.is_some() { super::url::TLS_PORT } else { super::url::PORT };
        Self { hosts, default_port, tls, token, current: AtomicUsize::new(0), idle: Mutex::default() }
    }

    /// Asks one agent after another until one answers without an error of its own, each within a share of `patience`.
    /// The error has the reason of each agent.
    pub(super) async fn ask(&self, question: &Question, patience: Duration) -> Result<Answer, String> {
        let count = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX).max(1);
        let share = patience / count;
        let (mut last, mut reasons) = (Err(String::new()), Vec::new());
        for _ in &self.hosts {
            last = self.ask_current(question, share).await;
            // If an agent finds no server, or its server has no leader, the next agent may find one.
            let reason = match &last {
                Ok(answer) if answer.status < 500 && answer.status != 429 => return last,
                Ok(answer) => format!("Consul answers with the status {}", answer.status),
                Err(why) => why.clone(),
            };
            attempts::failed(&reason);
            reasons.push(reason);
        }
        last.map_err(|_| reasons.join("; "))
    }

    /// Asks the current agent. If it does not answer, the next one becomes the current one.
    pub(super) async fn ask_current(
        &self,
        question: &Question,
        patience: Duration,
    ) -> Result<Answer, String> {
        let agent = self.current.load(Ordering::SeqCst) % self.hosts.len();
        let mut turn = Turn { agents: self, agent, is_over: false };
        let given_up = |_| format!("{}: no answer within {patience:?}", self.address(agent));
        let told = tokio::time::timeout(patience, self.ask_agent(agent, question)).await.map_err(given_up)?;
        turn.is_over = matches!(&told, Ok(answer) if answer.status < 500);
        told.map_err(|why| format!("{}: {why}", self.address(agent)))
    }

    async fn ask_agent(&self, agent: usize, question: &Question) -> Result<Answer, String> {
        if let Some(connection) = self.take_idle(agent) {
            // The agent may have closed it since; then only this try is lost.
            if let Ok(answer) = self.exchange(agent, connection, question).await {
                return Ok(answer);
            }
        }
        let connecting = tokio::time::timeout(CONNECT_MAX, self.connect(agent)).await;
        let connection = connecting.map_err(|_| format!("no connection within {CONNECT_MAX:?}"))?;
        self.exchange(agent, connection.map_err(|error| error.to_string())?, question).await
    }

    async fn exchange(
        &self,
        agent: usize,
        mut connection: Connection,
        question: &Question,
    ) -> Result<Answer, String> {
        let told = |error: hyper::Error| error.to_string();
        connection.sender.ready().await.map_err(told)?;
        let request = self.request(agent, question).map_err(|error| error.to_string())?;
        let (head, body) = connection.sender.send_request(request).await.map_err(told)?.into_parts();
        let body = Limited::new(body, BODY_MAX).collect().await.map_err(|error| error.to_string())?;
        let index = head.headers.get("x-consul-index").and_then(|index| index.to_str().ok()?.parse().ok());
        let answer = Answer { status: head.status.as_u16(), index, body: body.to_bytes().to_vec() };
        self.put_idle(agent, connection);
        Ok(answer)
    }

    fn request(&self, agent: usize, question: &Question) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::builder().method(question.method.clone()).uri(&question.target);
        request = request.header(HOST, self.address(agent)).header(CONTENT_TYPE, "application/json");
        if let Some(token) = self.token.current() {
            request = request.header("x-consul-token", token);
        }
        request.body(Full::new(Bytes::from(question.body.clone())))
    }

    async fn connect(&self, agent: usize) -> io::Result<Connection> {
        let stream = TcpStream::connect(self.address(agent)).await?;
        // A keep-alive must not wait for more data to send (Nagle's algorithm).
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = self.hosts.get(agent).map_or("", |host| &host.name).to_owned();
                let name = ServerName::try_from(name).map_err(io::Error::other)?;
                Box::new(TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?)
            }
        };
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        // The error is ignored: a request on the connection gets it too.
        let serving = runtime::spawn(async move { drop(connection.await) }).map_err(io::Error::other)?;
        Ok(Connection { sender, _serving: serving })
    }

    fn address(&self, agent: usize) -> String {
        self.hosts.get(agent).map(|host| host.authority(self.default_port)).unwrap_or_default()
    }

    fn take_idle(&self, agent: usize) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        idle.retain(|(_, connection)| !connection.sender.is_closed());
        let found = idle.iter().rposition(|(known, _)| *known == agent)?;
        Some(idle.remove(found).1)
    }

    fn put_idle(&self, agent: usize, connection: Connection) {
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX && !connection.sender.is_closed() {
            idle.push((agent, connection));
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let next = (self.agent + 1) % self.agents.hosts.len();
            let current = &self.agents.current;
            // Another request may have changed it before.
            let _ = current.compare_exchange(self.agent, next, Ordering::SeqCst, Ordering::SeqCst);
        }
    }
}

/// Leaves out the token.
impl std::fmt::Debug for Agents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agents")
            .field("hosts", &self.hosts)
            .field("tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

/// Runs `work` on the stores' thread; `lost` makes the error if it could not be finished there.
pub(super) async fn there<T, E>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
    lost: impl FnOnce(String) -> E,
) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    runtime::run(work).await.unwrap_or_else(|why| Err(lost(why)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store_url::Host;

    #[tokio::test]
    async fn the_reason_of_each_agent_is_in_the_error() {
        let hosts = ["127.0.0.1:1", "127.0.0.1:2"].map(|host| Host::parse(host).unwrap());
        let agents = Agents::new(hosts.to_vec(), None, Token::Fixed(None));
        let question = Question { method: Method::GET, target: "/v1/kv/a".to_owned(), body: Vec::new() };
        let error = agents.ask(&question, Duration::from_secs(10)).await.unwrap_err();
        assert!(error.contains("127.0.0.1:1: ") && error.contains("127.0.0.1:2: "), "{error}");
    }
}
