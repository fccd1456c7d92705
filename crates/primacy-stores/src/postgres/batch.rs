//! Batches of requests: the simultaneous requests of many elections are one statement, one round trip, and for writes one
//! flush of the server's disk.
//!
//! No request waits for others to join. A statement contains the requests that arrived while the previous one was in progress.
//!
//! A batch waits for no lock: rows that other sessions keep locked are skipped, and each is then requested in a separate statement, which
//! waits for a moment. The requests of a batch that was rolled back as a whole are repeated one by one. So a failure of one election does
//! not affect the others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_postgres::types::Type;

use super::link::{Inner, Parameter};
use super::refusal::Failure;
use crate::contained::contain_in;
use crate::runtime::{self, Aborted};

/// The maximum number of requests in one statement. Records have some hundred bytes, and 64 KiB at most.
const BATCH_MAX: usize = 256;

/// The time to wait for a statement before the next one is sent behind it: longer than a flush takes, and shorter than a wait for another
/// session's lock.
const COALESCE_MAX: Duration = Duration::from_millis(50);

/// A compare-and-set.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) election: String,
    pub(super) expect: Option<i64>,
    pub(super) version: i64,
    pub(super) token: String,
    pub(super) bytes: Vec<u8>,
    /// True if other processes are notified at once.
    pub(super) is_news: bool,
}

/// The bytes of a record, and their version.
pub(super) type Found = Option<(i64, Vec<u8>)>;

type Asked<T, R> = (T, oneshot::Sender<Result<R, Failure>>);

/// The queue that takes requests.
#[derive(Debug)]
pub(super) struct Queue {
    writes: mpsc::UnboundedSender<Asked<Write, bool>>,
    reads: mpsc::UnboundedSender<Asked<String, Found>>,
    _tasks: [Aborted<()>; 2],
}

impl Queue {
    /// Starts to serve requests on the stores' thread.
    pub(super) fn start(inner: &Arc<Inner>) -> Result<Self, String> {
        // Unbounded, but never longer than the number of callers.
        let (writes, asked_writes) = mpsc::unbounded_channel();
        let (reads, asked_reads) = mpsc::unbounded_channel();
        let for_writes =
            runtime::spawn(serve(Arc::clone(inner), asked_writes, write_batch, |write: &Write| {
                write.election.clone()
            }))?;
        let for_reads =
            runtime::spawn(serve(Arc::clone(inner), asked_reads, read_batch, |election: &String| {
                election.clone()
            }))?;
        Ok(Self { writes, reads, _tasks: [for_writes, for_reads] })
    }

    /// Returns whether the record was written; it is not if the version is not the expected one.
    pub(super) async fn write(&self, write: Write) -> Result<bool, Failure> {
        ask(&self.writes, write).await
    }

    pub(super) async fn read(&self, election: &str) -> Result<Found, Failure> {
        ask(&self.reads, election.to_owned()).await
    }
}

async fn ask<T, R>(queue: &mpsc::UnboundedSender<Asked<T, R>>, request: T) -> Result<R, Failure> {
    let stopped = || Failure::Unknown("the stores' thread has stopped".to_owned());
    let (reply, answer) = oneshot::channel();
    queue.send((request, reply)).map_err(|_| stopped())?;
    answer.await.map_err(|_| stopped())?
}

/// Sends the requests that have arrived as one batch, repeatedly.
async fn serve<T, R, F>(
    inner: Arc<Inner>,
    mut asked: mpsc::UnboundedReceiver<Asked<T, R>>,
    send: fn(Arc<Inner>, Vec<Asked<T, R>>) -> F,
    election: fn(&T) -> String,
) where
    T: Send + 'static,
    R: Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let mut left = Vec::new();
    loop {
        if left.is_empty() {
            let Some(first) = asked.recv().await else { return };
            left.push(first);
        }
        while let Ok(next) = asked.try_recv() {
            left.push(next);
        }
        // Only one request of each election per batch: another one names a version that this one replaces, or must see its result.
        let (mut batch, mut later, mut named) = (Vec::new(), Vec::new(), HashSet::new());
        for one in left {
            if one.1.is_closed() {
                continue; // Given up before it was sent.
            }
            let is_next = batch.len() < BATCH_MAX && named.insert(election(&one.0));
            if is_next { batch.push(one) } else { later.push(one) }
        }
        left = later;
        if !batch.is_empty() {
            // The task continues after this timeout.
            let _ = timeout(COALESCE_MAX, tokio::spawn(contain_in(send(Arc::clone(&inner), batch)))).await;
        }
    }
}

async fn write_batch(inner: Arc<Inner>, batch: Vec<Asked<Write, bool>>) {
    let mut rest = batch;
    if rest.len() > 1 {
        let outcome = write_together(&inner, rest.iter().map(|(write, _)| write)).await;
        if let Ok((written, _)) = &outcome {
            let is_told = |write: &&Write| write.is_news && written.contains(&write.version);
            let told = rest.iter().map(|(write, _)| write).filter(is_told);
            inner.notify(told.map(|write| (write.version, write.election.clone())).collect()).await;
        }
        let mut one_by_one = Vec::new();
        for (write, reply) in rest {
            let result = match &outcome {
                Ok((written, _)) if written.contains(&write.version) => Ok(true),
                Ok((_, seen)) if write.expect.is_none() || seen.contains(&write.election) => Ok(false),
                // Another session has locked the row, or it does not exist.
                Ok(_) | Err(Failure::NotDone(_)) => {
                    one_by_one.push((write, reply));
                    continue;
                }
                Err(failure) => Err(failure.clone()),
            };
            // A failure to reply is ignored: the caller has stopped waiting.
            drop(reply.send(result));
        }
        rest = one_by_one;
    }
    for (write, reply) in rest {
        let inner = Arc::clone(&inner);
        tokio::spawn(contain_in(async move { drop(reply.send(write_alone(&inner, write).await)) }));
    }
}

async fn write_alone(inner: &Arc<Inner>, write: Write) -> Result<bool, Failure> {
    let told = if write.is_news { vec![(write.version, write.election.clone())] } else { Vec::new() };
    let mut parameters: Vec<Parameter> = vec![
        (Box::new(write.election), Type::TEXT),
        (Box::new(write.version), Type::INT8),
        (Box::new(write.token), Type::TEXT),
        (Box::new(write.bytes), Type::BYTEA),
    ];
    let statements = inner.statements();
    let statement = match write.expect {
        None => &statements.insert,
        Some(expect) => {
            parameters.push((Box::new(expect), Type::INT8));
            &statements.update
        }
    };
    let is_written = !inner.query(statement, &parameters).await?.is_empty();
    if is_written {
        inner.notify(told).await;
    }
    Ok(is_written)
}

/// Writes several records; returns the versions that were written, and the elections whose row no other session keeps locked.
async fn write_together(
    inner: &Arc<Inner>,
    writes: impl Iterator<Item = &Write> + Clone,
) -> Result<(HashSet<i64>, HashSet<String>), Failure> {
    let elections: Vec<String> = writes.clone().map(|write| write.election.clone()).collect();
    let versions: Vec<i64> = writes.clone().map(|write| write.version).collect();
    let tokens: Vec<String> = writes.clone().map(|write| write.token.clone()).collect();
    let records: Vec<Vec<u8>> = writes.clone().map(|write| write.bytes.clone()).collect();
    let expected: Vec<Option<i64>> = writes.map(|write| write.expect).collect();
    let parameters: Vec<Parameter> = vec![
        (Box::new(elections), Type::TEXT_ARRAY),
        (Box::new(versions), Type::INT8_ARRAY),
        (Box::new(tokens), Type::TEXT_ARRAY),
        (Box::new(records), Type::BYTEA_ARRAY),
        (Box::new(expected), Type::INT8_ARRAY),
    ];
    let (mut written, mut seen) = (HashSet::new(), HashSet::new());
    for row in inner.query(&inner.statements().write_many, &parameters).await? {
        // A row of an unexpected shape does not show what was done.
        let strange = |error: tokio_postgres::Error| Failure::Unknown(super::refusal::told(&error));
        match row.try_get::<_, Option<i64>>(1).map_err(strange)? {
            Some(version) => written.insert(version),
            None => seen.insert(row.try_get(0).map_err(strange)?),
        };
    }
    Ok((written, seen))
}

async fn read_batch(inner: Arc<Inner>, batch: Vec<Asked<String, Found>>) {
    let elections: Vec<String> = batch.iter().map(|(election, _)| election.clone()).collect();
    let parameters: Vec<Parameter> = vec![(Box::new(elections), Type::TEXT_ARRAY)];
    let rows = inner.query(&inner.statements().read, &parameters).await;
    let found = rows.and_then(|rows| {
        let strange = |error: tokio_postgres::Error| Failure::NotDone(super::refusal::told(&error));
        let rows = rows.iter().map(|row| {
            let version: i64 = row.try_get(1).map_err(strange)?;
            let bytes: Vec<u8> = row.try_get(2).map_err(strange)?;
            Ok((row.try_get::<_, String>(0).map_err(strange)?, (version, bytes)))
        });
        rows.collect::<Result<HashMap<_, _>, Failure>>()
    });
    for (election, reply) in batch {
        let result = match &found {
            Ok(found) => Ok(found.get(&election).cloned()),
            Err(failure) => Err(failure.clone()),
        };
        drop(reply.send(result));
    }
}
