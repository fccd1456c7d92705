//! Three nodes elect a leader among themselves, and the leader crashes, freezes or resigns; then the same for an
//! application that embeds the library.

use std::path::PathBuf;
use std::time::Duration;

use primacy::clock;
use rustix::process::Signal;

use super::ledger::{Ledger, is_free};
use super::{Narrator, ledger_failed, milliseconds};
use crate::cmd::process_group::{ProcessGroup, ProcessRole, reserve_addresses};
use crate::exit::{Exit, Failure};
use crate::process_tree::stands;

const ELECTION: &str = "demo";
const NODES: [&str; 3] = ["n1", "n2", "n3"];
/// The number of times that each kind of failover is shown.
const CRASHES: usize = 3;
const RESIGNATIONS: usize = 2;
/// The lease of the embedded example: short, since its second process has to wait for it.
const EMBEDDED_LEASE: &str = "1s";

/// The measurements of this chapter.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// The times from each fault to the first write of the next leader.
    pub(super) failovers: Vec<Duration>,
    /// The number of attempted writes of replaced leaders, and how many of them were refused and accepted.
    pub(super) tried: u64,
    pub(super) refused: u64,
    pub(super) accepted: u64,
}

/// The state of the running chapter.
struct Story {
    group: ProcessGroup,
    narrator: Narrator,
    peers: String,
    ledger: PathBuf,
    measured: Measured,
}

/// A job that has written its first line to the ledger.
struct Writer {
    node: String,
    token: u64,
    boot_ns: u64,
}

/// Runs the chapter. All its processes have ended when it returns.
///
/// # Errors
/// If an expected event does not happen in time.
pub(super) fn tell(narrator: Narrator) -> Result<Measured, Failure> {
    let mut story = Story::new(narrator)?;
    story.tell()?;
    Ok(std::mem::take(&mut story.measured))
}

impl Measured {
    /// Checks that the demo has shown that the fence works.
    ///
    /// # Errors
    /// If a stale write was accepted, or none was tried.
    pub(super) fn judge(&self) -> Result<(), Failure> {
        let failed = |message: String| Err(Failure::new(Exit::Failed, message));
        if self.accepted > 0 {
            return failed(format!("{} stale write(s) got into the ledger: the fence failed", self.accepted));
        }
        if self.tried == 0 {
            return failed("no stale write was tried, so nothing was shown about the fence".into());
        }
        Ok(())
    }
}

impl Story {
    fn new(narrator: Narrator) -> Result<Self, Failure> {
        let group = ProcessGroup::new()?;
        let ledger = group.dir().join("ledger.db");
        Ledger::create(&ledger, ELECTION).map_err(ledger_failed)?;
        let peers: Vec<String> = reserve_addresses(&NODES)?
            .iter()
            .map(|place| format!("{}={}", place.node, place.address))
            .collect();
        Ok(Self { group, narrator, peers: peers.join(","), ledger, measured: Measured::default() })
    }

    fn tell(&mut self) -> Result<(), Failure> {
        self.say("three nodes on this machine, one job, and a ledger that checks fencing tokens");
        for node in NODES {
            self.start(node)?;
        }
        let mut leader = self.first_line(|_| true)?;
        self.say(&format!(
            "{} is elected with token {}, and its job writes to the ledger",
            leader.node, leader.token
        ));
        self.settle(&NODES)?;
        for _ in 0..CRASHES {
            leader = self.crash(&leader)?;
        }
        leader = self.freeze(&leader)?;
        for _ in 0..RESIGNATIONS {
            leader = self.resign(&leader)?;
        }
        for node in NODES {
            self.group.signal(node, ProcessRole::Main, Signal::TERM)?;
        }
        for node in NODES {
            self.group.wait_for_end(node)?;
        }
        let ledger = Ledger::open(&self.ledger, ELECTION).map_err(|error| ledger_failed(error.into()))?;
        self.count(&ledger)?;
        self.embedded()
    }

    /// Kills the leader. Its guardian ends the job and notifies the other nodes.
    fn crash(&mut self, leader: &Writer) -> Result<Writer, Failure> {
        let Writer { node, token, .. } = leader;
        self.say(&format!("kill -9 {node}, which leads with token {token}"));
        let at = clock::now().as_nanos();
        self.group.signal(node, ProcessRole::Main, Signal::KILL)?;
        let next = self.first_line(|writer| writer.token > *token)?;
        self.took_over(&next, at, "");
        self.group.wait_for_end(node)?;
        self.start(node)?;
        self.settle(&[node])?;
        Ok(next)
    }

    /// Pauses all processes of the leader, and wakes its job first.
    fn freeze(&mut self, leader: &Writer) -> Result<Writer, Failure> {
        let Writer { node, token, .. } = leader;
        self.say(&format!(
            "freeze {node} whole: its supervisor, its guardian and its job, as a machine would freeze"
        ));
        let at = clock::now().as_nanos();
        for role in [ProcessRole::Main, ProcessRole::Guardian, ProcessRole::Job] {
            self.group.signal(node, role, Signal::STOP)?;
        }
        self.freeze_outside_transactions(node, ProcessRole::Job, vec![self.ledger.clone()])?;
        let next = self.first_line(|writer| writer.token > *token)?;
        self.took_over(&next, at, ", once the promises to the frozen one had run out");
        self.say(&format!("{node} wakes, and its job writes before its guardian can end it"));
        self.group.signal(node, ProcessRole::Job, Signal::CONT)?;
        self.stale_write(node)?;
        for role in [ProcessRole::Guardian, ProcessRole::Main] {
            self.group.signal(node, role, Signal::CONT)?;
        }
        let awake = node.clone();
        self.group.wait_for("the end of the old leadership", |name, line| {
            (name == awake && line["event"] == "campaigning").then_some(())
        })?;
        self.group.pause(Duration::from_millis(300))?;
        Ok(next)
    }

    /// Pauses a process outside of transactions: a process that is paused inside one keeps all others from writing, so
    /// it is continued briefly until it is outside.
    fn freeze_outside_transactions(
        &mut self,
        name: &str,
        role: ProcessRole,
        databases: Vec<PathBuf>,
    ) -> Result<(), Failure> {
        let process = self.group.pid(name, role)?;
        loop {
            // A process on another processor receives the signal late, and may begin a transaction before.
            self.group.look_for("the pause of a process", |_| Ok(stands(process).then_some(())))?;
            let mut free = true;
            for database in &databases {
                free &= is_free(database).map_err(|error| ledger_failed(error.into()))?;
            }
            if free {
                return Ok(());
            }
            self.group.signal(name, role, Signal::CONT)?;
            self.group.pause(Duration::from_millis(1))?;
            self.group.signal(name, role, Signal::STOP)?;
        }
    }

    /// Waits for the write of a replaced leader, which must be refused.
    fn stale_write(&mut self, node: &str) -> Result<(), Failure> {
        let (token, highest) = self.group.wait_for("the refusal of a stale write", |name, line| {
            let refused = name == node && line["job"] == "refused";
            refused.then(|| (line["token"].as_u64(), line["highest"].as_u64()))
        })?;
        self.measured.tried += 1;
        self.measured.refused += 1;
        let number = |token: Option<u64>| token.map_or("?".to_owned(), |token| token.to_string());
        self.say(&format!(
            "  its write with token {} is REFUSED: token {} has been there",
            number(token),
            number(highest)
        ));
        Ok(())
    }

    /// Asks the leader to end.
    fn resign(&mut self, leader: &Writer) -> Result<Writer, Failure> {
        let Writer { node, token, .. } = leader;
        self.say(&format!("{node} is asked to resign: it ends its job, gives up the lead, and ends"));
        let at = clock::now().as_nanos();
        self.group.signal(node, ProcessRole::Main, Signal::TERM)?;
        let next = self.first_line(|writer| writer.token > *token)?;
        self.took_over(&next, at, "");
        self.group.wait_for_end(node)?;
        self.start(node)?;
        self.settle(&[node])?;
        Ok(next)
    }

    /// Pauses an application that embeds the library, without a guardian and without a check of the lease.
    fn embedded(&mut self) -> Result<(), Failure> {
        self.say("an application that embeds the library: two copies, a lease in SQLite, and no guardian");
        let store = self.group.dir().join("election.db");
        let ledger_path = self.group.dir().join("embedded.db");
        let ledger = Ledger::create(&ledger_path, "embedded").map_err(ledger_failed)?;
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let args = ["demo-embedded", "--election", "embedded", "--lease", EMBEDDED_LEASE, "--store"];
        let mut args: Vec<String> = args.map(str::to_owned).to_vec();
        args.extend([format!("sqlite:{}", text(&store)), "--ledger".to_owned(), text(&ledger_path)]);
        self.group.start("one", &args)?;
        let first = self.first_line(|_| true)?;
        self.group.start("two", &args)?;
        self.group.pause(Duration::from_millis(500))?;
        self.say(&format!("freeze the first copy, which leads with token {}", first.token));
        let at = clock::now().as_nanos();
        self.group.signal("one", ProcessRole::Main, Signal::STOP)?;
        self.freeze_outside_transactions("one", ProcessRole::Main, vec![ledger_path, store])?;
        let second = self.first_line(|writer| writer.token > first.token)?;
        self.took_over(&second, at, ", once the lease had run out");
        self.say("the first copy wakes, and writes without asking whether it still leads");
        self.group.signal("one", ProcessRole::Main, Signal::CONT)?;
        self.stale_write("one")?;
        self.count(&ledger)
    }

    /// Starts a node under its supervisor.
    fn start(&mut self, node: &str) -> Result<(), Failure> {
        let state = self.group.dir().join(node).to_string_lossy().into_owned();
        let ledger = self.ledger.to_string_lossy().into_owned();
        let args = [
            "run",
            "--json",
            "--election",
            ELECTION,
            "--peers",
            &self.peers,
            "--node",
            node,
            "--state-dir",
            &state,
            "--",
            "/proc/self/exe",
            "demo-job",
            "--ledger",
            &ledger,
        ];
        self.group.start(node, &args.map(str::to_owned))
    }

    /// Waits until these nodes know the leader and may vote: a node that has just started does not know its earlier
    /// promises, and votes for no candidate as long as they could last.
    fn settle(&mut self, nodes: &[&str]) -> Result<(), Failure> {
        self.group.wait_for_followers(nodes)?;
        self.group.pause(primacy::config::PROMISE + Duration::from_millis(300))
    }

    /// Waits for the first line that a new leader's job writes.
    fn first_line(&mut self, wanted: impl Fn(&Writer) -> bool) -> Result<Writer, Failure> {
        self.group.wait_for("a new leader's first write", |name, line| {
            let (token, boot_ns) = (line["token"].as_u64()?, line["boot_ns"].as_u64()?);
            let writer = Writer { node: name.to_owned(), token, boot_ns };
            (line["job"] == "wrote" && wanted(&writer)).then_some(writer)
        })
    }

    fn took_over(&mut self, writer: &Writer, at: u64, remark: &str) {
        let Some(took) = writer.boot_ns.checked_sub(at).map(Duration::from_nanos) else {
            // On a busy machine the leader may have lost the lead before the demo's signal.
            return self.say(&format!("  {} had taken over before that, of itself", writer.node));
        };
        self.measured.failovers.push(took);
        let (node, token) = (&writer.node, writer.token);
        self.say(&format!(
            "  {node} leads with token {token}, and wrote after {:.1} ms{remark}",
            milliseconds(took)
        ));
    }

    /// Counts stale lines in the ledger itself, independently of the jobs' reports.
    fn count(&mut self, ledger: &Ledger) -> Result<(), Failure> {
        let failed = |error: primacy_fence_sqlite::rusqlite::Error| ledger_failed(error.into());
        let (lines, stale) = (ledger.lines().map_err(failed)?, ledger.stale_lines().map_err(failed)?);
        self.measured.tried += stale;
        self.measured.accepted += stale;
        self.say(&format!("the ledger has {lines} lines, {stale} of them stale"));
        Ok(())
    }

    fn say(&self, text: &str) {
        self.narrator.say(text);
    }
}
