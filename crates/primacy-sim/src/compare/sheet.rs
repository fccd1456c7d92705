//! later
use super::{Row, Setup};
/// later
#[must_use]
pub fn sheet(_setup: &Setup, _rows: &[Row]) -> String { String::new() }
