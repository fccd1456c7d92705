//! Making the first record of an election, so that its first leader has nothing to wait for.
//!
//! Where there is no record, a node cannot tell whether one was deleted a moment ago, so the node that creates it waits a
//! whole lease before it leads. An operator who *knows* that there is no leader can spare it that wait, by a released
//! record whose token is above any that the election has had.

use std::time::Duration;

use primacy_core::FencingToken;
use primacy_core::election::lease::Record;
use primacy_stores::{OpenError, Opened, ReadError, Register, SetError};

use crate::clock;

/// The outcome of [`init`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Init {
    /// There was no record, and one was made. The first candidate leads at once, with the token after this one.
    Made {
        /// The token of the record, which no leadership has.
        token: FencingToken,
    },
    /// There is one already, and it was left as it is.
    Exists {
        /// The record: its holder, if it has one, and its token.
        record: Box<Record>,
    },
    /// The store keeps sessions and no record: there is nothing to make, and its first leader has nothing to wait for.
    NotNeeded,
}

/// The reason why there may be no first record. No existing record was changed.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The store's URL is wrong, or the store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The record cannot be read: the store did not answer, or its content is no record.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The record was not written.
    #[error("the first record was not written: {why}")]
    NotWritten {
        /// The error.
        why: String,
    },
    /// The record may have been written, or may yet be. Repeating [`init`] is safe.
    #[error(
        "it is not known whether the first record was written: {why}. Try again; what is there is never overwritten"
    )]
    Unknown {
        /// The error.
        why: String,
    },
}

/// Makes a released record of the election `election` in the store of `url`, if there is none; also makes the store's
/// database or directory, if it is missing. `lease` is the duration in the record, which must be that of the candidates.
///
/// Call this only if you know that there is no leader: a leader whose record was deleted goes on for at most one lease,
/// and would overlap with the leader elected by this record. Their tokens differ nevertheless.
///
/// Dropping the future does not take the record back.
///
/// # Errors
/// [`InitError`].
pub async fn init(url: &str, election: &str, lease: Duration) -> Result<Init, InitError> {
    match primacy_stores::open_existing_any(url, election).await {
        Ok(Opened::Register(register)) => {
            if let Some((record, _)) = register.read().await? {
                return Ok(Init::Exists { record: Box::new(record) });
            }
            // The container of the record, such as a table, may be missing too. It is made only if the store permits that.
        }
        Ok(Opened::Sessions(_)) => return Ok(Init::NotNeeded),
        // There may be no database yet.
        Err(OpenError::Unavailable { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let Opened::Register(register) = primacy_stores::open_any(url, election).await? else {
        return Ok(Init::NotNeeded);
    };
    match init_register(&*register, lease).await? {
        // Some stores create a released record themselves, because they know that they are new.
        Init::Exists { record } if is_untouched(&record) => Ok(Init::Made { token: record.token }),
        outcome @ (Init::Made { .. } | Init::Exists { .. } | Init::NotNeeded) => Ok(outcome),
    }
}

/// As [`init`], for a store that is open already.
///
/// # Errors
/// As for [`init`].
pub async fn init_register(register: &dyn Register, lease: Duration) -> Result<Init, InitError> {
    if let Some((record, _)) = register.read().await? {
        return Ok(Init::Exists { record: Box::new(record) });
    }
    let token = FencingToken(clock::wall_millis());
    let mut record = Record::released(token, lease.into());
    record.nonce = draw_nonce()?;
    let unknown = match register.compare_and_set(None, &record).await {
        Ok(_) => return Ok(Init::Made { token }),
        Err(SetError::Unavailable { why }) => return Err(InitError::NotWritten { why }),
        // A conflict can also come from a repetition of our own write, so it is looked into like an unknown outcome.
        Err(error @ SetError::Conflict) => error.to_string(),
        Err(SetError::Unknown { why }) => why,
    };
    match register.read().await? {
        Some((found, _)) if found.nonce == record.nonce => Ok(Init::Made { token }),
        Some((found, _)) => Ok(Init::Exists { record: Box::new(found) }),
        None => Err(InitError::Unknown { why: unknown }),
    }
}

/// True if the record is that of a new store: released, and written once.
fn is_untouched(record: &Record) -> bool {
    record.holder.is_none() && record.renewal == 0 && record.nonce == 0
}

/// Draws the number by which the write is recognised.
fn draw_nonce() -> Result<u64, InitError> {
    let mut bytes = [0; 8];
    let failed =
        |error: getrandom::Error| InitError::NotWritten { why: format!("no random number: {error}") };
    getrandom::fill(&mut bytes).map_err(failed)?;
    Ok(u64::from_ne_bytes(bytes) | 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use primacy_stores::faulty::{Fault, FaultyRegister};
    use primacy_stores::memory::MemoryRegister;

    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn made(outcome: Result<Init, InitError>) -> FencingToken {
        match outcome {
            Ok(Init::Made { token }) => token,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_record_is_made_once_and_left_as_it_is() {
        let register = MemoryRegister::open("init", "once");
        let earliest = clock::wall_millis();
        let token = made(init_register(&register, LEASE).await);
        assert!(token.0 >= earliest, "{token}");
        let (record, version) = register.read().await.unwrap().unwrap();
        assert_eq!((&record.holder, record.token, record.young), (&None, token, false));
        let again = init_register(&register, LEASE).await.unwrap();
        assert_eq!(again, Init::Exists { record: Box::new(record.clone()) });
        assert_eq!(register.read().await, Ok(Some((record, version))));
    }

    #[tokio::test]
    async fn a_lost_reply_is_looked_up() {
        let inner = Arc::new(MemoryRegister::open("init", "lost"));
        let (register, switch) = FaultyRegister::new(inner);
        switch.next(Fault::None);
        switch.next(Fault::LoseRequest);
        let lost = init_register(&register, LEASE).await;
        assert!(matches!(lost, Err(InitError::Unknown { .. })), "{lost:?}");
        switch.next(Fault::None);
        switch.next(Fault::Unavailable);
        let unavailable = init_register(&register, LEASE).await;
        assert!(matches!(unavailable, Err(InitError::NotWritten { .. })), "{unavailable:?}");
        switch.next(Fault::None);
        switch.next(Fault::LoseReply);
        made(init_register(&register, LEASE).await);
        switch.next(Fault::Unavailable);
        let unread = init_register(&register, LEASE).await;
        assert!(matches!(unread, Err(InitError::Read(_))), "{unread:?}");
    }

    #[tokio::test]
    async fn whoever_was_faster_is_told_of() {
        let register = MemoryRegister::open("init", "raced");
        let theirs = Record::released(FencingToken(7), LEASE.into());
        let outcomes = tokio::join!(init_register(&register, LEASE), async {
            register.compare_and_set(None, &theirs).await
        });
        // One of the two wrote the record, and the other one knows that.
        match outcomes {
            (Ok(Init::Made { .. }), Err(SetError::Conflict)) => {}
            (Ok(Init::Exists { record }), Ok(_)) => assert_eq!(*record, theirs),
            other => panic!("{other:?}"),
        }
        register.plant(b"mine");
        let refused = init_register(&register, LEASE).await;
        assert!(matches!(refused, Err(InitError::Read(ReadError::Malformed { .. }))), "{refused:?}");
        assert_eq!(register.bytes().as_deref(), Some(&b"mine"[..]));
    }

    #[tokio::test]
    async fn a_store_that_begins_with_a_record_has_it_made() {
        let token = made(init("memory:init-new", "e", LEASE).await);
        let again = init("memory:init-new", "e", LEASE).await.unwrap();
        assert!(matches!(&again, Init::Exists { record } if record.token == token), "{again:?}");
        let refused = init("oracle://host", "e", LEASE).await;
        assert!(matches!(refused, Err(InitError::Open(_))), "{refused:?}");
    }

    #[cfg(feature = "file")]
    #[tokio::test]
    async fn the_first_leader_of_a_directory_does_not_wait() {
        let path = std::env::temp_dir().join(format!("primacy-init-{}", std::process::id()));
        let url = format!("file:{}", path.display());
        // Longer than the test waits.
        let lease = Duration::from_secs(3600);
        let token = made(init(&url, "e", lease).await);
        let again = init(&url, "e", lease).await.unwrap();
        assert!(matches!(&again, Init::Exists { record } if record.token == token), "{again:?}");
        let elector = crate::Elector::builder().election("e").lease(lease).connect(&url).await.unwrap();
        let leading = tokio::time::timeout(Duration::from_secs(60), elector.campaign()).await;
        let leadership = leading.expect("it leads at once").unwrap();
        assert!(leadership.token() > token);
        leadership.resign().await;
        drop(elector);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
