//! The identity of an open file, by which a running node notices that its state was removed or replaced.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::DiskError;

/// The device and inode of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    number: u64,
}

impl FileId {
    /// The id of the file that is open under this name.
    pub(crate) fn of(path: &Path, file: &File) -> Result<Self, DiskError> {
        let found = file.metadata().map_err(|error| DiskError::io("look at", path, error))?;
        Ok(Self { device: found.dev(), number: found.ino() })
    }

    /// Checks that this name still refers to the file.
    pub(crate) fn check(self, path: &Path) -> Result<(), DiskError> {
        let gone = || DiskError::Gone { path: path.to_owned() };
        match std::fs::metadata(path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.number) => Ok(()),
            Ok(_) => Err(gone()),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(gone())
            }
            Err(error) => Err(DiskError::io("look at", path, error)),
        }
    }
}
