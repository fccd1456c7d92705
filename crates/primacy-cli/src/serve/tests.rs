//! What whatever is asked must not do to a door.

mod fuzz;
