//! Two candidates over one store: one leads and resigns, and the other leads after it with a higher token.
//!
//! `cargo run -p primacy --features sqlite --example campaign -- sqlite:/tmp/election.db`, run in several terminals, lets processes
//! compete.

use std::time::Duration;

use primacy::{Change, Elector};

/// Runs the example.
///
/// # Errors
/// If the election cannot be entered.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).filter(|arg| arg.contains(':'));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    match url {
        Some(url) => runtime.block_on(compete(&url)),
        None => runtime.block_on(hand_over()),
    }
}

/// A candidate that leads for three seconds, again and again.
async fn compete(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let elector = Elector::builder().election("example").connect(url).await?;
    loop {
        println!("{} stands", elector.identity());
        let leadership = elector.campaign().await?;
        println!("leads with token {}", leadership.token());
        // The work is cancelled if the lead is lost, and the lead is released when the work has ended.
        match leadership.run(tokio::time::sleep(Duration::from_secs(3))).await {
            Ok(()) => println!("has done its work"),
            Err(lost) => println!("{lost}"),
        }
    }
}

async fn hand_over() -> Result<(), Box<dyn std::error::Error>> {
    let builder = || Elector::builder().election("example").lease(Duration::from_secs(2));
    let (one, two) =
        (builder().connect("memory:campaign").await?, builder().connect("memory:campaign").await?);
    let mut observer = two.observe();

    let first = one.campaign().await?;
    first.check()?; // Right before each act.
    println!(
        "the first leads with token {}, what it sends starts with {}",
        first.token(),
        first.next_sequence()
    );
    let token = first.token();

    let (_, second) = tokio::join!(first.resign(), two.campaign());
    let second = second?;
    println!("the second leads with token {}", second.token());
    assert!(second.token() > token);

    while observer.leader() != Some(second.leader()) {
        match observer.changed().await.expect("the elector lives") {
            Change::Leader(Some(leader)) => println!("seen: {} leads", leader.identity),
            Change::Leader(None) => println!("seen: nobody leads"),
            Change::Violation(_) | Change::Missed(_) => {
                unreachable!("two changes, in a store that keeps its word")
            }
        }
    }
    Ok(())
}
