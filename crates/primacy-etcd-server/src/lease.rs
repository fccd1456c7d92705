//! etcd's service `Lease`: etcd's leases are the sessions of the map.

use std::sync::Arc;

use primacy::stores::etcd::api;
use primacy_core::time::Duration;
use primacy_kv::command::ANSWER_BYTES_MAX;
use primacy_kv::command::{Command, SessionId, TIME_TO_LIVE_MAX, Version};
use tokio_stream::StreamExt;
use tonic::Status;

use super::backend::{Backend, BackendError};
use super::budget::Charge;
use super::errors::Known;
use super::pass::Messages;
use super::services::Services;
use super::watching::WhileLed;
use super::{convert, outcome};

/// The shortest time to live of a session, in seconds, whatever is requested: as in etcd's default configuration.
const SHORTEST: i64 = 2;

pub(super) async fn grant(
    services: Arc<Services>,
    request: api::LeaseGrantRequest,
) -> Result<api::LeaseGrantResponse, Status> {
    let seconds = request.ttl.max(SHORTEST);
    let (version, session) = begin(services.backend(), SessionId::new(request.id), seconds).await?;
    Ok(api::LeaseGrantResponse {
        header: Some(services.header(version)),
        id: session.get(),
        ttl: seconds,
        error: String::new(),
    })
}

/// Begins a session with this number, or with a random one.
///
/// # Errors
/// The reason why it was not begun, or may not have been.
pub(super) async fn begin(
    backend: &dyn Backend,
    asked: Option<SessionId>,
    seconds: i64,
) -> Result<(Version, SessionId), Known> {
    let time_to_live = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    if time_to_live > TIME_TO_LIVE_MAX {
        return Err(Known::LEASE_TOO_LONG);
    }
    loop {
        let session = asked.unwrap_or_else(draw);
        match outcome::propose(backend, Command::Begin { session, time_to_live }).await {
            Ok((version, _)) => return Ok((version, session)),
            // Another client has drawn or chosen the same number.
            Err(Known::LEASE_EXISTS) if asked.is_none() => {}
            Err(known) => return Err(known),
        }
    }
}

/// Draws a random session number; a collision is refused. It is positive, because some clients print it as unsigned.
fn draw() -> SessionId {
    loop {
        let drawn = super::users::random() >> 1;
        let number = i64::try_from(drawn).expect("a bit less");
        if let Some(session) = SessionId::new(number) {
            return session;
        }
    }
}

pub(super) async fn revoke(
    services: Arc<Services>,
    request: api::LeaseRevokeRequest,
) -> Result<api::LeaseRevokeResponse, Status> {
    let session = SessionId::new(request.id).ok_or(Known::LEASE_NOT_FOUND)?;
    let (version, _) = outcome::propose(services.backend(), Command::End { session }).await?;
    Ok(api::LeaseRevokeResponse { header: Some(services.header(version)) })
}

pub(super) async fn time_to_live(
    services: Arc<Services>,
    request: api::LeaseTimeToLiveRequest,
) -> Result<api::LeaseTimeToLiveResponse, Status> {
    let life = match SessionId::new(request.id) {
        Some(session) => {
            services.backend().session(session).await.map_err(|error| unanswered(&services, error))?
        }
        None => None,
    };
    let asked = life.iter().filter(|_| request.keys).flat_map(|life| &life.keys);
    let _charge = charge_list(&services, asked.map(|key| key.len() + size_of::<Vec<u8>>()).sum())?;
    let header = Some(services.header_now());
    let seconds = |time: std::time::Duration| convert::signed(time.as_secs());
    Ok(match life {
        None => api::LeaseTimeToLiveResponse { header, id: request.id, ttl: -1, ..Default::default() },
        Some(life) => api::LeaseTimeToLiveResponse {
            header,
            id: request.id,
            ttl: seconds(life.left),
            granted_ttl: seconds(life.time_to_live),
            keys: if request.keys { life.keys.iter().map(|key| key.to_vec()).collect() } else { Vec::new() },
        },
    })
}

/// Charges a list of so many bytes before it is created.
///
/// # Errors
/// [`Known::ANSWER_TOO_LARGE`] or [`Known::TOO_MANY_REQUESTS`].
fn charge_list(services: &Services, bytes: usize) -> Result<Charge, Status> {
    if u64::try_from(bytes).unwrap_or(u64::MAX) > ANSWER_BYTES_MAX {
        return Err(Known::ANSWER_TOO_LARGE.into());
    }
    services.client.charge_answer(bytes)
}

/// The error if the leader, which alone measures the time of sessions, has not answered.
fn unanswered(services: &Services, error: BackendError) -> Known {
    match error {
        BackendError::TimedOut if services.backend().vitals().leader.is_none() => Known::NO_LEADER,
        BackendError::TimedOut
        | BackendError::AnswerLost
        | BackendError::TooManyRequests
        | BackendError::Stopped => error.into(),
    }
}

pub(super) async fn leases(
    services: Arc<Services>,
    _request: api::LeaseLeasesRequest,
) -> Result<api::LeaseLeasesResponse, Status> {
    let sessions = services.backend().sessions().await.map_err(Known::from)?;
    let _charge = charge_list(&services, sessions.len() * size_of::<api::LeaseStatus>())?;
    let leases = sessions.into_iter().map(|session| api::LeaseStatus { id: session.get() });
    Ok(api::LeaseLeasesResponse { header: Some(services.header_now()), leases: leases.collect() })
}

/// Keeps each named session alive, and answers with its time to live.
pub(super) fn keep_alive(
    services: Arc<Services>,
    sessions: Messages<api::LeaseKeepAliveRequest>,
    wants_leader: bool,
) -> WhileLed<api::LeaseKeepAliveResponse> {
    let hub = Arc::clone(&services.hub);
    let answers = sessions.then(move |request| {
        let services = Arc::clone(&services);
        async move { answer(&services, request?.id).await }
    });
    WhileLed::new(&hub, answers, wants_leader)
}

/// Keeps one session alive, and returns its time to live.
///
/// # Errors
/// The reason why it may not have been kept alive.
pub(super) async fn answer(services: &Services, id: i64) -> Result<api::LeaseKeepAliveResponse, Status> {
    // Taken before the keep-alive, so that the answer does not name a version at which the session was over.
    let header = Some(services.header_now());
    let lives = match SessionId::new(id) {
        Some(session) => {
            services.backend().keep_alive(session).await.map_err(|error| unanswered(services, error))?
        }
        None => None,
    };
    let ttl = lives.map_or(0, |time| convert::signed(time.as_secs()));
    Ok(api::LeaseKeepAliveResponse { header, id, ttl })
}
