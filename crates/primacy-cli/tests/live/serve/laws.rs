//! Our own store `etcd`, with the door in etcd's place, under all laws of stores.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::Ground;
use primacy_conformance::{Capabilities, Harness, Outcome, SessionCapabilities, SessionsHarness, rival};
use primacy_stores::etcd::{self, EtcdClient, api};
use primacy_stores::{Opened, Pending, Register, Sessions, open, open_any};

use super::door::Door;

/// What a rival's process is told: the URL, the election, its number and the last token, one a line.
const RIVAL_VARIABLE: &str = "PRIMACY_TEST_DOOR_RIVAL";

/// The shortest that the door gives.
const SHORT: Duration = Duration::from_secs(2);

/// How much later than its timeout a session may be gone, on a machine that is busy.
const EXPIRY_BOUND: Duration = Duration::from_secs(5);

/// What is behind the door is not kept, so it is not restarted.
struct DoorHarness {
    url: String,
    client: EtcdClient,
}

impl DoorHarness {
    fn new(door: &Door, query: &str) -> Self {
        let url = format!("etcd://{}/laws{query}", door.address);
        let client = EtcdClient::new(&url).unwrap();
        Self { url, client }
    }

    async fn write(&self, request: api::Request) {
        let success = vec![api::RequestOp { request: Some(request) }];
        let write = api::TxnRequest { success, ..Default::default() };
        self.client.transact(write).await.unwrap();
    }
}

impl Harness for DoorHarness {
    fn name(&self) -> String {
        "the door, recipe=lease".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { processes: true, lasting: true, raw_bytes: true, deletion: true }
    }

    fn change_bound(&self) -> Duration {
        etcd::CHANGE_BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        Box::pin(async move { open(&self.url, election).await.unwrap() })
    }

    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        let key = format!("laws/{election}").into_bytes();
        let put = api::PutRequest { key, value: bytes.to_vec(), ..Default::default() };
        Box::pin(self.write(api::Request::Put(put)))
    }

    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        let key = format!("laws/{election}").into_bytes();
        let delete = api::DeleteRangeRequest { key, ..Default::default() };
        Box::pin(self.write(api::Request::DeleteRange(delete)))
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let key = format!("laws/{election}").into_bytes();
            let answer = self.client.read(api::RangeRequest { key, ..Default::default() }).await.unwrap();
            answer.kvs.into_iter().next().map(|kv| kv.value)
        })
    }

    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "serve::laws::play_as_a_rival", "--nocapture"]);
        command.env(RIVAL_VARIABLE, format!("{}\n{election}\n{number}\n{last}", self.url));
        command
    }
}

/// Not a test of its own: what each rival's process does.
#[tokio::test]
async fn play_as_a_rival() {
    let Ok(told) = std::env::var(RIVAL_VARIABLE) else { return };
    let [url, election, number, last] = told.lines().collect::<Vec<_>>().try_into().unwrap();
    let register = open(url, election).await.unwrap();
    rival::play_as_process(register, number.parse().unwrap(), last.parse().unwrap()).await;
}

impl SessionsHarness for DoorHarness {
    fn name(&self) -> String {
        "the door".to_owned()
    }

    fn capabilities(&self) -> SessionCapabilities {
        SessionCapabilities { ordered: true, expiry: true, requests: true, deletion: true, restart: false }
    }

    fn change_bound(&self) -> Duration {
        etcd::CHANGE_BOUND
    }

    fn short_timeout(&self) -> Duration {
        SHORT
    }

    fn expiry_bound(&self) -> Duration {
        EXPIRY_BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Sessions>> {
        Box::pin(async move {
            match open_any(&self.url, election).await.unwrap() {
                Opened::Sessions(sessions) => sessions,
                Opened::Register(_) => unreachable!("it keeps sessions"),
            }
        })
    }

    fn remove_first<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let range = api::RangeRequest {
                key: format!("laws/{election}/").into_bytes(),
                range_end: format!("laws/{election}0").into_bytes(), // What comes after the slash.
                ..Default::default()
            };
            let answer = self.client.read(range).await.unwrap();
            let first = answer.kvs.into_iter().min_by_key(|kv| kv.create_revision).unwrap();
            let delete = api::DeleteRangeRequest { key: first.key, ..Default::default() };
            self.write(api::Request::DeleteRange(delete)).await;
        })
    }

    fn restart(&self) -> Pending<'_, ()> {
        unreachable!("it says that it is not")
    }
}

/// How many of these laws were asked about, none of which is broken, or it would have been said.
fn passed(outcomes: &[(&'static str, Outcome)]) -> usize {
    outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Passed).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_store_keeps_the_laws_of_sessions_behind_the_door() {
    let ground = Ground::new("door-sessions");
    let door = Door::open(&ground, &[]).await;
    let outcomes = primacy_conformance::check_sessions(&DoorHarness::new(&door, "")).await;
    // All but those about a restart.
    assert!(passed(&outcomes) + 2 >= outcomes.len(), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_store_keeps_the_laws_of_records_behind_the_door() {
    let ground = Ground::new("door-records");
    let door = Door::open(&ground, &[]).await;
    let outcomes = primacy_conformance::check(&DoorHarness::new(&door, "?recipe=lease")).await;
    assert_eq!(passed(&outcomes), outcomes.len(), "{outcomes:?}");
}
