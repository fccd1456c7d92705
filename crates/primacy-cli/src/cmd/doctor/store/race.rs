//! Simultaneous writes: of several that name the same version, exactly one succeeds.
//!
//! A store that compares first and then writes refuses an old version if the requests come one by one, and still lets
//! two candidates take the same lease if their requests come together. So simultaneous writes are sent, again and
//! again.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use primacy::core::election::lease::{Record, Version};
use primacy::stores::{Check, Opened, Register, SetError, Verdict, open_any};
use tokio::task::JoinSet;

use super::{NAME, probe};

#[cfg(any(feature = "s3", feature = "gs", feature = "az"))]
pub(super) mod creation;

/// The number of writes that are sent at once.
const RIVALS: usize = 8;

/// The number of races.
const RACES: usize = 20;

/// The number of races with a known winner that are needed to pass the store.
const RACES_MIN: usize = RACES / 2;

/// The consequence of two winners.
const WHY: &str = "two can then take the same lease at the same time, with the same token";

/// The outcome of one write, as the store has reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Refused,
    /// The write may have been done; it counts as done if its record is there afterwards.
    NotKnown(String),
}

/// The outcome of all races.
#[derive(Debug, Default, PartialEq, Eq)]
struct Races {
    /// The number of races that were run.
    run: usize,
    /// The number of races with a known winner.
    decided: usize,
    /// The number of races with several winners.
    unfair: usize,
    /// The most winners of one race.
    winners_max: usize,
    /// The reason why the outcome of a write is unknown.
    why_unknown: Option<String>,
}

impl Races {
    /// Counts one race: `answers` by rival, and `found`, the rival whose write is there afterwards.
    fn count(&mut self, answers: Vec<Answer>, found: Option<usize>) {
        let is_winner = |(rival, answer): &(usize, &Answer)| match answer {
            Answer::Done => true,
            // The record that is there was written, whatever the answer was.
            Answer::Refused | Answer::NotKnown(_) => found == Some(*rival),
        };
        let winners = answers.iter().enumerate().filter(is_winner).count();
        self.run += 1;
        self.decided += usize::from(winners > 0);
        self.unfair += usize::from(winners > 1);
        self.winners_max = self.winners_max.max(winners);
        for answer in answers {
            if let Answer::NotKnown(why) = answer {
                self.why_unknown = Some(why);
            }
        }
    }

    fn judge(&self, name: &str) -> Check {
        let Self { run, decided, unfair, winners_max, .. } = self;
        let rivals = format!("{RIVALS} writes at once");
        if *unfair > 0 {
            let found =
                format!("of {run} races of {rivals}, {unfair} had several winners, up to {winners_max}");
            let fix = "use a store that compares and writes in one step; see the page of this one";
            return Check::not(Verdict::Fail, name, found, WHY, fix);
        }
        let found = format!("of {run} races of {rivals}, {decided} had one winner");
        if *decided >= RACES_MIN {
            return Check::pass(name, found);
        }
        let because = self.why_unknown.as_ref().map_or_else(String::new, |why| format!("; {why}"));
        let fix = "ask again while nobody else does, and while the store has less to do";
        Check::not(Verdict::Unknown, name, format!("{found}, and no more is known{because}"), WHY, fix)
    }
}

/// Runs races for the record of the trials. The very first one creates the record, if it does not exist yet.
pub(super) async fn run(url: &str, register: &Arc<dyn Register>) -> Check {
    const ONE_WINS: &str = "of writes at once that name the same version, one is done";
    let rivals = match rivals(url, register).await {
        Ok(rivals) => rivals,
        Err(why) => {
            let fix = "let this user have some more connections, and ask again";
            return Check::not(Verdict::Unknown, ONE_WINS, why, WHY, fix);
        }
    };
    let mut races = Races::default();
    for _ in 0..RACES {
        race(&rivals, &mut races).await;
    }
    races.judge(ONE_WINS)
}

/// Returns whether the URL is that of an object store.
pub(super) fn is_object_store(url: &str) -> bool {
    ["s3:", "gs:", "az:"].iter().any(|scheme| url.starts_with(scheme))
}

/// Opens handles with a connection each, so that their requests do not wait for each other.
async fn rivals(url: &str, register: &Arc<dyn Register>) -> Result<Vec<Arc<dyn Register>>, String> {
    // For an object store each request has its own connection, and opening a handle would try the bucket again.
    if is_object_store(url) {
        return Ok(vec![Arc::clone(register); RIVALS]);
    }
    let mut rivals = vec![Arc::clone(register)];
    while rivals.len() < RIVALS {
        match open_any(url, NAME).await.map_err(|error| error.to_string())? {
            Opened::Register(register) => rivals.push(register),
            Opened::Sessions(_) => return Err("it keeps sessions now".to_owned()),
        }
    }
    Ok(rivals)
}

/// Lets each rival write its own record over the version that is there now.
async fn race(rivals: &[Arc<dyn Register>], races: &mut Races) {
    let expect = match rivals[0].read().await {
        Ok(found) => found.map(|(_, version)| version),
        Err(error) => return races.count(vec![Answer::NotKnown(error.to_string())], None),
    };
    let base = draw();
    let nonce = |rival: usize| base.wrapping_add(rival as u64);
    let mut writes = JoinSet::new();
    for (rival, register) in rivals.iter().enumerate() {
        let record = Record { nonce: nonce(rival), ..probe(rival) };
        let (register, expect) = (Arc::clone(register), expect.clone());
        writes.spawn(async move { (rival, write(&*register, expect.as_ref(), &record).await) });
    }
    let mut answers = writes.join_all().await;
    answers.sort_by_key(|(rival, _)| *rival);
    let left = match rivals[0].read().await {
        Ok(found) => found.map(|(record, _)| record.nonce),
        // If the record cannot be read, only the answers count.
        Err(_) => None,
    };
    let found = (0..rivals.len()).find(|rival| left == Some(nonce(*rival)));
    races.count(answers.into_iter().map(|(_, answer)| answer).collect(), found);
}

async fn write(register: &dyn Register, expect: Option<&Version>, record: &Record) -> Answer {
    match register.compare_and_set(expect, record).await {
        Ok(_) => Answer::Done,
        Err(SetError::Conflict) => Answer::Refused,
        Err(error @ (SetError::Unknown { .. } | SetError::Unavailable { .. })) => {
            Answer::NotKnown(error.to_string())
        }
    }
}

/// Draws a number that distinguishes the records of this doctor from those of others.
fn draw() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests;
