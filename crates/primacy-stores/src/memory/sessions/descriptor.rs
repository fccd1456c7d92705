//! The descriptor of the store `memory-sessions:`.

use crate::descriptor::{Login, StoreDescriptor, Support};
use crate::diagnostics;
use crate::memory;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "memory",
    scheme: "memory-sessions",
    form: "memory-sessions:NAME",
    feature: None,
    keeps: "sessions",
    shared_by: "the tasks of one process, for tests",
    login: Login::Secret,
    page: None,
    server: None,
    support: Support::BuiltIn(memory::open_sessions_url, diagnostics::of_one_process),
};
