//! The control group of a node's job: every process that is started in it stays in it, and the kernel ends them all at
//! once.
//!
//! A process stays in its group when it changes its session, parent, user or environment; it can leave the group only
//! if it may write the hierarchy. So the group also identifies the processes that a dead node has left behind. One
//! write to `cgroup.kill` (Linux 5.14) sends SIGKILL to all of them, including those that have changed their user and
//! those that are just being started. Before that version, and in the hierarchy of the freezer (version 1), the group
//! is frozen, each process gets SIGKILL, and the group is thawed.
//!
//! The group is made below that of the node, so that the limits of its service or container hold for the job, too. That needs
//! root, or a group that was delegated to this user (`Delegate=yes` in a unit of systemd); elsewhere there is none.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, geteuid, kill_process};

/// The first part of a group's name; the mark of the supervisor follows.
const PREFIX: &str = "primacy~";
/// The character that replaces the slashes of a mark in a group's name. It occurs in no part of a mark.
const SLASH: &str = "~";

/// A group for the job of one supervisor, open for use.
#[derive(Debug)]
pub(crate) struct Cgroup {
    dir: PathBuf,
    procs: File,
    kill: Kill,
}

/// The way to kill all processes of a group.
#[derive(Debug)]
enum Kill {
    /// By one write to this file.
    AtOnce(File),
    /// One process after another, while this file freezes the group.
    Frozen { state: File, freezer: &'static Freezer },
}

/// A way to freeze a group: the file, and the texts that are written to it.
#[derive(Debug)]
struct Freezer {
    file: &'static str,
    freeze: &'static [u8],
    thaw: &'static [u8],
}

/// The freezers of both versions of control groups.
const FREEZERS: [Freezer; 2] = [
    Freezer { file: "cgroup.freeze", freeze: b"1", thaw: b"0" },
    Freezer { file: "freezer.state", freeze: b"FROZEN", thaw: b"THAWED" },
];

/// A hierarchy of groups, and the place of this process in it.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    /// The group that `mount` shows.
    root: PathBuf,
    mount: PathBuf,
    /// The group of this process.
    own: PathBuf,
}

impl Cgroup {
    /// Creates the group for the supervisor with this mark.
    ///
    /// # Errors
    /// The reason why there is no group, for people.
    pub(crate) fn create(mark: &str) -> Result<Self, String> {
        let mut refused = "no hierarchy of control groups that can kill or freeze is mounted here".to_owned();
        for dir in hierarchies().iter().filter_map(|hierarchy| hierarchy.dir(&hierarchy.own)) {
            let group = dir.join(name(mark));
            match make(&group).and_then(|()| Self::open(&group)) {
                Ok(group) => return Ok(group),
                Err(error) => {
                    let _ = fs::remove_dir(&group);
                    refused = format!("no control group can be made in {}: {error}", dir.display());
                }
            }
        }
        Err(refused)
    }

    /// Opens an existing group.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let at_once = to_write(dir, "cgroup.kill").map(Kill::AtOnce);
        let kill =
            FREEZERS.iter().fold(at_once, |kill, freezer| kill.or_else(|_| Kill::frozen(dir, freezer)));
        Self::killed_by(dir, kill?)
    }

    fn killed_by(dir: &Path, kill: Kill) -> io::Result<Self> {
        Ok(Self { dir: dir.to_owned(), procs: to_write(dir, "cgroup.procs")?, kill })
    }

    /// Returns the group's directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Opens the file that adds a process to the group: a process that writes [`ENTER`] to it is in the group.
    pub(crate) fn entrance(&self) -> io::Result<OwnedFd> {
        self.procs.as_fd().try_clone_to_owned()
    }

    /// Returns whether no process is in the group, except ended ones that were not reaped.
    pub(crate) fn is_empty(&self) -> bool {
        processes(&self.dir).is_empty()
    }

    /// Sends SIGKILL to all processes in the group. If the group has to be frozen for that, a process that is just
    /// being started may survive, so the caller repeats this until the group is empty.
    pub(crate) fn kill(&self) {
        // An error shows in the remaining processes, which the caller checks in every case.
        match &self.kill {
            Kill::AtOnce(file) => drop(write(file, b"1")),
            Kill::Frozen { state, freezer } => {
                let _ = write(state, freezer.freeze);
                for pid in processes(&self.dir) {
                    // The process is frozen, so it cannot end and its number cannot be reused.
                    let _ = kill_process(pid, Signal::KILL);
                }
                let _ = write(state, freezer.thaw);
            }
        }
    }

    /// Creates the group anew for the next job, without the settings and subgroups that the last job has made.
    pub(crate) fn renew(&mut self) -> io::Result<()> {
        remove(&self.dir);
        make(&self.dir)?;
        *self = Self::open(&self.dir)?;
        Ok(())
    }

    /// Removes the group if it is empty.
    pub(crate) fn remove(&self) {
        remove(&self.dir);
    }
}

impl Kill {
    fn frozen(dir: &Path, freezer: &'static Freezer) -> io::Result<Self> {
        to_write(dir, freezer.file).map(|state| Self::Frozen { state, freezer })
    }
}

/// The text that a process writes to the [entrance](Cgroup::entrance).
pub(crate) const ENTER: &[u8] = b"0";

/// Finds the control groups of processes.
pub(crate) struct Finder {
    hierarchies: Vec<Hierarchy>,
}

impl Finder {
    /// Reads which hierarchies there are.
    pub(crate) fn new() -> Self {
        Self { hierarchies: hierarchies() }
    }

    /// Returns the directory and the mark of the nearest group of this user that the process is in and whose mark is
    /// `wanted`.
    pub(crate) fn find<T>(&self, pid: Pid, wanted: impl Fn(&str) -> Option<T>) -> Option<(PathBuf, T)> {
        let groups = fs::read_to_string(format!("/proc/{}/cgroup", pid.as_raw_nonzero())).ok()?;
        let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)).map(Path::new);
        let mut marked = paths
            .flat_map(Path::ancestors)
            .filter_map(|group| Some((group, wanted(&mark(group.file_name()?)?)?)));
        marked.find_map(|(group, said)| {
            let mut dirs = self.hierarchies.iter().filter_map(|hierarchy| hierarchy.dir(group));
            // Any user may give such a name to a group of their own, so the group's owner is checked.
            Some((dirs.find(|dir| is_own(dir))?, said))
        })
    }

    /// Removes empty groups beside the group of this process, if their mark is `wanted`.
    pub(crate) fn remove_empty(&self, wanted: impl Fn(&str) -> bool) {
        for dir in self.hierarchies.iter().filter_map(|hierarchy| hierarchy.dir(&hierarchy.own)) {
            for group in children(&dir) {
                if group.file_name().and_then(mark).is_some_and(|mark| wanted(&mark)) && is_own(&group) {
                    remove(&group);
                }
            }
        }
    }
}

impl Hierarchy {
    /// Returns the directory of a group, if the mount shows it.
    fn dir(&self, group: &Path) -> Option<PathBuf> {
        let below = group.strip_prefix(&self.root).ok()?;
        let dir = self.mount.join(below);
        dir.join("cgroup.procs").exists().then_some(dir)
    }
}

/// Returns the hierarchies in which a group can be killed, the best one first.
fn hierarchies() -> Vec<Hierarchy> {
    let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    hierarchies_in(&read("cgroup"), &read("mountinfo"))
}

fn hierarchies_in(groups: &str, mounts: &str) -> Vec<Hierarchy> {
    let own = |is_wanted: fn(&str) -> bool| {
        let mut lines = groups.lines().map(|line| line.splitn(3, ':').skip(1));
        lines.find_map(|mut fields| fields.next().filter(|name| is_wanted(name)).and(fields.next()))
    };
    let unified = own(str::is_empty);
    let freezer = own(has_freezer);
    let mounted = |kind: &'static str, own: Option<&str>, is_wanted: fn(&str) -> bool| {
        let own = own.map(PathBuf::from);
        let mounts = mounts.lines().filter_map(move |line| {
            let (place, system) = line.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            let (root, mount) = (place.next()?, place.next()?);
            let mut system = system.split(' ');
            let is_such = system.next()? == kind && system.nth(1).is_some_and(is_wanted);
            is_such.then(|| (PathBuf::from(root), PathBuf::from(mount)))
        });
        let found: Vec<_> = own
            .into_iter()
            .flat_map(|own| {
                mounts.clone().map(move |(root, mount)| Hierarchy { root, mount, own: own.clone() })
            })
            .collect();
        found
    };
    let mut found = mounted("cgroup2", unified, |_| true);
    found.extend(mounted("cgroup", freezer, has_freezer));
    found
}

/// Returns whether the freezer is among these controllers.
fn has_freezer(controllers: &str) -> bool {
    controllers.split(',').any(|name| name == "freezer")
}

fn name(mark: &str) -> String {
    format!("{PREFIX}{}", mark.replace('/', SLASH))
}

fn mark(name: &OsStr) -> Option<String> {
    Some(name.to_str()?.strip_prefix(PREFIX)?.replace(SLASH, "/"))
}

fn is_own(dir: &Path) -> bool {
    fs::metadata(dir).is_ok_and(|group| group.uid() == geteuid().as_raw())
}

fn make(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes a group with its subgroups. A group with processes stays.
fn remove(dir: &Path) {
    for below in children(dir) {
        remove(&below);
    }
    let _ = fs::remove_dir(dir);
}

fn children(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

/// Returns the processes in a group and in its subgroups.
fn processes(dir: &Path) -> Vec<Pid> {
    let list = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    // Zero means a process in a namespace that is not visible from here.
    let mut found: Vec<Pid> = list.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect();
    found.extend(children(dir).flat_map(|below| processes(&below)));
    found
}

fn to_write(dir: &Path, name: &str) -> io::Result<File> {
    File::options().write(true).open(dir.join(name))
}

fn write(mut file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_tree::tests::TestChild;

    const HYBRID: &str = "6:freezer:/\n4:memory:/api/x\n1:name=systemd:/\n0::/user/1:2\n";

    fn hierarchy(root: &str, mount: &str, own: &str) -> Hierarchy {
        Hierarchy { root: root.into(), mount: mount.into(), own: own.into() }
    }

    #[test]
    fn hierarchies_are_found_where_they_are_mounted() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
            37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime shared:9 - cgroup cgroup rw,freezer\n\
            38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio\n\
            41 31 0:38 /user /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";
        let unified = hierarchy("/user", "/sys/fs/cgroup/unified", "/user/1:2");
        let freezer = hierarchy("/", "/sys/fs/cgroup/freezer", "/");
        assert_eq!(hierarchies_in(HYBRID, mounts), [unified, freezer]);
        assert_eq!(hierarchies_in("0::/a\n", mounts).len(), 1);
        assert_eq!(hierarchies_in("4:memory:/\n", mounts), []);
        assert_eq!(hierarchies_in(HYBRID, "nonsense\n - \n"), []);
    }

    /// Each way to kill that this machine supports, tried alone, ends processes that ignore SIGTERM and keep starting
    /// others.
    #[test]
    fn each_way_to_kill_ends_all_that_is_in_a_group() {
        for hierarchy in hierarchies() {
            let own = hierarchy.dir(&hierarchy.own).unwrap();
            let dir = own.join(format!("{PREFIX}freezer-test.{}", std::process::id()));
            if let Err(error) = make(&dir) {
                primacy_conformance::not_run(&format!("no group can be made in {}: {error}", own.display()));
                continue;
            }
            let at_once = to_write(&dir, "cgroup.kill").map(Kill::AtOnce);
            let frozen = FREEZERS.iter().map(|freezer| Kill::frozen(&dir, freezer));
            for kill in std::iter::once(at_once).chain(frozen).flatten() {
                let shown = format!("{kill:?}");
                let group = Cgroup::killed_by(&dir, kill).unwrap();
                let job = "trap '' TERM; echo 0 > $0/cgroup.procs; \
                    for i in 1 2 3 4 5 6 7 8; do setsid sh -c 'while :; do sleep 0.01; done' & done; wait";
                let mut first = TestChild::start("sh", &["-c", job, dir.to_str().unwrap()], &[]);
                while processes(&dir).len() < 9 {
                    assert_eq!(first.0.try_wait().unwrap(), None);
                    std::thread::yield_now();
                }
                let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
                while !group.is_empty() {
                    assert!(std::time::Instant::now() < until, "{shown}");
                    group.kill();
                }
                assert!(!first.0.wait().unwrap().success(), "{shown}");
            }
            remove(&dir);
            assert!(!dir.exists());
        }
    }

    #[test]
    fn a_name_gives_the_mark_again() {
        let given = "billing/a:1/0123456789abcdef.4026531836/17.421";
        assert_eq!(mark(OsStr::new(&name(given))).as_deref(), Some(given));
        assert_eq!(mark(OsStr::new("primacy.service")), None);
    }
}
