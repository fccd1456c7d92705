//! Fences for keys in etcd: the transaction that writes compares the token.
//!
//! There are two; the place of the election decides which one to use.
//!
//! - [`Leader`], for an election **in the same etcd** (`etcd://`): each transaction compares that the leader's key still has
//!   the create revision that is the token. The key goes with the leader's session, the first in the queue stays the first as
//!   long as its key is there, and create revisions are never used again. So the write is made if and only if the leadership
//!   is not over, and a zombie is **always** refused: also before its successor has written, and also without a successor.
//! - [`EtcdFence`], for an election **elsewhere** (among peers, in another store, with `?recipe=lease`): a key holds the
//!   highest token presented, and each transaction compares and raises it. Like every fence with a memory, it refuses a zombie
//!   from the moment at which its successor has presented its token.
//!
//! `docs/fencing.md` has the transactions for `etcdctl` and for clients in other languages, and lists their gaps.

use primacy_core::fence::{FenceError, FencingToken};
use primacy_stores::OpenError;
use primacy_stores::etcd::api;
pub use primacy_stores::etcd::{EtcdClient, RequestError};

/// The digits of the highest possible token. All tokens are stored with as many digits, so that texts compare as numbers do.
const DIGITS: usize = 20;

/// One write to etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Puts a value under a key.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
    },
    /// Deletes a key, if it exists.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
}

/// The reason why a fenced write was not made.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The leadership with this token is over. Nothing was written.
    #[error("the leadership with the token {token} is over; stop, another may lead")]
    Over {
        /// The token.
        token: FencingToken,
    },
    /// A later leader has presented a higher token. Nothing was written.
    #[error(transparent)]
    Stale(#[from] FenceError),
    /// There is no fence. Nothing was written.
    #[error("etcd has no fence under the key {key:?}; install it, with a token above all that were given")]
    NotInstalled {
        /// The key where it should be.
        key: String,
    },
    /// The key does not contain a number of twenty digits. Nothing was written.
    #[error("the fence under the key {key:?} is no token; put the highest one there, with twenty digits")]
    Damaged {
        /// The key of the fence.
        key: String,
    },
    /// etcd refused, or gave no answer; only after [`RequestError::NoAnswer`] may it have been written.
    #[error(transparent)]
    Etcd(#[from] RequestError),
}

/// The fence of one leadership of an election that is held in the same etcd.
#[derive(Clone, Debug)]
pub struct Leader {
    client: EtcdClient,
    key: Vec<u8>,
    token: FencingToken,
}

impl Leader {
    /// Finds the leadership with this token, of the election `election` in the client's etcd. The client may be the one
    /// that holds the election, or one with another user.
    ///
    /// # Errors
    /// [`GuardError::Over`] if there is none, or no longer.
    pub async fn find(client: &EtcdClient, election: &str, token: FencingToken) -> Result<Self, GuardError> {
        let over = || GuardError::Over { token };
        let revision = i64::try_from(token.0).ok().filter(|revision| *revision > 0).ok_or_else(over)?;
        let queue = client.queue(election).into_bytes();
        let mut end = queue.clone();
        // The last byte is a slash, so it can be incremented.
        end.last_mut().map(|last| *last += 1).ok_or_else(over)?;
        let range = api::RangeRequest {
            key: queue,
            range_end: end,
            keys_only: true,
            min_create_revision: revision,
            max_create_revision: revision,
            ..Default::default()
        };
        let found = client.read(range).await?.kvs.into_iter().next().ok_or_else(over)?;
        Ok(Self { client: client.clone(), key: found.key, token })
    }

    /// The key of this leadership. In each transaction of its own, a client compares the create revision of this key with
    /// [`create_revision`](Self::create_revision).
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The create revision that the key has for as long as this leadership is not over.
    #[must_use]
    pub fn create_revision(&self) -> i64 {
        // `find` has compared the same number as an `i64`.
        i64::try_from(self.token.0).unwrap_or(0)
    }

    fn compare(&self) -> api::Compare {
        api::Compare {
            result: api::CompareResult::Equal.into(),
            target: api::CompareTarget::Create.into(),
            key: self.key.clone(),
            target_union: Some(api::TargetUnion::CreateRevision(self.create_revision())),
            range_end: Vec::new(),
        }
    }

    /// Makes these writes in one transaction if this leadership is not over: all of them, or none. A key must not be
    /// written twice. Returns the revision.
    ///
    /// # Errors
    /// [`GuardError`].
    pub async fn write(&self, writes: Vec<Write>) -> Result<i64, GuardError> {
        let success = writes.into_iter().map(op).collect();
        let transaction = api::TxnRequest { compare: vec![self.compare()], success, failure: Vec::new() };
        let answer = self.client.transact(transaction).await?;
        if !answer.succeeded {
            super::count_refused();
            return Err(GuardError::Over { token: self.token });
        }
        Ok(revision(&answer))
    }
}

/// A key with the highest token of an election that is held elsewhere.
#[derive(Clone, Debug)]
pub struct EtcdFence {
    client: EtcdClient,
    key: String,
}

impl EtcdFence {
    /// Creates the handle of the fence under this key.
    #[must_use]
    pub fn new(client: &EtcdClient, key: &str) -> Self {
        Self { client: client.clone(), key: key.to_owned() }
    }

    /// Creates the fence's key, if there is none. `highest` is 0 for a new election; if the key was lost, it must be above all
    /// tokens that were assigned.
    ///
    /// # Errors
    /// [`GuardError::Etcd`].
    pub async fn install(&self, highest: FencingToken) -> Result<(), GuardError> {
        let absent = api::Compare {
            result: api::CompareResult::Equal.into(),
            target: api::CompareTarget::Create.into(),
            key: self.key.clone().into_bytes(),
            target_union: Some(api::TargetUnion::CreateRevision(0)),
            range_end: Vec::new(),
        };
        let success = vec![op(self.raise(highest))];
        self.client.transact(api::TxnRequest { compare: vec![absent], success, failure: vec![] }).await?;
        Ok(())
    }

    /// The highest token that was presented.
    ///
    /// # Errors
    /// [`GuardError::NotInstalled`], [`GuardError::Damaged`] or [`GuardError::Etcd`].
    pub async fn highest(&self) -> Result<FencingToken, GuardError> {
        self.parse(&self.client.read(self.range()).await?.kvs)
    }

    /// Makes these writes in one transaction if no higher token was presented, and records this one: all of it, or
    /// nothing. A new leader should first call this without writes: from then on its predecessor is refused. Returns the
    /// revision.
    ///
    /// # Errors
    /// [`GuardError`].
    pub async fn write(&self, token: FencingToken, writes: Vec<Write>) -> Result<i64, GuardError> {
        // etcd has no "at most", so this compares with "less than the next token". No comparison of a value holds for a
        // key that does not exist, so a lost fence admits no write.
        let not_higher = api::Compare {
            result: api::CompareResult::Less.into(),
            target: api::CompareTarget::Value.into(),
            key: self.key.clone().into_bytes(),
            target_union: Some(api::TargetUnion::Value(digits(u128::from(token.0) + 1))),
            range_end: Vec::new(),
        };
        // A value of another length is damaged, and could be less than any token.
        let intact = api::Compare {
            result: api::CompareResult::Greater.into(),
            target_union: Some(api::TargetUnion::Value(vec![b'0'; DIGITS - 1])),
            ..not_higher.clone()
        };
        let success = std::iter::once(self.raise(token)).chain(writes).map(op).collect();
        let failure = vec![api::RequestOp { request: Some(api::Request::RequestRange(self.range())) }];
        let answer = self
            .client
            .transact(api::TxnRequest { compare: vec![not_higher, intact], success, failure })
            .await?;
        if answer.succeeded {
            return Ok(revision(&answer));
        }
        let found = match answer.responses.into_iter().next().and_then(|op| op.response) {
            Some(api::Response::ResponseRange(range)) => range.kvs,
            Some(
                api::Response::ResponsePut(_)
                | api::Response::ResponseDeleteRange(_)
                | api::Response::ResponseTxn(_),
            )
            | None => Vec::new(),
        };
        let highest = self.parse(&found)?;
        super::count_refused();
        Err(FenceError::Stale { presented: token, highest }.into())
    }

    fn raise(&self, token: FencingToken) -> Write {
        Write::Put { key: self.key.clone().into_bytes(), value: digits(u128::from(token.0)) }
    }

    fn range(&self) -> api::RangeRequest {
        api::RangeRequest { key: self.key.clone().into_bytes(), ..Default::default() }
    }

    fn parse(&self, found: &[api::KeyValue]) -> Result<FencingToken, GuardError> {
        let kv = found.first().ok_or_else(|| GuardError::NotInstalled { key: self.key.clone() })?;
        let text = std::str::from_utf8(&kv.value).ok();
        let is_token = |text: &&str| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
        let token = text.filter(is_token).and_then(|text| text.parse().ok());
        token.map(FencingToken).ok_or_else(|| GuardError::Damaged { key: self.key.clone() })
    }
}

/// Creates an etcd client from the URL `etcd://…`, for the fences. It connects when it is used.
///
/// # Errors
/// [`OpenError`], if the URL or the files that it names cannot be used.
pub fn client(url: &str) -> Result<EtcdClient, OpenError> {
    EtcdClient::new(url)
}

fn op(write: Write) -> api::RequestOp {
    let request = match write {
        Write::Put { key, value } => {
            api::Request::RequestPut(api::PutRequest { key, value, ..Default::default() })
        }
        Write::Delete { key } => {
            api::Request::RequestDeleteRange(api::DeleteRangeRequest { key, ..Default::default() })
        }
    };
    api::RequestOp { request: Some(request) }
}

fn digits(number: u128) -> Vec<u8> {
    format!("{number:0DIGITS$}").into_bytes()
}

fn revision(answer: &api::TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_compare_as_texts_as_they_do_as_numbers() {
        let tokens = [0, 1, 9, 10, 1_700_000_000_001, u64::MAX - 1, u64::MAX];
        for low in tokens {
            for high in tokens {
                assert_eq!(digits(low.into()) < digits(u128::from(high) + 1), low <= high, "{low} {high}");
            }
            assert_eq!(digits(low.into()).len(), DIGITS);
        }
    }
}
