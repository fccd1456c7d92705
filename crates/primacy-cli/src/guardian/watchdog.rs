//! A watchdog device, such as `/dev/watchdog`: it resets the machine if a job is not ended in time, because the
//! processes that should end it are all stopped, or because it cannot be killed.
//!
//! The guardian arms it before it starts anything under a lead. It disarms it when the job is gone and the stop
//! command, if there is one, has succeeded. Meanwhile it feeds it only while the reset would still come before the end
//! of the lead. The last feeding is at the latest such instant, so that a job that is ended in the kill margin causes
//! no reset. A guardian that dies leaves it armed.
//!
//! Voters whose lease is shorter promise less than this node's lease, and a store may give a shorter session
//! than was requested; then the lead ends that much earlier without renewal. So the timeout follows the
//! shortest promise that the lead rests on. Where that leaves less than a second, the device is of no use:
//! the node gives up the lead, or leads on without it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use primacy::Timers;
use primacy::core::{Duration, Instant};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use serde::{Deserialize, Serialize};

/// The device, and whether a node may lead without it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WatchdogSpec {
    /// The device's file.
    pub(crate) device: PathBuf,
    /// True if this node does not lead where the device cannot be used.
    pub(crate) is_required: bool,
    /// The largest timeout, in nanoseconds, where all voters promise for a whole lease.
    pub(crate) longest: u64,
}

/// A device that is armed.
#[derive(Debug)]
pub(crate) struct Watchdog {
    device: File,
    /// The timeout that was requested from the device, in seconds.
    asked: i32,
    /// The time from a feeding to the reset.
    timeout: Duration,
}

/// The prefix of a setting that lets a node lead without the device; otherwise the device is required.
const AUTOMATIC: &str = "automatic:";

/// From `linux/watchdog.h`.
const GROUP: u8 = b'W';
const SET_TIMEOUT: Opcode = opcode::read_write::<i32>(GROUP, 6);
const GET_TIMEOUT: Opcode = opcode::read::<i32>(GROUP, 7);

/// The text that disarms the device when it is closed.
const MAGIC_CLOSE: &[u8] = b"V";
const FOOD: &[u8] = b"\0";
/// The device number of `/dev/watchdog`, which is that of `watchdog0`.
const FIRST: (u32, u32) = (10, 130);

impl WatchdogSpec {
    /// Parses the setting, `DEVICE` or `automatic:DEVICE`, for these timers.
    ///
    /// # Errors
    /// The reason, for people, if the lease is too short for a device.
    pub(crate) fn new(setting: &str, timers: &Timers) -> Result<Self, String> {
        let device = setting.strip_prefix(AUTOMATIC);
        let is_required = device.is_none();
        let device = PathBuf::from(device.unwrap_or(setting));
        // The device is fed after each renewal of the lead, so the next renewal must come before the latest feeding.
        let renewed_until = Duration::from(timers.lease - timers.renewal);
        let longest = timers.drift_max.shorten(renewed_until).minus(slack(timers.kill_margin.into()));
        if whole_seconds(longest) < 1 {
            return Err(format!(
                "the watchdog {} counts whole seconds, and of the lease of {:?} less than one is left between renewals; take \
                 --lease 2s or more",
                device.display(),
                timers.lease
            ));
        }
        Ok(Self { device, is_required, longest: longest.as_nanos() })
    }

    /// Returns the timeout in seconds for a lead that lasts for `granted` of the `lease` without renewal.
    ///
    /// # Errors
    /// If that is less than one.
    pub(crate) fn seconds(&self, granted: Duration, lease: Duration) -> io::Result<i32> {
        let longest = whole_seconds(Duration::from_nanos(self.longest).scaled(granted, lease));
        if longest >= 1 {
            return Ok(longest);
        }
        Err(io::Error::other(format!(
            "the lead rests on promises of {granted}, of which less than one second is left between renewals, and it counts whole \
             seconds; give all nodes the same --lease, of 2s or more"
        )))
    }

    /// Arms the device, with this timeout in seconds.
    ///
    /// # Errors
    /// The reason why it cannot be used; it is then not armed.
    pub(crate) fn arm(&self, seconds: i32) -> io::Result<Watchdog> {
        if never_stops(&self.device) {
            return Err(io::Error::other("it cannot be disarmed (nowayout)"));
        }
        // Opening the device arms it. Non-blocking, since a named pipe that was configured by mistake would block.
        let device = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(&self.device)?;
        let armed = set_timeout(&device, seconds);
        match armed {
            Ok(timeout) => Ok(Watchdog { device, asked: seconds, timeout }),
            Err(error) => {
                disarm(&device);
                Err(error)
            }
        }
    }

    /// Disarms a device that a dead guardian, of whose job no process is left, may have left armed; and checks that it
    /// can be used.
    ///
    /// # Errors
    /// The reason why it cannot be used, for people.
    pub(crate) fn try_out(&self) -> Result<(), String> {
        let longest = whole_seconds(Duration::from_nanos(self.longest));
        self.arm(longest).map(Watchdog::disarm).map_err(|error| self.explain(&error))
    }

    /// Explains, for people, why the device is of no use.
    pub(crate) fn explain(&self, error: &io::Error) -> String {
        format!("the watchdog {} cannot be used: {error}", self.device.display())
    }
}

impl Watchdog {
    /// Sets another timeout, which also feeds the device, unless it would then reset the machine after `end`.
    ///
    /// # Errors
    /// If the device refuses it.
    pub(crate) fn set(&mut self, seconds: i32, end: Instant, now: Instant) -> io::Result<()> {
        if seconds != self.asked && now.after(from_seconds(seconds)) <= end {
            self.timeout = set_timeout(&self.device, seconds)?;
            self.asked = seconds;
        }
        Ok(())
    }

    /// Feeds the device, if it then still resets the machine before `end`, and returns the time of the next feeding.
    pub(crate) fn feed_until(&self, end: Instant, now: Instant) -> Option<Instant> {
        let latest = end.before(self.timeout);
        if now > latest {
            return None;
        }
        // If this fails, the machine is reset, as it should be.
        let _ = (&self.device).write_all(FOOD);
        (now < latest).then(|| latest.min(now.after(self.timeout.divided_by(2))))
    }

    /// Disarms the device, when no process of the job is left.
    pub(crate) fn disarm(self) {
        disarm(&self.device);
    }

    /// Returns a watchdog that writes to this file.
    #[cfg(test)]
    pub(crate) fn standing_in(device: File, timeout: Duration) -> Self {
        Self { device, asked: whole_seconds(timeout), timeout }
    }
}

/// Returns the time before the end of a lead at which the machine is reset: half of the kill margin, so that every
/// other means has had the first half.
pub(crate) fn slack(kill_margin: Duration) -> Duration {
    kill_margin.divided_by(2)
}

fn disarm(mut device: &File) {
    // If that fails, the machine is reset; nothing else can be done.
    let _ = device.write_all(MAGIC_CLOSE);
}

/// Returns the time that a lead lasts without renewal, from the time that was left when the renewal was noticed: a
/// twentieth more, for the drift and the delay of the notice.
pub(crate) fn lasts(left: Duration) -> Duration {
    left.plus(left.divided_by(20))
}

/// Returns the whole seconds in this time.
pub(crate) fn whole_seconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis() / 1_000).unwrap_or(i32::MAX)
}

pub(crate) fn from_seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

/// Sets the timeout, and returns the one that the device then has, which may be shorter.
fn set_timeout(device: &File, seconds: i32) -> io::Result<Duration> {
    // A device with a fixed timeout refuses this, and still reports the timeout.
    let _ = request::<SET_TIMEOUT>(device, seconds);
    let has = match request::<GET_TIMEOUT>(device, 0) {
        // In tests a pipe replaces the device; a release build takes none.
        Err(_) if cfg!(debug_assertions) && std::env::var_os("PRIMACY_TEST_WATCHDOG").is_some() => seconds,
        told => told?,
    };
    if (1..=seconds).contains(&has) {
        return Ok(from_seconds(has));
    }
    Err(io::Error::other(format!(
        "it resets the machine after {has} s, and the lease allows {seconds} s; take a longer --lease"
    )))
}

fn request<const OPCODE: Opcode>(device: &File, mut value: i32) -> io::Result<i32> {
    // SAFETY: these operations read and write one `int`. A file that is no watchdog refuses them.
    #[allow(unsafe_code)] // What an operation does is known from its number alone.
    unsafe {
        ioctl(device, Updater::<OPCODE, i32>::new(&mut value))?;
    }
    Ok(value)
}

/// Returns whether the kernel says that the device cannot be disarmed once it was opened.
fn never_stops(device: &Path) -> bool {
    let Ok(number) = fs::metadata(device).map(|device| device.rdev()) else { return false };
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let class = if (major, minor) == FIRST {
        "/sys/class/watchdog/watchdog0".to_owned()
    } else {
        format!("/sys/dev/char/{major}:{minor}")
    };
    fs::read_to_string(format!("{class}/nowayout")).is_ok_and(|told| told.trim() == "1")
}

#[cfg(test)]
mod tests {
    use primacy::config::Venue;

    use super::*;

    fn timers(lease: u64, renewal: u64) -> Timers {
        let millis = std::time::Duration::from_millis;
        let mut timers = Timers::new(Venue::Store, Some(millis(lease)));
        timers.renewal = millis(renewal);
        timers
    }

    #[test]
    fn the_longest_timeout_is_over_before_a_lead_that_was_just_not_renewed() {
        let spec = |lease, renewal| WatchdogSpec::new("/dev/w", &timers(lease, renewal));
        let whole = |lease, renewal| {
            let (spec, lease) = (spec(lease, renewal).unwrap(), Duration::from_millis(lease));
            spec.seconds(lease, lease).unwrap()
        };
        assert_eq!((whole(10_000, 1_666), whole(2_000, 500)), (8, 1));
        assert!(spec(1_000, 250).unwrap_err().contains("take --lease 2s or more"));
        let automatic = WatchdogSpec::new("automatic:/dev/w", &timers(10_000, 1_666)).unwrap();
        assert_eq!((automatic.device, automatic.is_required), (PathBuf::from("/dev/w"), false));
    }

    #[test]
    fn its_timeout_follows_the_shortest_promise_that_the_lead_rests_on() {
        let (spec, lease) =
            (WatchdogSpec::new("/dev/w", &timers(10_000, 1_666)).unwrap(), Duration::from_secs(10));
        let seconds =
            |granted| spec.seconds(Duration::from_millis(granted), lease).map_err(|error| error.to_string());
        assert_eq!((seconds(6_000), seconds(3_000), seconds(1_300)), (Ok(4), Ok(2), Ok(1)));
        let why = seconds(1_000).unwrap_err();
        // A session of 8 s instead of 10 s, a little of which has passed: the reset would come before its end if it is fed when that
        // was renewed, which it would not with the 8 s that the lease allows.
        let left = Duration::from_millis(7_800);
        let timeout = spec.seconds(lease.min(lasts(left)), lease).unwrap();
        assert!(timeout == 6 && from_seconds(timeout).plus(slack(Duration::from_millis(200))) < left);
        let renewed = Duration::from_millis(9_850);
        assert_eq!(spec.seconds(lease.min(lasts(renewed)), lease).unwrap(), 8, "of a whole lease");
        assert!(why.contains("rests on promises of 1s") && why.contains("--lease, of 2s or more"), "{why}");
    }

    #[test]
    fn it_is_fed_at_the_latest_instant_and_not_after_it() {
        let (path, timeout) = (std::env::temp_dir().join(format!("primacy-food-{}", std::process::id())), 2);
        let device = File::create(&path).unwrap();
        let watchdog = Watchdog::standing_in(device, Duration::from_secs(timeout));
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        // The reset would come at 9.9 s after the last of these.
        assert_eq!(watchdog.feed_until(at(9_900), at(0)), Some(at(1_000)));
        assert_eq!(watchdog.feed_until(at(9_900), at(7_500)), Some(at(7_900)));
        assert_eq!(watchdog.feed_until(at(9_900), at(7_900)), None);
        assert_eq!(fs::read(&path).unwrap(), b"\0\0\0");
        assert_eq!(watchdog.feed_until(at(9_900), at(7_901)), None);
        assert_eq!(fs::read(&path).unwrap(), b"\0\0\0", "it would reset the machine too late");
        watchdog.disarm();
        assert_eq!(fs::read(&path).unwrap(), b"\0\0\0V");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_watchdog_is_not_used() {
        let device = std::env::temp_dir().join(format!("primacy-no-watchdog-{}", std::process::id()));
        File::create(&device).unwrap();
        let spec = WatchdogSpec { device: device.clone(), is_required: true, longest: 1 };
        let why = spec.try_out().unwrap_err();
        assert!(why.contains("cannot be used: Inappropriate ioctl"), "{why}");
        fs::remove_file(&device).unwrap();
        assert!(spec.try_out().unwrap_err().contains("No such file"));
    }
}
