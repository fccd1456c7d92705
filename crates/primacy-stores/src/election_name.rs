//! Names of elections that every store can use as a key.

use crate::open_error::OpenError;

/// The longest name of an election, in bytes.
pub const ELECTION_LENGTH_MAX: usize = 200;

/// The name of the record with the id of a store. No election can have this name; see `docs/stores/README.md`.
pub(crate) const OF_STORE: &str = "primacy/store";

/// Checks that every store can use this name as a key.
pub(crate) fn check_election(election: &str) -> Result<(), OpenError> {
    let why = if election.is_empty() {
        "an election needs a name; this one is empty".to_owned()
    } else if election.len() > ELECTION_LENGTH_MAX {
        format!(
            "the name of an election has at most {ELECTION_LENGTH_MAX} bytes; this one has {}",
            election.len()
        )
    } else if let Some(character) = election.chars().find(|character| character.is_control()) {
        format!("the name of an election has no control characters; this one has {character:?}")
    } else {
        return Ok(());
    };
    Err(OpenError::Election { why })
}
