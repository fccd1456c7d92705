//! Requests to resign, written into the record of an election over a store by a process that does not campaign.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use primacy_core::election::lease::Record;
use primacy_core::election::record_update::{Ending, RecordUpdate, Task};
use primacy_core::election::session::{self, Eviction};
use primacy_core::{FencingToken, Instant, NodeId};
use primacy_stores::{OpenError, Opened, ReadError, Register, SessionError, Sessions, open_existing_any};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::config::{LEASE, REOPEN_PAUSE, Timers, Venue};
use crate::disk::{DiskError, entropy};
use crate::driver::drive_alone;
use crate::lease_node::StoreEffects;
use crate::session_node::SessionsEffects;
use crate::status::NEW_RECORD;

/// The reason why a request was not written, or may not have been.
#[derive(Debug, thiserror::Error)]
pub enum ResignRequestError {
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The record cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The queue cannot be read.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The leader cannot be asked through the store.
    #[error(
        "{holder} leads with the token {token}, and the store takes no request for it: it may be no node of Primacy, or it \
         may have gone just now; look again"
    )]
    CannotBeAsked {
        /// The leader.
        holder: NodeId,
        /// Its leadership.
        token: FencingToken,
    },
    /// The election has no leader and no candidate.
    #[error("nobody leads: the record is released, and there is nobody to ask")]
    NobodyLeads,
    /// The holder of the record does not lead yet, and cannot be asked to resign.
    #[error("nobody leads: {NEW_RECORD}; ask again when it leads")]
    NotYet,
    /// There is no record.
    #[error("the store has no record of this election; nobody has led in it yet")]
    NoRecord,
    /// The store did not return the record in time; nothing was written.
    #[error("the store does not answer; nothing was written")]
    Unanswered,
    /// The store did not confirm the write in time; it may have been done.
    #[error(
        "the store has not confirmed the write in time; it may have been done, so look before you repeat it"
    )]
    Unknown,
    /// The system gives no thread.
    #[error("the system gives no thread: {0}")]
    Thread(io::Error),
    /// The system gives no random numbers.
    #[error(transparent)]
    Entropy(#[from] DiskError),
}

/// The leadership that was asked to resign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResignRequested {
    /// The holder of the record.
    pub holder: NodeId,
    /// The token of its leadership.
    pub token: FencingToken,
}

/// Asks the leader of this election over a store to resign, and returns when the request is in the store. The leader
/// finds it at its next read, drains, and releases. `by` names the requester, for people. Gives up after `patience`.
///
/// Dropping the future does not withdraw the request.
///
/// # Errors
/// [`ResignRequestError`]
pub async fn ask_to_resign(
    url: &str,
    election: &str,
    by: &str,
    patience: Duration,
) -> Result<ResignRequested, ResignRequestError> {
    let began = clock::now();
    let look = async {
        match open_existing_any(url, election).await? {
            Opened::Register(register) => {
                let (record, _) = register.read().await?.ok_or(ResignRequestError::NoRecord)?;
                Ok(Look::Record(Box::new(record)))
            }
            Opened::Sessions(store) => ask_the_first(store.as_ref(), by, patience).await.map(Look::Requested),
        }
    };
    let look = timeout(patience, look).await.unwrap_or(Err(ResignRequestError::Unanswered))?;
    let record = match look {
        Look::Record(record) => record,
        Look::Requested(asked) => return Ok(asked),
    };
    let holder = record.holder.as_ref().ok_or(ResignRequestError::NobodyLeads)?;
    if record.young {
        return Err(ResignRequestError::NotYet);
    }
    let asked = ResignRequested { holder: holder.identity.node, token: record.token };
    if record.is_asked_to_resign() {
        return Ok(asked);
    }
    let task = Task::AskToResign { by: by.to_owned() };
    let (url, election, lease) = (url.to_owned(), election.to_owned(), record.duration.into());
    let looked = Duration::from(clock::now().since(began));
    let (done, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name("primacy-update".to_owned())
        .spawn(move || {
            // The caller may have gone away.
            let _ = done.send(run(task, &url, &election, lease, patience.saturating_sub(looked)));
        })
        .map_err(ResignRequestError::Thread)?;
    match ended.await.unwrap_or(Err(ResignRequestError::Unknown))? {
        Ending::Done => Ok(asked),
        Ending::NothingToDo => Err(ResignRequestError::NobodyLeads),
        Ending::Unknown => Err(ResignRequestError::Unknown),
    }
}

/// The result of reading the store.
enum Look {
    /// A record, into which the request is written.
    Record(Box<Record>),
    /// A queue, whose first entry has been asked.
    Requested(ResignRequested),
}

/// Asks the candidate that is first in the queue. Repeating the request is harmless, so it is sent again if no answer
/// comes.
async fn ask_the_first(
    store: &dyn Sessions,
    by: &str,
    patience: Duration,
) -> Result<ResignRequested, ResignRequestError> {
    let until = clock::now().after(patience.into());
    let pause = Timers::new(Venue::Store, None).poll_interval;
    loop {
        let asked = match store.first().await {
            Ok(None) => return Err(ResignRequestError::NobodyLeads),
            Ok(Some(first)) => {
                let asked = ResignRequested { holder: first.holder.identity.node, token: first.token };
                store.ask_to_resign(first.token, by).await.map(|done| (asked, done))
            }
            Err(error) => Err(error),
        };
        match asked {
            Ok((asked, true)) => return Ok(asked),
            Ok((ResignRequested { holder, token }, false)) => {
                return Err(ResignRequestError::CannotBeAsked { holder, token });
            }
            Err(SessionError::NoAnswer { .. }) if clock::now().after(pause.into()) < until => {
                sleep(pause).await
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Opens the store; retries until `until` while the store is unreachable.
async fn open(url: &str, election: &str, until: Instant) -> Result<Opened, OpenError> {
    loop {
        let opened = open_existing_any(url, election).await;
        let may_be_back = matches!(&opened, Err(error) if error.is_passing());
        if !may_be_back || clock::now().after(REOPEN_PAUSE.into()) >= until {
            return opened;
        }
        sleep(REOPEN_PAUSE).await;
    }
}

/// Runs an update of the record to its end, on this thread, within `patience`.
pub(crate) fn run(
    task: Task,
    url: &str,
    election: &str,
    lease: Duration,
    patience: Duration,
) -> Result<Ending, ResignRequestError> {
    let poll_interval = Timers::new(Venue::Store, Some(lease)).poll_interval;
    let seed = u64::from_be_bytes(entropy()?);
    let began = clock::now();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&runtime.map_err(ResignRequestError::Thread)?, async {
        let opened = timeout(patience, open(url, election, began.after(patience.into()))).await;
        match (opened.map_err(|_| ResignRequestError::Unanswered)??, task) {
            (Opened::Register(register), task) => {
                let update = RecordUpdate::new(task, patience.into(), poll_interval.into(), seed, began);
                on_a_record(update, register).await
            }
            (Opened::Sessions(store), Task::ReleaseFor(dead)) => {
                let eviction = Eviction::new(dead, patience.into(), poll_interval.into(), began);
                on_a_queue(eviction, store).await
            }
            (Opened::Sessions(store), Task::AskToResign { by }) => {
                ask_the_first(store.as_ref(), &by, patience).await.map(|_| Ending::Done)
            }
        }
    })
}

async fn on_a_record(
    mut update: RecordUpdate,
    register: Arc<dyn Register>,
) -> Result<Ending, ResignRequestError> {
    let mut effects = StoreEffects::new(register);
    let driven = drive_alone(&mut update, &mut effects, |update| update.ending().is_some()).await;
    driven.map_err(|_| ResignRequestError::Unknown)?;
    Ok(update.ending().unwrap_or(Ending::Unknown))
}

async fn on_a_queue(mut eviction: Eviction, store: Arc<dyn Sessions>) -> Result<Ending, ResignRequestError> {
    let mut effects = SessionsEffects::new(store, Arc::default(), LEASE.into(), primacy_core::Duration::ZERO);
    let driven = drive_alone(&mut eviction, &mut effects, |eviction| eviction.ending().is_some()).await;
    driven.map_err(|_| ResignRequestError::Unknown)?;
    Ok(match eviction.ending() {
        Some(session::Ending::Done) => Ending::Done,
        Some(session::Ending::NothingToDo) => Ending::NothingToDo,
        Some(session::Ending::Unknown) | None => Ending::Unknown,
    })
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use primacy_core::election::lease::Holder;
    use primacy_core::{Identity, Incarnation};

    use super::*;
    use crate::init::init;

    /// Long enough for a store to restart.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_store_that_is_out_of_reach_is_tried_until_there_is_no_time_left() {
        let directory = std::env::temp_dir().join(format!("primacy-update-away-{}", std::process::id()));
        let url = format!("sqlite:{}", directory.join("election.db").display());
        let dead = Identity::new(NodeId::new("a").unwrap(), Incarnation { count: 1, nonce: 1 });
        let run = |patience: Duration| {
            let (on, lease) = (url.clone(), Duration::from_secs(10));
            tokio::task::spawn_blocking(move || run(Task::ReleaseFor(dead), &on, "test", lease, patience))
        };
        let ended = run(REOPEN_PAUSE * 3).await.unwrap();
        assert!(matches!(ended, Err(ResignRequestError::Open(OpenError::Unavailable { .. }))), "{ended:?}");
        let running = run(PATIENCE);
        std::fs::create_dir(&directory).unwrap();
        init(&url, "test", Duration::from_secs(10)).await.unwrap();
        let Opened::Register(register) = open_existing_any(&url, "test").await.unwrap() else { panic!() };
        let (record, version) = register.read().await.unwrap().unwrap();
        let holder = Some(Holder { identity: dead, address: String::new() });
        register.compare_and_set(Some(&version), &Record { holder, ..record }).await.unwrap();
        let ended = running.await.unwrap();
        assert!(matches!(ended, Ok(Ending::Done)), "{ended:?}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// The request would have no effect, because the holder's leadership has not begun.
    #[tokio::test]
    async fn the_holder_of_a_young_record_does_not_lead_and_is_not_asked() {
        let directory = std::env::temp_dir().join(format!("primacy-update-young-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let url = format!("sqlite:{}", directory.join("election.db").display());
        init(&url, "test", Duration::from_secs(10)).await.unwrap();
        let Opened::Register(register) = open_existing_any(&url, "test").await.unwrap() else { panic!() };
        let (record, version) = register.read().await.unwrap().unwrap();
        let identity = Identity::new(NodeId::new("a").unwrap(), Incarnation { count: 1, nonce: 1 });
        let holder = Some(Holder { identity, address: String::new() });
        let young = Record { holder, young: true, ..record };
        register.compare_and_set(Some(&version), &young).await.unwrap();
        let error = ask_to_resign(&url, "test", "ops", PATIENCE).await.unwrap_err();
        assert!(matches!(error, ResignRequestError::NotYet), "{error}");
        let (record, _) = register.read().await.unwrap().unwrap();
        assert_eq!(record, young);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[tokio::test]
    async fn a_store_that_does_not_answer_is_given_up() {
        let directory = std::env::temp_dir().join(format!("primacy-update-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("election.db");
        let url = format!("sqlite:{}", path.display());
        init(&url, "test", Duration::from_secs(10)).await.unwrap();
        let patience = Duration::from_millis(200);
        let ask = || ask_to_resign(&url, "test", "ops", patience);
        assert!(matches!(ask().await, Err(ResignRequestError::NobodyLeads)));
        // Another process holds the database exclusively, and has stopped.
        let held = rusqlite::Connection::open(&path).unwrap();
        held.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
        let error = ask().await.unwrap_err();
        assert!(matches!(error, ResignRequestError::Unanswered), "{error}");
        let task = Task::AskToResign { by: "ops".to_owned() };
        let on = url.clone();
        let run = move || run(task, &on, "test", Duration::from_secs(10), patience);
        let ended = tokio::task::spawn_blocking(run).await.unwrap();
        assert!(matches!(ended, Err(ResignRequestError::Unanswered)), "{ended:?}");
        drop(held);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
