//! Files that several processes of one machine share: who owns them, and who may open them.
//!
//! Every user who can open a file can lock it, for any length of time, and so block every process that needs the lock. And a user who owns
//! a file, or may write to it, can put anything into it. So files made here are for this user alone, or for a configured group, and files
//! of other users are refused with the name of their owner.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt, OpenOptionsExt as _, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Gid, Mode, OFlags};

/// The right of every user to write.
const OTHERS_WRITE: u32 = 0o002;
/// The right of every user to open a file, and so to lock it.
const OTHERS_READ: u32 = 0o004;
/// The sticky bit: in a directory with it, users may replace and remove only their own files.
const STICKY: u32 = 0o1000;
/// The set-group-ID bit: new files in a directory with it get the directory's group.
const SET_GROUP: u32 = 0o2000;
/// The maximum number of symbolic links that are followed in a path, as in Linux.
const LINKS_MAX: usize = 40;

/// The users whose files are accepted: this user, root, and the members of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// The id of the group, whose members may take part in the election and lead.
    pub group: Option<u32>,
}

impl Sharing {
    /// Shares with the members of a group, by its name in `/etc/group` or its id; `None` if there is no such group.
    #[must_use]
    pub fn with_group(group: &str) -> Option<Self> {
        let groups = fs::read_to_string("/etc/group").unwrap_or_default();
        let number = number_of(&groups, group).or_else(|| group.parse().ok())?;
        Some(Self { group: Some(number) })
    }

    /// Returns the mode of new files.
    #[must_use]
    pub const fn file_mode(self) -> u32 {
        if self.group.is_some() { 0o660 } else { 0o600 }
    }

    /// Makes an empty file that other users cannot open, unless the path exists.
    ///
    /// # Errors
    /// The system's error.
    pub fn make(self, path: &Path) -> io::Result<()> {
        // No other user is let in before the file has its group.
        match make_empty(path) {
            Ok(()) => self.give(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives a file or directory that this process has made to the group.
    ///
    /// # Errors
    /// The system's error; the file then belongs to this user alone.
    pub fn give(self, path: &Path) -> io::Result<()> {
        let Some(group) = self.group else { return Ok(()) };
        rustix::fs::chownat(
            CWD,
            path,
            None,
            Some(Gid::from_raw(group)),
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW,
        )?;
        let metadata = fs::symlink_metadata(path)?;
        let mode = if metadata.is_dir() { 0o2770 } else { 0o660 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    /// Checks that the file at `path` may be used: it belongs to this user, to root or to the group, and not every user may write to it or
    /// put another file in its place.
    ///
    /// # Errors
    /// The reason, the owner, and the remedy.
    pub fn check(self, path: &Path, metadata: &Metadata) -> Result<(), String> {
        let shown = path.display();
        let me = rustix::process::geteuid().as_raw();
        let owner = metadata.uid();
        let directory = directory_of(path, metadata);
        if !self.trusts(metadata, &directory) {
            return Err(format!(
                "{shown} belongs to the user {}, who could change it or keep it locked, and this is {}; name a path in a \
                 directory of your own, remove it if it was left there by mistake, or share it with a group",
                user_name(owner),
                user_name(me)
            ));
        }
        // A process of the owner removes this right: see `tighten`. Root does not, because a link may have replaced the file by then.
        if !metadata.is_symlink() && metadata.mode() & OTHERS_WRITE != 0 && owner != me {
            return Err(format!(
                "everybody may write to {shown}, of the user {}: chmod o-w {shown}",
                user_name(owner)
            ));
        }
        if metadata.is_file() && metadata.mode() & OTHERS_READ != 0 && owner != me && me == 0 {
            return Err(format!(
                "everybody may open {shown}, of the user {}, and so lock it: chmod o-r {shown}",
                user_name(owner)
            ));
        }
        let mode = fs::metadata(&directory).map_or(0, |directory| directory.mode());
        if mode & OTHERS_WRITE != 0 && mode & STICKY == 0 {
            let directory = directory.display();
            return Err(format!(
                "everybody may write to the directory {directory}, and so put another file in the place of {shown}; \
                 name a directory of your own"
            ));
        }
        if me != 0 {
            return Ok(());
        }
        let above = self.check_above(&directory, metadata);
        above.map_err(|why| format!("{why}, and so another user could put something else in the place of {shown}; name a path of your own"))
    }

    /// Checks the symbolic links on the way to `path`: one in a directory that every user may write to, with or without the sticky bit,
    /// must belong to this user, to root or to the group. Otherwise its owner could redirect each start to another file. Linux refuses some
    /// of them by itself where `fs.protected_symlinks` is 1. Missing files are not checked.
    ///
    /// # Errors
    /// The reason, the owner of the link, and the remedy.
    pub fn check_links(self, path: &Path) -> Result<(), String> {
        let me = rustix::process::geteuid().as_raw();
        let Ok(absolute) = std::path::absolute(path) else { return Ok(()) };
        let (mut reached, mut ahead, mut followed) = (PathBuf::new(), reversed(&absolute), 0);
        while let Some(name) = ahead.pop() {
            if name == Path::new("..") {
                reached.pop();
                continue;
            }
            let next = reached.join(name);
            let Ok(metadata) = next.symlink_metadata() else { return Ok(()) };
            if !metadata.is_symlink() {
                reached = next;
                continue;
            }
            let target = fs::read_link(&next).unwrap_or_default();
            let is_ours = [me, 0].contains(&metadata.uid()) || self.group == Some(metadata.gid());
            if !is_ours && is_in_open_directory(&next) {
                return Err(format!(
                    "{} is a symbolic link of the user {}, in a directory that everybody may write to, and could lead to another file \
                     at any time; name what it leads to: {}",
                    next.display(),
                    user_name(metadata.uid()),
                    target.display()
                ));
            }
            followed += 1;
            if followed > LINKS_MAX {
                return Ok(()); // The system refuses it.
            }
            ahead.extend(reversed(&target));
        }
        Ok(())
    }

    /// Returns whether the owner is this user, root, or a member of the group. Root also trusts a file of another user if only
    /// that user could have put it there.
    fn trusts(self, metadata: &Metadata, directory: &Path) -> bool {
        let (me, owner) = (rustix::process::geteuid().as_raw(), metadata.uid());
        if owner == me || owner == 0 || self.group == Some(metadata.gid()) {
            return true;
        }
        me == 0 && self.check_above(directory, metadata).is_ok()
    }

    /// Checks all directories above a file: besides root, only one user, the owner of the file or of its directory, may have been able to
    /// put it there. In a directory that every user may write to, the next component of the path must be root's and protected by the sticky
    /// bit: otherwise any user could have made it, and waited for root to use it.
    ///
    /// # Errors
    /// The other user who could have put it there.
    fn check_above(self, directory: &Path, metadata: &Metadata) -> Result<(), String> {
        let is_ours = |found: &Metadata| found.uid() == 0 || self.group == Some(found.gid());
        let mut other = (!is_ours(metadata)).then(|| metadata.uid());
        let mut is_next_ours = is_ours(metadata);
        let unseen = |error: io::Error| format!("{} cannot be looked at: {error}", directory.display());
        for directory in directory.canonicalize().map_err(unseen)?.ancestors() {
            let found = fs::metadata(directory).map_err(unseen)?;
            let is_open = found.mode() & OTHERS_WRITE != 0;
            if is_open && (found.mode() & STICKY == 0 || !is_next_ours) {
                return Err(format!("everybody may write to the directory {}", directory.display()));
            }
            is_next_ours = is_ours(&found);
            if !is_next_ours && *other.get_or_insert(found.uid()) != found.uid() {
                let user = user_name(found.uid());
                return Err(format!("the directory {} belongs to the user {user}", directory.display()));
            }
        }
        Ok(())
    }

    /// Removes the permissions with which other users could lock or change a file, if this user owns it; returns whether there were any.
    /// Members of the configured group keep theirs, or get them back. Members of the group of a directory that was made for one keep theirs
    /// too: a process without a configured group must not lock them out.
    ///
    /// # Errors
    /// The system's error.
    pub fn tighten(self, path: &Path, metadata: &Metadata) -> io::Result<bool> {
        if self.is_kept_from_group(metadata) && self.give(path).is_ok() {
            return Ok(false);
        }
        // By its path, because opening and closing the file would release this process's locks on it.
        self.tighten_by(metadata, |permissions| fs::set_permissions(path, permissions))
    }

    /// Like [`tighten`](Self::tighten), for an open file, even if its path now leads to another file.
    ///
    /// # Errors
    /// The system's error.
    pub fn tighten_open(self, file: &File) -> io::Result<bool> {
        if let (Some(group), true) = (self.group, self.is_kept_from_group(&file.metadata()?))
            && rustix::fs::fchown(file, None, Some(Gid::from_raw(group))).is_ok()
        {
            return file.set_permissions(fs::Permissions::from_mode(self.file_mode())).map(|()| false);
        }
        self.tighten_by(&file.metadata()?, |permissions| file.set_permissions(permissions))
    }

    /// Returns whether this user owns the file, and the members of the configured group may not write to it.
    fn is_kept_from_group(self, metadata: &Metadata) -> bool {
        let has_it = |group| metadata.gid() == group && metadata.mode() & 0o020 != 0;
        metadata.uid() == rustix::process::geteuid().as_raw()
            && self.group.is_some_and(|group| !has_it(group))
    }

    fn tighten_by(
        self,
        metadata: &Metadata,
        set: impl FnOnce(fs::Permissions) -> io::Result<()>,
    ) -> io::Result<bool> {
        let mode = metadata.mode() & 0o7777;
        let was_made_for_group = self.group.is_none() && metadata.is_dir() && mode & SET_GROUP != 0;
        let is_shared = mode & 0o020 != 0 && (was_made_for_group || self.group == Some(metadata.gid()));
        let keeps = if is_shared { 0o7770 } else { 0o7700 };
        if metadata.uid() != rustix::process::geteuid().as_raw() || mode & keeps == mode {
            return Ok(false);
        }
        set(fs::Permissions::from_mode(mode & keeps))?;
        Ok(true)
    }
}

/// Removes the permissions of group and others from an open file, if this user owns it or is root. A copied or restored file may not have
/// the permissions that it was made with.
///
/// # Errors
/// The system's error.
pub fn close_to_others(file: impl AsFd) -> io::Result<()> {
    let about = rustix::fs::fstat(&file)?;
    let me = rustix::process::geteuid();
    if about.st_mode & 0o077 != 0 && (me.is_root() || about.st_uid == me.as_raw()) {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(about.st_mode & 0o7700))?;
    }
    Ok(())
}

/// Returns the process that has locked a file with `flock`, if the system reports it and the process is alive. A process keeps its lock
/// when it loses the permission to open the file.
pub fn lock_holder(file: impl AsFd) -> Option<u32> {
    let about = rustix::fs::fstat(file).ok()?;
    let (major, minor) = (rustix::fs::major(about.st_dev), rustix::fs::minor(about.st_dev));
    let place = format!("{major:02x}:{minor:02x}:{}", about.st_ino);
    // "NUMBER: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END"; waiting processes have an arrow before the kind.
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let mut words = locks.lines().map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>());
    let words = words.find(|words| words.first() == Some(&"FLOCK") && words.get(4) == Some(&&*place))?;
    let process: u32 = words.get(3)?.parse().ok()?;
    fs::metadata(format!("/proc/{process}")).is_ok().then_some(process)
}

/// Returns the text for a process in messages: with its user, if that is another one.
#[must_use]
pub fn shown_process(process: u32) -> String {
    let owner = fs::metadata(format!("/proc/{process}")).map(|about| about.uid());
    match owner {
        Ok(owner) if owner != rustix::process::geteuid().as_raw() => {
            format!("the process {process} of the user {}", user_name(owner))
        }
        Ok(_) | Err(_) => format!("the process {process}"),
    }
}

/// Checks a node's state directory, if it exists: it must belong to this user or root, and no other user may have been able to make it, or
/// may be able to write into it or replace it. Root uses another user's directory under the conditions of [`Sharing::check`].
///
/// # Errors
/// The reason, the owner, and the remedy.
pub fn check_state_dir(path: &Path) -> Result<(), String> {
    let alone = Sharing::default();
    alone.check_links(path)?;
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    let shown = path.display();
    if !alone.trusts(&metadata, &directory_of(path, &metadata)) {
        return Err(format!(
            "the directory {shown} belongs to the user {}, who could change the state in it, and this is {}; chown it to this user, or \
             name another one",
            user_name(metadata.uid()),
            user_name(rustix::process::geteuid().as_raw())
        ));
    }
    if metadata.mode() & OTHERS_WRITE != 0 {
        return Err(format!("everybody may write to the directory {shown}: chmod o-w {shown}"));
    }
    alone.check(path, &metadata)
}

/// The maximum length of a file of settings, certificates or secrets, in bytes.
const FILE_LENGTH_MAX: u64 = 1 << 20;

/// Reads a text that this process relies on, such as settings, users or a token. The file must belong to this user or to root, and have
/// none of the mode bits `exposed`; and no other user may be able to redirect the path to another file.
///
/// # Errors
/// The system's error, and [`io::ErrorKind::PermissionDenied`] with the owner and the remedy.
pub fn read_trusted(path: &Path, exposed: u32) -> io::Result<String> {
    text(read_trusted_bytes(path, exposed)?)
}

/// Like [`read_trusted`], for a file that need not be a text.
///
/// # Errors
/// Those of [`read_trusted`].
pub fn read_trusted_bytes(path: &Path, exposed: u32) -> io::Result<Vec<u8>> {
    read_bounded(open_trusted(path, exposed)?)
}

/// Checks a file as [`read_trusted`] does, and its length, for a library that reads it without a limit.
///
/// # Errors
/// Those of [`read_trusted`].
pub fn check_trusted(path: &Path, exposed: u32) -> io::Result<()> {
    let metadata = open_trusted(path, exposed)?.metadata()?;
    if metadata.is_file() && metadata.len() <= FILE_LENGTH_MAX {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("no regular file of at most {FILE_LENGTH_MAX} bytes"),
    ))
}

/// Opens a file with the checks of [`read_trusted`].
///
/// # Errors
/// Those of [`read_trusted`].
pub fn open_trusted(path: &Path, exposed: u32) -> io::Result<File> {
    // Opening another user's pipe must not block. A pipe of this user's, such as a shell makes for `<(…)`, is read normally.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let open = |path: &Path| OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = open_trusted_by(path, exposed, open)?;
    rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
    Ok(file)
}

/// Reads a text as [`read_trusted`] does, from a file in a node's state directory; see [`open_in_state_dir`].
///
/// # Errors
/// Those of both.
pub fn read_in_state_dir(path: &Path, exposed: u32) -> io::Result<String> {
    let open = |path: &Path| open_in_state_dir(path, OpenOptions::new().read(true));
    text(read_bounded(open_trusted_by(path, exposed, open)?)?)
}

/// Reads the rest of a file up to a limit: it may be an endless device or pipe.
fn read_bounded(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(FILE_LENGTH_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= FILE_LENGTH_MAX {
        return Ok(bytes);
    }
    let why = format!("longer than {FILE_LENGTH_MAX} bytes, which no file of settings or secrets is");
    Err(io::Error::new(io::ErrorKind::InvalidData, why))
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Opens a regular file in a node's state directory. Another user may have been able to write there, and may have left a link to any file
/// of this user's, or a pipe, on which opening would block.
///
/// # Errors
/// The system's error, or the kind of a file that is not regular.
pub fn open_in_state_dir(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let opened = options.custom_flags(flags).open(path);
    let found = match &opened {
        Ok(file) => file.metadata(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return opened,
        Err(_) => path.symlink_metadata(),
    };
    match found.map(|found| found.file_type()) {
        Ok(kind) if kind.is_symlink() => {
            Err(io::Error::other("it is a symbolic link, and none is followed there: remove it"))
        }
        Ok(kind) if !kind.is_file() => {
            let what = if kind.is_dir() {
                "directory"
            } else if kind.is_fifo() {
                "named pipe"
            } else if kind.is_socket() {
                "socket"
            } else {
                "device"
            };
            Err(io::Error::other(format!("it is a {what}, and a regular file belongs there")))
        }
        Ok(_) | Err(_) => opened,
    }
}

fn open_trusted_by(
    path: &Path,
    exposed: u32,
    open: impl FnOnce(&Path) -> io::Result<File>,
) -> io::Result<File> {
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    Sharing::default().check_links(path).map_err(refused)?;
    let file = open(path)?;
    // The opened file is checked, not its path.
    check_owner(&file.metadata()?, exposed)?;
    Ok(file)
}

/// Checks a program before it is run: it must pass the checks of [`read_trusted`], and no other user may be able to replace it meanwhile.
///
/// # Errors
/// Those of [`read_trusted`].
#[cfg(feature = "kubernetes")]
pub(crate) fn check_program(path: &Path) -> io::Result<()> {
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let alone = Sharing::default();
    alone.check_links(path).map_err(refused)?;
    let metadata = fs::metadata(path)?;
    check_owner(&metadata, 0o022)?;
    // It is run by its path, so each directory in the path must be trusted too.
    check_directories(&path.canonicalize()?, |_| OTHERS_WRITE)?;
    alone.check(path, &metadata).map_err(refused)
}

/// Returns the path, without symbolic links, of a file whose content runs in this process, such as a database with triggers. Only this
/// user, root and the group of this process may change it or the files that are kept beside it, under its name and one of `endings`; and no
/// other user may make or replace one of these.
///
/// # Errors
/// The system's error, and [`io::ErrorKind::PermissionDenied`] with the other user who could, and the remedy.
pub fn check_run_here(path: &Path, endings: &[&str]) -> io::Result<PathBuf> {
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    Sharing::default().check_links(path).map_err(refused)?;
    let group = rustix::process::getegid().as_raw();
    let exposed = |found: &Metadata| if found.gid() == group { OTHERS_WRITE } else { 0o022 };
    let path = path.canonicalize()?;
    // Checked first, so that no other user can change the files that are checked next.
    check_directories(&path, exposed)?;
    let directory = parent(&path);
    let found = fs::metadata(&directory)?;
    if found.mode() & exposed(&found) != 0 {
        return Err(refused(format!(
            "others may make files in its directory {} (mode {:o}), and one of these could be taken for a part of it; move it to a \
             directory that only this user may write to",
            directory.display(),
            found.mode() & 0o7777
        )));
    }
    let found = fs::metadata(&path)?;
    check_owner(&found, exposed(&found))?;
    for ending in endings {
        let mut beside = path.as_os_str().to_owned();
        beside.push(ending);
        let beside = PathBuf::from(beside);
        let checked = match beside.symlink_metadata() {
            Ok(found) if found.is_file() => check_owner(&found, exposed(&found)),
            Ok(_) => Err(refused("it is not a regular file; remove it".to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        };
        checked.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", beside.display())))?;
    }
    Ok(path)
}

/// Checks each directory in the path of a file: another user who owns one of them, or has one of the mode bits `exposed` there, could
/// replace the file.
fn check_directories(path: &Path, exposed: impl Fn(&Metadata) -> u32) -> io::Result<()> {
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let me = rustix::process::geteuid().as_raw();
    for directory in path.ancestors().skip(1) {
        let found = fs::metadata(directory)?;
        if ![me, 0].contains(&found.uid()) {
            return Err(refused(format!(
                "its directory {} belongs to the user {}, who could put another file there",
                directory.display(),
                user_name(found.uid())
            )));
        }
        if found.mode() & exposed(&found) != 0 && found.mode() & STICKY == 0 {
            return Err(refused(format!(
                "others may write to its directory {} (mode {:o})",
                directory.display(),
                found.mode() & 0o7777
            )));
        }
    }
    Ok(())
}

fn check_owner(metadata: &Metadata, exposed: u32) -> io::Result<()> {
    let refused = |why: String| io::Error::new(io::ErrorKind::PermissionDenied, why);
    let (me, owner) = (rustix::process::geteuid().as_raw(), metadata.uid());
    if owner != me && owner != 0 {
        return Err(refused(format!(
            "it belongs to the user {}, who can change it at any time, and this is {}; use a copy of your own, or chown it",
            user_name(owner),
            user_name(me)
        )));
    }
    let mode = metadata.mode() & 0o7777;
    if metadata.is_file() && mode & exposed != 0 {
        let does = if mode & exposed & 0o022 == 0 { "read" } else { "change" };
        return Err(refused(format!(
            "others may {does} it (mode {mode:o}); chmod {:o} it",
            mode & !exposed & 0o777
        )));
    }
    Ok(())
}

/// Returns the components of a path in reverse order.
fn reversed(path: &Path) -> Vec<PathBuf> {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    parts.map(|part| PathBuf::from(part.as_os_str())).rev().collect()
}

/// Makes an empty file without opening it: closing a file would release the locks of all threads of this process on it.
#[cfg(target_os = "linux")]
fn make_empty(path: &Path) -> io::Result<()> {
    use rustix::fs::FileType;
    Ok(rustix::fs::mknodat(CWD, path, FileType::RegularFile, Mode::RUSR | Mode::WUSR, 0)?)
}

/// Makes an empty file on systems where a file cannot be made without being opened.
#[cfg(not(target_os = "linux"))]
fn make_empty(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

/// Returns whether every user may make files in the directory of `path`.
pub(crate) fn is_in_open_directory(path: &Path) -> bool {
    fs::metadata(parent(path)).is_ok_and(|directory| directory.mode() & OTHERS_WRITE != 0)
}

/// The directory of the file at a path: of the link itself, or of its target.
fn directory_of(path: &Path, metadata: &Metadata) -> PathBuf {
    let followed = if metadata.is_symlink() { None } else { path.canonicalize().ok() };
    parent(followed.as_deref().unwrap_or(path))
}

fn parent(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

/// A user's name, and its number.
#[must_use]
pub fn user_name(user: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let number = user.to_string();
    let is_it = |line: &&str| line.split(':').nth(2) == Some(&number);
    match users.lines().find(is_it).and_then(|line| line.split(':').next()) {
        Some(name) => format!("{name} ({user})"),
        None => number,
    }
}

/// The number of a group in the text of `/etc/group`.
fn number_of(groups: &str, group: &str) -> Option<u32> {
    let mut lines = groups.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| (fields.next() == Some(group)).then(|| fields.nth(1)?.parse().ok())?)
}

#[cfg(test)]
mod tests;
