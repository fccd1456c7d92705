//! The cordon of a node: an operator's order that it must not lead. It survives restarts.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use primacy_core::NodeId;

use crate::disk::{DiskError, check_dir, file_name, make_anew, make_dir, sync_dir};
use crate::error::AdminError;

/// The cordon as a file beside the node's state. The file exists while the node is cordoned.
#[derive(Debug)]
pub(crate) struct Cordon {
    /// `None` for a node without a state directory.
    path: Option<PathBuf>,
    is_cordoned: bool,
}

impl Cordon {
    /// Reads whether the node was cordoned.
    pub(crate) fn load(dir: Option<&Path>, election: &str, node: NodeId) -> Result<Self, DiskError> {
        let Some(dir) = dir else { return Ok(Self { path: None, is_cordoned: false }) };
        check_dir(dir)?;
        let path = dir.join(format!("{}.cordoned", file_name(election, node)?));
        match path.symlink_metadata() {
            Ok(_) => Ok(Self { path: Some(path), is_cordoned: true }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self { path: Some(path), is_cordoned: false })
            }
            Err(error) => Err(DiskError::io("look for", &path, error)),
        }
    }

    pub(crate) const fn is_set(&self) -> bool {
        self.is_cordoned
    }

    /// Returns whether the cordon survives a restart.
    pub(crate) const fn is_kept(&self) -> bool {
        self.path.is_some()
    }

    /// Sets the cordon, and returns when the change survives a power cut. After an error the cordon is unchanged.
    ///
    /// # Errors
    /// [`AdminError::NotKept`].
    pub(crate) fn set(&mut self, is_cordoned: bool) -> Result<(), AdminError> {
        if is_cordoned == self.is_cordoned {
            return Ok(());
        }
        if let Some(path) = &self.path {
            let kept = if is_cordoned { create(path, write) } else { remove(path) };
            kept.map_err(|source| AdminError::NotKept { path: path.clone(), source })?;
        }
        self.is_cordoned = is_cordoned;
        Ok(())
    }
}

fn create(path: &Path, write: impl FnOnce(File) -> io::Result<()>) -> io::Result<()> {
    let dir = path.parent().unwrap_or(Path::new(""));
    make_dir(dir).map_err(io::Error::other)?;
    let written = make_anew(path).and_then(write).and_then(|()| sync_dir(dir).map_err(io::Error::other));
    if written.is_err() {
        // The file would cordon the node at its next start even without its text.
        let _ = std::fs::remove_file(path);
    }
    written
}

fn write(mut file: File) -> io::Result<()> {
    file.write_all(b"This node is cordoned: it votes and does not lead, until `primacy uncordon`.\n")?;
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
    fn a_cordon_outlives_the_process() {
        let dir = std::env::temp_dir().join(format!("primacy-cordon-{}", std::process::id()));
        let node = NodeId::new("a").unwrap();
        let load = || Cordon::load(Some(&dir), "billing", node).unwrap();
        let mut cordon = load();
        assert!(!cordon.is_set() && cordon.is_kept());
        cordon.set(true).unwrap();
        cordon.set(true).unwrap();
        assert!(load().is_set());
        assert!(!Cordon::load(Some(&dir), "other", node).unwrap().is_set());
        load().set(false).unwrap();
        assert!(!load().is_set());
        cordon.set(false).unwrap(); // The file is gone already.
        assert!(!cordon.is_set());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_cordon_that_cannot_be_written_is_none_after_a_restart() {
        let dir = std::env::temp_dir().join(format!("primacy-cordon-full-{}", std::process::id()));
        let node = NodeId::new("a").unwrap();
        let load = || Cordon::load(Some(&dir), "billing", node).unwrap();
        let mut cordon = load();
        // The disk has room for the name of the file, and not for its text.
        let path = dir.join("billing@a.cordoned");
        create(&path, |_| Err(io::ErrorKind::StorageFull.into())).unwrap_err();
        assert!(!load().is_set());
        // The disk has no room for the name either.
        std::fs::create_dir_all(path.join("in the way")).unwrap();
        let why = cordon.set(true).unwrap_err().to_string();
        assert!(why.contains("nothing has changed"), "{why}");
        assert!(!cordon.is_set());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn without_a_disk_it_lasts_as_long_as_the_process() {
        let mut cordon = Cordon::load(None, "billing", NodeId::new("a").unwrap()).unwrap();
        cordon.set(true).unwrap();
        assert!(cordon.is_set() && !cordon.is_kept());
    }
}
