//! etcd's service `Auth`, of which only `Authenticate` is served. There are no roles: each user may do everything.

use std::sync::Arc;

use primacy::stores::etcd::api;
use primacy_kv::command::{Command, Secret};
use tonic::Status;

use super::backend::Backend;
use super::errors::Known;
use super::outcome;
use super::services::Services;
use super::throttle::Login;

/// Exchanges a name and a password for a token.
pub(super) async fn authenticate(
    services: Arc<Services>,
    request: api::AuthenticateRequest,
) -> Result<api::AuthenticateResponse, Status> {
    let users = services.users.as_ref().ok_or(Known::AUTHENTICATION_NOT_ENABLED)?.current();
    let secret = shared_secret(services.backend()).await?;
    let attempt = || users.log_in(&secret, &request.name, &request.password);
    let login = Login { address: services.client.address, name: &request.name, password: &request.password };
    let token = services.throttle.attempt(&login, attempt).ok_or(Known::TOO_MANY_REQUESTS)??;
    Ok(api::AuthenticateResponse { header: Some(services.header_now()), token })
}

/// The secret that all nodes share. The first login of a cluster creates it; of concurrent ones, one is kept.
async fn shared_secret(backend: &dyn Backend) -> Result<Secret, Known> {
    if let Some(secret) = backend.secret() {
        return Ok(secret);
    }
    let mut drawn = Secret([0; 32]);
    getrandom::fill(&mut drawn.0).expect("the system has random numbers");
    outcome::propose(backend, Command::Share(drawn)).await?;
    backend.secret().ok_or(Known::STOPPED)
}
