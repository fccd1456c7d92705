//! The checker of histories: what it must find, what it must not, and that it agrees with a twin that tries all orders.

mod effort;
mod known;
mod queue;
mod story;
mod twin;
