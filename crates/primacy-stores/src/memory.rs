//! Cells in the memory of this process, shared by name: for tests, and to try things out. [`MemorySessions`] are the same
//! for elections over sessions.
//!
//! Promises  linearizable; [`changed`](Register::changed) at once.
//! Lasts     as long as the process. Nothing outside the process sees it.

mod sessions;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use primacy_core::election::lease::{Record, Version};
use primacy_core::{Duration, FencingToken};
use tokio::sync::watch;

pub use self::sessions::MemorySessions;
pub(crate) use self::sessions::open_url as open_sessions_url;
use crate::mutex::lock;
use crate::open_error::OpenError;
use crate::opening::{Address, Opened, Opening};
use crate::record;
use crate::register::{Pending, ReadError, Register, SetError};

/// The longest time until [`changed`](Register::changed) resolves, on a machine that lets its threads run.
pub const CHANGE_BOUND: std::time::Duration = std::time::Duration::from_secs(1);

/// All cells of this process, by the name of the store and the election.
static CELLS: Mutex<BTreeMap<(String, String), Arc<Cell>>> = Mutex::new(BTreeMap::new());

/// The content of a cell: the count of its changes, which is the version, and the record's bytes, if there are any.
type Content = (u64, Option<Vec<u8>>);

/// A handle on one election in one store in memory.
///
/// The cell keeps bytes, as every other store does, so that fields lost in encoding are lost here too.
#[derive(Debug)]
pub struct MemoryRegister {
    cell: Arc<Cell>,
    /// The version that was last read or written through this handle.
    seen: AtomicU64,
}

#[derive(Debug)]
struct Cell {
    content: watch::Sender<Content>,
}

impl MemoryRegister {
    /// A handle on the election `election` in the store `name`; handles of the same names share their record.
    #[must_use]
    pub fn open(name: &str, election: &str) -> Self {
        let mut cells = lock(&CELLS);
        let cell = cells.entry((name.to_owned(), election.to_owned())).or_default();
        Self { cell: Arc::clone(cell), seen: AtomicU64::new(cell.content.borrow().0) }
    }

    /// Puts a released record where there has never been one. The count shows that no record was there before, so no node
    /// can hold one, and the node that takes this one has nothing to wait for.
    fn make_released(&self) {
        let token = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let token = FencingToken(u64::try_from(token).unwrap_or(u64::MAX / 2));
        let record = Record::released(token, Duration::ZERO);
        let bytes = record::encode(&record).expect("a record without names is short");
        self.cell.content.send_if_modified(|content| {
            let absent = content.0 == 0;
            if absent {
                *content = (1, Some(bytes));
            }
            absent
        });
    }

    fn exists(name: &str) -> bool {
        let cells = lock(&CELLS);
        cells.keys().any(|(store, _)| store == name)
    }

    /// Puts arbitrary bytes in the place of the record, as another program could; for tests.
    pub fn plant(&self, bytes: &[u8]) {
        self.cell.content.send_modify(|(version, content)| {
            *version += 1;
            *content = Some(bytes.to_vec());
        });
    }

    /// Removes the record, as another program could; for tests. The count continues, so that no version is used again.
    pub fn erase(&self) {
        self.cell.content.send_modify(|(version, content)| {
            *version += 1;
            *content = None;
        });
    }

    /// The kept bytes, even if they are no record; for tests.
    #[must_use]
    pub fn bytes(&self) -> Option<Vec<u8>> {
        self.cell.content.borrow().1.clone()
    }

    fn read_now(&self) -> Result<Option<(Record, Version)>, ReadError> {
        let (version, bytes) = self.cell.content.borrow().clone();
        self.seen.store(version, Ordering::SeqCst);
        let Some(bytes) = bytes else { return Ok(None) };
        let record = record::decode(&bytes).map_err(|error| ReadError::Malformed { error })?;
        Ok(Some((record, Version::from(version))))
    }

    fn compare_and_set_now(&self, expect: Option<&Version>, record: &Record) -> Result<Version, SetError> {
        let bytes = record::encode(record)?;
        let mut written = None;
        self.cell.content.send_if_modified(|(version, content)| {
            let is_expected = match expect {
                None => content.is_none(),
                Some(expect) => content.is_some() && *expect == Version::from(*version),
            };
            if !is_expected {
                return false;
            }
            *version += 1;
            *content = Some(bytes);
            written = Some(*version);
            true
        });
        let version = written.ok_or(SetError::Conflict)?;
        self.seen.store(version, Ordering::SeqCst);
        Ok(Version::from(version))
    }
}

impl Default for Cell {
    fn default() -> Self {
        Self { content: watch::Sender::new((0, None)) }
    }
}

impl Register for MemoryRegister {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        Box::pin(async { self.read_now() })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move { self.compare_and_set_now(expect, record) })
    }

    fn changed(&self) -> Pending<'_, ()> {
        let mut content = self.cell.content.subscribe();
        Box::pin(async move {
            // The sender belongs to the cell that `self` holds, so the wait ends by a change only.
            let _ = content.wait_for(|(version, _)| *version != self.seen.load(Ordering::SeqCst)).await;
        })
    }
}

/// Opens `memory:NAME`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(async move {
        if address.rest.trim_start_matches('/').is_empty() {
            let why = "a store in memory needs a name".to_owned();
            return Err(OpenError::Malformed { form: "memory:NAME", why });
        }
        if !address.create && !MemoryRegister::exists(&address.rest) {
            // The name is not shown: it may be the whole URL of another store, with its password.
            let why = "this process has no store of this name in its memory".to_owned();
            return Err(OpenError::Unavailable { why });
        }
        let register = MemoryRegister::open(&address.rest, &address.election);
        if address.create {
            register.make_released();
        }
        let register: Arc<dyn Register> = Arc::new(register);
        Ok(Opened::Register(register))
    })
}
