//! The applied requests, remembered so that none is applied twice.
//!
//! A client numbers its requests, and reports the number below which it awaits none any more; only numbers from there
//! on are remembered. A request of an incarnation is refused after a later incarnation of the node has sent one: no
//! client awaits it, and the earlier incarnation's requests are forgotten.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

use primacy_core::id::{Identity, Incarnation, NodeId};

use crate::command::{Refusal, Request};
use crate::encoding::{DecodeError, Reader, identity, push_identity, push_number};

/// The limit on remembered applied requests per client.
pub const OPEN_MAX: usize = 65_536;

/// The limit on clients with remembered requests.
pub const CLIENTS_MAX: usize = 4096;

/// The remembered requests of one incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Client {
    done_below: u64,
    /// The numbers of the applied requests, none below `done_below`.
    applied: BTreeSet<u64>,
}

impl Client {
    fn has(&self, sequence: u64) -> bool {
        sequence < self.done_below || self.applied.contains(&sequence)
    }

    fn forget_below(&mut self, done_below: u64) {
        self.done_below = self.done_below.max(done_below);
        while self.applied.first().is_some_and(|&first| first < self.done_below) {
            self.applied.pop_first();
        }
    }
}

/// The remembered requests of all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Requests(BTreeMap<Identity, Client>);

impl Requests {
    /// Remembers a request that is to be applied. Returns `false` if it was applied before, or is not awaited.
    pub(super) fn admit(&mut self, request: &Request) -> Result<bool, Refusal> {
        let client = self.client(request.client)?;
        client.forget_below(request.done_below);
        if client.has(request.sequence) {
            return Ok(false);
        }
        if client.applied.len() >= OPEN_MAX {
            return Err(Refusal::TooManyRequests);
        }
        client.applied.insert(request.sequence);
        Ok(true)
    }

    /// True if a request was applied, or is not awaited. The forgotten requests of a node count as not applied.
    pub(super) fn has(&self, client: &Identity, sequence: u64) -> bool {
        self.0.get(client).is_some_and(|client| client.has(sequence))
    }

    fn client(&mut self, client: Identity) -> Result<&mut Client, Refusal> {
        if !self.0.contains_key(&client) {
            self.make_room(client)?;
        }
        Ok(self.0.entry(client).or_default())
    }

    /// Makes room for an unknown incarnation.
    fn make_room(&mut self, client: Identity) -> Result<(), Refusal> {
        if self.lives(client.node).any(|life| life.count > client.incarnation.count) {
            return Err(Refusal::FormerLife);
        }
        // Two incarnations with the same count have started from the same backup: which one is later is unknown.
        let former = self.lives(client.node).filter(|life| life.count < client.incarnation.count);
        for incarnation in former.collect::<Vec<Incarnation>>() {
            self.0.remove(&Identity { incarnation, ..client });
        }
        if self.0.len() >= CLIENTS_MAX { Err(Refusal::TooManyClients) } else { Ok(()) }
    }

    fn lives(&self, node: NodeId) -> impl Iterator<Item = Incarnation> {
        let first = Identity { node, incarnation: Incarnation { count: 0, nonce: 0 } };
        let lives = self.0.range((Bound::Included(first), Bound::Unbounded));
        lives.map(|(life, _)| life).take_while(move |life| life.node == node).map(|life| life.incarnation)
    }

    /// Forgets all incarnations of a node.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.0.retain(|client, _| client.node != node);
    }

    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        push_number(to, u64::try_from(self.0.len()).expect("a length fits"));
        for (identity, client) in &self.0 {
            push_identity(to, identity);
            push_number(to, client.done_below);
            push_number(to, u64::try_from(client.applied.len()).expect("a length fits"));
            let mut last = client.done_below;
            for &sequence in &client.applied {
                push_number(to, sequence - last);
                last = sequence;
            }
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let list = from.list(|from| Ok((identity(from)?, client(from)?)))?;
        if !list.is_sorted_by(|(one, _), (next, _)| one < next) {
            return Err(DecodeError::Value("the order of the clients"));
        }
        Ok(Self(list.into_iter().collect()))
    }
}

fn client(from: &mut Reader<'_>) -> Result<Client, DecodeError> {
    let done_below = from.number()?;
    let mut last = done_below;
    let mut is_first = true;
    let applied = from.list(|from| {
        let later = from.number()?;
        if later == 0 && !core::mem::take(&mut is_first) {
            return Err(DecodeError::Value("the order of the requests"));
        }
        is_first = false;
        last = last.checked_add(later).ok_or(DecodeError::Value("the number of a request"))?;
        Ok(last)
    })?;
    Ok(Client { done_below, applied: applied.into_iter().collect() })
}
