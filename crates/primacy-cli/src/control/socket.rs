//! The control socket's file, and the check of which users may serve or use it.
//!
//! The path of a Unix socket is limited to 107 bytes, and that of a state directory is not. So a socket is never bound
//! or connected by its own path, but through a descriptor: when it is bound, of the directory, under a short name that
//! is then renamed; when it is connected, of the socket itself.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use primacy::NodeId;
use primacy::stores::ownership::{self, Sharing, check_state_dir};
use rustix::fs::{FileType, FlockOperation, Gid, Mode, OFlags, Stat, Uid, fchown, flock, fstat, openat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;

use crate::exit::{Exit, Failure};

/// The suffix of a control socket's name: `election@node.control`.
pub(crate) const SUFFIX: &str = ".control";

/// The file that a node locks while it creates its socket. It is not removed, since a node that waits for the lock has
/// it open already.
const LOCK: &str = ".control-lock";
/// The name of a socket that is being created.
const NEW: &str = ".new-control";
/// The longest wait for the lock; only a paused process can hold it longer. And the interval of the attempts.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// The permission bits with which users other than its owner can write a file.
const OTHERS_WRITE: u32 = 0o022;

/// The reason why a socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectProblem {
    /// No process listens there; the node that created it is dead.
    #[error("no process listens at {}", .0.display())]
    Nobody(PathBuf),
    /// A process listens, but accepts no connection now.
    #[error("the process behind {} takes no connection: it may be paused, or too many ask it at a time", .0.display())]
    Busy(PathBuf),
    /// Another user could answer in the node's place.
    #[error("{0}")]
    Unsafe(String),
    /// The system refuses.
    #[error("{} cannot be used: {source}", path.display())]
    System {
        /// The socket.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}

/// Returns the name of the socket's file. Election and node contain only characters without a special meaning in file
/// names.
pub(super) fn name(election: &str, node: &str) -> String {
    format!("{election}@{node}{SUFFIX}")
}

/// Returns the election and the node in the name of a control socket's file; `None` for other files.
pub(super) fn named(file: &str) -> Option<(&str, &str)> {
    file.strip_suffix(SUFFIX)?.split_once('@')
}

/// A state directory that only its owner may write.
#[derive(Debug)]
pub(super) struct Dir {
    pub(super) path: PathBuf,
    fd: OwnedFd,
}

impl Dir {
    /// Opens the directory, and creates it if it does not exist.
    ///
    /// # Errors
    /// [`Exit::NotPermitted`] if other users may write it or have created it; [`Exit::State`] if it cannot be used.
    pub(super) fn make(path: &Path) -> Result<Self, Failure> {
        let unusable = |error: io::Error| {
            let message = format!(
                "the state directory {} must be readable and writable for this user, and is not: {error}",
                path.display()
            );
            Failure::new(Exit::State, message)
        };
        Sharing::default().check_links(path).map_err(|why| Failure::new(Exit::NotPermitted, why))?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
        let dir = Self::open(path).map_err(unusable)?;
        dir.check()?;
        check_state_dir(path).map_err(|why| Failure::new(Exit::NotPermitted, why))?;
        Ok(dir)
    }

    /// Opens an existing directory.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Sharing::default()
            .check_links(path)
            .map_err(|why| io::Error::new(io::ErrorKind::PermissionDenied, why))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { path: path.to_owned(), fd })
    }

    /// Checks that only trusted users may write the directory: other users could replace a node's socket by their own,
    /// and answer in its place.
    pub(super) fn check(&self) -> Result<(), Failure> {
        check("the state directory", &self.path, &fstat(&self.fd)?, "go-w")
            .map_err(|message| Failure::new(Exit::NotPermitted, message))
    }

    /// Returns a path through the descriptor, under which a name in the directory is short, however long the
    /// directory's own path is.
    fn through_descriptor(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd()))
    }

    /// Listens under this name, in place of a dead process.
    ///
    /// # Errors
    /// [`Exit::InUse`] if a live process listens there.
    pub(super) fn listen(&self, name: &str, node: NodeId) -> Result<(UnixListener, u64), Failure> {
        // Held until this returns: of two nodes that start at the same time, the second one finds the first one's
        // socket.
        let _lock = self.lock()?;
        self.listen_alone(name, node)
    }

    /// Waits, for a limited time, until no other node of this directory is creating its socket. The directory itself
    /// may be open to every user, and any user who can open a file can lock it for ever; so the lock is on a file that
    /// other users cannot open.
    fn lock(&self) -> Result<OwnedFd, Failure> {
        let failed = |error: io::Error| {
            let path = self.path.join(LOCK);
            Failure::new(Exit::of_state(&error), format!("{} cannot be locked: {error}", path.display()))
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let lock = openat(&self.fd, LOCK, flags, Mode::RUSR | Mode::WUSR);
        let lock = lock.map_err(|error| failed(error.into()))?;
        if geteuid().is_root() {
            // The directory's owner must be able to lock the file even if root has created it.
            let owner = fstat(&self.fd).map_err(|error| failed(error.into()))?;
            let (user, group) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
            fchown(&lock, Some(user), Some(group)).map_err(|error| failed(error.into()))?;
        }
        // The file may be a copy with wrong permissions.
        ownership::close_to_others(&lock).map_err(failed)?;
        let patient_until = Instant::now() + LOCK_PATIENCE;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(lock),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < patient_until => std::thread::sleep(LOCK_PAUSE),
                Err(Errno::WOULDBLOCK) => {
                    let holder = ownership::lock_holder(&lock).map(ownership::shown_process);
                    let message = format!(
                        "another node is making its socket, and holds {}, which is in use for longer than that takes: \
                         is that process paused? It is locked by {}",
                        self.path.join(LOCK).display(),
                        holder.as_deref().unwrap_or("a process that cannot be seen here")
                    );
                    return Err(Failure::new(Exit::InUse, message));
                }
                Err(error) => return Err(failed(error.into())),
            }
        }
    }

    fn listen_alone(&self, name: &str, node: NodeId) -> Result<(UnixListener, u64), Failure> {
        let path = self.path.join(name);
        match self.connect(name) {
            Ok(_) | Err(ConnectProblem::Busy(_)) => {
                let message = format!(
                    "a node {node} of this election runs here already, and listens at {}: stop that one, or give this \
                     one another --node or another --state-dir",
                    path.display()
                );
                return Err(Failure::new(Exit::InUse, message));
            }
            Err(ConnectProblem::Nobody(_)) => {}
            Err(problem @ ConnectProblem::Unsafe(_)) => {
                return Err(Failure::new(Exit::NotPermitted, problem.to_string()));
            }
            Err(problem @ ConnectProblem::System { .. }) => {
                return Err(Failure::new(Exit::State, problem.to_string()));
            }
        }
        let failed = |error: io::Error| {
            Failure::new(
                Exit::State,
                format!("the control socket {} cannot be made: {error}", path.display()),
            )
        };
        // The socket has another name until no other user may use it; renaming puts it in its place in one step.
        let new = self.through_descriptor(NEW);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&new).map_err(failed)?;
        // By a descriptor of the socket, since its name could be a link by now.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = fs::File::from(openat(&self.fd, NEW, flags, Mode::empty())?);
        let found = made.metadata()?;
        if !found.file_type().is_socket() {
            return Err(failed(io::Error::other("something else was put in its place")));
        }
        let made = format!("/proc/self/fd/{}", made.as_raw_fd());
        fs::set_permissions(&made, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        let inode = found.ino();
        fs::rename(&new, self.through_descriptor(name)).map_err(failed)?;
        listener.set_nonblocking(true)?;
        Ok((listener, inode))
    }

    /// Returns whether this name is that of the socket with this inode.
    pub(super) fn has(&self, name: &str, inode: u64) -> bool {
        fs::symlink_metadata(self.through_descriptor(name)).is_ok_and(|found| found.ino() == inode)
    }

    /// Removes the socket, if the file is still this one.
    pub(super) fn remove(&self, name: &str, inode: u64) {
        if self.has(name, inode) {
            // A socket that stays behind is replaced by the next node of this name.
            let _ = fs::remove_file(self.through_descriptor(name));
        }
    }

    /// Returns whether its path still leads to this directory; true if the system does not tell.
    pub(super) fn is_in_place(&self) -> bool {
        match (fs::metadata(&self.path), fstat(&self.fd)) {
            (Ok(found), Ok(mine)) => (found.dev(), found.ino()) == (mine.st_dev, mine.st_ino),
            (Err(error), _) => {
                !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            }
            (Ok(_), Err(_)) => true,
        }
    }

    /// Connects to the socket of this name, without waiting.
    pub(super) fn connect(&self, name: &str) -> Result<UnixStream, ConnectProblem> {
        let path = self.path.join(name);
        let system = |error: Errno| ConnectProblem::System { path: path.clone(), source: error.into() };
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Err(ConnectProblem::Nobody(path)),
            Err(error) => return Err(system(error)),
        };
        let stat = fstat(&found).map_err(system)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
            let message = format!("{} is no socket; move it away", path.display());
            return Err(ConnectProblem::Unsafe(message));
        }
        check("the control socket", &path, &stat, "600").map_err(ConnectProblem::Unsafe)?;
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(system)?;
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", found.as_raw_fd())).map_err(system)?;
        match connect(&socket, &address) {
            Ok(()) => {}
            Err(Errno::CONNREFUSED | Errno::NOENT) => return Err(ConnectProblem::Nobody(path)),
            Err(Errno::AGAIN) => return Err(ConnectProblem::Busy(path)),
            Err(error) => return Err(system(error)),
        }
        check_process(&socket, &path)?;
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false).map_err(|source| ConnectProblem::System { path, source })?;
        Ok(stream)
    }

    /// Returns the names of the files in the directory, among which the sockets are.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.path)?;
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }
}

/// Checks that the file belongs to this user or to root, and that no other user may write it.
fn check(what: &str, path: &Path, stat: &Stat, mode: &str) -> Result<(), String> {
    let path = path.display();
    if !is_trusted(stat.st_uid) {
        return Err(format!(
            "{what} {path} belongs to user {}, who could answer in a node's place; use the primacy of that user, or \
             another --state-dir",
            stat.st_uid
        ));
    }
    if stat.st_mode & OTHERS_WRITE != 0 {
        let others = if stat.st_mode & 0o002 == 0 { "its group" } else { "every user" };
        return Err(format!(
            "{others} may write {what} {path} (mode {:o}), and could command this node or answer in its place: \
             chmod {mode} {path}",
            stat.st_mode & 0o7777
        ));
    }
    Ok(())
}

/// Checks the user of the process behind the socket: the file may belong to this user, but the listening socket may
/// have been passed to another user's process.
fn check_process(socket: impl AsFd, path: &Path) -> Result<(), ConnectProblem> {
    let peer = rustix::net::sockopt::socket_peercred(socket)
        .map_err(|error| ConnectProblem::System { path: path.to_owned(), source: error.into() })?;
    if is_trusted(peer.uid.as_raw()) {
        return Ok(());
    }
    let message = format!("behind {} is a process of user {}", path.display(), peer.uid.as_raw());
    Err(ConnectProblem::Unsafe(message))
}

/// Returns whether the user is this one, or root, which has all permissions anyway. Root trusts every user whose node
/// it asks.
pub(super) fn is_trusted(user: u32) -> bool {
    let me = geteuid();
    me.is_root() || user == me.as_raw() || user == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a directory whose path is longer than a socket's may be.
    fn dir(test: &str) -> PathBuf {
        let long = format!("primacy-{test}-{}-{}", std::process::id(), "x".repeat(120));
        std::env::temp_dir().join(long)
    }

    #[test]
    fn names_are_read_as_they_are_made() {
        let file = name("billing", "a");
        assert_eq!(file, "billing@a.control");
        assert_eq!(named(&file), Some(("billing", "a")));
        assert_eq!(named("billing@a.state"), None);
        assert_eq!(named("billing.control"), None);
    }

    #[test]
    fn the_dead_are_replaced_the_living_are_not_and_no_path_is_too_long() {
        let path = dir("socket");
        let (name, node) = (name(&"e".repeat(63), &"n".repeat(63)), NodeId::new("n").unwrap());
        let made = Dir::make(&path).unwrap();
        let (listener, inode) = made.listen(&name, node).unwrap();
        assert_eq!(fs::metadata(path.join(&name)).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(made.connect(&name).is_ok());
        let living = made.listen(&name, node).unwrap_err();
        assert_eq!(living.exit, Exit::InUse, "{}", living.message);

        drop(listener);
        assert!(matches!(made.connect(&name), Err(ConnectProblem::Nobody(_))));
        let (_listener, newer) = made.listen(&name, node).unwrap();
        made.remove(&name, inode); // Not its own any more.
        assert!(made.connect(&name).is_ok());
        made.remove(&name, newer);
        assert!(matches!(made.connect(&name), Err(ConnectProblem::Nobody(_))));
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn a_directory_that_somebody_has_locked_keeps_no_node_from_starting() {
        let path = dir("locked");
        let made = Dir::make(&path).unwrap();
        // Lock it as another user could, if the permissions let that user open it.
        let theirs = Dir::open(&path).unwrap();
        // A lock file that was copied with other permissions.
        fs::write(path.join(LOCK), "").unwrap();
        fs::set_permissions(path.join(LOCK), fs::Permissions::from_mode(0o644)).unwrap();
        flock(&theirs.fd, FlockOperation::LockExclusive).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(made.listen(&name("e", "a"), NodeId::new("a").unwrap())));
        let listening = told.recv_timeout(Duration::from_secs(30)).expect("it waits");
        assert!(listening.is_ok());
        assert_eq!(fs::metadata(path.join(LOCK)).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_dir_all(&path).unwrap();
    }

    #[test]
    fn what_others_may_write_is_refused_with_what_to_do() {
        let path = dir("others");
        let made = Dir::make(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        let refused = Dir::make(&path).unwrap_err();
        assert_eq!(refused.exit, Exit::NotPermitted);
        for part in ["its group", "mode 770", "chmod go-w"] {
            assert!(refused.message.contains(part), "{}", refused.message);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();

        let name = name("e", "a");
        let (_listener, _) = made.listen(&name, NodeId::new("a").unwrap()).unwrap();
        fs::set_permissions(path.join(&name), fs::Permissions::from_mode(0o666)).unwrap();
        let Err(ConnectProblem::Unsafe(message)) = made.connect(&name) else { panic!("it was trusted") };
        assert!(message.contains("every user") && message.contains("chmod 600"), "{message}");
        fs::remove_dir_all(&path).unwrap();
    }
}
