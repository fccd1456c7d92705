//! The run of one arm: starts its nodes, restarts them, and applies the steps of the schedule to them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use primacy::clock;
use primacy_core::rng::Rng;

use crate::chaos::arm::{Arm, Held, STORE_VARIABLE};
use crate::chaos::clients::Beside;
use crate::chaos::disk::SmallDisk;
use crate::chaos::event_log::{EventLog, RunEvent, Sent};
use crate::chaos::fake_clock::FakedClock;
use crate::chaos::fault::{Kind, NodeProcess};
use crate::chaos::inject::Verb;
use crate::chaos::ledger::{LEDGER, Ledger};
use crate::chaos::node::{Node, Start, TRACES};
use crate::chaos::processes::{LOOK_INTERVAL, end_marked};
use crate::chaos::replace::{Leaving, Replacing};
use crate::chaos::schedule::{Schedule, seed_of};
use crate::chaos::server::Store;
use crate::chaos::tail::Tail;
use crate::chaos::unkillable;
use primacy_testbed::network::Network;
use primacy_testbed::run_error::RunError;

/// The maximum age of the last write of a working leader.
const WORKS: Duration = Duration::from_millis(300);
/// The maximum time until a leader works again after the healing, in leases; a guard against hanging, not a guarantee.
const PATIENCE_LEASES: u32 = 30;
/// The longest time until an ended node is restarted: mostly shorter than a lease, sometimes several leases.
const AWAY_MAX_MS: u64 = 500;
const LONG_AWAY_MAX_MS: u64 = 4_000;
/// The time for the nodes to end in order.
const FAREWELL: Duration = Duration::from_secs(15);
/// The interval between two readings of the faked clock.
const READ_EVERY: Duration = Duration::from_secs(5);
/// The size of a disk that will be filled; SQLite writes four MiB to its log before it moves them into the database,
/// and needs more than twice that.
const DISK_KIB: u32 = 16_384;

/// The parameters of a run of an arm.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The arm.
    pub(crate) arm: Arm,
    /// The seed of the whole run.
    pub(crate) seed: u64,
    /// The directory of the arm, which exists and is empty.
    pub(crate) dir: PathBuf,
    /// The command `primacy`.
    pub(crate) primacy: PathBuf,
    /// The faults that this machine cannot inject, with the reasons.
    pub(crate) not_run: Vec<(Kind, String)>,
    /// The time at which it ends.
    pub(crate) until: Instant,
    /// Set to end it at once.
    pub(crate) stop: Arc<AtomicBool>,
    /// Its progress, as text.
    pub(crate) progress: Arc<Progress>,
}

/// The progress of an arm.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Steps that were made.
    pub(crate) steps: AtomicU64,
    /// Leaderships that have written.
    pub(crate) leaderships: AtomicU64,
    /// Accepted writes.
    pub(crate) writes: AtomicU64,
}

/// The nodes of an arm, and everything around them.
#[derive(Debug)]
pub(crate) struct ArmRun {
    pub(crate) plan: Plan,
    pub(crate) events: EventLog,
    pub(crate) nodes: Vec<Node>,
    /// The voter that is being replaced, and the nodes that were replaced.
    pub(crate) replacing: Option<Replacing>,
    pub(crate) leaving: Vec<Leaving>,
    /// The clients, if the nodes serve clients.
    pub(crate) clients: Vec<Beside>,
    pub(crate) network: Option<Network>,
    /// The fault of each network cut.
    pub(crate) cuts: Vec<Kind>,
    /// The disk of the store that can be filled.
    pub(crate) disk: Option<SmallDisk>,
    /// The store, if it is a server.
    pub(crate) store: Option<Store>,
    pub(crate) verbs: Vec<Verb>,
    /// The nodes with stopped processes, and whether the disk is full.
    pub(crate) stopped: Vec<usize>,
    pub(crate) full: bool,
    faked: Option<FakedClock>,
    read_at: Instant,
    ledger: Tail,
    /// The node of the last accepted write, its time, and its token.
    last: Option<(usize, u64, u64)>,
    rng: Rng,
}

/// Runs the arm until its time is over or it is stopped, and ends all its processes.
///
/// # Errors
/// [`RunError`] if the run itself could not go on.
pub(crate) fn run(plan: Plan) -> Result<(), RunError> {
    let (mark, dir) = (mark(&plan.arm), plan.dir.clone());
    let outcome = ArmRun::new(plan).and_then(|mut arm_run| {
        let played = arm_run.play();
        let ended = arm_run.end();
        played.and(ended)
    });
    unkillable::clean_up(&dir);
    // Also after a failed setup.
    match end_marked(&mark) {
        0 => outcome,
        left => outcome.and(Err(RunError::NotWhole(format!("{left} process(es) could not be ended")))),
    }
}

/// The beginning of the marks of all processes of an arm.
pub(crate) fn mark(arm: &Arm) -> String {
    format!("{}/{}/", std::process::id(), arm.name)
}

impl ArmRun {
    fn new(mut plan: Plan) -> Result<Self, RunError> {
        let (arm, dir) = (plan.arm, plan.dir.clone());
        let mut rng = Rng::new(seed_of(plan.seed, arm.name).wrapping_add(1));
        for folder in [TRACES, "state", "store"] {
            let path = dir.join(folder);
            std::fs::create_dir_all(&path).map_err(RunError::file("make", &path))?;
        }
        Ledger::make(&dir)?;
        if arm.unkillable {
            unkillable::prepare(&dir)?;
        }
        let faked_node = usize::try_from(rng.up_to(arm.nodes as u64 - 1)).unwrap_or(0);
        let fast = rng.up_to(1) == 1;
        // A node with a faked clock is never replaced, so a single node gets none.
        let faked = match arm.knows(Kind::FakedClock).then(|| FakedClock::start(fast)) {
            None => None,
            Some(Ok(faked)) => Some(faked),
            Some(Err(error)) => {
                plan.not_run.push((Kind::FakedClock, error.to_string()));
                None
            }
        };
        let names = arm.node_names();
        let mut events = EventLog::open(&dir)?;
        events.log(RunEvent::Run {
            arm: arm.name.to_owned(),
            seed: plan.seed,
            not_run: plan.not_run.clone(),
            faked: faked.as_ref().and_then(|_| names.get(faked_node).cloned()),
        })?;
        let network = if arm.has_network() { Some(Network::new(arm.name, &names)?) } else { None };
        let disk = disk(&plan)?;
        let store = match arm.held {
            Held::OnServer(make) => Some(Store::start(make, arm.nodes)?),
            Held::AmongPeers(_) | Held::OverStore(_) => None,
        };
        let node = |(index, name): (usize, &String)| {
            let env = faked.iter().filter(|_| index == faked_node).flat_map(|faked| faked.env().to_vec());
            let url = store.iter().map(|store| (STORE_VARIABLE.to_owned(), store.url(index)));
            let env = env.chain(url).collect();
            Node::new(name, start(&plan, network.as_ref(), (index, name), env))
        };
        let nodes = names.iter().enumerate().map(node).collect();
        let ledger = Tail::new(dir.join(LEDGER));
        let (verbs, last, read_at) = (Vec::new(), None, Instant::now());
        let (stopped, cuts, full) = (Vec::new(), Vec::new(), false);
        Ok(Self {
            plan,
            events,
            nodes,
            replacing: None,
            leaving: Vec::new(),
            clients: Vec::new(),
            network,
            cuts,
            disk,
            store,
            verbs,
            stopped,
            full,
            faked,
            read_at,
            ledger,
            last,
            rng,
        })
    }

    fn play(&mut self) -> Result<(), RunError> {
        self.begin_clients()?;
        for index in 0..self.nodes.len() {
            self.nodes[index].begin(&self.plan.arm, &mut self.events)?;
        }
        let not_run: Vec<Kind> = self.plan.not_run.iter().map(|(kind, _)| *kind).collect();
        let mut schedule = Schedule::new(self.plan.arm, self.plan.seed, &not_run);
        let mut well = self.settle(0)?;
        let mut number = 0;
        while well && !self.is_over() {
            number += 1;
            let step = schedule.next_step();
            self.pause(step.after)?;
            if self.is_over() {
                break;
            }
            for fault in &step.faults {
                self.make(number, *fault)?;
            }
            if step.faults.iter().any(|fault| fault.kind.lasts()) {
                self.pause(step.lasts)?;
            }
            self.heal(number)?;
            self.plan.progress.steps.fetch_add(1, Ordering::Relaxed);
            if step.settle || self.is_over() {
                well = self.settle(number)?;
            }
        }
        if self.clients.is_empty() {
            return Ok(());
        }
        // No more faults are injected; the clients' final reads must be consistent with their earlier answers.
        if well && !self.plan.stop.load(Ordering::Relaxed) {
            self.settle(number)?;
        }
        self.finish_clients()
    }

    /// True if the time is over, or the run must stop.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.plan.until || self.plan.stop.load(Ordering::Relaxed)
    }

    /// Lets time pass, and keeps the nodes running.
    ///
    /// # Errors
    /// [`RunError`]
    pub(crate) fn pause(&mut self, time: Duration) -> Result<(), RunError> {
        let until = Instant::now() + time;
        loop {
            self.turn()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.plan.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK_INTERVAL));
        }
    }

    /// Detects ends, restarts nodes that are due, and reads new output.
    pub(crate) fn turn(&mut self) -> Result<(), RunError> {
        for index in 0..self.nodes.len() {
            if self.nodes[index].look(&mut self.events)? {
                // With two nodes down the third would lose the lead, whatever its job does.
                let is_long = self.rng.up_to(4) == 0 && !self.plan.arm.unkillable;
                let most = if is_long { LONG_AWAY_MAX_MS } else { AWAY_MAX_MS };
                let away = self.rng.up_to(most);
                self.nodes[index].restart_after(Duration::from_millis(away));
            }
            let node = &mut self.nodes[index];
            if node.restart_at.is_some_and(|at| Instant::now() >= at) {
                node.begin(&self.plan.arm, &mut self.events)?;
            }
        }
        self.go_on_replacing()?;
        self.watch_clients()?;
        self.take_verbs()?;
        for line in self.ledger.lines() {
            let (Some(token), Some(boot_ns)) = (line["token"].as_u64(), line["boot_ns"].as_u64()) else {
                continue;
            };
            let Some(node) = line["node"].as_str().and_then(|name| self.place_of(name)) else { continue };
            if self.last.is_none_or(|(_, _, before)| before != token) {
                self.plan.progress.leaderships.fetch_add(1, Ordering::Relaxed);
            }
            self.plan.progress.writes.fetch_add(1, Ordering::Relaxed);
            self.last = Some((node, boot_ns, token));
        }
        if Instant::now() >= self.read_at {
            self.read_at = Instant::now() + READ_EVERY;
            self.read_clock()?;
        }
        Ok(())
    }

    fn read_clock(&mut self) -> Result<(), RunError> {
        let Some(faked) = &mut self.faked else { return Ok(()) };
        let reading = faked.read()?;
        let event = RunEvent::Clock { faked_ns: reading.faked_ns, within_ns: reading.within_ns };
        self.events.log_at(reading.true_ns, event)
    }

    /// The node that wrote last; the first node, before any write.
    pub(crate) fn leader(&self) -> usize {
        self.last.map_or(0, |(node, _, _)| node)
    }

    /// Waits until every node is up and a leader works, and records that, or the failure to get there.
    fn settle(&mut self, step: u32) -> Result<bool, RunError> {
        let patience = PATIENCE_LEASES * self.plan.arm.lease;
        let until = Instant::now() + patience;
        // Waits for the effect of the last fault; otherwise earlier writes would be taken for later ones.
        self.pause(WORKS)?;
        loop {
            self.turn()?;
            let age = |at: u64| clock::now().as_nanos().saturating_sub(at);
            let works = self.last.is_some_and(|(_, at, _)| u128::from(age(at)) < WORKS.as_nanos());
            let up = self.nodes.iter().all(Node::is_up);
            let replaced = self.replacing.is_none() && self.leaving.is_empty();
            if works && up && replaced {
                self.events.log(RunEvent::Well { step })?;
                return Ok(true);
            }
            if self.plan.stop.load(Ordering::Relaxed) {
                return Ok(true);
            }
            if Instant::now() > until {
                if let Some(faked) = &self.faked {
                    faked.check()?;
                }
                let missing: Vec<&str> =
                    self.nodes.iter().filter(|node| !node.is_up()).map(|node| node.name.as_str()).collect();
                let what = match &self.replacing {
                    Some(replacing) if works && up => {
                        format!("{patience:?} after all was healed, {}", replacing.text())
                    }
                    Some(_) | None => {
                        format!("no leader works, {patience:?} after all was healed; not up: {missing:?}")
                    }
                };
                self.events.log(RunEvent::Stuck { step, what })?;
                return Ok(false);
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Ends all nodes in order, and lets the operator's commands end; then kills all remaining processes.
    fn end(&mut self) -> Result<(), RunError> {
        // Includes an unfinished replacement, and nodes that have not ended yet.
        self.nodes.extend(self.replacing.take().map(|replacing| replacing.new));
        self.nodes.extend(std::mem::take(&mut self.leaving).into_iter().map(|leaving| leaving.node));
        for node in &self.nodes {
            node.send(NodeProcess::Supervisor, Sent::Terminate, &mut self.events)?;
        }
        if self.plan.arm.unkillable {
            // The other nodes are gone, and a single leader cannot keep its lead for as long as its job may run.
            unkillable::end_jobs(&mark(&self.plan.arm));
        }
        let until = Instant::now() + FAREWELL;
        while (self.nodes.iter().any(Node::is_up) || !self.verbs.is_empty()) && Instant::now() < until {
            for node in &mut self.nodes {
                node.look(&mut self.events)?;
            }
            // A command whose node is gone waits for no answer.
            self.take_verbs()?;
            std::thread::sleep(LOOK_INTERVAL);
        }
        let late: Vec<String> =
            self.nodes.iter().filter(|node| node.is_up()).map(|node| node.name.clone()).collect();
        if !late.is_empty() {
            let what = format!("{late:?} did not end within {FAREWELL:?} of SIGTERM");
            self.events.log(RunEvent::Stuck { step: 0, what })?;
        }
        self.leave_verbs(FAREWELL)?;
        for node in &self.nodes {
            node.send(NodeProcess::Supervisor, Sent::Kill, &mut self.events)?;
        }
        // Processes that could not be killed are searched for again after the end of all arms.
        let _ = end_marked(&mark(&self.plan.arm));
        self.read_clock()?;
        self.events.log(RunEvent::End)
    }
}

/// The parameters of the first node at a place.
fn start(
    plan: &Plan,
    network: Option<&Network>,
    (place, name): (usize, &str),
    env: Vec<(String, String)>,
) -> Start {
    let serves = network.filter(|_| plan.arm.serves_clients());
    Start {
        primacy: plan.primacy.clone(),
        dir: plan.dir.clone(),
        namespace: network.map(|network| network.namespace(name)),
        peers: network.map(Network::peers),
        address: network.map(|network| network.address(place, 0)),
        etcd_api: serves.map(|network| network.etcd_api(place, 0)),
        generation: 0,
        state: plan.dir.join("state").join(name),
        store: plan.dir.join("store"),
        env,
        mark: format!("{}{name}", mark(&plan.arm)),
    }
}

/// Creates the disk of the store, if it has one.
fn disk(plan: &Plan) -> Result<Option<SmallDisk>, RunError> {
    let made = plan.arm.knows(Kind::FullDisk) && plan.not_run.iter().all(|(kind, _)| *kind != Kind::FullDisk);
    made.then(|| SmallDisk::mount(&plan.dir.join("store"), DISK_KIB)).transpose()
}
