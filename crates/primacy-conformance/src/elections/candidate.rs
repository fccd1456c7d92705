//! One node of a live election: it executes commands, and reports events. It runs within this process, or in a
//! separate process that reads commands and prints reports line by line.

use std::fmt;
use std::future::pending;
use std::io::BufRead;
use std::pin::Pin;
use std::str::FromStr;

use primacy::{CampaignError, Change, Elector, Leadership, clock};
use tokio::sync::mpsc;

/// The prefix of each line of a candidate's process.
pub(crate) const LINE: &str = "primacy-candidate ";

/// A command to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CandidateCommand {
    Campaign,
    Cancel,
    Resign,
    Check,
    Write,
}

const COMMANDS: [(CandidateCommand, &str); 5] = [
    (CandidateCommand::Campaign, "campaign"),
    (CandidateCommand::Cancel, "cancel"),
    (CandidateCommand::Resign, "resign"),
    (CandidateCommand::Check, "check"),
    (CandidateCommand::Write, "write"),
];

impl CandidateCommand {
    pub(crate) fn word(self) -> &'static str {
        COMMANDS.iter().find(|(command, _)| *command == self).map_or("", |(_, word)| word)
    }
}

/// A report of a node, with its time on the clock by which leases are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeReport {
    pub(crate) at: u64,
    pub(crate) event: CandidateEvent,
}

/// An event that a node reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CandidateEvent {
    Elected { term: u64, token: u64, until: u64 },
    Renewed { until: u64 },
    Ended,
    Checked { may_act: bool },
    Writes { token: u64 },
    Saw { term: Option<u64> },
}

impl fmt::Display for NodeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at)?;
        match self.event {
            CandidateEvent::Elected { term, token, until } => write!(f, "elected {term} {token} {until}."),
            CandidateEvent::Renewed { until } => write!(f, "renewed {until}."),
            CandidateEvent::Ended => write!(f, "ended."),
            CandidateEvent::Checked { may_act } => write!(f, "checked {}.", u8::from(may_act)),
            CandidateEvent::Writes { token } => write!(f, "writes {token}."),
            CandidateEvent::Saw { term: Some(term) } => write!(f, "saw {term}."),
            CandidateEvent::Saw { term: None } => write!(f, "saw."),
        }
    }
}

impl FromStr for NodeReport {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("a candidate does not say {line:?}");
        // A complete line ends with a full stop; one that was cut off does not.
        let words: Vec<&str> = line.strip_suffix('.').ok_or_else(wrong)?.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let event = match words[1..] {
            ["elected", term, token, until] => {
                CandidateEvent::Elected { term: number(term)?, token: number(token)?, until: number(until)? }
            }
            ["renewed", until] => CandidateEvent::Renewed { until: number(until)? },
            ["ended"] => CandidateEvent::Ended,
            ["checked", may_act] => CandidateEvent::Checked { may_act: number(may_act)? == 1 },
            ["writes", token] => CandidateEvent::Writes { token: number(token)? },
            ["saw", term] => CandidateEvent::Saw { term: Some(number(term)?) },
            ["saw"] => CandidateEvent::Saw { term: None },
            _ => return Err(wrong()),
        };
        Ok(Self { at: number(words[0])?, event })
    }
}

type Campaign = Pin<Box<dyn Future<Output = Result<Leadership, CampaignError>> + Send>>;

/// A node with its campaign and its leadership.
struct Candidate<F> {
    elector: Elector,
    campaign: Option<Campaign>,
    lead: Option<Leadership>,
    /// The token of its latest leadership.
    token: u64,
    /// The last reported end of its leadership.
    until: u64,
    tell: F,
}

/// An event of a leadership that no command caused.
enum Turn {
    Renewed(u64),
    Ended,
}

/// Executes commands until their sender is gone; then it resigns.
pub(crate) async fn campaign(
    elector: Elector,
    mut commands: mpsc::UnboundedReceiver<CandidateCommand>,
    tell: impl FnMut(NodeReport) + Send,
) {
    let mut observer = elector.observe();
    let mut node = Candidate { elector, campaign: None, lead: None, token: 0, until: 0, tell };
    loop {
        tokio::select! {
            // Commands take precedence over events: their sender relies on that.
            biased;
            command = commands.recv() => match command {
                Some(command) => node.fulfil(command),
                None => break,
            },
            result = elected(&mut node.campaign) => {
                node.campaign = None;
                match result {
                    Ok(lead) => node.lead(lead),
                    Err(error) => panic!("a candidate cannot stand: {error}"),
                }
            }
            turn = turn(node.lead.as_ref(), node.until) => match turn {
                Turn::Renewed(until) => {
                    node.until = until;
                    node.say(CandidateEvent::Renewed { until });
                }
                Turn::Ended => node.end(),
            },
            change = observer.changed() => match change {
                Some(Change::Leader(leader)) => {
                    node.say(CandidateEvent::Saw { term: leader.map(|leader| leader.term.0) });
                }
                Some(change @ (Change::Violation(_) | Change::Missed(_))) => panic!("{change:?}"),
                None => panic!("a candidate has ended by itself"),
            },
        }
    }
    node.end();
    node.elector.close().await;
}

async fn elected(campaign: &mut Option<Campaign>) -> Result<Leadership, CampaignError> {
    match campaign {
        Some(campaign) => campaign.await,
        None => pending().await,
    }
}

async fn turn(lead: Option<&Leadership>, known: u64) -> Turn {
    let Some(lead) = lead else { return pending().await };
    match lead.renewed(primacy::Instant::from_nanos(known)).await {
        Some(until) => Turn::Renewed(until.as_nanos()),
        None => Turn::Ended,
    }
}

impl<F: FnMut(NodeReport) + Send> Candidate<F> {
    fn fulfil(&mut self, command: CandidateCommand) {
        match command {
            CandidateCommand::Campaign if self.lead.is_some() || self.campaign.is_some() => {} // It does so already.
            CandidateCommand::Campaign => {
                let elector = self.elector.clone();
                self.campaign = Some(Box::pin(async move { elector.campaign().await }));
            }
            CandidateCommand::Cancel => {
                self.campaign = None;
                self.end();
            }
            CandidateCommand::Resign => self.end(),
            CandidateCommand::Check => {
                let may_act = self.lead.as_ref().is_some_and(|lead| lead.check().is_ok());
                self.say(CandidateEvent::Checked { may_act });
            }
            CandidateCommand::Write => self.say(CandidateEvent::Writes { token: self.token }),
        }
    }

    fn lead(&mut self, lead: Leadership) {
        (self.token, self.until) = (lead.token().0, lead.valid_until().as_nanos());
        let (term, token, until) = (lead.term().0, self.token, self.until);
        self.lead = Some(lead);
        self.say(CandidateEvent::Elected { term, token, until });
    }

    /// Stops acting as the leader, and gives up the lead if it still has it.
    fn end(&mut self) {
        if let Some(lead) = self.lead.take() {
            // Reported before the release, because others may lead from then on.
            self.say(CandidateEvent::Ended);
            drop(lead);
        }
    }

    fn say(&mut self, event: CandidateEvent) {
        (self.tell)(NodeReport { at: clock::now().as_nanos(), event });
    }
}

/// Runs a candidate's process: reads commands, one word per line, and prints reports.
pub(crate) async fn campaign_as_process(elector: Elector) {
    let (sender, commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let command = line.ok().and_then(|line| {
                COMMANDS.iter().find(|(_, word)| *word == line).map(|(command, _)| *command)
            });
            let Some(command) = command else { return };
            if sender.send(command).is_err() {
                return;
            }
        }
    });
    // Another program may have printed an incomplete line before.
    println!();
    campaign(elector, commands, |report| println!("{LINE}{report}")).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_as_it_was_or_not_at_all() {
        for event in [
            CandidateEvent::Elected { term: 1, token: 2, until: 3 },
            CandidateEvent::Renewed { until: u64::MAX },
            CandidateEvent::Ended,
            CandidateEvent::Checked { may_act: true },
            CandidateEvent::Checked { may_act: false },
            CandidateEvent::Writes { token: 0 },
            CandidateEvent::Saw { term: Some(7) },
            CandidateEvent::Saw { term: None },
        ] {
            let report = NodeReport { at: 12, event };
            let line = report.to_string();
            assert_eq!(line.parse(), Ok(report));
            for cut in 0..line.len() {
                line[..cut].parse::<NodeReport>().expect_err("it was cut off");
            }
        }
    }
}
