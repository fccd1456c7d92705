//! The record, in the state directory, of a stop command that is to be run at the end of a lead. It exists from before
//! the start of the job until the command has succeeded. So if supervisor and guardian are killed together, the next
//! start of the node finds it, and runs the command before the node campaigns.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use primacy::stores::ownership::read_in_state_dir;
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};

/// The suffix of the file's name.
pub(crate) const SUFFIX: &str = ".stop-command";

/// A stop command, and the lead that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StopRecord {
    /// The shell command.
    pub(crate) command: String,
    /// The number of the lead.
    pub(crate) term: u64,
    /// True if the number is a fencing token, too.
    pub(crate) fenced: bool,
}

impl StopRecord {
    /// Reads the record, if there is one.
    ///
    /// # Errors
    /// [`Exit::State`] if the file cannot be read: the work that its command is to end may go on.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        // The command will be run, so no other user may have written it, even if root uses another user's directory.
        let record = match read_in_state_dir(path, 0o022) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // This user may not use the directory. If the node needs it, the node is refused for that elsewhere.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied)
                    && !is_readable(path.parent()) =>
            {
                return Ok(None);
            }
            read => read.and_then(|text| Ok(serde_json::from_str(&text)?)),
        };
        record.map(Some).map_err(|error| {
            let message = format!(
                "{}, which has the --stop-command of an earlier run of this node, cannot be read: {error}; make sure that what the \
                 command ends has ended, and remove the file",
                path.display()
            );
            Failure::new(Exit::State, message)
        })
    }

    /// Writes the record to the disk. Only its owner may read it, since a command may contain a secret.
    ///
    /// # Errors
    /// The error of the system, with the name of the file.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let about = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| io::Error::new(error.kind(), format!("{path}: {error}"))
        };
        let new = path.with_extension("new");
        // Removes a file of this name first: an earlier process may have left it, or it may be a link.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(about(&new)(error)),
            Ok(()) | Err(_) => {}
        }
        let text = serde_json::to_vec(self)?;
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        let written = written.and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()));
        if let Err(error) = written.and_then(|()| fs::rename(&new, path)) {
            let _ = fs::remove_file(&new);
            return Err(about(path)(error));
        }
        path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all()).map_err(about(path))
    }
}

fn is_readable(dir: Option<&Path>) -> bool {
    dir.is_some_and(|dir| fs::read_dir(dir).is_ok())
}

/// Removes the record: the command has succeeded, or nothing was started. If the machine fails before the removal is on
/// the disk, the command is run once more.
pub(crate) fn remove(path: &Path) {
    let _ = fs::remove_file(path);
}
