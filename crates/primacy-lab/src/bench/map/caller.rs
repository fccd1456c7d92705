//! A minimal etcd client: one connection, and the messages of the `etcd` store.

use std::net::SocketAddr;
use std::time::Duration;

use http::uri::PathAndQuery;
use primacy::stores::etcd::api::{self, method};
use prost::Message;
use tokio_stream::Stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::bench::failed;
use crate::exit::Failure;

/// The longest time for a connection to open.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// A connection to one node. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Caller(Channel);

impl Caller {
    /// A caller that connects with its first request, and reconnects when it has lost its connection.
    pub(super) fn lazily(address: SocketAddr) -> Result<Self, Failure> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"));
        let endpoint = endpoint.map_err(|error| failed(format!("{address}: {error}")))?;
        Ok(Self(endpoint.connect_timeout(CONNECT_MAX).tcp_nodelay(true).connect_lazy()))
    }

    /// Opens this many connected callers, to these addresses in turn.
    pub(super) async fn connected(addresses: &[SocketAddr], count: usize) -> Result<Vec<Self>, Failure> {
        let mut callers = Vec::new();
        for &address in addresses.iter().cycle().take(count) {
            let caller = Self::lazily(address)?;
            let first = api::RangeRequest { key: b"first".to_vec(), ..api::RangeRequest::default() };
            let answer: Result<api::RangeResponse, Status> = caller.ask(method::RANGE, first).await;
            answer.map_err(|status| failed(format!("{address} does not answer: {status}")))?;
            callers.push(caller);
        }
        Ok(callers)
    }

    pub(super) async fn ask<Q, A>(&self, method: &'static str, question: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.unary(Request::new(question), PathAndQuery::from_static(method), codec).await?;
        Ok(answer.into_inner())
    }

    pub(super) async fn stream<Q, A>(
        &self,
        method: &'static str,
        questions: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let codec = ProstCodec::<Q, A>::default();
        let answers =
            grpc.streaming(Request::new(questions), PathAndQuery::from_static(method), codec).await?;
        Ok(answers.into_inner())
    }

    pub(super) async fn put(&self, put: api::PutRequest) -> Result<api::PutResponse, Status> {
        self.ask(method::PUT, put).await
    }
}

/// Returns the answer, unless it takes longer than this.
pub(super) async fn ask_within<A>(
    time: Duration,
    asking: impl Future<Output = Result<A, Status>>,
) -> Result<A, Status> {
    let answer = tokio::time::timeout(time, asking).await;
    answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("the client waits no longer")))
}
