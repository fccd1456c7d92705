//! The network between the nodes, which are in one process: calls instead of packets. A node can be cut off from all
//! others.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use openraft::Raft;
use openraft::error::{InstallSnapshotError, RPCError, RaftError, RemoteError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft_memstore::TypeConfig;

type Failure<E = openraft::error::Infallible> = RPCError<u64, (), RaftError<u64, E>>;

/// All nodes, and the set of those that are cut off.
#[derive(Clone, Default)]
pub(crate) struct Network(Arc<Mutex<Nodes>>);

#[derive(Default)]
struct Nodes {
    all: BTreeMap<u64, Raft<TypeConfig>>,
    cut_off: BTreeSet<u64>,
}

/// The network from one node's side.
pub(crate) struct From {
    network: Network,
    from: u64,
}

/// The connection from one node to another.
pub(crate) struct Way {
    network: Network,
    from: u64,
    to: u64,
}

impl Network {
    pub(crate) fn of(&self, from: u64) -> From {
        From { network: self.clone(), from }
    }

    pub(crate) fn add(&self, id: u64, node: Raft<TypeConfig>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).all.insert(id, node);
    }

    /// Cuts a node off: no message reaches it or leaves it from now on.
    pub(crate) fn cut_off(&self, id: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).cut_off.insert(id);
    }
}

impl RaftNetworkFactory<TypeConfig> for From {
    type Network = Way;

    async fn new_client(&mut self, to: u64, (): &()) -> Way {
        Way { network: self.network.clone(), from: self.from, to }
    }
}

impl Way {
    /// The other node, if neither is cut off.
    fn target<E: std::error::Error>(&self) -> Result<Raft<TypeConfig>, Failure<E>> {
        let nodes = self.network.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_cut = nodes.cut_off.contains(&self.from) || nodes.cut_off.contains(&self.to);
        let target = nodes.all.get(&self.to).filter(|_| !is_cut).cloned();
        target.ok_or_else(|| Unreachable::new(&io::Error::from(io::ErrorKind::NotConnected)).into())
    }

    fn answered<T, E: std::error::Error>(
        &self,
        answer: Result<T, RaftError<u64, E>>,
    ) -> Result<T, Failure<E>> {
        // The answer must get back as well.
        self.target::<E>()?;
        answer.map_err(|error| RemoteError::new(self.to, error).into())
    }
}

impl RaftNetwork<TypeConfig> for Way {
    async fn append_entries(
        &mut self,
        entries: AppendEntriesRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<u64>, Failure> {
        let answer = self.target()?.append_entries(entries).await;
        self.answered(answer)
    }

    async fn install_snapshot(
        &mut self,
        part: InstallSnapshotRequest<TypeConfig>,
        _: RPCOption,
    ) -> Result<InstallSnapshotResponse<u64>, Failure<InstallSnapshotError>> {
        let answer = self.target()?.install_snapshot(part).await;
        self.answered(answer)
    }

    async fn vote(&mut self, asked: VoteRequest<u64>, _: RPCOption) -> Result<VoteResponse<u64>, Failure> {
        let answer = self.target()?.vote(asked).await;
        self.answered(answer)
    }
}
