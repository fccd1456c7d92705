//! The common part of `run` and `node`: the settings by which a node enters its election, and those of its
//! supervision there.
//!
//! Each setting is an option, an environment variable and a key of a file; [`Entry`] is the one list of them.

pub(crate) mod effective;
mod file;
pub(crate) mod layers;
pub(crate) mod location;
mod mark_secret;
mod membership;
pub(crate) mod opening;
pub(crate) mod serving;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use primacy::config::Venue;
use primacy::core::election::NoAlgorithm;
use primacy::transport::TlsFiles;
use primacy::{
    Algorithm, Builder, ConfigError, Confirm, Drift, Elector, NodeId, Peers, Safety, SeniorityOptions,
    SplitBrain,
};

use crate::duration;
use crate::exit::{Exit, Failure};
use crate::guardian::watchdog::WatchdogSpec;
use crate::health::Check;
use layers::Sources;
use location::ElectionLocation;
use membership::Membership;
use serving::Serving;

/// The default interval between two health checks.
pub(crate) const HEALTH_INTERVAL: Duration = Duration::from_secs(5);
/// The shortest interval between two health checks.
const HEALTH_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// The default number of health checks that must fail in a row.
pub(crate) const HEALTH_MISSES: u32 = 3;

/// The settings of a node.
#[derive(Debug, Default, Args)]
pub(crate) struct Entry {
    /// Read settings from this TOML file. The command line goes before the environment, and that before the file
    #[arg(long, value_name = "FILE", env = "PRIMACY_CONFIG")]
    pub(crate) config: Option<PathBuf>,

    /// The name of the election; nodes that name the same one compete
    #[arg(long, value_name = "NAME", env = "PRIMACY_ELECTION")]
    pub(crate) election: Option<String>,

    /// Hold the election in this store; env:NAME reads the URL from the environment, which is where one with a
    /// password must be
    #[arg(long, value_name = "URL", env = "PRIMACY_STORE", hide_env_values = true)]
    pub(crate) store: Option<String>,

    /// Hold the election among these nodes: a=host:port,b=host:port,c=host:port
    #[arg(long, value_name = "LIST", env = "PRIMACY_PEERS", value_parser = str::parse::<Peers>)]
    pub(crate) peers: Option<Peers>,

    /// This node's name [default without --peers: host name and process id]
    #[arg(long, value_name = "NAME", env = "PRIMACY_NODE", value_parser = str::parse::<NodeId>)]
    pub(crate) node: Option<NodeId>,

    #[arg(long, value_name = "ELECTION", help = algorithm_help(), env = "PRIMACY_ALGORITHM", value_parser = parse_algorithm)]
    pub(crate) algorithm: Option<Algorithm>,

    /// Among peers, the vote on whether the node that an advisory election names may lead: `quorum`, or the
    /// URL of a store (env:NAME as in --store). Its leaders have a token then, and a lease
    #[arg(long, value_name = "BY", env = "PRIMACY_CONFIRM", hide_env_values = true)]
    pub(crate) confirm: Option<String>,

    #[command(flatten)]
    pub(crate) membership: Membership,

    #[command(flatten)]
    pub(crate) serving: Serving,

    /// Run an advisory election, in which nothing prevents a second leader; the work gets no token
    #[arg(long, value_name = "BOOL", env = "PRIMACY_ALLOW_ADVISORY", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub(crate) allow_advisory: Option<bool>,

    /// Among peers, by a quorum, the safety: `lease`, never two leaders at a time; or `fenced`, faster where every
    /// resource checks the token, which is then all that keeps two leaders apart [default: lease]. By `ranked`, it is
    /// `fenced`
    #[arg(long, value_name = "KIND", env = "PRIMACY_SAFETY", value_parser = ["lease", "fenced"])]
    pub(crate) safety: Option<String>,

    /// Among peers, nodes of higher priority campaign first [default: 0]
    #[arg(long, value_name = "NUMBER", env = "PRIMACY_PRIORITY")]
    pub(crate) priority: Option<u32>,

    /// Among peers, vote and never lead (for `primacy node`)
    #[arg(long, value_name = "BOOL", env = "PRIMACY_WITNESS", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub(crate) witness: Option<bool>,

    /// The directory of this node's durable state [default: $XDG_STATE_HOME/primacy or ~/.local/state/primacy]. Over a
    /// store that is only whether a node with a --node of its own is cordoned
    #[arg(long, value_name = "DIR", env = "PRIMACY_STATE_DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// With `--store sqlite:PATH` or `--store file:DIRECTORY`, a group whose members may be candidates, each as a user of its own;
    /// without it, what is made is for this user alone
    #[arg(long, value_name = "NAME", env = "PRIMACY_GROUP")]
    pub(crate) group: Option<String>,

    /// Time that a leader may lead without renewing; among peers, the promise. The longest outage when a machine
    /// dies [default: 10s over a store, 1s among peers]
    #[arg(long, value_name = "TIME", env = "PRIMACY_LEASE", value_parser = duration::parse)]
    pub(crate) lease: Option<Duration>,

    /// Time between two renewals of the leader [default: a sixth of the lease over a store, a quarter among
    /// peers]
    #[arg(long, value_name = "TIME", env = "PRIMACY_HEARTBEAT", value_parser = duration::parse)]
    pub(crate) heartbeat: Option<Duration>,

    /// Time that the work may take to end in order; under `run`, from SIGTERM to SIGKILL [default: a sixth of
    /// the lease over a store, a quarter among peers]
    #[arg(long, value_name = "TIME", env = "PRIMACY_DRAIN", value_parser = duration::parse)]
    pub(crate) drain: Option<Duration>,

    /// Time before the end of the lease at which everything is killed [default: a tenth of the lease, at most
    /// 200ms]
    #[arg(long, value_name = "TIME", env = "PRIMACY_KILL_MARGIN", value_parser = duration::parse)]
    pub(crate) kill_margin: Option<Duration>,

    /// Largest difference of the rates of two machines' clocks, as in 1% or 500ppm [default: 1%]
    #[arg(long, value_name = "RATE", env = "PRIMACY_DRIFT_MAX", value_parser = parse_drift)]
    pub(crate) drift_max: Option<Drift>,

    /// Among peers, the longest random wait before campaigning [default: three tenths of the lease]
    #[arg(long, value_name = "TIME", env = "PRIMACY_RANDOM_WAIT_MAX", value_parser = duration::parse)]
    pub(crate) random_wait_max: Option<Duration>,

    /// Among peers, the name of the installation, which all nodes must agree on [default: the election's name]
    #[arg(long, value_name = "NAME", env = "PRIMACY_CLUSTER")]
    pub(crate) cluster: Option<String>,

    /// Among peers, this node's certificate in a PEM file, with the chain to the authority; one of its DNS names is
    /// the node's name. Enables mutual TLS between nodes
    #[arg(long, value_name = "FILE", env = "PRIMACY_TLS_CERTIFICATE")]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// The certificate's private key in a PEM file that others may not read
    #[arg(long, value_name = "FILE", env = "PRIMACY_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,

    /// The authorities whose certificates are accepted, in a PEM file that others may not write
    #[arg(long, value_name = "FILE", env = "PRIMACY_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,

    /// Among peers, allow cleartext to other machines: only where the network is protected otherwise
    #[arg(long, value_name = "BOOL", env = "PRIMACY_INSECURE_CLEARTEXT", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub(crate) insecure_cleartext: Option<bool>,

    /// A shell command whose exit code 0 means that this node is fit to lead. Until it has succeeded once, the node
    /// does not campaign; when it has failed --health-misses times in a row, the node gives up the lead in order
    #[arg(long, value_name = "CMD", env = "PRIMACY_HEALTH")]
    pub(crate) health: Option<String>,

    /// Interval of the health check, and the time that it may take [default: 5s]
    #[arg(long, value_name = "TIME", env = "PRIMACY_HEALTH_INTERVAL", value_parser = duration::parse)]
    pub(crate) health_interval: Option<Duration>,

    /// Number of health checks that must fail in a row until the node is unfit; one success makes it fit again
    /// [default: 3]
    #[arg(long, value_name = "NUMBER", env = "PRIMACY_HEALTH_MISSES")]
    pub(crate) health_misses: Option<u32>,

    /// Serve metrics over HTTP here: an IP address with a port, or a port of 127.0.0.1. GET /metrics is in
    /// OpenMetrics form, /leader answers 200 where this node leads and 503 elsewhere, /healthz whether this
    /// process works
    #[arg(long, value_name = "ADDR", env = "PRIMACY_METRICS", value_parser = parse_listen)]
    pub(crate) metrics: Option<SocketAddr>,

    /// A shell command that ends the work of other processes for COMMAND, such as a container of the Docker daemon
    /// or a unit of systemd. It runs at the end of each lead, when COMMAND is gone and before another node may
    /// lead, also when this node's process was killed; half of the drain is left for it. It must fail unless all
    /// has ended: then others wait for the lease
    #[arg(long, value_name = "CMD", env = "PRIMACY_STOP_COMMAND")]
    pub(crate) stop_command: Option<String>,

    /// A shell command to run on each election, under `run` before COMMAND; the lead is given up if it fails,
    /// or has not ended after 90 s
    #[arg(long, value_name = "CMD", env = "PRIMACY_ON_ELECTED")]
    pub(crate) on_elected: Option<String>,

    /// A shell command to run at the end of each lead, under `run` after COMMAND is gone, also when this node's process
    /// was killed. PRIMACY_LEAD tells it whether the lead is still `held` or already `lost`
    #[arg(long, value_name = "CMD", env = "PRIMACY_ON_DEPOSED")]
    pub(crate) on_deposed: Option<String>,

    /// While this node leads, arm this watchdog, /dev/watchdog for example: it resets the machine before the end of the lead where
    /// the work is not gone by then, because this process and its guardian are stopped or the work cannot be killed. A node that
    /// cannot use it does not lead; with automatic: before the path, it warns and leads without
    #[arg(long, value_name = "DEVICE", env = "PRIMACY_WATCHDOG")]
    pub(crate) watchdog: Option<String>,

    /// Report events in JSON, one object a line, on standard error
    #[arg(long, value_name = "BOOL", env = "PRIMACY_JSON", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub(crate) json: Option<bool>,
}

/// The settings, after the check that they fit together.
#[derive(Debug)]
pub(crate) struct Entrance {
    pub(crate) election: String,
    pub(crate) node: NodeId,
    pub(crate) place: ElectionLocation,
    pub(crate) builder: Builder,
    /// The watchdog that resets the machine if the work has not ended in time.
    pub(crate) watchdog: Option<WatchdogSpec>,
}

impl Entrance {
    /// Checks, without entering, for errors in the settings of the peers that would otherwise show on entering.
    pub(crate) fn look(&self, sources: &Sources) -> Result<(), Failure> {
        let ElectionLocation::Peers(peers, _) = &self.place else { return Ok(()) };
        self.builder.check_peers(peers).map_err(|errors| {
            let mut problems: Vec<String> = errors.iter().map(ToString::to_string).collect();
            if let Some(last) = problems.last_mut() {
                last.push_str(&sources.told_of(SECURED));
            }
            Failure::new(Exit::Config, layers::listed(&problems))
        })
    }
}

impl Entry {
    /// Checks for all errors that can be found before anything is started.
    pub(crate) fn check(&self, sources: &Sources) -> Result<Entrance, Failure> {
        let mut problems = self.contradictions(sources);
        let Some(election) = self.election.clone() else {
            problems.push(
                "the election has no name: give --election NAME, PRIMACY_ELECTION, or `election` in the file of \
                 --config"
                    .to_owned(),
            );
            return Err(sources.failure(&problems));
        };
        if let (Some(peers), Some(node)) = (&self.peers, self.node)
            && peers.address(node).is_none()
        {
            let names: Vec<String> = peers.iter().map(|(node, _)| node.to_string()).collect();
            let error = ConfigError::NotAPeer { node, peers: names.join(", ") };
            let message = format!("{error}{}", sources.told_of(&["node", "peers"]));
            if problems.is_empty() {
                return Err(Failure::new(Exit::Config, message));
            }
            problems.push(message);
        }
        let builder = self.builder(&election);
        let timers = builder.check(self.venue());
        let watchdog = self.watchdog.as_deref().zip(timers.as_ref().ok());
        let watchdog = watchdog.map(|(setting, timers)| WatchdogSpec::new(setting, timers)).transpose();
        let watchdog = watchdog.unwrap_or_else(|why| {
            problems.push(format!("{why}{}", sources.told_of(&["watchdog", "lease", "heartbeat"])));
            None
        });
        if let Err(error) = timers {
            let mut message = error.to_string();
            if matches!(error, ConfigError::Timers(_)) {
                message.push_str(&sources.told_of(TIMERS));
            }
            if problems.is_empty() {
                return Err(Failure::new(location::failure(&error.into()).exit, message));
            }
            problems.push(message);
        }
        if !problems.is_empty() {
            return Err(sources.failure(&problems));
        }
        let node = match self.node {
            Some(node) => node,
            None => primacy::config::default_node()
                .map_err(|error| Failure::new(Exit::Config, error.to_string()))?,
        };
        let place = ElectionLocation::find(self, &election, sources)?;
        let builder = match self.confirm() {
            Some(Confirm::Store(url)) => {
                let url = location::between_processes(location::resolve_url("confirm", &url, sources)?)?;
                builder.confirm(Confirm::Store(url))
            }
            Some(Confirm::Quorum) | None => builder,
        };
        let builder = match self.cluster_options() {
            Some(mut options) => {
                if let SplitBrain::Lease(url) = &options.split_brain {
                    let url = location::resolve_policy(url, self.membership.split_brain_variable(), sources)?;
                    let url = location::between_processes(url)?;
                    options.split_brain = SplitBrain::Lease(url);
                }
                builder.seniority(options)
            }
            None => builder,
        };
        Ok(Entrance { election, node, place, builder: builder.node(node), watchdog })
    }

    /// Returns the contradictions between settings.
    fn contradictions(&self, sources: &Sources) -> Vec<String> {
        let mut problems = Vec::new();
        let of = |key: &str| sources.describe(key);
        if self.store.is_some() && self.peers.is_some() {
            problems.push(format!(
                "{} cannot be used with {}: an election is held in a store or among its nodes",
                of("store"),
                of("peers")
            ));
        }
        if self.peers.is_some() && self.node.is_none() {
            problems.push(format!("{} needs --node NAME, to say which of them this is", of("peers")));
        }
        if self.peers.is_none() {
            for (key, given) in [
                ("algorithm", self.algorithm.is_some()),
                ("confirm", self.confirm.is_some()),
                ("allow-advisory", self.allows_advisory()),
                ("safety", self.safety.is_some()),
                ("priority", self.priority.is_some()),
                ("witness", self.is_witness()),
                ("random-wait-max", self.random_wait_max.is_some()),
                ("cluster", self.cluster.is_some()),
                ("tls-certificate", self.tls_certificate.is_some()),
                ("tls-key", self.tls_key.is_some()),
                ("tls-ca", self.tls_ca.is_some()),
                ("insecure-cleartext", self.may_send_cleartext()),
            ]
            .into_iter()
            .chain(self.membership.given())
            .chain(self.serving.given())
            {
                if given {
                    problems.push(format!(
                        "{} has no meaning over a store; leave it out, or name --peers",
                        of(key)
                    ));
                }
            }
        }
        let tls = [
            ("tls-certificate", self.tls_certificate.is_some()),
            ("tls-key", self.tls_key.is_some()),
            ("tls-ca", self.tls_ca.is_some()),
        ];
        if let Some((given, _)) = tls.iter().find(|(_, given)| *given) {
            for (missing, _) in tls.iter().filter(|(_, given)| !given) {
                problems.push(format!("{} needs --{missing} FILE", of(given)));
            }
            if self.may_send_cleartext() {
                problems.push(format!(
                    "{} cannot be used with {}: under TLS nothing is said in cleartext",
                    of("insecure-cleartext"),
                    of(given)
                ));
            }
        }
        problems.extend(self.serving.contradictions(of));
        problems.extend(self.contradictions_of_members(sources));

        problems.extend(self.contradictions_of_work(sources));
        problems
    }

    /// Returns the contradictions between settings of an election by seniority.
    fn contradictions_of_members(&self, sources: &Sources) -> Vec<String> {
        let by = self.algorithm.unwrap_or_default();
        if by == Algorithm::Seniority {
            let refused = self.membership.options().err();
            return refused
                .map(|why| format!("{}: {why}", sources.describe("split-brain")))
                .into_iter()
                .collect();
        }
        if self.peers.is_none() {
            return Vec::new(); // It has no meaning there either, and that was said.
        }
        let given = self.membership.given().into_iter().filter(|(_, given)| *given);
        let meaningless = |(key, _): (&str, bool)| {
            let key = sources.describe(key);
            format!("{key} has no meaning by {by}; leave it out, or choose --algorithm seniority")
        };
        given.map(meaningless).collect()
    }

    /// Returns the contradictions between settings of the work beside the election.
    fn contradictions_of_work(&self, sources: &Sources) -> Vec<String> {
        let mut problems = Vec::new();
        let of = |key: &str| sources.describe(key);
        if self.health.is_none() {
            for (key, given) in [
                ("health-interval", self.health_interval.is_some()),
                ("health-misses", self.health_misses.is_some()),
            ] {
                if given {
                    problems.push(format!("{} needs --health CMD", of(key)));
                }
            }
        }
        if self.is_witness() {
            for (key, given) in [
                ("health", self.health.is_some()),
                ("stop-command", self.stop_command.is_some()),
                ("on-elected", self.on_elected.is_some()),
                ("on-deposed", self.on_deposed.is_some()),
                ("watchdog", self.watchdog.is_some()),
            ] {
                if given {
                    problems.push(format!("{} has no meaning for a witness, which never leads", of(key)));
                }
            }
        }
        if self.health_interval.is_some_and(|interval| interval < HEALTH_INTERVAL_MIN) {
            problems.push(format!("{} is shorter than {HEALTH_INTERVAL_MIN:?}", of("health-interval")));
        }
        if self.health_misses == Some(0) {
            problems.push(format!("{} is zero; take at least 1", of("health-misses")));
        }
        problems
    }

    pub(crate) fn venue(&self) -> Venue {
        if self.peers.is_some() { Venue::Peers } else { Venue::Store }
    }

    pub(crate) fn is_witness(&self) -> bool {
        self.witness.unwrap_or(false)
    }

    pub(crate) fn may_send_cleartext(&self) -> bool {
        self.insecure_cleartext.unwrap_or(false)
    }

    /// The health check, if there is one.
    pub(crate) fn health_check(&self) -> Option<Check> {
        self.health.clone().map(|command| Check {
            command,
            interval: self.health_interval.unwrap_or(HEALTH_INTERVAL),
            misses: self.health_misses.unwrap_or(HEALTH_MISSES),
        })
    }

    /// Returns the confirmation. The URL of a store is passed on as it was given.
    fn confirm(&self) -> Option<Confirm> {
        self.confirm.as_ref().map(|by| match by.as_str() {
            "quorum" => Confirm::Quorum,
            url => Confirm::Store(url.to_owned()),
        })
    }

    /// Returns the membership options of the cluster, if there is one. An invalid policy is among the
    /// contradictions.
    fn cluster_options(&self) -> Option<SeniorityOptions> {
        let given = self.membership.given().iter().any(|(_, given)| *given);
        let has_use = self.algorithm == Some(Algorithm::Seniority) && self.peers.is_some();
        self.membership.options().ok().filter(|_| given && has_use)
    }

    fn allows_advisory(&self) -> bool {
        self.allow_advisory.unwrap_or(false)
    }

    fn safety(&self) -> Option<Safety> {
        self.safety.as_deref().map(|kind| if kind == "fenced" { Safety::Fenced } else { Safety::Lease })
    }

    pub(crate) fn builder(&self, election: &str) -> Builder {
        let mut builder = Elector::builder()
            .election(election)
            .allow_advisory(self.allows_advisory())
            .priority(self.priority.unwrap_or_default())
            .witness(self.is_witness())
            .insecure_cleartext(self.may_send_cleartext());
        if let Some(algorithm) = self.algorithm {
            builder = builder.algorithm(algorithm);
        }
        if let Some(confirm) = self.confirm() {
            builder = builder.confirm(confirm);
        }
        if let Some(options) = self.cluster_options() {
            builder = builder.seniority(options);
        }
        if let Some(safety) = self.safety() {
            builder = builder.safety(safety);
        }
        if let Some(durability) = self.serving.durability() {
            builder = builder.metadata(durability);
        }

        if let Some(cluster) = &self.cluster {
            builder = builder.cluster(cluster);
        }
        if let (Some(certificate), Some(key), Some(ca)) =
            (self.tls_certificate.clone(), self.tls_key.clone(), self.tls_ca.clone())
        {
            builder = builder.tls(TlsFiles { certificate, key, ca });
        }
        if let Some(node) = self.node {
            builder = builder.node(node);
        }
        if let Some(lease) = self.lease {
            builder = builder.lease(lease);
        }
        if let Some(heartbeat) = self.heartbeat {
            builder = builder.renewal(heartbeat);
        }
        if let Some(drain) = self.drain {
            builder = builder.drain(drain);
        }
        if let Some(kill_margin) = self.kill_margin {
            builder = builder.kill_margin(kill_margin);
        }
        if let Some(drift_max) = self.drift_max {
            builder = builder.drift_max(drift_max);
        }
        if let Some(wait) = self.random_wait_max {
            builder = builder.random_wait_max(wait);
        }
        builder
    }
}

/// The settings whose relations are checked together.
const TIMERS: &[&str] = &["lease", "heartbeat", "drain", "kill-margin", "drift-max"];

/// The settings of the connections to other nodes and their protection.
const SECURED: &[&str] = &["peers", "tls-certificate", "tls-key", "tls-ca"];

fn algorithm_help() -> String {
    let names = |is_fenced| {
        let of_this_kind = Algorithm::ALL.iter().filter(|algorithm| algorithm.is_fenced() == is_fenced);
        of_this_kind.map(|algorithm| algorithm.name()).collect::<Vec<_>>().join(", ")
    };
    format!(
        "Among peers, the election's algorithm: {}; or an advisory one, in which a partition makes two leaders: {} [default: {}]",
        names(true),
        names(false),
        Algorithm::default()
    )
}

fn parse_algorithm(name: &str) -> Result<Algorithm, String> {
    name.parse().map_err(|error: NoAlgorithm| error.to_string())
}

/// Parses `1%` or `500ppm`.
fn parse_drift(text: &str) -> Result<Drift, String> {
    let wrong = || format!("write a rate as in 1%, 0.05% or 500ppm; not {text:?}");
    if let Some(ppm) = text.strip_suffix("ppm") {
        return ppm.parse().map(Drift::from_ppm).map_err(|_| wrong());
    }
    let percent = text.strip_suffix('%').ok_or_else(wrong)?;
    let (whole, part) = percent.split_once('.').unwrap_or((percent, ""));
    // Four digits of a per cent are parts per million.
    let digits: String = format!("{whole}{part:0<4}");
    let plain = part.len() <= 4 && !whole.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten().map(Drift::from_ppm).ok_or_else(wrong)
}

/// Parses an address to listen on; a port alone means the loopback interface.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = port.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    text.parse().map_err(|_| {
        format!("write an IP address and a port, as in 127.0.0.1:9464, or a port alone; not {text:?}")
    })
}

#[cfg(test)]
mod tests {
    mod fuzz;

    use super::*;
    use crate::variables::SETTINGS;

    #[test]
    fn the_variables_are_those_of_the_settings() {
        let command = Entry::augment_args(clap::Command::new("entry"));
        let defined: Vec<_> = command
            .get_arguments()
            .filter_map(|arg| Some((arg.get_long()?, arg.get_env()?.to_str()?)))
            .collect();
        assert_eq!(defined.iter().map(|(_, variable)| *variable).collect::<Vec<_>>(), SETTINGS);
        for (long, variable) in defined {
            assert_eq!(variable, format!("PRIMACY_{}", long.to_uppercase().replace('-', "_")));
        }
    }

    #[test]
    fn rates_and_addresses_are_read_as_people_write_them() {
        assert_eq!(parse_drift("1%"), Ok(Drift::from_ppm(10_000)));
        assert_eq!(parse_drift("0.05%"), Ok(Drift::from_ppm(500)));
        assert_eq!(parse_drift("500ppm"), Ok(Drift::from_ppm(500)));
        for wrong in ["", "1", "%", "-1%", "0.00001%", "1.%x", "ppm"] {
            assert!(parse_drift(wrong).is_err(), "{wrong:?}");
        }
        for loopback in ["9464", ":9464", "127.0.0.1:9464"] {
            assert_eq!(parse_listen(loopback).unwrap().to_string(), "127.0.0.1:9464");
        }
        assert!(parse_listen("localhost").is_err());
    }
}
