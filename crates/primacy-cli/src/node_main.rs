//! The common part of `run` and `node`: enter the election, supervise the node there, and close it at the end.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use primacy::metrics::{self, prometheus_client::registry::Registry};
use primacy::stores::error_text::shortened;
use primacy::{Elector, NodeId};
use tokio::sync::Mutex;
use tokio::task::LocalSet;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::control::{Responder, Server};
use crate::entry::layers::Sources;
use crate::entry::location::Records;
use crate::entry::opening::{Opening, StoreWait};
use crate::entry::{Entrance, Entry};
use crate::exit::{Exit, Failure};
use crate::guardian::job::Program;
use crate::guardian::message::GuardianConfig;
use crate::guardian::watchdog::WatchdogSpec;
use crate::leftovers::{self, NodeMark, StartRefusal};
use crate::log::JsonLog;
use crate::report::{Event, Reporter};
use crate::signals::Signals;
use crate::stop_record::StopRecord;
use crate::supervisor::{Settings, Supervisor, Wait, report_changes};
use crate::{delegated_work, health, memory, metrics_http, notify, orphans, panic, quota, scheduling_delay};

/// The work of a node while it leads, and the time for which it campaigns.
#[derive(Debug)]
pub(crate) struct Work {
    /// The command to run; without one, the node holds the lead and runs nothing.
    pub(crate) job: Option<Program>,
    pub(crate) wait: Wait,
    pub(crate) restart: bool,
}

/// The time for which a guardian that an earlier run left may go on draining its job.
const LEFTOVERS_DRAIN: Duration = Duration::from_millis(2_500);
const LEFTOVERS_MARGIN: Duration = Duration::from_secs(1);

/// Takes part until the work is done or a signal asks the process to end.
pub(crate) fn run_node(
    entry: &Entry,
    sources: &Sources,
    work: impl FnOnce() -> Result<Work, Failure>,
) -> Result<Exit, Failure> {
    memory::remember_what_is_loaded();
    memory::give_back_what_is_large();
    let node = entry.node.or_else(|| primacy::config::default_node().ok());
    let node = node.as_ref().map_or("", NodeId::as_str);
    let reporter = Reporter::new(entry.json.unwrap_or(false), node)?;
    let told = reporter.clone();
    // Unwinding would release the lead while the command is still running. So a panic aborts this process, and the
    // guardian ends the command.
    panic::handle(move |panic| {
        told.tell_of_panic(panic);
        std::process::abort();
    });
    // Reports all errors that can be found before anything is started.
    let checked = work().and_then(|work| Ok((work, entry.check(sources)?)));
    let result =
        checked.and_then(|(work, entrance)| take_part_until_the_end(entry, entrance, work, &reporter));
    let (exit, reason) = match result {
        Ok(exit) => (exit, None),
        Err(Failure { exit, message }) => (exit, Some(message).filter(|message| !message.is_empty())),
    };
    reporter.tell(&Event::Ended { exit_code: exit.code(), reason });
    reporter.finish();
    notify::finish();
    Ok(exit)
}

fn take_part_until_the_end(
    entry: &Entry,
    entrance: Entrance,
    work: Work,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    log_to(reporter);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Tasks that serve or watch stay on this thread.
    let result = LocalSet::new().block_on(&runtime, take_part(entry, entrance, work, reporter));
    // Does not wait for tasks that are still blocked, for example by a store that does not answer.
    runtime.shutdown_background();
    result
}

async fn take_part(
    entry: &Entry,
    entrance: Entrance,
    work: Work,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    let Entrance { election, node, place, builder, watchdog } = entrance;
    let records = Records { named: entry.node.is_some(), stops: entry.stop_command.is_some() };
    let mark = place.mark(&election, node, records)?;
    end_leftovers(entry, &mark, node, reporter)?;
    let stop_record = place.stop_record(&mark, records.named);
    let owed = stop_record.as_deref().map(StopRecord::read).transpose()?.flatten();
    if owed.is_none() {
        try_watchdog(watchdog.as_ref(), reporter)?;
    }
    let control = place.bind_control(&election, node, reporter)?;
    // An address that is not available is reported before this node takes part.
    let figures = entry.metrics.map(metrics_http::Server::bind).transpose()?;
    #[cfg(feature = "etcd")]
    let etcd_api = crate::serving::check(entry)?;
    let waiting = StoreWait { wait: work.wait, control: control.as_ref(), reporter };
    let elector = match place.enter(builder, &election, entry.node.is_some(), &waiting).await? {
        Opening::Entered(elector) => elector,
        Opening::Asked(signal) => return Ok(Exit::Signal(signal)),
    };
    if let (Some(map), Some(quota)) = (elector.map(), entry.serving.metadata_quota) {
        tokio::spawn(quota::keep(map.clone(), node, quota));
    }
    #[cfg(feature = "etcd")]
    let serves = match etcd_api {
        Some(etcd_api) => {
            Some(etcd_api.serve(&elector, entry.cluster.as_deref().unwrap_or(&election), reporter)?)
        }
        None => None,
    };
    if let Some(control) = &control {
        control.answer_by(Responder::Entered(elector.clone()), reporter)?;
    }
    let mut registry = Registry::default();
    metrics::register(&mut registry, [&elector]);
    #[cfg(feature = "etcd")]
    if let Some(serves) = &serves {
        registry.register_collector(serves.figures());
    }
    let serve = |figures| serve_figures(figures, registry, &elector, reporter);
    let _serving = figures.map(serve).transpose()?;
    let starting = Arc::default();
    orphans::reap_for_ever()?;
    if let Some(check) = entry.health_check() {
        elector.set_healthy(false);
        let starting = Arc::clone(&starting);
        tokio::spawn(health::watch(check, elector.clone(), reporter.clone(), starting));
    }
    watch_this_process(&elector, reporter);
    // A node that was closed from its control socket reports the reason.
    let reason = |end| control.as_ref().and_then(Server::lost).unwrap_or(end);
    if entry.is_witness() {
        return bear_witness(elector, reporter).await.map_err(reason);
    }
    let config = config(entry, &elector, &mark, stop_record, watchdog);
    supervise(entry, elector, work, (config, owed), starting, reporter).await.map_err(reason)
}

/// Campaigns and leads until the work is done or a signal asks the process to end.
async fn supervise(
    entry: &Entry,
    elector: Elector,
    work: Work,
    (config, owed): (GuardianConfig, Option<StopRecord>),
    starting: Arc<Mutex<()>>,
    reporter: &Reporter,
) -> Result<Exit, Failure> {
    warn_of_delegated_work(entry, &work, reporter);
    let settings = Settings {
        config,
        job: work.job,
        owed,
        wait: work.wait,
        restart: work.restart,
        has_peers: entry.peers.as_ref().is_some_and(|peers| peers.len() > 1),
    };
    let supervisor = Supervisor::new(elector.clone(), settings, reporter.clone(), starting)?;
    notify::ready(&elector);
    supervisor.run().await
}

/// Reports pauses of this process, and gives back the memory that only its start needed.
fn watch_this_process(elector: &Elector, reporter: &Reporter) {
    let timers = elector.timers();
    tokio::spawn(scheduling_delay::watch(
        (timers.kill_margin / 2).into(),
        timers.lease.into(),
        reporter.clone(),
    ));
    tokio::spawn(async {
        tokio::time::sleep(memory::SETTLING_TIME.into()).await;
        memory::let_go_of_program_text();
    });
}

/// Serves the metrics until the returned value is dropped.
fn serve_figures(
    server: metrics_http::Server,
    registry: Registry,
    elector: &Elector,
    reporter: &Reporter,
) -> std::io::Result<metrics_http::Serving> {
    let metrics = server.address().map(|address| address.to_string()).unwrap_or_default();
    reporter.tell(&Event::Serving { metrics });
    server.serve(registry, Some(elector.clone()))
}

/// Warns of a job whose work is done by another daemon, since that work does not end with the job.
fn warn_of_delegated_work(entry: &Entry, work: &Work, reporter: &Reporter) {
    let unstopped = work.job.as_ref().filter(|_| entry.stop_command.is_none());
    if let Some(message) = unstopped.and_then(|job| delegated_work::warning(&job.args)) {
        reporter.tell(&Event::Warning { message });
    }
}

/// Votes until a signal asks the process to end. There is no guardian, since a node that never leads has no job.
async fn bear_witness(elector: Elector, reporter: &Reporter) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    tokio::spawn(report_changes(elector.observe(), reporter.clone()));
    notify::ready(&elector);
    let ended = tokio::select! {
        signal = signals.next() => Ok(Exit::Signal(signal)),
        end = elector.closed() => Err(Failure::from(end)),
    };
    notify::stopping();
    elector.close().await;
    ended
}

fn end_leftovers(entry: &Entry, mark: &NodeMark, node: NodeId, reporter: &Reporter) -> Result<(), Failure> {
    let drain = entry.drain.unwrap_or(LEFTOVERS_DRAIN);
    // Each command that follows the job has as much time as the job.
    let follow = [&entry.stop_command, &entry.on_deposed].into_iter().flatten().map(|_| drain);
    let refused = |refusal| match refusal {
        StartRefusal::AlreadyRunning(supervisor) => {
            let message = format!(
                "the node {node} is already running here, as process {supervisor}: stop that one, or give this one \
                 another --node"
            );
            Failure::new(Exit::InUse, message)
        }
        StartRefusal::Unanswered(pids) => {
            let message = format!(
                "the environments of these processes cannot be read in time: {pids:?}; one of them may be a job that an \
                 earlier run of the node {node} left behind: end them, or restore the file system that they wait for"
            );
            Failure::new(Exit::System, message)
        }
    };
    let patience = drain + follow.sum::<Duration>() + LEFTOVERS_MARGIN;
    let ended = leftovers::end(mark, patience).map_err(refused)?;
    if ended > 0 {
        reporter.tell(&Event::LeftoversEnded { processes: ended });
    }
    Ok(())
}

/// Checks that the device can be used. An earlier run may have left the device armed, so this is called when nothing of
/// that run is left.
fn try_watchdog(watchdog: Option<&WatchdogSpec>, reporter: &Reporter) -> Result<(), Failure> {
    let Some(watchdog) = watchdog else { return Ok(()) };
    match watchdog.try_out() {
        Err(why) if watchdog.is_required => Err(Failure::new(Exit::Unavailable, why)),
        Err(why) => {
            reporter.tell(&Event::Warning { message: format!("{why}; this node leads without it") });
            Ok(())
        }
        Ok(()) => Ok(()),
    }
}

fn config(
    entry: &Entry,
    elector: &Elector,
    mark: &NodeMark,
    stop_record: Option<PathBuf>,
    watchdog: Option<WatchdogSpec>,
) -> GuardianConfig {
    let nanos = |duration: Duration| primacy::core::Duration::from(duration).as_nanos();
    let timers = elector.timers();
    GuardianConfig {
        supervisor: rustix::process::getpid().as_raw_nonzero().get(),
        election: elector.election().to_owned(),
        node: elector.identity().node.to_string(),
        mark: mark.of_this_process(),
        drain: nanos(timers.drain),
        kill_margin: nanos(timers.kill_margin),
        lease: nanos(timers.lease),
        stop_command: entry.stop_command.clone(),
        stop_record,
        on_elected: entry.on_elected.clone(),
        on_deposed: entry.on_deposed.clone(),
        death_notice: elector.death_notice_spec(),
        watchdog,
        json: entry.json.unwrap_or(false),
    }
}

/// Libraries that log a line for each act of another machine. Only their errors are shown, unless `PRIMACY_LOG` names
/// the library.
const NETWORK_LIBRARIES: [&str; 8] =
    ["h2", "hyper", "hyper_util", "rustls", "tokio_rustls", "tonic", "tower", "tokio_util"];

/// Returns the part of the log that is shown: the requested one, or warnings and worse.
fn log_filter(asked: &str) -> Result<Targets, ParseError> {
    let libraries: String = NETWORK_LIBRARIES.iter().map(|library| format!("{library}=error,")).collect();
    let asked = if asked.is_empty() { "warn" } else { asked };
    // Of two directives for one target, the later one counts.
    format!("{libraries}{asked}").parse()
}

/// Writes a field of a log line, shortened like the text of an error, since another machine may have written a part of
/// it.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = shortened(&format!("{value:?}"));
    match field.name() {
        "message" => writer.write_str(&text),
        name => write!(writer, "{name}={text}"),
    }
}

/// Shows what the library logs: warnings and worse, or what PRIMACY_LOG asks for.
pub(crate) fn log_to(reporter: &Reporter) {
    // An empty variable counts as not set.
    let asked = std::env::var("PRIMACY_LOG").unwrap_or_default();
    let filter = log_filter(&asked).unwrap_or_else(|error| {
        let message =
            format!("PRIMACY_LOG={asked} is not understood ({error}), and warnings alone are shown");
        reporter.tell(&Event::Warning { message });
        log_filter("").expect("it is our own")
    });
    let writer = reporter.log_writer();
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .fmt_fields(debug_fn(write_field).delimited(" "))
        .with_writer(move || writer.clone());
    let lines = if reporter.is_json() {
        lines.event_format(JsonLog(reporter.clone())).with_filter(filter).boxed()
    } else {
        lines.with_filter(filter).boxed()
    };
    tracing_subscriber::registry().with(lines).init();
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    /// Connections from other machines write no lines to the log, however many there are.
    #[test]
    fn libraries_that_log_what_others_do_log_errors_only_unless_they_are_named() {
        let shows = |asked: &str, level| log_filter(asked).unwrap().would_enable("h2", &level);
        for asked in ["", "info", "primacy=debug"] {
            assert!(shows(asked, Level::ERROR) && !shows(asked, Level::WARN), "{asked:?}");
        }
        assert!(shows("h2=debug", Level::DEBUG));
        assert!(log_filter("h2=loud").is_err());
    }
}
