//! The file: what may be opened, whether it is still the same, and the bell.
//!
//! Nothing here opens the database file. When a process closes any descriptor of a file, the kernel drops
//! every lock that the process has on it, those of SQLite's connections included.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::open::OpenError;

/// How the URL is written, for errors.
const FORM: &str = "sqlite:PATH or sqlite:///PATH";

/// The smallest page that SQLite has; a database is empty or has one at least.
const DATABASE_LENGTH_MIN: u64 = 512;

/// A database file that was opened.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// Takes the path out of what follows `sqlite:`.
pub(super) fn path_of_url(rest: &str) -> Result<PathBuf, OpenError> {
    let malformed = |why: &str| Err(OpenError::Malformed { form: FORM, why: why.to_owned() });
    let path = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            return malformed("an SQLite database is a file of this machine, and the URL names a host");
        }
        None => rest,
    };
    if path.is_empty() {
        return malformed("an SQLite database needs a path");
    }
    if path.contains(['?', '#']) {
        return malformed("a path with `?` or `#` is not supported, and there are no options");
    }
    if path.contains('\0') {
        return malformed("a path has no zero bytes");
    }
    Ok(PathBuf::from(path))
}

/// The path with no symbolic link in it, as SQLite will see it; an error if there is something that must not be
/// opened.
pub(super) fn resolve(path: &Path, create: bool) -> Result<PathBuf, OpenError> {
    // An absolute path is never taken for `:memory:` or for a URI.
    let shown = path.display();
    let absolute = std::path::absolute(path)
        .map_err(|error| OpenError::Unavailable { why: format!("{shown} is no usable path: {error}") })?;
    let unavailable = |error: io::Error| OpenError::Unavailable {
        why: format!("the database {shown} cannot be reached: {error}"),
    };
    let resolved = match std::fs::symlink_metadata(&absolute) {
        Ok(_) => absolute.canonicalize().map_err(unavailable)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound && create => {
            let (Some(directory), Some(name)) = (absolute.parent(), absolute.file_name()) else {
                return Err(OpenError::Refused { why: format!("{shown} is no file") });
            };
            let directory = directory.canonicalize().map_err(|error| OpenError::Unavailable {
                why: format!(
                    "the directory {} of the database cannot be reached: {error}",
                    directory.display()
                ),
            })?;
            check_file_system(&directory)?;
            return Ok(directory.join(name));
        }
        Err(error) => return Err(unavailable(error)),
    };
    let metadata = resolved.metadata().map_err(unavailable)?;
    if !metadata.is_file() {
        return Err(OpenError::Refused { why: format!("{shown} is not a file, so it cannot be a database") });
    }
    // SQLite takes a file of one byte for an empty database, and would write over it.
    if (1..DATABASE_LENGTH_MIN).contains(&metadata.len()) {
        return Err(OpenError::Refused {
            why: format!(
                "{shown} is too short for an SQLite database; it was left as it is. Name another file"
            ),
        });
    }
    check_file_system(&resolved)?;
    Ok(resolved)
}

impl Place {
    /// Remembers which file is open.
    pub(super) fn identify(path: PathBuf) -> Result<Self, OpenError> {
        let metadata = path.metadata().map_err(|error| OpenError::Unavailable {
            why: format!("{} has gone while it was opened: {error}", path.display()),
        })?;
        Ok(Self { path, device: metadata.dev(), inode: metadata.ino() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the path still leads to the file that is open. A process that went on with a removed file would
    /// renew a lease that nobody else can see.
    pub(super) fn check(&self) -> Result<(), String> {
        let same = |metadata: &Metadata| metadata.dev() == self.device && metadata.ino() == self.inode;
        match self.path.metadata() {
            Ok(metadata) if same(&metadata) => Ok(()),
            Ok(_) => Err(format!("{} is another file now than the one that was opened", self.path.display())),
            Err(error) => Err(format!("{} was there and is not any more: {error}", self.path.display())),
        }
    }

    /// Touches the file, so that whoever watches its directory looks at once. The write itself is no signal: it
    /// is seen before the commit that makes it count.
    pub(super) fn ring(&self) {
        let now = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = rustix::fs::Timestamps { last_access: now, last_modification: now };
        // Without the bell they look a little later.
        let _ = rustix::fs::utimensat(rustix::fs::CWD, &self.path, &times, rustix::fs::AtFlags::empty());
    }
}

/// Refuses file systems that several machines share: SQLite's locks are not reliable there, and its WAL is kept
/// in memory that only the processes of one machine share.
#[cfg(target_os = "linux")]
fn check_file_system(path: &Path) -> Result<(), OpenError> {
    let found = rustix::fs::statfs(path).map_err(|error| OpenError::Unavailable {
        why: format!("the file system of {} could not be asked for its type: {error}", path.display()),
    })?;
    match network_file_system(found.f_type) {
        None => Ok(()),
        Some(name) => Err(OpenError::Refused {
            why: format!(
                "{} is on {name}, a file system that machines share, and SQLite's locks cannot be trusted there; \
                 put the database on a local disk",
                path.display()
            ),
        }),
    }
}

#[cfg(not(target_os = "linux"))]
fn check_file_system(_path: &Path) -> Result<(), OpenError> {
    Ok(())
}

/// The name of a shared file system by its number in `statfs`, of which the lower 32 bits count (linux/magic.h).
#[cfg(target_os = "linux")]
fn network_file_system(number: impl TryInto<i128>) -> Option<&'static str> {
    const SHARED: [(u32, &str); 12] = [
        (0x0000_6969, "NFS"),
        (0x0000_517B, "SMB"),
        (0xFE53_4D42, "SMB2"),
        (0xFF53_4D42, "CIFS"),
        (0x0102_1997, "9P"),
        (0x5346_414F, "AFS"),
        (0x6B41_4653, "AFS"),
        (0x00C3_6400, "Ceph"),
        (0x7375_7245, "Coda"),
        (0x0BD0_0BD0, "Lustre"),
        (0x0116_1970, "GFS2"),
        (0x7461_636F, "OCFS2"),
    ];
    let number = number.try_into().ok()? & 0xFFFF_FFFF;
    SHARED.iter().find(|(magic, _)| i128::from(*magic) == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_or_refused() {
        assert_eq!(path_of_url("a/b.db").unwrap(), Path::new("a/b.db"));
        assert_eq!(path_of_url("///a/b.db").unwrap(), Path::new("/a/b.db"));
        assert_eq!(path_of_url("/a/b.db").unwrap(), Path::new("/a/b.db"));
        for rest in ["", "//", "//host/a.db", "a.db?mode=ro", "a\0b"] {
            assert!(matches!(path_of_url(rest), Err(OpenError::Malformed { .. })), "{rest:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn shared_file_systems_are_known_by_their_numbers() {
        assert_eq!(network_file_system(0x6969_i64), Some("NFS"));
        // As a 32-bit machine shows it: with the sign.
        assert_eq!(network_file_system(0xFF53_4D42_u32.cast_signed()), Some("CIFS"));
        assert_eq!(network_file_system(0xEF53_i64), None);
    }
}
