//! A node with partitions: the partitions bench measures it, and its tests kill, pause and drain it.
//!
//! It elects among its peers, replicates metadata with them, and reads commands as lines of JSON from its standard
//! input. With a directory of ledgers it writes to the ledger of each partition of which it is the primary, without
//! checking before each line that it still is: like a program that is paused in between. The ledgers' fences check.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use primacy::core::FenceError;
use primacy::metadata::{Durability, Map};
use primacy::partitions::{End, PartitionEvent, Partitions, Primary};
use primacy::{Elector, FencingToken, NodeId, Peers, clock};
use primacy_fence_sqlite::rusqlite::Connection;
use primacy_fence_sqlite::{GuardError, fenced};
use primacy_kv::command::Command as MapCommand;
use primacy_kv::partitions::{Command as PartitionsCommand, GroupName, Plan};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::LocalSet;

use super::partition_guardian;
use crate::exit::{Exit, Failure};

/// The election of all these nodes.
const ELECTION: &str = "partitions";

/// The interval between two written lines.
const WRITE_INTERVAL: Duration = Duration::from_millis(20);
/// The maximum time that a write waits for another writer.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// The time for which the work of a partition continues after the partition was taken back.
const DRAIN: Duration = Duration::from_millis(200);
/// The default time to live of a node's session, after which an unreachable node is no primary any more.
pub(super) const TIME_TO_LIVE: Duration = Duration::from_secs(3);

/// The arguments of a node.
pub(super) struct Node<'a> {
    pub(super) name: &'a str,
    pub(super) peers: &'a str,
    pub(super) dir: &'a Path,
    /// The directory of the ledgers that it writes to.
    pub(super) ledgers: Option<PathBuf>,
    pub(super) time_to_live: Duration,
    /// True if it has a guardian that reports its death.
    pub(super) guarded: bool,
}

/// An event that it prints.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum NodeReport<'a> {
    Joined {
        node: &'a str,
        boot_ns: u64,
    },
    /// It leads the election.
    Leads {
        boot_ns: u64,
    },
    /// The number of partitions of which it is the primary now.
    Has {
        count: usize,
        boot_ns: u64,
    },
    Began {
        partition: &'a str,
        token: u64,
        boot_ns: u64,
    },
    Ending {
        partition: &'a str,
        token: u64,
        end: &'static str,
        boot_ns: u64,
    },
    /// The fence has refused a line; `checked` is the result that a check before the write would have had.
    Refused {
        partition: &'a str,
        token: u64,
        highest: u64,
        checked: bool,
        boot_ns: u64,
    },
    OrderDone,
    OrderRefused {
        why: String,
    },
    /// The nodes that are up, and the primaries and tokens of the partitions that are not being moved.
    Shown {
        up: Vec<String>,
        primaries: Vec<(u32, String, u64)>,
    },
    /// It has stopped writing to the partition.
    Stopped {
        partition: &'a str,
        token: u64,
        boot_ns: u64,
    },
}

fn tell(event: &NodeReport<'_>) {
    let line = serde_json::to_string(event).expect("no map has a key that is no text");
    // An error means that the reader is gone; no output matters any more.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn now() -> u64 {
    clock::now().as_nanos()
}

/// Runs until it is killed, or until its standard input ends, which makes it leave.
pub(super) fn run(node: Node<'_>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, live(node))
}

async fn live(Node { name, peers, dir, ledgers, time_to_live, guarded }: Node<'_>) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, error.to_string());
    let node: NodeId = name.parse().map_err(|error| failed(&error))?;
    let peers: Peers = peers.parse().map_err(|error| failed(&error))?;
    let builder = Elector::builder().election(ELECTION).node(node).state_dir(dir).metadata(Durability::Fsync);
    let elector = builder.peers(peers).await.map_err(|error| failed(&error))?;
    let _guardian = guarded.then(|| partition_guardian::start(&elector)).transpose()?;
    tokio::task::spawn_local(stand(elector.clone()));
    let map = elector.map().cloned().ok_or_else(|| failed(&"it keeps no metadata"))?;
    tokio::task::spawn_local(obey(map));
    let joining = elector.partitions().time_to_live(time_to_live);
    let partitions = joining.join().await.map_err(|error| failed(&error))?;
    tell(&NodeReport::Joined { node: name, boot_ns: now() });
    match ledgers {
        Some(ledgers) => write_lines(name, partitions, &ledgers).await,
        None => count(partitions).await,
    }
}

/// A command to a node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub(super) enum PartitionCommand {
    Create {
        group: String,
        count: u32,
    },
    Drop {
        group: String,
    },
    Drain {
        node: String,
    },
    Undrain {
        node: String,
    },
    Move {
        group: String,
        index: u32,
        node: String,
    },
    /// Report its view of a group.
    Show {
        group: String,
    },
}

/// Reads commands, and reports the outcome of each.
async fn obey(map: Map) {
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(order)) = orders.next_line().await {
        let event = match serde_json::from_str(&order).map_err(|error| error.to_string()) {
            Ok(PartitionCommand::Show { group }) => show(&map, &group).await,
            Ok(order) => change(&map, order).await,
            Err(why) => Err(why),
        };
        tell(&event.unwrap_or_else(|why| NodeReport::OrderRefused { why }));
    }
}

async fn change(map: &Map, order: PartitionCommand) -> Result<NodeReport<'static>, String> {
    let outcome =
        map.write(MapCommand::Partitions(order.parse()?)).await.map_err(|error| error.to_string())?;
    outcome.result.map(|_| NodeReport::OrderDone).map_err(|refusal| refusal.to_string())
}

async fn show(map: &Map, group: &str) -> Result<NodeReport<'static>, String> {
    map.catch_up().await.map_err(|error| error.to_string())?;
    let group: GroupName = GroupName::new(group).map_err(|error| error.to_string())?;
    let state = map.state();
    let known = state.partitions();
    let up = known.nodes().into_iter().filter(|health| health.up.is_some());
    let up = up.map(|health| health.node.to_string()).collect();
    let primaries = known.runs(&group).filter(|run| run.partition.plan == Plan::Stays).filter_map(|run| {
        let (primary, token) = (run.partition.primary?.to_string(), run.partition.number);
        Some(run.range.map(move |index| (index, primary.clone(), token)))
    });
    Ok(NodeReport::Shown { up, primaries: primaries.flatten().collect() })
}

impl PartitionCommand {
    fn parse(self) -> Result<PartitionsCommand, String> {
        let group = |name: &str| GroupName::new(name).map_err(|error| error.to_string());
        let node = |name: &str| name.parse::<NodeId>().map_err(|error| error.to_string());
        Ok(match self {
            Self::Create { group: name, count } => PartitionsCommand::Create { group: group(&name)?, count },
            Self::Drop { group: name } => PartitionsCommand::Drop { group: group(&name)? },
            Self::Drain { node: name } => PartitionsCommand::Drain { node: node(&name)? },
            Self::Undrain { node: name } => PartitionsCommand::Undrain { node: node(&name)? },
            Self::Move { group: name, index, node: to } => {
                PartitionsCommand::Move { group: group(&name)?, index, node: node(&to)? }
            }
            Self::Show { .. } => return Err("it changes nothing".to_owned()),
        })
    }
}

/// Campaigns, and leads whenever it is elected.
async fn stand(elector: Elector) {
    while let Ok(leadership) = elector.campaign().await {
        tell(&NodeReport::Leads { boot_ns: now() });
        leadership.lost().await;
    }
}

/// Handles all its partitions in one task.
async fn count(mut partitions: Partitions) -> Result<(), Failure> {
    let mut has: HashMap<(String, u32), Primary> = HashMap::new();
    loop {
        let Ok(event) = partitions.next_event().await else { return Ok(()) };
        take(&mut has, event);
        loop {
            let more = tokio::select! {
                biased;
                event = partitions.next_event() => event,
                () = std::future::ready(()) => break,
            };
            let Ok(event) = more else { return Ok(()) };
            take(&mut has, event);
        }
        tell(&NodeReport::Has { count: has.len(), boot_ns: now() });
    }
}

fn take(has: &mut HashMap<(String, u32), Primary>, event: PartitionEvent) {
    match event {
        PartitionEvent::Begun(primary) => {
            has.insert((primary.group().to_owned(), primary.index()), primary);
        }
        // A partition that was taken back is given back at once.
        PartitionEvent::Ending { group, index, .. } => {
            has.remove(&(group.to_string(), index));
        }
    }
}

async fn write_lines(name: &str, mut partitions: Partitions, ledgers: &Path) -> Result<(), Failure> {
    loop {
        let Ok(primary) = partitions.next().await else { return Ok(()) };
        let partition = format!("{}-{}", primary.group(), primary.index());
        let path = ledgers.join(format!("{partition}.db"));
        tokio::task::spawn_local(work(name.to_owned(), partition, path, primary));
    }
}

async fn work(name: String, partition: String, path: PathBuf, primary: Primary) {
    let token = primary.token();
    let about = &partition;
    tell(&NodeReport::Began { partition: about, token: token.0, boot_ns: now() });
    let write = || match append(&path, about, token, &name) {
        Err(GuardError::Stale(FenceError::Stale { highest, .. })) => {
            let checked = primary.check().is_ok();
            let (token, highest) = (token.0, highest.0);
            tell(&NodeReport::Refused { partition: about, token, highest, checked, boot_ns: now() });
            false
        }
        // If the ledger cannot be used, the check has no result.
        Ok(()) | Err(_) => true,
    };
    let end = loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(WRITE_INTERVAL) => {
                if !write() {
                    break primary.ended().await;
                }
            }
            end = primary.ended() => break end,
        }
    };
    tell(&NodeReport::Ending { partition: about, token: token.0, end: end.describe(), boot_ns: now() });
    match end {
        // Until it is dropped, this node may complete writes under way.
        End::TakenBack | End::Left => {
            tokio::time::sleep(DRAIN).await;
            write();
        }
        // A program that was paused has not noticed the end yet.
        End::Expired => {
            write();
        }
        End::Halted => {}
    }
    tell(&NodeReport::Stopped { partition: about, token: token.0, boot_ns: now() });
}

fn append(path: &Path, partition: &str, token: FencingToken, name: &str) -> Result<(), GuardError> {
    let mut ledger = Connection::open(path)?;
    ledger.busy_timeout(BUSY_MAX)?;
    let number = i64::try_from(token.0).unwrap_or(i64::MAX);
    let now = i64::try_from(now()).unwrap_or(i64::MAX);
    fenced(&mut ledger, partition, token, |transaction| {
        let insert = "INSERT INTO ledger(token, writer, boot_ns) VALUES (?1, ?2, ?3)";
        transaction.execute(insert, (number, name, now))?;
        Ok(())
    })
}
