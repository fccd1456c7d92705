//! Three members of etcd, or three nodes behind doors: the same stories are told over both.

use primacy_conformance::live::Ground;
use primacy_conformance::live::etcd::{Etcd, MEMBERS};

use super::door::Door;

/// Who answers.
pub(crate) enum Cluster {
    Etcd(Etcd),
    /// With where its nodes keep what they must not forget.
    Door(Door, Ground),
}

impl Cluster {
    /// Three nodes of ours.
    pub(crate) async fn of_ours() -> Self {
        let ground = Ground::new("cluster");
        Self::Door(Door::open(&ground, &[]).await, ground)
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Etcd(_) => "etcd",
            Self::Door(..) => "door",
        }
    }

    /// Where one of them answers clients.
    pub(crate) fn address(&self, member: usize) -> String {
        match self {
            Self::Etcd(etcd) => {
                let (host, port) = etcd.address(member);
                format!("{host}:{port}")
            }
            Self::Door(door, _) => door.addresses[member].clone(),
        }
    }

    /// Where all of them do.
    pub(crate) fn addresses(&self) -> String {
        (0..MEMBERS).map(|member| self.address(member)).collect::<Vec<_>>().join(",")
    }

    pub(crate) async fn leader(&self) -> usize {
        match self {
            Self::Etcd(etcd) => etcd.leader().await,
            Self::Door(door, _) => door.leader().await,
        }
    }

    /// Kills one, as a machine does that loses its power.
    pub(crate) fn kill(&mut self, member: usize) {
        match self {
            Self::Etcd(etcd) => etcd.kill(member),
            Self::Door(door, _) => door.servers[member].kill(),
        }
    }

    /// Starts one again, with what is on its disk.
    pub(crate) async fn restart(&mut self, member: usize) {
        match self {
            Self::Etcd(etcd) => etcd.restart(member).await,
            Self::Door(door, ground) => door.restart(ground, member).await,
        }
    }
}
