//! Every store under the laws, and the table of the outcomes.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::simulated_store::{SimulatedStore, Weather};
use primacy_conformance::{Capabilities, Harness, LAWS, Outcome, check, rival, table};
use primacy_stores::faulty::FaultyRegister;
use primacy_stores::memory::MemoryRegister;
use primacy_stores::{OpenError, Pending, Register, file, memory, open, sqlite};
use rusqlite::{Connection, OptionalExtension};

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
        Capabilities { processes: false, lasting: true, raw_bytes: true, deletion: true }
    }

    fn change_bound(&self) -> Duration {
        memory::CHANGE_BOUND
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

    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move { MemoryRegister::open(self.name, election).erase() })
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move { MemoryRegister::open(self.name, election).bytes() })
    }
}

/// A new SQLite database.
struct SqliteHarness {
    name: &'static str,
    directory: PathBuf,
}

impl SqliteHarness {
    /// A database that this store has made (in WAL mode), or an application's (with a rollback journal).
    async fn new(name: &'static str, is_host: bool) -> Self {
        let directory = new_directory();
        std::fs::create_dir_all(&directory).expect("the temporary directory can be written");
        let harness = Self { name, directory };
        if is_host {
            harness.connect().execute_batch("CREATE TABLE theirs(a)").expect("a new database");
        }
        // The first election of a new database gets a record; elections of the laws are to have none.
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
        connection.busy_timeout(Duration::from_secs(20)).expect("a time to wait");
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
        self.name.to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn change_bound(&self) -> Duration {
        sqlite::CHANGE_BOUND
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

    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let sql = "DELETE FROM primacy_record WHERE election = ?1";
            assert_eq!(self.connect().execute(sql, [election]).expect("the database can be written"), 1);
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
        rival::command(&self.url(), election, number, last)
    }
}

/// A new directory of files.
struct FileHarness {
    directory: PathBuf,
}

impl FileHarness {
    fn new() -> Self {
        Self { directory: new_directory() }
    }

    /// The file of an election's record, without the help of the store.
    fn record(&self, election: &str) -> PathBuf {
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        let letters = election.bytes().map(|byte| match byte {
            byte if plain(byte) => char::from(byte).to_string(),
            byte => format!("%{byte:02x}"),
        });
        self.directory.join(letters.collect::<String>() + ".election").join("record")
    }
}

impl Drop for FileHarness {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Harness for FileHarness {
    fn name(&self) -> String {
        "file".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn change_bound(&self) -> Duration {
        file::CHANGE_BOUND
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Register>> {
        let url = format!("file:{}", self.directory.display());
        Box::pin(async move { open(&url, election).await.expect("the directory can be used") })
    }

    fn plant<'a>(&'a self, election: &'a str, bytes: &'a [u8]) -> Pending<'a, ()> {
        Box::pin(async move {
            static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
            let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let mut text = format!("primacy-file 1 by-hand-{count} {election}\n").into_bytes();
            text.extend_from_slice(bytes);
            std::fs::write(self.record(election), text).expect("the file can be written");
        })
    }

    fn erase<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move { std::fs::remove_file(self.record(election)).expect("the file can be deleted") })
    }

    fn stored<'a>(&'a self, election: &'a str) -> Pending<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let text = std::fs::read(self.record(election)).ok()?;
            let line = text.iter().position(|byte| *byte == b'\n').expect("a first line");
            Some(text[line + 1..].to_vec())
        })
    }

    fn rival(&self, election: &str, number: u64, last: u64) -> Command {
        rival::command(&format!("file:{}", self.directory.display()), election, number, last)
    }
}

/// The path of a directory that is not there yet.
fn new_directory() -> PathBuf {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    std::env::temp_dir().join(format!("primacy-laws-{}-{count}", std::process::id()))
}

/// Not a test of its own: the process of each rival.
#[tokio::test]
async fn play_as_a_rival() {
    rival::play_if_told(async |url, election| {
        let path = std::path::Path::new(&url[url.find(':').unwrap() + 1..]);
        loop {
            match open(url, election).await {
                Ok(register) => return register,
                // Others are writing, or a writer that was killed has left it in the middle.
                Err(OpenError::Unavailable { .. } | OpenError::Shortage { .. }) if path.exists() => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_behind_the_decorator_keeps_the_laws() {
    check(&MemoryHarness { name: "faulty memory", is_faulty: true }).await;
}

/// If set, the table is written anew.
const UPDATE_VARIABLE: &str = "UPDATE_GOLDENFILES";
const TABLE_BEGIN: &str =
    "<!-- made by `UPDATE_GOLDENFILES=1 cargo test -p primacy-conformance --test stores` -->\n\n";
const TABLE_END: &str = "\n<!-- end -->";

/// The simulator's store, in a time of its own.
fn check_simulated() -> Vec<(&'static str, Outcome)> {
    let checking = std::thread::spawn(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(check(&SimulatedStore::new(0, Weather::Calm)))
    });
    checking.join().expect("no panic there")
}

/// In one test, and one store after another: the table is of this run, and laws that take time by the clock are not
/// disturbed by the others.
#[tokio::test(flavor = "multi_thread")]
async fn every_store_keeps_the_laws_and_the_table_says_so() {
    let stores: [Box<dyn Harness>; 4] = [
        Box::new(MemoryHarness { name: "memory", is_faulty: false }),
        Box::new(SqliteHarness::new("sqlite", false).await),
        Box::new(SqliteHarness::new("sqlite, in an application's database", true).await),
        Box::new(FileHarness::new()),
    ];
    let mut columns = vec![("simulated".to_owned(), check_simulated())];
    for store in &stores {
        columns.push((store.name(), check(&**store).await));
    }
    let table = table::render(&LAWS.map(|law| law.name), &columns);
    // Not by a macro: output of a test by macros is not shown when it passes.
    let _ = write!(std::io::stderr(), "\n{table}\n");
    for (store, outcomes) in &columns {
        let others: Vec<_> =
            outcomes.iter().filter(|(_, outcome)| *outcome != Outcome::Passed).map(|(law, _)| *law).collect();
        // The memory of one process is not visible to others.
        let processes = [
            "of_many_processes_exactly_one_wins",
            "answers_to_many_processes_fit_one_order",
            "killed_writers_leave_the_old_or_the_new",
            "changed_wakes_across_processes",
        ];
        let expected: Vec<&str> = match store.as_str() {
            "memory" => processes.to_vec(),
            // It keeps records, and no bytes.
            "simulated" => processes.into_iter().chain(["what_is_no_record_is_refused_and_kept"]).collect(),
            _ => Vec::new(),
        };
        assert_eq!(others, expected, "{store}");
    }
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/stores/README.md");
    table::keep(&page, (TABLE_BEGIN, TABLE_END), &table, std::env::var_os(UPDATE_VARIABLE).is_some());
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

    fn change_bound(&self) -> Duration {
        Duration::ZERO
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
    let outcomes = tokio::spawn(async { check(&AbsentHarness).await }).await;
    if std::env::var_os(primacy_conformance::REQUIRE_LIVE_VARIABLE).is_some() {
        assert!(outcomes.expect_err("it is required to be there").is_panic());
    } else {
        assert!(outcomes.expect("no panic").iter().all(|(_, outcome)| *outcome == Outcome::NotRun));
    }
}
