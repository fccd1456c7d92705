//! Values that are loaded from files, and loaded again when the files have changed or could not be used before.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use primacy_stores::replaced_files::{Stamp, stamps};
use rustls::pki_types::UnixTime;

use super::{CertificateStatus, TlsError, failure, wall_time};

/// The seconds after which unusable files are read again. The cause may have been elsewhere, such as too many open files.
const READ_AGAIN_AFTER: u64 = 10;

/// A value that is loaded from files, one of which is a certificate.
pub(super) trait OfFiles {
    /// The beginning and the end of the certificate's validity: seconds since 1970.
    fn valid(&self) -> (u64, u64);

    /// The reason why other nodes would refuse it at this time, if they would.
    fn doubt(&self, now: UnixTime) -> Option<String>;
}

/// The words of log messages about the value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    /// The name of the certificate.
    pub(super) certificate: &'static str,
    /// The other side, to which the certificate is presented.
    pub(super) others: &'static str,
}

/// A value as of the last reading of its files.
pub(super) struct Replaceable<T> {
    words: Words,
    paths: Vec<PathBuf>,
    state: Mutex<State<T>>,
}

struct State<T> {
    current: Arc<T>,
    /// The metadata of the files when they were last read, successfully or not.
    seen: Vec<Option<Stamp>>,
    /// The time at which refused files are read again without a change, in seconds since 1970: unusable files soon, a certificate that
    /// was not valid yet when its validity begins, and others never.
    again_at: Option<u64>,
    replaced: u64,
    replacements_refused: u64,
    /// The reason why the present files are not in use.
    refused: Option<String>,
}

impl<T: OfFiles> Replaceable<T> {
    /// Loads the value for the first time, even if other nodes will refuse its certificate: that can be replaced.
    ///
    /// # Errors
    /// The error of `load`.
    pub(super) fn open(
        words: Words,
        paths: Vec<PathBuf>,
        load: impl FnOnce() -> Result<T, TlsError>,
    ) -> Result<Self, TlsError> {
        let seen = stamps(&paths);
        let current = Arc::new(load()?);
        if let Some(doubt) = current.doubt(wall_time()) {
            tracing::warn!("{} will refuse this node: {doubt}", words.others);
        }
        let state =
            State { current, seen, again_at: None, replaced: 0, replacements_refused: 0, refused: None };
        Ok(Self { words, paths, state: Mutex::new(state) })
    }

    /// A poisoned lock is harmless: every change is complete before it is assigned.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present value. Checks the files, and loads them if they have changed or a retry is due; `load` gets the number of the
    /// replacement.
    pub(super) fn current(&self, now: UnixTime, load: impl FnOnce(u64) -> Result<T, TlsError>) -> Arc<T> {
        let mut state = self.state();
        let seen = stamps(&self.paths);
        let changed = seen != state.seen;
        if changed || state.again_at.is_some_and(|at| at <= now.as_secs()) {
            // The next call sees later changes of the files.
            (state.seen, state.again_at) = (seen, None);
            let loaded = load(state.replaced + 1).map_err(|error| error.to_string());
            state.replace(loaded, now, self.words, changed);
        }
        Arc::clone(&state.current)
    }

    /// The state as of the last check of the files.
    pub(super) fn status(&self, now: UnixTime) -> CertificateStatus {
        let state = self.state();
        CertificateStatus {
            valid_until: state.current.valid().1,
            replaced: state.replaced,
            replacements_refused: state.replacements_refused,
            trouble: state.refused.clone().or_else(|| state.current.doubt(now)),
        }
    }
}

impl<T: OfFiles> State<T> {
    fn replace(&mut self, loaded: Result<T, String>, now: UnixTime, words: Words, changed: bool) {
        let refused = match loaded.map(|made| (made.doubt(now), made)) {
            // A value that other nodes will refuse does not replace one that they accept.
            Ok((Some(doubt), made)) if self.current.doubt(now).is_none() => {
                self.again_at = Some(made.valid().0).filter(|&from| from > now.as_secs());
                doubt
            }
            Ok((_, made)) => {
                let valid_until = failure::utc(made.valid().1);
                tracing::info!(%valid_until, "{} was replaced", words.certificate);
                self.replaced += 1;
                self.refused = None;
                self.current = Arc::new(made);
                return;
            }
            Err(refused) => {
                self.again_at = Some(now.as_secs() + READ_AGAIN_AFTER);
                refused
            }
        };
        self.replacements_refused += u64::from(changed);
        if self.refused.as_ref() != Some(&refused) {
            let certificate = words.certificate;
            tracing::warn!("{certificate} was not replaced, and the one before stays in use: {refused}");
            self.refused = Some(refused);
        }
    }
}
