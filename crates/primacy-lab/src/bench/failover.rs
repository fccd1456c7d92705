//! `primacy-lab bench failover`: the time without a leader after the leader is struck.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use primacy::Safety;
use rustix::process::Signal;
use serde::Serialize;

use super::cluster::{Cluster, Evidence, Network, ProcessRole, boot_ns, names};
use super::etcd::{self, Rival};
use super::floor::{Floor, FloorMs, Steps};
use super::namespaces::Namespaces;
use super::over_store;
use super::process_group::{ProcessGroup, without_settings};
use super::spread::{Spread, milliseconds};
use super::state_dir::StateDir;
use super::subject::{Settings, Subject, safety_name};
use super::{failed, parse_duration};
use crate::exit::{self, Exit, Failure};

/// Measure the time without a leader after the leader is struck.
///
/// Starts real nodes, strikes the leader, and measures from that moment to the one at which another node holds its
/// token; with --subject run also to the first line of the new job. Then the struck node is started again, all
/// settle, and the next trial begins. Beside it is the floor: the time that this machine needs for the steps that
/// cannot be left out, measured between the trials.
///
/// Beside the figures for a crashed process are those for a dead host, from which no close of a connection comes.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::BENCH_HELP)]
pub(crate) struct Failover {
    /// The fault that strikes the leader
    #[arg(long, value_enum)]
    pub(super) class: Class,

    /// Number of trials
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(super) trials: usize,

    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(super) nodes: usize,

    /// The command to measure
    #[arg(long, value_enum, default_value_t = Subject::Run)]
    subject: Subject,

    /// The safety that the nodes promise: `lease` or `fenced`
    #[arg(long, value_name = "KIND", value_parser = ["lease", "fenced"], default_value = "lease")]
    safety: String,

    /// The nodes' --lease
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    lease: Option<Duration>,

    /// The nodes' --heartbeat
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    heartbeat: Option<Duration>,

    /// With --class crash: the guardian is killed too, so that no process reports the death
    #[arg(long)]
    pub(super) without_guardian: bool,

    /// With --class crash: number of trials with a dead host that are made beside it; 0 for none
    #[arg(long, value_name = "N", default_value_t = 5)]
    host_trials: usize,

    /// With --class crash: do the same to the leader of three etcd members, with its default timers and with a
    /// heartbeat of 10 ms and an election timeout of 100 ms, in turns with Primacy's
    #[arg(long, value_enum)]
    beside: Option<Beside>,

    /// Where the nodes keep their state, which must be on a disk [default: $XDG_STATE_HOME/primacy or ~/.local/state/primacy]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Over the store at this URL, and not among peers; env:NAME reads it from the environment. Beside the figures are the
    /// store's own round trip, and the share of it that a failover may take
    #[arg(long, value_name = "URL", conflicts_with_all = ["safety", "heartbeat", "beside"])]
    store: Option<String>,

    /// With --store: run by `sh -c` at each strike, just before whatever --class does, and waited for; for example to kill the
    /// store's own leader
    #[arg(long, value_name = "COMMAND", requires = "store")]
    pub(super) fault_command: Option<String>,

    /// With --fault-command: run by `sh -c` after each trial, and waited for: mends what the other has done. Processes that it starts
    /// end with the bench, so let a service manager start them
    #[arg(long, value_name = "COMMAND", requires = "fault_command")]
    mend_command: Option<String>,

    /// Print the result as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// The fault that strikes the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Class {
    /// Its process is killed (of `run`, the supervisor); its guardian lives
    Crash,
    /// Its network is cut, and then all its processes are killed: no peer hears of it. Needs CAP_NET_ADMIN
    Host,
    /// All its processes are stopped, and go on when another leads
    Pause,
    /// It is asked to end, by SIGTERM, and so gives up the lead in order
    Resign,
    /// It is asked by `primacy transfer` to hand the lead to the node that would be last to campaign
    Transfer,
    /// Its job ends
    JobExit,
    /// No fault of the leader, but of the store, by --fault-command: measured are the time until the store answers again, and
    /// whether the lead has changed
    Store,
}

/// A system that is measured beside Primacy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Beside {
    /// Three members of etcd, from the same machine's package
    Etcd,
}

/// The margin beyond promises and waits within which a node campaigns at the latest, if no node had notice of the
/// death.
const SILENCE_MARGIN: Duration = Duration::from_millis(50);

/// The time after the fault in which no output is read; each line carries its own time.
const UNREAD: Duration = Duration::from_millis(20);

/// The result, as it is printed with `--json`.
#[derive(Debug, Serialize)]
struct Outcome {
    class: &'static str,
    subject: &'static str,
    safety: &'static str,
    nodes: usize,
    /// The reasons for which the new leaders campaigned, as they report them, with the count of each.
    evidence: Tally,
    /// The event from which the time is measured.
    from: &'static str,
    file_system: String,
    trials: usize,
    /// The number of discarded trials, in which the leader changed before the fault.
    discarded: usize,
    /// The time until the new leader holds its token.
    ms: Spread,
    /// The time until the first line of the new job.
    job_ms: Option<Spread>,
    floor_ms: FloorMs,
    /// The ratio of the median to the floor's sum; `null` if the promise must expire, which no machine can speed up.
    ratio: Option<f64>,
    /// The bound if no node gets notice of the death: promise, random wait, and a margin.
    bound_ms: Option<f64>,
    /// The number of trials that exceeded the bound.
    over_bound: Option<usize>,
    /// The same for a dead host.
    dead_host: Option<DeadHost>,
    beside: Vec<Comparison>,
}

#[derive(Debug, Serialize)]
struct DeadHost {
    evidence: Tally,
    trials: usize,
    discarded: usize,
    ms: Spread,
    bound_ms: f64,
    over_bound: usize,
}

#[derive(Debug, Serialize)]
struct Comparison {
    system: String,
    trials: usize,
    discarded: usize,
    ms: Spread,
    /// The ratio of its median to Primacy's.
    ratio: f64,
}

/// The number of new leaders that named each reason.
type Tally = BTreeMap<Evidence, usize>;

/// The measurements of all trials of one class.
#[derive(Debug, Default)]
pub(super) struct Measured {
    evidence: Tally,
    pub(super) elected: Vec<Duration>,
    pub(super) job: Vec<Duration>,
    pub(super) discarded: usize,
}

/// Runs the verb.
pub(crate) fn failover(args: &Failover) -> Result<Exit, Failure> {
    args.check()?;
    let place = StateDir::new(args.state_dir.as_deref())?;
    if let Some(url) = &args.store {
        return over_store::measure(args, &place, url);
    }
    let outcome = measure(args, &place)?;
    print(&outcome, args.json);
    Ok(Exit::Success)
}

fn measure(args: &Failover, place: &StateDir) -> Result<Outcome, Failure> {
    // Created first, because they are removed only after the processes in them have ended.
    let namespaces =
        if args.class == Class::Host { Some(Namespaces::bridged(&names(args.nodes))?) } else { None };
    let group = ProcessGroup::new()?;
    let network = namespaces.as_ref().map_or(Network::Loopback, Network::Bridged);
    let mut cluster = Cluster::start(&group, network, args.settings(), args.nodes, place.dir())?;
    let mut rivals = args.rivals(&group, place)?;
    let mut floor = Floor::new(place.dir())?;
    let mut measured = Measured::default();
    for trial in 1..=args.trials {
        floor.measure()?;
        let took = measured.trial(args, &mut cluster, namespaces.as_ref())?;
        progress(args.class.name(), trial, args.trials, took);
        for rival in &mut rivals {
            let took = rival.trial()?;
            progress(rival.name(), trial, args.trials, took);
        }
    }
    let bound_ms = args.is_untold().then(|| silence_bound(&cluster));
    let beside = rivals.iter().map(|rival| (rival.name().to_owned(), rival.measured().clone())).collect();
    let floor_ms = floor.medians(args.steps());
    // Every child is ended before the group ends the rest: afterwards its process number may be reused.
    drop(floor);
    // The trials with a dead host need the machine for themselves.
    drop(rivals);
    drop(cluster);
    drop(group);
    drop(namespaces);
    let dead_host = args.dead_host(place)?;
    floor_ms
        .and_then(|floor_ms| args.outcome(place, &measured, floor_ms, bound_ms, dead_host, beside))
        .ok_or_else(|| failed("nothing was measured"))
}

impl Measured {
    /// Repeats trials until one counts, and returns its duration.
    pub(super) fn trial(
        &mut self,
        args: &Failover,
        cluster: &mut Cluster<'_>,
        namespaces: Option<&Namespaces>,
    ) -> Result<Duration, Failure> {
        loop {
            // Settles last, so that the state still holds when the fault begins.
            let (leader, token) = cluster.settle()?;
            let took = self.strike(args, cluster, namespaces, (leader, token))?;
            args.mend_store()?;
            mend(args.class, cluster, namespaces, leader)?;
            if let Some(took) = took {
                return Ok(took);
            }
            self.discard(args)?;
        }
    }

    /// Strikes the leader once, and waits for the next one. Returns `None` if the leader had changed before.
    fn strike(
        &mut self,
        args: &Failover,
        cluster: &mut Cluster<'_>,
        namespaces: Option<&Namespaces>,
        (leader, token): (usize, u64),
    ) -> Result<Option<Duration>, Failure> {
        let faulted_at = args.fault()?;
        let Some(struck_at) = args.class.strike(args, cluster, namespaces, (leader, token))? else {
            return Ok(None);
        };
        let struck_at = faulted_at.unwrap_or(struck_at);
        // On a machine with few cores, reading the nodes' output takes processor time from them.
        std::thread::sleep(UNREAD);
        let elected = cluster.wait_for_elected(token)?;
        let took = since(struck_at, elected.boot_ns).filter(|_| elected.node != leader);
        let Some(took) = took else { return Ok(None) };
        if args.subject.has_job() {
            let job = cluster.wait_for_job(elected.token)?;
            self.job.extend(since(struck_at, job.boot_ns));
        }
        if args.store.is_none() {
            let evidence =
                elected.evidence.ok_or_else(|| failed("a new leader did not say what made it stand"))?;
            *self.evidence.entry(evidence).or_default() += 1;
        }
        self.elected.push(took);
        Ok(Some(took))
    }

    fn discard(&mut self, args: &Failover) -> Result<(), Failure> {
        self.discarded += 1;
        let class = args.class.name();
        eprintln!("{class}: discarded, for another one led before the leader was struck");
        if self.discarded > args.trials {
            return Err(failed(format!(
                "{class}: more trials were discarded than asked for; the leader changes by itself, so nothing can be \
                 measured: are the timers too short for this machine?"
            )));
        }
        Ok(())
    }
}

/// Returns the time from `at` to `then`; `None` if `then` is not later.
fn since(at: u64, then: u64) -> Option<Duration> {
    then.checked_sub(at).map(Duration::from_nanos)
}

/// Undoes the fault of a node.
fn mend(
    class: Class,
    cluster: &mut Cluster<'_>,
    namespaces: Option<&Namespaces>,
    leader: usize,
) -> Result<(), Failure> {
    match class {
        Class::Pause => {
            for part in [ProcessRole::Job, ProcessRole::Guardian, ProcessRole::Node] {
                if cluster.pid(leader, part).is_some() {
                    cluster.signal(leader, part, Signal::CONT)?;
                }
            }
            Ok(())
        }
        Class::Host => {
            if let Some(namespaces) = namespaces {
                namespaces.join(cluster.name(leader))?;
            }
            cluster.restart(leader)
        }
        Class::Crash | Class::JobExit | Class::Resign => cluster.restart(leader),
        Class::Transfer | Class::Store => Ok(()),
    }
}

impl Class {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Host => "host",
            Self::Pause => "pause",
            Self::Resign => "resign",
            Self::Transfer => "transfer",
            Self::JobExit => "job-exit",
            Self::Store => "store",
        }
    }

    /// Strikes the leader. Returns the time from which is measured, that of [`Failover::from`], or `None` if the node
    /// does not lead any more.
    fn strike(
        self,
        args: &Failover,
        cluster: &mut Cluster<'_>,
        namespaces: Option<&Namespaces>,
        (leader, token): (usize, u64),
    ) -> Result<Option<u64>, Failure> {
        let struck_at = boot_ns();
        let parts = [ProcessRole::Guardian, ProcessRole::Node, ProcessRole::Job];
        let there = |cluster: &Cluster<'_>, part: ProcessRole| cluster.pid(leader, part).is_some();
        match self {
            Self::Crash if args.without_guardian => {
                // The guardian is stopped before the node dies, so that it sends no notice.
                cluster.signal(leader, ProcessRole::Guardian, Signal::STOP)?;
                let struck_at = boot_ns();
                cluster.signal(leader, ProcessRole::Node, Signal::KILL)?;
                cluster.signal(leader, ProcessRole::Guardian, Signal::KILL)?;
                return Ok(Some(struck_at));
            }
            Self::Crash => cluster.signal(leader, ProcessRole::Node, Signal::KILL)?,
            Self::Host => {
                if let Some(namespaces) = namespaces {
                    namespaces.cut(cluster.name(leader))?;
                }
                for part in parts.into_iter().filter(|&part| there(cluster, part)) {
                    cluster.signal(leader, part, Signal::KILL)?;
                }
            }
            Self::Pause => {
                for part in parts.into_iter().filter(|&part| there(cluster, part)) {
                    cluster.signal(leader, part, Signal::STOP)?;
                }
            }
            Self::JobExit => cluster.signal(leader, ProcessRole::Job, Signal::KILL)?,
            Self::Resign => cluster.signal(leader, ProcessRole::Node, Signal::TERM)?,
            Self::Transfer => return hand_over(cluster, (leader, token), struck_at),
            Self::Store => {} // That was done before.
        }
        Ok(Some(struck_at))
    }
}

/// Makes the leader hand over by a command. The command takes milliseconds to start, which are not the election's; so
/// the time is measured from the leader's own event that it was asked.
fn hand_over(
    cluster: &mut Cluster<'_>,
    (leader, token): (usize, u64),
    struck_at: u64,
) -> Result<Option<u64>, Failure> {
    // The node that would campaign last, so that the order of campaigns gives no advantage.
    let last = (0..cluster.count()).rev().find(|&node| node != leader);
    let asked = cluster.transfer(leader, last.ok_or_else(|| failed("there is nobody to hand over to"))?);
    if asked.is_err() {
        cluster.listen(UNREAD)?;
        if cluster.token(leader) != Some(token) {
            return Ok(None);
        }
    }
    asked?;
    let told = cluster.wait_for("the leader's word that it was asked", |node, event| {
        let asked = event["event"] == "asked" && event["what"] == "transfer";
        node == leader && asked && event["boot_ns"].as_u64().is_some_and(|at| at >= struck_at)
    })?;
    Ok(Some(told.boot_ns))
}

impl Failover {
    fn check(&self) -> Result<(), Failure> {
        let usage = |message: &str| Err(Failure::new(Exit::Usage, message));
        if self.trials == 0 {
            return usage("--trials: at least one");
        }
        if self.class == Class::JobExit && !self.subject.has_job() {
            return usage("--class job-exit needs a job: use --subject run");
        }
        if self.class != Class::Crash && (self.without_guardian || self.beside.is_some()) {
            return usage("--without-guardian and --beside go with --class crash");
        }
        if self.class == Class::Store && self.fault_command.is_none() {
            return usage("--class store needs --store and a --fault-command, which strikes the store");
        }
        if self.store.is_some() && matches!(self.class, Class::Host | Class::Transfer) {
            return usage(
                "--store: a host's link, and transfers, are matters among peers; use --class crash --without-guardian",
            );
        }
        if self.beside.is_some() && self.nodes != etcd::MEMBERS {
            return usage(etcd::OTHER_COUNT);
        }
        if self.class != Class::Transfer && self.nodes == 2 && self.store.is_none() {
            return usage(
                "--nodes 2: without the struck node there is no majority of two; take at least three",
            );
        }
        Ok(())
    }

    fn safety(&self) -> Safety {
        if self.safety == "fenced" { Safety::Fenced } else { Safety::Lease }
    }

    pub(super) fn settings(&self) -> Settings {
        Settings {
            subject: self.subject,
            safety: self.safety(),
            lease: self.lease,
            heartbeat: self.heartbeat,
        }
    }

    fn rivals<'a>(&self, group: &'a ProcessGroup, place: &StateDir) -> Result<Vec<Rival<'a>>, Failure> {
        match self.beside {
            Some(Beside::Etcd) => {
                etcd::TIMERS.iter().map(|timers| Rival::start(group, place.dir(), *timers)).collect()
            }
            None => Ok(Vec::new()),
        }
    }

    /// Runs the trials with a dead host that accompany those of a crash.
    fn dead_host(&self, place: &StateDir) -> Result<Option<DeadHost>, Failure> {
        if self.class != Class::Crash || self.host_trials == 0 {
            return Ok(None);
        }
        let args = Self {
            class: Class::Host,
            trials: self.host_trials,
            safety: self.safety.clone(),
            without_guardian: false,
            beside: None,
            state_dir: None,
            store: None,
            fault_command: None,
            mend_command: None,
            ..*self
        };
        let dir = place.dir().join("host");
        let namespaces = match Namespaces::bridged(&names(args.nodes)) {
            Ok(namespaces) => namespaces,
            Err(failure) => {
                eprintln!("a dead host is not measured: {}", failure.message);
                return Ok(None);
            }
        };
        let group = ProcessGroup::new()?;
        let network = Network::Bridged(&namespaces);
        let mut cluster = Cluster::start(&group, network, args.settings(), args.nodes, &dir)?;
        let mut measured = Measured::default();
        for trial in 1..=args.trials {
            let took = measured.trial(&args, &mut cluster, Some(&namespaces))?;
            progress("host", trial, args.trials, took);
        }
        let bound_ms = silence_bound(&cluster);
        let (trials, over_bound) = (args.trials, over(&measured.elected, bound_ms));
        let Measured { evidence, discarded, .. } = measured;
        Ok(Spread::of(&measured.elected).map(|ms| DeadHost {
            evidence,
            trials,
            discarded,
            ms,
            bound_ms,
            over_bound,
        }))
    }

    /// The event from which the time is measured.
    pub(super) fn from(&self) -> &'static str {
        if self.fault_command.is_some() {
            return "just before the command was run that strikes the store";
        }
        match self.class {
            Class::Crash if self.without_guardian => {
                "just before the node was killed, its guardian having been stopped"
            }
            Class::Crash => "just before the node was killed",
            Class::Host => "just before its link was cut",
            Class::Pause => "just before its processes were stopped",
            Class::Resign => "just before SIGTERM was sent to it",
            Class::Transfer => "its own word that it was asked",
            Class::JobExit => "just before the job was killed",
            Class::Store => "just before the store was struck",
        }
    }

    /// True if no notice frees the other nodes of their promises, so that the promises must expire.
    fn is_untold(&self) -> bool {
        match self.class {
            Class::Host | Class::Pause => true,
            Class::Crash => self.without_guardian && self.safety() == Safety::Lease,
            Class::Resign | Class::Transfer | Class::JobExit | Class::Store => false,
        }
    }

    /// Runs the fault command for the store, if there is one. Returns when it began, in nanoseconds of the boot
    /// clock.
    pub(super) fn fault(&self) -> Result<Option<u64>, Failure> {
        let Some(command) = &self.fault_command else { return Ok(None) };
        let began_at = boot_ns();
        run_shell("--fault-command", command)?;
        Ok(Some(began_at))
    }

    /// Runs the mend command for the store.
    pub(super) fn mend_store(&self) -> Result<(), Failure> {
        self.mend_command.as_deref().map_or(Ok(()), |command| run_shell("--mend-command", command))
    }

    /// The minimum steps of a failover of this class.
    fn steps(&self) -> Steps {
        let job = u32::from(self.subject.has_job());
        let kills = match self.class {
            // A closed connection is enough evidence, so no node waits for the end of the job.
            Class::Crash if self.safety() == Safety::Fenced || self.without_guardian => 1,
            Class::Crash => 1 + job,
            Class::Resign | Class::Transfer | Class::JobExit => job,
            // No process gets notice of it.
            Class::Host | Class::Pause => 0,
            // No node is struck.
            Class::Store => 0,
        };
        // In order: the notice, the votes, and the answers to the first heartbeat.
        let asked_first = match self.class {
            Class::Crash => self.without_guardian,
            Class::Host | Class::Pause => true,
            // A node that knows that the leader is gone skips the pre-vote.
            Class::Resign | Class::Transfer | Class::JobExit | Class::Store => false,
        };
        let first_heartbeat = match self.safety() {
            Safety::Lease => 1.0,
            // The votes already confirm the leader.
            Safety::Fenced => 0.0,
        };
        let round_trips = 1.5 + f64::from(u8::from(asked_first)) + first_heartbeat;
        Steps { kills, round_trips, flushes: 1 }
    }

    fn outcome(
        &self,
        place: &StateDir,
        measured: &Measured,
        floor_ms: FloorMs,
        bound_ms: Option<f64>,
        dead_host: Option<DeadHost>,
        beside: Vec<(String, etcd::Measured)>,
    ) -> Option<Outcome> {
        let ms = Spread::of(&measured.elected)?;
        let compare = |(system, measured): (String, etcd::Measured)| {
            let rival = Spread::of(&measured.elected)?;
            let ratio = rounded(rival.median / ms.median);
            let (trials, discarded) = (measured.elected.len(), measured.discarded);
            Some(Comparison { system, trials, discarded, ms: rival, ratio })
        };
        Some(Outcome {
            class: self.class.name(),
            subject: self.subject.name(),
            safety: safety_name(self.safety()),
            nodes: self.nodes,
            evidence: measured.evidence.clone(),
            from: self.from(),
            file_system: place.file_system().to_owned(),
            trials: measured.elected.len(),
            discarded: measured.discarded,
            ms,
            job_ms: Spread::of(&measured.job),
            floor_ms,
            ratio: bound_ms.is_none().then(|| rounded(ms.median / floor_ms.sum)),
            bound_ms,
            over_bound: bound_ms.map(|bound_ms| over(&measured.elected, bound_ms)),
            dead_host,
            beside: beside.into_iter().filter_map(compare).collect(),
        })
    }
}

/// The maximum time by promises and waits if no node gets notice of a death.
fn silence_bound(cluster: &Cluster<'_>) -> f64 {
    let timers = cluster.timers();
    milliseconds(timers.lease + timers.random_wait_max + SILENCE_MARGIN)
}

/// The number of measurements above this bound.
pub(super) fn over(measured: &[Duration], bound_ms: f64) -> usize {
    measured.iter().filter(|&&took| milliseconds(took) > bound_ms).count()
}

/// Runs the user's command to its end, and discards its output.
fn run_shell(option: &str, command: &str) -> Result<(), Failure> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::from(std::io::stderr()));
    without_settings(&mut shell);
    let status = shell.status()?;
    if status.success() { Ok(()) } else { Err(failed(format!("{option} has failed: {status}"))) }
}

fn rounded(ratio: f64) -> f64 {
    (ratio * 100.0).round() / 100.0
}

pub(super) fn progress(what: &str, trial: usize, trials: usize, took: Duration) {
    eprintln!("{what} {trial}/{trials}: {} ms", milliseconds(took));
}

fn print(outcome: &Outcome, json: bool) {
    if json {
        println!("{}", serde_json::to_string(outcome).unwrap_or_default());
        return;
    }
    let Outcome { class, subject, safety, nodes, evidence, from, file_system, trials, ms, floor_ms, .. } =
        outcome;
    println!(
        "{class} of {subject}, {trials} trials, {nodes} nodes, --safety {safety}, state on {file_system}"
    );
    let evidence = tally(evidence);
    println!("  evidence   {evidence}; counted from {from}");
    println!("  elected    {ms}{}", not_counted(outcome.discarded));
    if let Some(job) = outcome.job_ms {
        println!("  first line {job}");
    }
    let FloorMs { round_trip, kill_to_pidfd, fsync, sum, round_trips, kills, fsyncs } = floor_ms;
    let ratio = outcome.ratio.map_or(String::new(), |ratio| format!("; median / floor = {ratio}"));
    println!(
        "  floor      {sum:.2} ms = {round_trips} round trips of {round_trip:.3} + {kills} kills to pidfd of \
         {kill_to_pidfd:.3} + {fsyncs} fsync of {fsync:.3}{ratio}"
    );
    if let (Some(bound), Some(over)) = (outcome.bound_ms, outcome.over_bound) {
        println!(
            "  bound      {bound:.0} ms = promise + random wait + {} ms; {over} of {trials} trials have taken longer",
            SILENCE_MARGIN.as_millis()
        );
    }
    match &outcome.dead_host {
        Some(DeadHost { evidence, trials, discarded, ms, bound_ms, over_bound }) => {
            let discarded = not_counted(*discarded);
            println!(
                "  dead host  {ms}; {trials} trials{discarded}, {over_bound} of them longer than the bound of \
                 {bound_ms:.0} ms; evidence {}",
                tally(evidence)
            );
        }
        None if *class == "crash" => println!("  dead host  not measured; see --class host"),
        None => {}
    }
    for Comparison { system, trials, discarded, ms, ratio } in &outcome.beside {
        let discarded = not_counted(*discarded);
        println!("  {system}: {ms}; {trials} trials{discarded}; its median is {ratio} times as long");
    }
}

fn tally(counts: &Tally) -> String {
    let parts: Vec<String> = counts.iter().map(|(evidence, count)| format!("{evidence} ({count})")).collect();
    parts.join(", ")
}

pub(super) fn not_counted(discarded: usize) -> String {
    if discarded == 0 { String::new() } else { format!(" (and {discarded} discarded)") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_counts_the_steps_of_the_class() {
        let steps = |args: &[&str]| {
            let all = [&["failover", "--class"], args].concat();
            let steps = Failover::try_parse_from(all).unwrap().steps();
            (steps.kills, steps.round_trips, steps.flushes)
        };
        assert_eq!(steps(&["crash"]), (2, 2.5, 1));
        assert_eq!(steps(&["crash", "--subject", "node"]), (1, 2.5, 1));
        assert_eq!(steps(&["crash", "--without-guardian"]), (1, 3.5, 1));
        assert_eq!(steps(&["crash", "--safety", "fenced"]), (1, 1.5, 1));
        assert_eq!(steps(&["crash", "--safety", "fenced", "--without-guardian"]), (1, 2.5, 1));
        assert_eq!(steps(&["resign", "--subject", "node"]), (0, 2.5, 1));
        assert_eq!(steps(&["resign", "--safety", "fenced"]), (1, 1.5, 1));
        assert_eq!(steps(&["job-exit"]), (1, 2.5, 1));
        assert_eq!(steps(&["host"]), (0, 3.5, 1));
    }

    #[test]
    fn where_the_promise_must_run_out_a_bound_stands_in_place_of_a_ratio() {
        let untold = |args: &[&str]| {
            let all = [&["failover", "--class"], args].concat();
            Failover::try_parse_from(all).unwrap().is_untold()
        };
        assert!(untold(&["host"]) && untold(&["pause"]) && untold(&["crash", "--without-guardian"]));
        assert!(!untold(&["crash", "--without-guardian", "--safety", "fenced"]));
        assert!(!untold(&["crash"]) && !untold(&["resign"]));
    }

    #[test]
    fn trials_over_the_bound_are_counted() {
        let measured = [1_349, 1_350, 1_351].map(Duration::from_millis);
        assert_eq!((over(&measured, 1_350.0), over(&measured, 1_400.0)), (1, 0));
    }

    #[test]
    fn what_came_before_the_strike_is_no_failover() {
        assert_eq!(since(5, 7), Some(Duration::from_nanos(2)));
        assert_eq!(since(5, 4), None);
    }

    #[test]
    fn combinations_without_a_meaning_are_refused() {
        let refused = |args: &[&str]| {
            let all = [&["failover", "--class"], args].concat();
            Failover::try_parse_from(all).unwrap().check().is_err()
        };
        assert!(refused(&["job-exit", "--subject", "node"]));
        assert!(refused(&["pause", "--without-guardian"]));
        assert!(refused(&["host", "--beside", "etcd"]));
        assert!(refused(&["crash", "--trials", "0"]));
        assert!(!refused(&["crash", "--without-guardian", "--beside", "etcd"]));
        assert!(refused(&["crash", "--nodes", "5", "--beside", "etcd"]));
        for class in ["crash", "host", "pause", "resign", "job-exit"] {
            assert!(refused(&[class, "--nodes", "2"]) && !refused(&[class, "--nodes", "3"]), "{class}");
        }
        assert!(!refused(&["transfer", "--nodes", "2"]));
        assert!(refused(&["store"]) && refused(&["store", "--store", "sqlite:a"]));
        assert!(!refused(&[
            "store",
            "--store",
            "sqlite:a",
            "--fault-command",
            "true",
            "--mend-command",
            "true"
        ]));
        let fault_among_peers = ["failover", "--class", "crash", "--fault-command", "true"];
        assert!(Failover::try_parse_from(fault_among_peers).is_err(), "it strikes a store");
    }
}
