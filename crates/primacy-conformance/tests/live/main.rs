//! Every store that is reached over a network under the laws, on a real server, and the table of the outcomes.
//!
//! `cargo xtask live` installs the servers and runs this; `--only NAME` leaves the others out.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod az;
mod consul;
mod elections;
mod endless;
mod etcd;
mod kubernetes;
mod mysql;
mod nats;
mod object;
mod postgres;
mod redis;
mod registers;
mod s3;
mod zookeeper;

use std::future::Future;
use std::io::Write;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use primacy_conformance::{LAWS, Outcome, REQUIRE_LIVE_VARIABLE, SESSION_LAWS, table};

/// The outcomes of the laws in a store: a column of the table.
type Column = (String, Vec<(&'static str, Outcome)>);

/// A check of a store against the laws; it may have several columns.
type Check = fn() -> Pin<Box<dyn Future<Output = Vec<Column>>>>;

/// The stores that keep a record.
#[rustfmt::skip]
const STORES: &[(&str, Check)] = &[
    ("postgres", || Box::pin(postgres::check())),
    ("mysql", || Box::pin(mysql::check())),
    ("s3", s3::check),
    ("az", az::check),
    ("kubernetes", || Box::pin(kubernetes::check())),
    ("nats", || Box::pin(nats::check())),
    ("redis", || Box::pin(redis::check())),
    ("etcd", || Box::pin(etcd::check())),
];

/// The stores that keep sessions; they have laws and a table of their own.
#[rustfmt::skip]
const SESSION_STORES: &[(&str, Check)] = &[
    ("etcd", || Box::pin(etcd::check_sessions())),
    ("zookeeper", || Box::pin(zookeeper::check())),
    ("consul", || Box::pin(consul::check())),
    ("postgres", || Box::pin(postgres::advisory::check())),
];

/// The variable with the stores that are to be tried, with commas between them; all if it is not set.
const ONLY_VARIABLE: &str = "PRIMACY_LIVE_ONLY";

/// If set, the table is written anew.
const UPDATE_VARIABLE: &str = "UPDATE_GOLDENFILES";
const TABLE: (&str, &str) = (
    "<!-- made by `UPDATE_GOLDENFILES=1 cargo test -p primacy-conformance --test live` -->\n\n",
    "\n<!-- end -->",
);

const SESSION_TABLE: (&str, &str) = (
    "<!-- of sessions, made by `UPDATE_GOLDENFILES=1 cargo test -p primacy-conformance --test live` -->\n\n",
    "\n<!-- end -->",
);

/// The stores that no laws are asked of here: they have no server, or none that could be had.
const NOT_HERE: [&str; 5] = ["memory", "memory-sessions", "file", "sqlite", "gs"];

#[test]
fn every_store_on_a_server_is_held_to_laws() {
    let known: Vec<&str> =
        STORES.iter().chain(SESSION_STORES).map(|(name, _)| *name).chain(NOT_HERE).collect();
    for store in primacy_stores::STORES {
        assert!(known.contains(&store.scheme), "add the laws of `{}:` to a table above", store.scheme);
    }
}

/// One store after another, so that laws that take time by the clock are not disturbed by the others.
#[tokio::test(flavor = "multi_thread")]
async fn every_live_store_keeps_the_laws_and_the_table_says_so() {
    let laws = LAWS.map(|law| law.name);
    hold(STORES, &laws, TABLE).await;
    let session_laws = SESSION_LAWS.map(|law| law.name);
    hold(SESSION_STORES, &session_laws, SESSION_TABLE).await;
}

/// Not a test of its own: the process of each rival.
#[tokio::test]
async fn play_as_a_rival() {
    primacy_conformance::rival::play_if_told(registers::open_in_the_end).await;
}

/// Holds the stores of a table to their laws, and keeps the table.
async fn hold(stores: &[(&str, Check)], laws: &[&str], place: (&str, &str)) {
    let mut columns = Vec::new();
    for (_, check) in stores.iter().filter(|(name, _)| is_wanted(name)) {
        columns.extend(check().await);
    }
    keep(&columns, laws, place);
}

/// Shows the table, and keeps it if it is whole.
fn keep(columns: &[Column], laws: &[&str], place: (&str, &str)) {
    let table = table::render(laws, columns);
    // Not by a macro: output of a test by macros is not shown when it passes.
    let _ = write!(std::io::stderr(), "\n{table}\n");
    let is_whole = std::env::var_os(ONLY_VARIABLE).is_none()
        && columns.iter().flat_map(|(_, laws)| laws).all(|law| law.1 != Outcome::NotRun);
    if is_whole {
        // One page for the tables of two tests.
        static PAGE: Mutex<()> = Mutex::new(());
        let _alone = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
        let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/stores/README.md");
        table::keep(&page, place, &table, std::env::var_os(UPDATE_VARIABLE).is_some());
    }
}

/// True if a store is to be tried.
///
/// # Panics
/// If a store is wanted that does not exist: nothing would be tried, and all be well.
fn is_wanted(name: &str) -> bool {
    let Ok(only) = std::env::var(ONLY_VARIABLE) else { return true };
    let known: Vec<&str> = STORES.iter().chain(SESSION_STORES).map(|(name, _)| *name).collect();
    for wanted in only.split(',') {
        assert!(known.contains(&wanted), "there is no store {wanted}; there are: {}", known.join(", "));
    }
    only.split(',').any(|wanted| wanted == name)
}

/// The start of a test of one server alone: the server, if it is to be tried and there.
async fn to_be_tried<T>(name: &str, start: impl Future<Output = Result<T, String>>) -> Option<T> {
    if is_wanted(name) { found(name, start.await) } else { None }
}

/// Returns the server or the program that a test needs, if it is there; else `None`, with a line that says so.
///
/// # Panics
/// If it is not there, and required to be.
fn found<T>(name: &str, needed: Result<T, String>) -> Option<T> {
    needed
        .inspect_err(|why| {
            // Not by a macro: output of a test by macros is not shown when it passes.
            let _ = writeln!(std::io::stderr(), "{name}: NOT RUN: {why}");
            assert!(
                std::env::var_os(REQUIRE_LIVE_VARIABLE).is_none(),
                "{name} is required to be there: {why}"
            );
        })
        .ok()
}
