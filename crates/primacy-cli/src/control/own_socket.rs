//! The control socket of this node in its state directory, and the check that it is still there.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use primacy::NodeId;

use super::socket::{self, Dir};
use crate::exit::{Exit, Failure};

/// The socket that this node has created.
#[derive(Debug)]
pub(super) struct OwnSocket {
    dir: Dir,
    name: String,
    node: NodeId,
    inode: AtomicU64,
}

/// The result of a check.
#[derive(Debug)]
pub(super) enum Look {
    /// Nothing has changed.
    InPlace,
    /// The socket was gone, and this is a new one in its place.
    MadeAnew(UnixListener),
    /// The directory was removed or replaced.
    DirectoryGone(Failure),
    /// Another process has started as the same node meanwhile.
    InUse(Failure),
    /// The socket is gone, and cannot be created now.
    Fails(Failure),
}

impl OwnSocket {
    /// Creates the socket of this node.
    ///
    /// # Errors
    /// As for [`Dir::listen`]
    pub(super) fn make(dir: Dir, election: &str, node: NodeId) -> Result<(Self, UnixListener), Failure> {
        let name = socket::name(election, node.as_str());
        let (listener, inode) = dir.listen(&name, node)?;
        Ok((Self { dir, name, node, inode: inode.into() }, listener))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path.join(&self.name)
    }

    /// Checks that the directory and the socket are in place, and creates the socket anew if it is gone. May wait for
    /// the disk.
    pub(super) fn look(&self) -> Look {
        if !self.dir.is_in_place() {
            let message = format!(
                "the state directory {} was removed or replaced while this node was running, and a second process of this node \
                 could start in another one: it ends. Start it again",
                self.dir.path.display()
            );
            return Look::DirectoryGone(Failure::new(Exit::State, message));
        }
        if self.dir.has(&self.name, self.inode.load(Ordering::Relaxed)) {
            return Look::InPlace;
        }
        match self.dir.listen(&self.name, self.node) {
            Ok((listener, inode)) => {
                self.inode.store(inode, Ordering::Relaxed);
                Look::MadeAnew(listener)
            }
            Err(failure) if failure.exit == Exit::InUse => Look::InUse(failure),
            Err(failure) => Look::Fails(failure),
        }
    }

    /// Removes the socket, if the file is still this one.
    pub(super) fn remove(&self) {
        self.dir.remove(&self.name, self.inode.load(Ordering::Relaxed));
    }
}
