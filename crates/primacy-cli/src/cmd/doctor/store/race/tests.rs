use std::sync::Mutex;

use primacy::stores::{Pending, ReadError};
use tokio::sync::Barrier;

use super::*;

/// A store that compares first and then writes; all rivals compare before any of them writes.
#[derive(Debug)]
struct TwoSteps {
    kept: Mutex<(Record, u64)>,
    compared: Barrier,
    /// The store's answer to a write that was done.
    tells: fn(Version) -> Result<Version, SetError>,
}

impl TwoSteps {
    fn register(rivals: usize, tells: fn(Version) -> Result<Version, SetError>) -> Arc<dyn Register> {
        Arc::new(Self { kept: Mutex::new((probe(0), 1)), compared: Barrier::new(rivals), tells })
    }
}

impl Register for TwoSteps {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        let (record, version) = self.kept.lock().unwrap().clone();
        Box::pin(async move { Ok(Some((record, Version::from(version)))) })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            let is_same = expect == Some(&Version::from(self.kept.lock().unwrap().1));
            self.compared.wait().await;
            if !is_same {
                return Err(SetError::Conflict);
            }
            let mut kept = self.kept.lock().unwrap();
            *kept = (record.clone(), kept.1 + 1);
            (self.tells)(Version::from(kept.1))
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(std::future::pending())
    }
}

async fn raced(register: &Arc<dyn Register>) -> Races {
    let mut races = Races::default();
    for _ in 0..RACES {
        race(&vec![Arc::clone(register); RIVALS], &mut races).await;
    }
    races
}

#[tokio::test]
async fn a_store_that_compares_first_and_then_writes_fails() {
    let races = raced(&TwoSteps::register(RIVALS, Ok)).await;
    assert_eq!((races.unfair, races.winners_max), (RACES, RIVALS));
    assert_eq!(races.judge("").verdict, Verdict::Fail);
}

#[tokio::test]
async fn an_unknown_answer_is_a_winner_only_where_its_write_is_found() {
    let lost = |_| Err(SetError::Unknown { why: "the reply was lost".to_owned() });
    let races = raced(&TwoSteps::register(RIVALS, lost)).await;
    // Each write was done, and one of the records is there.
    assert_eq!((races.decided, races.unfair, races.winners_max), (RACES, 0, 1));
    let unknown = || Answer::NotKnown("lost".to_owned());
    let mut races = Races::default();
    races.count(vec![Answer::Done, Answer::Refused, unknown()], Some(0));
    races.count(vec![Answer::Refused, unknown(), Answer::Refused], None);
    assert_eq!((races.decided, races.unfair), (1, 0));
    races.count(vec![Answer::Done, Answer::Refused, unknown()], Some(2));
    races.count(vec![Answer::Done, Answer::Refused, unknown()], Some(1));
    assert_eq!((races.decided, races.unfair), (3, 2));
}

#[tokio::test]
async fn a_store_that_compares_and_writes_in_one_step_passes() {
    for url in ["memory:doctor-race", "memory:doctor-race"] {
        let Ok(Opened::Register(register)) = open_any(url, NAME).await else { panic!("it keeps a record") };
        let check = run(url, &register).await;
        assert_eq!(check.verdict, Verdict::Pass, "{check:?}");
        assert!(check.found.contains(&format!("{RACES} had one winner")), "{check:?}");
    }
}

#[test]
fn races_without_a_winner_pass_nothing() {
    let put_off = || vec![Answer::NotKnown("429".to_owned()); RIVALS];
    let mut races = Races::default();
    for _ in 1..RACES_MIN {
        races.count(vec![Answer::Done, Answer::Refused], None);
    }
    races.count(put_off(), None);
    let check = races.judge("");
    assert!(check.verdict == Verdict::Unknown && check.found.contains("429"), "{check:?}");
    races.count(vec![Answer::Done, Answer::Refused], None);
    assert_eq!(races.judge("").verdict, Verdict::Pass);
    races.count(vec![Answer::Done, Answer::Done], None);
    assert_eq!(races.judge("").verdict, Verdict::Fail);
}
