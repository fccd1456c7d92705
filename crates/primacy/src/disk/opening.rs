//! Opening files in a state directory. Another user may have placed a symbolic link there, which would lead to any file of this user,
//! or a pipe, which would block.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use primacy_stores::ownership::{check_state_dir, close_to_others, open_in_state_dir, user_name};

use super::DiskError;

/// Checks that only this user and root can have created the directory or a file in it; see [`check_state_dir`].
///
/// # Errors
/// [`DiskError::Forbidden`], with the owner and what to do.
pub(crate) fn check_dir(dir: &Path) -> Result<(), DiskError> {
    check_state_dir(dir).map_err(|why| refused(dir, why))
}

/// Checks the directory of a log in a state directory, which must not be a symbolic link.
///
/// # Errors
/// As of [`check_dir`].
pub(crate) fn check_dir_of_log(dir: &Path) -> Result<(), DiskError> {
    if dir.is_symlink() {
        let link = io::Error::other("it is a symbolic link, and none is followed there: remove it");
        return Err(DiskError::io("use", dir, link));
    }
    check_dir(dir)
}

/// Opens a file for reading and writing.
///
/// # Errors
/// The system's error; also if it is a symbolic link or belongs to another user.
pub(crate) fn open_existing(path: &Path) -> io::Result<File> {
    open(path, false)
}

/// Opens a file for reading and writing, and creates it if it does not exist.
///
/// # Errors
/// As of [`open_existing`].
pub(crate) fn open_or_make(path: &Path) -> io::Result<File> {
    open(path, true)
}

/// Creates a file in place of one that an earlier attempt may have left.
///
/// # Errors
/// The system's error.
pub(crate) fn make_anew(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false).mode(0o600);
    let file = open_in_state_dir(path, &mut options)?;
    let (me, owner) = (rustix::process::geteuid(), file.metadata()?.uid());
    if owner != me.as_raw() && owner != 0 && !me.is_root() {
        let why = format!("it belongs to the user {}", user_name(owner));
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    // Every user who can open a file can lock it.
    close_to_others(&file)?;
    Ok(file)
}

fn refused(dir: &Path, why: String) -> DiskError {
    DiskError::io("use", dir, io::Error::new(io::ErrorKind::PermissionDenied, why))
}
