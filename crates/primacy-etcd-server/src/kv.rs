//! etcd's service `KV`.

use std::sync::Arc;

use primacy::stores::etcd::api;
use primacy_kv::command::{Answer, Command, OPERATIONS_IN_ALL_MAX, Operation, RequestLimits, Version};
use prost::Message;
use tonic::Status;

use super::backend::Freshness;
use super::convert;
use super::errors::Known;
use super::limits::{OPERATIONS_MAX, REQUEST_BYTES_MAX};
use super::outcome::{answered, propose};
use super::services::Services;
use super::turns::Turn;

/// The bytes that etcd adds to a request before it checks its size: an id and the sender.
const WRAPPING_BYTES: usize = 18;

/// The limits that the map checks. The size is checked in this file, as in etcd.
const LIMITS: RequestLimits =
    RequestLimits { bytes: usize::MAX, operations: OPERATIONS_MAX, operations_in_all: OPERATIONS_IN_ALL_MAX };

pub(super) async fn range(
    services: Arc<Services>,
    request: api::RangeRequest,
) -> Result<api::RangeResponse, Status> {
    let freshness = convert::freshness(&request);
    let read = Operation::Read(Box::new(convert::read(request)?));
    let Answer::Found(found) = services.observe(read, freshness).await?.1 else {
        unreachable!("a read is answered with what was found")
    };
    let _charge = services.client.charge_answer(convert::bytes_of(&found.entries))?;
    Ok(convert::range_response(&found, services.header(found.version)))
}

pub(super) async fn put(
    services: Arc<Services>,
    request: api::PutRequest,
) -> Result<api::PutResponse, Status> {
    let size = request.encoded_len();
    let write = Operation::Write(convert::write(request)?);
    check_size(size)?;
    let Answer::Written { version, previous } = operate(&services, write).await?.1 else {
        unreachable!("a write is answered as one")
    };
    Ok(convert::put_response(previous.as_ref(), services.header(version)))
}

pub(super) async fn delete_range(
    services: Arc<Services>,
    request: api::DeleteRangeRequest,
) -> Result<api::DeleteRangeResponse, Status> {
    let size = request.encoded_len();
    let delete = Operation::Delete(convert::delete(request)?);
    check_size(size)?;
    let Answer::Deleted { version, count, previous } = operate(&services, delete).await?.1 else {
        unreachable!("a deletion is answered as one")
    };
    let _charge =
        services.client.charge_answer(convert::bytes_of(&previous)).map_err(|_| Known::ANSWER_LOST)?;
    Ok(convert::delete_response(count, &previous, services.header(version)))
}

pub(super) async fn txn(
    services: Arc<Services>,
    request: api::TxnRequest,
) -> Result<api::TxnResponse, Status> {
    let size = request.encoded_len();
    let freshness = freshness_of(&request);
    let transaction = Operation::Transaction(convert::transaction(request, OPERATIONS_MAX)?);
    transaction.check(LIMITS).map_err(Known::from)?;
    let (version, answer) = match freshness {
        Some(freshness) => services.observe(transaction, freshness).await?,
        None => {
            check_size(size)?;
            operate(&services, transaction).await?
        }
    };
    let Answer::Decided { held, answers } = answer else { unreachable!("a transaction is answered as one") };
    let refusal = if freshness.is_some() { Known::TOO_MANY_REQUESTS } else { Known::ANSWER_LOST };
    let bytes = answers.iter().map(convert::bytes_of_answer).sum();
    let _charge = services.client.charge_answer(bytes).map_err(|_| refusal)?;
    Ok(convert::txn_response(held, &answers, services.header(version)))
}

pub(super) async fn compact(
    services: Arc<Services>,
    request: api::CompactionRequest,
) -> Result<api::CompactionResponse, Status> {
    let revision = u64::try_from(request.revision).map_err(|_| Known::COMPACTED)?;
    let (version, _) = propose(services.backend(), Command::Compact(Version(revision))).await?;
    Ok(api::CompactionResponse { header: Some(services.header(version)) })
}

/// Returns the freshness that a transaction requires; `None` if it writes.
fn freshness_of(request: &api::TxnRequest) -> Option<Freshness> {
    let operations = request.success.iter().chain(&request.failure);
    let mut freshness = Freshness::Here;
    for operation in operations {
        match &operation.request {
            Some(api::Request::RequestRange(range)) => {
                if convert::freshness(range) == Freshness::Newest {
                    freshness = Freshness::Newest;
                }
            }
            Some(
                api::Request::RequestPut(_)
                | api::Request::RequestDeleteRange(_)
                | api::Request::RequestTxn(_),
            )
            | None => {
                return None;
            }
        }
    }
    Some(freshness)
}

fn check_size(message: usize) -> Result<(), Known> {
    if message + WRAPPING_BYTES > REQUEST_BYTES_MAX { Err(Known::REQUEST_TOO_LARGE) } else { Ok(()) }
}

/// Replicates an operation, after waiting for its turn; returns its answer, and the version of the map after it.
///
/// # Errors
/// The reason why it was not done, or may not have been.
pub(super) async fn operate(services: &Services, operation: Operation) -> Result<(Version, Answer), Known> {
    let Some(turn) = turn(services, &operation).await else {
        return propose(services.backend(), Command::Operate(operation)).await;
    };
    // The turn lasts until the operation is applied, even if the client disconnects earlier.
    let hub = Arc::clone(&services.hub);
    let done = tokio::spawn(async move {
        let outcome = hub.backend.propose(Command::Operate(operation)).await;
        drop(turn);
        outcome
    });
    answered(done.await.map_err(|_| Known::STOPPED)??)
}

/// Waits for the turn of an operation; `None` if it needs no turn.
pub(super) async fn turn(services: &Services, operation: &Operation) -> Option<Turn> {
    services.client.turns.wait(operation, services.backend().size()).await
}
