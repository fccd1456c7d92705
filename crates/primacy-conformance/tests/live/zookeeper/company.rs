//! Foreign clients in the same election: kazoo's `Election`, from PyPI, and Curator's `LeaderLatch`, from Debian.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use primacy_conformance::live::zookeeper::{ZooKeeper, curator};
use primacy_conformance::live::{Ground, Server, program};
use primacy_core::election::session::QueuePosition;
use primacy_stores::Sessions;
use rustix::process::Signal;
use zookeeper_client::Client;

use super::{HANG, Kept, POLL, become_first, begin, holder, open_url, soon};

/// The timeout of the foreign clients' sessions, in seconds.
const TIMEOUT: &str = "2";
/// The number of times that each side leads.
const TIMES: usize = 12;
/// The time for which it leads each time, so that there is something to overlap, in seconds.
const HOLD: &str = "0.02";
/// Until it is stopped.
const FOR_LONG: &str = "1000";

/// The kind of client.
#[derive(Clone, Copy)]
enum Kind {
    Kazoo,
    Curator,
}

impl Kind {
    /// Primacy's name of its layout.
    const fn layout(self) -> &'static str {
        match self {
            Self::Kazoo => "kazoo",
            Self::Curator => "curator",
        }
    }

    /// The command that starts it; both kinds take the same arguments and print the same.
    fn command(self) -> Result<Command, String> {
        match self {
            Self::Kazoo => {
                let python = program("python3").and_then(has_kazoo)?;
                let mut command = Command::new(python);
                command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/zookeeper/election.py"));
                Ok(command)
            }
            Self::Curator => curator::latch(),
        }
    }
}

/// A process of a foreign client.
struct Stranger {
    server: Server,
    log: PathBuf,
}

impl Stranger {
    /// `None` if it is not installed.
    fn start(
        kind: Kind,
        ensemble: &ZooKeeper,
        election: &str,
        name: &str,
        (times, hold): (usize, &str),
    ) -> Option<Self> {
        let mut command = crate::found("zookeeper", kind.command())?;
        let path = format!("/company/{election}-{}", kind.layout());
        command.args([&ensemble.addresses(), &path, name, TIMEOUT, &times.to_string(), hold]);
        let ground: &Ground = ensemble.ground();
        let name = format!("{election}-{}-{name}", kind.layout());
        let server = Server::start(&name, command, ground);
        Some(Self { server, log: ground.at(&format!("{name}.log")) })
    }

    /// The rest of each of its lines that begins with this word.
    fn said(&self, what: &str) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let said = text.lines().filter_map(|line| line.split_once(' '));
        said.filter(|(said, _)| *said == what).map(|(_, rest)| rest.to_owned()).collect()
    }

    /// The times at which it printed this, by the machine's clock.
    fn times_of(&self, what: &str) -> Vec<u128> {
        self.said(what).iter().filter_map(|time| time.parse().ok()).collect()
    }

    async fn has_said(&mut self, what: &str) {
        let log = self.log.clone();
        let beginning = format!("{what} ");
        let said = async || {
            std::fs::read_to_string(&log)
                .is_ok_and(|text| text.lines().any(|line| line.starts_with(&beginning)))
        };
        self.server.until(said).await;
    }
}

fn has_kazoo(python: PathBuf) -> Result<PathBuf, String> {
    let imported = Command::new(&python).args(["-c", "import kazoo"]).output();
    match imported {
        Ok(output) if output.status.success() => Ok(python),
        Ok(_) | Err(_) => Err("python3 has no kazoo; `cargo xtask live` installs it".to_owned()),
    }
}

/// The clock of Python's `time.monotonic_ns` and of Java's `System.nanoTime`.
fn now() -> u128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("it began at zero");
    let rest = u32::try_from(now.tv_nsec).expect("less than a second");
    Duration::new(seconds, rest).as_nanos()
}

/// Primacy's handle on an election in which a foreign client campaigns.
async fn open(kind: Kind, ensemble: &ZooKeeper, election: &str) -> Arc<dyn Sessions> {
    let url = format!("zookeeper://{}/company?layout={}", ensemble.addresses(), kind.layout());
    open_url(&url, &format!("{election}-{}", kind.layout())).await
}

pub(crate) async fn kazoo_and_primacy_take_over_from_each_other(ensemble: &ZooKeeper) {
    take_over_from_each_other(Kind::Kazoo, ensemble).await;
}

pub(crate) async fn kazoo_and_primacy_never_lead_at_once(ensemble: &ZooKeeper) {
    never_lead_at_once(Kind::Kazoo, ensemble).await;
}

pub(crate) async fn latches_of_curator_and_primacy_take_over_from_each_other(ensemble: &ZooKeeper) {
    take_over_from_each_other(Kind::Curator, ensemble).await;
}

pub(crate) async fn latches_of_curator_and_primacy_never_lead_at_once(ensemble: &ZooKeeper) {
    never_lead_at_once(Kind::Curator, ensemble).await;
}

async fn take_over_from_each_other(kind: Kind, ensemble: &ZooKeeper) {
    let start = |name| Stranger::start(kind, ensemble, "turns", name, (1, FOR_LONG));
    // They lead until they are stopped.
    let Some(mut first) = start("stranger-1") else { return };
    first.has_said("leads").await;
    let ours = open(kind, ensemble, "turns").await;
    let seen = ours.first().await.expect("an answer").expect("it leads");
    let session = begin(&*ours).await;
    let kept = Kept::new(&ours, &session);
    let place = ours.campaign(&session, &holder("ours")).await.expect("a place");
    let QueuePosition::Behind { first: leader } = place else { panic!("the stranger leads") };
    assert_eq!(leader.holder.identity.node.as_str(), "stranger-1");
    assert_eq!(leader.holder.identity.incarnation.count, 0);
    assert_eq!(seen, leader, "who only looks is shown the same");
    assert_eq!(ours.ask_to_resign(leader.token, "somebody").await, Ok(false), "it does not understand that");
    let mut second = start("stranger-2").expect("it was there");
    second.has_said("stands").await;
    // It gives up in order, and Primacy is next.
    first.server.signal(Signal::TERM);
    let token = become_first(&*ours, &session, &holder("ours")).await.expect("it is first");
    assert!(token > leader.token);
    assert!(first.times_of("over").len() == 1 && second.times_of("leads").is_empty());
    let left_at = now();
    ours.leave(&session).await.expect("it leaves");
    second.has_said("leads").await;
    assert!(second.times_of("leads")[0] > left_at);
    // It is killed, and Primacy takes over when the servers have ended its session.
    drop(ours.campaign(&session, &holder("ours")).await.expect("a place"));
    second.server.kill();
    let later = become_first(&*ours, &session, &holder("ours")).await.expect("it is first");
    assert!(later > token);
    // And the other way round.
    let mut third = start("stranger-3").expect("it was there");
    third.has_said("stands").await;
    drop(kept);
    let ended_at = now();
    ours.end(&session).await.expect("it ends");
    third.has_said("leads").await;
    assert!(third.times_of("leads")[0] > ended_at);
    third.server.stop().await;
    assert_eq!(third.times_of("gone").len(), 1, "it has ended in order");
}

async fn never_lead_at_once(kind: Kind, ensemble: &ZooKeeper) {
    let ours = open(kind, ensemble, "both").await;
    let session = begin(&*ours).await;
    let _kept = Kept::new(&ours, &session);
    let mut tokens = vec![become_first(&*ours, &session, &holder("ours")).await.expect("it is first")];
    let mut began_at = now();
    // It has to be there before the first turn is over, so that they take turns.
    let mine = (TIMES, HOLD);
    let Some(mut stranger) = Stranger::start(kind, ensemble, "both", "stranger", mine) else { return };
    stranger.has_said("stands").await;
    let hold = Duration::from_secs_f64(HOLD.parse().expect("a number"));
    let mut terms = Vec::new();
    let lead = async {
        loop {
            tokio::time::sleep(hold).await;
            terms.push((began_at, now(), "ours"));
            ours.leave(&session).await.expect("it leaves");
            if terms.len() == TIMES {
                return;
            }
            tokens.push(become_first(&*ours, &session, &holder("ours")).await.expect("it is first"));
            began_at = now();
        }
    };
    soon(lead).await;
    stranger.has_said("gone").await;
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    let theirs = stranger.times_of("leads").into_iter().zip(stranger.times_of("over"));
    terms.extend(theirs.map(|(begin, end)| (begin, end, "theirs")));
    assert_eq!(terms.len(), 2 * TIMES, "within {HANG:?}");
    terms.sort_unstable();
    let mut handovers = 0;
    for pair in terms.windows(2) {
        let [(_, end, before), (begin, _, after)] = pair else { unreachable!("windows of two") };
        assert!(end < begin, "two led at once: {pair:?}");
        handovers += u32::from(before != after);
    }
    assert!(handovers > 2, "they did not take turns: {terms:?}");
}

/// A waiting latch is woken when the entry before it goes; but it asks once only, and the first event that it gets must be that.
pub(crate) async fn a_request_to_resign_costs_no_latch_of_curator_its_turn(ensemble: &ZooKeeper) {
    let ours = open(Kind::Curator, ensemble, "asked").await;
    let session = begin(&*ours).await;
    let _kept = Kept::new(&ours, &session);
    let token = become_first(&*ours, &session, &holder("ours")).await.expect("it is first");
    let latch = Stranger::start(Kind::Curator, ensemble, "asked", "stranger", (1, FOR_LONG));
    let Some(mut latch) = latch else { return };
    latch.has_said("stands").await;
    let [leader] = &*latch.said("leader") else { panic!("one leads") };
    assert!(
        leader.contains(r#""node":"ours""#),
        "to a latch, its leader is called what is in the entry: {leader}"
    );
    assert_eq!(ours.ask_to_resign(token, "somebody").await, Ok(true));
    soon(ours.changed()).await;
    let place = ours.campaign(&session, &holder("ours")).await;
    assert_eq!(place, Ok(QueuePosition::First { token, asked_to_resign: true }));
    ours.leave(&session).await.expect("it leaves");
    latch.has_said("leads").await;
    latch.server.stop().await;
}

/// The znodes that a latch makes above its entry are containers, which the servers remove when they are empty.
pub(crate) async fn an_election_that_curator_has_made_goes_and_comes_again(ensemble: &ZooKeeper) {
    let ours = open(Kind::Curator, ensemble, "made").await;
    let latch = Stranger::start(Kind::Curator, ensemble, "made", "stranger", (1, FOR_LONG));
    let Some(mut latch) = latch else { return };
    latch.has_said("leads").await;
    let strangers = ours.first().await.expect("an answer").expect("the stranger").token;
    latch.server.stop().await;
    let client = Client::connect(&ensemble.addresses()).await.expect("a server");
    let gone = async {
        while client.check_stat("/company/made-curator").await.expect("an answer").is_some() {
            tokio::time::sleep(POLL).await;
        }
    };
    soon(gone).await;
    assert_eq!(ours.first().await, Ok(None));
    let session = begin(&*ours).await;
    let _kept = Kept::new(&ours, &session);
    let token = become_first(&*ours, &session, &holder("ours")).await.expect("it is first");
    assert!(token > strangers, "{token} after {strangers}");
}
