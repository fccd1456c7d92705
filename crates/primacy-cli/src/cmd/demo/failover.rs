//! Three nodes elect a leader among themselves, and lose it in every way; then an application that embeds the library.

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

/// The measurements of the chapter.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// From each event to the first write of the next leader.
    pub(super) failovers: Vec<Duration>,
    /// Writes of leaders that had been replaced: tried, refused and accepted.
    pub(super) tried: u64,
    pub(super) refused: u64,
    pub(super) accepted: u64,
}

/// The chapter while it runs.
struct Story {
    group: ProcessGroup,
    narrator: Narrator,
    peers: String,
    ledger: PathBuf,
    measured: Measured,
}

/// A job that has written its first line.
struct Writer {
    node: String,
    token: u64,
    boot_ns: u64,
}

/// Runs the chapter. Its processes are gone when it returns.
///
/// # Errors
/// If something does not happen in time.
pub(super) fn tell(narrator: Narrator) -> Result<Measured, Failure> {
    let mut story = Story::new(narrator)?;
    story.tell()?;
    Ok(std::mem::take(&mut story.measured))
}

impl Measured {
    /// Whether it was shown that the fence works.
    ///
    /// # Errors
    /// If a stale write got in, or none was tried.
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

    /// The leader is killed. Its guardian ends the job and notifies the others.
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

    /// The leader is paused whole, and its job wakes first.
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

    /// A process that is frozen inside a transaction keeps all others from writing; so it goes on a little, until it
    /// is outside.
    fn freeze_outside_transactions(
        &mut self,
        name: &str,
        role: ProcessRole,
        databases: Vec<PathBuf>,
    ) -> Result<(), Failure> {
        let process = self.group.pid(name, role)?;
        loop {
            // The signal takes its time where the process runs on another processor: it may still begin a transaction.
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

    /// Waits for the write of a leader that has been replaced, which must be refused.
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

    /// The leader is asked to end.
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

    /// The library inside an application: no guardian, no check, and a frozen leader all the same.
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

    /// Waits until these nodes know the leader, and may vote: a node that has just started has forgotten its
    /// promises, and keeps silent for as long as they could have lasted.
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
            // A machine that is busy with other things may run a leader too late to lead.
            return self.say(&format!("  {} had taken over before that, of itself", writer.node));
        };
        self.measured.failovers.push(took);
        let (node, token) = (&writer.node, writer.token);
        self.say(&format!(
            "  {node} leads with token {token}, and wrote after {:.1} ms{remark}",
            milliseconds(took)
        ));
    }

    /// Looks for stale lines in the ledger itself, whatever the jobs reported.
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
