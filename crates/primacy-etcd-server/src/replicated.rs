//! The backend over the replicated map of a node.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::time::Duration;

use primacy::metadata::{Map, MapError};
use primacy::{LeaderSequence, NodeId};
use primacy_kv::command::{
    Change, Command, Keys, Operation, Outcome, Previous, Refusal, Secret, SessionId, Version,
};
use primacy_kv::state::{Size, State};
use tokio::sync::watch;

use super::backend::{Backend, BackendError, Changes, Life, Member, Pending, Vitals};

/// The replicated map of one node.
#[derive(Debug)]
pub struct Replicated {
    map: Map,
    cluster: u64,
    me: NodeId,
    whereabouts: Whereabouts,
}

/// Addresses that the map does not contain.
#[derive(Clone, Debug)]
pub struct Whereabouts {
    /// The address on which this node listens for clients.
    pub listens: SocketAddr,
    /// The address for clients, if one is configured: host and port.
    pub advertised: Option<String>,
    /// True if clients use TLS.
    pub clients_by_tls: bool,
    /// True if nodes use TLS.
    pub nodes_by_tls: bool,
}

impl Replicated {
    /// Creates the backend of the node `me` in the cluster of this name.
    pub fn new(map: Map, cluster: &str, me: NodeId, whereabouts: Whereabouts) -> Self {
        Self { map, cluster: number_of(cluster), me, whereabouts }
    }
}

impl Whereabouts {
    /// Returns the address at which clients reach this node; `among_nodes` is its address for other nodes. `None` if it
    /// cannot be derived.
    fn for_clients(&self, among_nodes: &str) -> Option<String> {
        if let Some(advertised) = &self.advertised {
            return Some(url(self.clients_by_tls, advertised));
        }
        if !self.listens.ip().to_canonical().is_unspecified() {
            return Some(url(self.clients_by_tls, &self.listens.to_string()));
        }
        // It listens on the unspecified address, which clients cannot use. Where other nodes reach it, clients most likely do,
        // too.
        let (host, _) = among_nodes.rsplit_once(':')?;
        let address = format!("{host}:{}", self.listens.port());
        (!is_unspecified(host)).then(|| url(self.clients_by_tls, &address))
    }
}

fn url(tls: bool, address: &str) -> String {
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// Returns whether a host is an unspecified address: all addresses of a machine.
fn is_unspecified(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_unspecified())
}

/// A hash of a name, the same in all versions of Primacy, and not 0: FNV-1a.
fn number_of(name: &str) -> u64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash | 1
}

/// The bits of an index for the counter within a term: enough for the records of any term.
const COUNTER_BITS: u32 = 40;

/// One number for a record, which grows with each record.
fn index_of(number: LeaderSequence) -> u64 {
    number.term.0 << COUNTER_BITS | number.counter
}

/// The most versions examined for one watcher at a time, so that other watchers get their turn however long the history
/// is.
const LOOKED_AT_MAX: u64 = 4096;

/// Returns the changes of some keys: see [`Backend::changes`].
pub(super) fn some_versions(
    state: &State,
    keys: &Keys,
    from: Version,
    previous: Previous,
    most: NonZeroUsize,
) -> Result<Changes, Refusal> {
    let version = state.version();
    let through = version.min(Version(from.0.saturating_add(LOOKED_AT_MAX)));
    let changes = state.changes_in(keys, from..through.next(), previous)?;
    Ok(whole_versions(changes, through, version, most))
}

/// Returns whole versions up to `through`, until there are `most` changes or more.
pub(super) fn whole_versions(
    changes: impl Iterator<Item = Change>,
    through: Version,
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
    Changes { list, through, version }
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

    fn catch_up(&self) -> Pending<'_, Result<(), BackendError>> {
        Box::pin(async move { Ok(self.map.catch_up().await?) })
    }

    fn look(&self, operation: &Operation, looks: u64) -> Outcome {
        let state = self.map.state();
        let refused = || Outcome { version: state.version(), result: Err(Refusal::TooManyOperations) };
        state.observe_within(operation, looks).unwrap_or_else(refused)
    }

    fn keep_alive(&self, session: SessionId) -> Pending<'_, Result<Option<Duration>, BackendError>> {
        Box::pin(async move { Ok(self.map.keep_alive(session).await?) })
    }

    fn session(&self, session: SessionId) -> Pending<'_, Result<Option<Life>, BackendError>> {
        Box::pin(async move {
            let Some(left) = self.map.left(session).await? else { return Ok(None) };
            // The session is known to the leader; this node may not have applied its creation yet, or all its keys.
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
        some_versions(&state, keys, from, previous, most)
    }

    fn news(&self, from: Version, previous: Previous, most: NonZeroUsize) -> Result<Changes, Refusal> {
        let state = self.map.state();
        Ok(whole_versions(state.news(from, previous)?, state.version(), state.version(), most))
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

    fn secret(&self) -> Option<Secret> {
        self.map.state().secret()
    }

    fn members(&self) -> Vec<Member> {
        let member = |(node, address): (NodeId, String)| Member {
            number: number_of(node.as_str()),
            name: node.to_string(),
            for_peers: vec![url(self.whereabouts.nodes_by_tls, &address)],
            // This node does not know the other nodes' addresses for clients.
            for_clients: (node == self.me)
                .then(|| self.whereabouts.for_clients(&address))
                .flatten()
                .into_iter()
                .collect(),
        };
        self.map.voters().into_iter().map(member).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_an_address_that_they_can_use() {
        let told = |listens: &str, advertised: Option<&str>, among_nodes: &str| {
            let advertised = advertised.map(str::to_owned);
            let listens = listens.parse().unwrap();
            let whereabouts = Whereabouts { listens, advertised, clients_by_tls: true, nodes_by_tls: false };
            whereabouts.for_clients(among_nodes)
        };
        for (listens, advertised, among_nodes, expected) in [
            ("127.0.0.1:2379", None, "10.0.0.1:7400", Some("https://127.0.0.1:2379")),
            ("0.0.0.0:2379", None, "10.0.0.1:7400", Some("https://10.0.0.1:2379")),
            ("0.0.0.0:2379", None, "a.example.com:7400", Some("https://a.example.com:2379")),
            ("[::]:2379", None, "[fd00::1]:7400", Some("https://[fd00::1]:2379")),
            ("[::ffff:0.0.0.0]:2379", None, "10.0.0.1:7400", Some("https://10.0.0.1:2379")),
            ("0.0.0.0:2379", None, "0.0.0.0:7400", None),
            ("[::]:2379", None, "[::]:7400", None),
            (
                "0.0.0.0:2379",
                Some("api.example.com:443"),
                "10.0.0.1:7400",
                Some("https://api.example.com:443"),
            ),
        ] {
            assert_eq!(
                told(listens, advertised, among_nodes).as_deref(),
                expected,
                "{listens} {among_nodes}"
            );
        }
    }
}
