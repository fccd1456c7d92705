//! Every store under the laws.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use primacy_conformance::{Capabilities, Harness, LAWS, Outcome, check, rival};
use primacy_stores::faulty::FaultyRegister;
use primacy_stores::memory::MemoryRegister;
use primacy_stores::{Pending, Register, open};
use rusqlite::{Connection, OptionalExtension};

/// What a rival's process is told: the URL, the election, its number and the last token, one a line.
const RIVAL_VARIABLE: &str = "PRIMACY_TEST_RIVAL";

/// A store in memory, with or without the decorator in front.
struct MemoryHarness {
    name: &'static str,
    is_faulty: bool,
}

impl Harness for MemoryHarness {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { processes: false, lasting: true, raw_bytes: true }
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        Box::pin(async move {
            // By its URL a new cell has a released record; the laws begin with absence.
            let register: Arc<dyn Register> = Arc::new(MemoryRegister::open(self.name, election));
            if self.is_faulty { Arc::new(FaultyRegister::new(register).0) } else { register }
        })
    }

    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        Box::pin(async move { MemoryRegister::open(self.name, election).plant(bytes) })
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move { MemoryRegister::open(self.name, election).bytes() })
    }
}

/// A new SQLite database.
struct SqliteHarness {
    directory: PathBuf,
}

impl SqliteHarness {
    /// A database that this store has made (in WAL mode), or an application's (with a rollback journal).
    async fn new(name: &str, is_host: bool) -> Self {
        let directory = std::env::temp_dir().join(format!("primacy-laws-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
        let harness = Self { directory };
        if is_host {
            harness.connect().execute_batch("CREATE TABLE theirs(a)").expect("a new database");
        }
        // The first election of a new database gets a record; those of the laws are to have none.
        drop(harness.open("not one of the laws").await);
        harness
    }

    fn path(&self) -> PathBuf {
        self.directory.join("laws.db")
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    fn connect(&self) -> Connection {
        let connection = Connection::open(self.path()).expect("the database can be opened");
        connection.busy_timeout(std::time::Duration::from_secs(20)).expect("a time to wait");
        connection
    }
}

impl Drop for SqliteHarness {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Harness for SqliteHarness {
    fn name(&self) -> String {
        "sqlite".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { processes: true, lasting: true, raw_bytes: true }
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        Box::pin(async move { open(&self.url(), election).await.expect("the database can be opened") })
    }

    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        Box::pin(async move {
            let sql = "UPDATE primacy_record SET version = version + 1, record = ?2 WHERE election = ?1";
            let rows = self.connect().execute(sql, (election, bytes)).expect("the database can be written");
            assert_eq!(rows, 1);
        })
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let sql = "SELECT record FROM primacy_record WHERE election = ?1";
            let found = self.connect().query_row(sql, [election], |row| row.get(0)).optional();
            found.expect("the database can be read")
        })
    }

    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("a test knows its own program"));
        command.args(["--exact", "play_as_a_rival", "--nocapture"]);
        command.env(RIVAL_VARIABLE, format!("{}\n{election}\n{number}\n{last}", self.url()));
        command
    }
}

/// Not a test of its own: what each rival's process does.
#[tokio::test]
async fn play_as_a_rival() {
    let Ok(told) = std::env::var(RIVAL_VARIABLE) else { return };
    let [url, election, number, last] = told.lines().collect::<Vec<_>>().try_into().unwrap();
    let register = open(url, election).await.unwrap();
    rival::play_as_process(&*register, number.parse().unwrap(), last.parse().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_keeps_the_laws() {
    let outcomes = check(&MemoryHarness { name: "memory", is_faulty: false }).await;
    let not_claimed: Vec<_> =
        outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::NotClaimed).map(|(law, _)| *law).collect();
    assert_eq!(not_claimed, ["of_many_processes_exactly_one_wins"]);
    assert_eq!(outcomes.len(), LAWS.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_behind_the_decorator_keeps_the_laws() {
    check(&MemoryHarness { name: "faulty memory", is_faulty: true }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_keeps_the_laws() {
    let outcomes = check(&SqliteHarness::new("own", false).await).await;
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Passed), "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_in_the_database_of_an_application_keeps_the_laws() {
    let outcomes = check(&SqliteHarness::new("host", true).await).await;
    assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::Passed), "{outcomes:?}");
}

/// A store that is not there.
struct AbsentHarness;

impl Harness for AbsentHarness {
    fn name(&self) -> String {
        "absent".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE
    }

    fn reach(&self) -> Pending<'_, Result<(), String>> {
        Box::pin(async { Err("nobody listens".to_owned()) })
    }

    fn open<'a>(&'a self, _election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        unreachable!("it is not there")
    }
}

#[tokio::test]
async fn a_store_that_is_not_there_is_not_run_and_never_passed() {
    if std::env::var_os(primacy_conformance::REQUIRE_LIVE_VARIABLE).is_none() {
        let outcomes = check(&AbsentHarness).await;
        assert!(outcomes.iter().all(|(_, outcome)| *outcome == Outcome::NotRun));
    }
}
