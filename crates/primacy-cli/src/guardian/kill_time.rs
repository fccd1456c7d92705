//! The time that it takes to kill a job whose processes must be searched for, measured while the job runs. A job of
//! many processes is killed earlier than others, so that all are gone by the end of the lead.

use primacy::core::{Duration, Instant};

/// The time from the start of the job to the first measurement; each further pause is twice as long. Jobs grow most at
/// first.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The largest part of `granted` that killing may take, as a divisor. A healthy leader renews before that part begins.
const PARTS: u64 = 2;
/// The factor from finding processes to killing them: processes that end need the processors, too.
const TIMES_AS_LONG: u64 = 2;

/// The longest time that was measured for one job, and when to measure again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct KillTime {
    longest: Duration,
    measure_at: Option<Instant>,
    pause: Duration,
}

impl KillTime {
    /// Starts measuring, when the job starts.
    pub(super) fn begin(&mut self, now: Instant) {
        *self =
            Self { longest: Duration::ZERO, measure_at: Some(now.after(FIRST_PAUSE)), pause: FIRST_PAUSE };
    }

    pub(super) fn measure_at(&self) -> Option<Instant> {
        self.measure_at
    }

    /// Returns the longest time that one measurement may take in a lead that lasts for `granted` without renewal. A
    /// longer one would change nothing.
    pub(super) fn longest_search(granted: Duration) -> Duration {
        granted.divided_by(PARTS * TIMES_AS_LONG)
    }

    /// Takes in a measurement: all processes were found within the time `found`. Returns the time that killing them may
    /// take, if it is to be reported: if it exceeds half of the margin, and is one and a half times the longest before.
    pub(super) fn on_measured(
        &mut self,
        now: Instant,
        found: Duration,
        margin: Duration,
    ) -> Option<Duration> {
        self.pause = self.pause.times(2).min(PAUSE_MAX);
        self.measure_at = Some(now.after(self.pause));
        let takes = found.times(TIMES_AS_LONG);
        let is_news = takes > margin.divided_by(2) && takes.times(2) > self.longest.times(3);
        self.longest = self.longest.max(takes);
        is_news.then_some(takes)
    }

    /// Stops measuring, when the job is being ended.
    pub(super) fn end_measuring(&mut self) {
        self.measure_at = None;
    }

    /// Returns the latest time to kill the job, in a lead that ends at `valid_until` and lasts for `granted` without
    /// renewal.
    pub(super) fn kill_by(&self, valid_until: Instant, granted: Duration) -> Instant {
        valid_until.before(self.longest.min(granted.divided_by(PARTS)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{GuardianConfig, JobRun, JobState};
    use super::*;

    const MARGIN: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_job_is_measured_often_at_first_and_told_of_when_it_grows() {
        let mut time = KillTime::default();
        assert_eq!(time.measure_at(), None);
        time.begin(at(0));
        let mut seconds = Vec::new();
        let mut told = Vec::new();
        // The measured time grows for a minute, as with a growing number of processes.
        while let Some(due) = time.measure_at().filter(|&due| due < at(300_000)) {
            let now = due.since(at(0)).as_millis();
            seconds.push(now / 1_000);
            let found = Duration::from_millis(now.min(60_000) / 100);
            told.extend(time.on_measured(due, found, MARGIN).map(Duration::as_millis));
        }
        assert_eq!(seconds, [1, 3, 7, 15, 31, 63, 123, 183, 243]);
        assert_eq!(told, [60, 140, 300, 620, 1_200]);
        time.end_measuring();
        assert_eq!(time.measure_at(), None);
    }

    #[test]
    fn the_kill_is_earlier_by_what_was_measured_but_leaves_a_healthy_leader_its_lead() {
        let (mut time, lease) = (KillTime::default(), Duration::from_secs(4));
        time.begin(at(0));
        assert_eq!(time.kill_by(at(10_000), lease), at(10_000));
        time.on_measured(at(1_000), Duration::from_millis(600), MARGIN);
        assert_eq!(time.kill_by(at(10_000), lease), at(8_800));
        // A later, shorter measurement does not count: the processes may be paused.
        time.on_measured(at(3_000), Duration::from_millis(1), MARGIN);
        assert_eq!(time.kill_by(at(10_000), lease), at(8_800));
        time.on_measured(at(7_000), KillTime::longest_search(lease), MARGIN);
        assert_eq!(time.kill_by(at(10_000), lease), at(8_000));
        time.on_measured(at(15_000), Duration::from_secs(100), MARGIN);
        assert_eq!(time.kill_by(at(10_000), lease), at(8_000));
    }

    #[test]
    fn the_job_is_told_to_end_and_killed_earlier_where_its_processes_take_longer_than_the_margin() {
        let nanos = |millis| Duration::from_millis(millis).as_nanos();
        let config = GuardianConfig {
            supervisor: 1,
            election: String::new(),
            node: String::new(),
            mark: String::new(),
            drain: nanos(500),
            kill_margin: nanos(100),
            lease: nanos(4_000),
            stop_command: None,
            stop_record: None,
            on_elected: None,
            on_deposed: None,
            death_notice: None,
            watchdog: None,
            json: false,
        };
        let (valid_until, granted) = (at(10_000), Duration::from_secs(4));
        let kill_time = KillTime::default();
        let (stage, main, longest_left, awaits_renewal) = (JobState::Working, None, granted, false);
        let mut job_run = JobRun {
            term: 1,
            fenced: true,
            valid_until,
            granted,
            longest_left,
            awaits_renewal,
            stage,
            kill_time,
            main,
        };
        assert_eq!((job_run.stop_at(&config), job_run.job_kill_at(&config)), (at(9_400), at(9_900)));
        job_run.kill_time.on_measured(at(0), Duration::from_millis(200), MARGIN);
        assert_eq!((job_run.stop_at(&config), job_run.job_kill_at(&config)), (at(9_400), at(9_600)));
        // This is longer than margin and drain together.
        job_run.kill_time.on_measured(at(0), Duration::from_millis(400), MARGIN);
        assert_eq!((job_run.stop_at(&config), job_run.job_kill_at(&config)), (at(9_200), at(9_200)));
        // The commands that follow the job keep their full time.
        assert_eq!(job_run.kill_at(&config), at(9_900));
    }
}
