//! The guide's table for choosing an election: the reasons for each, and the measurements, in Markdown.

use core::fmt::Write as _;

use primacy_core::election::{Algorithm, ElectionDescriptor};

use super::contender::Split;
use super::table::{at_once, in_words, surroundings};
use super::{ComparisonRow, Contender, Scenario, Setup};

/// The reasons to choose an election.
struct Choice {
    /// Its name, as a link from `docs/guide/choosing.md`.
    link: String,
    when: &'static str,
    guarantee: &'static str,
}

/// Returns the reasons, or `None` for a variant of another election, which the guide leaves out.
fn choice(contender: Contender) -> Option<Choice> {
    let (link, when, guarantee) = match contender {
        Contender::Quorum => return Some(among_peers(Algorithm::Quorum)),
        Contender::Ranked => return Some(among_peers(Algorithm::Ranked)),
        Contender::Seniority(Split::KeepMajority) => return Some(among_peers(Algorithm::Seniority)),
        Contender::Bully => return Some(among_peers(Algorithm::Bully)),
        Contender::Ring => return Some(among_peers(Algorithm::Ring)),
        Contender::RingBidirectional => return Some(among_peers(Algorithm::RingBidirectional)),
        Contender::Omega => return Some(among_peers(Algorithm::Omega)),
        Contender::Lease => {
            ("[lease](../algorithms/lease.md)", "there is a store with compare-and-set", "the same")
        }
        Contender::Session => (
            "[session](../algorithms/session.md)",
            "there is etcd, ZooKeeper or Consul, or other programs take part in the same election",
            "the same",
        ),
        Contender::Confirmed => (
            "[confirmed](../algorithms/confirmed.md)",
            "it matters which node leads: bully, a ring or seniority nominates (here bully), a quorum or a store confirms (here a quorum)",
            "that of the confirmation",
        ),
        Contender::Seniority(Split::Available) => (
            "seniority, `--split-brain available`",
            "two leaders are better than none",
            "advisory: each part has a leader",
        ),
        Contender::ConfirmedLease | Contender::Seniority(Split::KeepOldest | Split::Lease) => return None,
    };
    Some(Choice { link: link.to_owned(), when, guarantee })
}

fn among_peers(algorithm: Algorithm) -> Choice {
    let &ElectionDescriptor { name, choose_when, guarantee, .. } = algorithm.descriptor();
    let page = name.replace('-', "_");
    Choice { link: format!("[{name}](../algorithms/{page}.md)"), when: choose_when, guarantee }
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
