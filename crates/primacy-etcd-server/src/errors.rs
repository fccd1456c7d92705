//! Errors with the codes and texts of etcd, which its clients recognise.

use primacy_kv::command::Refusal;
use tonic::{Code, Status};

use super::backend::BackendError;

/// An error that etcd's clients recognise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known(Code, &'static str);

impl Known {
    pub(crate) const EMPTY_KEY: Self = Self(Code::InvalidArgument, "etcdserver: key is not provided");
    pub(crate) const KEY_NOT_FOUND: Self = Self(Code::InvalidArgument, "etcdserver: key not found");
    pub(crate) const VALUE_PROVIDED: Self = Self(Code::InvalidArgument, "etcdserver: value is provided");
    pub(crate) const LEASE_PROVIDED: Self = Self(Code::InvalidArgument, "etcdserver: lease is provided");
    pub(crate) const TOO_MANY_OPERATIONS: Self =
        Self(Code::InvalidArgument, "etcdserver: too many operations in txn request");
    pub(crate) const DUPLICATE_KEY: Self =
        Self(Code::InvalidArgument, "etcdserver: duplicate key given in txn request");
    pub(crate) const REQUEST_TOO_LARGE: Self =
        Self(Code::InvalidArgument, "etcdserver: request is too large");
    /// Requests that etcd would accept, and run out of memory.
    pub(crate) const TOO_MANY_ENTRIES: Self = Self(
        Code::ResourceExhausted,
        "etcdserver: request looks at too many entries: ask for fewer keys at a time",
    );
    pub(crate) const ANSWER_TOO_LARGE: Self = Self(
        Code::ResourceExhausted,
        "etcdserver: response is larger than 64 MiB: ask for fewer keys at a time",
    );
    pub(crate) const COMPACTED: Self =
        Self(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
    pub(crate) const FUTURE: Self =
        Self(Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision");
    pub(crate) const NO_SPACE: Self =
        Self(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded");
    pub(crate) const LEASE_NOT_FOUND: Self = Self(Code::NotFound, "etcdserver: requested lease not found");
    pub(crate) const LEASE_FULL: Self = Self(
        Code::ResourceExhausted,
        "etcdserver: too many keys attached to the lease: use another lease for more",
    );
    pub(crate) const LEASE_EXISTS: Self = Self(Code::FailedPrecondition, "etcdserver: lease already exists");
    pub(crate) const LEASE_TOO_LONG: Self = Self(Code::OutOfRange, "etcdserver: too large lease TTL");
    pub(crate) const NO_LEADER: Self = Self(Code::Unavailable, "etcdserver: no leader");
    /// etcd's error for a write with an unknown outcome. Its `leader changed` is for reads, which clients repeat.
    pub(crate) const ANSWER_LOST: Self =
        Self(Code::Unavailable, "etcdserver: request timed out, possibly due to previous leader failure");
    pub(crate) const TIMED_OUT: Self = Self(Code::Unavailable, "etcdserver: request timed out");
    pub(crate) const TOO_MANY_REQUESTS: Self = Self(Code::ResourceExhausted, "etcdserver: too many requests");
    pub(crate) const STOPPED: Self = Self(Code::Unavailable, "etcdserver: server stopped");
    pub(crate) const USER_EMPTY: Self = Self(Code::InvalidArgument, "etcdserver: user name is empty");
    pub(crate) const AUTHENTICATION_FAILED: Self =
        Self(Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password");
    pub(crate) const AUTHENTICATION_NOT_ENABLED: Self =
        Self(Code::FailedPrecondition, "etcdserver: authentication is not enabled");
    pub(crate) const INVALID_TOKEN: Self = Self(Code::Unauthenticated, "etcdserver: invalid auth token");
    /// The end of a stream whose token has expired. `Unavailable`, because then clients log in and open the stream
    /// again, which they do not after other errors.
    pub(crate) const TOKEN_ENDED: Self = Self(Code::Unavailable, "etcdserver: invalid auth token");
    /// The errors of an election, for which etcd has no code.
    pub(crate) const NOT_LEADER: Self = Self(Code::Unknown, "election: not leader");
    pub(crate) const NOBODY_LEADS: Self = Self(Code::Unknown, "election: no leader");
    pub(crate) const NO_LEADER_KEY: Self = Self(Code::Unknown, "\"leader\" field must be provided");
    pub(crate) const SESSION_EXPIRED: Self = Self(Code::Unknown, "mutex: session is expired");

    /// The error as text, in the form of a watch's cancel reason.
    pub(crate) fn in_full(self) -> String {
        format!("rpc error: code = {:?} desc = {}", self.0, self.1)
    }
}

impl From<Known> for Status {
    fn from(Known(code, text): Known) -> Self {
        Self::new(code, text)
    }
}

impl From<Refusal> for Known {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Compacted { .. } => Self::COMPACTED,
            Refusal::Future { .. } => Self::FUTURE,
            Refusal::SessionNotFound => Self::LEASE_NOT_FOUND,
            Refusal::SessionFull => Self::LEASE_FULL,
            Refusal::SessionExists => Self::LEASE_EXISTS,
            Refusal::KeyNotFound => Self::KEY_NOT_FOUND,
            Refusal::NoSpace => Self::NO_SPACE,
            Refusal::EmptyKey => Self::EMPTY_KEY,
            Refusal::DuplicateKey => Self::DUPLICATE_KEY,
            Refusal::TooManyOperations => Self::TOO_MANY_OPERATIONS,
            Refusal::RequestTooLarge => Self::REQUEST_TOO_LARGE,
            Refusal::TooManyEntries => Self::TOO_MANY_ENTRIES,
            Refusal::AnswerTooLarge => Self::ANSWER_TOO_LARGE,
            Refusal::TimeToLiveTooLong => Self::LEASE_TOO_LONG,
            Refusal::TooManyRequests | Refusal::TooManyClients => Self::TOO_MANY_REQUESTS,
            // A later process of the same node has replaced this one.
            Refusal::FormerLife => Self::STOPPED,
            Refusal::Partitions(_) => Self::STOPPED, // No request of etcd is about partitions.
        }
    }
}

impl From<BackendError> for Known {
    fn from(error: BackendError) -> Self {
        match error {
            BackendError::AnswerLost => Self::ANSWER_LOST,
            BackendError::TimedOut => Self::TIMED_OUT,
            BackendError::TooManyRequests => Self::TOO_MANY_REQUESTS,
            BackendError::Stopped => Self::STOPPED,
        }
    }
}

/// Returns the error of an election or a lock of which a request has failed: the text without a code, as in etcd.
pub(crate) fn within_recipe(known: Known) -> Status {
    Status::new(Code::Unknown, known.1)
}

/// Returns etcd's answer to an unknown method; `path` is that of the request.
pub(crate) fn not_served(path: &str) -> Status {
    let Some((service, method)) = path.trim_start_matches('/').split_once('/') else {
        return Status::unimplemented(format!("malformed method name: {path:?}"));
    };
    let known = ["etcdserverpb.Auth", "etcdserverpb.Cluster", "etcdserverpb.Maintenance"];
    if known.contains(&service) {
        Status::unimplemented(format!("unknown method {method} for service {service}"))
    } else {
        Status::unimplemented(format!("unknown service {service}"))
    }
}
