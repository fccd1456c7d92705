//! Checks of a store for `primacy doctor`: whether its configuration keeps its promises.

use std::fmt;

use crate::open_error::OpenError;
use crate::opening::Address;
use crate::register::Pending;

/// The name of the first check of every store.
pub(crate) const SURVIVES: &str = "survives the loss of a machine";

/// The reason for that check.
#[cfg(any(feature = "etcd", feature = "zookeeper", feature = "s3", feature = "gs", feature = "az"))]
pub(crate) const ONE_COPY: &str =
    "a store with one copy is one failure away from an outage, or from a lost token";

/// One check of a store, and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The expected state, in a few words.
    pub name: String,
    /// The result.
    pub verdict: Verdict,
    /// The observed state.
    pub found: String,
    /// The reason that it matters, where the state is not as expected.
    pub why: String,
    /// The remedy, where the state is not as expected.
    pub fix: String,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The state is as expected, by a test or by the store's own report.
    Pass,
    /// The state is not known, which does not mean that it is as expected.
    Unknown,
    /// The state is not as expected, and that costs availability or a margin.
    Warn,
    /// The state is not as expected, and two nodes could lead, or none.
    Fail,
}

/// A store being examined.
pub(crate) type Examination = Pending<'static, Result<Vec<Check>, OpenError>>;

impl Check {
    /// A check that has passed.
    #[must_use]
    pub fn pass(name: impl Into<String>, found: impl Into<String>) -> Self {
        let (why, fix) = (String::new(), String::new());
        Self { name: name.into(), verdict: Verdict::Pass, found: found.into(), why, fix }
    }

    /// A check that has not passed, or whose result is not known.
    #[must_use]
    pub fn not(
        verdict: Verdict,
        name: impl Into<String>,
        found: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), verdict, found: found.into(), why: why.into(), fix: fix.into() }
    }
}

/// Examines a store that ends with the process.
pub(crate) fn of_one_process(_: Address) -> Examination {
    let found = "it is shared by the tasks of one process, and ends with it";
    let fix = "for an election between processes, use file:, sqlite:, --peers, or a store with a server";
    told(Check::not(Verdict::Warn, SURVIVES, found, "all who stand are gone together", fix))
}

/// Examines a store that the processes of one machine share.
#[cfg(any(feature = "file", feature = "sqlite"))]
pub(crate) fn of_one_machine(_: Address) -> Examination {
    let found = "it is shared by the processes of one machine, and ends with it";
    let why = "when the machine is gone, nobody leads until it is back";
    let fix = "for an election between machines, use --peers, or a store that survives the loss of one";
    told(Check::not(Verdict::Warn, SURVIVES, found, why, fix))
}

fn told(check: Check) -> Examination {
    Box::pin(async move { Ok(vec![check]) })
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Unknown => "unknown",
            Self::Warn => "warn",
            Self::Fail => "fail",
        })
    }
}
