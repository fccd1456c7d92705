//! Whether this node may lead, as its operator has said. It is kept over restarts.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use primacy_core::NodeId;

use crate::disk::{DiskError, check_dir, file_name, make_anew, make_dir, sync_dir};
use crate::operator::AskError;

/// The operator's word: a file beside the node's state while the node is withdrawn, and none while it may lead.
#[derive(Debug)]
pub(crate) struct Standing {
    /// `None` where this node keeps nothing on a disk.
    path: Option<PathBuf>,
    withdrawn: bool,
}

impl Standing {
    /// What was said last.
    pub(crate) fn load(dir: Option<&Path>, election: &str, node: NodeId) -> Result<Self, DiskError> {
        let Some(dir) = dir else { return Ok(Self { path: None, withdrawn: false }) };
        check_dir(dir)?;
        let path = dir.join(format!("{}.withdrawn", file_name(election, node)?));
        match path.symlink_metadata() {
            Ok(_) => Ok(Self { path: Some(path), withdrawn: true }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self { path: Some(path), withdrawn: false })
            }
            Err(error) => Err(DiskError::io("look for", &path, error)),
        }
    }

    pub(crate) const fn may_lead(&self) -> bool {
        !self.withdrawn
    }

    /// Whether what is said survives a restart.
    pub(crate) const fn is_kept(&self) -> bool {
        self.path.is_some()
    }

    /// Returns when the word would survive a power cut. After an error it is as it was before.
    ///
    /// # Errors
    /// [`AskError::NotKept`].
    pub(crate) fn set(&mut self, may_lead: bool) -> Result<(), AskError> {
        if may_lead == self.may_lead() {
            return Ok(());
        }
        if let Some(path) = &self.path {
            let kept = if may_lead { remove(path) } else { create(path, write) };
            kept.map_err(|source| AskError::NotKept { path: path.clone(), source })?;
        }
        self.withdrawn = !may_lead;
        Ok(())
    }
}

fn create(path: &Path, write: impl FnOnce(File) -> io::Result<()>) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new(""));
    make_dir(dir).map_err(io::Error::other)?;
    let written = make_anew(path).and_then(write).and_then(|()| sync_dir(dir).map_err(io::Error::other));
    if written.is_err() {
        // Without its text, too, it would withdraw the node at its next start.
        let _ = std::fs::remove_file(path);
    }
    written
}

fn write(mut file: File) -> io::Result<()> {
    file.write_all(
        b"This node was withdrawn: it votes and does not lead, until `primacy stand` says otherwise.\n",
    )?;
    file.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {} // Removed by hand.
        removed => removed?,
    }
    sync_dir(path.parent().unwrap_or(Path::new(""))).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_withdrawal_outlives_the_process() {
        let dir = std::env::temp_dir().join(format!("primacy-standing-{}", std::process::id()));
        let node = NodeId::new("a").unwrap();
        let load = || Standing::load(Some(&dir), "billing", node).unwrap();
        let mut standing = load();
        assert!(standing.may_lead() && standing.is_kept());
        standing.set(false).unwrap();
        standing.set(false).unwrap();
        assert!(!load().may_lead());
        assert!(Standing::load(Some(&dir), "other", node).unwrap().may_lead());
        load().set(true).unwrap();
        assert!(load().may_lead());
        standing.set(true).unwrap(); // The file is gone already.
        assert!(standing.may_lead());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_withdrawal_that_cannot_be_written_is_none_after_a_restart() {
        let dir = std::env::temp_dir().join(format!("primacy-standing-full-{}", std::process::id()));
        let node = NodeId::new("a").unwrap();
        let load = || Standing::load(Some(&dir), "billing", node).unwrap();
        let mut standing = load();
        // The disk has room for the name of the file, and none for its text.
        let path = dir.join("billing@a.withdrawn");
        create(&path, |_| Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert!(load().may_lead());
        // And it has none for the name.
        std::fs::create_dir_all(path.join("in the way")).unwrap();
        let why = standing.set(false).unwrap_err().to_string();
        assert!(why.contains("nothing has changed"), "{why}");
        assert!(standing.may_lead());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn without_a_disk_it_lasts_as_long_as_the_process() {
        let mut standing = Standing::load(None, "billing", NodeId::new("a").unwrap()).unwrap();
        standing.set(false).unwrap();
        assert!(!standing.may_lead() && !standing.is_kept());
    }
}
