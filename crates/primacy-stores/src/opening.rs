//! The opening of a store for one election: the address that it is given, and the store that it returns.

use std::sync::Arc;

use crate::open_error::OpenError;
use crate::register::{Pending, Register};
use crate::sessions::Sessions;

/// A store being opened.
pub(crate) type Opening = Pending<'static, Result<Opened, OpenError>>;

/// A store that is open for one election.
#[derive(Clone, Debug)]
pub enum Opened {
    /// It keeps a record, for the election [`lease`](primacy_core::election::lease).
    Register(Arc<dyn Register>),
    /// It keeps sessions and their entries, for the election [`session`](primacy_core::election::session).
    Sessions(Arc<dyn Sessions>),
}

/// The arguments with which a store is opened.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// The rest of the URL after `scheme:`.
    pub(crate) rest: String,
    /// The election, whose name has been checked.
    pub(crate) election: String,
    /// True if a database or a directory that does not exist may be made.
    pub(crate) create: bool,
}
