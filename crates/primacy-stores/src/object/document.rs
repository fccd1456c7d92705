//! [`ObjectDocument`]: one object, its conditional writes, and the resolution of inconclusive answers.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};
use primacy_core::election::lease::Version;

use super::bucket::{Bucket, Meaning, REQUEST_PATIENCE, meaning, no_version, shown};
use crate::document::{Content, Document, LENGTH_MAX, check_length};
use crate::open_error::OpenError;
use crate::register::{Pending, ReadError, SetError};
use crate::runtime;

/// The number of times that a write is sent while the store answers that another one is in progress (409 of S3).
const SENDINGS_MAX: u32 = 6;
/// The pause between two sendings, times the number of the sending, and at random up to twice as long, so that two writers do not keep
/// colliding.
const BUSY_WAIT: Duration = Duration::from_millis(20);

/// One object, as a [`Document`].
pub struct ObjectDocument {
    bucket: Arc<Bucket>,
    path: Path,
}

impl ObjectDocument {
    /// The object `key` of `store` (parts with `/` between them). The store is tried for conditional writes before the first
    /// write, with an object `primacy.probe` beside this one. It must send each write once, as
    /// [`ObjectRegister::open`](super::ObjectRegister::open) says.
    ///
    /// # Errors
    /// [`OpenError::Refused`] for a key that cannot be an object's.
    pub fn new(store: Arc<dyn ObjectStore>, key: &str) -> Result<Self, OpenError> {
        let (prefix, name) = key.rsplit_once('/').unwrap_or(("", key));
        let bucket = Arc::new(Bucket::new(store, prefix)?);
        let path = Path::parse(key).map_err(|error| OpenError::Refused {
            why: format!("this cannot be the key of an object: {error}; name another one"),
        })?;
        if name.is_empty() {
            return Err(OpenError::Refused { why: "an object needs a name; this one is empty".to_owned() });
        }
        Ok(Self { bucket, path })
    }

    /// Returns the object of an election, named after it, with characters that are unsafe in object names as `=` and two digits.
    pub(super) fn of_election(bucket: Arc<Bucket>, election: &str) -> Self {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let letters = election.bytes().map(|byte| match byte {
            byte if plain(byte) => char::from(byte).to_string(),
            byte => format!("={byte:02x}"),
        });
        let path = bucket.path(&(letters.collect::<String>() + ".election"));
        Self { bucket, path }
    }

    /// Tries, once for this connection, whether the store honours conditions: with writes to the object `primacy.probe` beside this one
    /// whose conditions cannot hold, and with concurrent writes that name the same version, of which only one may succeed.
    ///
    /// # Errors
    /// [`OpenError::Refused`] of a store that ignores conditions, compares and writes in two steps, or refuses the
    /// credentials; [`OpenError::Unavailable`] of one that was not reached.
    pub async fn probe(&self) -> Result<(), OpenError> {
        let bucket = Arc::clone(&self.bucket);
        let probed = runtime::run(async move { bucket.probe().await }).await;
        probed.unwrap_or_else(|why| Err(OpenError::Unavailable { why }))
    }

    /// Sends a write of the object itself that names a version which it does not have, like a writer that was paused while another one
    /// wrote. It first calls [`probe`](Self::probe), so it is sent only if the store has already refused such a write. It carries the
    /// present bytes and attributes: if it is admitted nevertheless, only tags and writes since the read are lost.
    pub async fn try_stale_write(&self) -> StaleWrite {
        if let Err(error) = self.probe().await {
            return StaleWrite::Unknown { why: error.to_string() };
        }
        let (store, path) = (Arc::clone(&self.bucket.store), self.path.clone());
        let tried = bounded(async move { write_stale(&*store, &path).await }).await;
        tried.unwrap_or_else(|why| StaleWrite::Unknown { why })
    }

    /// Returns the error of an open whose read failed.
    #[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
    pub(super) fn refusal(&self, why: String) -> OpenError {
        let is_for_good = [FORBIDDEN, NO_BUCKET].iter().any(|begin| why.starts_with(begin));
        let store = &self.bucket.store;
        if is_for_good {
            OpenError::Refused { why: format!("{store}: {why}") }
        } else {
            OpenError::Unavailable { why: format!("{store} cannot be used: {why}") }
        }
    }

    /// The bytes and their version, if there are no more than `length_max`.
    pub(super) async fn read_at_most(&self, length_max: usize) -> Result<Option<Content>, ReadError> {
        let (store, path) = (Arc::clone(&self.bucket.store), self.path.clone());
        let found = bounded(async move { fetch(&*store, &path, length_max).await }).await;
        found.unwrap_or_else(Err).map_err(|why| ReadError::Unavailable { why })
    }

    /// Returns the version of the present content.
    pub(super) async fn version(&self) -> Result<Option<Version>, String> {
        let (store, path) = (Arc::clone(&self.bucket.store), self.path.clone());
        let found = bounded(async move {
            match store.head(&path).await {
                Ok(found) => version_of(&found).map(Some),
                Err(error) => absent(&error).map(|()| None),
            }
        });
        found.await.unwrap_or_else(Err)
    }

    /// Writes, and resolves an inconclusive answer.
    pub(super) async fn write(&self, expect: Option<&Version>, bytes: Vec<u8>) -> Result<Version, SetError> {
        check_length(&bytes)?;
        let (mode, expect) = match expect {
            None => (PutMode::Create, None),
            // A version that is not of this store is not the present one.
            Some(version) => {
                (PutMode::Update(parse_version(version).ok_or(SetError::Conflict)?), Some(version.clone()))
            }
        };
        self.probe().await.map_err(|error| SetError::Unavailable { why: error.to_string() })?;
        let write =
            Write { store: Arc::clone(&self.bucket.store), path: self.path.clone(), mode, expect, bytes };
        let written = bounded(async move { write.send().await }).await;
        written.unwrap_or_else(|why| Err(SetError::Unknown { why }))
    }
}

impl fmt::Debug for ObjectDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectDocument({}/{})", self.bucket.store, self.path)
    }
}

impl Document for ObjectDocument {
    fn read(&self) -> Pending<'_, Result<Option<Content>, ReadError>> {
        Box::pin(self.read_at_most(LENGTH_MAX))
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        bytes: &'a [u8],
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(self.write(expect, bytes.to_vec()))
    }
}

/// The answer of a store to a write that names a version which the object does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StaleWrite {
    /// The condition does not hold, and nothing was written.
    Refused,
    /// The write was done, although the condition does not hold.
    Admitted,
    /// There is no such object, and nothing was tried.
    Absent,
    /// It was not tried, or the answer was inconclusive.
    Unknown {
        /// The error.
        why: String,
    },
}

/// One write, with the means to find out its outcome.
struct Write {
    store: Arc<dyn ObjectStore>,
    path: Path,
    mode: PutMode,
    expect: Option<Version>,
    bytes: Vec<u8>,
}

/// The state of the object when it is read after a write.
enum Seen {
    /// The write was done.
    Ours(Version),
    /// The object still has the version that the write was to replace.
    Expected,
    /// The object has another content, or does not exist.
    Other,
    Nothing(String),
}

impl Write {
    async fn send(&self) -> Result<Version, SetError> {
        for sending in 1..=SENDINGS_MAX {
            let payload = PutPayload::from(self.bytes.clone());
            let error = match self.store.put_opts(&self.path, payload, self.mode.clone().into()).await {
                Ok(put) if put.e_tag.is_some() || put.version.is_some() => {
                    return Ok(format_version(put.e_tag.as_deref(), put.version.as_deref()));
                }
                Ok(_) => return self.resolve("the store has given it no version".to_owned()).await,
                Err(error) => error,
            };
            let why = shown(&error);
            match (meaning(&error), &self.mode) {
                (Meaning::Condition, _) => {
                    // A proxy may have sent it twice, and the second write may have conflicted with the first.
                    return match self.look().await {
                        Seen::Ours(version) => Ok(version),
                        Seen::Expected | Seen::Other => Err(SetError::Conflict),
                        Seen::Nothing(why) => Err(SetError::Unknown { why }),
                    };
                }
                // 409: nothing was written. Either there is an object already, or another write is in progress, whose outcome is not known
                // yet.
                (Meaning::Busy, _) => match self.look().await {
                    Seen::Ours(version) => return Ok(version),
                    Seen::Other => return Err(SetError::Conflict),
                    Seen::Expected if sending < SENDINGS_MAX => wait(sending).await,
                    Seen::Expected => return Err(SetError::Unavailable { why }),
                    // A proxy may have sent it twice, and the second write may have conflicted with the first.
                    Seen::Nothing(why) => return Err(SetError::Unknown { why }),
                },
                // The store's own answers: it has not done a request that it forbids or does not know.
                (
                    Meaning::NotAsked
                    | Meaning::Forbidden
                    | Meaning::NoBucket
                    | Meaning::Absent
                    | Meaning::NotImplemented,
                    _,
                ) => return Err(SetError::Unavailable { why }),
                (Meaning::Doubtful, _) => return self.resolve(why).await,
            }
        }
        Err(SetError::Unavailable { why: "the store has put it off again and again".to_owned() })
    }

    /// Reads the object after an answer that does not say whether the write was done.
    async fn resolve(&self, why: String) -> Result<Version, SetError> {
        match self.look().await {
            Seen::Ours(version) => Ok(version),
            // It may be under way still; or it was done, and replaced.
            Seen::Expected | Seen::Other => Err(SetError::Unknown { why }),
            Seen::Nothing(more) => Err(SetError::Unknown { why: format!("{why}; and then {more}") }),
        }
    }

    async fn look(&self) -> Seen {
        match fetch(&*self.store, &self.path, LENGTH_MAX).await {
            Ok(Some((bytes, version))) if bytes == self.bytes => Seen::Ours(version),
            Ok(found) if found.as_ref().map(|(_, version)| version) == self.expect.as_ref() => Seen::Expected,
            Ok(_) => Seen::Other,
            Err(why) => Seen::Nothing(why),
        }
    }
}

async fn wait(sending: u32) {
    let mut drawn = [0; 1];
    // Without a random number, it only waits as long as other writers do.
    let _ = getrandom::fill(&mut drawn);
    tokio::time::sleep(BUSY_WAIT * sending + BUSY_WAIT * sending * u32::from(drawn[0]) / 255).await;
}

/// Runs a request on the stores' thread; an error if it does not end in time.
async fn bounded<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, String> {
    let bounded = runtime::run(async move { tokio::time::timeout(REQUEST_PATIENCE, work).await });
    bounded.await?.map_err(|_| format!("there was no answer within {REQUEST_PATIENCE:?}"))
}

/// The beginnings of the errors of reads of these kinds.
const FORBIDDEN: &str = "the credentials, or their rights, do not allow it; check them, and that they may read and \
                         write objects below the prefix and list the bucket";
const NO_BUCKET: &str = "it is not there; make it, or name another one";

/// Returns `Ok` if an error only says that there is no object.
fn absent(error: &Error) -> Result<(), String> {
    match meaning(error) {
        Meaning::Absent => Ok(()),
        Meaning::Forbidden => Err(format!("{FORBIDDEN} ({})", shown(error))),
        Meaning::NoBucket => Err(format!("{NO_BUCKET} ({})", shown(error))),
        Meaning::Condition
        | Meaning::Busy
        | Meaning::NotImplemented
        | Meaning::NotAsked
        | Meaning::Doubtful => Err(shown(error)),
    }
}

async fn fetch(store: &dyn ObjectStore, path: &Path, length_max: usize) -> Result<Option<Content>, String> {
    // Content and version come in one answer; otherwise a write could happen between the two.
    let found = match store.get_opts(path, GetOptions::default()).await {
        Ok(found) => found,
        Err(error) => return absent(&error).map(|()| None),
    };
    let version = version_of(&found.meta)?;
    let length = found.meta.size;
    if usize::try_from(length).is_ok_and(|length| length <= length_max) {
        let bytes = found.bytes().await.map_err(|error| shown(&error))?;
        Ok(Some((bytes.to_vec(), version)))
    } else {
        Err(format!("{path} has {length} bytes, and at most {length_max} are read"))
    }
}

async fn write_stale(store: &dyn ObjectStore, path: &Path) -> StaleWrite {
    let unknown = |why| StaleWrite::Unknown { why };
    let found = match store.get_opts(path, GetOptions::default()).await {
        Ok(found) => found,
        Err(error) => return absent(&error).map_or_else(unknown, |()| StaleWrite::Absent),
    };
    if !usize::try_from(found.meta.size).is_ok_and(|length| length <= LENGTH_MAX) {
        return unknown(format!(
            "it has {} bytes, and no more than {LENGTH_MAX} are written",
            found.meta.size
        ));
    }
    let mode = PutMode::Update(no_version());
    let options = PutOptions { mode, attributes: found.attributes.clone(), ..PutOptions::default() };
    let bytes = match found.bytes().await {
        Ok(bytes) => bytes,
        Err(error) => return unknown(shown(&error)),
    };
    match store.put_opts(path, PutPayload::from(bytes), options).await {
        Ok(_) => StaleWrite::Admitted,
        Err(error) if meaning(&error) == Meaning::Condition => StaleWrite::Refused,
        Err(error) => unknown(shown(&error)),
    }
}

fn version_of(found: &ObjectMeta) -> Result<Version, String> {
    if found.e_tag.is_none() && found.version.is_none() {
        return Err("the store gives its objects neither ETags nor generations; use another one".to_owned());
    }
    Ok(format_version(found.e_tag.as_deref(), found.version.as_deref()))
}

/// The prefixes of the two parts of a version; a part that the store does not give is left out.
const E_TAG: &str = "etag ";
const GENERATION: &str = "version ";

fn format_version(e_tag: Option<&str>, version: Option<&str>) -> Version {
    let e_tag = e_tag.map(|text| format!("{E_TAG}{text}\n")).unwrap_or_default();
    let version = version.map(|text| format!("{GENERATION}{text}\n")).unwrap_or_default();
    Version::new((e_tag + &version).as_bytes())
}

fn parse_version(version: &Version) -> Option<UpdateVersion> {
    let text = std::str::from_utf8(version.as_bytes()).ok()?;
    let mut parsed = UpdateVersion { e_tag: None, version: None };
    for line in text.strip_suffix('\n')?.split('\n') {
        // They are sent in headers of a request.
        if !line.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return None;
        }
        if let Some(e_tag) = line.strip_prefix(E_TAG) {
            parsed.e_tag = Some(e_tag.to_owned());
        } else {
            parsed.version = Some(line.strip_prefix(GENERATION)?.to_owned());
        }
    }
    Some(parsed)
}
