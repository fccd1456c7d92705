//! `primacy fence proxy`: refuses stale tokens in front of a service that cannot check them.
//!
//! A client's connection is a task; so is each exchange with the service (`exchange.rs`). The layer between them is the
//! one for Rust services, and it alone decides which requests are admitted.

mod body;
mod event_log;
mod exchange;
mod forward;
mod headers;
mod server;
mod tally;
mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use primacy::config::{FENCE_GRACE, FENCE_PATIENCE};
use primacy::fence::gate::{Gate, Limits};
use primacy::fence::http::{FenceLayer, Without};
use primacy::metrics::{self, prometheus_client::registry::Registry};
use tokio::net::TcpListener;

use self::event_log::{Event, EventLog};
use self::server::Server;
use self::tally::Tally;
use self::upstream::{Authority, Reach, Upstream};
use super::{Patience, State, failure};
use crate::entry::parse_listen;
use crate::exit::{self, Exit, Failure};
use crate::node_main::log_to;
use crate::report::Reporter;
use crate::signals::Signals;
use crate::{duration, metrics_http, orphans};

/// The largest part of a message in memory at a time, per connection, in bytes.
const BUFFER_MAX: usize = 64 * 1024;

/// The largest head of a request or answer, in bytes.
const HEAD_MAX: usize = 32 * 1024;

/// The most headers of a request or answer.
const HEADERS_MAX: usize = 100;

/// The time for which another process may hold the state file when the proxy starts: a process that only admits a token
/// holds it for milliseconds.
const HOLD_TIMEOUT: Duration = Duration::from_secs(1);

/// The shortest timeout: the kernel takes less for no timeout at all.
const IDLE_TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// Refuse stale tokens in front of an HTTP service that cannot check them.
///
/// Clients talk to the proxy as they would to the service, and show the token
/// of their leadership in each request:
///
///   Fencing-Token: 42
///
/// A request with a lower token than the highest one seen is answered with 409;
/// one without any, with 400. What is admitted is passed on. The first request
/// of a higher token waits until those of lower ones have been answered; after
/// a second (--patience) their connections to the service are closed.
///
/// The service must be reachable in no other way than through this proxy.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::FENCE_PROXY_HELP, after_long_help = LONG_HELP.to_owned() + exit::FENCE_PROXY_HELP)]
pub(crate) struct Proxy {
    /// The address to listen on, for example 127.0.0.1:8080
    #[arg(long, value_name = "ADDR")]
    listen: String,

    /// The service, as http://host:port
    #[arg(long, value_name = "URL")]
    upstream: String,

    #[command(flatten)]
    state: State,

    /// Pass on GET, HEAD and OPTIONS without a token, at any time; only for a service that writes nothing on them
    #[arg(long)]
    read_only_without_token: bool,

    /// Listen on, or connect to, other addresses than those of this machine, though this is cleartext: anyone on the
    /// network can read and change everything, tokens included
    #[arg(long)]
    insecure_cleartext: bool,

    /// Most connections of clients at a time; further ones wait to be accepted
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    max_connections: u32,

    /// Longest time in which nothing moves between client and service during a request
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration::parse)]
    idle_timeout: Duration,

    /// Time for which a higher token waits for the answers to lower ones, before their connections are closed
    /// [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    patience: Option<Duration>,

    /// Time that requests may take to end when the proxy is stopped
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    drain: Duration,

    /// Serve metrics over HTTP here, at /metrics in OpenMetrics form: host:port, or a port of 127.0.0.1
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    metrics: Option<SocketAddr>,

    /// Report events in JSON, one object a line, on standard error
    #[arg(long)]
    json: bool,
}

const LONG_HELP: &str = "\
Example:
  primacy fence proxy --listen 127.0.0.1:8080 --upstream http://127.0.0.1:9000 \\
      --state /var/lib/orders/proxy.fence --election orders
  curl -X PUT -H \"Fencing-Token: $PRIMACY_TOKEN\" -d body http://127.0.0.1:8080/a

Signals: SIGTERM, SIGINT and SIGHUP end the proxy when the requests under way
have ended; a second one ends it at once.

Limits: 32 KiB and 100 headers for the head of a request or answer; ten seconds
for a client to send a head, also the next one; five to connect to the service.
No tunnels and no trailers; requests to upgrade are taken as if they did not ask.

PRIMACY_LOG=info shows each change of the highest token.

";

/// Runs the verb.
pub(crate) fn proxy(args: &Proxy) -> Result<Exit, Failure> {
    let usage = |message: String| Failure::new(Exit::Usage, message);
    let upstream = Authority::parse(&args.upstream).map_err(usage)?;
    if args.idle_timeout < IDLE_TIMEOUT_MIN {
        return Err(usage("--idle-timeout is at least 1ms".to_owned()));
    }
    let reporter = Reporter::new(args.json, "fence")?;
    log_to(&reporter);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(args.serve(upstream, &reporter));
    reporter.finish();
    // Does not wait for blocked tasks, for example a name that is being looked up.
    runtime.shutdown_background();
    result
}

impl Proxy {
    async fn serve(&self, upstream: Authority, reporter: &Reporter) -> Result<Exit, Failure> {
        let mut signals = Signals::listen()?;
        // The proxy starts no processes, but may be the first process of a container.
        orphans::reap_for_ever()?;
        self.check_reach(&upstream).await?;
        let listener = self.bind().await?;
        let figures = self.metrics.map(metrics_http::Server::bind).transpose()?;
        let fence = self.state.hold(Patience::For(HOLD_TIMEOUT));
        let fence = fence.map_err(|error| failure(&error, Exit::InUse))?;
        let limits = Limits { patience: self.patience.unwrap_or(FENCE_PATIENCE), grace: FENCE_GRACE };
        let gate = Gate::new(fence, limits).map_err(|error| failure(&error, Exit::InUse))?;
        let without = if self.read_only_without_token { Without::ReadsAdmitted } else { Without::Refused };
        let event_log = EventLog::new(reporter.log_writer(), self.json);
        let tally = Tally::new();
        let metrics =
            figures.as_ref().and_then(metrics_http::Server::address).map(|address| address.to_string());
        let _serving = figures.map(|figures| figures.serve(registry(&tally), None)).transpose()?;
        event_log.tell(&Event::Listening {
            address: listener.local_addr()?.to_string(),
            upstream: upstream.to_string(),
            highest: gate.highest().0,
            metrics,
        });
        let connections = usize::try_from(self.max_connections).unwrap_or(usize::MAX);
        let reach = if self.insecure_cleartext { Reach::Anywhere } else { Reach::Loopback };
        let server = Server {
            layer: FenceLayer::on(gate).without_token(without),
            upstream: Arc::new(Upstream::new(upstream, connections, reach)),
            idle: self.idle_timeout,
            drain: self.drain,
            connections: self.max_connections,
            tally: tally.clone(),
        };
        server.run(listener, &mut signals, &event_log).await;
        event_log.tell(&Event::Ended(tally.counts()));
        Ok(Exit::Success)
    }

    /// Checks that cleartext stays on this machine, unless `--insecure-cleartext` was given.
    async fn check_reach(&self, upstream: &Authority) -> Result<(), Failure> {
        if self.insecure_cleartext {
            return Ok(());
        }
        let refuse = |what: &str, where_to: &dyn std::fmt::Display| {
            let message = format!(
                "{what} {where_to} is not on this machine, and the proxy speaks cleartext: use a loopback address, with \
                 something in front that encrypts, or say --insecure-cleartext"
            );
            Err(Failure::new(Exit::Usage, message))
        };
        if self.listen_addresses().await?.iter().any(|address| !address.ip().is_loopback()) {
            return refuse("the address", &self.listen);
        }
        // An address that cannot be resolved yet is checked on connecting, as all are.
        let addresses = upstream.addresses().await.unwrap_or_default();
        if addresses.iter().any(|address| !address.ip().is_loopback()) {
            return refuse("the upstream", upstream);
        }
        Ok(())
    }

    async fn listen_addresses(&self) -> Result<Vec<SocketAddr>, Failure> {
        let found = tokio::net::lookup_host(&self.listen).await;
        found.map(Iterator::collect).map_err(|error| {
            let message = format!("--listen {}: {error}; write it as 127.0.0.1:8080", self.listen);
            Failure::new(Exit::Usage, message)
        })
    }

    async fn bind(&self) -> Result<TcpListener, Failure> {
        let addresses = self.listen_addresses().await?;
        TcpListener::bind(addresses.as_slice()).await.map_err(|error| {
            let message = if error.kind() == std::io::ErrorKind::AddrInUse {
                format!(
                    "the address {} is in use: stop what listens there, or choose another --listen",
                    self.listen
                )
            } else {
                format!("the address {} cannot be listened on: {error}; choose another --listen", self.listen)
            };
            Failure::new(Exit::Unavailable, message)
        })
    }
}

/// Creates the registry of the proxy's metrics: requests by outcome, and the writes that its fence has refused.
fn registry(tally: &Tally) -> Registry {
    let mut registry = Registry::default();
    tally.register(&mut registry);
    metrics::register_fences(&mut registry);
    registry
}
