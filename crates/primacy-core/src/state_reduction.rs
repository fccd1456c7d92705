//! The reduction of a machine's states for an exhaustive search.
//!
//! Many states of a machine differ only in ways that do not affect its behaviour: its instants advance, its random
//! generator changes with each draw, and it keeps data for people to read. To stay finite, a search shifts the instants
//! so that "now" is always the same, and removes the rest. Only here does code outside a machine change its fields, and
//! only a search calls it.

use crate::time::Instant;

/// The use that a machine makes of a stored instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The instant is compared with now. All past instants are equivalent.
    End,
    /// A duration is measured from it. Instants further back than the longest duration are equivalent.
    Start,
    /// An answer is awaited since then, and nothing else is measured from it. Instants are equivalent once that wait is
    /// over.
    Asked,
}

/// The reduction of a machine's states.
pub trait StateReduction {
    /// Calls `visit` with every stored instant, which may change it in place. [`Instant::NEVER`] must stay as it is.
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant));

    /// Removes state that does not affect the machine's behaviour, and makes all random waits equally long. A search
    /// lets any process be late, so a long wait is a short wait that ends late.
    fn simplify(&mut self);
}
