//! Makes the states of a machine few: what an exhaustive search needs beside the contract.
//!
//! A machine's states are many for three reasons that change nothing of what it will do: its instants grow with
//! the time of day, its generator with each draw, and it keeps some words for people. A search that is to end
//! moves the instants so that "now" is always the same, and takes the rest away. This is the one place where
//! anything but the machine itself touches its fields, and nothing but a search calls it.

use crate::time::Instant;

/// What a machine does with an instant that it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is compared with now. All that have passed are alike.
    End,
    /// A duration is counted from it. Only those that passed longer ago than the longest duration are alike.
    Start,
    /// An answer is waited for from it, and nothing else counts from it. Those are alike for which that is over.
    Asked,
}

/// A machine whose states can be made few.
pub trait Finite {
    /// Shows every instant that the machine keeps, to be changed in place. [`Instant::NEVER`] is to stay.
    fn visit_instants(&mut self, visit: &mut dyn FnMut(Use, &mut Instant));

    /// Takes away what bears on nothing that the machine will do, but for the length of random waits, which all become
    /// alike: a search lets every process be late, and a wait of any length is a short one that ends late.
    fn simplify(&mut self);
}
