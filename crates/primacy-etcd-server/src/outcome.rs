//! Converts the outcome of a command to an answer or to one of etcd's errors.

use primacy_kv::command::{Answer, Command, Outcome, Refusal, Version};

use super::backend::Backend;
use super::errors::Known;

/// Replicates a command.
///
/// # Errors
/// The reason why it was not done, or may not have been.
pub(super) async fn propose(backend: &dyn Backend, command: Command) -> Result<(Version, Answer), Known> {
    answered(backend.propose(command).await?)
}

pub(super) fn answered(outcome: Outcome) -> Result<(Version, Answer), Known> {
    let answer = outcome.result.map_err(|refusal: Refusal| Known::from(refusal))?;
    Ok((outcome.version, answer))
}
