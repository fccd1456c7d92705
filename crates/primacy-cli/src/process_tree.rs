//! The descendants of this process: finding them, ending them, and making sure that none is left.
//!
//! A child subreaper is handed every descendant whose own parent has ended, so a process that has left its group, its
//! session or its parent is still a descendant. "No child to wait for" is therefore the proof that none is left, and
//! the only one that is trusted here; the process table is used only to find the processes to signal.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use primacy::clock;
use primacy::core::{Duration, Instant};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process,
    kill_process_group, pidfd_open, pidfd_send_signal, test_kill_process, wait, waitid, waitpid,
};
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ended {
    /// It exited with this code.
    Code(i32),
    /// It was ended by this signal.
    Signal(i32),
}

/// The result of a check for children, including those that have ended and were not reaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Children {
    /// There are some.
    Left,
    /// There is none: this process has no descendant at all.
    None,
}

/// A process below this one.
#[derive(Clone, Copy, Debug)]
struct Descendant {
    pid: Pid,
    parent: Pid,
}

/// The time to wait for a signalled process to end, before looking for new ones.
const LOOK_AGAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// The time of the first search in the process table, after which new children are killed first.
const FIRST_SEARCH: Duration = Duration::from_millis(1);
/// The most processes that are waited for at a time: each takes a descriptor, and waiting for a thousand takes as long
/// as killing them.
const WATCHED_MAX: usize = 32;

/// The most unkillable processes that are named.
const SURVIVORS_SHOWN_MAX: usize = 8;

impl Ended {
    fn from_status(status: WaitStatus) -> Option<Self> {
        status.exit_status().map(Self::Code).or_else(|| status.terminating_signal().map(Self::Signal))
    }

    /// Returns the exit code that a shell reports for this end.
    pub(crate) fn exit_code(self) -> u8 {
        let code = match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        };
        u8::try_from(code & 0xff).unwrap_or(u8::MAX)
    }
}

/// Reaps all children that have ended.
pub(crate) fn reap(mut on_end: impl FnMut(Pid, Ended)) {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if let Some(ended) = Ended::from_status(status) {
                    on_end(pid, ended);
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

/// Returns the children that have ended and were not reaped.
pub(crate) fn ended_children() -> HashSet<Pid> {
    // Does not use the process table, which may hide the processes of other users.
    let has_ended = |child| {
        let only_look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(child), only_look), Ok(Some(_)))
    };
    children_of(getpid()).into_iter().filter(|&child| has_ended(child)).collect()
}

/// Reaps this child, if it has ended.
pub(crate) fn take_end(child: Pid) {
    let _ = waitpid(Some(child), WaitOptions::NOHANG);
}

/// Returns whether any child is left, without reaping it.
pub(crate) fn children() -> Children {
    let only_look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::All, only_look) {
        Err(rustix::io::Errno::CHILD) => Children::None,
        // Any other answer does not prove that there is none.
        Ok(_) | Err(_) => Children::Left,
    }
}

/// Ends all descendants by SIGKILL, and returns when none is left. No other thread may be starting processes: they
/// would be ended too, and a child that could not be executed would be reaped here.
///
/// The control group of the processes, if they have one, is killed first. Processes that have left it are searched for.
///
/// `leader`, if given, is a child that was not reaped and leads a process group. That group is killed before the rest:
/// mostly it has all processes, and then the process table need not be read, which takes longer than everything else.
pub(crate) fn end_descendants(
    leader: Option<Pid>,
    cgroup: Option<&Cgroup>,
    mut on_end: impl FnMut(Pid, Ended),
) {
    let kill_cgroup = || {
        if let Some(cgroup) = cgroup {
            cgroup.kill();
        }
    };
    kill_cgroup();
    if let Some(leader) = leader {
        // The process and its group may have ended already.
        let _ = kill_process_group(leader, Signal::KILL);
        wait_for_one_of(&[leader]);
    }
    let (mut killed, mut search): (HashSet<Pid>, _) = (HashSet::new(), FIRST_SEARCH);
    loop {
        reap(&mut on_end);
        if children() == Children::None {
            return;
        }
        kill_cgroup();
        let ours = kill_children();
        let known = killed.len();
        killed.extend(&ours);
        if killed.len() == known {
            // The parents take long to end, so their descendants are searched for. Each search is short, since killing
            // a descendant directly costs ten times as much as after its parent has ended.
            kill_descendants(clock::now().after(search));
            search = search.times(2);
        }
        // A child that cannot end must not keep its siblings alive, so this wait is bounded.
        wait_for_one_of(&ours);
    }
}

/// Sends SIGKILL to all descendants, the nearest ones first, until `deadline`.
pub(crate) fn kill_descendants(deadline: Instant) {
    kill_children();
    let own = getpid();
    let kill = |descendant: &Descendant| {
        let _ = descendant.signal(own, Signal::KILL);
    };
    walk(own, kill, |_| go_on_until(deadline));
}

/// Returns the number of descendants, and the time that it takes to find and verify each, as for killing them. Stops at
/// `deadline`.
pub(crate) fn time_to_find_descendants(deadline: Instant) -> (usize, Duration) {
    let (began, own, mut count) = (clock::now(), getpid(), 0);
    let make_sure = |descendant: &Descendant| {
        count += 1;
        let _ = descendant.open(own);
    };
    walk(own, make_sure, |_| go_on_until(deadline));
    (count, clock::now().since(began))
}

/// Sends SIGKILL to the children of this process, in a microsecond each: a child's number stays taken until the child
/// is reaped, so it need not be verified. The children of an ended child are handed to this process next.
fn kill_children() -> Vec<Pid> {
    let ours = children_of(getpid());
    for &child in &ours {
        // The child may have ended, or have changed its user.
        let _ = kill_process(child, Signal::KILL);
    }
    ours
}

/// Sends these signals, in order, to every descendant that `wanted` selects, until `deadline`.
pub(crate) fn signal_descendants(signals: &[Signal], deadline: Instant, wanted: impl Fn(Pid) -> bool) {
    let own = getpid();
    // A process is signalled only after its children were listed: if it ends at once, they are handed to this process,
    // whose children were listed before.
    let signal = |descendant: &Descendant| {
        if wanted(descendant.pid) {
            for &signal in signals {
                // A process that has ended needs no signal. A process that may not be signalled has changed its user;
                // the wait for the last child then goes on, as it must.
                let _ = descendant.signal(own, signal);
            }
        }
        go_on_until(deadline)
    };
    walk(own, |_| (), signal);
}

fn go_on_until(deadline: Instant) -> ControlFlow<()> {
    if clock::now() < deadline { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// Returns all descendants of a process.
pub(crate) fn descendants_of(root: Pid) -> impl Iterator<Item = Pid> {
    let mut found = Vec::new();
    walk(root, |descendant| found.push(descendant.pid), |_| ControlFlow::Continue(()));
    found.into_iter()
}

/// Describes the processes that are left below `root` after all were killed, for people; `None` if there are none.
pub(crate) fn survivors(root: Pid) -> Option<String> {
    let state = |pid: Pid| match state(pid) {
        // The mount option `hidepid` hides the processes of other users. Such a process cannot be signalled, either.
        None => {
            (test_kill_process(pid) == Err(rustix::io::Errno::PERM)).then(|| "of another user".to_owned())
        }
        state => state.filter(|state| !is_over(state)),
    };
    let left: Vec<String> = descendants_of(root)
        .filter_map(|pid| Some(format!("pid {} ({})", pid.as_raw_nonzero(), state(pid)?)))
        .collect();
    let noun = if left.len() == 1 { "process" } else { "processes" };
    let shown = left.iter().take(SURVIVORS_SHOWN_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = if left.len() > SURVIVORS_SHOWN_MAX { ", …" } else { "" };
    (!left.is_empty()).then(|| format!("{} {noun} of the job cannot be killed: {shown}{more}", left.len()))
}

impl Descendant {
    fn signal(&self, own: Pid, signal: Signal) -> rustix::io::Result<()> {
        if self.parent == own {
            // A child of this process cannot be confused with another process: its number stays taken until it is
            // reaped.
            return kill_process(self.pid, signal);
        }
        // If `open` returns `None`, the process has ended, and its number was reused.
        self.open(own)?.map_or(Ok(()), |pidfd| pidfd_send_signal(pidfd, signal))
    }

    fn open(&self, own: Pid) -> rustix::io::Result<Option<OwnedFd>> {
        let pidfd = pidfd_open(self.pid, PidfdFlags::empty())?;
        // If its parent has ended meanwhile, it is now a child of this process; so is any process that got its number
        // since.
        let is_it = parent_of(self.pid).is_some_and(|parent| parent == self.parent || parent == own);
        Ok(is_it.then_some(pidfd))
    }
}

/// Waits until one of the first of these children has ended, for [`LOOK_AGAIN`] at the most.
fn wait_for_one_of(children: &[Pid]) {
    let watched = children.iter().take(WATCHED_MAX);
    let pidfds: Vec<OwnedFd> = watched.filter_map(|&pid| pidfd_open(pid, PidfdFlags::empty()).ok()).collect();
    let mut polled: Vec<PollFd<'_>> = pidfds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    // If this was interrupted or timed out, the caller checks again anyway.
    let _ = poll(&mut polled, Some(&LOOK_AGAIN));
}

/// Visits all descendants, those nearest to the root first: calls `on_seen` when a process is found, and `on_listed`
/// when its children were found, until that breaks off.
fn walk(
    root: Pid,
    mut on_seen: impl FnMut(&Descendant),
    mut on_listed: impl FnMut(&Descendant) -> ControlFlow<()>,
) {
    // The table changes while it is read, so the same process may be found twice.
    let (mut seen, mut unlisted) = (HashSet::new(), VecDeque::new());
    let mut list = |parent, unlisted: &mut VecDeque<Descendant>| {
        for pid in children_of(parent).into_iter().filter(|&pid| seen.insert(pid)) {
            let descendant = Descendant { pid, parent };
            on_seen(&descendant);
            unlisted.push_back(descendant);
        }
    };
    list(root, &mut unlisted);
    while let Some(descendant) = unlisted.pop_front() {
        list(descendant.pid, &mut unlisted);
        if on_listed(&descendant).is_break() {
            return;
        }
    }
}

/// Returns the children of all threads of a process, as the process table shows them at this moment.
fn children_of(parent: Pid) -> Vec<Pid> {
    let mut children = Vec::new();
    for thread in threads(parent) {
        match fs::read_to_string(thread.join("children")) {
            Ok(list) => children.extend(list.split_ascii_whitespace().filter_map(parse_pid)),
            // A kernel without CONFIG_PROC_CHILDREN.
            Err(error) if error.kind() == io::ErrorKind::NotFound && thread.exists() => {
                return children_by_scan(parent);
            }
            Err(_) => {}
        }
    }
    children
}

fn children_by_scan(parent: Pid) -> Vec<Pid> {
    all_processes().filter(|&pid| parent_of(pid) == Some(parent)).collect()
}

/// Returns every process in the table.
pub(crate) fn all_processes() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| parse_pid(entry.file_name().to_str()?))
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

/// Returns the parent of a process, if the process exists.
pub(crate) fn parent_of(pid: Pid) -> Option<Pid> {
    parse_pid(&stat_field(pid, 4)?)
}

/// Returns the start time of a process, in the kernel's ticks since the boot. The number and the start time together
/// identify one process.
pub(crate) fn started_at(pid: Pid) -> Option<u64> {
    // A process that has ended and was not reaped is still in the table, but does not count.
    if is_over(&state(pid)?) {
        return None;
    }
    stat_field(pid, 22)?.parse().ok()
}

/// Returns the environment of a process, as it was at the start or was overwritten since; empty if it cannot be read.
/// May block: see [`ProcReader`](crate::proc_reader::ProcReader).
pub(crate) fn environment(pid: Pid) -> Vec<u8> {
    let read = |thread: &Path| fs::read(thread.join("environ")).ok().filter(|read| !read.is_empty());
    // All threads have the same environment, and a thread that has ended has none.
    read(&process(pid)).or_else(|| threads(pid).find_map(|thread| read(&thread))).unwrap_or_default()
}

/// Returns whether a process that was sent a stop signal is stopped, or has ended.
pub(crate) fn stands(pid: Pid) -> bool {
    state(pid).is_none_or(|state| matches!(state.as_str(), "T" | "t") || is_over(&state))
}

/// Returns the state of a process, from a thread that has not ended. The first thread may end before the others, and
/// the process is shown as a zombie from then on.
fn state(pid: Pid) -> Option<String> {
    let first = stat_field(pid, 3)?;
    let others = is_over(&first).then(|| threads(pid).filter_map(|thread| stat_field_in(&thread, 3)));
    others.into_iter().flatten().find(|state| !is_over(state)).or(Some(first))
}

/// Returns whether this is the state of an ended process: a zombie, or dead.
fn is_over(state: &str) -> bool {
    matches!(state, "Z" | "X")
}

fn process(pid: Pid) -> PathBuf {
    format!("/proc/{}", pid.as_raw_nonzero()).into()
}

fn threads(pid: Pid) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(process(pid).join("task")).into_iter().flatten().flatten().map(|thread| thread.path())
}

/// Returns a field of `/proc/PID/stat`, numbered as in proc(5), from the third on.
fn stat_field(pid: Pid, number: usize) -> Option<String> {
    stat_field_in(&process(pid), number)
}

fn stat_field_in(directory: &Path, number: usize) -> Option<String> {
    let stat = fs::read_to_string(directory.join("stat")).ok()?;
    // The second field is the program's name in parentheses, which may itself contain blanks and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(number.checked_sub(3)?).map(str::to_owned)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A child process of a test that already runs its own program. It ends with the test, even if that panics: a
    /// remaining process would keep the output of all tests open.
    #[derive(Debug)]
    pub(crate) struct TestChild(pub(crate) Child);

    impl TestChild {
        pub(crate) fn start(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
            let mut command = Command::new(program);
            let child = Self(command.args(arguments).envs(variables.iter().copied()).spawn().unwrap());
            // The kernel resumes the parent a moment before the child has its own program and variables.
            let own = fs::read_link("/proc/self/exe").unwrap();
            let entry = |name| format!("/proc/{}/{name}", child.pid().as_raw_nonzero());
            let is_itself = || {
                let is_other = fs::read_link(entry("exe")).is_ok_and(|exe| exe != own);
                is_other && fs::read(entry("environ")).is_ok_and(|variables| !variables.is_empty())
            };
            while started_at(child.pid()).is_some() && !is_itself() {
                std::thread::yield_now();
            }
            child
        }

        pub(crate) fn pid(&self) -> Pid {
            Pid::from_child(&self.0)
        }

        pub(crate) fn end(&mut self) {
            // The child may have ended already.
            let _ = self.0.kill().and_then(|()| self.0.wait());
        }
    }

    impl Drop for TestChild {
        fn drop(&mut self) {
            self.end();
        }
    }

    #[test]
    fn a_child_is_seen_in_the_process_table_by_both_ways_of_looking() {
        let mut child = TestChild::start("sleep", &["60"], &[]);
        let pid = child.pid();
        assert!(children_of(getpid()).contains(&pid));
        assert!(children_by_scan(getpid()).contains(&pid));
        assert!(started_at(pid).is_some());
        child.0.kill().unwrap();
        while started_at(pid).is_some() {
            std::thread::yield_now();
        }
        child.end();
        assert_eq!(parent_of(pid), None);
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(Ended::Code(3).exit_code(), 3);
        assert_eq!(Ended::Signal(9).exit_code(), 137);
    }
}
