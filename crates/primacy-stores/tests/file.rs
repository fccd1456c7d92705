//! Promises of the store `file` beyond the laws that every store passes: about directories, and their content.
#![cfg(feature = "file")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use primacy_core::FencingToken;
use primacy_core::election::lease::{Record, Version};
use primacy_stores::file::{FileRegister, open, open_existing};
use primacy_stores::{OpenError, ReadError, RecordError, Register, SetError};

/// Far more than anything here takes; a wait of this length is for an event that does not come.
const BOUND: Duration = Duration::from_secs(20);

/// A directory that goes away with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let path = std::env::temp_dir().join(format!("primacy-file-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary directory can be written");
        Self(path)
    }

    fn store(&self) -> PathBuf {
        self.0.join("store")
    }

    /// The directory of the election `e`.
    fn election(&self) -> PathBuf {
        self.store().join("e.election")
    }

    fn record(&self) -> PathBuf {
        self.election().join("record")
    }

    async fn open(&self) -> FileRegister {
        open(&self.store(), "e").await.expect("the directory can be used")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn record(token: u64) -> Record {
    Record::released(FencingToken(token), primacy_core::Duration::from_secs(10))
}

async fn write(register: &FileRegister, expect: Option<&Version>, token: u64) -> Result<Version, SetError> {
    register.compare_and_set(expect, &record(token)).await
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

async fn refusal(path: &Path) -> String {
    let error = open(path, "e").await.expect_err("this must not be opened");
    assert!(matches!(error, OpenError::Refused { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_directory_is_made_for_its_owner_alone_and_an_election_when_it_is_first_written() {
    let directory = Directory::new();
    let register = directory.open().await;
    assert_eq!(mode(&directory.store()), 0o700);
    assert_eq!(register.read().await, Ok(None));
    assert!(!directory.election().exists(), "reading makes nothing");
    let version = write(&register, None, 7).await.unwrap();
    assert_eq!(mode(&directory.election()), 0o700);
    let text = fs::read_to_string(directory.record()).unwrap();
    let (line, json) = text.split_once('\n').unwrap();
    assert_eq!(line, format!("primacy-file 1 {version:?} e"));
    assert!(json.starts_with(r#"{"primacy":1,"token":7,"#), "{json}");
    let names: Vec<_> =
        fs::read_dir(directory.election()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(names, ["record"], "nothing is left beside it");
}

#[tokio::test]
async fn to_look_at_an_election_makes_nothing() {
    let directory = Directory::new();
    let error = open_existing(&directory.store(), "e").await.expect_err("there is no directory");
    assert!(matches!(error, OpenError::Unavailable { .. }), "{error:?}");
    assert!(!directory.store().exists());
    let error = open(&directory.store().join("deeper"), "e").await.expect_err("nor one above it");
    assert!(matches!(error, OpenError::Unavailable { .. }), "{error:?}");
    directory.open().await;
    assert_eq!(open_existing(&directory.store(), "e").await.unwrap().read().await, Ok(None));
    assert_eq!(fs::read_dir(directory.store()).unwrap().count(), 0);
}

#[tokio::test]
async fn what_is_no_directory_or_everybodys_is_refused() {
    let directory = Directory::new();
    fs::write(directory.store(), "mine").unwrap();
    assert!(refusal(&directory.store()).await.contains("no directory"));
    assert_eq!(fs::read(directory.store()).unwrap(), b"mine");
    fs::remove_file(directory.store()).unwrap();

    fs::create_dir(directory.store()).unwrap();
    for everybody in [0o777, 0o1777, 0o702] {
        fs::set_permissions(directory.store(), fs::Permissions::from_mode(everybody)).unwrap();
        let why = refusal(&directory.store()).await;
        assert!(why.contains("everybody may write") && why.contains("chmod o-w"), "{why}");
    }
    fs::set_permissions(directory.store(), fs::Permissions::from_mode(0o750)).unwrap();
    let register = directory.open().await;
    let version = write(&register, None, 1).await.unwrap();

    fs::set_permissions(directory.election(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
    let refused = write(&register, Some(&version), 2).await;
    assert!(matches!(refused, Err(SetError::Unavailable { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_write_that_is_given_up_names_the_process_that_holds_the_lock() {
    let directory = Directory::new();
    let register = directory.open().await;
    let version = write(&register, None, 1).await.unwrap();
    let held = fs::File::open(directory.election()).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let attempts = primacy_stores::Attempts::default();
    let holder = format!("the process {} holds the lock of ", std::process::id());
    let told = async {
        while attempts.last_error().is_none_or(|error| !error.contains(&holder)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        written = attempts.observe(write(&register, Some(&version), 2)) => panic!("{written:?}"),
        told = tokio::time::timeout(BOUND, told) => told.expect("the holder is named"),
    }
}

#[tokio::test]
async fn an_election_that_others_may_enter_is_closed_to_them() {
    let directory = Directory::new();
    fs::create_dir(directory.store()).unwrap();
    fs::set_permissions(directory.store(), fs::Permissions::from_mode(0o755)).unwrap();
    let register = directory.open().await;
    write(&register, None, 1).await.unwrap();
    assert_eq!(mode(&directory.election()), 0o700, "who can open it can lock it");
    fs::set_permissions(directory.election(), fs::Permissions::from_mode(0o755)).unwrap();
    register.read().await.unwrap().expect("a record");
    assert_eq!(mode(&directory.election()), 0o700);
    if rustix::process::geteuid().is_root() {
        // A group that is named may take part.
        let shared = directory.0.join("shared");
        let url = format!("file:{}?group=65533", shared.display());
        let register = primacy_stores::open(&url, "e").await.unwrap();
        register.compare_and_set(None, &record(1)).await.unwrap();
        for path in [shared.clone(), shared.join("e.election")] {
            assert_eq!(
                (mode(&path) & 0o777, fs::metadata(&path).unwrap().gid()),
                (0o770, 65533),
                "{}",
                path.display()
            );
        }
        // Another user's, where every user could have made it.
        std::os::unix::fs::chown(directory.store(), Some(65534), None).unwrap();
        fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o1777)).unwrap();
        let why = refusal(&directory.store()).await;
        assert!(why.contains("belongs to the user nobody (65534)"), "{why}");
        fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o755)).unwrap();
    } else {
        not_run("a directory of another user takes root");
    }
}

#[tokio::test]
async fn links_and_pipes_are_neither_followed_nor_waited_for() {
    let directory = Directory::new();
    let register = directory.open().await;
    let version = write(&register, None, 1).await.unwrap();
    let elsewhere = directory.0.join("elsewhere");
    fs::rename(directory.record(), &elsewhere).unwrap();
    let before = fs::read(&elsewhere).unwrap();

    for make in [&|| symlink(&elsewhere, directory.record()).unwrap(), &|| pipe(&directory.record()), &|| {
        fs::create_dir(directory.record()).unwrap();
    }] as [&dyn Fn(); 3]
    {
        make();
        let Err(ReadError::Unavailable { why }) = register.read().await else { panic!("it is no file") };
        assert!(why.contains("remove it"), "{why}");
        for expect in [None, Some(&version)] {
            let refused = write(&register, expect, 2).await;
            assert!(matches!(refused, Err(SetError::Unavailable { .. })), "{refused:?}");
        }
        assert_eq!(fs::read(&elsewhere).unwrap(), before);
        fs::remove_file(directory.record()).or_else(|_| fs::remove_dir(directory.record())).unwrap();
    }

    // A link in the place of the file that becomes the record is replaced, and what it leads to is not touched.
    fs::rename(&elsewhere, directory.record()).unwrap();
    fs::write(&elsewhere, "mine").unwrap();
    symlink(&elsewhere, directory.election().join("record.next")).unwrap();
    write(&register, Some(&version), 2).await.unwrap();
    assert_eq!(fs::read(&elsewhere).unwrap(), b"mine");

    fs::remove_dir_all(directory.election()).unwrap();
    fs::create_dir(directory.0.join("other")).unwrap();
    symlink(directory.0.join("other"), directory.election()).unwrap();
    assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
    assert!(matches!(write(&register, None, 1).await, Err(SetError::Unavailable { .. })));
}

fn pipe(path: &Path) {
    let status = Command::new("mkfifo").arg(path).status().expect("mkfifo can be run");
    assert!(status.success(), "{status:?}");
}

#[tokio::test]
async fn what_is_no_record_of_this_store_is_malformed_and_kept() {
    let directory = Directory::new();
    let register = directory.open().await;
    let version = write(&register, None, 1).await.unwrap();
    let whole = fs::read(directory.record()).unwrap();
    let other = String::from_utf8(whole.clone()).unwrap().replace(" e\n", " f\n").into_bytes();
    let long = [whole.clone(), vec![b' '; 1 << 20]].concat();
    for bytes in
        [b"".as_slice(), b"mine\n", b"\xff\n", b"primacy-file 1\n", b"primacy-file x y z\n{}", &other, &long]
    {
        fs::write(directory.record(), bytes).unwrap();
        let found = register.read().await;
        assert!(matches!(found, Err(ReadError::Malformed { .. })), "{found:?}");
        let expects = [None, Some(&version)];
        for expect in if bytes == long { &expects[..1] } else { &expects } {
            assert_eq!(write(&register, *expect, 2).await, Err(SetError::Conflict));
        }
        assert_eq!(fs::read(directory.record()).unwrap(), bytes, "it is kept");
    }
    fs::write(directory.record(), b"primacy-file 2 1-a e\n{}").unwrap();
    let later = register.read().await;
    assert!(
        matches!(later, Err(ReadError::Malformed { error: RecordError::LaterFormat { found: 2 } })),
        "{later:?}"
    );
    // A record that was cut short by an incomplete copy is not taken for a shorter record.
    for length in 0..whole.len() - 2 {
        fs::write(directory.record(), &whole[..length]).unwrap();
        register.read().await.expect_err("it is not whole");
    }
}

#[tokio::test]
async fn a_directory_that_was_removed_or_replaced_is_not_written_any_more() {
    let directory = Directory::new();
    let register = directory.open().await;
    let version = write(&register, None, 1).await.unwrap();
    let away = directory.0.join("away");
    fs::rename(directory.store(), &away).unwrap();
    for is_replaced in [false, true] {
        if is_replaced {
            fs::create_dir(directory.store()).unwrap();
        }
        assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
        for expect in [None, Some(&version)] {
            let refused = write(&register, expect, 2).await;
            assert!(matches!(refused, Err(SetError::Unavailable { .. })), "{refused:?}");
        }
    }
    fs::remove_dir(directory.store()).unwrap();
    fs::rename(&away, directory.store()).unwrap();
    write(&register, Some(&version), 2).await.expect("it is the same one again");
}

#[tokio::test]
async fn a_directory_that_was_made_anew_is_not_taken_for_the_one_that_was_opened() {
    let directory = Directory::new();
    // Many file systems, ext4 among them, give a new directory the number of one that was removed, unless another
    // process gets it first.
    for _ in 0..100 {
        let register = directory.open().await;
        fs::remove_dir(directory.store()).unwrap();
        fs::create_dir(directory.store()).unwrap();
        let found = register.read().await;
        let Err(ReadError::Unavailable { why }) = found else { panic!("it is another one: {found:?}") };
        assert!(why.contains("another directory"), "{why}");
        let refused = write(&register, None, 1).await;
        assert!(matches!(refused, Err(SetError::Unavailable { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn a_waiter_is_woken_by_hands_and_by_the_first_record() {
    let directory = Directory::new();
    let (waiter, writer) = (directory.open().await, directory.open().await);
    let woken = async |waiter: &FileRegister| {
        tokio::time::timeout(BOUND, waiter.changed()).await.expect("the change is noticed");
        waiter.read().await
    };
    assert_eq!(waiter.read().await, Ok(None));
    let (found, version) = tokio::join!(woken(&waiter), write(&writer, None, 1));
    assert_eq!(found, Ok(Some((record(1), version.unwrap()))));
    // The whole election, and anew: the directory that was watched is another one then.
    fs::remove_dir_all(directory.election()).unwrap();
    assert_eq!(woken(&waiter).await, Ok(None));
    let version = write(&writer, None, 2).await.unwrap();
    assert_eq!(woken(&waiter).await, Ok(Some((record(2), version))));
    let text = fs::read_to_string(directory.record()).unwrap();
    fs::write(directory.record(), text.replace("primacy-file 1 ", "primacy-file 1 by-hand-")).unwrap();
    assert!(
        woken(&waiter).await.unwrap().is_some_and(|(_, version)| version.as_bytes().starts_with(b"by-hand-"))
    );
}

/// Set where everything must be there that a test wants.
const REQUIRE_LIVE_VARIABLE: &str = "PRIMACY_REQUIRE_LIVE";

/// Prints to stderr: the output of a macro in a test is not shown when the test passes.
fn not_run(why: &str) {
    let _ = writeln!(std::io::stderr(), "NOT RUN: {why}");
    assert!(std::env::var_os(REQUIRE_LIVE_VARIABLE).is_none(), "required, and not there: {why}");
}

#[tokio::test]
async fn a_memory_file_system_will_do() {
    let shared_memory = Path::new("/dev/shm");
    if !shared_memory.is_dir() {
        not_run(&format!("this machine has no {}", shared_memory.display()));
        return;
    }
    let path = shared_memory.join(format!("primacy-file-{}", std::process::id()));
    let register = open(&path, "e").await.unwrap();
    let written = write(&register, None, 1).await;
    fs::remove_dir_all(&path).unwrap();
    written.unwrap();
}

/// A file system that may or may not be local.
#[cfg(target_os = "linux")]
mod fuse {
    use super::*;

    /// A directory that shows another one through FUSE.
    struct Mount(PathBuf);

    impl Drop for Mount {
        fn drop(&mut self) {
            let _ = Command::new("fusermount").arg("-u").arg(&self.0).status();
        }
    }

    fn mount(of: &Path, at: &Path) -> Result<Mount, String> {
        let output = Command::new("bindfs").args(["--no-allow-other"]).args([of, at]).output();
        let output = output.map_err(|error| format!("bindfs cannot be run: {error}"))?;
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if output.status.success() { Ok(Mount(at.to_owned())) } else { Err(format!("bindfs: {why}")) }
    }

    #[tokio::test]
    async fn fuse_is_refused() {
        let directory = Directory::new();
        let (of, at) = (directory.0.join("of"), directory.0.join("at"));
        fs::create_dir_all(of.join("there")).unwrap();
        fs::create_dir(&at).unwrap();
        let _mount = match mount(&of, &at) {
            Ok(mount) => mount,
            Err(why) => {
                not_run(&why);
                return;
            }
        };
        assert!(at.join("there").exists(), "it is mounted");
        for path in [at.join("there"), at.join("to be made")] {
            let why = refusal(&path).await;
            assert!(why.contains("FUSE") && why.contains("local disk"), "{why}");
        }
        assert!(!of.join("to be made").exists());
        open(&of, "e").await.expect("the same directory, not through FUSE");
    }
}
