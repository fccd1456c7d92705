//! Direct access to etcd, without an election: for fences, and for tools that inspect a cluster.

use std::sync::Arc;
use std::time::Duration;

use prost::Message;

use super::api::{self, method};
use super::client::{Client, RequestError, Tries};
use super::queue::Queue;
use super::url;
use crate::open_error::OpenError;
use crate::runtime;

/// The time limit of a request.
const REQUEST_MAX: Duration = Duration::from_secs(5);

/// The time limit of one member's answer to a request that is sent to all.
const EACH_MAX: Duration = Duration::from_secs(2);

/// A client of etcd, for arbitrary requests.
#[derive(Clone, Debug)]
pub struct EtcdClient {
    client: Arc<Client>,
    /// A client for each member, with its address.
    members: Vec<(String, Arc<Client>)>,
    prefix: String,
}

impl EtcdClient {
    /// Makes a client for the URL `etcd://…`. It connects when it is first used.
    ///
    /// # Errors
    /// [`OpenError::Malformed`], or [`OpenError::Refused`] for files of TLS that cannot be used.
    pub fn new(url: &str) -> Result<Self, OpenError> {
        url::clients(url).map(|(client, members, prefix)| Self { client, members, prefix })
    }

    /// Returns the prefix of the keys of all candidates of this election.
    #[must_use]
    pub fn queue(&self, election: &str) -> String {
        String::from_utf8_lossy(&Queue::new(&self.prefix, election).prefix()).into_owned()
    }

    /// Sends a transaction, once.
    ///
    /// Dropping the future does not cancel it.
    ///
    /// # Errors
    /// [`RequestError`]; after [`RequestError::NoAnswer`] it may have been done.
    pub async fn transact(&self, transaction: api::TxnRequest) -> Result<api::TxnResponse, RequestError> {
        let client = Arc::clone(&self.client);
        let call = async move { client.call(method::TXN, transaction, Tries::Once, REQUEST_MAX).await };
        runtime::run(call).await.map_err(|why| RequestError::NoAnswer { why })?.result
    }

    /// Reads keys, linearizably unless `range` says otherwise.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn read(&self, range: api::RangeRequest) -> Result<api::RangeResponse, RequestError> {
        let client = Arc::clone(&self.client);
        let call = async move { client.call(method::RANGE, range, Tries::Many, REQUEST_MAX).await };
        runtime::run(call).await.map_err(|why| RequestError::NoAnswer { why })?.result
    }

    /// Returns the members of the cluster, also those that the URL does not name.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn members(&self) -> Result<Vec<api::Member>, RequestError> {
        let client = Arc::clone(&self.client);
        let question = api::MemberListRequest { linearizable: true };
        let call = async move { client.call(method::MEMBER_LIST, question, Tries::Many, REQUEST_MAX).await };
        let told = runtime::run(call).await.map_err(|why| RequestError::NoAnswer { why })?;
        told.result.map(|list: api::MemberListResponse| list.members)
    }

    /// Returns the members as each member of the URL reports them, with its address.
    pub async fn members_by_each(&self) -> Vec<(String, Result<Vec<api::Member>, RequestError>)> {
        let question = api::MemberListRequest { linearizable: false };
        let lists = self.ask_each(method::MEMBER_LIST, question).await.into_iter();
        lists
            .map(|(address, list)| (address, list.map(|list: api::MemberListResponse| list.members)))
            .collect()
    }

    /// Returns the status that each member of the URL reports.
    pub async fn status(&self) -> Vec<(String, Result<api::StatusResponse, RequestError>)> {
        self.ask_each(method::STATUS, api::StatusRequest {}).await
    }

    /// Sends the same request to each member of the URL.
    async fn ask_each<Q, A>(
        &self,
        method: &'static str,
        question: Q,
    ) -> Vec<(String, Result<A, RequestError>)>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut answers = Vec::new();
        for (address, client) in &self.members {
            let (client, question) = (Arc::clone(client), question.clone());
            let call = async move { client.call(method, question, Tries::Many, EACH_MAX).await };
            let told = runtime::run(call).await.map_err(|why| RequestError::NoAnswer { why });
            answers.push((address.clone(), told.and_then(|told| told.result)));
        }
        answers
    }
}
