//! A bucket: requests to its store, the meaning of its answers, and a test of its conditional writes.

use std::borrow::Cow;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use tokio::sync::OnceCell;

use crate::error_text;
use crate::open_error::OpenError;

/// The time limit of an operation, with all its requests. A store takes some tens of milliseconds, and occasionally a second; a lease
/// cannot wait for longer.
pub(super) const REQUEST_PATIENCE: Duration = Duration::from_secs(5);

/// The object on which conditional writes are tested. No election's object has this name.
const PROBE: &str = "primacy.probe";

/// An ETag and a generation that no object has.
const NO_ETAG: &str = "\"00000000000000000000000000000000\"";
const NO_GENERATION: &str = "1";

/// The number of writes that name the same version and are sent at once, and the number of such races. Each write costs money,
/// and in a store that compares first and then writes, almost every race has several winners. The doctor tries more.
const RIVALS: usize = 4;
const RACES: usize = 2;

/// The length at which an error is cut off. Some stores answer with pages.
const SHOWN_LENGTH_MAX: usize = 400;

/// A store, and the prefix of all objects in it.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(super) store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Filled when the store has shown that it honours conditions.
    probed: OnceCell<()>,
}

/// The meaning of an error of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The condition does not hold.
    Condition,
    /// In S3: another conditional write is in progress. In other stores: there is an object already. Nothing was written in either case.
    Busy,
    /// There is no such object, or no such bucket.
    Absent,
    /// The bucket, not the object, is not there.
    NoBucket,
    /// The credentials, or their rights, do not allow it.
    Forbidden,
    /// The store does not know such requests.
    NotImplemented,
    /// The store was not connected to, so the request was not sent.
    NotAsked,
    /// Anything else: the request may have been done.
    Doubtful,
}

impl Bucket {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<Self, OpenError> {
        let prefix = Path::parse(prefix.trim_matches('/')).map_err(|error| OpenError::Refused {
            why: format!("the prefix cannot be a part of an object's name: {error}; name another one"),
        })?;
        Ok(Self { store, prefix, probed: OnceCell::new() })
    }

    /// The path of an object below the prefix. `name` has only characters that need no escapes.
    pub(super) fn path(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }

    /// Tests, once for this connection, whether the store refuses writes whose conditions do not hold.
    pub(super) async fn probe(&self) -> Result<(), OpenError> {
        self.probed.get_or_try_init(|| self.try_out()).await.copied()
    }

    async fn try_out(&self) -> Result<(), OpenError> {
        match tokio::time::timeout(REQUEST_PATIENCE, self.try_conditions()).await {
            Ok(tried) => tried?,
            Err(_) => {
                let why = format!("{} did not answer within {REQUEST_PATIENCE:?}", self.store);
                return Err(OpenError::Unavailable { why });
            }
        }
        // An unfinished race proves nothing against the store.
        let has_several = tokio::time::timeout(REQUEST_PATIENCE, self.several_win_a_race()).await;
        if !has_several.unwrap_or(false) {
            return Ok(());
        }
        Err(OpenError::Refused {
            why: format!(
                "{} has done more than one of several writes at once that name the same version, as stores do that compare first \
                 and then write, so that two could lead at once. Hold the election in another store",
                self.store
            ),
        })
    }

    /// Tries to create an object that exists, and to replace a version that it does not have.
    async fn try_conditions(&self) -> Result<(), OpenError> {
        let mut found = self.try_write(PutMode::Create).await;
        if found.is_ok() {
            // The object did not exist, or the store ignores the condition.
            found = self.try_write(PutMode::Create).await;
        }
        self.judge(found, "If-None-Match")?;
        let found = self.try_write(PutMode::Update(no_version())).await;
        self.judge(found, "If-Match")
    }

    /// Sends several writes at once that name the same version, and returns whether more than one was done. A write without an answer, or
    /// with an answer other than a success, is not counted: whether it was done is not known.
    async fn several_win_a_race(&self) -> bool {
        for _ in 0..RACES {
            let Ok(found) = self.store.head(&self.path(PROBE)).await else { return false };
            let expect = UpdateVersion { e_tag: found.e_tag, version: found.version };
            let rivals = (0..RIVALS).map(|_| self.try_write(PutMode::Update(expect.clone())));
            let answers = futures_util::future::join_all(rivals).await;
            if answers.iter().filter(|answer| answer.is_ok()).count() > 1 {
                return true;
            }
        }
        false
    }

    async fn try_write(&self, mode: PutMode) -> Result<(), Error> {
        write_probe(&*self.store, &self.path(PROBE), mode).await
    }

    /// Judges the store by its answer to a write whose condition could not hold.
    fn judge(&self, answer: Result<(), Error>, condition: &str) -> Result<(), OpenError> {
        let store = &self.store;
        let refused = |why: String| Err(OpenError::Refused { why });
        let ignores = format!(
            "{store} ignores the condition {condition} of a write, so that two could lead at once. Upgrade it, turn \
             conditional writes on there, or hold the election in another store"
        );
        let Err(error) = answer else { return refused(ignores) };
        match meaning(&error) {
            Meaning::Condition | Meaning::Busy => Ok(()),
            Meaning::NotImplemented => refused(format!(
                "{store} does not know the condition {condition} of a write ({}). Upgrade it, or hold the election in \
                 another store",
                shown(&error)
            )),
            Meaning::Forbidden
            | Meaning::NoBucket
            | Meaning::Absent
            | Meaning::NotAsked
            | Meaning::Doubtful => Err(self.refusal(meaning(&error), shown(&error))),
        }
    }

    /// Returns the error of a store that cannot be used now.
    pub(super) fn refusal(&self, meaning: Meaning, why: String) -> OpenError {
        let store = &self.store;
        match meaning {
            Meaning::Forbidden => OpenError::Refused {
                why: format!(
                    "{store} refuses these credentials ({why}). Check them, and that they may read and write objects \
                     below the prefix and list the bucket"
                ),
            },
            Meaning::NoBucket | Meaning::Absent => OpenError::Refused {
                why: format!("{store} is not there ({why}). Make it, or name another one"),
            },
            Meaning::NotImplemented
            | Meaning::Condition
            | Meaning::Busy
            | Meaning::NotAsked
            | Meaning::Doubtful => OpenError::Unavailable { why: format!("{store} cannot be used: {why}") },
        }
    }
}

/// A version that no object has.
pub(super) fn no_version() -> UpdateVersion {
    UpdateVersion { e_tag: Some(NO_ETAG.to_owned()), version: Some(NO_GENERATION.to_owned()) }
}

/// Sends a write with unique content: equal contents would have the same ETag, and the condition of the second write would hold.
async fn write_probe(store: &dyn ObjectStore, path: &Path, mode: PutMode) -> Result<(), Error> {
    let number = super::draw_number().map_err(|why| Error::Generic { store: "probe", source: why.into() })?;
    let text = format!(
        "Primacy tries on this object whether the store honours conditional writes.\n{number:032x}\n"
    );
    store.put_opts(path, PutPayload::from(text), mode.into()).await.map(|_| ())
}

/// Classifies an error of the store.
pub(super) fn meaning(error: &Error) -> Meaning {
    match error {
        Error::Precondition { .. } | Error::NotModified { .. } => Meaning::Condition,
        Error::AlreadyExists { .. } => Meaning::Busy,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Meaning::Forbidden,
        Error::NotImplemented { .. } | Error::NotSupported { .. } => Meaning::NotImplemented,
        Error::NotFound { .. } => {
            let text = error.to_string();
            let names_bucket = ["NoSuchBucket", "ContainerNotFound", "specified bucket does not exist"];
            if names_bucket.iter().any(|name| text.contains(name)) {
                Meaning::NoBucket
            } else {
                Meaning::Absent
            }
        }
        _ if is_not_connected(error) => Meaning::NotAsked,
        // The status of an answer that has no variant of its own is only in the text.
        _ if error.to_string().contains("status code: 501 ") => Meaning::NotImplemented,
        Error::Generic { .. }
        | Error::InvalidPath { .. }
        | Error::JoinError { .. }
        | Error::UnknownConfigurationKey { .. }
        | _ => Meaning::Doubtful,
    }
}

/// Returns whether the connection itself was not made, so that nothing was sent.
fn is_not_connected(error: &Error) -> bool {
    let mut next = error.source();
    while let Some(source) = next {
        if let Some(http) = source.downcast_ref::<HttpError>() {
            return http.kind() == HttpErrorKind::Connect;
        }
        next = source.source();
    }
    false
}

/// An error on one line, not too long. It has the address of the request and what the store has answered, and no secret.
pub(super) fn shown(error: &Error) -> String {
    let mut text: Vec<String> = vec![error.to_string()];
    let mut next = error.source();
    while let Some(source) = next {
        let more = source.to_string();
        if !text.iter().any(|told| told.contains(&more)) {
            text.push(more);
        }
        next = source.source();
    }
    let text = without_elapsed(&text.join(": ").split_whitespace().collect::<Vec<_>>().join(" "));
    error_text::on_one_line(&without_details(&text), SHOWN_LENGTH_MAX)
}

/// An error with the code and the message of an answer in XML, and without the rest of it: S3 repeats an expired session token there.
fn without_details(text: &str) -> Cow<'_, str> {
    let Some((before, body)) = text.find("<Error").map(|at| text.split_at(at)) else { return text.into() };
    let element = |name: &str| {
        let (_, rest) = body.split_once(&format!("<{name}>"))?;
        Some(rest.split_once('<')?.0.trim())
    };
    let before = before.rsplit_once("<?xml").map_or(before, |(before, _)| before);
    match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{before}{code}: {message}").into(),
        (Some(code), None) => format!("{before}{code}").into(),
        (None, _) => format!("{before}an error without a code").into(),
    }
}

/// Removes the duration of the request from an error, which would make each text a new one. The client writes `URL in 1.5ms - WHY`.
fn without_elapsed(text: &str) -> String {
    let is_elapsed = |word: &str| {
        let unit = word.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        unit.len() < word.len() && ["ns", "µs", "ms", "s"].contains(&unit)
    };
    let parts = text.split(" - ").map(|part| match part.rsplit_once(" in ") {
        Some((before, word)) if is_elapsed(word) => before,
        Some(_) | None => part,
    });
    parts.collect::<Vec<_>>().join(" - ")
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;

    #[test]
    fn how_long_a_request_took_is_no_part_of_an_error() {
        let table = [
            ("PUT http://h/b/p in 434.333µs - HTTP error", "PUT http://h/b/p - HTTP error"),
            ("GET x in 5s - a - b in 2.1ms - c", "GET x - a - b - c"),
            ("nothing in it - in 5s", "nothing in it - in 5s"),
            ("a bucket in s - in ms", "a bucket in s - in ms"),
        ];
        for (text, expected) in table {
            assert_eq!(without_elapsed(text), expected);
        }
    }

    #[test]
    fn an_answer_in_xml_is_shown_by_its_code_and_message() {
        let answer = "GET http://h/b - 400 Bad Request: <?xml version=\"1.0\"?> <Error><Code>ExpiredToken</Code><Message>The provided token \
                      has expired.</Message><Token-0>QXZ</Token-0></Error>";
        let shown = "GET http://h/b - 400 Bad Request: ExpiredToken: The provided token has expired.";
        assert_eq!(without_details(answer), shown);
        assert_eq!(
            without_details("403: <Error xmlns=\"x\"><Token-0>QXZ</Token-0>"),
            "403: an error without a code"
        );
        assert_eq!(without_details("no answer <x>"), "no answer <x>");
    }

    #[test]
    fn a_store_that_does_not_answer_passes_and_one_that_refuses_does_not() {
        let bucket = Bucket::new(Arc::new(InMemory::new()), "p").unwrap();
        let table = [
            (Meaning::NotAsked, true),
            (Meaning::Doubtful, true),
            (Meaning::Busy, true),
            (Meaning::Condition, true),
            (Meaning::NotImplemented, true),
            (Meaning::Forbidden, false),
            (Meaning::NoBucket, false),
            (Meaning::Absent, false),
        ];
        for (meaning, passes) in table {
            assert_eq!(bucket.refusal(meaning, String::new()).is_passing(), passes, "{meaning:?}");
        }
    }
}
