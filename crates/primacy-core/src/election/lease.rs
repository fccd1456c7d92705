//! Lease: an expiring record in any store with compare-and-set.

use alloc::boxed::Box;
use alloc::string::String;

use crate::fence::FencingToken;
use crate::id::Identity;
use crate::time::Duration;

/// What the store keeps for one election.
///
/// It holds no time of any clock: a rival measures by its own how long the record has not changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Who leads, or `None` when the lead was released.
    pub holder: Option<Holder>,
    /// The token of the holder's leadership, or of the last one. It never goes down, and the record is never deleted.
    pub token: FencingToken,
    /// How long the record must stand unchanged before a rival may take it.
    pub duration: Duration,
    /// How often the holder has renewed.
    pub renewal: u64,
    /// Drawn anew for every write, so that a writer whose reply was lost finds its own write again.
    pub nonce: u64,
    /// Somebody asks the holder to resign.
    pub resign_request: Option<ResignRequest>,
    /// What a later version of Primacy has put into the record; kept as it is by every write.
    pub unknown: Box<[u8]>,
}

/// Who holds a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The process life.
    pub identity: Identity,
    /// Where it can be reached, for people and for clients; may be empty.
    pub address: String,
}

/// A request that anybody may leave in the record by compare-and-set, all other fields kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResignRequest {
    /// The leadership that shall end; a request for another token is void.
    pub token: FencingToken,
    /// Who asks, for people.
    pub by: String,
}

/// The store's own counter of writes: only for comparing, and only within one store.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Version(Box<[u8]>);

/// The number of a request to the store, which the reply carries; so a late reply is not taken for a newer one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What is said between a candidate and the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// To the store: what does the record say?
    Read {
        /// The number of this request.
        request: RequestId,
    },
    /// The answer; `None` if the store was not reached.
    ReadReply {
        /// The request that is answered.
        request: RequestId,
        /// What was found.
        found: Option<Found>,
    },
    /// To the store: write this record if the version is still this one.
    CompareAndSet {
        /// The number of this request.
        request: RequestId,
        /// The version seen; `None` if there was no record.
        expect: Option<Version>,
        /// What to write.
        record: Record,
    },
    /// The answer.
    CompareAndSetReply {
        /// The request that is answered.
        request: RequestId,
        /// The new version, or why there is none.
        result: Result<Version, SetError>,
    },
    /// From the store: the record may have changed.
    Changed,
}

/// What a compare-and-set that did not succeed means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetError {
    /// The version has changed; nothing was written.
    Conflict,
    /// It may have been written, or may yet be. Look before believing anything.
    Unknown,
    /// The store was not reached; nothing was written.
    Unavailable,
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// A record.
    Record {
        /// The record.
        record: Record,
        /// Its version.
        version: Version,
    },
    /// No record. Whoever creates it starts with this token: the milliseconds since 1970, which is above any token of
    /// a record that was deleted.
    Absent {
        /// The token for a first record.
        first_token: FencingToken,
    },
}

impl Version {
    /// From what the store calls it.
    #[must_use]
    pub fn new(opaque: &[u8]) -> Self {
        Self(opaque.into())
    }

    /// What the store calls it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The number, where the store's versions are made [`From`] a number.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        Some(u64::from_be_bytes(self.0.as_ref().try_into().ok()?))
    }
}

impl From<u64> for Version {
    fn from(number: u64) -> Self {
        Self::new(&number.to_be_bytes())
    }
}

impl core::fmt::Debug for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(number) = self.as_u64() {
            return write!(f, "{number}");
        }
        match core::str::from_utf8(&self.0) {
            Ok(text) => f.write_str(text),
            Err(_) => write!(f, "{:02x?}", &self.0),
        }
    }
}

impl Record {
    /// A record that nobody holds: what `primacy init` writes, with `token` above any that was given before.
    #[must_use]
    pub fn released(token: FencingToken, duration: Duration) -> Self {
        Self {
            holder: None,
            token,
            duration,
            renewal: 0,
            nonce: 0,
            resign_request: None,
            unknown: Box::default(),
        }
    }
}
