//! Warnings of the guardian, on its supervisor's standard error and in its format. The thread that writes them is
//! started with the first warning, since mostly there is none.

use std::sync::{Arc, OnceLock};

use crate::panic;
use crate::report::{Event, Reporter};

/// Reports warnings without waiting for their reader.
#[derive(Clone, Debug)]
pub(super) struct Warnings(Arc<WarningReporter>);

#[derive(Debug)]
struct WarningReporter {
    json: bool,
    node: String,
    /// `None` if the system has no thread for it: then no warning is reported.
    reporter: OnceLock<Option<Reporter>>,
}

impl Warnings {
    /// Warnings of this node's guardian.
    pub(super) fn new(node: &str, json: bool) -> Self {
        Self(Arc::new(WarningReporter { json, node: node.to_owned(), reporter: OnceLock::new() }))
    }

    fn reporter(&self) -> Option<&Reporter> {
        let WarningReporter { json, node, reporter } = &*self.0;
        reporter.get_or_init(|| Reporter::new(*json, node).ok()).as_ref()
    }

    /// Reports a warning.
    pub(super) fn warn(&self, message: &str) {
        if let Some(reporter) = self.reporter() {
            reporter.tell(&Event::Warning { message: format!("guardian: {message}") });
        }
    }

    /// Reports panics from now on. They still end the thread or process as before.
    pub(super) fn catch_panics(&self) {
        let warnings = self.clone();
        panic::handle(move |panic| {
            if let Some(reporter) = warnings.reporter() {
                reporter.tell_of_panic(panic);
            }
        });
    }

    /// Gives the reports a moment to be read, at the end of the process.
    pub(super) fn finish(&self) {
        if let Some(Some(reporter)) = self.0.reporter.get() {
            reporter.finish();
        }
    }
}
