//! The writes of a leader, and a late write of its predecessor, which the database itself refuses.
//!
//! The fence does not depend on time: it works when clocks stop, when a process is paused for an hour, and when the
//! application forgets to call `check`.

use primacy::{Elector, FencingToken};
use primacy_fence_sqlite::{GuardError, fenced, highest, install, rusqlite};
use rusqlite::Connection;

fn write(ledger: &mut Connection, token: FencingToken, entry: &str) -> Result<(), GuardError> {
    fenced(ledger, "example", token, |transaction| {
        transaction.execute("INSERT INTO ledger(entry) VALUES (?1)", [entry])?;
        Ok(())
    })
}

/// Runs the example.
///
/// # Errors
/// If the election cannot be entered, or the database fails.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut ledger = Connection::open_in_memory()?;
    ledger.execute_batch("CREATE TABLE ledger(entry TEXT)")?;
    install(&mut ledger, "example", &["ledger"])?;

    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(async {
        let elector = Elector::builder().election("example").connect("memory:fenced").await?;
        let first = elector.campaign().await?;
        let old = first.token();
        write(&mut ledger, old, "the first leader's")?;
        first.resign().await;

        let second = elector.campaign().await?;
        write(&mut ledger, second.token(), "the second leader's")?;
        assert_eq!(highest(&ledger, "example")?, second.token());

        // The first leader does not know that it was replaced, and still writes.
        match write(&mut ledger, old, "too late") {
            Err(GuardError::Stale(refused)) => println!("refused: {refused}"),
            other => return Err(format!("a late write was not refused: {other:?}").into()),
        }
        // A write without a token is refused as well.
        let bare = ledger.execute("INSERT INTO ledger(entry) VALUES ('without a token')", []);
        println!("refused: {}", bare.expect_err("the table is guarded"));
        let entries: u32 = ledger.query_row("SELECT count(*) FROM ledger", [], |row| row.get(0))?;
        assert_eq!(entries, 2);
        Ok(())
    })
}
