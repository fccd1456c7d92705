//! The stores that an election can be held in.
//!
//! A store is one file, one feature and one line in [`mod@open`]; it implements [`Register`], a cell with
//! compare-and-set. Stores know no algorithm: what the record means is the business of
//! [`primacy_core::election::lease`].
//!
//! | URL | feature | shared by | page |
//! |---|---|---|---|
//! | `memory:NAME` | none needed | the tasks of one process | [`memory`] |
//! | `file:DIRECTORY` | `file` | the processes of one machine | `docs/stores/file.md` |
//! | `sqlite:PATH` | `sqlite` | the processes of one machine | `docs/stores/sqlite.md` |
//!
//! Every store passes the same laws, which are in the crate `primacy-conformance`.

pub mod faulty;
#[cfg(feature = "file")]
pub mod file;
#[cfg(any(feature = "file", feature = "sqlite"))]
mod file_system;
pub mod mark;
pub mod memory;
pub mod open;
pub mod record;
pub mod register;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "file", feature = "sqlite"))]
mod watch;

pub use mark::{MarkError, StoreMark};
pub use open::{OpenError, check_scheme, open, open_existing};
pub use record::RecordError;
pub use register::{Pending, ReadError, Register, SetError};
