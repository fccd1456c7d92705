//! A door for clients of etcd, and who asks at it in the messages themselves.

use std::process::Command;
use std::time::Duration;

use http::uri::PathAndQuery;
use primacy_conformance::live::{Ground, Server, free_port};
use primacy_stores::etcd::api::{self, method};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes of an election that serve clients.
const NODES: [&str; 3] = ["a", "b", "c"];

/// Three nodes that keep a map together and serve clients.
pub(crate) struct Door {
    /// Where the first of them serves, which may lead or follow.
    pub(crate) address: String,
    #[allow(dead_code, reason = "each test program uses its part of this")]
    pub(crate) servers: Vec<Server>,
}

impl Door {
    /// Starts the nodes, each with these arguments too, and waits until one leads.
    pub(crate) async fn open(ground: &Ground, arguments: &[&str]) -> Self {
        let place = |_| format!("127.0.0.1:{}", free_port());
        let (peers, doors) = (NODES.map(place), NODES.map(place));
        let list: Vec<String> = NODES.iter().zip(&peers).map(|(node, at)| format!("{node}={at}")).collect();
        let start = |(node, door): (&&str, &String)| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_primacy"));
            command.args(["node", "--election", "map", "--node", node, "--peers", &list.join(",")]);
            command.arg("--state-dir").arg(ground.at(&format!("state-{}-{node}", door.replace(':', "-"))));
            command.args(["--serve", door]).args(arguments);
            Server::start(&format!("door-{node}"), command, ground)
        };
        let mut servers: Vec<Server> = NODES.iter().zip(&doors).map(start).collect();
        for (server, door) in servers.iter_mut().zip(&doors) {
            server.until(async || tokio::net::TcpStream::connect(door).await.is_ok()).await;
        }
        let [address, ..] = doors;
        Self { address, servers }
    }
}

/// Asks one server.
#[derive(Clone)]
pub(crate) struct Asked {
    channel: Channel,
    pub(crate) token: Option<String>,
}

impl Asked {
    pub(crate) async fn new(address: &str) -> Self {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        Self { channel, token: None }
    }

    fn request<Q>(&self, question: Q) -> Request<Q> {
        let mut request = Request::new(question);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.parse().unwrap());
        }
        request
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask<Q, A>(&self, method: &'static str, question: &Q) -> Result<A, (Code, String)>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let path = PathAndQuery::from_static(method);
        let asked = grpc.unary(self.request(question.clone()), path, ProstCodec::<Q, A>::default());
        let answer = tokio::time::timeout(PATIENCE, asked).await;
        let answer = answer.unwrap_or_else(|_| panic!("{method} is not answered"));
        answer
            .map(Response::into_inner)
            .map_err(|status: Status| (status.code(), status.message().to_owned()))
    }

    /// Opens a stream of watches with a first wish: etcd answers nothing before it has one.
    pub(crate) async fn watches(&self, first: api::WatchUnion) -> Watches {
        let (wishes, receiver) = mpsc::channel(1);
        wishes.send(api::WatchRequest { request: Some(first) }).await.unwrap();
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let codec = ProstCodec::<api::WatchRequest, api::WatchResponse>::default();
        let request = self.request(ReceiverStream::new(receiver));
        let answers = grpc.streaming(request, PathAndQuery::from_static(method::WATCH), codec);
        let answers = tokio::time::timeout(PATIENCE, answers).await.expect("it is opened");
        let answers = answers.unwrap().into_inner();
        Watches { wishes, answers }
    }
}

/// A stream of watches.
pub(crate) struct Watches {
    wishes: mpsc::Sender<api::WatchRequest>,
    answers: Streaming<api::WatchResponse>,
}

impl Watches {
    pub(crate) async fn wish(&self, wish: api::WatchUnion) {
        self.wishes.send(api::WatchRequest { request: Some(wish) }).await.unwrap();
    }

    /// The next answer.
    pub(crate) async fn answer(&mut self) -> Result<api::WatchResponse, Status> {
        let answer = tokio::time::timeout(PATIENCE, self.answers.message()).await;
        answer.expect("an answer comes")?.ok_or_else(|| Status::unknown("the stream ended"))
    }
}
