//! ZooKeeper under the laws of stores that keep sessions.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use primacy_conformance::live::zookeeper::{TICK, ZooKeeper};
use primacy_conformance::{Outcome, SESSION_LAWS, SessionCapabilities, SessionsHarness, check_sessions};
use primacy_stores::{Pending, Sessions};
use tokio::runtime::Handle;
use zookeeper_client::Client;

use super::{catch_up, open_url};
use crate::{Column, to_be_tried};

/// The longest delay of the news of a change, and of the end of a session, on a machine that lets its processes run.
const BOUND: Duration = Duration::from_secs(5);

struct Harness {
    ensemble: Mutex<ZooKeeper>,
    addresses: String,
    layout: &'static str,
}

/// Both layouts.
pub(crate) async fn check() -> Vec<Column> {
    let mut columns = Vec::new();
    for layout in ["curator", "kazoo"] {
        let name = format!("zookeeper ({layout})");
        let Some(ensemble) = to_be_tried("zookeeper", ZooKeeper::start()).await else {
            columns.push((name, SESSION_LAWS.iter().map(|law| (law.name, Outcome::NotRun)).collect()));
            continue;
        };
        let addresses = ensemble.addresses();
        let harness = Harness { ensemble: Mutex::new(ensemble), addresses, layout };
        columns.push((name, check_sessions(&harness).await));
    }
    columns
}

impl SessionsHarness for Harness {
    fn name(&self) -> String {
        format!("zookeeper ({})", self.layout)
    }

    fn capabilities(&self) -> SessionCapabilities {
        SessionCapabilities { ordered: true, expiry: true, requests: true, deletion: true, restart: true }
    }

    fn change_bound(&self) -> Duration {
        BOUND
    }

    fn short_timeout(&self) -> Duration {
        Duration::from_millis(10 * u64::from(TICK))
    }

    fn expiry_bound(&self) -> Duration {
        BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Sessions>> {
        Box::pin(async move {
            let url = format!("zookeeper://{}/laws?layout={}", self.addresses, self.layout);
            open_url(&url, election).await
        })
    }

    fn remove_first<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let client = Client::connect(&self.addresses).await.expect("a server");
            let directory = format!("/laws/{election}");
            catch_up(&client, &directory).await;
            let names = client.list_children(&directory).await.expect("the election's znode");
            // The last ten characters are the sequence number.
            let first = names.iter().min_by_key(|name| name[name.len() - 10..].to_owned()).expect("an entry");
            client.delete(&format!("{directory}/{first}"), None).await.expect("it is there");
        })
    }

    fn restart(&self) -> Pending<'_, ()> {
        let mut ensemble = self.ensemble.lock().expect("nobody has panicked with it");
        for which in 0..3 {
            ensemble.kill(which);
        }
        for which in 0..3 {
            ensemble.restart(which);
        }
        // The future that waits for a server cannot move between threads.
        tokio::task::block_in_place(|| Handle::current().block_on(ensemble.serves()));
        Box::pin(async {})
    }
}
