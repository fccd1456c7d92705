//! A small disk in memory that can be filled.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use primacy_testbed::run_error::{RunError, call};

/// A mounted tmpfs; dropping it unmounts it.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    at: PathBuf,
}

/// The file that takes up the free space.
const FILLER: &str = "filler";

impl SmallDisk {
    /// Creates the directory `at`, and mounts a tmpfs of `kib` KiB there.
    ///
    /// # Errors
    /// [`RunError`]
    pub(crate) fn mount(at: &Path, kib: u32) -> Result<Self, RunError> {
        std::fs::create_dir_all(at).map_err(RunError::file("make", at))?;
        let options = format!("size={kib}k,mode=0700");
        call("mount", &["-t", "tmpfs", "-o", &options, "primacy-chaos", &at.display().to_string()])?;
        Ok(Self { at: at.to_owned() })
    }

    /// Fills the disk.
    ///
    /// # Errors
    /// [`RunError::File`] if the disk does not become full.
    pub(crate) fn fill(&self) -> Result<(), RunError> {
        let path = self.at.join(FILLER);
        let failed = || RunError::file("fill", &path);
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed())?;
        loop {
            match file.write(&[1; 4096]) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(failed()(error)),
            }
        }
    }

    /// Frees the space.
    ///
    /// # Errors
    /// [`RunError::File`]
    pub(crate) fn free(&self) -> Result<(), RunError> {
        let path = self.at.join(FILLER);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(RunError::file("remove", &path)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount, in case another process still uses it.
        if let Err(error) = call("umount", &["-l", &self.at.display().to_string()]) {
            eprintln!("primacy-lab chaos: {error}; the next run sweeps it away");
        }
    }
}
