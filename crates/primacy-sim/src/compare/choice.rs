//! The guide's table for choosing an election: the reasons for each, and the measurements, in Markdown.

use core::fmt::Write as _;

use super::contender::Split;
use super::table::{at_once, in_words, surroundings};
use super::{ComparisonRow, Contender, Scenario, Setup};

/// The reasons to choose an election.
struct Choice {
    /// Its name, as a link from `docs/guide/choosing.md`.
    link: &'static str,
    when: &'static str,
    guarantee: &'static str,
}

/// Returns the reasons, or `None` for a variant of another election, which the guide leaves out.
const fn choice(contender: Contender) -> Option<Choice> {
    let (link, when, guarantee) = match contender {
        Contender::Quorum => (
            "[quorum](../algorithms/quorum.md)",
            "there are three or more nodes and no store",
            "one leader at a time under the drift bound; a token",
        ),
        Contender::Lease => {
            ("[lease](../algorithms/lease.md)", "there is a store with compare-and-set", "the same")
        }
        Contender::Session => (
            "[session](../algorithms/session.md)",
            "there is etcd, ZooKeeper or Consul, or other programs take part in the same election",
            "the same",
        ),
        Contender::Ranked => {
            ("[ranked](../algorithms/ranked.md)", "the server that has seen most should lead", "a token")
        }
        Contender::Confirmed => (
            "[confirmed](../algorithms/confirmed.md)",
            "it matters which node leads: bully, a ring or seniority nominates (here bully), a quorum or a store confirms (here a quorum)",
            "that of the confirmation",
        ),
        Contender::Seniority(Split::KeepMajority) => (
            "[seniority](../algorithms/seniority.md)",
            "nodes come and go, and the oldest should lead",
            "advisory: for a while two may lead",
        ),
        Contender::Seniority(Split::Available) => (
            "seniority, `--split-brain available`",
            "two leaders are better than none",
            "advisory: each part has a leader",
        ),
        Contender::Bully => (
            "[bully](../algorithms/bully.md)",
            "to learn, or to nominate",
            "advisory: two leaders in a partition, no token",
        ),
        Contender::Ring => ("[ring](../algorithms/ring.md)", "to learn, or to nominate", "the same"),
        Contender::RingBidirectional => {
            ("[ring, both ways](../algorithms/ring_bidirectional.md)", "to learn, or to nominate", "the same")
        }
        Contender::ConfirmedLease | Contender::Seniority(Split::KeepOldest | Split::Lease) => return None,
    };
    Some(Choice { link, when, guarantee })
}

/// The table of `docs/guide/choosing.md`, from the rows of all contenders and scenarios.
#[must_use]
pub fn choices(setup: &Setup, runs: u64, rows: &[ComparisonRow]) -> String {
    let mut text = String::new();
    // Writing to a string never fails.
    let _ = writeln!(
        text,
        "| Election | Choose it when | Guarantee | Without a leader: it is killed | its host is silent | \
         Leaders at once in a split | Messages of an election | Needless changes |"
    );
    let _ = writeln!(text, "|---|---|---|---|---|---|---|---|");
    for &contender in Contender::ALL {
        let Some(Choice { link, when, guarantee }) = choice(contender) else { continue };
        let of = |scenario| rows.iter().find(|row| row.contender == contender && row.scenario == scenario);
        let told = |scenario, tell: fn(&ComparisonRow) -> String| {
            of(scenario).filter(|row| row.runs > 0).map_or_else(|| "–".to_owned(), tell)
        };
        let _ = writeln!(
            text,
            "| {link} | {when} | {guarantee} | {} | {} | {} | {} | {} |",
            told(Scenario::Crash, |row| in_words(row.leaderless.median)),
            told(Scenario::PowerLoss, |row| in_words(row.leaderless.median)),
            told(Scenario::Split, at_once),
            told(Scenario::Crash, |row| row.beyond_routine.median.to_string()),
            told(Scenario::BadLink, |row| row.needless.median.to_string()),
        );
    }
    let _ = writeln!(
        text,
        "\nMeasured by `primacy-lab compare --markdown` in the simulator: {}; medians, and the worst run for the leaders at once. \
         The timers are those of `primacy run`: a lease of {} among peers, and of {} over a store. The needless changes are those \
         while one link is bad six times.",
        surroundings(setup, runs),
        in_words(setup.peers.lease),
        in_words(setup.store.lease),
    );
    text
}
