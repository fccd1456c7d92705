//! The descriptor of the store `memory:`.

use crate::descriptor::{Login, StoreDescriptor, Support};
use crate::diagnostics;
use crate::memory;

pub(crate) const DESCRIPTOR: StoreDescriptor = StoreDescriptor {
    name: "memory",
    scheme: "memory",
    form: "memory:NAME",
    feature: None,
    keeps: "a record",
    shared_by: "the tasks of one process, for tests",
    login: Login::Secret,
    page: None,
    server: None,
    support: Support::BuiltIn(memory::open_url, diagnostics::of_one_process),
};
