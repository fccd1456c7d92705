//! The guardian: a small process that holds the deadline of a leadership and everything that works under it.
//!
//! Its supervisor holds the election and may be killed, paused or starved at any moment; the job must end in
//! time all the same. So the guardian is the parent of the job and of the hooks, has its own timer on the boot
//! clock, and decides alone when to stop and when to kill. It is a child subreaper: descendants that left the
//! job's group, its session or their parents are handed to it, and it kills until it has no child left. The
//! job dies with the guardian (parent-death signal), and then its descendants are handed to the supervisor,
//! which is a subreaper too.
//!
//! When the supervisor is dead, and *after that* no process of the job is left, the guardian notifies the other nodes;
//! in this order, since a live supervisor could still start processes.
//!
//! One thread does all this, since the parent-death signal follows the thread; the threads that keep the connections to
//! the peers start nothing. There is no async runtime, since the guardian should stay small. On waking it always reads
//! its commands before it looks at the time: a guardian that was itself paused must not kill a job whose leadership was
//! extended meanwhile.

pub(crate) mod handle;
pub(crate) mod job;
mod kill_time;
pub(crate) mod message;
mod notifier;
mod precedence;
mod stop_command;
mod warmup;
mod warnings;
pub(crate) mod watchdog;
mod wire;

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use primacy::clock;
use primacy::core::{Duration, Instant};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgid, getppid, kill_process_group, pidfd_open, set_child_subreaper,
    set_parent_process_death_signal, setsid,
};
use signal_hook::consts::SIGCHLD;

use crate::boot_timer::BootTimer;
use crate::cgroup::Cgroup;
use crate::guardian::job::Program;
use crate::guardian::kill_time::KillTime;
use crate::guardian::message::{GuardianCommand, GuardianConfig, Hook, NotStarted, Report, Stopping};
use crate::guardian::notifier::Notifier;
use crate::guardian::stop_command::StopAttempts;
use crate::guardian::warnings::Warnings;
use crate::guardian::watchdog::{Watchdog, WatchdogSpec};
use crate::guardian::wire::Wire;
use crate::line_writer::write_last_words;
use crate::memory;
use crate::process_tree::{
    Children, Ended, children, end_descendants, reap, signal_descendants, time_to_find_descendants,
};
use crate::signals;
use crate::stop_record::{self, StopRecord};

/// The processes that work under one leadership.
#[derive(Debug)]
struct JobRun {
    term: u64,
    fenced: bool,
    valid_until: Instant,
    /// The time for which the leadership lasts without renewal.
    granted: Duration,
    /// The longest time that was left of it when it was granted or renewed: a store may give shorter sessions than were
    /// requested.
    longest_left: Duration,
    /// True if nothing is started before the lead has been renewed.
    awaits_renewal: bool,
    stage: JobState,
    /// The time that killing all started processes takes, if they have to be searched for.
    kill_time: KillTime,
    /// The first process of the job, or the running hook, until it is reaped.
    main: Option<Pid>,
}

/// The progress of a leadership's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobState {
    /// The job is to be started when all commands have been read.
    Due,
    /// The hook that precedes the job is running.
    Preparing,
    /// The job is running.
    Working,
    /// All processes were asked to end, and will be killed at this time.
    Draining { kill_at: Instant },
    /// The job is gone and the stop command is running; it will be killed at this time.
    StopCommand { kill_at: Instant },
    /// The stop command has failed, nothing runs, and the command is run again at this time.
    StopFailed { retry_at: Instant },
    /// The job and the stop command have ended, and the hook that follows is running; it will be killed at this time.
    Parting { kill_at: Instant },
}

struct Guardian {
    wire: Wire,
    /// Readable when the supervisor's process is gone; `None` if it was gone before it could be watched.
    supervisor: Option<OwnedFd>,
    /// Receives a byte for every child that has ended.
    child_signals: UnixStream,
    timer: BootTimer,
    config: GuardianConfig,
    /// The program to run; without one, the lead is held and nothing runs.
    job: Option<Program>,
    notifier: Notifier,
    /// The niceness for the processes that are started, if the guardian itself runs at a real-time priority.
    niceness: Option<i32>,
    /// The control group of all processes that are started; or the reason why there is none.
    cgroup: Result<Cgroup, String>,
    /// The watchdog, armed while anything runs under a lead.
    watchdog: Option<Watchdog>,
    /// When to feed it next.
    feed_at: Option<Instant>,
    /// True if the watchdog cannot be used for the present lead, which goes on without it.
    is_unwatched: bool,
    /// The latest lead was given up because its promises were too short for the watchdog. The promises are known only
    /// after the first renewal, so the next lead starts nothing before it.
    was_too_short: bool,
    warnings: Warnings,
    job_run: Option<JobRun>,
    /// The runs of the latest leadership's stop command. Until one has succeeded, the work that it is to end may go on,
    /// so no death is reported, and the watchdog stays armed.
    stop: StopAttempts,
    /// The supervisor is dead, or has closed its end without [`GuardianCommand::Leave`].
    supervisor_lost: bool,
    leave_taken: bool,
    /// When to give back the memory that only the start of the guardian or of its job needed.
    settled_at: Option<Instant>,
}

/// Runs the guardian: `primacy guardian FD [FILE NAME [ARG…]]`, which only a supervisor starts.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut args = args.peekable();
    if args.peek().is_some_and(|arg| arg == warmup::JOB) {
        warmup::work();
    }
    match guard(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let why = "this command is started by `primacy run`, not by hand";
            write_last_words(&format!("primacy guardian: {error}; {why}"));
            ExitCode::FAILURE
        }
    }
}

fn guard(mut args: impl Iterator<Item = OsString>) -> io::Result<()> {
    memory::remember_what_is_loaded();
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let socket: RawFd =
        args.next().and_then(|arg| arg.to_str()?.parse().ok()).filter(|&fd| fd > 2).ok_or_else(invalid)?;
    let job = args.next().map(|file| Program { file, args: args.collect() });
    // SAFETY: the supervisor made this descriptor for this process alone and named it on the command line. It is none
    // of the standard three, and nothing else in this process, which has just begun, uses it.
    #[allow(unsafe_code)]
    // A descriptor that is passed as a number over `exec` cannot be taken over in any other way.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;

    // A session of its own: the terminal's signals reach the supervisor only, which ends the job in order; and a job
    // that reads the terminal is not stopped for it.
    setsid()?;
    // A guardian that is stopped (SIGSTOP) is continued when its supervisor dies, and ends the job in time. If the
    // supervisor has died already, the check of the parent below shows it.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let child_signals = keep_signals_away()?;
    let (wire, config) = Wire::open(UnixStream::from(socket))?;
    let warnings = Warnings::new(&config.node, config.json);
    warnings.catch_panics();
    if let Err(error) = guard_by(wire, config, job, child_signals, &warnings) {
        warnings.warn(&format!("it ends, since the system refuses what it needs: {error}"));
    }
    warnings.finish();
    Ok(())
}

/// Guards the job of `config` until nothing is left to guard.
fn guard_by(
    wire: Wire,
    config: GuardianConfig,
    job: Option<Program>,
    child_signals: UnixStream,
    warnings: &Warnings,
) -> io::Result<()> {
    let niceness = precedence::take();
    memory::let_go_of_program_text();
    let mut cgroup = Cgroup::create(&config.mark);
    let warmed_up = warmup::warm_up(&config, &mut cgroup);
    if let Err(error) = memory::keep_what_is_here().and(warmed_up) {
        let what = "what is needed to end a job cannot be kept in memory (ulimit -l), so it may have to wait for the disk";
        warnings.warn(&format!("{what}: {error}"));
    }
    let supervisor = Pid::from_raw(config.supervisor).ok_or(io::ErrorKind::InvalidInput)?;
    // If the supervisor has died already, its number may belong to another process by now; but then the parent has
    // changed.
    let pidfd = pidfd_open(supervisor, PidfdFlags::empty()).ok().filter(|_| getppid() == Some(supervisor));
    let mut guardian = Guardian {
        wire,
        supervisor: pidfd,
        child_signals,
        timer: BootTimer::new()?,
        notifier: Notifier::new(config.death_notice.as_ref(), warnings),
        warnings: warnings.clone(),
        config,
        job,
        niceness,
        cgroup,
        watchdog: None,
        feed_at: None,
        is_unwatched: false,
        was_too_short: false,
        job_run: None,
        stop: StopAttempts::default(),
        supervisor_lost: false,
        leave_taken: false,
        settled_at: Some(clock::now().after(memory::SETTLING_TIME)),
    };
    let cgroup = guardian.cgroup.as_ref().map(|cgroup| cgroup.dir().to_owned());
    guardian.wire.say(&Report::Ready { cgroup: cgroup.map_err(String::clone) });
    guardian.watch()
}

/// Turns the end of children into bytes on a socket, and handles the signals that would end this process.
fn keep_signals_away() -> io::Result<UnixStream> {
    let (ours, handlers) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, handlers)?;
    signals::outlive()?;
    Ok(ours)
}

impl Guardian {
    fn watch(&mut self) -> io::Result<()> {
        // The first commands may have come together with the configuration.
        let mut supervisor_dead = false;
        loop {
            // Taken before the commands are read: if this process is paused after that, commands that arrive meanwhile
            // are read in the next turn, before a later time is looked at.
            let now = clock::now();
            self.take_orders();
            if supervisor_dead || self.wire.closed() {
                self.on_supervisor_lost();
            }
            self.reap();
            self.start_if_due();
            if self.feed_at.is_some_and(|at| now >= at) {
                self.feed();
            }
            self.on_time(now);
            if self.measure_at().is_some_and(|at| now >= at) {
                self.measure();
            }
            if self.settled_at.is_some_and(|at| now >= at) {
                self.settled_at = None;
                memory::let_go_of_program_text();
            }
            if self.job_run.is_none() {
                if let Ok(cgroup) = &self.cgroup
                    && (self.leave_taken || self.supervisor_lost)
                {
                    cgroup.remove();
                }
                if self.leave_taken {
                    return Ok(());
                }
                if self.supervisor_lost {
                    return self.tell_of_the_death();
                }
            }
            supervisor_dead = self.wait()?;
        }
    }

    /// Waits for an event or the next deadline, and returns whether the supervisor is found dead.
    fn wait(&mut self) -> io::Result<bool> {
        let deadline = self.job_run.as_ref().and_then(|job_run| self.deadline(job_run));
        let others = [self.settled_at, self.measure_at(), self.feed_at].into_iter().flatten();
        self.timer.set(deadline.into_iter().chain(others).min());
        let mut wire = PollFlags::IN;
        if self.wire.has_unsent() {
            wire |= PollFlags::OUT;
        }
        let mut polled =
            vec![PollFd::new(&self.child_signals, PollFlags::IN), PollFd::new(&self.timer, PollFlags::IN)];
        // A closed stream stays readable for good, so it is not polled any more.
        if !self.wire.closed() {
            polled.push(PollFd::new(self.wire.stream(), wire));
        }
        let watched = self.supervisor.as_ref().filter(|_| !self.supervisor_lost);
        if let Some(pidfd) = watched {
            polled.push(PollFd::new(pidfd, PollFlags::IN));
        } else if !self.supervisor_lost {
            return Ok(true);
        }
        match poll(&mut polled, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let last = polled.last().map(PollFd::revents);
        let supervisor_dead = watched.is_some() && last.is_some_and(|events| events.contains(PollFlags::IN));
        let mut bytes = [0; 64];
        while self.child_signals.read(&mut bytes).is_ok_and(|count| count > 0) {}
        Ok(supervisor_dead)
    }

    fn take_orders(&mut self) {
        for command in self.wire.hear() {
            match command {
                GuardianCommand::Start { term, fenced, valid_until, granted } if self.job_run.is_none() => {
                    self.take_charge(term, fenced, (valid_until, granted), JobState::Due);
                }
                GuardianCommand::Finish { term, fenced, valid_until, granted } if self.job_run.is_none() => {
                    // This guardian has no child, so the commands that follow are next.
                    let stage = JobState::Draining { kill_at: Instant::NEVER };
                    self.take_charge(term, fenced, (valid_until, granted), stage);
                    self.take_over_watchdog();
                }
                // The supervisor waits for `Gone` before the next start, so this is its error. It gets an answer, so
                // that it does not wait for ever.
                GuardianCommand::Start { term, .. } | GuardianCommand::Finish { term, .. } => {
                    self.wire.say(&Report::NotStarted { term, reason: NotStarted::TooLate });
                    self.wire.say(&Report::Gone { term, stop_failed: self.stop.is_owed() });
                }
                GuardianCommand::Extend { term, valid_until, granted } => {
                    self.extend(term, Instant::from_nanos(valid_until), Duration::from_nanos(granted));
                }
                GuardianCommand::Stop { term } => self.stop(term),
                GuardianCommand::Kill { term, gives_up } => self.kill(term, gives_up),
                GuardianCommand::Reach { death_notice } => {
                    self.notifier.reach(death_notice);
                    self.settled_at = Some(clock::now().after(memory::SETTLING_TIME)); // It connects.
                }
                GuardianCommand::Leave => self.leave_taken = true,
            }
        }
    }

    fn take_charge(&mut self, term: u64, fenced: bool, (valid_until, granted): (u64, u64), stage: JobState) {
        let (valid_until, granted) = (Instant::from_nanos(valid_until), Duration::from_nanos(granted));
        self.stop = StopAttempts::default();
        let kill_time = KillTime::default();
        let longest_left = valid_until.since(clock::now());
        let (awaits_renewal, main) = (self.was_too_short, None);
        self.job_run = Some(JobRun {
            term,
            fenced,
            valid_until,
            granted,
            longest_left,
            awaits_renewal,
            stage,
            kill_time,
            main,
        });
    }

    fn job_run_of(&mut self, term: u64) -> Option<&mut JobRun> {
        self.job_run.as_mut().filter(|job_run| job_run.term == term)
    }

    fn extend(&mut self, term: u64, valid_until: Instant, granted: Duration) {
        if let Some(job_run) = self.job_run_of(term) {
            job_run.granted = granted;
            job_run.valid_until = job_run.valid_until.max(valid_until);
            job_run.longest_left = job_run.longest_left.max(valid_until.since(clock::now()));
            job_run.awaits_renewal = false;
            let valid_until = job_run.valid_until.as_nanos();
            self.wire.say(&Report::Extended { term, valid_until });
            self.fit_watchdog();
            self.feed();
        }
    }

    /// Arms the watchdog before anything is started. Fails if nothing may be started.
    fn arm(&mut self) -> Result<(), String> {
        let (Some(spec), Some(job_run)) = (&self.config.watchdog, &self.job_run) else { return Ok(()) };
        // If the command came late, less of the lead is left.
        let left = watchdog::whole_seconds(job_run.reset_by(&self.config).since(clock::now()));
        let seconds =
            job_run.watchdog_seconds(spec, &self.config).and_then(|seconds| match seconds.min(left) {
                seconds @ 1.. => Ok(seconds),
                _ => Err(io::Error::other("too little of the lead is left")),
            });
        self.is_unwatched = seconds.is_err();
        match seconds.and_then(|seconds| spec.arm(seconds)) {
            Ok(watchdog) => {
                self.watchdog = Some(watchdog);
                self.was_too_short = false;
                self.feed();
                Ok(())
            }
            Err(error) if spec.is_required => Err(spec.explain(&error)),
            Err(error) if self.is_unwatched => {
                self.warn_unwatched(&spec.explain(&error));
                Ok(())
            }
            Err(_) => Ok(()), // It was tried at the start, and that was told.
        }
    }

    /// Adapts the watchdog's timeout to the shortest promise that the lead rests on, which may change with each
    /// renewal.
    fn fit_watchdog(&mut self) {
        let (Some(spec), Some(job_run)) = (&self.config.watchdog, &self.job_run) else { return };
        let seconds = job_run.watchdog_seconds(spec, &self.config);
        let is_working = matches!(job_run.stage, JobState::Preparing | JobState::Working);
        let Some(watchdog) = &mut self.watchdog else {
            if self.is_unwatched && is_working && seconds.is_ok() {
                let _ = self.arm();
            }
            return;
        };
        let reset_by = job_run.reset_by(&self.config);
        let is_too_short = seconds.is_err();
        let fitted = seconds.and_then(|seconds| watchdog.set(seconds, reset_by, clock::now()));
        let Err(error) = fitted else { return };
        let why = spec.explain(&error);
        self.was_too_short = is_too_short;
        if !spec.is_required {
            self.is_unwatched = true;
            self.disarm();
            self.warn_unwatched(&why);
        } else if is_working {
            // The watchdog stays armed, and is not fed, until the job is gone.
            self.drain(Stopping::Watchdog(why));
        }
    }

    fn warn_unwatched(&self, why: &str) {
        self.warnings.warn(&format!("{why}; this node leads without it"));
    }

    /// Arms the watchdog again that a dead guardian has left armed, so that it is fed while the stop command runs.
    /// Opening the device feeds it; if it is too late for that, the watchdog is left alone and resets the machine.
    fn take_over_watchdog(&mut self) {
        let (Some(spec), Some(job_run)) = (&self.config.watchdog, &self.job_run) else { return };
        let Ok(seconds) = job_run.watchdog_seconds(spec, &self.config) else { return };
        let is_early = clock::now().after(watchdog::from_seconds(seconds)) <= job_run.reset_by(&self.config);
        if self.config.stop_command.is_some() && is_early {
            let _ = self.arm(); // If it cannot be, it resets the machine.
        }
    }

    /// Feeds the watchdog, if there is one, unless it would then reset the machine too late.
    fn feed(&mut self) {
        let (Some(watchdog), Some(job_run)) = (&self.watchdog, &self.job_run) else { return };
        self.feed_at = watchdog.feed_until(job_run.reset_by(&self.config), clock::now());
    }

    /// Disarms the watchdog, when no process of the lead is left on this machine. While a stop command has not
    /// succeeded, the watchdog stays armed and is no longer fed.
    fn disarm(&mut self) {
        self.feed_at = None;
        if let Some(watchdog) = self.watchdog.take()
            && !self.stop.is_owed()
        {
            watchdog.disarm();
        }
    }

    fn stop(&mut self, term: u64) {
        let Some(stage) = self.job_run_of(term).map(|job_run| job_run.stage) else {
            return; // It is gone, and the report of that is under way.
        };
        match stage {
            JobState::Due => self.gone(),
            JobState::Preparing | JobState::Working => self.drain(Stopping::Asked),
            // The job is being ended already.
            JobState::Draining { .. }
            | JobState::StopCommand { .. }
            | JobState::StopFailed { .. }
            | JobState::Parting { .. } => {}
        }
    }

    fn kill(&mut self, term: u64, gives_up: bool) {
        match self.job_run_of(term).map(|job_run| job_run.stage) {
            None => {}
            Some(JobState::StopCommand { .. } | JobState::StopFailed { .. }) if !gives_up => {}
            // The stop command would count as failed when it is killed, and is not to be run again.
            Some(JobState::StopCommand { .. }) => self.stop.give_up(),
            Some(JobState::StopFailed { .. }) => {
                self.stop.give_up();
                self.gone();
            }
            Some(
                JobState::Due
                | JobState::Preparing
                | JobState::Working
                | JobState::Draining { .. }
                | JobState::Parting { .. },
            ) => self.end_now(),
        }
    }

    fn on_supervisor_lost(&mut self) {
        if self.supervisor_lost {
            return;
        }
        self.supervisor_lost = true;
        match self.job_run.as_ref().map(|job_run| job_run.stage) {
            Some(JobState::Due) => self.gone(),
            Some(JobState::Preparing | JobState::Working | JobState::Draining { .. }) => self.end_now(),
            // The commands that follow the job may finish: they clean up, and have deadlines of their own.
            Some(JobState::StopCommand { .. } | JobState::StopFailed { .. } | JobState::Parting { .. })
            | None => {}
        }
    }

    /// Reaps all children, and takes the next step if the awaited child is among them.
    fn reap(&mut self) {
        let mut main_ended = None;
        let main = self.job_run.as_ref().and_then(|job_run| job_run.main);
        reap(|pid, ended| {
            if Some(pid) == main {
                main_ended = Some(ended);
            }
        });
        if let Some(ended) = main_ended {
            self.on_main_ended(ended);
        }
        let stage = self.job_run.as_ref().map(|job_run| job_run.stage);
        let ending = matches!(
            stage,
            Some(JobState::Draining { .. } | JobState::StopCommand { .. } | JobState::Parting { .. })
        );
        if ending && children() == Children::None {
            self.gone();
        }
    }

    fn on_main_ended(&mut self, ended: Ended) {
        let Some(job_run) = &mut self.job_run else { return };
        job_run.main = None;
        let term = job_run.term;
        match job_run.stage {
            JobState::Preparing => {
                self.wire.say(&Report::HookEnded { term, hook: Hook::Elected, ended });
                if ended == Ended::Code(0) {
                    self.start_job();
                } else {
                    self.wire.say(&Report::NotStarted { term, reason: NotStarted::Hook });
                    self.drain(Stopping::Leftovers);
                }
            }
            JobState::Working => {
                self.wire.say(&Report::Exited { term, ended });
                self.drain(Stopping::Leftovers);
            }
            JobState::Draining { .. } => self.wire.say(&Report::Exited { term, ended }),
            JobState::StopCommand { .. } => self.on_stop_command_ended(term, ended),
            JobState::Parting { .. } => {
                self.wire.say(&Report::HookEnded { term, hook: Hook::Deposed, ended });
            }
            JobState::Due | JobState::StopFailed { .. } => {} // Nothing runs.
        }
    }

    fn on_stop_command_ended(&mut self, term: u64, ended: Ended) {
        if ended == Ended::Code(0) {
            self.stop.succeed();
        }
        self.wire.say(&Report::HookEnded { term, hook: Hook::Stop, ended });
    }

    fn start_if_due(&mut self) {
        let is_due = |job_run: &&JobRun| job_run.stage == JobState::Due && !job_run.awaits_renewal;
        let Some(job_run) = self.job_run.as_ref().filter(is_due) else { return };
        let term = job_run.term;
        let recorded = self.record_stop_command(job_run).map_err(NotStarted::Record);
        if let Err(reason) = recorded.and_then(|()| self.arm().map_err(NotStarted::Watchdog)) {
            self.wire.say(&Report::NotStarted { term, reason });
            return self.drain(Stopping::Leftovers);
        }
        let Some(script) = self.config.on_elected.clone() else { return self.start_job() };
        if let Some(pid) = self.start(&Program::shell(), JobState::Preparing, &[(job::SCRIPT, script)]) {
            tracing::debug!(term, pid = pid.as_raw_nonzero().get(), "hook started");
        }
    }

    /// Puts the stop command on record before anything is started, so that the next run of this node runs it if this
    /// one cannot.
    fn record_stop_command(&self, job_run: &JobRun) -> Result<(), String> {
        let (Some(path), Some(command)) = (&self.config.stop_record, self.config.stop_command.clone()) else {
            return Ok(());
        };
        let written = StopRecord { command, term: job_run.term, fenced: job_run.fenced }.write(path);
        written.map_err(|error| {
            format!(
                "the --stop-command cannot be put on record, and would not be run if this node and its guardian were killed together: \
                 {error}"
            )
        })
    }

    fn start_job(&mut self) {
        let Some(job) = self.job.clone() else {
            if let Some(job_run) = &mut self.job_run {
                job_run.stage = JobState::Working;
            }
            return;
        };
        let Some(pid) = self.start(&job, JobState::Working, &[]) else { return };
        self.settled_at = Some(clock::now().after(memory::SETTLING_TIME));
        let is_searched_for = self.cgroup.is_err();
        let Some(job_run) = &mut self.job_run else { return };
        // In a control group the kernel kills all processes at once, however many there are.
        if is_searched_for {
            job_run.kill_time.begin(clock::now());
        }
        self.wire.say(&Report::Started { term: job_run.term, pid: pid.as_raw_nonzero().get() });
    }

    /// Starts the next process of the leadership. If that fails, ends the work of the leadership.
    fn start(
        &mut self,
        program: &Program,
        stage: JobState,
        more_env: &[(&'static str, String)],
    ) -> Option<Pid> {
        let job_run = self.job_run.as_mut()?;
        let too_late = match stage {
            JobState::StopCommand { kill_at } | JobState::Parting { kill_at } => kill_at,
            JobState::Due
            | JobState::Preparing
            | JobState::Working
            | JobState::Draining { .. }
            | JobState::StopFailed { .. } => job_run.stop_at(&self.config),
        };
        let mut env = vec![
            ("PRIMACY_ELECTION", self.config.election.clone()),
            ("PRIMACY_ID", self.config.node.clone()),
            ("PRIMACY_TERM", job_run.term.to_string()),
            (crate::leftovers::MARK, self.config.mark.clone()),
        ];
        env.extend(job_run.fenced.then(|| (job::TOKEN, job_run.term.to_string())));
        env.extend_from_slice(more_env);
        let error = match job::start(program, &env, too_late, self.niceness, self.cgroup.as_ref().ok()) {
            Ok(pid) => {
                job_run.stage = stage;
                job_run.main = Some(pid);
                return Some(pid);
            }
            Err(error) => error,
        };
        let term = job_run.term;
        if stage == JobState::Working || stage == JobState::Preparing {
            let errno = error.raw_os_error().unwrap_or(0);
            let too_late = errno == rustix::io::Errno::TIME.raw_os_error();
            let reason =
                if too_late { NotStarted::TooLate } else { NotStarted::System(errno, error.to_string()) };
            self.wire.say(&Report::NotStarted { term, reason });
            self.drain(Stopping::Leftovers);
        } else {
            let hook =
                if matches!(stage, JobState::StopCommand { .. }) { "stop-command" } else { "on-deposed" };
            self.warnings.warn(&format!("--{hook} could not be started: {error}"));
        }
        None
    }

    fn measure_at(&self) -> Option<Instant> {
        self.job_run.as_ref()?.kill_time.measure_at()
    }

    /// Measures how long it takes to kill the job.
    fn measure(&mut self) {
        self.feed(); // Nothing else is done meanwhile.
        let Some(job_run) = &mut self.job_run else { return };
        let latest = clock::now().after(KillTime::longest_search(job_run.granted));
        let (processes, found) = time_to_find_descendants(latest.min(job_run.stop_at(&self.config)));
        let margin = job_run.kill_margin(&self.config);
        if let Some(takes) = job_run.kill_time.on_measured(clock::now(), found, margin) {
            self.wire.say(&Report::SlowKill { processes, takes: takes.as_nanos() });
        }
    }

    /// Asks all processes to end, and sets the time at which they are killed.
    fn drain(&mut self, reason: Stopping) {
        let Some(job_run) = &self.job_run else { return };
        let kill_at =
            clock::now().after(job_run.drain_of_job(&self.config)).min(job_run.job_kill_at(&self.config));
        let Some(job_run) = &mut self.job_run else { return };
        job_run.kill_time.end_measuring();
        let before = job_run.stage;
        job_run.stage = JobState::Draining { kill_at };
        let (term, main) = (job_run.term, job_run.main);
        if children() == Children::None {
            // No process was left behind, or none was started.
            return if before == JobState::Due { self.let_go() } else { self.gone() };
        }
        self.wire.say(&Report::Stopping { term, reason });
        // A stopped process does not see SIGTERM until it is continued.
        let signals = [Signal::TERM, Signal::CONT];
        if let Some(main) = main {
            // The first process was not reaped, so its group still has its number. The group is signalled in one step,
            // so that no process that is just being started is missed. It is signalled first, since the other processes
            // must be searched for.
            for signal in signals {
                let _ = kill_process_group(main, signal);
            }
        }
        // If this takes too long, the remaining processes are killed.
        signal_descendants(&signals, kill_at, |pid| main.is_none() || getpgid(Some(pid)).ok() != main);
    }

    fn on_time(&mut self, now: Instant) {
        let Some(job_run) = &self.job_run else { return };
        if self.deadline(job_run).is_none_or(|deadline| now < deadline) {
            return;
        }
        match job_run.stage {
            JobState::Due | JobState::Preparing | JobState::Working => self.drain(Stopping::Deadline),
            JobState::Draining { .. } | JobState::StopCommand { .. } | JobState::Parting { .. } => {
                self.end_now()
            }
            JobState::StopFailed { .. } => self.gone(),
        }
    }

    /// Returns the time of the next step for the leadership, if no event comes before.
    fn deadline(&self, job_run: &JobRun) -> Option<Instant> {
        Some(match job_run.stage {
            JobState::Due if job_run.awaits_renewal => job_run.stop_at(&self.config),
            JobState::Due => return None,
            JobState::Preparing | JobState::Working => job_run.stop_at(&self.config),
            JobState::Draining { kill_at }
            | JobState::StopCommand { kill_at }
            | JobState::Parting { kill_at } => kill_at,
            // After the lead of a dead supervisor has ended, the lead need not be kept.
            JobState::StopFailed { retry_at } if self.supervisor_lost => retry_at.min(job_run.valid_until),
            JobState::StopFailed { retry_at } => retry_at,
        })
    }

    /// Kills all remaining processes, and returns when they are gone.
    fn end_now(&mut self) {
        let Some(job_run) = &mut self.job_run else { return };
        let (term, stage) = (job_run.term, job_run.stage);
        let main = job_run.main.take();
        job_run.kill_time.end_measuring();
        if !self.supervisor_lost {
            self.wire.say(&Report::Killing { term });
        }
        let mut ends = None;
        end_descendants(main, self.cgroup.as_ref().ok(), |pid, ended| {
            if Some(pid) == main {
                ends = Some(ended);
            }
        });
        if let Some(ended) = ends {
            match stage {
                JobState::StopCommand { .. } => self.on_stop_command_ended(term, ended),
                JobState::Parting { .. } => {
                    self.wire.say(&Report::HookEnded { term, hook: Hook::Deposed, ended });
                }
                JobState::Preparing => self.wire.say(&Report::HookEnded { term, hook: Hook::Elected, ended }),
                JobState::Due
                | JobState::Working
                | JobState::Draining { .. }
                | JobState::StopFailed { .. } => {
                    self.wire.say(&Report::Exited { term, ended });
                }
            }
        }
        self.gone();
    }

    /// No process of this state is left: goes on to the commands that follow the job, or reports `Gone`.
    fn gone(&mut self) {
        let Some(job_run) = &self.job_run else { return };
        match job_run.stage {
            JobState::Preparing | JobState::Working | JobState::Draining { .. } => {
                if self.config.stop_command.is_some() {
                    self.stop.begin();
                }
            }
            JobState::StopCommand { .. } if self.stop.is_owed() => return self.on_stop_failed(),
            JobState::StopCommand { .. } | JobState::StopFailed { .. } => {}
            JobState::Due | JobState::Parting { .. } => return self.let_go(),
        }
        // After the lead of a dead supervisor has ended, another run could end the work of this node's next lead.
        let is_useless = self.supervisor_lost
            && matches!(job_run.stage, JobState::StopFailed { .. })
            && clock::now() >= job_run.valid_until;
        match self.config.stop_command.clone() {
            Some(script) if self.stop.is_owed() && !self.stop.is_given_up() && !is_useless => {
                self.run_stop_command(&script);
            }
            Some(_) | None => self.part(),
        }
    }

    fn run_stop_command(&mut self, script: &str) {
        let Some(job_run) = &self.job_run else { return };
        // The work of other processes for the job must end, even late, so the command has at least this time.
        let at_least = clock::now().after(job_run.drain_of_job(&self.config));
        let kill_at = job_run.follow_up_until(&self.config).max(at_least);
        if !self.follow_up(script, JobState::StopCommand { kill_at }) {
            self.on_stop_failed();
        }
    }

    /// The stop command has failed, or could not be started: it is run again after a pause, and nothing follows before
    /// it has succeeded.
    fn on_stop_failed(&mut self) {
        let (failures, pause) = self.stop.fail();
        let Some(job_run) = &mut self.job_run else { return };
        job_run.stage = JobState::StopFailed { retry_at: clock::now().after(pause) };
        if self.stop.is_given_up() {
            return self.gone();
        }
        let term = job_run.term;
        self.wire.say(&Report::StopFailed { term, failures, pause: pause.as_nanos() });
        if self.supervisor_lost {
            self.warnings
                .warn(&format!("--stop-command has failed, {failures} time(s); run again in {pause}"));
        }
    }

    /// No process of the job is left, or the stop command was given up: runs the hook that follows.
    fn part(&mut self) {
        self.disarm();
        let Some(job_run) = &self.job_run else { return };
        let kill_at = job_run.follow_up_until(&self.config);
        let follows = self.config.on_deposed.clone();
        if !follows.is_some_and(|script| self.follow_up(&script, JobState::Parting { kill_at })) {
            self.let_go();
        }
    }

    /// Starts a command that follows the job, and returns whether it runs.
    fn follow_up(&mut self, script: &str, stage: JobState) -> bool {
        let held = self.job_run.as_ref().is_some_and(|job_run| clock::now() < job_run.kill_at(&self.config));
        let lead = if held { "held" } else { "lost" };
        let env = [("PRIMACY_LEAD", lead.to_owned()), (job::SCRIPT, script.to_owned())];
        let runs = self.start(&Program::shell(), stage, &env).is_some();
        if let Some(job_run) = self.job_run.as_ref().filter(|_| runs) {
            self.wire.say(&Report::Parting { term: job_run.term });
        }
        runs
    }

    fn let_go(&mut self) {
        self.disarm();
        if let Some(job_run) = self.job_run.take() {
            if let Some(path) = self.config.stop_record.as_ref().filter(|_| !self.stop.is_owed()) {
                stop_record::remove(path);
            }
            self.wire.say(&Report::Gone { term: job_run.term, stop_failed: self.stop.is_owed() });
            if let Ok(cgroup) = &mut self.cgroup {
                // If the group cannot be made anew, the next job is not in it, and is found in the process table.
                let _ = cgroup.renew();
            }
        }
    }

    /// Notifies the other nodes, when the supervisor has gone and no process of its job is left.
    fn tell_of_the_death(&mut self) -> io::Result<()> {
        // A closed socket is no proof of death; the process itself must be gone.
        while let Some(pidfd) = &self.supervisor {
            match poll(&mut [PollFd::new(pidfd, PollFlags::IN)], None) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.stop.is_owed() {
            let message = "--stop-command has not succeeded, so what it was to end may go on: the others are not told of the \
                           death of this node, and wait for the lease";
            self.warnings.warn(message);
            return Ok(());
        }
        // After a lease the other nodes know of the death by silence.
        self.notifier.notify(std::time::Duration::from_nanos(self.config.lease));
        Ok(())
    }
}

impl JobRun {
    /// Returns the time at which the job is asked to end if the leadership is not extended.
    fn stop_at(&self, config: &GuardianConfig) -> Instant {
        self.kill_at(config).before(self.drain(config)).min(self.job_kill_at(config))
    }

    /// Returns the time at which all remaining processes of the job are killed.
    fn job_kill_at(&self, config: &GuardianConfig) -> Instant {
        self.kill_at(config).min(self.kill_time.kill_by(self.valid_until, self.granted))
    }

    /// Returns the time that the work may take to end in order.
    fn drain(&self, config: &GuardianConfig) -> Duration {
        Duration::from_nanos(config.drain).scaled(self.granted, Duration::from_nanos(config.lease))
    }

    /// Returns the job's own part of the drain: a half if a stop command follows it.
    fn drain_of_job(&self, config: &GuardianConfig) -> Duration {
        let drain = self.drain(config);
        if config.stop_command.is_some() { drain.divided_by(2) } else { drain }
    }

    /// Returns the time at which everything is killed if the leadership is not extended.
    fn kill_at(&self, config: &GuardianConfig) -> Instant {
        self.valid_until.before(self.kill_margin(config))
    }

    /// Returns the time by which a command that follows the job must have ended. A command that runs after the lead is
    /// lost has a deadline, too.
    fn follow_up_until(&self, config: &GuardianConfig) -> Instant {
        let now = clock::now();
        let (drained, lead_ends) = (now.after(self.drain(config)), self.kill_at(config));
        if now < lead_ends { drained.min(lead_ends) } else { drained }
    }

    /// Returns the latest time at which the watchdog resets the machine.
    fn reset_by(&self, config: &GuardianConfig) -> Instant {
        self.valid_until.before(watchdog::slack(self.kill_margin(config)))
    }

    fn watchdog_seconds(&self, spec: &WatchdogSpec, config: &GuardianConfig) -> io::Result<i32> {
        spec.seconds(self.granted.min(watchdog::lasts(self.longest_left)), Duration::from_nanos(config.lease))
    }

    fn kill_margin(&self, config: &GuardianConfig) -> Duration {
        Duration::from_nanos(config.kill_margin).scaled(self.granted, Duration::from_nanos(config.lease))
    }
}
