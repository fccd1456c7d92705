//! A client of etcd with one connection at a time, to the first member that answers, and after a failure to the next one.

use std::fmt;
use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::api::{self, method};
use super::connect::{Member, Refusal};
use crate::attempts;
use crate::error_text::shortened;
use crate::mutex::lock;
use crate::secrets;

/// The time limit of the first try of a request, to one member. It is far longer than a healthy cluster takes, and short enough that a
/// hanging member does not use up a session. Each further try may take twice as long, for a slow cluster.
const TRY_FIRST: Duration = Duration::from_secs(1);

/// The time for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The pause before the next member is tried.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The longest answer that is read: a page of a queue whose entries are as long as etcd lets them be (1.5 MiB).
const ANSWER_MAX: usize = 32 * 1024 * 1024;

/// The number of tries after which a rejected login is final. An expired token is renewed once, and the new one may become invalid by a
/// change of permissions.
const LOGINS_MAX: u32 = 3;

/// The reason that a request was not answered as expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Nothing was sent: no member could be connected to.
    #[error("no member of etcd was reached: {}", shortened(.why))]
    NotSent {
        /// The error of each member.
        why: String,
    },
    /// There was no conclusive answer. The request may have been carried out, or may yet be.
    #[error("etcd did not answer: {}", shortened(.why))]
    NoAnswer {
        /// The error of the last try.
        why: String,
    },
    /// The session does not exist or has ended; nothing was done.
    #[error("etcd has no such lease")]
    NoSession,
    /// etcd refused the request; nothing was done. Trying again does not help by itself.
    #[error("etcd refuses: {}", shortened(.why))]
    Refused {
        /// The answer of etcd.
        why: String,
    },
}

impl RequestError {
    fn why(self) -> String {
        match self {
            Self::NotSent { why } | Self::NoAnswer { why } | Self::Refused { why } => why,
            Self::NoSession => self.to_string(),
        }
    }
}

/// The answer or the error of a request, and whether an earlier try may still take effect.
pub(super) struct RequestOutcome<A> {
    pub(super) result: Result<A, RequestError>,
    pub(super) in_doubt: bool,
}

/// The number of times that a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tries {
    /// Once: a repetition would have another meaning.
    Once,
    /// Any number of times: the request is idempotent.
    Many,
}

/// A client of one cluster. It is used on the stores' thread.
pub(super) struct Client {
    members: Vec<Member>,
    login: Option<Login>,
    token: Mutex<Option<MetadataValue<Ascii>>>,
    /// The member to be tried next.
    next: AtomicUsize,
    connection: tokio::sync::Mutex<Option<Connection>>,
    /// The number of the latest connection; receivers are notified of each new one.
    latest: watch::Sender<u64>,
}

/// A connection, and its number.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) channel: Channel,
    refusal: Refusal,
}

/// A user and its password.
#[derive(Clone)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl Client {
    pub(super) fn new(members: Vec<Member>, login: Option<Login>) -> Self {
        // The processes of a fleet should not all begin with the same member.
        let first = usize::try_from(std::process::id()).unwrap_or(0) % members.len().max(1);
        Self {
            members,
            login,
            token: Mutex::new(None),
            next: AtomicUsize::new(first),
            connection: tokio::sync::Mutex::new(None),
            latest: watch::Sender::new(0),
        }
    }

    /// Resolves when there is a newer connection than this one.
    pub(super) async fn newer_than(&self, number: u64) {
        let mut latest = self.latest.subscribe();
        // The sender exists as long as `self`.
        let _ = latest.wait_for(|latest| *latest > number).await;
    }

    /// Returns the connection, or a new one to the first member that accepts it.
    pub(super) async fn connection(&self) -> Result<Connection, RequestError> {
        // Held while connecting, so that all callers share one attempt.
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let (mut reasons, mut is_final) = (Vec::new(), true);
        for _ in &self.members {
            // Advanced before the attempt, so that an abandoned attempt also leads to the next member.
            let index = self.next.fetch_add(1, Ordering::Relaxed) % self.members.len();
            match self.members[index].connect(CONNECT_MAX).await {
                Ok((channel, refusal)) => {
                    let number = *self.latest.borrow() + 1;
                    let opened = Connection { number, channel, refusal };
                    *connection = Some(opened.clone());
                    self.latest.send_replace(number);
                    return Ok(opened);
                }
                Err(error) => {
                    is_final &= matches!(error, RequestError::Refused { .. });
                    attempts::failed(&error);
                    reasons.push(error.why());
                }
            }
        }
        let why = reasons.join("; ");
        Err(if is_final { RequestError::Refused { why } } else { RequestError::NotSent { why } })
    }

    /// Discards this connection.
    pub(super) async fn give_up(&self, number: u64) {
        let mut connection = self.connection.lock().await;
        if connection.as_ref().is_some_and(|connection| connection.number == number) {
            *connection = None;
        }
    }

    /// Moves from the present member to the next one.
    pub(super) async fn move_on(&self) {
        *self.connection.lock().await = None;
    }

    /// Obtains the token of the login, if there is none yet.
    async fn log_in(&self, channel: &Channel) -> Result<(), Status> {
        let Some(login) = &self.login else { return Ok(()) };
        if lock(&self.token).is_some() {
            return Ok(());
        }
        let ask = api::AuthenticateRequest { name: login.user.clone(), password: login.password.clone() };
        let answer: api::AuthenticateResponse =
            unary(channel, method::AUTHENTICATE, with_leader(Request::new(ask))).await?;
        secrets::remember(&answer.token);
        let token = answer.token.parse().map_err(|_| Status::internal("its token cannot be sent"))?;
        *lock(&self.token) = Some(token);
        Ok(())
    }

    /// Discards the token, which is not accepted any more.
    pub(super) fn forget_token(&self) {
        *lock(&self.token) = None;
    }

    /// Adds the metadata of each request.
    fn complete<Q>(&self, request: Q) -> Request<Q> {
        let mut request = with_leader(Request::new(request));
        if let Some(token) = &*lock(&self.token) {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    /// Sends a request, and waits for the answer within `patience`.
    pub(super) async fn call<Q, A>(
        &self,
        method: &'static str,
        question: Q,
        tries: Tries,
        patience: Duration,
    ) -> RequestOutcome<A>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let ask = |channel: Channel, bound| {
            let mut request = self.complete(question.clone());
            request.set_timeout(bound);
            async move { unary(&channel, method, request).await }
        };
        self.repeat(tries, patience, ask).await
    }

    /// Keeps a session alive, within `patience`, over a separate stream with one request and one response.
    pub(super) async fn keep_alive(
        &self,
        id: i64,
        patience: Duration,
    ) -> Result<api::LeaseKeepAliveResponse, RequestError> {
        let ask = |channel: Channel, _| {
            let question = self.complete(tokio_stream::once(api::LeaseKeepAliveRequest { id }));
            async move {
                let mut answers = stream(&channel, method::LEASE_KEEP_ALIVE, question).await?;
                answers.message().await?.ok_or_else(|| Status::unavailable("the stream ended"))
            }
        };
        self.repeat(Tries::Many, patience, ask).await.result
    }

    /// Opens a stream of watches, with the requests `questions`.
    pub(super) async fn watch(
        &self,
        channel: &Channel,
        questions: tokio::sync::mpsc::UnboundedReceiver<api::WatchRequest>,
    ) -> Result<Streaming<api::WatchResponse>, Status> {
        self.log_in(channel).await?;
        let questions = tokio_stream::wrappers::UnboundedReceiverStream::new(questions);
        stream(channel, method::WATCH, self.complete(questions)).await
    }

    async fn repeat<A, F>(
        &self,
        tries: Tries,
        patience: Duration,
        ask: impl Fn(Channel, Duration) -> F + Send + Sync,
    ) -> RequestOutcome<A>
    where
        A: Send,
        F: Future<Output = Result<A, Status>> + Send,
    {
        let deadline = Instant::now() + patience;
        let (mut logins, mut in_doubt) = (0, false);
        let mut bound = match tries {
            Tries::Once => patience,
            Tries::Many => TRY_FIRST.min(patience / 3),
        };
        loop {
            let began = Instant::now();
            let failed = match self.attempt(deadline, bound, &ask).await {
                Ok(answer) => return RequestOutcome { result: Ok(answer), in_doubt },
                Err(Failed::Login(why)) if logins + 1 >= LOGINS_MAX => RequestError::Refused { why },
                Err(Failed::Login(_)) => {
                    self.forget_token();
                    logins += 1;
                    continue;
                }
                Err(Failed::For(error)) => error,
            };
            let is_final = match &failed {
                RequestError::NotSent { .. } => false,
                RequestError::NoAnswer { .. } => {
                    in_doubt = true;
                    tries == Tries::Once
                }
                RequestError::NoSession | RequestError::Refused { .. } => true,
            };
            if began.elapsed() >= bound {
                bound = (bound * 2).min(patience);
            }
            if is_final || Instant::now() + RETRY_PAUSE >= deadline {
                // An earlier try left the outcome unknown, and the last try, which was not sent, does not change that.
                if in_doubt && let RequestError::NotSent { why } = failed {
                    return RequestOutcome { result: Err(RequestError::NoAnswer { why }), in_doubt };
                }
                return RequestOutcome { result: Err(failed), in_doubt };
            }
            attempts::failed(&failed);
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn attempt<A, F>(
        &self,
        deadline: Instant,
        bound: Duration,
        ask: &(impl Fn(Channel, Duration) -> F + Send + Sync),
    ) -> Result<A, Failed>
    where
        A: Send,
        F: Future<Output = Result<A, Status>> + Send,
    {
        let not_sent = |why: &str| Failed::For(RequestError::NotSent { why: why.to_owned() });
        let connecting = tokio::time::timeout_at(deadline, self.connection());
        let connection =
            connecting.await.map_err(|_| not_sent("no connection in time"))?.map_err(Failed::For)?;
        let until = deadline.min(Instant::now() + bound);
        let login = tokio::time::timeout_at(until, self.log_in(&connection.channel)).await;
        let failed = match login {
            Ok(Ok(())) => {
                let left = until.saturating_duration_since(Instant::now());
                match tokio::time::timeout_at(until, ask(connection.channel.clone(), left)).await {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(status)) => Failed::from(&status),
                    Err(_) => Failed::For(RequestError::NoAnswer { why: "no answer in time".to_owned() }),
                }
            }
            // Only the login was sent, and not the request.
            Ok(Err(status)) => match Failed::from(&status) {
                Failed::For(RequestError::NoAnswer { why }) => Failed::For(RequestError::NotSent { why }),
                failed @ (Failed::Login(_) | Failed::For(_)) => failed,
            },
            Err(_) => not_sent("no answer to the login in time"),
        };
        match &failed {
            Failed::For(RequestError::NoAnswer { .. } | RequestError::NotSent { .. }) => {
                self.give_up(connection.number).await;
                if let Some(why) = connection.refusal.get() {
                    return Err(Failed::For(RequestError::Refused { why: why.clone() }));
                }
            }
            Failed::Login(_) | Failed::For(RequestError::NoSession | RequestError::Refused { .. }) => {}
        }
        Err(failed)
    }
}

/// The reason that a try failed.
enum Failed {
    /// The token of the login is not accepted, and a new one may be.
    Login(String),
    For(RequestError),
}

impl From<&Status> for Failed {
    fn from(status: &Status) -> Self {
        let why = status.message().to_owned();
        let says = |text: &str| why.contains(text);
        // etcd uses one code for many errors, so the text decides, as in its own client.
        match status.code() {
            Code::Unauthenticated => Self::Login(why),
            Code::InvalidArgument if says("revision of auth store is old") => Self::Login(why),
            Code::NotFound if says("lease not found") => Self::For(RequestError::NoSession),
            Code::ResourceExhausted if says("too many requests") => Self::For(RequestError::NoAnswer { why }),
            // The client library's own errors, at an answer that was damaged on the way.
            Code::OutOfRange | Code::Unimplemented
                if says("decoded message length too large") || says("Content is compressed with") =>
            {
                Self::For(RequestError::NoAnswer { why })
            }
            Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::PermissionDenied
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::Unimplemented
            | Code::ResourceExhausted => Self::For(RequestError::Refused { why }),
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => Self::For(RequestError::NoAnswer { why }),
        }
    }
}

/// Sets the metadata with which a member that knows no leader of the cluster refuses at once, instead of letting the request wait.
fn with_leader<Q>(mut request: Request<Q>) -> Request<Q> {
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

async fn unary<Q, A>(channel: &Channel, method: &'static str, question: Request<Q>) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(ANSWER_MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<Q, A>::default();
    Ok(grpc.unary(question, PathAndQuery::from_static(method), codec).await?.into_inner())
}

async fn stream<S, Q, A>(
    channel: &Channel,
    method: &'static str,
    questions: Request<S>,
) -> Result<Streaming<A>, Status>
where
    S: tokio_stream::Stream<Item = Q> + Send + 'static,
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(ANSWER_MAX);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<Q, A>::default();
    Ok(grpc.streaming(questions, PathAndQuery::from_static(method), codec).await?.into_inner())
}

/// Leaves out the password and the token.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: Vec<String> = self.members.iter().map(Member::address).collect();
        f.debug_struct("Client").field("members", &members).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::url::refusal;
    use crate::store_url::Host;

    #[tokio::test]
    async fn the_reason_of_each_member_is_in_the_error() {
        let members =
            ["127.0.0.1:1", "127.0.0.1:2"].map(|host| Member::new(Host::parse(host).unwrap(), None));
        let error = Client::new(members.to_vec(), None).connection().await.err().unwrap().to_string();
        assert!(error.contains("127.0.0.1:1: ") && error.contains("127.0.0.1:2: "), "{error}");
    }

    #[test]
    fn a_cluster_that_has_no_leader_or_too_much_to_do_passes_and_a_refusal_does_not() {
        let table = [
            (Code::Unavailable, "etcdserver: no leader", true),
            (Code::Unavailable, "transport error", true),
            (Code::DeadlineExceeded, "context deadline exceeded", true),
            (Code::ResourceExhausted, "etcdserver: too many requests", true),
            (Code::Internal, "stream closed", true),
            (Code::Unknown, "etcdserver: request timed out", true),
            (
                Code::OutOfRange,
                "Error, decoded message length too large: found 33554458 bytes, the limit is: 1 bytes",
                true,
            ),
            (Code::Unimplemented, "Content is compressed with `x` which isn't supported", true),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", false),
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", false),
            (Code::PermissionDenied, "etcdserver: permission denied", false),
            (Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password", false),
            (Code::Unimplemented, "unknown service", false),
        ];
        for (code, says, passes) in table {
            let Failed::For(error) = Failed::from(&Status::new(code, says)) else { panic!("{says}") };
            assert_eq!(refusal(error).is_passing(), passes, "{says}");
        }
        assert!(refusal(RequestError::NotSent { why: "connection refused".to_owned() }).is_passing());
    }
}
