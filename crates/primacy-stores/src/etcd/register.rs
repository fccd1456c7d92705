//! `?recipe=lease`: a record under the key `PREFIX/ELECTION`, whose version is the revision of its last write. For the election `lease` in
//! etcd, and for features that need a record.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use primacy_core::election::lease::{Record, Version};

use super::Connected;
use super::api::{self, Request, method};
use super::client::{Client, RequestError, Tries};
use super::queue::{ops, revision_of, written};
use super::watch::{Only, Target, Watch};
use crate::mutex::lock;
use crate::record;
use crate::register::{Pending, ReadError, Register, SetError};
use crate::runtime;
use crate::shared_connections::Share;
use crate::version_number;

/// The time limit of a request.
const REQUEST_MAX: Duration = Duration::from_secs(5);

/// A handle on the record of one election in one etcd.
#[derive(Debug)]
pub(super) struct EtcdRegister {
    share: Share<Connected>,
    key: Vec<u8>,
    /// The highest revision at which the record has been seen.
    seen: Mutex<i64>,
    watch: Mutex<Option<Arc<Watch>>>,
}

impl EtcdRegister {
    pub(super) fn new(share: Share<Connected>, key: Vec<u8>) -> Self {
        Self { share, key, seen: Mutex::new(0), watch: Mutex::new(None) }
    }

    fn see(&self, revision: i64) {
        let mut seen = lock(&self.seen);
        *seen = revision.max(*seen);
    }
}

impl Register for EtcdRegister {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async {
            let (client, key) = (Arc::clone(&self.share.client), self.key.clone());
            let read = runtime::run(async move { read(&client, key).await }).await;
            let unavailable = |why: String| ReadError::Unavailable { why };
            let (found, revision) =
                read.map_err(unavailable)?.map_err(|error| unavailable(error.to_string()))?;
            self.see(revision);
            let Some(kv) = found else { return Ok(None) };
            let record = record::decode(&kv.value).map_err(|error| ReadError::Malformed { error })?;
            Ok(Some((record, Version::from(kv.mod_revision.unsigned_abs()))))
        })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            let value = record::encode(record)?;
            let expect = version_number::expected(expect)?.unwrap_or(0);
            let (client, key) = (Arc::clone(&self.share.client), self.key.clone());
            // In a task, because dropping the future must not cancel the write.
            let set = runtime::run(async move { set(&client, key, expect, value).await }).await;
            let revision = set.map_err(|why| SetError::Unknown { why })??;
            self.see(revision);
            Ok(Version::from(revision.unsigned_abs()))
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            let watch = {
                let seen = *lock(&self.seen);
                let mut watch = lock(&self.watch);
                let is_of_use = |watch: &Arc<Watch>| watch.has_fired().is_none_or(|fired| fired > seen);
                let kept = watch.take().filter(is_of_use).unwrap_or_else(|| {
                    let target = Target { key: self.key.clone(), range_end: vec![], only: Only::Any };
                    let from = if seen == 0 { 0 } else { seen + 1 };
                    Arc::new(self.share.watches.watch(target, from))
                });
                Arc::clone(watch.insert(kept))
            };
            watch.fired().await;
        })
    }
}

async fn read(client: &Client, key: Vec<u8>) -> Result<(Option<api::KeyValue>, i64), RequestError> {
    let question = api::RangeRequest { key, ..Default::default() };
    let answer: api::RangeResponse =
        client.call(method::RANGE, question, Tries::Many, REQUEST_MAX).await.result?;
    let revision = revision_of(answer.header.as_ref())?;
    Ok((answer.kvs.into_iter().next(), revision))
}

async fn set(client: &Client, key: Vec<u8>, expect: i64, value: Vec<u8>) -> Result<i64, SetError> {
    let put = api::PutRequest { key: key.clone(), value, ..Default::default() };
    let question = api::TxnRequest {
        compare: vec![written(&key, expect)],
        success: ops([Request::RequestPut(put)]),
        failure: vec![],
    };
    // Sent once: after a lost answer, a second try would find the write of the first, and report a conflict.
    let told = client.call(method::TXN, question, Tries::Once, REQUEST_MAX).await;
    let answer: api::TxnResponse = told.result.map_err(|error| {
        let why = error.to_string();
        match error {
            RequestError::NotSent { .. } | RequestError::Refused { .. } | RequestError::NoSession => {
                SetError::Unavailable { why }
            }
            RequestError::NoAnswer { .. } => SetError::Unknown { why },
        }
    })?;
    if !answer.succeeded {
        return Err(SetError::Conflict);
    }
    revision_of(answer.header.as_ref()).map_err(|error| SetError::Unknown { why: error.to_string() })
}
