//! etcd's service `Lock`: the server waits for the lock, and clients keep their sessions alive.

use std::sync::Arc;

use primacy::stores::etcd::api::v3lockpb;
use primacy_kv::command::{Answer, Bytes, Delete, Keys, Operation, Previous, Read, Transaction};
use primacy_kv::entry::Entry;
use tonic::Status;

use super::errors::{Known, within_recipe};
use super::recipe::{self, Placed, Stood};
use super::services::Services;
use super::{convert, kv};

/// Waits for the lock, and answers when the client has it. A client that disconnects earlier leaves the queue.
pub(super) async fn lock(
    services: Arc<Services>,
    request: v3lockpb::LockRequest,
) -> Result<v3lockpb::LockResponse, Status> {
    let backend = services.backend();
    let session = recipe::session(backend, request.lease).await.map_err(within_recipe)?;
    let beginning = recipe::beginning(&request.name);
    let key = recipe::key_of(&beginning, session);
    let first = Operation::Read(Box::new(recipe::first_of(&beginning)));
    let own = Operation::Read(Box::new(Read::of(Keys::One(Bytes::clone(&key)))));
    let stand = Transaction {
        comparisons: vec![recipe::made_at(&key, 0)],
        then: vec![recipe::write(&key, Bytes::from([]), session), first.clone()],
        otherwise: vec![own, first],
    };
    let stood = recipe::stand(&services, &key, stand).await.map_err(within_recipe)?;
    let Stood { mut version, answers, made } = stood;
    let made_at = recipe::made_in(answers.first()).map_or(version, Entry::made_at);
    let is_first = recipe::made_in(answers.get(1)).is_none_or(|first| first.made_at() == made_at);
    let placed = made.unwrap_or_else(|| Placed::new(&services.hub, &key, made_at));
    if !is_first {
        let rev = convert::signed(made_at.0);
        let waited = recipe::wait_for_those_before(&services, &beginning, rev).await;
        version = waited.map_err(within_recipe)?;
        // The session may have ended meanwhile, and with it the entry in the queue.
        if !placed.is_there(&services).await.map_err(within_recipe)? {
            return Err(Known::SESSION_EXPIRED.into());
        }
    }
    placed.keep();
    Ok(v3lockpb::LockResponse { header: Some(services.header(version)), key: key.to_vec() })
}

pub(super) async fn unlock(
    services: Arc<Services>,
    request: v3lockpb::UnlockRequest,
) -> Result<v3lockpb::UnlockResponse, Status> {
    if request.key.is_empty() {
        return Err(within_recipe(Known::EMPTY_KEY));
    }
    let delete = Delete { keys: Keys::One(request.key.into()), previous: Previous::Unwanted };
    let deleted = kv::operate(&services, Operation::Delete(delete)).await;
    let (version, _): (_, Answer) = deleted.map_err(within_recipe)?;
    Ok(v3lockpb::UnlockResponse { header: Some(services.header(version)) })
}
