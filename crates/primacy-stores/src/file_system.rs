//! Shared parts of stores in files: the path in their URLs, and the file systems on which a lock can be trusted, which
//! are those of one machine.
//!
//! A lock on a file system that machines share may hold on this machine only, or not at all, or until a server loses
//! it, and a program cannot find out which. So shared file systems are refused by their type number from `statfs`, on
//! Linux. Other systems have no check.

use std::path::{Path, PathBuf};

use crate::open_error::OpenError;
use crate::ownership::Sharing;
#[cfg(target_os = "linux")]
use crate::passing;

/// The consequence for an election whose file or directory is gone, and the remedy.
pub(crate) const GONE: &str = "its leader stops, and none is elected over it. Put it back as it was; or stop all nodes of the election, wait \
                               for one lease, and start them again: the first one makes a new one";

/// Parses the path, and the users who share it, from the rest of a URL after its scheme; `form` is the form of such a
/// URL.
pub(crate) fn path_of_url(rest: &str, form: &'static str) -> Result<(PathBuf, Sharing), OpenError> {
    let malformed = |why: &str| Err(OpenError::Malformed { form, why: why.to_owned() });
    let (rest, group) = match rest.rsplit_once("?group=") {
        Some((rest, group)) => (rest, Some(group)),
        None => (rest, None),
    };
    let path = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            return malformed("this store is in the files of this machine, and the URL names a host");
        }
        None => rest,
    };
    if path.is_empty() {
        return malformed("this store needs a path");
    }
    if path.contains(['?', '#']) {
        return malformed("a path with `?` or `#` is not supported, and the only option is ?group=NAME");
    }
    if path.contains('\0') {
        return malformed("a path has no zero bytes");
    }
    let sharing = group.map_or(Some(Sharing::default()), Sharing::with_group);
    let Some(sharing) = sharing else {
        return malformed("`group` is none of those in /etc/group; name another one, or give its number");
    };
    Ok((PathBuf::from(path), sharing))
}

/// Refuses the file systems that several machines share. FUSE is admitted, because its type number does not show the
/// file system behind it, and containers use it.
#[cfg(feature = "sqlite")]
pub(crate) fn refuse_shared(path: &Path) -> Result<(), OpenError> {
    match kind(path)? {
        Kind::Local | Kind::Unknown(_) => Ok(()),
        Kind::Shared(name) => Err(refusal(path, name)),
    }
}

/// Refuses the file systems that several machines share or may share.
#[cfg(feature = "file")]
pub(crate) fn refuse_unless_local(path: &Path) -> Result<(), OpenError> {
    match kind(path)? {
        Kind::Local => Ok(()),
        Kind::Shared(name) => Err(refusal(path, name)),
        Kind::Unknown(name) => Err(OpenError::Refused {
            why: format!(
                "{} is on {name}, which does not tell whether other machines share it, and then locks cannot be \
                 trusted; name a path on a local disk",
                path.display()
            ),
        }),
    }
}

fn refusal(path: &Path, name: &str) -> OpenError {
    let why = format!(
        "{} is on {name}, a file system that machines share, and locks cannot be trusted there; name a path on a \
         local disk",
        path.display()
    );
    OpenError::Refused { why }
}

/// The kind of a file system, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Local,
    Shared(&'static str),
    Unknown(&'static str),
}

#[cfg(target_os = "linux")]
fn kind(path: &Path) -> Result<Kind, OpenError> {
    let found = rustix::fs::statfs(path).map_err(|error| {
        let why = format!("the file system of {} could not be asked for its type: {error}", path.display());
        passing::of_local(why, &error.into())
    })?;
    Ok(kind_of(found.f_type))
}

#[cfg(not(target_os = "linux"))]
fn kind(_path: &Path) -> Result<Kind, OpenError> {
    Ok(Kind::Local)
}

/// By the number in `statfs`, of which the lower 32 bits count (`linux/magic.h`, and `stat.c` of the coreutils for those
/// that are not part of Linux).
#[cfg(target_os = "linux")]
fn kind_of(number: impl TryInto<i128>) -> Kind {
    const NOT_LOCAL: [(u32, Kind); 22] = [
        (0x0000_6969, Kind::Shared("NFS")),
        (0x0000_517B, Kind::Shared("SMB")),
        (0xFE53_4D42, Kind::Shared("SMB2")),
        (0xFF53_4D42, Kind::Shared("CIFS")),
        (0x0102_1997, Kind::Shared("9P")),
        (0x5346_414F, Kind::Shared("AFS")),
        (0x6B41_4653, Kind::Shared("AFS")),
        (0x00C3_6400, Kind::Shared("Ceph")),
        (0x7375_7245, Kind::Shared("Coda")),
        (0x0BD0_0BD0, Kind::Shared("Lustre")),
        (0x0116_1970, Kind::Shared("GFS2")),
        (0x7461_636F, Kind::Shared("OCFS2")),
        (0x4750_4653, Kind::Shared("GPFS")),
        (0x1983_0326, Kind::Shared("BeeGFS")),
        (0xAAD7_AAEA, Kind::Shared("PanFS")),
        (0x2003_0528, Kind::Shared("OrangeFS")),
        (0x6163_6673, Kind::Shared("ACFS")),
        (0x0000_564C, Kind::Shared("NCP")),
        (0x786F_4256, Kind::Shared("a folder of VirtualBox's host")),
        (0xBACB_ACBC, Kind::Shared("a folder of VMware's host")),
        (0x7C7C_6673, Kind::Shared("a folder of Parallels' host")),
        (0x6573_5546, Kind::Unknown("FUSE")),
    ];
    let number = number.try_into().ok().map(|number| number & 0xFFFF_FFFF);
    let found = NOT_LOCAL.iter().find(|(magic, _)| Some(i128::from(*magic)) == number);
    found.map_or(Kind::Local, |(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_or_refused() {
        let path = |rest| path_of_url(rest, "scheme:PATH").map(|(path, _)| path);
        let shared = path_of_url("/a/b.db?group=27", "scheme:PATH").unwrap();
        assert_eq!(shared, (PathBuf::from("/a/b.db"), Sharing { group: Some(27) }));
        assert_eq!(path("a/b.db").unwrap(), Path::new("a/b.db"));
        assert_eq!(path("///a/b.db").unwrap(), Path::new("/a/b.db"));
        assert_eq!(path("/a/b.db").unwrap(), Path::new("/a/b.db"));
        for rest in ["", "//", "//host/a.db", "a.db?mode=ro", "a.db?group=no such group", "a\0b"] {
            assert!(matches!(path(rest), Err(OpenError::Malformed { .. })), "{rest:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn file_systems_are_known_by_their_numbers() {
        assert_eq!(kind_of(0x6969_i64), Kind::Shared("NFS"));
        // As a 32-bit machine shows it: with the sign.
        assert_eq!(kind_of(0xFF53_4D42_u32.cast_signed()), Kind::Shared("CIFS"));
        assert_eq!(kind_of(0x6573_5546_i64), Kind::Unknown("FUSE"));
        for local in [0xEF53_i64, 0x0102_1994, 0x794C_7630, 0x5846_5342, 0x9123_683E] {
            assert_eq!(kind_of(local), Kind::Local);
        }
    }
}
