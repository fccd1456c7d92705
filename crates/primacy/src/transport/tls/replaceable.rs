//! Values made of files that may be replaced at any time; they are made anew when the files have changed, or could not be read before.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use primacy_stores::replaced_files::{Stamp, stamps};
use rustls::pki_types::UnixTime;

use super::{CertificateStatus, TlsError, failure, wall_time};

/// The seconds after which files are read again that could not be used. That may not have been their fault: there may have been too many
/// open files.
const READ_AGAIN_AFTER: u64 = 10;

/// A value made of files, one of which is a certificate.
pub(super) trait OfFiles {
    /// The beginning and the end of the certificate's validity: seconds since 1970.
    fn valid(&self) -> (u64, u64);

    /// The reason why others will hardly accept it at this time.
    fn doubt(&self, now: UnixTime) -> Option<String>;
}

/// The log's words for the value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words {
    /// The certificate.
    pub(super) certificate: &'static str,
    /// The other side, to which it is shown.
    pub(super) others: &'static str,
}

/// A value made of files, as they were when they were last looked at.
pub(super) struct Replaceable<T> {
    words: Words,
    paths: Vec<PathBuf>,
    state: Mutex<State<T>>,
}

struct State<T> {
    current: Arc<T>,
    /// The metadata of the files when they were last read, whether or not they could be used.
    seen: Vec<Option<Stamp>>,
    /// The time at which refused files are to be read again though they have not changed, in seconds since 1970: unusable ones soon, a
    /// certificate that was too new when its time begins, and others not at all.
    again_at: Option<u64>,
    replaced: u64,
    replacements_refused: u64,
    /// The reason why the files as they are now are not in use.
    refused: Option<String>,
}

impl<T: OfFiles> Replaceable<T> {
    /// Makes it of the files for the first time. Even of a certificate that others will refuse: it can be replaced.
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

    /// Every change is made whole before it is assigned, so a thread that panicked has left nothing half-done.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present value. Looks at the files, and has them read if they have changed or it is time to try again; `load` is given the
    /// number of the replacement.
    pub(super) fn current(&self, now: UnixTime, load: impl FnOnce(u64) -> Result<T, TlsError>) -> Arc<T> {
        let mut state = self.state();
        let seen = stamps(&self.paths);
        let changed = seen != state.seen;
        if changed || state.again_at.is_some_and(|at| at <= now.as_secs()) {
            // Later changes of the files are seen by the next call.
            (state.seen, state.again_at) = (seen, None);
            let loaded = load(state.replaced + 1).map_err(|error| error.to_string());
            state.replace(loaded, now, self.words, changed);
        }
        Arc::clone(&state.current)
    }

    /// The state when the files were last looked at.
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
            // A value that others will refuse is no better than the present one, unless that is refused as well.
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
