//! The supervisor: holds the election, and has its guardian run the job while this node leads.
//!
//! It relays the end of the leadership to the guardian, which starts, stops and kills by itself. It releases the
//! lead only when the guardian has reported everything gone. If the guardian dies, or does not report in time, the
//! supervisor ends the remaining processes itself, since orphans of a dead guardian are handed to it.

mod earlier_run;

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration as StdDuration, Instant as StdInstant};

use primacy::core::{Duration, Instant};
use primacy::death_notice::DeathNoticeSpec;
use primacy::{
    CampaignError, Change, ElectionTrigger, Elector, Leadership, Mandate, Observer, Reason, WorkGuard, clock,
};
use rustix::process::{getpid, set_child_subreaper};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::boot_timer::AsyncBootTimer;
use crate::exit::{Exit, Failure};
use crate::guardian::handle::{Guardian, Notice};
use crate::guardian::job::Program;
use crate::guardian::message::{GuardianCommand, GuardianConfig, Hook, NotStarted, Report, Stopping};
use crate::notify;
use crate::orphans::Ender;
use crate::process_tree::{Ended, survivors};
use crate::report::{Event, Lead, Reporter};
use crate::signals::Signals;
use crate::slow_hook::{Late, SlowHook};
use crate::start_error;
use crate::stop_record::StopRecord;

/// A job that ended within this time after its start has ended too soon to be started again at once; the same
/// holds for a guardian.
const TOO_SOON: StdDuration = StdDuration::from_secs(1);
/// The first wait after a job that ended too soon or could not be started; each further one is twice as long. The
/// actual wait is random, between a half and all of it.
const BACKOFF_MIN: StdDuration = StdDuration::from_millis(100);
const BACKOFF_MAX: StdDuration = StdDuration::from_secs(10);
/// The time for which a former leader that is about to exit goes on voting for the next leader.
const STAY_MAX: StdDuration = StdDuration::from_millis(100);
/// The time after SIGKILL after which a process that has not ended is reported as unkillable.
const UNKILLABLE_AFTER: StdDuration = StdDuration::from_millis(500);
/// The bound of [`Wait::AtOnce`] in leases, for the case that there is no leader and none can be elected.
const LEASES_AT_ONCE: u32 = 3;

/// The settings of a supervisor.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The settings of the guardian.
    pub(crate) config: GuardianConfig,
    /// The job; without one, the node holds the lead and runs nothing.
    pub(crate) job: Option<Program>,
    /// The stop command of an earlier run, which has not succeeded.
    pub(crate) owed: Option<StopRecord>,
    /// The bound of the wait for the first election.
    pub(crate) wait: Wait,
    /// Campaign again after the job's own end.
    pub(crate) restart: bool,
    /// Whether other nodes elect a new leader when this node no longer leads.
    pub(crate) has_peers: bool,
}

/// The bound of a wait to be elected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For as long as it takes.
    Forever,
    /// For this long.
    For(StdDuration),
    /// Until another node is known to lead.
    AtOnce,
}

/// Takes part in the election until the job has ended, or a signal asks the process to end.
pub(crate) struct Supervisor {
    elector: Elector,
    settings: Settings,
    guardian: Guardian,
    guarded_since: StdInstant,
    /// The time to wait before the next guardian starts, if this one ends too soon.
    guardian_backoff: StdDuration,
    /// The directory of the control group in which the guardian starts all processes.
    cgroup: Option<PathBuf>,
    signals: Signals,
    reporter: Reporter,
    timer: AsyncBootTimer,
    ender: Ender,
    began: StdInstant,
    /// Locked while a process is started, and while all processes are ended.
    starting: Arc<Mutex<()>>,
    has_led: bool,
}

/// The end of a campaign.
enum CampaignEnd {
    Elected(Leadership<Mandate>),
    NotInTime,
    Asked(i32),
    /// The guardian died. Without a guardian this node must not lead.
    GuardianDied,
}

/// The end of the guardian's work for a leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GuardianEnd {
    /// The guardian has reported everything gone.
    Gone { stop_failed: bool },
    /// The guardian is dead, and this process must end the processes that it has left.
    GuardianDied,
}

/// The end of a leadership.
#[derive(Clone, Debug)]
struct LeadershipEnd {
    /// The job's own end, if that is what ended the leadership.
    job: Option<JobEnd>,
    /// The number of the signal that ended it.
    asked: Option<i32>,
    /// The reason, for people.
    reason: String,
}

/// The job's own end.
#[derive(Clone, Debug)]
enum JobEnd {
    Ended {
        ended: Ended,
        too_soon: bool,
    },
    /// The system refused, and may do so again; or the stop command could not be put on record; or the watchdog cannot
    /// guard the running job.
    NotStarted {
        /// The exit code to end with; nothing if the refusal may pass.
        exit: Option<Exit>,
        message: String,
    },
    /// The hook that precedes it failed. The hook may succeed the next time.
    HookFailed {
        message: String,
    },
}

/// A running leadership.
struct LeadershipRun {
    lead: Lead,
    /// The end of the leadership, as the guardian has last confirmed it.
    confirmed_until: Instant,
    /// The time for which it lasts without renewal.
    granted: Duration,
    started_at: Option<Instant>,
    /// The time at which the job was asked to end, whatever the reason.
    stopping_since: Option<Instant>,
    /// The start of the latest command that follows the job, or the time by which it must start.
    parting_since: Option<Instant>,
    /// The hook that precedes the job, while it runs.
    hook: Option<SlowHook>,
    /// True after a second signal: a command that fails is not tried again.
    is_hurried: bool,
    led: LeadershipEnd,
}

impl Supervisor {
    /// Starts the guardian. Other code that starts processes here holds `starting` while doing so.
    pub(crate) fn new(
        elector: Elector,
        settings: Settings,
        reporter: Reporter,
        starting: Arc<Mutex<()>>,
    ) -> io::Result<Self> {
        // The orphans of a guardian that dies are handed to us.
        set_child_subreaper(Some(getpid()))?;
        let signals = Signals::listen()?;
        let timer = AsyncBootTimer::new()?;
        let ender = Ender::start()?;
        let guardian = start_guardian(&settings, &reporter)?;
        tokio::spawn(report_changes(elector.observe(), reporter.clone()));
        let guarded_since = StdInstant::now();
        Ok(Self {
            elector,
            settings,
            guardian,
            guarded_since,
            guardian_backoff: BACKOFF_MIN,
            cgroup: None,
            signals,
            reporter,
            timer,
            ender,
            began: StdInstant::now(),
            starting,
            has_led: false,
        })
    }

    /// Campaigns and leads in turns.
    pub(crate) async fn run(mut self) -> Result<Exit, Failure> {
        let result = self.stand_and_lead().await;
        if self.has_led && self.settings.has_peers {
            self.stay_for_the_election().await;
        }
        self.guardian.take_leave().await;
        // This node holds nothing any more, so it does not wait for a store that does not answer.
        let lease = StdDuration::from_nanos(self.settings.config.lease);
        let _ = tokio::time::timeout(lease, self.elector.close()).await;
        result
    }

    /// Votes in the election of the next leader before this process exits. The exit can wait: where the nodes share a
    /// machine, it would slow the election down.
    async fn stay_for_the_election(&self) {
        let mut observer = self.elector.observe();
        let elected = async {
            while let Some(change) = observer.changed().await {
                if matches!(change, Change::Leader(Some(_))) {
                    return;
                }
            }
        };
        // Without a majority no leader is elected, so the wait is bounded.
        let _ = tokio::time::timeout(STAY_MAX, elected).await;
    }

    async fn stand_and_lead(&mut self) -> Result<Exit, Failure> {
        if let Some(exit) = self.end_earlier_run().await? {
            return Ok(exit);
        }
        let mut backoff = BACKOFF_MIN;
        loop {
            let leadership = match self.stand().await? {
                CampaignEnd::Elected(leadership) => leadership,
                CampaignEnd::NotInTime => return Ok(Exit::NotElected),
                CampaignEnd::Asked(signal) => {
                    notify::stopping();
                    return Ok(Exit::Signal(signal));
                }
                CampaignEnd::GuardianDied => {
                    self.reporter.tell(&Event::GuardianLost);
                    match self.replace_guardian().await? {
                        Some(signal) => return Ok(Exit::Signal(signal)),
                        None => continue,
                    }
                }
            };
            let led = self.lead(leadership).await?;
            if let Some(signal) = led.asked {
                return Ok(Exit::Signal(signal));
            }
            if !matches!(led.job, Some(JobEnd::NotStarted { .. })) {
                // This node has led, and the setting bounds the wait for the first election only.
                self.settings.wait = Wait::Forever;
            }
            match led.job {
                Some(JobEnd::NotStarted { exit: Some(exit), message }) if !self.settings.restart => {
                    return Err(Failure::new(exit, message));
                }
                Some(JobEnd::HookFailed { message }) if !self.settings.restart => {
                    return Err(Failure::new(Exit::Failed, message));
                }
                Some(JobEnd::Ended { ended, .. }) if !self.settings.restart => {
                    return Ok(Exit::Job(ended.exit_code()));
                }
                None | Some(JobEnd::Ended { too_soon: false, .. }) => {
                    backoff = BACKOFF_MIN;
                    continue;
                }
                Some(JobEnd::Ended { .. }) => {}
                // Another node may be able to start the job. It needs time to see that the lead is free.
                Some(JobEnd::NotStarted { .. } | JobEnd::HookFailed { .. }) => {
                    backoff = backoff.max(self.elector.timers().renewal).min(BACKOFF_MAX);
                }
            }
            if let Some(signal) = self.back_off(backoff, &led.reason).await {
                return Ok(Exit::Signal(signal));
            }
            backoff = (backoff * 2).min(BACKOFF_MAX);
        }
    }

    /// Waits for a random part of this time, with `why` as the reason, unless a signal asks the process to end.
    async fn back_off(&mut self, backoff: StdDuration, why: &str) -> Option<i32> {
        let backoff = between_half_and_all(backoff);
        self.reporter.tell(&Event::Backoff { ms: u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX) });
        let elector = self.elector.clone();
        elector.explain_not_campaigning(Some(format!("{why}; it campaigns again after a pause")));
        let over = sleep(backoff);
        tokio::pin!(over);
        loop {
            tokio::select! {
                signal = self.signals.next() => {
                    notify::stopping();
                    return Some(signal);
                }
                death_notice = elector.death_notice_spec_changed(self.settings.config.death_notice.as_ref()) => {
                    self.renew_death_notice(death_notice);
                }
                () = &mut over => {
                    elector.explain_not_campaigning(None);
                    return None;
                }
            }
        }
    }

    async fn stand(&mut self) -> Result<CampaignEnd, Failure> {
        self.reporter.tell(&Event::Campaigning);
        let too_late = too_late(self.settings.wait, self.began, self.elector.clone());
        let elector = self.elector.clone();
        let campaign = elector.campaign_any();
        tokio::pin!(too_late, campaign);
        loop {
            tokio::select! {
                biased;
                elected = &mut campaign => return Ok(CampaignEnd::Elected(elected?)),
                signal = self.signals.next() => return Ok(CampaignEnd::Asked(signal)),
                notice = self.guardian.next() => match notice {
                    Notice::Report(Report::Ready { cgroup }) => self.on_guardian_ready(cgroup),
                    Notice::Report(_) => {}
                    Notice::Died => return Ok(CampaignEnd::GuardianDied),
                },
                death_notice = elector.death_notice_spec_changed(self.settings.config.death_notice.as_ref()) => {
                    self.renew_death_notice(death_notice);
                }
                () = &mut too_late => return Ok(CampaignEnd::NotInTime),
            }
        }
    }

    async fn lead(&mut self, leadership: Leadership<Mandate>) -> Result<LeadershipEnd, Failure> {
        let lead = match leadership.mandate() {
            Mandate::Fenced(token) => Lead::new(token.0, true),
            Mandate::Advisory => Lead::new(leadership.term().0, false),
        };
        let valid_until = leadership.valid_until();
        let led = LeadershipEnd { job: None, asked: None, reason: "it was lost at once".to_owned() };
        let Ok(guard) = leadership.guard() else {
            return Ok(led); // Before anything was started.
        };
        let (term, fenced) = (lead.term(), lead.is_fenced());
        let granted = self.granted(&leadership);
        let valid_until_ns = valid_until.as_nanos();
        self.guardian.tell(GuardianCommand::Start {
            term,
            fenced,
            valid_until: valid_until_ns,
            granted: granted.as_nanos(),
        });
        let evidence = leadership.trigger().map(evidence);
        self.reporter.tell(&Event::Elected {
            lead,
            valid_for_ms: (valid_until < Instant::NEVER).then(|| milliseconds_to(valid_until)),
            evidence,
        });
        let mut run =
            LeadershipRun {
                lead,
                confirmed_until: valid_until,
                granted,
                started_at: None,
                stopping_since: None,
                parting_since: None,
                hook: self.settings.config.on_elected.as_ref().map(|_| {
                    SlowHook::begins(clock::now(), Duration::from_nanos(self.settings.config.lease))
                }),
                is_hurried: false,
                led,
            };
        let mut followed = self.follow(&leadership, &guard, &mut run).await;
        if followed == GuardianEnd::GuardianDied {
            self.end_what_a_guardian_left(&guard, lead).await;
            followed = self.finish_by_other_guardians(&leadership, &guard, &mut run).await;
        }
        let has_stopped = match followed {
            GuardianEnd::Gone { stop_failed } => !stop_failed,
            GuardianEnd::GuardianDied => self.settings.config.stop_command.is_none(),
        };
        if !has_stopped {
            self.keep_for_a_lease(&leadership, &guard, lead).await;
        }
        self.reporter.tell(&Event::Drained { lead });
        // Everything is gone: only now may another node lead.
        drop(guard);
        leadership.resign().await;
        self.has_led = true;
        self.reporter.tell(&Event::Released { lead, reason: run.led.reason.clone() });
        if followed == GuardianEnd::GuardianDied {
            let signal = self.replace_guardian().await?;
            run.led.asked = run.led.asked.or(signal);
        }
        Ok(run.led)
    }

    async fn end_what_a_guardian_left(&self, guard: &WorkGuard<Mandate>, lead: Lead) {
        self.reporter.tell(&Event::GuardianLost);
        self.end_what_is_left(|left| {
            guard.explain_delay(left.clone());
            self.reporter.tell(&Event::StillLeading { lead, reason: left });
        })
        .await;
        // The guardian has left the watchdog armed. It stays armed until the stop command has succeeded.
        if self.settings.config.stop_command.is_none() {
            self.disarm_watchdog();
        }
    }

    /// Disarms the watchdog that a dead guardian has left armed.
    fn disarm_watchdog(&self) {
        if let Some(watchdog) = &self.settings.config.watchdog {
            let _ = watchdog.try_out();
        }
    }

    /// Runs the commands that follow the job, after the job's guardian has died and none of its processes is left on
    /// this machine. New guardians run the stop command, one after another, until it has succeeded or is given up.
    async fn finish_by_other_guardians(
        &mut self,
        leadership: &Leadership<Mandate>,
        guard: &WorkGuard<Mandate>,
        run: &mut LeadershipRun,
    ) -> GuardianEnd {
        let must_stop = self.settings.config.stop_command.is_some();
        if !must_stop && self.settings.config.on_deposed.is_none() {
            return GuardianEnd::GuardianDied;
        }
        let mut pause = BACKOFF_MIN;
        loop {
            let followed = self.finish_by_another_guardian(leadership, guard, run).await;
            if followed == (GuardianEnd::Gone { stop_failed: false }) && must_stop {
                self.disarm_watchdog();
            }
            if followed != GuardianEnd::GuardianDied || !must_stop || run.is_hurried {
                return followed;
            }
            guard.explain_delay("its guardian has died, and its --stop-command has not succeeded");
            tokio::select! {
                () = sleep(pause) => {}
                signal = self.signals.next() => self.on_signal(signal, run),
            }
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    async fn finish_by_another_guardian(
        &mut self,
        leadership: &Leadership<Mandate>,
        guard: &WorkGuard<Mandate>,
        run: &mut LeadershipRun,
    ) -> GuardianEnd {
        match start_guardian(&self.settings, &self.reporter) {
            Ok(guardian) => self.guardian = guardian,
            Err(error) => {
                let message = format!("no guardian can be started for what follows the command: {error}");
                self.reporter.tell(&Event::Warning { message });
                return GuardianEnd::GuardianDied;
            }
        }
        self.guarded_since = StdInstant::now();
        let (lead, valid_until) = (run.lead, leadership.valid_until().as_nanos());
        let (term, fenced) = (lead.term(), lead.is_fenced());
        let granted = run.granted.as_nanos();
        self.guardian.tell(GuardianCommand::Finish { term, fenced, valid_until, granted });
        // The latest time at which the new guardian starts the first command. Each command that it starts sets this
        // time anew.
        run.parting_since = Some(clock::now().after(Duration::from_nanos(self.settings.config.lease)));
        let followed = self.follow(leadership, guard, run).await;
        if followed == GuardianEnd::GuardianDied {
            self.end_what_a_guardian_left(guard, lead).await;
        }
        followed
    }

    /// Keeps the lead for as long as other nodes would wait if this node had died in silence: work that other processes
    /// do for the job may go on.
    async fn keep_for_a_lease(
        &self,
        leadership: &Leadership<Mandate>,
        guard: &WorkGuard<Mandate>,
        lead: Lead,
    ) {
        let lease = StdDuration::from_nanos(self.settings.config.lease);
        let kept_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        guard.explain_delay(
            "its --stop-command has not succeeded and was given up, so others wait for a lease",
        );
        self.reporter.tell(&Event::StopGivenUp { lead, kept_ms });
        // A lead that is lost cannot be kept.
        let _ = tokio::time::timeout(lease, leadership.lost()).await;
    }

    /// Follows a leadership until no process of its job is left, or until its guardian has died.
    async fn follow(
        &mut self,
        leadership: &Leadership<Mandate>,
        guard: &WorkGuard<Mandate>,
        run: &mut LeadershipRun,
    ) -> GuardianEnd {
        let (mut ended, mut taken, mut settled) = (false, false, false);
        let mut known_until = run.confirmed_until;
        loop {
            self.timer.set(self.backstop(run));
            tokio::select! {
                biased;
                notice = self.guardian.next() => match notice {
                    Notice::Report(Report::Gone { term, stop_failed }) if term == run.lead.term() => {
                        return GuardianEnd::Gone { stop_failed };
                    }
                    Notice::Report(Report::Ready { cgroup }) => self.on_guardian_ready(cgroup),
                    Notice::Report(report) => {
                        if let Err(lost) = leadership.check() {
                            // The leadership has ended for this reason, whatever its job does now.
                            run.because(&leadership.why(lost.reason.unwrap_or(Reason::Expired)));
                        }
                        self.on_report(report, leadership, guard, run);
                    }
                    Notice::Died => {
                        run.because("the guardian died");
                        return GuardianEnd::GuardianDied;
                    }
                },
                renewed = leadership.renewed(known_until), if !settled => match renewed {
                    Some(valid_until) => {
                        known_until = valid_until;
                        run.granted = self.granted(leadership);
                        let (valid_until, granted) = (valid_until.as_nanos(), run.granted.as_nanos());
                        self.guardian.tell(GuardianCommand::Extend { term: run.lead.term(), valid_until, granted });
                    }
                    None => settled = true,
                },
                reason = leadership.taken(), if !taken => {
                    (taken, ended) = (true, true);
                    run.because(&leadership.why(reason));
                    self.guardian.tell(GuardianCommand::Kill { term: run.lead.term(), gives_up: false });
                }
                reason = leadership.ended(), if !ended => {
                    ended = true;
                    run.because(&leadership.why(reason));
                    self.guardian.tell(GuardianCommand::Stop { term: run.lead.term() });
                }
                signal = self.signals.next() => self.on_signal(signal, run),
                death_notice = self.elector.death_notice_spec_changed(self.settings.config.death_notice.as_ref()) => {
                    self.renew_death_notice(death_notice);
                }
                () = sleep_until(run.hook.as_ref().map(SlowHook::due)) => {
                    self.on_slow_hook(guard, run);
                }
                () = self.timer.elapsed() => {
                    // If this process itself was paused, the guardian may have reported the end long ago.
                    if !self.guardian.has_told() {
                        // The guardian is paused, or cannot finish. Its death is noticed next, and its remaining
                        // processes are ended here.
                        self.guardian.kill();
                        // On a busy machine the guardian's death takes long, and its job would go on until then.
                        self.kill_what_is_left().await;
                        self.guardian.died().await;
                    }
                }
            }
        }
    }

    fn on_guardian_ready(&mut self, cgroup: Result<PathBuf, String>) {
        let (dir, reason) = match cgroup {
            Ok(dir) => (Some(dir), None),
            Err(reason) => (None, Some(reason)),
        };
        self.reporter.tell(&Event::Cgroup { dir: dir.clone(), reason });
        self.cgroup = dir;
    }

    /// Sends the guardian the nodes that it is to notify of this process's death, after the voters have changed.
    fn renew_death_notice(&mut self, death_notice: DeathNoticeSpec) {
        // The same value was serialised for the guardian's start.
        if let Ok(death_notice) = serde_json::to_string(&death_notice) {
            self.guardian.tell(GuardianCommand::Reach { death_notice });
        }
        self.settings.config.death_notice = Some(death_notice);
    }

    /// Sends SIGKILL to all descendants. Processes that a dying guardian starts meanwhile may be missed.
    async fn kill_what_is_left(&self) {
        let _nobody_starts = self.starting.lock().await;
        self.ender.kill_all(self.cgroup.clone()).await;
    }

    /// Ends all processes that a dead guardian has left. A running health check is ended too, and counts as failed.
    /// Reports processes that cannot be killed, and again when they have changed.
    async fn end_what_is_left(&self, tell: impl Fn(String)) {
        let _nobody_starts = self.starting.lock().await;
        let ending = self.ender.end_all(self.cgroup.clone());
        tokio::pin!(ending);
        let mut told = None;
        while tokio::time::timeout(UNKILLABLE_AFTER, &mut ending).await.is_err() {
            let left = survivors(getpid());
            if left.is_some() && left != told {
                left.clone().into_iter().for_each(&tell);
                told = left;
            }
        }
    }

    /// Ends all processes that a dead guardian has left, and starts a new guardian. Retries with growing waits while
    /// the machine lacks the resources for it. Returns the signal that asks this process to end meanwhile.
    async fn replace_guardian(&mut self) -> Result<Option<i32>, Failure> {
        let message =
            |left| format!("no new guardian starts before what the last one has left is gone: {left}");
        self.end_what_is_left(|left| self.reporter.tell(&Event::Warning { message: message(left) })).await;
        if self.guarded_since.elapsed() >= TOO_SOON {
            self.guardian_backoff = BACKOFF_MIN;
        } else if let Some(signal) = self.back_off_from_guardian("its guardian has died").await {
            return Ok(Some(signal));
        }
        loop {
            let error = match start_guardian(&self.settings, &self.reporter) {
                Ok(guardian) => {
                    self.guardian = guardian;
                    self.guarded_since = StdInstant::now();
                    return Ok(None);
                }
                Err(error) if start_error::passes(error.raw_os_error().unwrap_or(0)) => error,
                Err(error) => return Err(error.into()),
            };
            let message =
                format!("a guardian cannot be started, and without one this node does not campaign: {error}");
            self.reporter.tell(&Event::Warning { message: message.clone() });
            if let Some(signal) = self.back_off_from_guardian(&message).await {
                return Ok(Some(signal));
            }
        }
    }

    async fn back_off_from_guardian(&mut self, why: &str) -> Option<i32> {
        let backoff = self.guardian_backoff;
        self.guardian_backoff = (backoff * 2).min(BACKOFF_MAX);
        self.back_off(backoff, why).await
    }

    /// Returns the time for which a leadership lasts without renewal.
    fn granted(&self, leadership: &Leadership<Mandate>) -> Duration {
        let lease = Duration::from_nanos(self.settings.config.lease);
        leadership.granted().map_or(lease, |granted| Duration::from(granted).min(lease))
    }

    /// Returns the time at which the supervisor stops relying on the guardian. Half of the kill margin is for the
    /// guardian, and half for the supervisor.
    fn backstop(&self, run: &LeadershipRun) -> Instant {
        let lease = Duration::from_nanos(self.settings.config.lease);
        let drain = Duration::from_nanos(self.settings.config.drain).scaled(run.granted, lease);
        let half_margin =
            Duration::from_nanos(self.settings.config.kill_margin / 2).scaled(run.granted, lease);
        if let Some(since) = run.parting_since {
            // The job is gone, and the command that follows it has its own time, which may end after the leadership.
            return since.after(drain).after(half_margin);
        }
        // A guardian that has not confirmed a renewal acts by the end that it knows. If by then it has neither
        // confirmed the renewal nor ended the job, it is paused, and a leader without a guardian must not go on.
        let latest = run.confirmed_until.before(half_margin);
        run.stopping_since.map_or(latest, |since| latest.min(since.after(drain).after(half_margin)))
    }

    fn on_signal(&mut self, signal: i32, run: &mut LeadershipRun) {
        let term = run.lead.term();
        if run.led.asked.is_some() {
            // A second signal means not to wait.
            run.is_hurried = true;
            return self.guardian.tell(GuardianCommand::Kill { term, gives_up: true });
        }
        notify::stopping();
        run.led.asked = Some(signal);
        run.because(&format!("asked to end by signal {signal}"));
        self.guardian.tell(GuardianCommand::Stop { term });
    }

    /// Reports a hook that has not ended, and gives up the lead when the hook's time is over.
    fn on_slow_hook(&mut self, guard: &WorkGuard<Mandate>, run: &mut LeadershipRun) {
        let lead = run.lead;
        match run.hook.as_mut().and_then(|hook| hook.look(clock::now())) {
            None => {}
            Some(Late::Slow(message)) => {
                guard.explain_delay(&message);
                self.reporter.tell(&Event::Warning { message });
            }
            Some(Late::TooLate(message)) => {
                let reason = run.on_hook_failed(message);
                self.reporter.tell(&Event::NotStarted { lead, reason });
                self.guardian.tell(GuardianCommand::Stop { term: lead.term() });
            }
        }
    }

    fn on_report(
        &self,
        report: Report,
        leadership: &Leadership<Mandate>,
        guard: &WorkGuard<Mandate>,
        run: &mut LeadershipRun,
    ) {
        let lead = run.lead;
        let event = match report {
            Report::Ready { .. } | Report::Gone { .. } => return,
            Report::Extended { term, valid_until } => {
                if term == lead.term() {
                    run.confirmed_until = Instant::from_nanos(valid_until);
                }
                return;
            }
            Report::Started { pid, .. } => {
                run.started_at = Some(clock::now());
                Event::Started { lead, pid }
            }
            Report::NotStarted { reason, .. } => {
                let reason = run.on_not_started(&reason, self.settings.job.as_ref());
                Event::NotStarted { lead, reason }
            }
            Report::Stopping { reason, .. } => {
                match &reason {
                    Stopping::Deadline => run.because(&leadership.why(Reason::Expired)),
                    Stopping::Watchdog(why) => {
                        run.because(why);
                        run.led.job = Some(JobEnd::NotStarted { exit: None, message: why.clone() });
                    }
                    Stopping::Asked | Stopping::Leftovers => {}
                }
                guard.explain_delay("its job is being stopped");
                Event::Stopping { lead, reason: run.stopping_text(&reason) }
            }
            Report::SlowKill { processes, takes } => {
                Event::Warning { message: slow_kill(processes, takes, self.settings.config.kill_margin) }
            }
            Report::Parting { .. } => {
                run.parting_since = Some(clock::now());
                return;
            }
            Report::StopFailed { failures, pause, .. } => {
                let pause = Duration::from_nanos(pause);
                run.parting_since = Some(clock::now().after(pause));
                guard.explain_delay(format!(
                    "its --stop-command has failed, {failures} time(s), so what it is to end may go on; it is run again after {pause}"
                ));
                Event::StopFailed { lead, failures, retry_ms: pause.as_millis() }
            }
            Report::Killing { .. } => Event::Killing { lead },
            Report::Exited { ended, .. } => {
                run.on_exited(ended);
                Event::Exited { lead, ended }
            }
            Report::HookEnded { hook, ended, .. } => {
                if hook == Hook::Elected && run.hook.take().is_some() {
                    guard.withdraw_delay();
                }
                Event::HookEnded { lead, hook: hook.option(), ended }
            }
        };
        self.reporter.tell(&event);
    }
}

impl LeadershipRun {
    /// Begins the end of the leadership: its hook is no longer waited for, and the first reason given is recorded with
    /// its time.
    fn because(&mut self, reason: &str) {
        self.hook = None;
        if self.stopping_since.is_none() {
            self.stopping_since = Some(clock::now());
            self.led.reason = reason.to_owned();
        }
    }

    fn on_exited(&mut self, ended: Ended) {
        if self.stopping_since.is_some() {
            return; // It did what it was told.
        }
        let lasted = self.started_at.map_or(Duration::ZERO, |at| clock::now().since(at));
        self.led.job = Some(JobEnd::Ended { ended, too_soon: lasted < TOO_SOON.into() });
        self.because("the command ended");
    }

    fn on_not_started(&mut self, reason: &NotStarted, job: Option<&Program>) -> String {
        let (end, message) = match reason {
            NotStarted::TooLate => {
                let message = "too little of the lead was left to start it";
                self.because(message);
                return message.to_owned();
            }
            NotStarted::Hook => return self.on_hook_failed("the hook --on-elected failed".to_owned()),
            NotStarted::Watchdog(why) | NotStarted::Record(why) => {
                (JobEnd::NotStarted { exit: None, message: why.clone() }, why.clone())
            }
            NotStarted::System(errno, message) => {
                let not_found = *errno == rustix::io::Errno::NOENT.raw_os_error();
                let exit = match start_error::passes(*errno) {
                    true => None,
                    false if not_found => Some(Exit::NotFound),
                    false => Some(Exit::NotExecutable),
                };
                let file = job.map_or("/bin/sh".into(), |job| job.file.to_string_lossy());
                let hint = if not_found { "; is the interpreter in its first line missing?" } else { "" };
                let message = format!("{file}: {message}{hint}");
                (JobEnd::NotStarted { exit, message: message.clone() }, message)
            }
        };
        self.because(&format!("the command could not be started: {message}"));
        self.led.job = Some(end);
        message
    }

    fn on_hook_failed(&mut self, message: String) -> String {
        self.because(&format!("the command could not be started: {message}"));
        self.led.job = Some(JobEnd::HookFailed { message: message.clone() });
        message
    }

    fn stopping_text(&self, reason: &Stopping) -> String {
        match reason {
            Stopping::Asked | Stopping::Deadline | Stopping::Watchdog(_) => self.led.reason.clone(),
            Stopping::Leftovers => "what its first process left behind".to_owned(),
        }
    }
}

impl Hook {
    /// Returns the option that sets the hook.
    fn option(self) -> &'static str {
        match self {
            Self::Elected => "--on-elected",
            Self::Stop => "--stop-command",
            Self::Deposed => "--on-deposed",
        }
    }
}

/// Describes the evidence for which a node campaigned, for people.
const fn evidence(trigger: ElectionTrigger) -> &'static str {
    match trigger {
        ElectionTrigger::Silence => "silence",
        ElectionTrigger::Disconnected => "closed connection",
        ElectionTrigger::Resigned => "resignation",
        ElectionTrigger::Transferred => "transfer",
        ElectionTrigger::Died => "witnessed death",
    }
}

fn slow_kill(processes: usize, takes: u64, margin: u64) -> String {
    let (takes, margin) = (Duration::from_nanos(takes), Duration::from_nanos(margin));
    format!(
        "to kill the {processes} processes of the command may take {takes}, and the kill margin is {margin}: take a longer \
         --kill-margin, or run this node where it can make a control group; until then the drain is shorter where it must be"
    )
}

fn start_guardian(settings: &Settings, reporter: &Reporter) -> io::Result<Guardian> {
    let guardian = match &settings.owed {
        Some(record) => Guardian::start(&record.config(&settings.config), None)?,
        None => Guardian::start(&settings.config, settings.job.as_ref())?,
    };
    reporter.tell(&Event::Guardian { pid: guardian.pid().as_raw_nonzero().get() });
    Ok(guardian)
}

/// Returns when the wait to be elected is over.
async fn too_late(wait: Wait, began: StdInstant, elector: Elector) {
    match wait {
        Wait::Forever => std::future::pending().await,
        Wait::For(time) => sleep(time.saturating_sub(began.elapsed())).await,
        Wait::AtOnce => {
            let most = elector.timers().lease * LEASES_AT_ONCE;
            let _ = tokio::time::timeout(most, another_leads(&elector)).await;
        }
    }
}

async fn another_leads(elector: &Elector) {
    let mut observer = elector.observe();
    while let Some(change) = observer.changed().await {
        if matches!(change, Change::Leader(Some(leader)) if leader.identity != elector.identity()) {
            return;
        }
    }
}

/// Reports each change of leader until the elector is closed.
pub(crate) async fn report_changes(mut observer: Observer, reporter: Reporter) {
    while let Some(change) = observer.changed().await {
        match change {
            Change::Leader(leader) => reporter.tell(&Event::Leader {
                leader: leader.map(|leader| leader.identity.node.to_string()),
                term: leader.map(|leader| leader.term.0),
            }),
            Change::Violation(violation) => {
                reporter.tell(&Event::Violation { violation: violation.to_string() });
            }
            // The observer falls behind only if the reports are not read.
            Change::Missed(_) => {}
        }
    }
}

/// Returns at this time; never if there is none.
async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep(due.since(clock::now()).into()).await,
        None => std::future::pending().await,
    }
}

/// Draws a wait, so that nodes that failed together do not campaign again together.
fn between_half_and_all(time: StdDuration) -> StdDuration {
    let drawn = RandomState::new().hash_one(()) >> 32;
    let part = u32::try_from(drawn).unwrap_or(u32::MAX);
    time / 2 + (time / 2).mul_f64(f64::from(part) / f64::from(u32::MAX))
}

fn milliseconds_to(instant: Instant) -> f64 {
    let left: StdDuration = instant.since(clock::now()).into();
    (left.as_secs_f64() * 1_000_000.0).round() / 1_000.0
}

impl From<CampaignError> for Failure {
    fn from(error: CampaignError) -> Self {
        // The other errors cannot come from one campaign at a time on an open elector.
        let exit = match error {
            CampaignError::Halted { .. } => Exit::State,
            CampaignError::ConfigMismatch { .. }
            | CampaignError::Closed
            | CampaignError::AlreadyCampaigning
            | CampaignError::AlreadyLeading
            | CampaignError::Advisory
            | CampaignError::Witness => Exit::Config,
        };
        Self::new(exit, error.to_string())
    }
}
