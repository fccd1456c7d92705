//! A custom store: an election needs only a register.
//!
//! This one keeps the record in a variable. A useful one keeps it where several processes can reach it, and passes the
//! tests of `primacy-conformance`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use primacy::Elector;
use primacy::core::election::lease::{Record, Version};
use primacy::stores::{Pending, ReadError, Register, SetError};
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Variable {
    cell: Mutex<Option<(Record, u64)>>,
    written: Notify,
}

impl Register for Variable {
    fn read(&self) -> Pending<'_, Result<Option<(Record, Version)>, ReadError>> {
        let cell = self.cell.lock().expect("no writer panics");
        let found = cell.as_ref().map(|(record, version)| (record.clone(), Version::from(*version)));
        Box::pin(async move { Ok(found) })
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        record: &'a Record,
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            // The comparison and the write under one lock: that is the whole contract.
            let mut cell = self.cell.lock().expect("no writer panics");
            let version = cell.as_ref().map(|(_, version)| *version);
            if version.map(Version::from).as_ref() != expect {
                return Err(SetError::Conflict);
            }
            let next = version.unwrap_or(0) + 1;
            *cell = Some((record.clone(), next));
            self.written.notify_waiters();
            Ok(Version::from(next))
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(self.written.notified())
    }
}

/// Runs the example.
///
/// # Errors
/// If the election cannot be entered.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let store: Arc<dyn Register> = Arc::new(Variable::default());
        let builder = || Elector::builder().election("example").lease(Duration::from_millis(400));
        let (one, two) = (builder().register(Arc::clone(&store)).await?, builder().register(store).await?);
        let first = one.campaign().await?;
        let token = first.token();
        println!("the first leads with token {token}, once a holder of a deleted record would have stopped");
        let (_, second) = tokio::join!(first.resign(), two.campaign());
        let second = second?;
        println!("the second leads with token {}", second.token());
        assert!(second.token() > token);
        Ok(())
    })
}
