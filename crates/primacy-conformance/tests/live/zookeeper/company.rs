//! Strangers in the same election: kazoo's `Election`, from PyPI.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use primacy_conformance::live::zookeeper::ZooKeeper;
use primacy_conformance::live::{Ground, Server, program};
use primacy_core::election::session::Place;
use rustix::process::Signal;

use super::{HANG, Kept, become_first, begin, holder, not_run, open_url, soon};

/// How long kazoo's sessions last, in seconds.
const TIMEOUT: &str = "2";
/// How often each side leads.
const TIMES: usize = 12;
/// How long it leads each time, so that there is something to overlap, in seconds.
const HOLD: &str = "0.02";

/// A process of kazoo.
struct Kazoo {
    server: Server,
    log: PathBuf,
}

impl Kazoo {
    /// `None` if it is not installed.
    fn start(ensemble: &ZooKeeper, election: &str, name: &str, times: usize, hold: &str) -> Option<Self> {
        let python = match program("python3").and_then(has_kazoo) {
            Ok(python) => python,
            Err(missing) => {
                not_run(&missing);
                return None;
            }
        };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/zookeeper/election.py");
        let mut command = Command::new(python);
        command.args([script, &ensemble.addresses(), &format!("/company/{election}"), name, TIMEOUT]);
        command.args([&times.to_string(), hold]);
        let ground: &Ground = ensemble.ground();
        let server = Server::start(name, command, ground);
        Some(Self { server, log: ground.at(&format!("{name}.log")) })
    }

    /// When it said this, by the machine's clock.
    fn times_of(&self, what: &str) -> Vec<u128> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let said = text.lines().filter_map(|line| line.split_once(' '));
        said.filter(|(said, _)| *said == what).filter_map(|(_, time)| time.parse().ok()).collect()
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

/// The clock of Python's `time.monotonic_ns`.
fn now() -> u128 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).expect("it began at zero");
    let rest = u32::try_from(now.tv_nsec).expect("less than a second");
    Duration::new(seconds, rest).as_nanos()
}

fn url(ensemble: &ZooKeeper) -> String {
    format!("zookeeper://{}/company?layout=kazoo", ensemble.addresses())
}

pub(crate) async fn kazoo_and_primacy_take_over_from_each_other(ensemble: &ZooKeeper) {
    // They lead until they are told to go.
    let Some(mut first) = Kazoo::start(ensemble, "turns", "stranger-1", 1, "1000") else { return };
    first.has_said("leads").await;
    let ours = open_url(&url(ensemble), "turns").await;
    let session = begin(&*ours).await;
    let kept = Kept::new(&ours, &session);
    let place = ours.stand(&session, &holder("ours")).await.expect("a place");
    let Place::Behind { first: leader } = place else { panic!("kazoo leads") };
    assert_eq!(leader.holder.identity.node.as_str(), "stranger-1");
    assert_eq!(leader.holder.identity.incarnation.count, 0);
    assert_eq!(ours.ask_to_resign(leader.token, "somebody").await, Ok(false), "it does not understand that");
    let mut second = Kazoo::start(ensemble, "turns", "stranger-2", 1, "1000").expect("it was there");
    second.has_said("stands").await;
    // kazoo gives up in order, and Primacy is next.
    first.server.signal(Signal::TERM);
    let token = become_first(&*ours, &session, &holder("ours")).await.expect("it is first");
    assert!(token > leader.token);
    assert!(first.times_of("over").len() == 1 && second.times_of("leads").is_empty());
    let left_at = now();
    ours.leave(&session).await.expect("it leaves");
    second.has_said("leads").await;
    assert!(second.times_of("leads")[0] > left_at);
    // kazoo is killed, and Primacy takes over when the servers have ended its session.
    drop(ours.stand(&session, &holder("ours")).await.expect("a place"));
    second.server.kill();
    let later = become_first(&*ours, &session, &holder("ours")).await.expect("it is first");
    assert!(later > token);
    // And the other way round.
    let mut third = Kazoo::start(ensemble, "turns", "stranger-3", 1, "1000").expect("it was there");
    third.has_said("stands").await;
    drop(kept);
    let ended_at = now();
    ours.end(&session).await.expect("it ends");
    third.has_said("leads").await;
    assert!(third.times_of("leads")[0] > ended_at);
}

pub(crate) async fn kazoo_and_primacy_never_lead_at_once(ensemble: &ZooKeeper) {
    let Some(mut kazoo) = Kazoo::start(ensemble, "both", "stranger", TIMES, HOLD) else { return };
    let ours = open_url(&url(ensemble), "both").await;
    let session = begin(&*ours).await;
    let _kept = Kept::new(&ours, &session);
    let hold = Duration::from_secs_f64(HOLD.parse().expect("a number"));
    let mut terms = Vec::new();
    let mut tokens = Vec::new();
    let lead = async {
        for _ in 0..TIMES {
            tokens.push(become_first(&*ours, &session, &holder("ours")).await.expect("it is first"));
            let began_at = now();
            tokio::time::sleep(hold).await;
            terms.push((began_at, now()));
            ours.leave(&session).await.expect("it leaves");
        }
    };
    soon(lead).await;
    kazoo.has_said("gone").await;
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    let theirs: Vec<_> = kazoo.times_of("leads").into_iter().zip(kazoo.times_of("over")).collect();
    assert_eq!((theirs.len(), terms.len()), (TIMES, TIMES), "within {HANG:?}");
    terms.extend(theirs);
    terms.sort_unstable();
    for pair in terms.windows(2) {
        let [(_, end), (begin, _)] = pair else { unreachable!("windows of two") };
        assert!(end < begin, "two led at once: {pair:?}");
    }
}
