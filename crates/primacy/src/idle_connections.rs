//! Connections that a server may close to make room for the next one.
//!
//! A server has a limit on connections. Without further rules, a client that opens that many and stays silent keeps all
//! other clients out. So a connection counts as idle until it does something useful. When the limit is reached, an idle
//! connection is closed for the next one: the oldest of an address that has at least its share of them, so that no
//! address displaces those of others.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The idle connections of one server.
#[derive(Debug)]
pub struct IdleConnections {
    places: Arc<Semaphore>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// The number of the next connection that becomes idle. The lowest number has been idle longest.
    next: u64,
    idle: BTreeMap<u64, Idle>,
    /// The number of idle connections of each network.
    counts: HashMap<u64, usize>,
}

#[derive(Debug)]
struct Idle {
    network: u64,
    evicted: Arc<Notify>,
}

impl Table {
    /// Removes the connection that must be closed to make room.
    fn pop(&mut self) -> Option<Idle> {
        // At least one address has its share or more.
        let share = self.idle.len().div_ceil(self.counts.len().max(1));
        let has_its_share = |idle: &Idle| self.counts.get(&idle.network).is_some_and(|&count| count >= share);
        let number = self.idle.iter().find(|(_, idle)| has_its_share(idle)).map(|(&number, _)| number)?;
        self.remove(number)
    }

    fn insert(&mut self, number: u64, idle: Idle) {
        *self.counts.entry(idle.network).or_default() += 1;
        self.idle.insert(number, idle);
    }

    fn remove(&mut self, number: u64) -> Option<Idle> {
        let idle = self.idle.remove(&number)?;
        if let Entry::Occupied(mut count) = self.counts.entry(idle.network) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(idle)
    }
}

/// The bits of an address that identify a client: of IPv6 the network, because a client may choose the rest.
pub fn network(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(address) => u64::try_from(address.to_bits() >> 64).unwrap_or(u64::MAX),
    }
}

/// A connection in the table, idle at first. Dropping it removes it.
#[derive(Debug)]
pub struct Evictable {
    server: Arc<IdleConnections>,
    network: u64,
    /// Its number in the table; `None` while it is busy.
    number: Mutex<Option<u64>>,
    evicted: Arc<Notify>,
}

impl IdleConnections {
    /// Creates the table of a server whose connections each take one permit of `places`.
    pub fn new(places: Arc<Semaphore>) -> Arc<Self> {
        Arc::new(Self { places, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a permit for the next connection. If none is left, an idle connection is closed; if none is idle, this
    /// waits.
    pub async fn place(&self) -> OwnedSemaphorePermit {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return place;
        }
        if let Some(idle) = self.table().pop() {
            idle.evicted.notify_one();
        }
        Arc::clone(&self.places).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Closes idle connections until at most `idle` are left.
    pub fn keep_at_most(&self, idle: usize) {
        let mut table = self.table();
        while table.idle.len() > idle
            && let Some(one) = table.pop()
        {
            one.evicted.notify_one();
        }
    }

    /// Adds a connection that was accepted from this address.
    pub fn enter(self: &Arc<Self>, from: IpAddr) -> Evictable {
        let (server, network) = (Arc::clone(self), network(from));
        let connection = Evictable { server, network, number: Mutex::default(), evicted: Arc::default() };
        connection.set_idle();
        connection
    }
}

impl Evictable {
    fn number(&self) -> MutexGuard<'_, Option<u64>> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Protects the connection from being closed to make room.
    pub fn set_busy(&self) {
        if let Some(number) = self.number().take() {
            self.server.table().remove(number);
        }
    }

    /// Permits that the connection is closed to make room.
    pub fn set_idle(&self) {
        let mut mine = self.number();
        let mut table = self.server.table();
        let number = table.next;
        table.next += 1;
        if let Some(before) = mine.replace(number) {
            table.remove(before);
        }
        table.insert(number, Idle { network: self.network, evicted: Arc::clone(&self.evicted) });
    }

    /// Resolves when the connection must be closed to make room.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

/// Protects a connection until dropped.
#[derive(Debug)]
pub struct Busy(Arc<Evictable>);

impl Busy {
    /// Marks the connection as busy.
    pub fn with(connection: &Arc<Evictable>) -> Self {
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
            (place, server.enter(IpAddr::from([10, 0, 0, 1])))
        };
        let (busy, first) = (connect().await, connect().await);
        busy.1.set_busy();
        // The first connection is evicted, and the next one gets its permit when it has closed.
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

    #[tokio::test(start_paused = true)]
    async fn no_more_than_so_many_are_kept_that_are_idle() {
        let server = IdleConnections::new(Arc::new(Semaphore::new(100)));
        let entered = [1, 1, 1, 2].map(|last| server.enter(IpAddr::from([10, 0, 0, last])));
        entered[0].set_busy();
        server.keep_at_most(2);
        let mut evicted = Vec::new();
        for one in &entered {
            evicted.push(tokio::time::timeout(Duration::from_secs(1), one.evicted()).await.is_ok());
        }
        assert_eq!(evicted, [false, true, false, false], "the oldest that is idle, of the address with most");
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_with_many_idle_connections_makes_room_with_its_own() {
        let server = IdleConnections::new(Arc::new(Semaphore::new(100)));
        let connect = async |last: u8| (server.place().await, server.enter(IpAddr::from([10, 0, 0, last])));
        let client = connect(1).await;
        let mut flood = std::collections::VecDeque::new();
        for _ in 0..1000 {
            if flood.len() == 99 {
                let closing = async {
                    let (_, oldest): &(_, Evictable) = &flood[0];
                    oldest.evicted().await;
                    flood.pop_front();
                };
                let (next, ()) = tokio::join!(connect(2), closing);
                flood.push_back(next);
            } else {
                flood.push_back(connect(2).await);
            }
        }
        let evicted = tokio::time::timeout(Duration::from_secs(1), client.1.evicted()).await;
        assert!(evicted.is_err(), "the other address has more");
    }
}
