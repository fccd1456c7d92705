//! What a guarded table says to an attempt to write.

/// What a table said to a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No guard stood before it.
    Admitted,
    /// The guard refused it, for its token.
    Refused,
    /// It failed for another reason, from which nothing follows about the guard.
    Failed {
        /// What the database said.
        why: String,
    },
}
