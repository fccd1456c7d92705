//! Simultaneous writes that create the same object. Only for object stores, since their objects can be removed again.

use std::sync::Arc;

use primacy::stores::object::ObjectStore;
use primacy::stores::object::object_store::path::Path;
use primacy::stores::object::object_store::{Error, ObjectStoreExt as _, PutMode, PutPayload};
use primacy::stores::{Check, Verdict, object_store_at};
use tokio::task::JoinSet;

use super::{Answer, RACES, RIVALS, Races, WHY, draw};

const ONE_WINS: &str = "of writes at once that make the same object, one is done";

/// Runs races on objects `primacy.race.NUMBER`, and removes the objects.
pub(in super::super) async fn run(url: &str) -> Check {
    let not = |found: String, fix: &str| Check::not(Verdict::Unknown, ONE_WINS, found, WHY, fix);
    let (store, prefix) = match object_store_at(url) {
        Ok(found) => found,
        Err(error) => return not(error.to_string(), "mend that, and ask again"),
    };
    let path = || Path::parse(format!("{prefix}/primacy.race.{:016x}", draw()));
    let mut races = Races::default();
    for race in 0..=RACES {
        let path = match path() {
            Ok(path) => path,
            Err(error) => return not(error.to_string(), "name another prefix"),
        };
        // The first round only removes an object that does not exist: objects are not created unless they can be
        // removed.
        if race > 0 {
            run_one(&store, &path, &mut races).await;
        }
        match store.delete(&path).await {
            Ok(()) | Err(Error::NotFound { .. }) => {}
            Err(error) if race == 0 => {
                let found = format!("it was not tried, for what is made could not be removed: {error}");
                return not(found, "ask again as a user that may delete objects below the prefix");
            }
            Err(error) => {
                let found = format!("{path} could not be removed, and no more was tried: {error}");
                return not(found, "remove it, and ask again");
            }
        }
    }
    races.judge(ONE_WINS)
}

/// Runs one race. The object's name is random, so no other process uses it.
async fn run_one(store: &Arc<dyn ObjectStore>, path: &Path, races: &mut Races) {
    let bytes = |rival: usize| {
        format!("Primacy tries here whether one of several writes at once is done.\n{rival}\n")
    };
    let mut writes = JoinSet::new();
    for rival in 0..RIVALS {
        let (store, path, payload) = (Arc::clone(store), path.clone(), PutPayload::from(bytes(rival)));
        writes.spawn(async move {
            let put = store.put_opts(&path, payload, PutMode::Create.into()).await;
            (rival, put.map_or_else(answer, |_| Answer::Done))
        });
    }
    let mut answers = writes.join_all().await;
    answers.sort_by_key(|(rival, _)| *rival);
    let left = match store.get(path).await {
        Ok(found) => found.bytes().await.ok(),
        // If the object cannot be read, only the answers count.
        Err(_) => None,
    };
    let found = (0..RIVALS).find(|rival| left.as_ref().is_some_and(|left| *left == bytes(*rival)));
    races.count(answers.into_iter().map(|(_, answer)| answer).collect(), found);
}

fn answer(error: Error) -> Answer {
    let is_refused = matches!(error, Error::AlreadyExists { .. } | Error::Precondition { .. });
    if is_refused { Answer::Refused } else { Answer::NotKnown(error.to_string()) }
}
