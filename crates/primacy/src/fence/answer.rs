//! The result of attempted writes to a guarded table.

/// The result of an attempted write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The guard did not refuse it.
    Admitted,
    /// The guard refused it because of its token.
    Refused,
    /// It failed for another reason, which proves nothing about the guard.
    Failed {
        /// The database's error.
        why: String,
    },
}
