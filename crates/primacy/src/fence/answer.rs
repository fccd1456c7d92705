//! The answers of a guarded table to attempted writes.

/// The answer of a table to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No guard refused it.
    Admitted,
    /// The guard refused it, for its token.
    Refused,
    /// It failed for another reason, from which nothing follows about the guard.
    Failed {
        /// The database's error.
        why: String,
    },
}
