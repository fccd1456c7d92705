//! This machine: its pauses, its clock, and the time that the timers leave for both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use primacy::clock;
use primacy::config::Timers;
use primacy::stores::{Check, Verdict};
use rustix::time::{ClockId, clock_gettime};

use crate::exit::Failure;

/// The length of each sleep whose delay is measured. Shorter pauses cannot cost a lease of sensible length.
const TICK: Duration = Duration::from_millis(1);

/// The recommended length of a lease, as a multiple of the worst pause (the patterns document's checklist).
const PAUSES_IN_A_LEASE: u32 = 10;

/// Clocks that run at an even rate on today's processors, and are read without a system call.
const GOOD_SOURCES: [&str; 3] = ["tsc", "arch_sys_counter", "kvm-clock"];

/// A running measurement of the machine's pauses, in parallel to other work.
pub(super) struct Watch {
    worst: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

/// Starts to measure pauses.
pub(super) fn watch_pauses(time: Duration) -> Result<Watch, Failure> {
    let worst = Arc::new(AtomicU64::new(0));
    let ended = AtomicBool::new(false);
    let seen = Arc::clone(&worst);
    let thread = std::thread::Builder::new().name("doctor-pauses".into()).spawn(move || {
        let until = clock::now().after(time.into());
        while !ended.load(Ordering::Relaxed) {
            let due = clock::now().after(TICK.into());
            std::thread::sleep(TICK);
            let now = clock::now();
            seen.fetch_max(now.since(due).as_nanos(), Ordering::Relaxed);
            ended.store(now >= until, Ordering::Relaxed);
        }
    })?;
    Ok(Watch { worst, thread })
}

impl Watch {
    /// Waits for the end of the measurement, and returns the longest time for which this process was kept from running.
    pub(super) fn worst(self) -> Duration {
        // The thread does not panic; and even if it did, the pauses measured before would be valid.
        let _ = self.thread.join();
        Duration::from_nanos(self.worst.load(Ordering::Relaxed))
    }
}

/// Checks whether the lease is long enough for the worst pause.
pub(super) fn pauses(worst: Duration, timers: &Timers) -> Check {
    const NAME: &str = "the lease is ten times the worst pause";
    let lease = timers.lease;
    let needed = worst * PAUSES_IN_A_LEASE;
    let found = format!("the worst pause was {worst:.1?}, and the lease is {lease:?}");
    if needed <= lease {
        return Check::pass(NAME, found);
    }
    let found = format!("{found}: {:.1?} too short", needed.saturating_sub(lease));
    let verdict = if worst >= lease { Verdict::Fail } else { Verdict::Warn };
    let why =
        "a leader that is kept from running for that long cannot renew, and loses the lead without need";
    // Rounded up, since the printed lease must be long enough.
    let tenths = (needed.as_secs_f64() * 10.0).ceil();
    let fix = format!("--lease {:.1}s, or give the machine more room", tenths / 10.0);
    Check::not(verdict, NAME, found, why, fix)
}

/// Checks whether the timers leave enough time for the work to end.
pub(super) fn timers(timers: &Timers) -> Check {
    const NAME: &str = "the work can end within the lease";
    match timers.check() {
        Ok(()) => Check::pass(
            NAME,
            format!(
                "of a lease of {:?}, renewed every {:?}, the last {:?} are for draining and {:?} for killing",
                timers.lease, timers.renewal, timers.drain, timers.kill_margin
            ),
        ),
        Err(error) => {
            let why = "what has not ended when the lease does is killed, or works on beside the next leader";
            Check::not(Verdict::Fail, NAME, error.to_string(), why, "change these settings")
        }
    }
}

/// Checks which clock the kernel uses.
pub(super) fn clock_source() -> Check {
    const NAME: &str = "the kernel's clock counts evenly";
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    match std::fs::read_to_string(path).as_deref().map(str::trim) {
        Ok(source) if GOOD_SOURCES.contains(&source) => Check::pass(NAME, format!("it is {source}")),
        Ok(source) => Check::not(
            Verdict::Warn,
            NAME,
            format!("it is {source}"),
            "the kernel has found the processor's own counter unfit, or has been told so; a lease rests on even clocks",
            "look into the kernel's log for `clocksource`; on a virtual machine, ask its host for another one",
        ),
        Err(error) => Check::not(
            Verdict::Unknown,
            NAME,
            format!("{path}: {error}"),
            "a lease rests on clocks that count evenly",
            "look into the kernel's log for `clocksource`",
        ),
    }
}

/// Checks whether this machine has been suspended since it was started.
pub(super) fn suspends() -> Check {
    const NAME: &str = "this machine does not sleep";
    let [boot, awake] = [ClockId::Boottime, ClockId::Monotonic].map(clock_gettime);
    // Whole seconds, since the two clocks are not read at the same time.
    let slept = boot.tv_sec.saturating_sub(awake.tv_sec);
    if slept <= 1 {
        return Check::pass(NAME, "it has not slept since it was started");
    }
    Check::not(
        Verdict::Warn,
        NAME,
        format!("it has slept for {slept} s since it was started"),
        "Primacy counts through sleep, so a leader that wakes up knows that its lease is over; its job finds out as late, \
         and what it writes then only the token keeps out",
        "forbid it (`systemctl mask sleep.target suspend.target`), or have every resource check the token",
    )
}

#[cfg(test)]
mod tests {
    use primacy::config::Venue;

    use super::*;

    #[test]
    fn a_lease_that_is_too_short_for_the_pauses_is_told_with_what_it_lacks() {
        let timers = Timers::new(Venue::Store, Some(Duration::from_secs(1)));
        assert_eq!(pauses(Duration::from_millis(100), &timers).verdict, Verdict::Pass);
        let short = pauses(Duration::from_millis(150), &timers);
        assert_eq!(short.verdict, Verdict::Warn);
        assert!(short.found.contains("500.0ms too short") && short.fix.contains("--lease 1.5s"), "{short:?}");
        assert!(
            pauses(Duration::from_millis(151), &timers).fix.contains("--lease 1.6s"),
            "enough, and not about enough"
        );
        assert_eq!(pauses(Duration::from_secs(1), &timers).verdict, Verdict::Fail);
    }

    #[test]
    fn pauses_are_measured_and_the_watch_ends() {
        let worst = watch_pauses(Duration::from_millis(20)).unwrap().worst();
        assert!(worst > Duration::ZERO, "no sleep ends early");
    }

    #[test]
    fn timers_that_contradict_each_other_fail() {
        let fine = Timers::new(Venue::Store, None);
        assert_eq!(timers(&fine).verdict, Verdict::Pass);
        let wrong = Timers { drain: fine.lease, ..fine };
        assert_eq!(timers(&wrong).verdict, Verdict::Fail);
    }
}
