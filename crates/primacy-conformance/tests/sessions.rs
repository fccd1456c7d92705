//! Every store that keeps sessions and needs no server, under the laws.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::{
    Outcome, SESSION_LAWS, SessionCapabilities, SessionsHarness, check_sessions, table,
};
use primacy_stores::faulty::FaultySessions;
use primacy_stores::memory::{self, MemorySessions};
use primacy_stores::{Pending, Sessions};

/// A store in memory, with or without the decorator in front.
struct MemoryHarness {
    name: &'static str,
    is_faulty: bool,
}

impl SessionsHarness for MemoryHarness {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn capabilities(&self) -> SessionCapabilities {
        SessionCapabilities { ordered: true, expiry: true, requests: true, deletion: true, restart: false }
    }

    fn change_bound(&self) -> Duration {
        memory::CHANGE_BOUND
    }

    fn short_timeout(&self) -> Duration {
        Duration::from_millis(300)
    }

    fn expiry_bound(&self) -> Duration {
        memory::CHANGE_BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Sessions>> {
        Box::pin(async move {
            let store: Arc<dyn Sessions> = Arc::new(MemorySessions::open(self.name, election));
            if self.is_faulty { Arc::new(FaultySessions::new(store).0) } else { store }
        })
    }

    fn remove_first<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move { MemorySessions::open(self.name, election).remove_first() })
    }
}

/// If set, the table is written anew.
const UPDATE_VARIABLE: &str = "UPDATE_GOLDENFILES";
const TABLE: (&str, &str) = (
    "<!-- made by `UPDATE_GOLDENFILES=1 cargo test -p primacy-conformance --test sessions` -->\n\n",
    "\n<!-- end -->",
);

#[tokio::test(flavor = "multi_thread")]
async fn memory_keeps_the_laws_of_sessions_with_and_without_the_decorator() {
    let mut columns = Vec::new();
    for (name, is_faulty) in [("sessions in memory", false), ("faulty sessions in memory", true)] {
        let outcomes = check_sessions(&MemoryHarness { name, is_faulty }).await;
        let not_kept = outcomes.iter().filter(|(_, outcome)| *outcome != Outcome::Passed);
        let not_kept: Vec<_> = not_kept.map(|(law, _)| *law).collect();
        assert_eq!(not_kept, ["tokens_grow_across_restart_of_everything"]);
        assert_eq!(outcomes.len(), SESSION_LAWS.len());
        columns.push((name.to_owned(), outcomes));
    }
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/stores/README.md");
    let table = table::render(&SESSION_LAWS.map(|law| law.name), &columns[..1]);
    table::keep(&page, TABLE, &table, std::env::var_os(UPDATE_VARIABLE).is_some());
}
