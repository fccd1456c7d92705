//! The drill: all processes of the user's own command are paused past the lease, and then continued.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use primacy::stores::{Check, Verdict};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::resource::Resource;
use crate::cmd::process_group::ProcessGroup;
use crate::exit::{Exit, Failure};
use crate::process_tree::{stands, started_at};

/// The node that is paused, and the node that takes over.
const NODES: [&str; 2] = ["doctor-1", "doctor-2"];

/// The time that any step may take beyond the leases that it has to wait for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The time for which each of the two commands works before the next step, so that its work is in progress, and the
/// resource has seen its token.
const WARM_UP: Duration = Duration::from_secs(1);

/// The time for which only the continued command runs, before its guardian and its supervisor are continued too: enough
/// to try the write that it was about to do when it was paused. A machine's scheduler could have the same effect.
const LATE: Duration = Duration::from_secs(2);

/// The number of the command's last lines that are shown.
const LINES_SHOWN: usize = 5;

/// The outcome of continuing the command.
struct Late {
    /// The lines that it printed while its guardian was still paused.
    lines: Vec<String>,
    /// Its exit status, if it had ended by itself by then.
    itself: Option<ExitStatus>,
    /// The time that it went on after its guardian was continued; `None` if it could not be ended.
    lived: Option<Duration>,
}

/// Runs the drill. While the next leader leads, a stale write is tried against each of the resources.
pub(super) fn drill(
    url: &str,
    election: &str,
    lease: Duration,
    command: &[OsString],
    resources: &[Resource],
) -> Result<Vec<Check>, Failure> {
    let mut group = ProcessGroup::with("doctor", 3 * lease + PATIENCE)?;
    let [leader, other] = NODES;
    start(&mut group, leader, (url, election, lease), command)?;
    group.wait_for("the start of the command", |name, line| started(name, line, leader))?;
    start(&mut group, other, (url, election, lease), command)?;
    group.wait_for_followers(&[other])?;
    group.hear_for(WARM_UP)?;
    let paused = pause(&mut group, leader)?;
    group.wait_for("the other's start", |name, line| started(name, line, other))?;
    // A resource cannot know that a token is stale before it has seen the next one.
    group.hear_for(WARM_UP)?;
    let late = wake(&mut group, leader, &paused)?;
    let mut checks = vec![judge(&late)];
    for resource in resources {
        checks.push(resource.try_out(Some(election))?);
    }
    Ok(checks)
}

fn start(
    group: &mut ProcessGroup,
    node: &str,
    (url, election, lease): (&str, &str, Duration),
    job: &[OsString],
) -> Result<(), Failure> {
    let mut command = Command::new("/proc/self/exe");
    command.args(["run", "--json", "--election", election, "--node", node, "--lease"]);
    command.arg(format!("{}ms", lease.as_millis())).arg("--state-dir").arg(group.dir());
    // The URL may have a password, which no other user can read in the environment.
    command.env("PRIMACY_DOCTOR_STORE", url).args(["--store", "env:PRIMACY_DOCTOR_STORE", "--"]).args(job);
    group.start_command(node, command)
}

fn started(name: &str, line: &Value, wanted: &str) -> Option<()> {
    (name == wanted && line["event"] == "started").then_some(())
}

/// Pauses all processes of a node, including those that it starts meanwhile: a process may start others until the
/// signal has reached it.
fn pause(group: &mut ProcessGroup, node: &str) -> Result<Vec<Pid>, Failure> {
    let mut paused: Vec<Pid> = Vec::new();
    group.look_for("the pause of the whole command", |group| {
        // A process that was stopped before the list was read starts no other after that.
        let all_stand = paused.iter().all(|&process| stands(process));
        let mut running = group.processes(node);
        running.retain(|process| !paused.contains(process));
        let is_done = all_stand && running.is_empty();
        for process in running {
            if tell(process, Signal::STOP)? {
                paused.push(process);
            }
        }
        Ok(is_done.then_some(()))
    })?;
    Ok(paused)
}

/// Continues the command, and after a while its guardian and its supervisor.
fn wake(group: &mut ProcessGroup, leader: &str, paused: &[Pid]) -> Result<Late, Failure> {
    let job = group.job(leader);
    let is_watching = |pid: &&Pid| group.is_watching(leader, **pid);
    let (watching, working): (Vec<&Pid>, Vec<&Pid>) = paused.iter().partition(is_watching);
    for &&process in &working {
        tell(process, Signal::CONT)?;
    }
    let heard = group.hear_for(LATE)?;
    let lines = heard.into_iter().filter(|(name, _)| name == leader).map(|(_, line)| line).collect();
    // The command has not been reaped yet: its parent is the guardian, which is still paused.
    let itself = job.and_then(ended);
    let woken = Instant::now();
    for &&process in &watching {
        tell(process, Signal::CONT)?;
    }
    let is_gone = || job.is_none_or(|job| started_at(job).is_none() || ended(job).is_some());
    let gone = group.look_for("the end of the paused command", |_| Ok(is_gone().then_some(())));
    Ok(Late { lines, itself, lived: gone.is_ok().then(|| woken.elapsed()) })
}

/// Returns the exit status of an ended process that was not reaped; `None` if it has not ended, or is gone.
fn ended(pid: Pid) -> Option<ExitStatus> {
    /// The index of `exit_code` behind the name of the program (proc_pid_stat(5), field 52; the name is field 2).
    const EXIT_CODE: usize = 52 - 3;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let is_over = matches!(*fields.first()?, "Z" | "X");
    is_over.then(|| fields.get(EXIT_CODE)?.parse().ok().map(ExitStatus::from_raw)).flatten()
}

/// Returns whether the process was signalled. A process that has ended needs no signal: commands start others that end
/// in a moment.
fn tell(process: Pid, signal: Signal) -> Result<bool, Failure> {
    match kill_process(process, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn judge(late: &Late) -> Check {
    const NAME: &str = "the late work of a leader that was paused past its lease";
    let shown: Vec<&str> = late.lines.iter().rev().take(LINES_SHOWN).rev().map(String::as_str).collect();
    let printed = if shown.is_empty() {
        "printed nothing".to_owned()
    } else {
        format!("printed: {}", shown.join(" | "))
    };
    let why = "a leader that does not know yet that it was replaced writes what it was about to write";
    let fix = "have the resource check the token: docs/fencing.md; and name it with --resource, so that a stale write is tried";
    match (late.itself, late.lived) {
        (_, None) => {
            let found = format!("it {printed}, and its guardian did not end it");
            Check::not(Verdict::Fail, NAME, found, why, "report this; and have the resource check the token")
        }
        (Some(ended), Some(_)) if ended.code() == Some(Exit::Stale.code().into()) => {
            let found = format!(
                "the command ended with {} when it was woken, as `primacy fence exec` does whose token is stale; it {printed}",
                Exit::Stale.code()
            );
            Check::pass(NAME, found)
        }
        // This holds even if it ended in order: the late write may have been done.
        (Some(ended), Some(_)) => {
            let found = format!(
                "the command ended by itself when it was woken, beside the next leader, with {ended}, and {printed}. Whether the \
                 resource refused what it wrote, only its output can tell"
            );
            Check::not(Verdict::Unknown, NAME, found, why, fix)
        }
        (None, Some(lived)) => {
            let found = format!(
                "the command went on for {LATE:?} beside the next leader and {printed}; its guardian ended it {lived:.0?} after it \
                 woke up itself. Whether the resource refused what it wrote, only its output can tell",
            );
            Check::not(Verdict::Unknown, NAME, found, why, fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_end_that_says_so_is_a_refusal() {
        let late = |itself, lived| Late { lines: vec!["it printed this".to_owned()], itself, lived };
        let code = |code: i32| ExitStatus::from_raw(code << 8);
        assert_eq!(judge(&late(Some(code(76)), Some(LATE))).verdict, Verdict::Pass);
        for (ended, part) in
            [(code(0), "status: 0"), (code(1), "status: 1"), (ExitStatus::from_raw(6), "signal: 6")]
        {
            let unknown = judge(&late(Some(ended), Some(LATE)));
            assert_eq!(unknown.verdict, Verdict::Unknown);
            assert!(unknown.found.contains(part), "{unknown:?}");
            assert!(unknown.found.contains("it printed this"), "{unknown:?}");
        }
        assert_eq!(judge(&late(None, Some(LATE))).verdict, Verdict::Unknown);
        assert_eq!(judge(&late(None, None)).verdict, Verdict::Fail);
    }
}
