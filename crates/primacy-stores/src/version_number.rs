//! Versions that are numbers: positive, and never used again.

use primacy_core::election::lease::Version;

use crate::register::SetError;

/// Returns the number of an expected version; `None` where no record is expected. A version that is not a positive number comes from
/// another store, and so cannot be the present one.
pub(crate) fn expected<N: TryFrom<u64>>(expect: Option<&Version>) -> Result<Option<N>, SetError> {
    let Some(version) = expect else { return Ok(None) };
    let number = version.as_u64().filter(|number| *number > 0).and_then(|number| N::try_from(number).ok());
    number.map(Some).ok_or(SetError::Conflict)
}

/// Draws the version of a write: 63 random bits, so that no version is used again.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) fn draw() -> Result<i64, String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random number could be drawn: {error}"))?;
    Ok((i64::from_ne_bytes(bytes) & i64::MAX).max(1))
}
