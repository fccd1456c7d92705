//! Coverage marks: conditions that a search must reach, or it proves nothing.

use core::fmt;

/// A set of marks, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coverage(pub u64);

macro_rules! coverage {
    ($($bit:expr, $name:ident, $text:expr;)*) => {
        impl Coverage {
            $(#[doc = $text] pub const $name: u64 = 1 << $bit;)*
            /// All marks, with their names.
            pub const NAMES: &[(u64, &str)] = &[$((Self::$name, $text)),*];
        }
    };
}

coverage! {
    0, ELECTED, "elected";
    1, RENEWED, "renewed";
    2, TAKEN_OVER, "taken over by another";
    3, EXPIRED, "expired";
    4, DEPOSED, "deposed";
    5, REFUSED, "refused";
    6, CRASHED_BETWEEN, "crashed between two effects";
    7, RESIGNED, "resigned";
    8, TWO_BELIEVE, "two believed at a time";
    9, RELEASED, "released";
    10, VIOLATION, "violation seen";
    11, GUARDIAN_DONE, "released for the dead";
    12, TAKEN_OVER_AFTER_CRASH, "taken over by another after a crash";
    13, JOB_EXITED, "a leader's job ended by itself";
    14, LED_OVER_EARLIER_WORK, "led again while earlier work drained";
    15, VOTES_SPLIT, "votes of a term were split";
    16, SETTLED, "nothing was left to be heard, and all agreed";
    17, SESSION_ENDED, "deposed, for the store had ended the session";
    18, COMMITTED_IN_FIRST, "committed in term 1";
    19, COMMITTED_IN_SECOND, "committed in term 2";
    20, COMMITTED_IN_THIRD, "committed in term 3";
    21, FETCHED, "a leader was behind, and fetched";
    22, KEPT, "a record that was never committed was committed by a later leader";
    23, DROPPED, "a record that was never committed was dropped";
    24, SNAPSHOT_INSTALLED, "snapshot installed";
    25, SNAPSHOT_WRITTEN, "snapshot written";
    26, RECOVERED, "a lost log was recovered";
    27, RECOVERED_AS_LEADER, "a lost log was recovered by its leader";
    28, OLD_ANSWER, "an answer came that told nothing new";
    29, STANDS_STILL, "a majority was recovering";
    30, DEPOSED_COMMITS, "committed by a leader while another one led";
    31, HEARD_THE_DEAD, "a leader made use of what a process said that another one has followed";
    32, BEGUN, "the first record of a term was committed";
    33, BEGUN_BEHIND, "the first record of a term was committed behind one of an earlier term";
    34, DISK_LOST, "a disk was lost that held what was committed";
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            Self::NAMES.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, name)| *name).collect();
        f.write_str(&names.join(", "))
    }
}

impl Coverage {
    /// Adds `mark` if it was seen.
    pub const fn set_if(&mut self, mark: u64, seen: bool) {
        if seen {
            self.0 |= mark;
        }
    }

    /// Returns the names of the marks of this set that are not in `reached`.
    pub fn missing(self, reached: u64) -> impl Iterator<Item = &'static str> {
        Self::NAMES
            .iter()
            .filter(move |(bit, _)| self.0 & bit != 0 && reached & bit == 0)
            .map(|(_, name)| *name)
    }
}
