//! The map that the nodes keep together, behind the door of one of them.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use primacy::metadata::{Map, MapError};
use primacy::{LeaderSequence, NodeId};
use primacy_core::metadata::command::{
    Change, Command, Keys, Operation, Outcome, Previous, Refusal, SessionId, Version,
};
use primacy_core::metadata::state::Size;
use tokio::sync::watch;

use super::backend::{Backend, BackendError, Changes, Freshness, Life, Member, Pending, Vitals};

/// The map of one node.
pub(crate) struct Replicated {
    map: Map,
    cluster: u64,
    me: NodeId,
    address: SocketAddr,
    tls: bool,
}

impl Replicated {
    /// The map of the node `me` in the cluster of this name, whose door is at `address`.
    pub(crate) fn new(map: Map, cluster: &str, me: NodeId, address: SocketAddr, tls: bool) -> Self {
        Self { map, cluster: number_of(cluster), me, address, tls }
    }
}

/// A number that is the same wherever it is made of the same name, by whatever version of Primacy, and not 0: FNV-1a.
fn number_of(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash | 1
}

/// How many bits of an index the counter has within a term: as many records as there are in one for certain.
const COUNTER_BITS: u32 = 40;

/// One number for a record, which grows with each.
fn index_of(number: LeaderSequence) -> u64 {
    number.term.0 << COUNTER_BITS | number.counter
}

/// Whole versions, until they have so many changes or more: see [`Backend::changes`].
pub(super) fn whole_versions(
    changes: impl Iterator<Item = Change>,
    version: Version,
    most: NonZeroUsize,
) -> Changes {
    let mut list: Vec<Change> = Vec::new();
    for change in changes {
        if let Some(last) = list.last()
            && list.len() >= most.get()
            && last.version != change.version
        {
            let through = last.version;
            return Changes { list, through, version };
        }
        list.push(change);
    }
    Changes { list, through: version, version }
}

impl From<MapError> for BackendError {
    fn from(error: MapError) -> Self {
        match error {
            MapError::Timeout | MapError::Unreadable => Self::TimedOut, // It may have been done.
            MapError::AnswerLost => Self::AnswerLost,
            MapError::Busy => Self::TooManyRequests,
            MapError::Voter { .. } | MapError::Closed => Self::Stopped, // Voters are no business of clients.
        }
    }
}

impl Backend for Replicated {
    fn propose(&self, command: Command) -> Pending<'_, Result<Outcome, BackendError>> {
        Box::pin(async move { Ok(self.map.write(command).await?) })
    }

    fn read(&self, operation: Operation, freshness: Freshness) -> Pending<'_, Result<Outcome, BackendError>> {
        Box::pin(async move {
            match freshness {
                Freshness::Newest => Ok(self.map.read(&operation).await?),
                Freshness::Here => Ok(self.map.look(&operation)),
            }
        })
    }

    fn keep_alive(&self, session: SessionId) -> Pending<'_, Result<Option<Duration>, BackendError>> {
        Box::pin(async move { Ok(self.map.keep_alive(session).await?) })
    }

    fn session(&self, session: SessionId) -> Pending<'_, Result<Option<Life>, BackendError>> {
        Box::pin(async move {
            let Some(left) = self.map.left(session).await? else { return Ok(None) };
            // The leader knows of it; this node, which may have been away, need not have heard of it yet, nor of all its keys.
            self.map.catch_up().await?;
            let state = self.map.state();
            Ok(state.session(session).map(|it| Life {
                left,
                time_to_live: it.time_to_live().into(),
                keys: it.keys().cloned().collect(),
            }))
        })
    }

    fn sessions(&self) -> Pending<'_, Result<Vec<SessionId>, BackendError>> {
        Box::pin(async move { Ok(self.map.state().sessions().map(|(session, _)| session).collect()) })
    }

    fn changes(
        &self,
        keys: &Keys,
        from: Version,
        previous: Previous,
        most: NonZeroUsize,
    ) -> Result<Changes, Refusal> {
        let state = self.map.state();
        Ok(whole_versions(state.changes(keys, from, previous)?, state.version(), most))
    }

    fn news(&self, from: Version, previous: Previous, most: NonZeroUsize) -> Result<Changes, Refusal> {
        let state = self.map.state();
        Ok(whole_versions(state.news(from, previous)?, state.version(), most))
    }

    fn version(&self) -> watch::Receiver<Version> {
        self.map.version()
    }

    fn now(&self) -> Version {
        self.map.state().version()
    }

    fn vitals(&self) -> Vitals {
        let board = self.map.board();
        Vitals {
            cluster: self.cluster,
            member: number_of(self.me.as_str()),
            leader: board.leader.map(|leader| number_of(leader.identity.node.as_str())),
            term: board.term.0,
            logged: index_of(board.last),
            applied: index_of(board.applied),
        }
    }

    fn size(&self) -> Size {
        self.map.state().size()
    }

    fn members(&self) -> Vec<Member> {
        let scheme = if self.tls { "https" } else { "http" };
        let mine = |name: &str| (name == self.me.as_str()).then(|| format!("{scheme}://{}", self.address));
        let member = |(node, address): (NodeId, String)| Member {
            number: number_of(node.as_str()),
            name: node.to_string(),
            for_peers: vec![format!("http://{address}")],
            for_clients: mine(node.as_str()).into_iter().collect(),
        };
        self.map.voters().into_iter().map(member).collect()
    }
}
