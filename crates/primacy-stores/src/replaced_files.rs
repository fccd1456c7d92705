//! What is made of files that may be replaced while the program runs: certificates, keys and tokens. Whoever needs it looks at the files,
//! and has it made anew when they have changed. When that fails, what was there before stays in use.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

#[cfg(feature = "network")]
pub(crate) use self::from_files::FromFiles;

/// By what a file is seen to have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    place: (u64, u64),
    length: u64,
    written: (i64, i64),
    /// A file that was moved here keeps the time at which it was written, and not this one.
    changed: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::metadata(path)?;
        Ok(Self {
            place: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            written: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// The stamps of files as they are now; `None` for one that cannot be looked at.
#[must_use]
pub fn stamps(paths: &[PathBuf]) -> Vec<Option<Stamp>> {
    paths.iter().map(|path| Stamp::of(path).ok()).collect()
}

#[cfg(feature = "network")]
mod from_files {
    use std::fmt;
    use std::path::PathBuf;
    use std::sync::{Mutex, PoisonError};
    use std::time::{Duration, Instant};

    use super::{Stamp, stamps};
    use crate::open::OpenError;

    /// How soon files are read again of which nothing could be made, though they have not changed: there may have been too many open
    /// files.
    const READ_AGAIN_AFTER: Duration = Duration::from_secs(10);

    type Load<T> = Box<dyn Fn() -> Result<T, OpenError> + Send + Sync>;

    /// What is made of some files.
    pub(crate) struct FromFiles<T> {
        /// What it is, for the log.
        what: &'static str,
        paths: Vec<PathBuf>,
        load: Load<T>,
        state: Mutex<State<T>>,
    }

    struct State<T> {
        current: T,
        /// What the files looked like when they were last read, whether or not they could be used.
        seen: Vec<Option<Stamp>>,
        /// When the files were refused, and why.
        refused: Option<(Instant, String)>,
    }

    impl<T: Clone> FromFiles<T> {
        /// Makes it for the first time.
        ///
        /// # Errors
        /// What `load` says.
        pub(crate) fn open(
            what: &'static str,
            paths: Vec<PathBuf>,
            load: impl Fn() -> Result<T, OpenError> + Send + Sync + 'static,
        ) -> Result<Self, OpenError> {
            let seen = stamps(&paths);
            let state = Mutex::new(State { current: load()?, seen, refused: None });
            Ok(Self { what, paths, load: Box::new(load), state })
        }

        /// What there is now.
        pub(crate) fn current(&self) -> T {
            // Every change is made whole before it is assigned, so a thread that panicked has left nothing half-done.
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = stamps(&self.paths);
            let is_due = state.refused.as_ref().is_some_and(|(at, _)| at.elapsed() >= READ_AGAIN_AFTER);
            if seen != state.seen || is_due {
                // What is written after this is seen the next time.
                state.seen = seen;
                match (self.load)() {
                    Ok(made) => {
                        tracing::info!("{} was replaced", self.what);
                        (state.current, state.refused) = (made, None);
                    }
                    Err(error) => {
                        let (what, why) = (self.what, error.to_string());
                        if state.refused.as_ref().is_none_or(|(_, told)| *told != why) {
                            tracing::warn!("{what} was not replaced, and the one before stays in use: {why}");
                        }
                        state.refused = Some((Instant::now(), why));
                    }
                }
            }
            state.current.clone()
        }
    }

    /// Without what is made of them, which may be a secret.
    impl<T> fmt::Debug for FromFiles<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} of {:?}", self.what, self.paths)
        }
    }
}

#[cfg(test)]
#[cfg(feature = "network")]
mod tests {
    use super::*;
    use crate::open::OpenError;

    #[test]
    fn what_is_made_of_a_file_follows_it_and_a_broken_one_changes_nothing() {
        let path = std::env::temp_dir().join(format!("primacy-replaced-{}", std::process::id()));
        let read = {
            let path = path.clone();
            move || {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                text.parse::<u32>().map_err(|error| OpenError::Refused { why: error.to_string() })
            }
        };
        std::fs::write(&path, "1").unwrap();
        let number = FromFiles::open("the number", vec![path.clone()], read).unwrap();
        assert_eq!(number.current(), 1);
        for (text, expected) in [("22", 22), ("", 22), ("333", 333)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(number.current(), expected, "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(number.current(), 333);
    }
}
