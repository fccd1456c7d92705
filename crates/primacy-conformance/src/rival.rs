//! Rivals for one record: each takes it again and again, and remembers which tokens were its own.

use primacy_core::election::lease::{Record, Version};
use primacy_core::{Duration, FencingToken};
use primacy_stores::{Register, SetError};

/// What a rival process prints before the tokens that it won.
const WON: &str = "primacy-rival won";

/// Raises the token by one whenever nobody else was faster, until it is `last`; returns the tokens that this
/// rival wrote.
///
/// # Panics
/// If the store fails, or shows a token that is lower than one before.
pub async fn play(register: &dyn Register, number: u64, last: u64) -> Vec<u64> {
    let mut won = Vec::new();
    let mut highest = 0;
    loop {
        let found = register.read().await.expect("the store is there");
        let token = found.as_ref().map_or(0, |(record, _)| record.token.0);
        assert!(token >= highest, "the token went from {highest} down to {token}");
        highest = token;
        if token >= last {
            return won;
        }
        match take(register, found.as_ref().map(|(_, version)| version), number, token + 1).await {
            Ok(_) => won.push(token + 1),
            Err(SetError::Conflict) => {}
            // Under many rivals a store may be too busy; the read that follows tells what is the case.
            Err(SetError::Unavailable { .. }) => {}
            Err(SetError::Unknown { why }) => panic!("a rival cannot tell whether it won: {why}"),
        }
        tokio::task::yield_now().await;
    }
}

async fn take(
    register: &dyn Register,
    expect: Option<&Version>,
    number: u64,
    token: u64,
) -> Result<Version, SetError> {
    let mut record = Record::released(FencingToken(token), Duration::from_secs(10));
    record.nonce = number;
    register.compare_and_set(expect, &record).await
}

/// What a rival's process does: plays, and prints what it won, on a line of its own.
pub async fn play_as_process(register: &dyn Register, number: u64, last: u64) {
    let won = play(register, number, last).await;
    let tokens: Vec<String> = won.iter().map(u64::to_string).collect();
    // The line before may be another program's, and not ended.
    println!("\n{WON} {}", tokens.join(" "));
}

/// The tokens that a rival's process has printed; `None` if it did not come to its end.
#[must_use]
pub fn parse_won(printed: &str) -> Option<Vec<u64>> {
    let line = printed.lines().find_map(|line| line.strip_prefix(WON))?;
    line.split_whitespace().map(|token| token.parse().ok()).collect()
}

/// Asserts that of all rivals exactly one won each token.
///
/// # Panics
/// If a token was won by several, or by none.
pub fn assert_each_won_once(won: impl IntoIterator<Item = Vec<u64>>, last: u64) {
    let mut all: Vec<u64> = won.into_iter().flatten().collect();
    all.sort_unstable();
    assert_eq!(all, (1..=last).collect::<Vec<_>>(), "each token has one winner");
}
