//! [`Connection`]: one connection to a server, which is logged in and answers one request at a time.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::packet::{self, Done, Fields, Greeting, Row, ServerError, capability};
use super::refusal;
use super::settings::{Settings, authority};
use super::sha;
use crate::open_error::OpenError;
use crate::store_url::Host;

/// The maximum length of the answers to one request, in bytes: more than the longest record and everything sent with it.
const ANSWER_MAX: usize = 2 * packet::LENGTH_MAX;

/// Text is UTF-8 (`utf8mb4_general_ci`).
const CHARSET: u8 = 45;

const COM_QUERY: u8 = 3;

const NATIVE: &str = "mysql_native_password";
const CACHING_SHA2: &str = "caching_sha2_password";

/// The settings of each session that the statements rely on, whatever the server's own are. Each statement is its own transaction unless it
/// begins one; a wait for a locked row or table lasts one second; invalid values are errors.
const SESSION: &str = "SET SESSION autocommit = 1, SESSION completion_type = 0, SESSION innodb_lock_wait_timeout = 1, \
                       SESSION lock_wait_timeout = 1, SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'; \
                       SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ WRITE";

/// The bytes of a connection, with TLS or without.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection that is logged in.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    /// The number of the next packet.
    sequence: u8,
    /// Bytes that were read since the last request.
    read: usize,
}

/// The answer to one statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
    /// Rows that an update has found, or an insert has made.
    pub(super) affected: u64,
}

/// The reason that a request has no answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueryError {
    /// The server refused a statement, and ran none of those after it.
    Server {
        /// The number of statements that it has run before.
        answered: usize,
        error: ServerError,
    },
    /// The connection is broken, and the outcome of the request is unknown.
    Broken(String),
}

impl Connection {
    /// Connects to a host, logs in, and applies the session settings that the statements need.
    pub(super) async fn open(settings: &Settings, host: &Host) -> Result<Self, OpenError> {
        let stream = TcpStream::connect(authority(host)).await.map_err(|error| unavailable(&error))?;
        stream.set_nodelay(true).map_err(|error| unavailable(&error))?;
        let mut connection = Self { stream: Box::new(stream), sequence: 0, read: 0 };
        let packet = connection.receive().await?;
        if let Some(error) = ServerError::parse(&packet) {
            return Err(refusal::of_opening(&error));
        }
        let greeting = Greeting::parse(&packet).ok_or_else(|| unavailable(&"it is no server of MySQL"))?;
        if let Some(tls) = &settings.tls {
            connection = connection.protect(&greeting, Arc::clone(tls), host).await?;
        }
        connection.log_in(settings, &greeting).await?;
        connection.query(SESSION).await.map_err(|error| match error {
            QueryError::Server { error, .. } => refusal::of_opening(&error),
            QueryError::Broken(why) => unavailable(&why),
        })?;
        Ok(connection)
    }

    /// Begins TLS, which protects everything except the server's greeting.
    async fn protect(
        mut self,
        greeting: &Greeting,
        tls: Arc<rustls::ClientConfig>,
        host: &Host,
    ) -> Result<Self, OpenError> {
        let refused = |why: &str| OpenError::Refused { why: why.to_owned() };
        if greeting.capabilities & capability::SSL == 0 {
            return Err(refused(
                "it has no TLS; give it a certificate, or write `tls=off` where nobody else reads the network",
            ));
        }
        self.send(&beginning(capability::SSL)).await.map_err(|why| unavailable(&why))?;
        let name = ServerName::try_from(host.name.clone())
            .map_err(|_| refused("its name is no name or address that a certificate could be for"))?;
        let stream = TlsConnector::from(tls).connect(name, self.stream).await;
        let stream = stream.map_err(|error| match error.get_ref() {
            // An error of a certificate, of either side, does not pass without a repair.
            Some(inner) if inner.is::<rustls::Error>() => OpenError::Refused { why: format!("TLS: {inner}") },
            Some(_) | None => unavailable(&format!("TLS: {error}")),
        })?;
        Ok(Self { stream: Box::new(stream), sequence: self.sequence, read: self.read })
    }

    async fn log_in(&mut self, settings: &Settings, greeting: &Greeting) -> Result<(), OpenError> {
        let refused = |why: String| OpenError::Refused { why };
        let password = settings.password()?;
        // If the server uses another plugin, its answer requests that one.
        let plugin = if greeting.plugin == CACHING_SHA2 { CACHING_SHA2 } else { NATIVE };
        let answer = answer(plugin, &password, &greeting.challenge).unwrap_or_default();
        let tls = if settings.tls.is_some() { capability::SSL } else { 0 };
        let mut packet = beginning(tls);
        packet.extend(settings.user.as_bytes());
        packet.push(0);
        packet.push(u8::try_from(answer.len()).unwrap_or_default());
        packet.extend(answer);
        for text in [settings.database.as_str(), plugin] {
            packet.extend(text.as_bytes());
            packet.push(0);
        }
        self.send(&packet).await.map_err(|why| unavailable(&why))?;
        loop {
            let packet = self.receive().await?;
            let answer = match packet.split_first() {
                Some((0, _)) => return Ok(()),
                Some((0xff, _)) => {
                    let error = ServerError::parse(&packet).ok_or_else(garbled)?;
                    return Err(refusal::of_opening(&error));
                }
                Some((0xfe, rest)) => {
                    let mut fields = Fields(rest);
                    let plugin = fields.text();
                    let challenge = fields.0.strip_suffix(&[0]).unwrap_or(fields.0);
                    answer_or_refuse(&plugin, &password, challenge)?
                }
                // `caching_sha2_password`: the server has the password in its cache, and the answer was right.
                Some((1, [3])) => continue,
                // `caching_sha2_password`: the server needs the password itself.
                Some((1, [4])) if settings.tls.is_some() => [password.as_bytes(), &[0]].concat(),
                Some((1, [4])) => {
                    return Err(refused(format!(
                        "the user logs in by {CACHING_SHA2}, which sends the password: write `tls=on` into the URL"
                    )));
                }
                _ => return Err(garbled()),
            };
            self.send(&answer).await.map_err(|why| unavailable(&why))?;
        }
    }

    /// Runs statements with semicolons between them, and returns an answer for each.
    pub(super) async fn query(&mut self, statements: &str) -> Result<Vec<Answer>, QueryError> {
        (self.sequence, self.read) = (0, 0);
        let request = [&[COM_QUERY], statements.as_bytes()].concat();
        self.send(&request).await.map_err(QueryError::Broken)?;
        let mut answers = Vec::new();
        loop {
            let packet = self.packet().await.map_err(QueryError::Broken)?;
            if let Some(error) = ServerError::parse(&packet) {
                return Err(QueryError::Server { answered: answers.len(), error });
            }
            let (answer, is_more) = if let Some(Done { affected, is_more }) = Done::parse(&packet) {
                (Answer { rows: Vec::new(), affected }, is_more)
            } else {
                let columns = packet::column_count(&packet).ok_or_else(broken)?;
                match self.rows(columns).await? {
                    Ok((rows, is_more)) => (Answer { rows, affected: 0 }, is_more),
                    Err(error) => return Err(QueryError::Server { answered: answers.len(), error }),
                }
            };
            answers.push(answer);
            if !is_more {
                return Ok(answers);
            }
        }
    }

    /// Reads the rows that follow a column count, and whether another answer follows them.
    async fn rows(&mut self, columns: u64) -> Result<Result<(Vec<Row>, bool), ServerError>, QueryError> {
        // A description of each column.
        while packet::end_of_rows(&self.packet().await.map_err(QueryError::Broken)?).is_none() {}
        let mut rows = Vec::new();
        loop {
            let packet = self.packet().await.map_err(QueryError::Broken)?;
            if let Some(error) = ServerError::parse(&packet) {
                return Ok(Err(error));
            }
            match packet::end_of_rows(&packet) {
                Some(is_more) => return Ok(Ok((rows, is_more))),
                None => rows.push(packet::row(&packet, columns).ok_or_else(broken)?),
            }
        }
    }

    /// Returns whether the server has neither closed the connection nor sent unsolicited data.
    pub(super) async fn is_quiet(&mut self) -> bool {
        let mut byte = [0];
        std::future::poll_fn(|context| {
            let mut buffer = ReadBuf::new(&mut byte);
            Poll::Ready(std::pin::Pin::new(&mut self.stream).poll_read(context, &mut buffer).is_pending())
        })
        .await
    }

    async fn send(&mut self, payload: &[u8]) -> Result<(), String> {
        let too_long = || format!("a request has more than {} bytes", packet::LENGTH_MAX);
        let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= packet::LENGTH_MAX);
        let mut header = length.ok_or_else(too_long)?.to_le_bytes();
        header[3] = self.sequence;
        self.sequence = self.sequence.wrapping_add(1);
        let packet = [&header, payload].concat();
        let sending = async {
            self.stream.write_all(&packet).await?;
            self.stream.flush().await
        };
        sending.await.map_err(|error| error.to_string())
    }

    /// Reads one packet.
    async fn packet(&mut self) -> Result<Vec<u8>, String> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).await.map_err(|error| error.to_string())?;
        let [a, b, c, sequence] = header;
        let length = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
        self.sequence = sequence.wrapping_add(1);
        self.read = self.read.saturating_add(header.len() + length);
        if length > packet::LENGTH_MAX || self.read > ANSWER_MAX {
            return Err(format!("the server sends more than {ANSWER_MAX} bytes for one request"));
        }
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).await.map_err(|error| error.to_string())?;
        Ok(payload)
    }

    /// Like [`packet`](Self::packet), while a connection is made.
    async fn receive(&mut self) -> Result<Vec<u8>, OpenError> {
        self.packet().await.map_err(|why| unavailable(&why))
    }
}

/// Returns the beginning of a client's first packet.
fn beginning(more: u32) -> Vec<u8> {
    let capabilities = more
        | capability::LONG_PASSWORD
        | capability::FOUND_ROWS
        | capability::LONG_FLAG
        | capability::CONNECT_WITH_DB
        | capability::PROTOCOL_41
        | capability::TRANSACTIONS
        | capability::SECURE_CONNECTION
        | capability::MULTI_STATEMENTS
        | capability::MULTI_RESULTS
        | capability::PLUGIN_AUTH;
    let mut packet = capabilities.to_le_bytes().to_vec();
    packet.extend(u32::try_from(packet::LENGTH_MAX).unwrap_or(u32::MAX).to_le_bytes());
    packet.push(CHARSET);
    packet.extend([0; 23]);
    packet
}

/// Returns the answer to a challenge; `None` for an authentication plugin that this client does not support.
fn answer(plugin: &str, password: &str, challenge: &[u8]) -> Option<Vec<u8>> {
    match plugin {
        NATIVE => Some(sha::native_answer(password.as_bytes(), challenge)),
        CACHING_SHA2 => Some(sha::caching_answer(password.as_bytes(), challenge)),
        _ => None,
    }
}

fn answer_or_refuse(plugin: &str, password: &str, challenge: &[u8]) -> Result<Vec<u8>, OpenError> {
    answer(plugin, password, challenge).ok_or_else(|| OpenError::Refused {
        why: format!("the user logs in by {plugin:?}; this store has {NATIVE} and {CACHING_SHA2}"),
    })
}

fn unavailable(why: &dyn fmt::Display) -> OpenError {
    OpenError::Unavailable { why: why.to_string() }
}

fn garbled() -> OpenError {
    unavailable(&GARBLED)
}

fn broken() -> QueryError {
    QueryError::Broken(GARBLED.to_owned())
}

const GARBLED: &str = "it answers what no server of MySQL does";

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
