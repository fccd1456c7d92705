//! Values that are made of files which may be replaced while the program runs: certificates, keys, passwords and tokens. Each use
//! checks the files first, and makes the value again when one of them has changed. Where that fails, the earlier value stays in use.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

#[cfg(feature = "network")]
pub use self::from_files::{FromFiles, Sources};

/// The properties by which a change of a file is noticed.
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
    use std::fmt::{self, Display};
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use super::Stamp;
    use crate::mutex::lock;
    use crate::ownership::{check_trusted, open_trusted, read_trusted};

    /// The time after which unchanged files that could not be used are read again: there may have been too many open files.
    const READ_AGAIN_AFTER: Duration = Duration::from_secs(10);

    type Load<T> = Box<dyn Fn(&mut Sources) -> Result<T, String> + Send + Sync>;

    /// The files that a value was made of, as each was just before it was read.
    #[derive(Default)]
    pub struct Sources(Vec<(PathBuf, Option<Stamp>)>);

    impl Sources {
        /// Notes what a file is like, before it is read by others.
        pub fn add(&mut self, path: &Path) {
            self.0.push((path.to_owned(), Stamp::of(path).ok()));
        }

        /// The same of a file that users other than this one and root must not be able to change. All other errors are left to its
        /// reader.
        ///
        /// # Errors
        /// [`io::ErrorKind::PermissionDenied`], as of [`read_trusted`].
        pub fn add_trusted(&mut self, path: &Path) -> io::Result<()> {
            self.add(path);
            match open_trusted(path, 0o022) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
                Ok(_) | Err(_) => Ok(()),
            }
        }

        /// The same of a file that its reader reads without a bound.
        ///
        /// # Errors
        /// As of [`check_trusted`], if there is such a file.
        pub fn add_read_whole(&mut self, path: &Path) -> io::Result<()> {
            use io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
            self.add(path);
            match check_trusted(path, 0o022) {
                Err(error) if matches!(error.kind(), NotFound | NotADirectory | InvalidFilename) => Ok(()),
                checked => checked,
            }
        }

        /// Reads a file, and notes its stamp beforehand. It must belong to this user or to root, and no other user may write to it.
        ///
        /// # Errors
        /// As of [`read_trusted`].
        pub fn read_to_string(&mut self, path: &Path) -> io::Result<String> {
            self.add(path);
            read_trusted(path, 0o022)
        }

        fn have_changed(&self) -> bool {
            self.0.iter().any(|(path, seen)| Stamp::of(path).ok() != *seen)
        }
    }

    /// A value that is made of some files.
    pub struct FromFiles<T> {
        /// Names it in the log.
        what: &'static str,
        load: Load<T>,
        state: Mutex<State<T>>,
    }

    struct State<T> {
        current: T,
        /// The files when they were last read, whether or not they could be used.
        sources: Sources,
        /// The time and the reason of the last refusal of the files.
        refused: Option<(Instant, String)>,
    }

    impl<T: Clone> FromFiles<T> {
        /// Makes the value for the first time. `load` tells the [`Sources`] of every file that it reads.
        ///
        /// # Errors
        /// That of `load`.
        pub fn open<E: Display>(
            what: &'static str,
            load: impl Fn(&mut Sources) -> Result<T, E> + Send + Sync + 'static,
        ) -> Result<Self, E> {
            let mut sources = Sources::default();
            let state = Mutex::new(State { current: load(&mut sources)?, sources, refused: None });
            let load: Load<T> = Box::new(move |sources| load(sources).map_err(|error| error.to_string()));
            Ok(Self { what, load, state })
        }

        /// Returns the value as the files have it now, or as they had it last.
        pub fn current(&self) -> T {
            // Every change is made whole before it is assigned, so a thread that panicked has left nothing half-done.
            let mut state = lock(&self.state);
            let is_due = state.refused.as_ref().is_some_and(|(at, _)| at.elapsed() >= READ_AGAIN_AFTER);
            if is_due || state.sources.have_changed() {
                let mut sources = Sources::default();
                match (self.load)(&mut sources) {
                    Ok(made) => {
                        tracing::info!("{} was replaced", self.what);
                        *state = State { current: made, sources, refused: None };
                    }
                    Err(why) => {
                        let what = self.what;
                        if state.refused.as_ref().is_none_or(|(_, told)| *told != why) {
                            tracing::warn!("{what} was not replaced, and the one before stays in use: {why}");
                        }
                        (state.sources, state.refused) = (sources, Some((Instant::now(), why)));
                    }
                }
            }
            state.current.clone()
        }
    }

    /// Leaves out the value, which may be a secret.
    impl<T> fmt::Debug for FromFiles<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} from files", self.what)
        }
    }

    impl fmt::Debug for Sources {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{} files", self.0.len())
        }
    }
}

#[cfg(test)]
#[cfg(feature = "network")]
mod tests {
    use super::*;

    #[test]
    fn a_value_follows_its_files_and_a_broken_one_changes_nothing() {
        let path = |name: &str| std::env::temp_dir().join(format!("primacy-{name}-{}", std::process::id()));
        let (path, other) = (path("replaced"), path("replaced-second"));
        // The first file names a number, or the second file in which it is.
        let read = {
            let (path, other) = (path.clone(), other.clone());
            move |sources: &mut Sources| {
                let mut text = sources.read_to_string(&path).unwrap_or_default();
                if text == "other" {
                    text = sources.read_to_string(&other).unwrap_or_default();
                }
                text.parse::<u32>()
            }
        };
        std::fs::write(&path, "1").unwrap();
        let number = FromFiles::open("the number", read).unwrap();
        assert_eq!(number.current(), 1);
        for (text, expected) in [("22", 22), ("", 22), ("333", 333), ("other", 333)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(number.current(), expected, "{text:?}");
        }
        for (text, expected) in [("4", 4), ("55", 55)] {
            std::fs::write(&other, text).unwrap();
            assert_eq!(number.current(), expected, "{text:?}");
        }
        std::fs::remove_file(&other).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(number.current(), 55);
    }
}
