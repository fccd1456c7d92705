//! A fence for one object of an object store: each write has its token in the object's content, and a condition.
//!
//! An object store compares no tokens, but it compares versions. So a writer reads the object, stops if that has a higher token,
//! and replaces exactly the version that it has read. Any write between the read and the write changes the version, and the store
//! refuses the later write:
//!
//! ```text
//! primacy-fenced 1 1763719200124 0123456789abcdef0123456789abcdef orders
//! what the application keeps there
//! ```
//!
//! The first line has the version of this format, the token, a random number drawn for each write, and the election. The rest
//! are the application's bytes, whatever they are. The token is in the content and not in the object's metadata, because the
//! ETag of S3 is a checksum of the content: a write that changes only the metadata would not change it, and the condition of a
//! stale writer would hold.
//!
//! `docs/fencing.md` lists its gaps.

use std::fmt;
use std::sync::Arc;

use primacy_core::election::lease::Version;
use primacy_core::fence::{Fence, FenceError, FencingToken};
use primacy_stores::object::{ObjectDocument, ObjectStore};
use primacy_stores::{Document, OpenError, ReadError, SetError};

/// The beginning of the first line.
const MAGIC: &str = "primacy-fenced";
/// The version of the format that is written, and the highest that is read.
const FORMAT: u64 = 1;

/// The most attempts of a write against faster writers whose token is not higher.
const ROUNDS_MAX: u32 = 32;

/// One object, which only leaders write.
#[derive(Clone)]
pub struct FencedObject {
    document: Arc<dyn Document>,
    election: String,
}

/// The content of a fenced object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fenced {
    /// The token of the leader that wrote it.
    pub token: FencingToken,
    /// The application's bytes.
    pub bytes: Vec<u8>,
}

/// The reason why an object was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum FencedObjectError {
    /// A later leader has written a higher token. Nothing was written.
    #[error(transparent)]
    Stale(#[from] FenceError),
    /// The object was not written through a fence. It was not changed.
    #[error(
        "the object is not a fenced one ({why}); it was left as it is. Move it away, or name another one"
    )]
    NotFenced {
        /// The defect.
        why: &'static str,
    },
    /// The object belongs to another election. It was not changed.
    #[error("the object belongs to the election {found:?}; it was left as it is")]
    OtherElection {
        /// The election that it belongs to.
        found: String,
    },
    /// The name of the election does not fit into the first line.
    #[error("the name of an election has no line breaks, and is not empty")]
    Election,
    /// Other writers, whose token was not higher, were faster each time. Nothing was written.
    #[error("others write this object under the same token all the time; let one of them do it")]
    Busy,
    /// The store did not answer, or refused. Nothing was written.
    #[error("the object cannot be reached: {why}")]
    Unavailable {
        /// The error.
        why: String,
    },
    /// The object may have been written, or may yet be, until another writer writes. Read it before relying on either.
    #[error("it is not known whether the object was written: {why}")]
    Unknown {
        /// The error.
        why: String,
    },
}

impl fmt::Debug for FencedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FencedObject")
            .field("document", &self.document)
            .field("election", &self.election)
            .finish()
    }
}

impl FencedObject {
    /// Creates a fence for the object `key` of `store` (parts separated by `/`) and the leaders of `election`. Makes no request.
    /// Before the first write it tests, with an object `primacy.probe` beside this one, whether the store honours conditions.
    /// The store must send each write only once, see [`ObjectRegister::open`](primacy_stores::object::ObjectRegister::open).
    ///
    /// # Errors
    /// [`OpenError`] for an invalid key or election.
    pub fn new(store: Arc<dyn ObjectStore>, key: &str, election: &str) -> Result<Self, OpenError> {
        Self::over(Arc::new(ObjectDocument::new(store, key)?), election)
            .map_err(|error| OpenError::Election { why: error.to_string() })
    }

    /// As [`new`](Self::new), for any document.
    ///
    /// # Errors
    /// [`FencedObjectError::Election`].
    pub fn over(document: Arc<dyn Document>, election: &str) -> Result<Self, FencedObjectError> {
        if election.is_empty() || election.contains(['\n', '\r']) {
            return Err(FencedObjectError::Election);
        }
        Ok(Self { document, election: election.to_owned() })
    }

    /// Reads the object; `None` if there is none.
    ///
    /// # Errors
    /// [`FencedObjectError`], but never [`Stale`](FencedObjectError::Stale) or [`Unknown`](FencedObjectError::Unknown).
    pub async fn read(&self) -> Result<Option<Fenced>, FencedObjectError> {
        Ok(self.find().await?.map(|(fenced, _)| fenced))
    }

    /// Writes `bytes`, unless a higher token than `token` was written.
    ///
    /// # Errors
    /// [`FencedObjectError`].
    pub async fn write(&self, token: FencingToken, bytes: &[u8]) -> Result<(), FencedObjectError> {
        self.update(token, |_| bytes.to_vec()).await
    }

    /// Makes the fence refuse lower tokens from now on, and leaves the bytes as they are; creates an empty object if there
    /// is none. A new leader should begin with this.
    ///
    /// # Errors
    /// [`FencedObjectError`].
    pub async fn raise(&self, token: FencingToken) -> Result<(), FencedObjectError> {
        self.update(token, |found| found.map(<[u8]>::to_vec).unwrap_or_default()).await
    }

    /// Replaces the bytes by the result of `change` (which gets `None` if there is no object), unless a higher token than
    /// `token` was written. `change` is called again if another writer was faster.
    ///
    /// # Errors
    /// [`FencedObjectError`].
    pub async fn update(
        &self,
        token: FencingToken,
        mut change: impl FnMut(Option<&[u8]>) -> Vec<u8>,
    ) -> Result<(), FencedObjectError> {
        for _ in 0..ROUNDS_MAX {
            let found = self.find().await?;
            let highest = found.as_ref().map_or_else(FencingToken::default, |(fenced, _)| fenced.token);
            let admitted = Fence::new(highest).admit(token);
            admitted.inspect_err(|FenceError::Stale { .. }| super::count_refused())?;
            let bytes = change(found.as_ref().map(|(fenced, _)| fenced.bytes.as_slice()));
            let text = self.format(token, &bytes)?;
            let expect = found.as_ref().map(|(_, version)| version);
            match self.document.compare_and_set(expect, &text).await {
                Ok(_) => return Ok(()),
                // The next read shows which writer was faster.
                Err(SetError::Conflict) => {}
                Err(SetError::Unavailable { why }) => return Err(FencedObjectError::Unavailable { why }),
                Err(SetError::Unknown { why }) => return Err(FencedObjectError::Unknown { why }),
            }
        }
        Err(FencedObjectError::Busy)
    }

    async fn find(&self) -> Result<Option<(Fenced, Version)>, FencedObjectError> {
        let found = self.document.read().await.map_err(|error| match error {
            ReadError::Unavailable { why } => FencedObjectError::Unavailable { why },
            ReadError::Malformed { error } => FencedObjectError::Unavailable { why: error.to_string() },
        })?;
        let Some((text, version)) = found else { return Ok(None) };
        Ok(Some((self.parse(&text)?, version)))
    }

    fn format(&self, token: FencingToken, bytes: &[u8]) -> Result<Vec<u8>, FencedObjectError> {
        let mut number = [0; 16];
        getrandom::fill(&mut number).map_err(|error| FencedObjectError::Unavailable {
            why: format!("no random number could be drawn: {error}"),
        })?;
        let number = u128::from_ne_bytes(number);
        let line = format!("{MAGIC} {FORMAT} {} {number:032x} {}\n", token.0, self.election);
        Ok([line.as_bytes(), bytes].concat())
    }

    fn parse(&self, text: &[u8]) -> Result<Fenced, FencedObjectError> {
        let not_fenced = |why| FencedObjectError::NotFenced { why };
        let line_end = text.iter().position(|byte| *byte == b'\n');
        let line_end = line_end.ok_or_else(|| not_fenced("it has no first line"))?;
        let line =
            std::str::from_utf8(&text[..line_end]).map_err(|_| not_fenced("its first line is no text"))?;
        let mut words = line.splitn(5, ' ');
        if words.next() != Some(MAGIC) {
            return Err(not_fenced("its first line is another one"));
        }
        if words.next().and_then(|format| format.parse().ok()) != Some(FORMAT) {
            return Err(not_fenced("its format is of another version of Primacy"));
        }
        let token = words.next().and_then(|token| token.parse().ok());
        let token = FencingToken(token.ok_or_else(|| not_fenced("its token is no number"))?);
        match (words.next(), words.next()) {
            (Some(_), Some(election)) if election == self.election => {
                Ok(Fenced { token, bytes: text[line_end + 1..].to_vec() })
            }
            (Some(_), Some(found)) => Err(FencedObjectError::OtherElection { found: found.to_owned() }),
            (_, None) | (None, Some(_)) => Err(not_fenced("its first line is cut off")),
        }
    }
}

#[cfg(test)]
mod tests {
    use primacy_stores::object::object_store::memory::InMemory;
    use primacy_stores::object::object_store::{ObjectStoreExt, PutPayload, path::Path};

    use super::*;

    fn open(store: &Arc<InMemory>, election: &str) -> FencedObject {
        FencedObject::new(Arc::clone(store) as Arc<dyn ObjectStore>, "a/orders", election).unwrap()
    }

    #[tokio::test]
    async fn a_stale_token_is_refused_and_changes_nothing() {
        let store = Arc::new(InMemory::new());
        let (old, new) = (open(&store, "e"), open(&store, "e"));
        assert_eq!(old.read().await.unwrap(), None);
        old.write(FencingToken(7), b"seven").await.unwrap();
        new.raise(FencingToken(8)).await.unwrap();
        let refused = super::super::stale_writes_refused();
        let late = old.write(FencingToken(7), b"late\nand long").await;
        let stale = FenceError::Stale { presented: FencingToken(7), highest: FencingToken(8) };
        assert!(matches!(late, Err(FencedObjectError::Stale(error)) if error == stale));
        assert!(super::super::stale_writes_refused() > refused);
        let found = new.read().await.unwrap().unwrap();
        assert_eq!(found, Fenced { token: FencingToken(8), bytes: b"seven".to_vec() });
        new.write(FencingToken(8), b"eight\nand long").await.unwrap();
        assert_eq!(old.read().await.unwrap().unwrap().bytes, b"eight\nand long");
    }

    #[tokio::test]
    async fn whoever_comes_between_the_reading_and_the_writing_is_noticed() {
        let store = Arc::new(InMemory::new());
        let (old, new) = (open(&store, "e"), open(&store, "e"));
        old.write(FencingToken(7), b"same").await.unwrap();
        let mut asked = 0;
        let late = old
            .update(FencingToken(7), |_| {
                asked += 1;
                // The new leader writes the same bytes at the same time.
                let new = new.clone();
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    runtime.block_on(new.write(FencingToken(8), b"same")).unwrap();
                })
                .join()
                .unwrap();
                b"late".to_vec()
            })
            .await;
        assert!(matches!(late, Err(FencedObjectError::Stale(_))), "{late:?}");
        assert_eq!(asked, 1);
        assert_eq!(new.read().await.unwrap().unwrap().bytes, b"same");
    }

    #[tokio::test]
    async fn what_is_no_fenced_object_or_anothers_is_left_as_it_is() {
        let store = Arc::new(InMemory::new());
        open(&store, "e").write(FencingToken(1), b"x").await.unwrap();
        let other = open(&store, "f").write(FencingToken(9), b"y").await;
        assert!(matches!(other, Err(FencedObjectError::OtherElection { found }) if found == "e"));
        let path = Path::from("a/orders");
        for wrong in
            ["", "plain", "primacy-fenced 2 1 n e\n", "primacy-fenced 1 x n e\n", "primacy-fenced 1 1\n"]
        {
            store.put(&path, PutPayload::from(wrong.to_owned())).await.unwrap();
            let refused = open(&store, "e").write(FencingToken(9), b"y").await;
            assert!(matches!(refused, Err(FencedObjectError::NotFenced { .. })), "{wrong:?}: {refused:?}");
            assert_eq!(store.get(&path).await.unwrap().bytes().await.unwrap(), wrong.as_bytes());
        }
        assert!(FencedObject::new(store, "a/orders", "a\nb").is_err());
    }
}
