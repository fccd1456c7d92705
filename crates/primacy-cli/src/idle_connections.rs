//! Connections that a server may close to make room for the next one.
//!
//! A server has a limit on connections. Without more, whoever opens that many and stays silent keeps all others out. Here a
//! connection is idle until it has earned its place, and when the limit is reached the one that has been idle longest is closed, so
//! that the next one is accepted.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The idle connections of one server.
#[derive(Debug)]
pub(crate) struct IdleConnections {
    places: Arc<Semaphore>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Grows with each connection that becomes idle, so that the lowest has been idle longest.
    next: u64,
    idle: BTreeMap<u64, Arc<Notify>>,
}

/// One connection in the table, idle at first. Dropping it takes it out.
#[derive(Debug)]
pub(crate) struct Evictable {
    server: Arc<IdleConnections>,
    /// Its number in the table; `None` while it is busy.
    number: Mutex<Option<u64>>,
    evicted: Arc<Notify>,
}

impl IdleConnections {
    /// A table for a server whose connections each take one of these places.
    pub(crate) fn new(places: Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self { places, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for the next connection. When all are taken, the connection that has been idle longest is closed; when none is idle,
    /// this waits.
    pub(crate) async fn place(&self) -> OwnedSemaphorePermit {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return place;
        }
        if let Some((_, evicted)) = self.table().idle.pop_first() {
            evicted.notify_one();
        }
        Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Enters a connection that has been accepted.
    pub(crate) fn enter(self: &Arc<Self>) -> Evictable {
        let connection =
            Evictable { server: Arc::clone(self), number: Mutex::default(), evicted: Arc::default() };
        connection.set_idle();
        connection
    }
}

impl Evictable {
    fn number(&self) -> MutexGuard<'_, Option<u64>> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it is not closed to make room.
    pub(crate) fn set_busy(&self) {
        if let Some(number) = self.number().take() {
            self.server.table().idle.remove(&number);
        }
    }

    /// From now on it may be closed to make room, after those that have been idle longer.
    pub(crate) fn set_idle(&self) {
        let mut mine = self.number();
        let mut table = self.server.table();
        let number = table.next;
        table.next += 1;
        if let Some(before) = mine.replace(number) {
            table.idle.remove(&before);
        }
        table.idle.insert(number, Arc::clone(&self.evicted));
    }

    /// Returns when it has to be closed to make room.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// A connection that has something to do until this is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Evictable>);

impl Busy {
    pub(crate) fn with(connection: &Arc<Evictable>) -> Self {
        connection.set_busy();
        Self(Arc::clone(connection))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set_idle();
    }
}

impl Drop for Evictable {
    fn drop(&mut self) {
        self.set_busy();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_has_been_idle_longest_makes_room_and_a_busy_one_never() {
        let server = IdleConnections::new(Arc::new(Semaphore::new(2)));
        let connect = async || {
            let place = server.place().await;
            (place, server.enter())
        };
        let (busy, first) = (connect().await, connect().await);
        busy.1.set_busy();
        // The first one is told to go, and the next one has its place when it has gone.
        let closing = async {
            first.1.evicted().await;
            drop(first);
        };
        let (third, ()) = tokio::join!(connect(), closing);
        third.1.set_busy();
        let full = tokio::time::timeout(Duration::from_secs(3600), connect()).await;
        assert!(full.is_err(), "both are busy, and so the next one waits");
        busy.1.set_idle();
        let closing = async {
            busy.1.evicted().await;
            drop(busy);
        };
        drop(tokio::join!(connect(), closing));
    }
}
