//! The broker's HTTP API, which is osqueue's. A broker that does not lead answers 503 and names the leader.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use primacy::leader_document::{LeadershipStatus, SubmitError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::broker::Broker;
use crate::queue::{Done, Held, Mutation, Status};

/// All routes of the API.
pub(crate) fn routes(broker: Broker) -> Router {
    Router::new()
        .route("/v1/jobs", post(push).get(jobs))
        .route("/v1/jobs/claim", post(claim))
        .route("/v1/jobs/{id}/heartbeat", post(heartbeat))
        .route("/v1/jobs/{id}/complete", post(complete))
        .route("/v1/jobs/{id}/release", post(release))
        .route("/v1/stats", get(stats))
        .route("/state", get(state))
        .route("/healthz", get(healthz))
        .with_state(broker)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Push {
    payload: Value,
    #[serde(rename = "type")]
    kind: Option<String>,
    max_attempts: Option<u64>,
    key: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    worker_id: String,
    #[serde(default)]
    types: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hold {
    worker_id: String,
    claim: Option<String>,
}

async fn push(State(broker): State<Broker>, Json(push): Json<Push>) -> Response {
    let Push { payload, kind, max_attempts, key } = push;
    let Some(id) = random_name() else { return no_numbers() };
    match broker.submit(Mutation::Push { id, payload, kind, max_attempts, key }).await {
        Ok(Done::Pushed(id)) => (StatusCode::CREATED, Json(json!({ "jobId": id }))).into_response(),
        other => answer(&broker, other),
    }
}

async fn claim(State(broker): State<Broker>, Json(claim): Json<Claim>) -> Response {
    let Claim { worker_id, types } = claim;
    let Some(claim) = random_name() else { return no_numbers() };
    match broker.submit(Mutation::Claim { worker_id, kinds: types, claim }).await {
        Ok(Done::Claimed(Some(job))) => Json(json!({
            "jobId": job.id, "payload": job.payload, "type": job.kind, "claim": job.claim, "attempts": job.attempts,
        }))
        .into_response(),
        Ok(Done::Claimed(None)) => Json(json!({})).into_response(),
        other => answer(&broker, other),
    }
}

async fn heartbeat(broker: State<Broker>, id: Path<String>, hold: Json<Hold>) -> Response {
    held(broker, id, hold, Mutation::Heartbeat).await
}

async fn complete(broker: State<Broker>, id: Path<String>, hold: Json<Hold>) -> Response {
    held(broker, id, hold, Mutation::Complete).await
}

async fn release(broker: State<Broker>, id: Path<String>, hold: Json<Hold>) -> Response {
    held(broker, id, hold, Mutation::Release).await
}

async fn held(
    State(broker): State<Broker>,
    Path(id): Path<String>,
    Json(hold): Json<Hold>,
    mutation: fn(Held) -> Mutation,
) -> Response {
    let held = Held { id, worker_id: hold.worker_id, claim: hold.claim };
    let done = broker.submit(mutation(held)).await;
    answer(&broker, done)
}

async fn jobs(State(broker): State<Broker>) -> Response {
    match broker.queue() {
        Some(queue) => Json(&queue.jobs).into_response(),
        None => not_leading(&broker),
    }
}

async fn state(State(broker): State<Broker>) -> Response {
    match broker.queue() {
        Some(queue) => Json(&*queue).into_response(),
        None => not_leading(&broker),
    }
}

async fn stats(State(broker): State<Broker>) -> Response {
    let Some(queue) = broker.queue() else { return not_leading(&broker) };
    let in_progress = queue.jobs.iter().filter(|job| job.status == Status::InProgress).count();
    Json(json!({
        "unclaimed": queue.jobs.len() - in_progress, "inProgress": in_progress, "completedTotal": queue.completed_total,
        "writes": broker.writes(),
    }))
    .into_response()
}

async fn healthz(State(broker): State<Broker>) -> Response {
    match broker.leadership() {
        LeadershipStatus::Leading { token } => {
            Json(json!({ "leading": true, "token": token.0 })).into_response()
        }
        LeadershipStatus::Standby | LeadershipStatus::Ended { .. } => {
            Json(json!({ "leading": false, "leader": broker.leader() })).into_response()
        }
    }
}

/// Returns the response to a mutation that returns no data.
fn answer(broker: &Broker, done: Result<Done, SubmitError>) -> Response {
    match done {
        Ok(Done::Yes | Done::Pushed(_) | Done::Claimed(_)) => StatusCode::NO_CONTENT.into_response(),
        Ok(Done::Stale) => problem(
            StatusCode::CONFLICT,
            "another claim has this job; what was done under this one counts for nothing",
        ),
        Ok(Done::Gone) => problem(StatusCode::GONE, "there is no such job any more"),
        Err(SubmitError::NotLeading | SubmitError::NotDone { .. }) => not_leading(broker),
        Err(error @ SubmitError::Unknown { .. }) => {
            // Only the next leader knows whether it was done: with its key or claim, the client may repeat the request.
            problem(StatusCode::GATEWAY_TIMEOUT, &error.to_string())
        }
        Err(error @ SubmitError::Rejected { .. }) => {
            problem(StatusCode::INSUFFICIENT_STORAGE, &error.to_string())
        }
    }
}

fn not_leading(broker: &Broker) -> Response {
    let body =
        json!({ "error": "this broker does not lead, and nothing was changed", "leader": broker.leader() });
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

fn problem(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

fn no_numbers() -> Response {
    problem(StatusCode::INTERNAL_SERVER_ERROR, "the system gives no random numbers")
}

/// A unique name: 128 random bits.
fn random_name() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
