//! [`DurableFence`]: a file with the highest token that was admitted.
//!
//! The file holds two copies of the same few lines of text, each in a block of its own. A new token is written to the
//! first copy and flushed, then to the second and flushed, and only then admitted. So after a power cut at any moment,
//! one copy is intact; if both are, the higher token counts. An equal token is admitted without writing, but only if
//! both copies agree: a copy whose flush failed looks intact until the power cut.
//!
//! Processes may share a file. Each locks it for one admission; a [`HeldFence`](super::HeldFence) keeps the lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use primacy_core::fence::{Fence, FenceError, FencingToken};
use primacy_stores::ownership::Sharing;

use super::inherited_lock;

/// The length of a copy: the largest unit that one failed write may destroy.
const COPY_LENGTH: usize = 4096;

/// The longest name of an election, in bytes.
pub const ELECTION_LENGTH_MAX: usize = 200;

/// A fence that remembers across restarts.
///
/// ```
/// use primacy::fence::{DurableFence, FencingToken};
/// # let directory = std::env::temp_dir().join(format!("primacy-fence-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&directory)?;
/// # let path = directory.join("orders.fence");
///
/// let fence = DurableFence::open_or_create(&path, "orders")?;
/// fence.admit_and(FencingToken(7), || { /* Write to the resource, before another process is admitted. */ })?;
/// assert!(fence.admit(FencingToken(6)).is_err());
/// # std::fs::remove_dir_all(&directory)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DurableFence {
    path: PathBuf,
    election: String,
    /// The kernel's lock is shared by all threads that use this file, so they also need a mutex.
    file: Mutex<File>,
}

/// The reason why a token was not admitted. Nothing may be written to the resource.
#[derive(Debug, thiserror::Error)]
pub enum DurableFenceError {
    /// A later leader has presented a higher token.
    #[error(transparent)]
    Stale(#[from] FenceError),
    /// The file could not be read or written. The token may have been recorded; try again.
    #[error("the fence {path} could not be {doing}: {error}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted operation.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// The file is no fence, or both copies in it are damaged. It was not changed.
    #[error(
        "{path} is not a whole fence of Primacy ({why}); it was left as it is. If it was one, make a new one with a \
         token that is above any that was given out", path = .path.display()
    )]
    NotAFence {
        /// The file.
        path: PathBuf,
        /// The defect.
        why: &'static str,
    },
    /// The file is the fence of another election. It was not changed.
    #[error("{path} is the fence of the election {found:?}; it was left as it is", path = .path.display())]
    OtherElection {
        /// The file.
        path: PathBuf,
        /// The election that it belongs to.
        found: String,
    },
    /// The file belongs to another user, who could change it or keep it locked, or its directory is writable for all users.
    #[error("the fence is not used: {why}")]
    Untrusted {
        /// The file.
        path: PathBuf,
        /// The owner, and what to do.
        why: String,
    },
    /// The path leads to another file than the open one, or to none.
    #[error("the fence {path} was removed or replaced while it was open; open it again", path = .path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// Another process holds the fence.
    #[error(
        "the fence {path} is held by another process, a fence proxy or service or a command that runs under it: wait \
         for its end, or use another file", path = .path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The election's name is invalid.
    #[error("the name of an election has 1 to {ELECTION_LENGTH_MAX} bytes and no control characters")]
    Election,
}

impl DurableFenceError {
    /// Counts the error if it is a refusal.
    pub(super) fn count(&self) {
        if matches!(self, Self::Stale(_)) {
            super::count_refused();
        }
    }
}

impl DurableFence {
    /// Opens the fence of `election`. Fails if there is no file, because a new fence in place of a lost one would admit
    /// every zombie.
    ///
    /// # Errors
    /// [`DurableFenceError`]; the file was not changed.
    pub fn open(path: &Path, election: &str) -> Result<Self, DurableFenceError> {
        let fence = Self::open_unread(path, election, Sharing::default())?;
        fence.highest()?;
        Ok(fence)
    }

    /// Opens the file without waiting for its holder. Whether it is a fence is only known after reading it under the lock.
    pub(super) fn open_unread(
        path: &Path,
        election: &str,
        sharing: Sharing,
    ) -> Result<Self, DurableFenceError> {
        check_election(election)?;
        let failed = |error| DurableFenceError::Io { path: path.to_owned(), doing: "opened", error };
        let untrusted = |why| DurableFenceError::Untrusted { path: path.to_owned(), why };
        sharing.check_links(path).map_err(untrusted)?;
        // Checked before opening: opening a pipe would wait for its other end.
        if !path.metadata().map_err(failed)?.is_file() {
            return Err(DurableFenceError::NotAFence { path: path.to_owned(), why: "it is not a file" });
        }
        // Refuses a symbolic link of another user: it could lead to a file of ours, which would then serve as a second
        // fence.
        let link = path.symlink_metadata().map_err(failed)?;
        sharing.check(path, &link).map_err(untrusted)?;
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        sharing.check(path, &metadata).map_err(untrusted)?;
        let fence = Self { path: path.to_owned(), election: election.to_owned(), file: Mutex::new(file) };
        let file = fence.file();
        // Only the rights of a readable fence are tightened: the path may name another file by mistake. The file is judged
        // later, under the lock.
        if fence.read(&file).is_ok() && sharing.tighten_open(&file).map_err(failed)? {
            tracing::warn!(
                "the fence {} could be opened, and so kept locked, by other users; it is for its owner now",
                path.display()
            );
        }
        drop(file);
        Ok(fence)
    }

    /// Creates a fence with `highest` as the highest token. Fails if there is a file.
    ///
    /// # Errors
    /// [`DurableFenceError::Io`]; then there is no fence, or a complete one.
    pub fn create(path: &Path, election: &str, highest: FencingToken) -> Result<Self, DurableFenceError> {
        Self::make(path, election, highest, Sharing::default())?;
        Self::open(path, election)
    }

    fn make(
        path: &Path,
        election: &str,
        highest: FencingToken,
        sharing: Sharing,
    ) -> Result<(), DurableFenceError> {
        check_election(election)?;
        let failed = |error| DurableFenceError::Io { path: path.to_owned(), doing: "made", error };
        let copy = encode(election, highest);
        let unfinished = unfinished_path(path);
        // Written completely under another name, and then linked, so that there is never an incomplete file under
        // `path`.
        let made = write_new(&unfinished, &[copy, copy].concat())
            .and_then(|()| sharing.give(&unfinished))
            .and_then(|()| std::fs::hard_link(&unfinished, path))
            .and_then(|()| sync_directory(path));
        // A leftover file is harmless.
        let _ = std::fs::remove_file(&unfinished);
        made.map_err(failed)
    }

    /// Opens the fence of `election`, or creates an empty one if there is no file.
    ///
    /// # Errors
    /// As for [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(path: &Path, election: &str) -> Result<Self, DurableFenceError> {
        Self::open_or_create_shared(path, election, Sharing::default())
    }

    /// As [`open_or_create`](Self::open_or_create), with the file shared with the members of a group.
    ///
    /// # Errors
    /// As for [`open_or_create`](Self::open_or_create).
    pub fn open_or_create_shared(
        path: &Path,
        election: &str,
        sharing: Sharing,
    ) -> Result<Self, DurableFenceError> {
        Self::make_unless_there(path, election, sharing)?;
        let fence = Self::open_unread(path, election, sharing)?;
        fence.highest()?;
        Ok(fence)
    }

    /// Creates an empty fence, if there is no file.
    pub(super) fn make_unless_there(
        path: &Path,
        election: &str,
        sharing: Sharing,
    ) -> Result<(), DurableFenceError> {
        if path.symlink_metadata().is_ok() {
            return Ok(());
        }
        match Self::make(path, election, FencingToken::default(), sharing) {
            // Another process has created it at the same time.
            Err(DurableFenceError::Io { error, .. }) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(())
            }
            made => made,
        }
    }

    /// Admits `presented`, and returns when the admission would survive a power cut; or refuses it.
    ///
    /// Between this and the caller's write, another process may admit a higher token. If the resource cannot check the
    /// token itself, use [`admit_and`](Self::admit_and).
    ///
    /// # Errors
    /// [`DurableFenceError`]; the token was not admitted.
    pub fn admit(&self, presented: FencingToken) -> Result<(), DurableFenceError> {
        self.admit_and(presented, || ())
    }

    /// Admits `presented` and calls `act` before any other admission: for all users of this fence, the check and the
    /// write are one step.
    ///
    /// # Errors
    /// [`DurableFenceError`]; the token was not admitted, and `act` was not called.
    pub fn admit_and<T>(
        &self,
        presented: FencingToken,
        act: impl FnOnce() -> T,
    ) -> Result<T, DurableFenceError> {
        let locked = self.lock()?;
        self.admit_in(&locked.file, presented).inspect_err(DurableFenceError::count)?;
        Ok(act())
    }

    /// Admits `presented` in the locked file. The caller counts refusals.
    pub(super) fn admit_in(&self, file: &File, presented: FencingToken) -> Result<(), DurableFenceError> {
        let (highest, agree) = self.read(file)?;
        Fence::new(highest).admit(presented)?;
        if presented > highest || !agree {
            self.write(file, presented)?;
        }
        Ok(())
    }

    /// The highest token that was presented and not refused.
    ///
    /// # Errors
    /// [`DurableFenceError`], but never [`Stale`](DurableFenceError::Stale).
    pub fn highest(&self) -> Result<FencingToken, DurableFenceError> {
        let locked = self.lock()?;
        Ok(self.read(&locked.file)?.0)
    }

    fn lock(&self) -> Result<Locked<'_>, DurableFenceError> {
        let locked = Locked { file: self.file() };
        self.wait_for_locks(&locked.file)?;
        self.check_place(&locked.file)?;
        Ok(locked)
    }

    /// Locks the file, and waits until no child of an earlier holder has a lock.
    pub(super) fn wait_for_locks(&self, file: &File) -> Result<(), DurableFenceError> {
        loop {
            match file.lock().and_then(|()| inherited_lock::none_left(file, true)) {
                // A signal interrupted the wait.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                locked => return locked.map_err(|error| self.failed("locked", error)),
            }
        }
    }

    /// Locks the file among the threads of this process.
    pub(super) fn file(&self) -> MutexGuard<'_, File> {
        // A poisoned mutex is harmless: the file is read again each time.
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the path still leads to this file.
    pub(super) fn check_place(&self, file: &File) -> Result<(), DurableFenceError> {
        let ours = file.metadata().map_err(|error| self.failed("looked at", error))?;
        match self.path.metadata() {
            Ok(now) if now.dev() == ours.dev() && now.ino() == ours.ino() => Ok(()),
            Ok(_) | Err(_) => Err(DurableFenceError::Replaced { path: self.path.clone() }),
        }
    }

    /// The highest token, and whether both copies have it.
    pub(super) fn read(&self, file: &File) -> Result<(FencingToken, bool), DurableFenceError> {
        let not_a_fence = |why| Err(DurableFenceError::NotAFence { path: self.path.clone(), why });
        let length = file.metadata().map_err(|error| self.failed("looked at", error))?.len();
        if length != 2 * COPY_LENGTH as u64 {
            return not_a_fence("its length is wrong");
        }
        let mut bytes = [0; 2 * COPY_LENGTH];
        file.read_exact_at(&mut bytes, 0).map_err(|error| self.failed("read", error))?;
        let (first, second) = bytes.split_at(COPY_LENGTH);
        let (first, second) = (decode(first), decode(second));
        for (election, _) in [&first, &second].into_iter().flatten() {
            if *election != self.election {
                let found = (*election).to_owned();
                return Err(DurableFenceError::OtherElection { path: self.path.clone(), found });
            }
        }
        match (first.map(|(_, token)| token), second.map(|(_, token)| token)) {
            (Some(first), Some(second)) => Ok((first.max(second), first == second)),
            (Some(one), None) | (None, Some(one)) => Ok((one, false)),
            (None, None) => not_a_fence("neither copy is whole"),
        }
    }

    fn write(&self, file: &File, token: FencingToken) -> Result<(), DurableFenceError> {
        let copy = encode(&self.election, token);
        for offset in [0, COPY_LENGTH as u64] {
            file.write_all_at(&copy, offset).map_err(|error| self.failed("written", error))?;
            // The second copy is not touched before the first is flushed.
            file.sync_data().map_err(|error| self.failed("flushed", error))?;
        }
        Ok(())
    }

    pub(super) fn failed(&self, doing: &'static str, error: io::Error) -> DurableFenceError {
        DurableFenceError::Io { path: self.path.clone(), doing, error }
    }
}

/// The file, locked for one admission.
struct Locked<'a> {
    file: MutexGuard<'a, File>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Unlocking a locked file does not fail, and closing the file would unlock it too.
        let _ = self.file.unlock();
    }
}

/// Encodes one copy: readable lines, a checksum as the last one, and empty lines to the end.
fn encode(election: &str, token: FencingToken) -> [u8; COPY_LENGTH] {
    let text = format!("primacy fence 1\nelection {election}\ntoken {token}\n");
    let text = format!("{text}crc32 {:08x}\n", crc32fast::hash(text.as_bytes()));
    let mut copy = [b'\n'; COPY_LENGTH];
    copy.get_mut(..text.len())
        .expect("a name of at most 200 bytes, and numbers, are shorter than a copy")
        .copy_from_slice(text.as_bytes());
    copy
}

/// The election and the token of a copy; `None` if it is damaged, or has another format.
fn decode(copy: &[u8]) -> Option<(&str, FencingToken)> {
    let text = std::str::from_utf8(copy).ok()?;
    let mut lines = text.lines().skip(1);
    let election = lines.next()?.strip_prefix("election ")?;
    let token = FencingToken(lines.next()?.strip_prefix("token ")?.parse().ok()?);
    check_election(election).ok()?;
    // A copy has exactly one encoding, with the checksum.
    (encode(election, token) == copy).then_some((election, token))
}

fn check_election(election: &str) -> Result<(), DurableFenceError> {
    let usable = (1..=ELECTION_LENGTH_MAX).contains(&election.len()) && !election.contains(char::is_control);
    if usable { Ok(()) } else { Err(DurableFenceError::Election) }
}

fn unfinished_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".new-{}-{:?}", std::process::id(), std::thread::current().id()));
    PathBuf::from(name)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // An unfinished file of an earlier process with the same process id is worthless.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()
}

/// Flushes a directory, so that a new name in it survives a power cut.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicU32, Ordering};

    use primacy_core::rng::Rng;

    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Ordering::SeqCst);
            let path = std::env::temp_dir().join(format!("primacy-fence-{}-{number}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("e.fence")
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn is_stale(result: &Result<(), DurableFenceError>) -> bool {
        matches!(result, Err(DurableFenceError::Stale(_)))
    }

    #[test]
    fn what_was_admitted_is_remembered_by_all_and_across_restarts() {
        let directory = Directory::new();
        let path = directory.file();
        let fence = DurableFence::open_or_create(&path, "e").unwrap();
        let other = DurableFence::open(&path, "e").unwrap();
        fence.admit(FencingToken(7)).unwrap();
        fence.admit(FencingToken(7)).unwrap();
        assert!(is_stale(&other.admit(FencingToken(6))));
        other.admit(FencingToken(u64::MAX)).unwrap();
        assert!(is_stale(&fence.admit(FencingToken(7))));
        drop((fence, other));
        let again = DurableFence::open_or_create(&path, "e").unwrap();
        assert_eq!(again.highest().unwrap(), FencingToken(u64::MAX));
        let left: Vec<_> = fs::read_dir(&directory.0).unwrap().collect();
        assert_eq!(left.len(), 1, "nothing but the fence: {left:?}");
    }

    #[test]
    fn the_bytes_are_golden() {
        let copy = encode("orders", FencingToken(1_700_000_000_001));
        let text = "primacy fence 1\nelection orders\ntoken 1700000000001\ncrc32 9186d254\n";
        assert_eq!(std::str::from_utf8(&copy).unwrap().trim_end(), text.trim_end());
    }

    #[test]
    fn a_power_cut_at_any_byte_of_a_write_loses_no_admitted_token() {
        let directory = Directory::new();
        let path = directory.file();
        let (old, new) = (encode("e", FencingToken(9)), encode("e", FencingToken(10)));
        for first_is_torn in [true, false] {
            for cut in 0..=100 {
                let torn = [&new[..cut], &[0xFF; 3], &old[cut + 3..]].concat();
                let bytes =
                    if first_is_torn { [torn, old.to_vec()].concat() } else { [new.to_vec(), torn].concat() };
                fs::write(&path, bytes).unwrap();
                let fence = DurableFence::open(&path, "e").unwrap();
                let admitted = if first_is_torn { 9 } else { 10 };
                assert!(fence.highest().unwrap() >= FencingToken(admitted));
                assert!(is_stale(&fence.admit(FencingToken(8))));
                fence.admit(FencingToken(10)).unwrap();
                assert_eq!(fs::read(&path).unwrap(), [new, new].concat(), "both are whole again");
            }
        }
    }

    #[test]
    fn what_is_no_whole_fence_is_refused_and_left_as_it_is() {
        let directory = Directory::new();
        let path = directory.file();
        let copy = encode("e", FencingToken(9));
        let mut rng = Rng::new(3);
        for round in 0..2_000_u64 {
            let mut bytes = [copy, copy].concat();
            match round {
                0 => bytes.clear(),
                1 => bytes.truncate(COPY_LENGTH),
                2 => bytes.push(b'\n'),
                _ => {
                    for copy in bytes.chunks_mut(COPY_LENGTH) {
                        let at = usize::try_from(rng.up_to(60)).unwrap();
                        copy[at] ^= u8::try_from(1 + rng.up_to(254)).unwrap();
                    }
                }
            }
            fs::write(&path, &bytes).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
            let error = DurableFence::open_or_create(&path, "e").expect_err("a damaged fence");
            assert!(matches!(error, DurableFenceError::NotAFence { .. }), "{round}: {error}");
            assert_eq!((fs::read(&path).unwrap(), path.metadata().unwrap().mode() & 0o777), (bytes, 0o644));
        }
        assert!(matches!(DurableFence::open(&directory.0, "e"), Err(DurableFenceError::NotAFence { .. })));
    }

    #[test]
    fn the_fence_of_another_election_is_refused() {
        let directory = Directory::new();
        let path = directory.file();
        drop(DurableFence::create(&path, "theirs", FencingToken(3)).unwrap());
        let error = DurableFence::open_or_create(&path, "ours").expect_err("another election");
        assert!(matches!(error, DurableFenceError::OtherElection { found, .. } if found == "theirs"));
        for election in ["", "a\nb", &"x".repeat(ELECTION_LENGTH_MAX + 1)] {
            let error = DurableFence::open_or_create(&path, election).expect_err("no such name");
            assert!(matches!(error, DurableFenceError::Election));
        }
        let error = DurableFence::create(&path, "theirs", FencingToken(0)).expect_err("it is there");
        assert!(matches!(error, DurableFenceError::Io { .. }));
        assert_eq!(DurableFence::open(&path, "theirs").unwrap().highest().unwrap(), FencingToken(3));
    }

    #[test]
    fn a_fence_of_another_user_is_refused_and_one_that_others_may_lock_is_closed() {
        use std::os::unix::fs::{PermissionsExt, chown, symlink};
        let directory = Directory::new();
        let path = directory.file();
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        drop(DurableFence::open_or_create(&path, "e").unwrap());
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        drop(DurableFence::open_or_create(&path, "e").unwrap());
        assert_eq!(mode(), 0o600);
        let refused = |path: &Path| match DurableFence::open_or_create(path, "e") {
            Err(DurableFenceError::Untrusted { why, .. }) => why,
            other => panic!("{other:?}"),
        };
        fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(refused(&path).contains("put another file in the place"));
        fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o1777)).unwrap();
        drop(DurableFence::open_or_create(&path, "e").expect("others cannot replace it there"));
        if rustix::process::geteuid().is_root() {
            let link = directory.0.join("link");
            symlink(&path, &link).unwrap();
            std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
            assert!(refused(&link).contains("nobody (65534)"));
            chown(&path, Some(65534), Some(65533)).unwrap();
            assert!(refused(&path).contains("nobody (65534)"));
            let sharing = Sharing { group: Some(65533) };
            drop(DurableFence::open_or_create_shared(&path, "e", sharing).expect("of the group"));
            let shared = directory.0.join("shared.fence");
            drop(DurableFence::open_or_create_shared(&shared, "e", sharing).unwrap());
            assert_eq!(fs::metadata(&shared).unwrap().permissions().mode() & 0o7777, 0o660);
        } else {
            let _ = io::Write::write_all(
                &mut io::stderr(),
                b"NOT RUN: a fence of another user, which takes root\n",
            );
        }
    }

    #[test]
    fn a_fence_that_was_removed_admits_nobody() {
        let directory = Directory::new();
        let path = directory.file();
        let fence = DurableFence::open_or_create(&path, "e").unwrap();
        fs::remove_file(&path).unwrap();
        assert!(matches!(fence.admit(FencingToken(1)), Err(DurableFenceError::Replaced { .. })));
        drop(DurableFence::open_or_create(&path, "e").unwrap());
        assert!(matches!(fence.admit(FencingToken(1)), Err(DurableFenceError::Replaced { .. })));
    }

    #[test]
    fn the_acts_of_many_threads_and_handles_come_in_the_order_of_their_tokens() {
        let directory = Directory::new();
        let path = directory.file();
        let shared = DurableFence::open_or_create(&path, "e").unwrap();
        let acts = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (shared, acts, path) = (&shared, &acts, &path);
                scope.spawn(move || {
                    let own = DurableFence::open(path, "e").unwrap();
                    let fence = if thread % 2 == 0 { shared } else { &own };
                    let mut rng = Rng::new(thread);
                    for _ in 0..30 {
                        let token = FencingToken(rng.up_to(100));
                        // Some tokens are stale and refused, as intended.
                        let _ = fence.admit_and(token, || acts.lock().unwrap().push(token));
                    }
                });
            }
        });
        let acts = acts.into_inner().unwrap();
        assert!(acts.len() > 1 && acts.is_sorted(), "{acts:?}");
    }
}
