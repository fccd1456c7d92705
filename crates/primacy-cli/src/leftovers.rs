//! Processes that an earlier supervisor of the same node left behind when it died together with its guardian.
//!
//! Every job carries a mark in its environment that names the node and the incarnation of its supervisor. A starting
//! supervisor ends all processes that carry its node's mark under a supervisor that no longer runs. This does not find
//! a process whose parent cleared the environment, nor, unless root looks, one that has changed its user. Where jobs
//! have a control group, its name has the mark, too, and all processes in it are found.
//!
//! Every user can put the mark into an environment, also into that of a set-uid program. So only processes that were
//! started under this process's real user id can keep the node from starting. These include processes whose environment
//! the kernel does not show in time: they may be jobs of this node.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, getpid, getuid, pidfd_open, pidfd_send_signal};

use crate::cgroup::{Cgroup, Finder};
use crate::proc_reader::ProcReader;
use crate::process_tree::{all_processes, environment, started_at};

/// The variable that marks jobs and hooks.
pub(crate) const MARK: &str = "PRIMACY_JOB";
/// The variable that marks guardians.
pub(crate) const GUARDIAN_MARK: &str = "PRIMACY_GUARDIAN";

/// The identification of one node in marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeMark {
    prefix: String,
}

/// The reason why the node must not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartRefusal {
    /// Another supervisor of the same node is running, as this process.
    AlreadyRunning(i32),
    /// The kernel does not show the environments of these processes of this user.
    Unanswered(Vec<i32>),
}

/// A marked process whose supervisor is gone.
struct Leftover {
    pidfd: OwnedFd,
    guardian: bool,
    pid: Pid,
    /// The control group of its job.
    cgroup: Option<PathBuf>,
    /// True if another user has started it: a job that has changed its user, or a process with a forged mark.
    is_foreign: bool,
}

/// A search for marked processes in the whole process table.
struct Search<F> {
    environments: ProcReader<F>,
    finder: Finder,
}

/// The result of a search.
#[derive(Default)]
struct Found {
    leftovers: Vec<Leftover>,
    /// The processes, by their users, whose environments the kernel does not show.
    unanswered: HashMap<Option<u32>, Vec<i32>>,
}

/// The longest wait for marked processes of other users to end after they were killed, and for environments that the
/// kernel does not show. A user who keeps making such processes must not keep a node from starting.
const OTHER_USERS_PATIENCE: Duration = Duration::from_secs(5);

/// The most unanswered processes of a user that are waited for; the others are not read.
const UNANSWERED_MAX: usize = 4;

impl NodeMark {
    /// Creates the identification of `node` in `election`. `place` distinguishes nodes of the same name with different
    /// state directories.
    pub(crate) fn new(election: &str, node: &str, place: &[u8]) -> Self {
        // Only a hash (FNV-1a) of it is in the mark, since every user can read marks.
        let hash = place.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // A process number is valid only in its own namespace, so marks of other namespaces are not considered.
        let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let namespace: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
        Self { prefix: format!("{election}/{node}/{hash:016x}.{namespace}/") }
    }

    /// Returns the mark for the processes that this process starts.
    pub(crate) fn of_this_process(&self) -> String {
        let pid = getpid();
        format!("{}{}.{}", self.prefix, pid.as_raw_nonzero(), started_at(pid).unwrap_or(0))
    }

    /// Returns the name of a file about this node, which is the same in every process namespace.
    pub(crate) fn file_name(&self, suffix: &str) -> String {
        let node = self.prefix.rsplit_once('.').map_or("", |(node, _)| node);
        format!("{}{suffix}", node.replace('/', "@"))
    }

    /// Returns the supervisor in a mark, if the mark is of this node.
    fn supervisor(&self, mark: &str) -> Option<(Pid, u64)> {
        supervisor_in(mark.strip_prefix(&self.prefix)?)
    }

    /// Returns whether this is the mark of any node whose supervisor was in this namespace and is gone.
    fn is_abandoned(&self, mark: &str) -> bool {
        let namespace = |of: &str| of.rsplit_once('.').map(|(_, namespace)| namespace.to_owned());
        mark.rsplit_once('/').is_some_and(|(node, supervisor)| {
            namespace(node) == namespace(self.prefix.trim_end_matches('/'))
                && supervisor_in(supervisor).is_some_and(|supervisor| !lives(supervisor))
        })
    }
}

/// Ends the processes that earlier supervisors of this node left behind, and returns their number. A guardian that is
/// still ending its job gets `patience` for that. A guardian that only notifies the other nodes of the death is left
/// running.
///
/// # Errors
/// [`StartRefusal`]. If a supervisor of this node is alive, no process was ended.
pub(crate) fn end(node: &NodeMark, patience: Duration) -> Result<usize, StartRefusal> {
    end_found(node, patience, OTHER_USERS_PATIENCE, ProcReader::new(environment))
}

fn end_found(
    node: &NodeMark,
    patience: Duration,
    others_patience: Duration,
    environments: ProcReader<impl Fn(Pid) -> Vec<u8> + Clone + Send + 'static>,
) -> Result<usize, StartRefusal> {
    let began = Instant::now();
    let (patient_until, answered_until) = (began + patience, began + others_patience);
    let foreign_until = patient_until + others_patience;
    let mut search = Search { environments, finder: Finder::new() };
    let mut ended = HashSet::new();
    loop {
        let Found { leftovers: found, mut unanswered } = search.find(node)?;
        let now = Instant::now();
        let are_all_ended = found.iter().all(|leftover| leftover.guardian);
        if now >= answered_until
            && found.iter().all(|leftover| leftover.guardian || leftover.is_foreign)
            && let Some(own) = unanswered.remove(&Some(getuid().as_raw()))
        {
            return Err(StartRefusal::Unanswered(own));
        }
        if are_all_ended && (unanswered.is_empty() || now >= answered_until) {
            if !unanswered.is_empty() {
                let pids: Vec<i32> = unanswered.into_values().flatten().collect();
                tracing::warn!(
                    "the environments of these processes of other users cannot be read in time: {pids:?}; starting \
                     beside them"
                );
            }
            search.finder.remove_empty(|mark| node.is_abandoned(mark));
            return Ok(ended.len());
        }
        if now >= foreign_until && found.iter().all(|leftover| leftover.guardian || leftover.is_foreign) {
            tracing::warn!(
                "processes of other users carry this node's mark, and more of them appear as they are killed: starting \
                 beside them"
            );
            return Ok(ended.len());
        }
        let guarded = found.iter().any(|leftover| leftover.guardian) && now < patient_until;
        if !guarded {
            kill(&found);
            ended.extend(found.iter().map(|leftover| leftover.pid));
        }
        let mut polled: Vec<PollFd<'_>> =
            found.iter().map(|leftover| PollFd::new(&leftover.pidfd, PollFlags::IN)).collect();
        let _ = poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 }));
    }
}

fn kill(found: &[Leftover]) {
    let cgroups: HashSet<&PathBuf> = found.iter().filter_map(|leftover| leftover.cgroup.as_ref()).collect();
    for cgroup in cgroups.into_iter().filter_map(|dir| Cgroup::open(dir).ok()) {
        cgroup.kill();
    }
    for leftover in found {
        // The process may have ended meanwhile.
        let _ = pidfd_send_signal(&leftover.pidfd, Signal::KILL);
    }
}

fn supervisor_in(mark: &str) -> Option<(Pid, u64)> {
    let (pid, started) = mark.split_once('.')?;
    Some((Pid::from_raw(pid.parse().ok()?)?, started.parse().ok()?))
}

/// Returns whether a supervisor is running, identified by its process number and start time.
fn lives((pid, started): (Pid, u64)) -> bool {
    started_at(pid) == Some(started)
}

impl<F: Fn(Pid) -> Vec<u8> + Clone + Send + 'static> Search<F> {
    fn find(&mut self, node: &NodeMark) -> Result<Found, StartRefusal> {
        let mut found = Found::default();
        for pid in all_processes().filter(|&pid| pid != getpid()) {
            // Opened before the environment is read, so that the process that is checked is the one that is killed.
            let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            let (cgroup, by_cgroup) = self.finder.find(pid, |mark| node.supervisor(mark)).unzip();
            let user = real_user(pid);
            // A control group belongs to this user, even if a process in it has changed its user.
            let is_foreign = cgroup.is_none() && user != Some(getuid().as_raw());
            let environment = self.environment(pid, user, is_foreign, &mut found.unanswered);
            let mark = |name| variable(&environment, name).and_then(|mark| node.supervisor(mark));
            // A guardian keeps the user of its supervisor.
            let (guardian, Some((supervisor, started))) = (match mark(GUARDIAN_MARK).filter(|_| !is_foreign) {
                Some(supervisor) => (true, Some(supervisor)),
                None => (false, mark(MARK).or(by_cgroup)),
            }) else {
                continue;
            };
            if supervisor == getpid() && lives((supervisor, started)) {
                continue;
            }
            if lives((supervisor, started)) {
                if is_foreign {
                    continue;
                }
                return Err(StartRefusal::AlreadyRunning(supervisor.as_raw_nonzero().get()));
            }
            if started_at(pid).is_some() {
                found.leftovers.push(Leftover { pidfd, guardian, pid, cgroup, is_foreign });
            }
        }
        Ok(found)
    }

    /// Returns the environment of a process, or nothing and a note in `unanswered`.
    fn environment(
        &mut self,
        pid: Pid,
        user: Option<u32>,
        is_foreign: bool,
        unanswered: &mut HashMap<Option<u32>, Vec<i32>>,
    ) -> Vec<u8> {
        // Only root sees the environments of other users, among them jobs of root that have changed their user.
        if is_foreign && !geteuid().is_root() {
            return Vec::new();
        }
        let is_read = unanswered.get(&user).is_none_or(|pids| pids.len() < UNANSWERED_MAX);
        let answer = is_read.then(|| self.environments.read(pid));
        answer.and_then(Result::ok).unwrap_or_else(|| {
            unanswered.entry(user).or_default().push(pid.as_raw_nonzero().get());
            Vec::new()
        })
    }
}

/// Returns the value of a variable in an environment.
fn variable<'a>(environment: &'a [u8], name: &str) -> Option<&'a str> {
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    str::from_utf8(value).ok()
}

/// Returns the user who has started a process. A set-uid program keeps the real user, so it does not count as its
/// owner's.
fn real_user(pid: Pid) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_tree::tests::TestChild;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    /// The name of an election that no other run of these tests on this machine uses: their processes are found, too.
    fn election(test: &str) -> String {
        format!("leftovers-{test}-{}", std::process::id())
    }

    #[test]
    fn what_a_dead_supervisor_left_is_ended_and_what_a_living_one_guards_is_not() {
        let node = NodeMark::new(&election("test"), "a", b"somewhere");
        let mut supervisor = TestChild::start("sleep", &["60"], &[]);
        let pid = supervisor.pid();
        let mark = format!("{}{}.{}", node.prefix, pid.as_raw_nonzero(), started_at(pid).unwrap());
        let mut job = TestChild::start("sleep", &["60"], &[(MARK, &mark)]);
        let mut other = TestChild::start("sleep", &["60"], &[(MARK, "leftovers-test/b/0/1.1")]);

        let running = end(&node, Duration::ZERO);
        assert_eq!(running, Err(StartRefusal::AlreadyRunning(pid.as_raw_nonzero().get())));
        assert!(job.0.try_wait().unwrap().is_none());

        supervisor.end();
        assert_eq!(end(&node, Duration::ZERO), Ok(1));
        assert!(!job.0.wait().unwrap().success());
        assert!(other.0.try_wait().unwrap().is_none());
    }

    /// The kernel shows such a process as a zombie, without an environment.
    #[test]
    fn a_process_whose_first_thread_has_ended_is_ended_like_any_other() {
        let node = NodeMark::new("leftovers-threads", "a", b"somewhere");
        let mark = format!("{}{}.1", node.prefix, std::process::id());
        let script = "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); \
            ctypes.CDLL(None).pthread_exit(None)";
        let mut job = TestChild::start("python3", &["-c", script], &[(MARK, &mark)]);
        let first = format!("/proc/{}/stat", job.pid().as_raw_nonzero());
        while !fs::read_to_string(&first).unwrap().contains(") Z ") {
            assert_eq!(job.0.try_wait().unwrap(), None);
            std::thread::yield_now();
        }
        assert_eq!(end(&node, Duration::ZERO), Ok(1));
        assert!(!job.0.wait().unwrap().success());
    }

    #[test]
    fn a_mark_is_abandoned_when_its_supervisor_is_gone() {
        let node = NodeMark::new("leftovers-abandoned", "a", b"somewhere");
        let other = NodeMark::new("another", "b", b"elsewhere");
        assert!(!node.is_abandoned(&other.of_this_process()));
        assert_eq!(node.file_name(".x"), format!("leftovers-abandoned@a@{}.x", &node.prefix[22..38]));
        assert!(node.is_abandoned(&format!("{}{}.1", other.prefix, std::process::id())));
        assert!(!node.is_abandoned("another/b/0123456789abcdef.1/1.1"), "of another namespace");
        assert!(!node.is_abandoned("nonsense"));
    }

    #[test]
    fn the_mark_of_another_user_neither_keeps_a_node_from_starting_nor_counts_as_a_guardian() {
        if !getuid().is_root() {
            return primacy_conformance::not_run("only root sees the environments of others");
        }
        let node = NodeMark::new(&election("forged"), "a", b"somewhere");
        let mut living = TestChild::start("sleep", &["60"], &[]);
        let pid = living.pid();
        let mark = format!("{}{}.{}", node.prefix, pid.as_raw_nonzero(), started_at(pid).unwrap());
        let mut forged = Vec::new();
        for name in [MARK, GUARDIAN_MARK] {
            let nobody = ["--reuid", "65534", "--clear-groups", "sleep", "60"];
            forged.push(TestChild::start("setpriv", &nobody, &[(name, &mark)]));
        }
        while forged.iter().any(|forged| real_user(forged.pid()) != Some(65534)) {
            std::thread::yield_now();
        }
        assert_eq!(end(&node, Duration::ZERO), Ok(0), "a living process that is no supervisor of ours");
        // A job that has changed its user is ended with its node all the same.
        living.end();
        assert_eq!(end(&node, Duration::ZERO), Ok(1));
        assert!(!forged[0].0.wait().unwrap().success());
        assert!(forged[1].0.try_wait().unwrap().is_none());
    }

    /// As the kernel treats readers of a process that is stuck while it executes a program from a file system that does
    /// not answer.
    fn end_beside_stuck(stuck: &[&TestChild]) -> (Result<usize, StartRefusal>, usize) {
        let node = NodeMark::new(&election("stuck"), "a", b"somewhere");
        let stuck: Vec<Pid> = stuck.iter().map(|child| child.pid()).collect();
        let (gate, reads) = (Arc::new(Mutex::new(())), Arc::new(AtomicUsize::new(0)));
        let (at_gate, counted) = (Arc::clone(&gate), Arc::clone(&reads));
        let closed = gate.lock().unwrap();
        let environments = ProcReader::new(move |pid| {
            if stuck.contains(&pid) {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(at_gate.lock());
            }
            Vec::new()
        });
        let result = end_found(&node, Duration::ZERO, Duration::from_millis(1), environments);
        drop(closed);
        (result, reads.load(Ordering::SeqCst))
    }

    #[test]
    fn a_process_that_may_be_a_leftover_and_does_not_answer_keeps_the_node_from_starting() {
        let children: [TestChild; UNANSWERED_MAX + 1] =
            std::array::from_fn(|_| TestChild::start("sleep", &["60"], &[]));
        let (result, reads) = end_beside_stuck(&children.each_ref());
        let pids = children.each_ref().map(|child| child.pid().as_raw_nonzero().get());
        let Err(StartRefusal::Unanswered(unanswered)) = result else { panic!("{result:?}") };
        // Once so many are silent, no other process of the user is read.
        assert!(pids.iter().all(|pid| unanswered.contains(pid)), "{pids:?} {unanswered:?}");
        assert_eq!(reads, UNANSWERED_MAX);
    }

    #[test]
    fn a_process_of_another_user_that_does_not_answer_does_not_keep_the_node_from_starting() {
        if !getuid().is_root() {
            return primacy_conformance::not_run("only root sees the environments of others");
        }
        let nobody = ["--reuid", "65534", "--clear-groups", "sleep", "60"];
        let foreign = TestChild::start("setpriv", &nobody, &[]);
        while real_user(foreign.pid()) != Some(65534) {
            std::thread::yield_now();
        }
        assert_eq!(end_beside_stuck(&[&foreign]), (Ok(0), 1));
    }
}
