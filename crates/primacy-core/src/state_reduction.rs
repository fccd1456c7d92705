//! The reduction of a machine's states, which an exhaustive search needs beside the contract.
//!
//! A machine's states are many for three reasons that change nothing of its behaviour: its instants grow with the time
//! of day, its generator with each draw, and it keeps some text for people. A search that is to end moves the instants
//! so that "now" is always the same, and removes the rest. This is the one place where code outside the machine touches
//! its fields, and only a search calls it.

use crate::time::Instant;

/// The machine's use of an instant that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is compared with now. All that have passed are alike.
    End,
    /// A duration is counted from it. Instants are alike if they passed longer ago than the longest duration.
    Start,
    /// An answer is awaited from it, and nothing else counts from it. Instants are alike if that wait is over.
    Asked,
}

/// The reduction of a machine's states.
pub trait StateReduction {
    /// Shows every instant that the machine keeps, to be changed in place. [`Instant::NEVER`] is to stay.
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant));

    /// Removes the state that bears on nothing that the machine will do, except for the length of random waits, which
    /// all become alike: a search lets every process be late, and a wait of any length is a short one that ends late.
    fn simplify(&mut self);
}
