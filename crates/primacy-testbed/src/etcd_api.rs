//! A cluster that serves the etcd API, and a client that sends it raw gRPC messages.

use std::path::Path;
use std::time::Duration;

use http::uri::PathAndQuery;
use primacy_conformance::live::etcd::{Etcd, Tls};
use primacy_stores::etcd::api::{self, method, v3electionpb};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// The longest time to wait for an answer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The longest time to wait for an answer that depends on the end of other clients.
const WAITING_PATIENCE: Duration = Duration::from_secs(5 * 60);

/// The interval between two checks of a condition that is waited for.
pub const POLL: Duration = Duration::from_millis(100);

/// Starts three nodes that replicate a map and serve the etcd API, with these further arguments.
pub async fn open(arguments: &[&str]) -> Etcd {
    open_with(None, arguments).await
}

/// The same with mutual TLS.
pub async fn open_with(tls: Option<Tls>, arguments: &[&str]) -> Etcd {
    Etcd::of_ours(Path::new(crate::primacy()), tls, arguments).await
}

/// A client of one server.
#[derive(Clone, Debug)]
pub struct Asked {
    channel: Channel,
    pub token: Option<String>,
    /// True if a request fails when there is no leader, instead of waiting.
    pub wants_leader: bool,
}

impl Asked {
    pub async fn new(address: &str) -> Self {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        Self { channel, token: None, wants_leader: false }
    }

    fn request<Q>(&self, question: Q) -> Request<Q> {
        let mut request = Request::new(question);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.parse().unwrap());
        }
        if self.wants_leader {
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        }
        request
    }

    /// Sends a request, and waits for the answer; longer for requests whose answer depends on the end of other clients.
    pub async fn ask<Q, A>(&self, method: &'static str, question: &Q) -> Result<A, (Code, String)>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static(method);
        let asked = grpc.unary(self.request(question.clone()), path, ProstCodec::<Q, A>::default());
        let waits_for_others = matches!(method, method::CAMPAIGN | method::LOCK);
        let patience = if waits_for_others { WAITING_PATIENCE } else { PATIENCE };
        let answer = tokio::time::timeout(patience, asked).await;
        let answer = answer.unwrap_or_else(|_| panic!("{method} is not answered"));
        answer.map(Response::into_inner).map_err(|status| told(&status))
    }

    /// Sends one request as a stream, and returns the stream of answers.
    async fn stream<Q, A>(&self, method: &'static str, question: Q) -> Result<Streaming<A>, (Code, String)>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let question = self.request(tokio_stream::once(question));
        let answers =
            grpc.streaming(question, PathAndQuery::from_static(method), ProstCodec::<Q, A>::default());
        let answers = tokio::time::timeout(PATIENCE, answers).await;
        let answers = answers.unwrap_or_else(|_| panic!("{method} is not answered"));
        answers.map(Response::into_inner).map_err(|status| told(&status))
    }

    /// Sends a request with only a name, if it has one, and waits until the answer begins: checks that the method is served.
    pub async fn reach(&self, path: &str, name: &str) -> Result<(), (Code, String)> {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let codec = ProstCodec::<v3electionpb::LeaderRequest, api::StatusResponse>::default();
        let question = v3electionpb::LeaderRequest { name: name.into() };
        let asked = grpc.server_streaming(self.request(question), path.parse().unwrap(), codec);
        let answer = tokio::time::timeout(PATIENCE, asked).await;
        let answer = answer.unwrap_or_else(|_| panic!("{path} is not answered"));
        answer.map(drop).map_err(|status| told(&status))
    }

    /// Keeps a lease alive, and returns its time to live in seconds: 0 if there is none.
    pub async fn keep_alive(&self, id: i64) -> Result<i64, (Code, String)> {
        let question = api::LeaseKeepAliveRequest { id };
        let mut answers = self.stream(method::LEASE_KEEP_ALIVE, question).await?;
        let answer = tokio::time::timeout(PATIENCE, answers.message()).await.expect("an answer comes");
        let answer: Option<api::LeaseKeepAliveResponse> = answer.map_err(|status| told(&status))?;
        Ok(answer.expect("it is answered before the stream ends").ttl)
    }

    /// Keeps a lease alive in a stream that stays open.
    pub async fn keeps_alive(
        &self,
        id: i64,
    ) -> Stays<api::LeaseKeepAliveRequest, api::LeaseKeepAliveResponse> {
        self.stays(method::LEASE_KEEP_ALIVE, api::LeaseKeepAliveRequest { id }).await
    }

    /// Observes an election from now on: the key of each leader, and its value. etcd sends nothing until there is a
    /// leader, so this does not wait.
    pub fn observe(&self, name: &str) -> mpsc::UnboundedReceiver<(String, String)> {
        let (tell, told) = mpsc::unbounded_channel();
        let (asked, question) = (self.clone(), v3electionpb::LeaderRequest { name: name.into() });
        tokio::spawn(async move {
            let mut grpc = tonic::client::Grpc::new(asked.channel.clone());
            grpc.ready().await.unwrap();
            let codec = ProstCodec::<v3electionpb::LeaderRequest, v3electionpb::LeaderResponse>::default();
            let path = PathAndQuery::from_static(method::OBSERVE);
            let mut leaders =
                grpc.server_streaming(asked.request(question), path, codec).await.unwrap().into_inner();
            while let Ok(Some(leader)) = leaders.message().await {
                let kv = leader.kv.unwrap();
                let text = |bytes| String::from_utf8(bytes).unwrap();
                if tell.send((text(kv.key), text(kv.value))).is_err() {
                    return;
                }
            }
        });
        told
    }

    /// Opens a stream of watches with a first request, before which etcd does not answer.
    pub async fn watches(&self, first: api::RequestUnion) -> Watches {
        self.stays(method::WATCH, api::WatchRequest { request_union: Some(first) }).await
    }

    async fn stays<Q, A>(&self, method: &'static str, first: Q) -> Stays<Q, A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let (questions, receiver) = mpsc::channel(1);
        questions.send(first).await.unwrap();
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let request = self.request(ReceiverStream::new(receiver));
        let path = PathAndQuery::from_static(method);
        let answers = grpc.streaming(request, path, ProstCodec::<Q, A>::default());
        let answers = tokio::time::timeout(PATIENCE, answers).await.expect("it is opened");
        Stays { questions, answers: answers.unwrap().into_inner() }
    }
}

fn told(status: &Status) -> (Code, String) {
    (status.code(), status.message().to_owned())
}

/// A stream that stays open.
#[derive(Debug)]
pub struct Stays<Q, A> {
    questions: mpsc::Sender<Q>,
    answers: Streaming<A>,
}

/// A stream of watches.
pub type Watches = Stays<api::WatchRequest, api::WatchResponse>;

impl Watches {
    pub async fn wish(&self, wish: api::RequestUnion) {
        self.questions.send(api::WatchRequest { request_union: Some(wish) }).await.unwrap();
    }
}

impl<Q, A> Stays<Q, A> {
    /// The next answer.
    pub async fn answer(&mut self) -> Result<A, Status> {
        let answer = tokio::time::timeout(PATIENCE, self.answers.message()).await;
        answer.expect("an answer comes")?.ok_or_else(|| Status::unknown("the stream ended"))
    }
}
