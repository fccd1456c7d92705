//! The location where an election is held, and entering it there.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use primacy::config::{check_election, default_state_dir};
use primacy::disk::DiskError;
use primacy::log_file::LogError;

use primacy::stores::login::has_login;
use primacy::stores::ownership::check_state_dir;
use primacy::stores::{OpenError, ReadError, SessionError, check_scheme};
use primacy::transport::TransportError;
use primacy::{Builder, ConfigError, ConnectError, Elector, NodeId, Peers};

use super::Entry;
use super::layers::{Source, Sources};
use super::mark_secret;
use super::opening::{Opening, StoreWait, enter_when_open};
use crate::control;
use crate::exit::{Exit, Failure};
use crate::leftovers::NodeMark;
use crate::report::{Event, Reporter};
use crate::stop_record;

/// The location of the election: a store, a file, or peers.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum ElectionLocation {
    /// In a store. The state directory, if there is one, holds the operator's orders and the control socket;
    /// `asked_for` is true if the operator named it, and false for the default.
    Store { url: String, dir: Option<PathBuf>, asked_for: bool },
    /// In a file of this user on this machine.
    Local(PathBuf),
    /// Among peers.
    Peers(Peers, PathBuf),
}

/// Hides the URL, which may have a password.
impl std::fmt::Debug for ElectionLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store { .. } => f.write_str("Store"),
            Self::Local(dir) => write!(f, "Local({})", dir.display()),
            Self::Peers(peers, dir) => write!(f, "Peers({peers}, {})", dir.display()),
        }
    }
}

/// Returns whether the directory cannot belong to this node, so that the node cannot have kept anything in it.
fn is_not_ours(error: &DiskError) -> bool {
    let no_directory = |source: &io::Error| source.kind() == io::ErrorKind::NotADirectory;
    matches!(error, DiskError::Forbidden { .. })
        || matches!(error, DiskError::Io { source, .. } if no_directory(source))
}

impl ElectionLocation {
    /// Finds the location. Creates nothing yet.
    pub(super) fn find(entry: &Entry, election: &str, sources: &Sources) -> Result<Self, Failure> {
        let state_dir = || match &entry.state_dir {
            Some(dir) => Ok(dir.clone()),
            None => default_state_dir().map_err(|error| Failure::new(Exit::Config, error.to_string())),
        };
        match (&entry.store, &entry.peers) {
            (Some(url), _) => {
                let url = between_processes(resolve_url("store", url, sources)?)?;
                let url = shared_with(url, entry.group.as_deref(), sources)?;
                Ok(Self::Store { url, dir: state_dir().ok(), asked_for: entry.state_dir.is_some() })
            }
            (None, _) if entry.group.is_some() => {
                Err(Failure::new(Exit::Usage, format!("{} needs --store", sources.describe("group"))))
            }
            (None, Some(peers)) => Ok(Self::Peers(peers.clone(), state_dir()?)),
            (None, None) => {
                check_election(election).map_err(|error| failure(&error.into()))?;
                Ok(Self::Local(state_dir()?))
            }
        }
    }

    /// Enters the election, and waits for a store that cannot be opened yet. A node without a configured name has a
    /// name for this process only, so nothing is kept about it.
    pub(crate) async fn enter(
        &self,
        builder: Builder,
        election: &str,
        named: bool,
        waiting: &StoreWait<'_>,
    ) -> Result<Opening, Failure> {
        let local = match self {
            Self::Local(dir) => local_store(dir, election)?,
            Self::Store { .. } | Self::Peers(..) => String::new(),
        };
        let enter = || self.try_to_enter(builder.clone(), &local, named, waiting.reporter);
        enter_when_open(self, waiting, enter).await
    }

    /// Tries once; `local` is the store to use if none was configured.
    async fn try_to_enter(
        &self,
        builder: Builder,
        local: &str,
        named: bool,
        reporter: &Reporter,
    ) -> Result<Elector, ConnectError> {
        match self {
            Self::Store { url, dir: Some(dir), asked_for } if named => {
                match builder.clone().state_dir(dir).connect(url).await {
                    // The election works without a state directory. But if a default directory exists and cannot be
                    // read, it may hold a cordon of this node, and so this is an error.
                    Err(ConnectError::Disk(error)) if !asked_for && is_not_ours(&error) => {
                        let message = format!(
                            "what the operator says of this node is not kept, and is not known from before: {error}"
                        );
                        reporter.tell(&Event::Warning { message });
                        builder.connect(url).await
                    }
                    entered => entered,
                }
            }
            Self::Store { url, .. } => builder.connect(url).await,
            Self::Local(dir) => {
                let builder = if named { builder.state_dir(dir) } else { builder };
                builder.connect(local).await
            }
            Self::Peers(peers, dir) => builder.state_dir(dir).peers(peers.clone()).await,
        }
    }

    /// Opens the control socket, by which the operator's verbs reach this node: in its state directory, or in the
    /// default one.
    pub(crate) fn bind_control(
        &self,
        election: &str,
        node: NodeId,
        reporter: &Reporter,
    ) -> Result<Option<control::Server>, Failure> {
        let optional = match self {
            // Peers have their state files open there, and end by themselves when these are gone.
            Self::Peers(_, dir) => return control::Server::bind(dir, election, node).map(Some),
            Self::Local(dir) => {
                let server = control::Server::bind(dir, election, node)?;
                return Ok(Some(server.ending_with_its_directory()));
            }
            // Elections over a store work without a state directory, so a missing one is only a warning.
            Self::Store { dir: None, .. } => {
                Err(Failure::new(Exit::Config, ConfigError::NoStateDirectory.to_string()))
            }
            Self::Store { dir: Some(dir), .. } => control::Server::bind(dir, election, node),
        };
        match optional {
            Ok(server) => Ok(Some(server.ending_with_its_directory())),
            Err(failure) if failure.exit == Exit::NotPermitted => Err(failure),
            Err(failure) => {
                let message = format!("the operator's verbs cannot ask this node: {}", failure.message);
                reporter.tell(&Event::Warning { message });
                Ok(None)
            }
        }
    }

    /// Returns the file for the record of a stop command that is still to be run. A node without a configured name has
    /// none, since no later process is the same node; nor has a node whose default state directory cannot be used.
    pub(crate) fn stop_record(&self, mark: &NodeMark, named: bool) -> Option<PathBuf> {
        let dir = match self {
            Self::Peers(_, dir) => dir,
            Self::Store { dir: Some(dir), asked_for: false, .. }
                if !dir.is_dir() || check_state_dir(dir).is_err() =>
            {
                return None;
            }
            Self::Local(dir) | Self::Store { dir: Some(dir), .. } if named => dir,
            Self::Local(_) | Self::Store { .. } => return None,
        };
        Some(dir.join(mark.file_name(stop_record::SUFFIX)))
    }

    /// Returns the mark by which the processes that this node has started are recognised. It is made from a random
    /// secret in the state directory, so it stays the same however the directory is named, wherever it is moved, and
    /// however the URL of a store is written. Without a usable directory, the mark is of this process only, and no
    /// later process knows it.
    ///
    /// # Errors
    /// [`Exit::State`] for a node with a configured name, if its state directory may be used, and the secret in it
    /// cannot be read, or cannot be written although the record of a stop command needs it.
    pub(crate) fn mark(&self, election: &str, node: NodeId, records: Records) -> Result<NodeMark, Failure> {
        let dir = match self {
            Self::Store { dir, .. } => dir.as_deref(),
            Self::Local(dir) | Self::Peers(_, dir) => Some(dir.as_path()),
        };
        let drawn = dir.map(|dir| (dir, mark_secret::of_directory(dir)));
        let mark = |drawn: &_| NodeMark::new(election, node.as_str(), drawn);
        let (dir, error) = match drawn {
            Some((_, Ok(drawn))) => return Ok(mark(&drawn)),
            Some((dir, Err(error))) => (dir, error),
            None => return Ok(mark(&mark_secret::draw())),
        };
        let own = mark(&mark_secret::draw());
        let file = dir.join(mark_secret::FILE);
        let is_needed = records.stops || file.symlink_metadata().is_ok();
        let may_be_used = dir.is_dir() && check_state_dir(dir).is_ok();
        if !is_needed || !may_be_used || self.stop_record(&own, records.named).is_none() {
            return Ok(own);
        }
        let message = format!(
            "{}, by which this node knows what an earlier run of it has left, cannot be used: {error}; make room, or mend the directory; if \
             the file itself is at fault, make sure that nothing of an earlier run goes on, and remove it",
            file.display()
        );
        Err(Failure::new(Exit::of_state(&error), message))
    }
}

/// The reasons why a node needs records that a later process can find.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records {
    /// It was given a name, so a later process can be the same node.
    pub(crate) named: bool,
    /// It has a stop command.
    pub(crate) stops: bool,
}

/// Returns the URL of the store that this setting gives, with `env:NAME` resolved, after a check of its scheme.
pub(crate) fn resolve_url(key: &str, url: &str, sources: &Sources) -> Result<String, Failure> {
    let source = sources.of(key).map(|given| &given.source);
    of_a_store(resolve(key, "", url, source)?, &sources.describe(key))
}

/// Does the same for a resource on the command line, which may also be an HTTP service.
pub(crate) fn resolve_resource(url: &str) -> Result<String, Failure> {
    let url = resolve("resource", "", url, None)?;
    if url.starts_with("http://") || url.starts_with("https://") {
        return Ok(url);
    }
    of_a_store(url, "--resource")
}

/// Does the same for the policy `lease:URL`. If a variable has the whole policy, `variable` is its name.
pub(super) fn resolve_policy(
    url: &str,
    variable: Option<&str>,
    sources: &Sources,
) -> Result<String, Failure> {
    let key = "split-brain";
    let variable = variable.map(|name| Source::Environment { variable: name.to_owned() });
    let source = variable.as_ref().or_else(|| sources.of(key).map(|given| &given.source));
    of_a_store(resolve(key, "lease:", url, source)?, &sources.describe(key))
}

fn of_a_store(url: String, setting: &str) -> Result<String, Failure> {
    match check_scheme(&url) {
        Ok(()) => Ok(url),
        Err(error) => Err(Failure::new(Exit::Usage, format!("{setting}: {error}"))),
    }
}

/// Resolves the URL of a store. The setting's text before the URL is `before`.
fn resolve(key: &str, before: &str, url: &str, source: Option<&Source>) -> Result<String, Failure> {
    let usage = |message: String| Failure::new(Exit::Usage, message);
    if let Some(name) = url.strip_prefix("env:") {
        return env::var(name).map_err(|error| {
            usage(format!("--{key} {before}env:{name}: {error}; set {name} to the URL of the store"))
        });
    }
    let (what, readers) = match source {
        Some(Source::Environment { .. }) => return Ok(url.to_owned()),
        Some(source @ Source::File { .. }) => {
            (format!("`{key}` ({source})"), "files get copied and committed")
        }
        Some(Source::CommandLine) | None => {
            (format!("--{key}"), "every user of this machine can read command lines")
        }
    };
    if has_login(url) {
        return Err(usage(format!(
            "the URL of {what} has a password or a token, and {readers}: put the URL into the environment, as ELECTION_URL for \
             example, and write --{key} {before}env:ELECTION_URL"
        )));
    }
    Ok(url.to_owned())
}

/// Adds to the URL the group that the store's files are shared with.
fn shared_with(url: String, group: Option<&str>, sources: &Sources) -> Result<String, Failure> {
    let Some(group) = group else { return Ok(url) };
    if url.starts_with("sqlite:") || url.starts_with("file:") {
        return Ok(format!("{url}?group={group}"));
    }
    let message =
        format!("{} is for --store sqlite:PATH and --store file:DIRECTORY only", sources.describe("group"));
    Err(Failure::new(Exit::Usage, message))
}

/// Refuses a store within one process: every candidate of `run` is a process of its own, and all must see the same
/// store.
pub(crate) fn between_processes(url: String) -> Result<String, Failure> {
    if url.starts_with("memory:") || url.starts_with("memory-sessions:") {
        let message = "memory: and memory-sessions: are within one process, and each `primacy run` is one of its own: all of them would \
                       lead; use sqlite:PATH";
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(url)
}

/// Returns the store of nodes that configure none: a file of this user on this machine. Each election has its own file,
/// since only the creator of the first record in a new file can lead without a wait.
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

/// Returns the message and the exit code for an error that kept this node from taking part.
pub(crate) fn failure(error: &ConnectError) -> Failure {
    let exit = match error {
        ConnectError::Config(ConfigError::Election { .. } | ConfigError::Node { .. }) => Exit::Usage,
        ConnectError::Config(_) => Exit::Config,
        ConnectError::Open(OpenError::Unavailable { .. } | OpenError::Shortage { .. })
        | ConnectError::Read(ReadError::Unavailable { .. })
        | ConnectError::Session(SessionError::NoAnswer { .. } | SessionError::Ended { .. })
        | ConnectError::StoreId(_) => Exit::Unavailable,
        ConnectError::Open(OpenError::Refused { .. }) | ConnectError::Read(ReadError::Malformed { .. }) => {
            Exit::State
        }
        ConnectError::Session(SessionError::Refused { .. }) => Exit::State,
        ConnectError::Open(
            OpenError::Malformed { .. }
            | OpenError::UnknownScheme { .. }
            | OpenError::NotBuiltIn { .. }
            | OpenError::KeepsSessions { .. }
            | OpenError::Election { .. },
        ) => Exit::Usage,
        ConnectError::Disk(DiskError::Locked { .. }) => Exit::InUse,
        ConnectError::Disk(DiskError::Io { source, .. }) => Exit::of_state(source),
        ConnectError::Disk(_) | ConnectError::LaterLog(_) => Exit::State,
        ConnectError::Log(LogError::Locked { .. }) => Exit::InUse,
        ConnectError::Log(_) => Exit::State,

        ConnectError::Transport(error) => {
            let here = matches!(error, TransportError::InUse { .. } | TransportError::Listen { .. });
            if here { Exit::Unavailable } else { Exit::Config }
        }
        ConnectError::Thread(_) => Exit::System,
    };
    Failure::new(exit, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An earlier run's leftovers are found by the mark.
    #[test]
    fn a_node_has_one_mark_however_its_directory_is_named_and_wherever_it_is_moved() {
        let dir = env::temp_dir().join(format!("primacy-mark-{}", std::process::id()));
        let (there, link, moved) = (dir.join("there"), dir.join("link"), dir.join("moved"));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&there).unwrap();
        std::os::unix::fs::symlink(&there, &link).unwrap();
        let records = Records { named: true, stops: true };
        let mark = |place: ElectionLocation| place.mark("e", "a".parse().unwrap(), records).unwrap();
        let local = |dir: &Path| mark(ElectionLocation::Local(dir.to_owned()));
        let known = local(&there);
        assert_eq!(local(Path::new(&format!("{}/", there.display()))), known);
        assert_eq!(local(&link), known);
        let url = "postgres://app:secret@host/orders".to_owned();
        assert_eq!(mark(ElectionLocation::Store { url, dir: Some(there.clone()), asked_for: true }), known);
        assert_ne!(local(&dir.join("other")), known);
        fs::rename(&there, &moved).unwrap();
        assert_eq!(local(&moved), known);
        fs::remove_dir_all(&dir).unwrap();
    }
}
