//! etcd's service `Election`: the server runs the election, and clients keep their sessions alive.

use std::sync::Arc;

use primacy::stores::etcd::api;
use primacy::stores::etcd::api::v3electionpb;
use primacy_kv::command::{
    Bytes, Change, Happened, Keys, Operation, Previous, Read, SessionId, Transaction, Version,
};
use primacy_kv::entry::Entry;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::convert;
use super::errors::{Known, within_recipe};
use super::hub::{Kinds, Wish};
use super::recipe::{self, Placed, Stood};
use super::services::Services;
use super::watching::{Told, Watching, WhileLed};

/// The most leaders that wait to be sent to one observer.
const OBSERVED_MAX: usize = 16;

/// Campaigns, and answers when the election is won. A client that disconnects earlier leaves the queue.
pub(super) async fn campaign(
    services: Arc<Services>,
    request: v3electionpb::CampaignRequest,
) -> Result<v3electionpb::CampaignResponse, Status> {
    let backend = services.backend();
    let session = recipe::session(backend, request.lease).await.map_err(within_recipe)?;
    let beginning = recipe::beginning(&request.name);
    let key = recipe::key_of(&beginning, session);
    let value: Bytes = request.value.into();
    let stand = Transaction {
        comparisons: vec![recipe::made_at(&key, 0)],
        then: vec![recipe::write(&key, Bytes::clone(&value), session)],
        otherwise: vec![Operation::Read(Box::new(Read::of(Keys::One(Bytes::clone(&key)))))],
    };
    let stood = recipe::stand(&services, &key, stand).await.map_err(within_recipe)?;
    let Stood { version, answers, made } = stood;
    let stood = recipe::made_in(answers.first());
    let made_at = stood.map_or(version, Entry::made_at);
    let placed = made.unwrap_or_else(|| Placed::new(&services.hub, &key, made_at));
    let rev = convert::signed(made_at.0);
    if stood.is_some_and(|entry| *entry.value() != *value) {
        say(&services, &key, rev, value, session).await?;
    }
    recipe::wait_for_those_before(&services, &beginning, rev).await.map_err(within_recipe)?;
    // The session may have ended meanwhile, and with it the entry in the queue.
    if !placed.is_there(&services).await.map_err(within_recipe)? {
        return Err(within_recipe(Known::LEASE_NOT_FOUND));
    }
    placed.keep();
    let leader = v3electionpb::LeaderKey { name: request.name, key: key.to_vec(), rev, lease: session.get() };
    Ok(v3electionpb::CampaignResponse { header: Some(services.header(version)), leader: Some(leader) })
}

/// Writes a leader's value, if it still leads.
async fn say(
    services: &Services,
    key: &Bytes,
    rev: i64,
    value: Bytes,
    session: SessionId,
) -> Result<Version, Status> {
    let say = Transaction {
        comparisons: vec![recipe::made_at(key, rev)],
        then: vec![recipe::write(key, value, session)],
        otherwise: Vec::new(),
    };
    match recipe::transact(services.backend(), say).await.map_err(within_recipe)? {
        (version, true, _) => Ok(version),
        (_, false, _) => Err(Known::NOT_LEADER.into()),
    }
}

pub(super) async fn proclaim(
    services: Arc<Services>,
    request: v3electionpb::ProclaimRequest,
) -> Result<v3electionpb::ProclaimResponse, Status> {
    let leader = request.leader.ok_or(Known::NO_LEADER_KEY)?;
    let session = recipe::session(services.backend(), leader.lease).await.map_err(within_recipe)?;
    let key = named(leader.key)?;
    let version = say(&services, &key, leader.rev, request.value.into(), session).await?;
    Ok(v3electionpb::ProclaimResponse { header: Some(services.header(version)) })
}

fn named(key: Vec<u8>) -> Result<Bytes, Status> {
    if key.is_empty() { Err(within_recipe(Known::EMPTY_KEY)) } else { Ok(key.into()) }
}

pub(super) async fn resign(
    services: Arc<Services>,
    request: v3electionpb::ResignRequest,
) -> Result<v3electionpb::ResignResponse, Status> {
    let leader = request.leader.ok_or(Known::NO_LEADER_KEY)?;
    let take_out = recipe::take_out(&named(leader.key)?, leader.rev);
    let (version, _) = super::kv::operate(&services, take_out).await.map_err(within_recipe)?;
    Ok(v3electionpb::ResignResponse { header: Some(services.header(version)) })
}

pub(super) async fn leader(
    services: Arc<Services>,
    request: v3electionpb::LeaderRequest,
) -> Result<v3electionpb::LeaderResponse, Status> {
    let first = recipe::first_of(&recipe::beginning(&request.name));
    let found = recipe::find(&services, first).await.map_err(within_recipe)?;
    let entry = found.entries.first().ok_or(Known::NOBODY_LEADS)?;
    Ok(told(&services, entry, found.version))
}

fn told(services: &Services, entry: &Entry, version: Version) -> v3electionpb::LeaderResponse {
    let header: api::ResponseHeader = services.header(version);
    v3electionpb::LeaderResponse { header: Some(header), kv: Some(convert::key_value(entry)) }
}

/// The channel to an observer.
type Observer = mpsc::Sender<Result<v3electionpb::LeaderResponse, Status>>;

/// Sends each leader, and each of its values, until the client disconnects, or until the nodes have no leader and the
/// client requires one.
pub(super) fn observe(
    services: Arc<Services>,
    request: v3electionpb::LeaderRequest,
    wants_leader: bool,
) -> WhileLed<v3electionpb::LeaderResponse> {
    let hub = Arc::clone(&services.hub);
    let (observer, receiver) = mpsc::channel(OBSERVED_MAX);
    tokio::spawn(async move {
        let beginning = recipe::beginning(&request.name);
        tokio::select! {
            () = observer.closed() => {}
            known = observe_until_failure(&services, &beginning, &observer) => {
                let _ = observer.send(Err(within_recipe(known))).await;
            }
        }
    });
    WhileLed::new(&hub, ReceiverStream::new(receiver), wants_leader)
}

async fn observe_until_failure(services: &Services, beginning: &[u8], observer: &Observer) -> Known {
    loop {
        let first = recipe::first_of(beginning);
        let (leader, version) = match recipe::find(services, first).await {
            Err(known) => return known,
            Ok(found) => match found.entries.first() {
                Some(entry) => (entry.clone(), found.version),
                None => match next_leader(services, beginning, found.version.next()).await {
                    Some(entry) => {
                        let version = entry.changed_at();
                        (entry, version)
                    }
                    None => continue,
                },
            },
        };
        // If it cannot be sent, the client has disconnected, and this task is about to be dropped.
        let _ = observer.send(Ok(told(services, &leader, version))).await;
        follow(services, leader.key(), version.next(), observer).await;
    }
}

/// Waits for the first candidate of an election that had none; `None` if it was compacted.
async fn next_leader(services: &Services, beginning: &[u8], from: Version) -> Option<Entry> {
    let mut watching = Watching::of_request(Arc::clone(&services.hub));
    let kinds = Kinds { writes: true, deletions: false };
    let wish = Wish { keys: recipe::keys_below(beginning), previous: Previous::Unwanted, kinds };
    watching.begin(0, wish, from).expect("it is not charged");
    match std::future::poll_fn(|context| watching.poll_told(context)).await {
        Told::Changes { changes, .. } => changes.into_iter().find_map(written),
        Told::Compacted { .. } | Told::Leaderless => None,
    }
}

fn written(change: Change) -> Option<Entry> {
    match change.happened {
        Happened::Written(entry) => Some(entry),
        Happened::Deleted(_) => None,
    }
}

/// Sends a leader's values, until it is gone.
async fn follow(services: &Services, key: &[u8], from: Version, observer: &Observer) {
    let mut watching = Watching::of_request(Arc::clone(&services.hub));
    let kinds = Kinds { writes: true, deletions: true };
    let wish = Wish { keys: Keys::One(key.into()), previous: Previous::Unwanted, kinds };
    watching.begin(0, wish, from).expect("it is not charged");
    while let Told::Changes { changes, version, .. } =
        std::future::poll_fn(|context| watching.poll_told(context)).await
    {
        for change in changes {
            let Some(entry) = written(change) else { return };
            let _ = observer.send(Ok(told(services, &entry, version))).await;
        }
    }
}
