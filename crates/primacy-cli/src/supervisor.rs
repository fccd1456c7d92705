//! The supervisor: holds the election, and has its guardian run the job while this node leads.
//!
//! It relays the end of the leadership to the guardian, which starts, stops and kills by itself. It releases the
//! lead only when the guardian has reported everything gone; if the guardian dies, or does not report in time,
//! the supervisor ends what is left itself, since orphans of a dead guardian are handed to it.

use std::io;
use std::time::Duration as StdDuration;

use primacy_core::time::{Duration, Instant};
use rustix::process::{getpid, set_child_subreaper};
use tokio::time::sleep;

use crate::boot_clock::{self, AsyncBootTimer};
use crate::exit::{Exit, Failure};
use crate::fake::{Elector, Leadership};
use crate::guardian::handle::{Guardian, Notice};
use crate::guardian::job::Program;
use crate::guardian::message::{Duty, Hook, NotStarted, Order, Report, Stopping};
use crate::process_tree::{Ended, end_descendants};
use crate::report::{Event, Reporter};
use crate::signals::Signals;

/// A job that ended within this time after its start has ended too soon to be started again at once.
const TOO_SOON: Duration = Duration::from_secs(1);
/// The first wait after a job that ended too soon; each further one is twice as long.
const BACKOFF_MIN: StdDuration = StdDuration::from_millis(100);
const BACKOFF_MAX: StdDuration = StdDuration::from_secs(10);

/// What to run, and how.
#[derive(Debug)]
pub(crate) struct Settings {
    /// What the guardian is told.
    pub(crate) duty: Duty,
    /// The job.
    pub(crate) job: Program,
    /// Give up when not elected within this time of the start.
    pub(crate) wait: Option<StdDuration>,
    /// Stand again after the job's own end.
    pub(crate) restart: bool,
}

/// Holds the election until the job has ended, or a signal asks for the end.
pub(crate) struct Supervisor {
    elector: Elector,
    settings: Settings,
    guardian: Guardian,
    signals: Signals,
    reporter: Reporter,
    timer: AsyncBootTimer,
}

/// How a stand for election ended.
enum Stood {
    Elected(Box<Leadership>),
    NotInTime,
    Asked(i32),
}

/// How a leadership ended.
#[derive(Clone, Debug)]
struct Led {
    /// The job's own end, if that is what ended the leadership.
    job: Option<JobEnd>,
    /// The signal that asked for the end.
    asked: Option<i32>,
    /// For people.
    reason: String,
}

/// The job's own end.
#[derive(Clone, Debug)]
enum JobEnd {
    Ended { ended: Ended, too_soon: bool },
    NotStarted { exit: Exit, message: String },
}

/// What is known of the running leadership.
struct Course {
    token: u64,
    valid_until: Instant,
    started_at: Option<Instant>,
    /// When the job was told to end, by whomever.
    stopping_since: Option<Instant>,
    /// When the hook that follows the job has begun.
    parting_since: Option<Instant>,
    led: Led,
}

impl Supervisor {
    /// Starts the guardian.
    pub(crate) fn new(elector: Elector, settings: Settings, reporter: Reporter) -> io::Result<Self> {
        // The orphans of a guardian that dies are handed to us.
        set_child_subreaper(Some(getpid()))?;
        let signals = Signals::listen()?;
        let timer = AsyncBootTimer::new()?;
        let guardian = start_guardian(&settings, &reporter)?;
        Ok(Self { elector, settings, guardian, signals, reporter, timer })
    }

    /// Stands and leads in turns.
    pub(crate) async fn run(mut self) -> Result<Exit, Failure> {
        let result = self.stand_and_lead().await;
        self.guardian.take_leave().await;
        self.elector.close().await;
        result
    }

    async fn stand_and_lead(&mut self) -> Result<Exit, Failure> {
        let mut backoff = BACKOFF_MIN;
        loop {
            let leadership = match self.stand().await? {
                Stood::Elected(leadership) => *leadership,
                Stood::NotInTime => return Ok(Exit::NotElected),
                Stood::Asked(signal) => return Ok(Exit::Signal(signal)),
            };
            self.settings.wait = None;
            let led = self.lead(leadership).await?;
            if let Some(signal) = led.asked {
                return Ok(Exit::Signal(signal));
            }
            match led.job {
                None => backoff = BACKOFF_MIN,
                Some(JobEnd::NotStarted { exit, message }) => return Err(Failure::new(exit, message)),
                Some(JobEnd::Ended { ended, .. }) if !self.settings.restart => {
                    return Ok(Exit::Job(ended.exit_code()));
                }
                Some(JobEnd::Ended { too_soon: false, .. }) => backoff = BACKOFF_MIN,
                Some(JobEnd::Ended { too_soon: true, .. }) => {
                    if let Some(signal) = self.back_off(backoff).await {
                        return Ok(Exit::Signal(signal));
                    }
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    /// Waits, unless a signal asks for the end.
    async fn back_off(&mut self, backoff: StdDuration) -> Option<i32> {
        self.reporter.tell(&Event::Backoff { ms: u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX) });
        tokio::select! {
            signal = self.signals.next() => Some(signal),
            () = sleep(backoff) => None,
        }
    }

    async fn stand(&mut self) -> Result<Stood, Failure> {
        self.reporter.tell(&Event::Standing);
        let in_time = until(self.settings.wait);
        let campaign = self.elector.campaign();
        tokio::pin!(in_time, campaign);
        loop {
            tokio::select! {
                biased;
                elected = &mut campaign => {
                    return match elected {
                        Ok(leadership) => Ok(Stood::Elected(Box::new(leadership))),
                        Err(error) => Err(Failure::new(Exit::Unavailable, error)),
                    };
                }
                signal = self.signals.next() => return Ok(Stood::Asked(signal)),
                notice = self.guardian.next() => {
                    if notice == Notice::Died {
                        self.reporter.tell(&Event::GuardianLost);
                        replace_guardian(&mut self.guardian, &self.settings, &self.reporter).await?;
                    }
                }
                () = &mut in_time => return Ok(Stood::NotInTime),
            }
        }
    }

    async fn lead(&mut self, leadership: Leadership) -> Result<Led, Failure> {
        let token = leadership.token().0;
        let valid_until = leadership.valid_until();
        let Ok(guard) = leadership.guard() else {
            // Lost again before anything was started.
            return Ok(Led { job: None, asked: None, reason: "it was lost at once".into() });
        };
        let term = leadership.term().0;
        self.guardian.tell(Order::Start { token, term, valid_until: valid_until.as_nanos() });
        self.reporter.tell(&Event::Elected { token, term, valid_for_ms: milliseconds_to(valid_until) });
        let led = Led { job: None, asked: None, reason: String::new() };
        let mut course = Course { token, valid_until, started_at: None, stopping_since: None, parting_since: None, led };
        self.follow(&leadership, &mut course).await?;
        // Everything is gone: only now may another lead.
        drop(guard);
        leadership.resign().await;
        self.reporter.tell(&Event::Released { token, reason: course.led.reason.clone() });
        Ok(course.led)
    }

    /// Follows a leadership until nothing of its job is left.
    async fn follow(&mut self, leadership: &Leadership, course: &mut Course) -> Result<(), Failure> {
        let mut ended = false;
        loop {
            self.timer.set(Some(self.backstop(course)))?;
            tokio::select! {
                biased;
                notice = self.guardian.next() => match notice {
                    Notice::Report(Report::Gone { token }) if token == course.token => return Ok(()),
                    Notice::Report(report) => self.on_report(report, course),
                    Notice::Died => {
                        course.led.reason.push_str("the guardian died");
                        self.reporter.tell(&Event::GuardianLost);
                        return replace_guardian(&mut self.guardian, &self.settings, &self.reporter).await;
                    }
                },
                valid_until = leadership.renewed() => {
                    course.valid_until = valid_until;
                    self.guardian.tell(Order::Extend { token: course.token, valid_until: valid_until.as_nanos() });
                }
                reason = leadership.ended(), if !ended => {
                    ended = true;
                    course.because(&reason.to_string());
                    self.guardian.tell(Order::Stop { token: course.token });
                }
                signal = self.signals.next() => self.on_signal(signal, course),
                () = self.timer.elapsed() => {
                    // It is paused, or cannot finish. Its death is noticed next, and what is left is ended here.
                    self.guardian.kill();
                    self.guardian.died().await;
                }
            }
        }
    }

    /// When to stop relying on the guardian: half the kill margin is left for it, and half for us.
    fn backstop(&self, course: &Course) -> Instant {
        let drain = Duration::from_nanos(self.settings.duty.drain);
        let half_margin = Duration::from_nanos(self.settings.duty.kill_margin / 2);
        if let Some(since) = course.parting_since {
            // The job is gone, and the hook has a time of its own, which may end after the leadership.
            return since.after(drain).after(half_margin);
        }
        let latest = course.valid_until.before(half_margin);
        course.stopping_since.map_or(latest, |since| latest.min(since.after(drain).after(half_margin)))
    }

    fn on_signal(&mut self, signal: i32, course: &mut Course) {
        let token = course.token;
        if course.led.asked.is_some() {
            // Whoever asks a second time does not want to wait.
            return self.guardian.tell(Order::Kill { token });
        }
        course.led.asked = Some(signal);
        course.because(&format!("asked to end by signal {signal}"));
        self.guardian.tell(Order::Stop { token });
    }

    fn on_report(&self, report: Report, course: &mut Course) {
        let event = match report {
            Report::Ready | Report::Gone { .. } => return,
            Report::Started { token, pid } => {
                course.started_at = Some(boot_clock::now());
                Event::Started { token, pid }
            }
            Report::NotStarted { token, reason } => {
                let reason = course.on_not_started(&reason);
                Event::NotStarted { token, reason }
            }
            Report::Stopping { token, reason } => {
                if reason == Stopping::Deadline {
                    course.because("it was not renewed in time");
                }
                Event::Stopping { token, reason: course.stopping_text(reason) }
            }
            Report::Parting { .. } => {
                course.parting_since = Some(boot_clock::now());
                return;
            }
            Report::Killing { token } => Event::Killing { token },
            Report::Exited { token, ended } => {
                course.on_exited(ended);
                Event::Exited { token, ended }
            }
            Report::HookEnded { token, hook, ended } => {
                Event::HookEnded { token, hook: hook.option(), ended }
            }
        };
        self.reporter.tell(&event);
    }
}

impl Course {
    /// The leadership ends, and this is why unless something else was the reason before.
    fn because(&mut self, reason: &str) {
        if self.stopping_since.is_none() {
            self.stopping_since = Some(boot_clock::now());
            self.led.reason = reason.to_owned();
        }
    }

    fn on_exited(&mut self, ended: Ended) {
        if self.stopping_since.is_some() {
            return; // It did what it was told.
        }
        let lasted = self.started_at.map_or(Duration::ZERO, |at| boot_clock::now().since(at));
        self.led.job = Some(JobEnd::Ended { ended, too_soon: lasted < TOO_SOON });
        self.because("the command ended");
    }

    fn on_not_started(&mut self, reason: &NotStarted) -> String {
        let (exit, message) = match reason {
            NotStarted::TooLate => {
                let message = "too little of the lead was left to start it";
                self.because(message);
                return message.to_owned();
            }
            NotStarted::Hook => (Exit::Failed, "the hook --on-elected failed".to_owned()),
            NotStarted::System(errno, message) => {
                let not_found = *errno == rustix::io::Errno::NOENT.raw_os_error();
                (if not_found { Exit::NotFound } else { Exit::NotExecutable }, message.clone())
            }
        };
        self.because("the command could not be started");
        self.led.job = Some(JobEnd::NotStarted { exit, message: message.clone() });
        message
    }

    fn stopping_text(&self, reason: Stopping) -> String {
        match reason {
            Stopping::Asked | Stopping::Deadline => self.led.reason.clone(),
            Stopping::Leftovers => "what its first process left behind".to_owned(),
        }
    }
}

impl Hook {
    /// The option that sets it.
    fn option(self) -> &'static str {
        match self {
            Self::Elected => "--on-elected",
            Self::Deposed => "--on-deposed",
        }
    }
}

fn start_guardian(settings: &Settings, reporter: &Reporter) -> io::Result<Guardian> {
    let guardian = Guardian::start(&settings.duty, &settings.job)?;
    reporter.tell(&Event::Guardian { pid: guardian.pid().as_raw_nonzero().get() });
    Ok(guardian)
}

/// Ends all that a dead guardian has left, and starts a new one.
async fn replace_guardian(
    guardian: &mut Guardian,
    settings: &Settings,
    reporter: &Reporter,
) -> Result<(), Failure> {
    let ended = tokio::task::spawn_blocking(|| end_descendants(|_, _| {})).await;
    ended
        .map_err(|error| Failure::new(Exit::System, format!("cannot end what the guardian left: {error}")))?;
    *guardian = start_guardian(settings, reporter)?;
    Ok(())
}

/// After this time; never if there is none.
async fn until(wait: Option<StdDuration>) {
    match wait {
        Some(wait) => sleep(wait).await,
        None => std::future::pending().await,
    }
}

fn milliseconds_to(instant: Instant) -> f64 {
    let left: StdDuration = instant.since(boot_clock::now()).into();
    left.as_secs_f64() * 1_000.0
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(
            Exit::System,
            format!("the system refused what is needed to watch over the command: {error}"),
        )
    }
}
