//! The store: the checks of the store itself, and trials of its answers.

mod race;

use std::sync::Arc;
use std::time::{Duration, Instant};

use primacy::config::Timers;
use primacy::core::FencingToken;
use primacy::core::election::lease::Record;
use primacy::core::election::session::QueuePosition;
use primacy::stores::{Check, Opened, Register, Sessions, SetError, Verdict, open_any};

use super::findings::Findings;
use crate::cmd::store::{block_on, trier};
use crate::exit::Failure;

/// The name of the election for the trials. No other election can have it.
const NAME: &str = "primacy/doctor";

/// The number of answers of each kind that are timed.
const ROUNDS: usize = 100;

/// The number of times that a trial starts again because another doctor interfered.
const ATTEMPTS: usize = 20;

/// The longest time for which a trial's session may be left behind.
const SESSION: Duration = Duration::from_secs(10);

/// The error of a full etcd, and of a full node of Primacy with the etcd API.
const FULL: &str = "database space exceeded";

/// The remedy for a full store.
const MAKE_ROOM: &str = "make room: of nodes of Primacy, delete what nobody needs, or start them again with a higher metadata-quota; of etcd, \
                         compact, defrag, alarm disarm";

/// The remedy for most errors.
const LOOK: &str = "look whether this user may read and write there, and whether the store is up";

/// The most round trips that a write takes, if it goes through a proxy and its outcome is looked up.
const ROUND_TRIPS_IN_A_RENEWAL: u32 = 4;

/// Returns the checks of the store's own settings.
pub(super) fn examine(url: &str) -> Vec<Check> {
    let asked = block_on(async { Ok(primacy::stores::examine(url).await) });
    match asked {
        Ok(Ok(checks)) => checks,
        Ok(Err(error)) => vec![Check::not(
            Verdict::Unknown,
            "the store tells how it is kept",
            error.to_string(),
            "a store with one copy is one failure away from an outage, or from a lost token",
            "let this user see it, or look it up in the page of the store",
        )],
        Err(failure) => vec![Check::not(Verdict::Unknown, "the store is asked", failure.message, "", "")],
    }
}

/// Tries the store, and returns the times of its answers, if it can be used at all.
pub(super) async fn try_out(url: &str, findings: &mut Findings) -> Result<Option<Vec<Duration>>, Failure> {
    const OPENS: &str = "the store can be used";
    let opened = match open_any(url, NAME).await {
        Ok(opened) => opened,
        Err(error) => {
            let why = "nobody can be elected over a store that cannot be used";
            let check = Check::not(
                Verdict::Fail,
                OPENS,
                error.to_string(),
                why,
                "mend that, and ask the doctor again",
            );
            findings.add(check)?;
            return Ok(None);
        }
    };
    findings.add(Check::pass(OPENS, "it was opened"))?;
    let (tried, raced) = match &opened {
        Opened::Register(register) => {
            // Before there is a record: then the first race is to create it.
            let raced = try_races(url, register).await;
            (try_register(register).await, raced)
        }
        Opened::Sessions(sessions) => (try_sessions(sessions).await, Vec::new()),
    };
    match tried {
        Ok((check, times)) => {
            findings.add(check)?;
            for check in raced {
                findings.add(check)?;
            }
            Ok(Some(times))
        }
        Err(why) => {
            let fix = if why.contains(FULL) { MAKE_ROOM } else { LOOK };
            findings.add(Check::not(
                Verdict::Fail,
                "the store does what is asked",
                why,
                "nobody can be elected over a store that cannot be read and written",
                fix,
            ))?;
            Ok(None)
        }
    }
}

/// Checks that exactly one of several simultaneous writes succeeds.
async fn try_races(url: &str, register: &Arc<dyn Register>) -> Vec<Check> {
    let raced = vec![race::run(url, register).await];
    #[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
    if race::is_object_store(url) {
        return [raced, vec![race::creation::run(url).await]].concat();
    }
    raced
}

/// Checks that a write that names an old version is refused.
async fn try_register(register: &Arc<dyn Register>) -> Result<(Check, Vec<Duration>), String> {
    const REFUSES: &str = "it refuses a write that names an old version";
    let mut times = Vec::with_capacity(2 * ROUNDS);
    let mut refused = 0;
    for round in 0..ROUNDS + ATTEMPTS {
        if refused == ROUNDS {
            break;
        }
        let began = Instant::now();
        let found = register.read().await.map_err(|error| error.to_string())?;
        times.push(began.elapsed());
        let old = found.as_ref().map(|(_, version)| version.clone());
        let began = Instant::now();
        match register.compare_and_set(old.as_ref(), &probe(round)).await {
            Ok(_) => times.push(began.elapsed()),
            Err(SetError::Conflict | SetError::Unknown { .. }) => continue, // Another doctor, or a lost answer.
            Err(error @ SetError::Unavailable { .. }) => return Err(error.to_string()),
        }
        match register.compare_and_set(old.as_ref(), &probe(round)).await {
            Err(SetError::Conflict) => refused += 1,
            Err(SetError::Unknown { .. }) => {} // Not known, and so not counted.
            Err(error @ SetError::Unavailable { .. }) => return Err(error.to_string()),
            Ok(_) => {
                return Ok((
                    Check::not(
                        Verdict::Fail,
                        REFUSES,
                        "it took one that should have been refused",
                        "two can then take the same lease at the same time, with the same token",
                        "use a store that honours conditions; see the page of this one",
                    ),
                    times,
                ));
            }
        }
    }
    let found = format!("tried {refused} times");
    let check = if refused > 0 {
        Check::pass(REFUSES, found)
    } else {
        let why = "two can take the same lease at the same time where it does not";
        Check::not(Verdict::Unknown, REFUSES, found, why, "ask again while nobody else does")
    };
    Ok((check, times))
}

/// Returns a record without a holder.
fn probe(round: usize) -> Record {
    let token = FencingToken(round as u64);
    Record { renewal: token.0, ..Record::released(token, primacy::core::Duration::ZERO) }
}

/// Checks that a session's entry becomes first in the queue, and that its tokens grow.
async fn try_sessions(sessions: &Arc<dyn Sessions>) -> Result<(Check, Vec<Duration>), String> {
    const GROWS: &str = "a later entry has a higher token";
    let text = |error: primacy::stores::SessionError| error.to_string();
    let begun = sessions.begin(SESSION).await.map_err(text)?;
    let holder = trier()?;
    let mut times = Vec::with_capacity(ROUNDS);
    let (mut last, mut falls, mut firsts) = (None, None, 0);
    for round in 0..ROUNDS {
        let began = Instant::now();
        sessions.keep_alive(&begun.session).await.map_err(text)?;
        times.push(began.elapsed());
        // Each campaign is one or two writes, so only every tenth round makes one.
        if round % 10 != 0 {
            continue;
        }
        if let QueuePosition::First { token, .. } =
            sessions.campaign(&begun.session, &holder).await.map_err(text)?
        {
            firsts += 1;
            falls = falls.or(last.filter(|last| *last >= token).map(|last| (last, token)));
            last = Some(token);
        }
        sessions.leave(&begun.session).await.map_err(text)?;
    }
    sessions.end(&begun.session).await.map_err(text)?;
    let check = match (falls, firsts) {
        (None, 0 | 1) => Check::not(
            Verdict::Unknown,
            GROWS,
            "another doctor stood before this one",
            "a token that falls lets a deposed leader write",
            "ask again while nobody else does",
        ),
        (None, firsts) => Check::pass(GROWS, format!("tried {firsts} times")),
        (Some((last, token)), _) => Check::not(
            Verdict::Fail,
            GROWS,
            format!("after {last} it gave {token}"),
            "a token that falls lets a deposed leader write",
            "use a store that counts; see the page of this one",
        ),
    };
    Ok((check, times))
}

/// Checks whether a renewal is answered in time.
pub(super) fn round_trips(times: &[Duration], timers: &Timers) -> Check {
    const NAME: &str = "the store answers soon enough";
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let percentile = |percent: usize| sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1));
    let (Some(&median), Some(&slow)) = (percentile(50), percentile(99)) else {
        return Check::not(Verdict::Unknown, NAME, "nothing was answered", "", "");
    };
    let found = format!("p50 {median:.2?}, p99 {slow:.2?} of {} answers", times.len());
    let allowed = timers.answer_timeout.min(timers.renewal);
    if slow * ROUND_TRIPS_IN_A_RENEWAL <= allowed {
        return Check::pass(NAME, found);
    }
    let verdict = if slow >= allowed { Verdict::Fail } else { Verdict::Warn };
    let found = format!("{found}, where an answer is waited for {allowed:?}");
    let why = "a renewal that is answered too late gives up the lead without need";
    Check::not(verdict, NAME, found, why, "a longer --lease, or a store that is nearer or has less to do")
}

#[cfg(test)]
mod tests {
    use primacy::config::Venue;
    use primacy::core::election::lease::Version;
    use primacy::stores::{Pending, ReadError};

    use super::*;
    use crate::exit::Exit;

    /// A store that ignores conditions: it performs every write.
    #[derive(Debug)]
    struct Careless;

    impl Register for Careless {
        fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
            Box::pin(async { Ok(Some((probe(0), Version::from(1)))) })
        }

        fn compare_and_set<'a>(
            &'a self,
            _: Option<&'a Version>,
            _: &'a Record,
        ) -> Pending<'a, Result<Version, SetError>> {
            Box::pin(async { Ok(Version::from(2)) })
        }

        fn changed(&self) -> Pending<'_, ()> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn a_store_that_ignores_conditions_fails_and_one_that_does_not_passes() {
        let (check, _) = try_register(&(Arc::new(Careless) as _)).await.unwrap();
        assert_eq!(check.verdict, Verdict::Fail);
        let mut findings = Findings::new(true);
        let times = try_out("memory:doctor", &mut findings).await.unwrap().unwrap();
        assert_eq!(times.len(), 2 * ROUNDS);
        assert_eq!(findings.end().unwrap(), Exit::Success);
    }

    #[tokio::test]
    async fn a_store_that_cannot_be_opened_fails() {
        let mut findings = Findings::new(true);
        assert_eq!(try_out("file:/no/such/directory/at/all", &mut findings).await.unwrap(), None);
        assert_eq!(findings.end().unwrap(), Exit::Failed);
    }

    #[test]
    fn answers_that_come_too_late_are_told() {
        let timers = Timers::new(Venue::Store, None);
        let verdict = |time| round_trips(&[time], &timers).verdict;
        assert_eq!(verdict(Duration::from_millis(1)), Verdict::Pass);
        assert_eq!(verdict(timers.answer_timeout.min(timers.renewal) / 2), Verdict::Warn);
        assert_eq!(verdict(timers.lease), Verdict::Fail);
        assert_eq!(round_trips(&[], &timers).verdict, Verdict::Unknown);
    }
}
