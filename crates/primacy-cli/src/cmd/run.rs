//! `primacy run`: one of many copies runs the command.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration as StdDuration;

use clap::Parser;
use primacy::config::{check_election, default_state_dir};
use primacy::disk::DiskError;
use primacy::stores::{OpenError, ReadError};
use primacy::transport::TransportError;
use primacy::{ConfigError, ConnectError, Elector, NodeId, Peers, Safety};
use rustix::fs::{Access, access};

use crate::control;
use crate::duration;
use crate::exit::{self, Exit, Failure};
use crate::guardian::job::Program;
use crate::guardian::message::Duty;
use crate::leftovers::{self, NodeMark};
use crate::pauses;
use crate::report::{Event, Reporter};
use crate::supervisor::{Settings, Supervisor, Wait};

/// Run a command on the one node that is elected.
///
/// Start the same line on as many machines or terminals as you like. One of
/// them is elected and runs COMMAND; when that one dies, hangs or is cut off,
/// another takes over. The command is told its fencing token, a number that
/// is higher than that of every earlier leader; resources that check it
/// refuse what a late leader still writes.
///
/// The command is started in a process group of its own. Its environment has
/// PRIMACY_ELECTION, PRIMACY_ID, PRIMACY_TERM and PRIMACY_TOKEN. When the
/// lead is lost or given up it gets SIGTERM, and after the drain time
/// SIGKILL, with everything that it has started; all of it is gone before
/// another node may lead.
///
/// Where the election is held:
///   (nothing)     in a file of your state directory: the terminals of one
///                 machine compete
///   --on URL      in a store, for example sqlite:/var/lib/app/election.db
///   --peers LIST  among the nodes themselves, with no service beside them;
///                 more than half of them must be there
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::HELP, after_long_help = LONG_HELP.to_owned() + exit::HELP)]
pub(crate) struct Run {
    /// The name of the election; those who name the same one compete
    #[arg(long, value_name = "NAME")]
    election: String,

    /// Hold the election in this store; env:NAME reads the URL from the environment, which is where one with a
    /// password must be
    #[arg(long, value_name = "URL", conflicts_with_all = ["peers", "state_dir"])]
    on: Option<String>,

    /// Hold the election among these nodes: a=host:port,b=host:port,c=host:port
    #[arg(long, value_name = "LIST", requires = "node")]
    peers: Option<String>,

    /// This node's name [default without --peers: host name and process id]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,

    /// Among peers, what is promised: `lease`, never two leaders at a time; or `fenced`, faster where every resource
    /// checks the token, which is then all that keeps two leaders apart
    #[arg(long, value_name = "KIND", value_parser = ["lease", "fenced"], default_value = "lease")]
    safety: String,

    /// Where this node keeps what it must not forget [default: $XDG_STATE_HOME/primacy or ~/.local/state/primacy]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// How long a leader may lead without renewing; among peers, the promise. The longest outage when a machine dies
    /// [default: 10s over a store, 1s among peers]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    lease: Option<StdDuration>,

    /// How long the command may take to end after SIGTERM [default: a quarter of the lease]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    drain: Option<StdDuration>,

    /// How long before the end of the lease everything is killed [default: a tenth of the lease, at most 200ms]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    kill_margin: Option<StdDuration>,

    /// Give up with exit code 75 when not elected within this time of the start
    #[arg(long, value_name = "TIME", value_parser = duration::parse, conflicts_with = "no_wait")]
    wait: Option<StdDuration>,

    /// Give up with exit code 75 when another node leads
    #[arg(long)]
    no_wait: bool,

    /// When the command ends by itself, stand again instead of ending with its exit code
    #[arg(long)]
    restart: bool,

    /// A shell command to run before COMMAND on each election; COMMAND is started when it has succeeded
    #[arg(long, value_name = "CMD")]
    on_elected: Option<String>,

    /// A shell command to run after COMMAND is gone, also when this node's process was killed. PRIMACY_LEAD tells it
    /// whether the lead is still `held` or already `lost`
    #[arg(long, value_name = "CMD")]
    on_deposed: Option<String>,

    /// Tell what happens in JSON, one object a line, on standard error
    #[arg(long)]
    json: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const LONG_HELP: &str = "\
Examples:
  primacy run --election nightly --no-wait -- ./backup.sh
      In any number of crontabs of one machine: whoever is first runs it, the
      others end at once.

  primacy run --election billing --restart --node a \\
      --peers a=127.0.0.1:7401,b=127.0.0.1:7402,c=127.0.0.1:7403 -- ./worker
      Three times, each with its own --node. One worker runs as long as two
      nodes are there.

Signals: SIGTERM, SIGINT and SIGHUP end the command in order, give up the
lead, and end. A second one kills the command at once.

PRIMACY_LOG=debug shows what the election does.

What can outlast its lead: a process that the kernel cannot kill; and, where
this process and its guardian are killed or paused together, one that left
the command's process group. The next start of the same node ends it.

";

/// How the election is entered.
enum Place {
    /// And where the operator's verbs find this node.
    Store(String, Option<PathBuf>),
    Peers(Peers, PathBuf),
}

/// Runs the verb.
pub(crate) fn run(args: &Run) -> Result<Exit, Failure> {
    // Whatever unwinds would release the lead while the command is running. The guardian ends it first, when this
    // process is gone.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
    // All that can be known to be wrong is said before anything is begun.
    let job = find_program(&args.command)?;
    let place = args.place()?;
    let node = args.node()?;
    let reporter = Reporter::new(args.json, node.as_str())?;
    log_to(&reporter);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(supervise(args, job, &place, node, &reporter));
    if let Ok(exit) = &result {
        reporter.tell(&Event::Ended { exit_code: exit.code() });
    }
    reporter.finish();
    // Whatever is still blocked, in a store that does not answer for example, is not waited for.
    runtime.shutdown_background();
    result
}

async fn supervise(
    args: &Run,
    job: Program,
    place: &Place,
    node: NodeId,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    let mark = place.mark(&args.election, node);
    let drain = args.drain.unwrap_or(LEFTOVERS_DRAIN);
    let ended = leftovers::end(&mark, drain + LEFTOVERS_MARGIN).map_err(|running| {
        let message = format!(
            "the node {node} is already running here, as process {}: stop that one, or give this one another --node",
            running.supervisor
        );
        Failure::new(Exit::InUse, message)
    })?;
    if ended > 0 {
        reporter.tell(&Event::LeftoversEnded { processes: ended });
    }
    let control = place.bind_control(&args.election, node, reporter)?;
    let elector = args.enter(place, node).await.map_err(|error| failure(&error))?;
    if let Some(control) = &control {
        control.serve(elector.clone())?;
    }
    let timers = elector.timers();
    tokio::spawn(pauses::watch((timers.kill_margin / 2).into(), timers.lease.into(), reporter.clone()));
    let settings = Settings {
        duty: args.duty(&elector, &mark),
        job,
        wait: match (args.wait, args.no_wait) {
            (_, true) => Wait::AtOnce,
            (Some(time), false) => Wait::For(time),
            (None, false) => Wait::Forever,
        },
        restart: args.restart,
    };
    Supervisor::new(elector, settings, reporter.clone())?.run().await
}

/// How long a guardian that an earlier run left may go on draining its job.
const LEFTOVERS_DRAIN: StdDuration = StdDuration::from_millis(2_500);
const LEFTOVERS_MARGIN: StdDuration = StdDuration::from_secs(1);

impl Run {
    fn place(&self) -> Result<Place, Failure> {
        let state_dir = || match &self.state_dir {
            Some(dir) => Ok(dir.clone()),
            None => default_state_dir().map_err(|error| Failure::new(Exit::Config, error.to_string())),
        };
        match (&self.on, &self.peers) {
            (Some(url), _) => {
                Ok(Place::Store(between_processes(resolve_url(url)?)?, default_state_dir().ok()))
            }
            (None, Some(peers)) => {
                let peers: Peers =
                    peers.parse().map_err(|error| Failure::new(Exit::Usage, format!("{error}")))?;
                Ok(Place::Peers(peers, state_dir()?))
            }
            (None, None) => {
                check_election(&self.election).map_err(|error| failure(&error.into()))?;
                let dir = state_dir()?;
                Ok(Place::Store(local_store(&dir, &self.election)?, Some(dir)))
            }
        }
    }

    fn node(&self) -> Result<NodeId, Failure> {
        match &self.node {
            Some(name) => name.parse().map_err(|error| Failure::new(Exit::Usage, format!("--node: {error}"))),
            None => {
                primacy::config::default_node().map_err(|error| Failure::new(Exit::Config, error.to_string()))
            }
        }
    }

    async fn enter(&self, place: &Place, node: NodeId) -> Result<Elector, ConnectError> {
        let safety = if self.safety == "fenced" { Safety::Fenced } else { Safety::Lease };
        let mut builder = Elector::builder().election(&self.election).node(node).safety(safety);
        if let Some(lease) = self.lease {
            builder = builder.lease(lease);
        }
        if let Some(drain) = self.drain {
            builder = builder.drain(drain);
        }
        if let Some(kill_margin) = self.kill_margin {
            builder = builder.kill_margin(kill_margin);
        }
        match place {
            // The name of a node that was given none ends with its process, and so does what is said of it.
            Place::Store(url, Some(dir)) if self.node.is_some() => builder.state_dir(dir).connect(url).await,
            Place::Store(url, _) => builder.connect(url).await,
            Place::Peers(peers, dir) => builder.state_dir(dir).peers(peers.clone()).await,
        }
    }

    fn duty(&self, elector: &Elector, mark: &NodeMark) -> Duty {
        let nanos = |duration: StdDuration| primacy::core::Duration::from(duration).as_nanos();
        let timers = elector.timers();
        Duty {
            supervisor: rustix::process::getpid().as_raw_nonzero().get(),
            election: self.election.clone(),
            node: elector.identity().node.to_string(),
            mark: mark.of_this_process(),
            drain: nanos(timers.drain),
            kill_margin: nanos(timers.kill_margin),
            lease: nanos(timers.lease),
            on_elected: self.on_elected.clone(),
            on_deposed: self.on_deposed.clone(),
            witness: elector.witness_spec(),
        }
    }
}

impl Place {
    /// Where the operator's verbs find this node: in its state directory, or in the default one.
    fn bind_control(
        &self,
        election: &str,
        node: NodeId,
        reporter: &Reporter,
    ) -> Result<Option<control::Server>, Failure> {
        let optional = match self {
            Self::Peers(_, dir) => return control::Server::bind(dir, election, node).map(Some),
            // Elections over a store work without a state directory, and have to go on doing so.
            Self::Store(_, None) => {
                Err(Failure::new(Exit::Config, ConfigError::NoStateDirectory.to_string()))
            }
            Self::Store(_, Some(dir)) => control::Server::bind(dir, election, node),
        };
        match optional {
            Ok(server) => Ok(Some(server)),
            Err(failure) if failure.exit == Exit::NotPermitted => Err(failure),
            Err(failure) => {
                let message = format!("the operator's verbs cannot ask this node: {}", failure.message);
                reporter.tell(&Event::Warning { message });
                Ok(None)
            }
        }
    }

    fn mark(&self, election: &str, node: NodeId) -> NodeMark {
        let place = match self {
            Self::Store(url, _) => url.as_bytes(),
            Self::Peers(_, dir) => {
                let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
                return NodeMark::new(election, node.as_str(), dir.as_os_str().as_bytes());
            }
        };
        NodeMark::new(election, node.as_str(), place)
    }
}

/// The URL itself, wherever it comes from.
pub(super) fn resolve_url(url: &str) -> Result<String, Failure> {
    let usage = |message: String| Failure::new(Exit::Usage, message);
    if let Some(name) = url.strip_prefix("env:") {
        return match env::var(name) {
            Ok(url) => Ok(url),
            Err(error) => Err(usage(format!("--on env:{name}: {error}; set {name} to the URL of the store"))),
        };
    }
    if has_password(url) {
        return Err(usage(
            "the URL of --on has a password, and every user of this machine can read command lines: put the URL \
             into the environment, as ELECTION_URL for example, and write --on env:ELECTION_URL"
                .to_owned(),
        ));
    }
    Ok(url.to_owned())
}

/// Every candidate of `run` is a process of its own, and must see what the others see.
pub(super) fn between_processes(url: String) -> Result<String, Failure> {
    if url.starts_with("memory:") {
        let message = "memory: is within one process, and each `primacy run` is one of its own: all of them would \
                       lead; use sqlite:PATH";
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(url)
}

fn has_password(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let in_user = authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'));
    in_user || path.to_ascii_lowercase().contains("password=")
}

/// The store of those who name none: a file of this user on this machine. Each election has its own, since only the
/// first record of a new file has nothing to wait for.
fn local_store(dir: &Path, election: &str) -> Result<String, Failure> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| {
        let message = format!(
            "the state directory {} cannot be made: {error}; name another with --state-dir",
            dir.display()
        );
        Failure::new(Exit::State, message)
    })?;
    let file = dir.join(format!("{election}.db"));
    match file.to_str() {
        Some(path) => Ok(format!("sqlite:{path}")),
        None => {
            let message =
                format!("the state directory {} is not UTF-8; name another with --state-dir", dir.display());
            Err(Failure::new(Exit::State, message))
        }
    }
}

/// Finds the program now, so that a command that cannot run is not found out by the one who is elected.
fn find_program(command: &[OsString]) -> Result<Program, Failure> {
    let Some(name) = command.first() else {
        return Err(Failure::new(Exit::Usage, "no command is given"));
    };
    let shown = name.to_string_lossy();
    let mut found = None;
    for file in candidates(name) {
        match check_executable(&file) {
            Ok(()) => return Ok(Program { file: file.into(), args: command.to_vec() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => found = found.or(Some((file, error))),
        }
    }
    Err(match found {
        Some((file, error)) => {
            let message = format!(
                "{} cannot be executed: {error}; is it a program, and may you run it?",
                file.display()
            );
            Failure::new(Exit::NotExecutable, message)
        }
        None if name.as_bytes().contains(&b'/') => {
            Failure::new(Exit::NotFound, format!("there is no {shown}; check the path"))
        }
        None => Failure::new(Exit::NotFound, format!("the command {shown} is not found in PATH")),
    })
}

fn candidates(name: &OsStr) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return vec![PathBuf::from(name)];
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    env::split_paths(&path).map(|dir| dir.join(name)).collect()
}

fn check_executable(file: &Path) -> io::Result<()> {
    if fs::metadata(file)?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    Ok(access(file, Access::EXEC_OK)?)
}

/// Which exit code an error has that kept this node from taking part.
pub(super) fn failure(error: &ConnectError) -> Failure {
    let exit = match error {
        ConnectError::Config(ConfigError::Election { .. } | ConfigError::Node { .. }) => Exit::Usage,
        ConnectError::Config(_) => Exit::Config,
        ConnectError::Open(OpenError::Unavailable { .. })
        | ConnectError::Read(ReadError::Unavailable { .. }) => Exit::Unavailable,
        ConnectError::Open(OpenError::Refused { .. }) | ConnectError::Read(ReadError::Malformed { .. }) => {
            Exit::State
        }
        ConnectError::Open(
            OpenError::Malformed { .. }
            | OpenError::UnknownScheme { .. }
            | OpenError::NotBuiltIn { .. }
            | OpenError::NotSupported { .. }
            | OpenError::Election { .. },
        ) => Exit::Usage,
        ConnectError::Disk(DiskError::Locked { .. }) => Exit::InUse,
        ConnectError::Disk(_) => Exit::State,
        ConnectError::Transport(error) => {
            let here = matches!(error, TransportError::InUse { .. } | TransportError::Listen { .. });
            if here { Exit::Unavailable } else { Exit::Config }
        }
        ConnectError::Thread(_) => Exit::System,
    };
    Failure::new(exit, error.to_string())
}

/// Shows what the library logs: warnings and worse, or what PRIMACY_LOG asks for.
pub(super) fn log_to(reporter: &Reporter) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("PRIMACY_LOG");
    let writer = reporter.log_writer();
    tracing_subscriber::fmt()
        .with_env_filter(filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")))
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_a_url_is_seen() {
        for url in ["etcd://u:secret@host", "postgres://u:p@h/db?x=1", "postgres://h/db?password=secret"] {
            assert!(has_password(url), "{url}");
        }
        for url in ["sqlite:/a:b@c.db", "etcd://host:2379", "postgres://user@host:5432/db", "memory:a@b:c"] {
            assert!(!has_password(url), "{url}");
        }
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert_eq!(find_program(&["sh".into()]).unwrap().args, ["sh"]);
        let code = |name: &str| find_program(&[name.into()]).unwrap_err().exit;
        assert_eq!(code("no-such-command-at-all"), Exit::NotFound);
        assert_eq!(code("/no/such/file"), Exit::NotFound);
        assert_eq!(code("/etc/passwd"), Exit::NotExecutable);
        assert_eq!(code("/etc"), Exit::NotExecutable);
    }
}
