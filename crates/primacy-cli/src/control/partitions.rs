//! Partitions, as operators see and change them over the control socket.

use std::time::Duration;

use primacy::NodeId;
use primacy::kv::command::{Command as MapCommand, Refusal};
use primacy::kv::partitions::{self, Command, GroupName, Plan, Run as KnownRun};
use primacy::metadata::{Map, MapError};
use serde::{Deserialize, Serialize};

use super::message::{ControlError, Kind};

/// The most runs of partitions in an answer: as many as fit into one line.
const RUNS_MAX: usize = 20_000;
/// The time that a node waits for an update from a leader, before it reports what it has.
const FRESH_MAX: Duration = Duration::from_secs(2);

/// A change of partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(crate) enum Change {
    /// Create this group.
    Create { group: String, count: u32 },
    /// Remove this group.
    Drop { group: String },
    /// Exclude this node from being a primary.
    Drain { node: String },
    /// Allow this node to be a primary again.
    Undrain { node: String },
    /// Make this node the primary of this partition.
    Move { group: String, index: u32, node: String },
}

/// A node's knowledge of partitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shown {
    /// True if it includes all changes that were done before the request.
    pub(crate) fresh: bool,
    /// The nodes that are up or drained.
    pub(crate) nodes: Vec<Node>,
    /// All groups; or, if the request names one, that group with its partitions.
    pub(crate) groups: Vec<Group>,
}

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) node: String,
    pub(crate) up: bool,
    pub(crate) drained: bool,
    pub(crate) primary_of: u32,
    /// The number of these partitions that it is to give back.
    pub(crate) gives_back: u32,
    /// The number of partitions that are taken back from other nodes for it.
    pub(crate) awaits: u32,
}

/// A group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) group: String,
    pub(crate) count: u32,
    /// The number of partitions without a primary.
    pub(crate) free: u32,
    /// The number of partitions that are being taken back.
    pub(crate) taken: u32,
    /// True if it is about to be removed.
    pub(crate) ending: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) partitions: Vec<Run>,
    /// True if there are more runs than are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) more: bool,
}

/// Partitions that follow each other and are alike.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) primary: Option<String>,
    /// The token of the primary, or of the last one.
    pub(crate) token: u64,
    /// Whether it is being taken back.
    pub(crate) taken: bool,
    /// The node that gets it next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

impl Change {
    fn parse(self) -> Result<Command, ControlError> {
        Ok(match self {
            Self::Create { group, count } => Command::Create { group: group_name(&group)?, count },
            Self::Drop { group } => Command::Drop { group: group_name(&group)? },
            Self::Drain { node } => Command::Drain { node: node_name(&node)? },
            Self::Undrain { node } => Command::Undrain { node: node_name(&node)? },
            Self::Move { group, index, node } => {
                Command::Move { group: group_name(&group)?, index, node: node_name(&node)? }
            }
        })
    }

    /// Returns the name of the change, and the object that it changes.
    pub(crate) fn told(&self) -> (&'static str, String) {
        match self {
            Self::Create { group, .. } => ("create the partitions of", group.clone()),
            Self::Drop { group } => ("drop the partitions of", group.clone()),
            Self::Drain { node } => ("drain", node.clone()),
            Self::Undrain { node } => ("undrain", node.clone()),
            Self::Move { group, .. } => ("move a partition of", group.clone()),
        }
    }
}

/// Changes the partitions.
pub(super) async fn rearrange(map: Option<&Map>, change: Change) -> Result<(), ControlError> {
    let map = map.ok_or_else(no_metadata)?;
    let outcome = map.write(MapCommand::Partitions(change.parse()?)).await?;
    outcome.result.map(|_| ()).map_err(ControlError::from)
}

/// Returns the node's knowledge of partitions.
pub(super) async fn shown(map: Option<&Map>, group: Option<&str>) -> Result<Shown, ControlError> {
    let map = map.ok_or_else(no_metadata)?;
    let named = group.map(group_name).transpose()?;
    let fresh = matches!(tokio::time::timeout(FRESH_MAX, map.catch_up()).await, Ok(Ok(())));
    let state = map.state();
    let known = state.partitions();
    let groups: Vec<Group> = known
        .groups()
        .filter(|(name, _)| named.as_ref().is_none_or(|named| named == *name))
        .map(|(name, size)| {
            let mut runs = known.runs(name).filter(|_| named.is_some());
            let listed = runs.by_ref().take(RUNS_MAX).map(Run::from).collect();
            Group {
                group: name.to_string(),
                count: size.count,
                free: size.free,
                taken: size.taken,
                ending: size.ending,
                partitions: listed,
                more: runs.next().is_some(),
            }
        })
        .collect();
    if named.is_some() && groups.is_empty() {
        return Err(Refusal::Partitions(partitions::Refusal::GroupNotFound).into());
    }
    let nodes = known.nodes().into_iter().map(|health| Node {
        node: health.node.to_string(),
        up: health.up.is_some(),
        drained: health.drained,
        primary_of: health.primary_of,
        gives_back: health.gives_back,
        awaits: health.awaits,
    });
    Ok(Shown { fresh, nodes: nodes.collect(), groups })
}

impl From<KnownRun> for Run {
    fn from(run: KnownRun) -> Self {
        let (taken, next) = match run.partition.plan {
            Plan::Stays => (false, None),
            Plan::Taken(next) => (true, next),
        };
        Self {
            first: run.range.start,
            last: run.range.end - 1,
            primary: run.partition.primary.map(|node| node.to_string()),
            token: run.partition.number,
            taken,
            next: next.map(|node| node.to_string()),
        }
    }
}

impl From<MapError> for ControlError {
    fn from(error: MapError) -> Self {
        let kind = match error {
            MapError::Timeout | MapError::AnswerLost | MapError::Unreadable => Kind::NoAnswer,
            MapError::Busy => Kind::TooMany,
            MapError::Voter { .. } => Kind::NotNow,
            MapError::Closed => Kind::Closed,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<Refusal> for ControlError {
    fn from(refusal: Refusal) -> Self {
        Self::new(Kind::NotNow, format!("{refusal}; see `primacy partitions show`"))
    }
}

fn no_metadata() -> ControlError {
    ControlError::new(
        Kind::NoMetadata,
        "this node keeps no metadata, and so knows no partitions; start all nodes with --metadata",
    )
}

fn group_name(name: &str) -> Result<GroupName, ControlError> {
    GroupName::new(name).map_err(|error| ControlError::new(Kind::Malformed, format!("{name:?}: {error}")))
}

fn node_name(name: &str) -> Result<NodeId, ControlError> {
    name.parse()
        .map_err(|error| ControlError::new(Kind::Malformed, format!("{name:?} is no node's name: {error}")))
}
