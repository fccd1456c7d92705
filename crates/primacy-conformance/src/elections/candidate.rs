//! One node of a live election: it carries out orders, and reports what it sees. It runs within this process, or in a process of its own
//! that reads orders and prints reports line by line.

use std::fmt;
use std::future::pending;
use std::io::BufRead;
use std::pin::Pin;
use std::str::FromStr;

use primacy::{CampaignError, Change, Elector, Leadership, clock};
use tokio::sync::mpsc;

/// The prefix of each line of a candidate's process.
pub(crate) const LINE: &str = "primacy-candidate ";

/// An order to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Campaign,
    Cancel,
    Resign,
    Check,
    Write,
}

const WISHES: [(Wish, &str); 5] = [
    (Wish::Campaign, "campaign"),
    (Wish::Cancel, "cancel"),
    (Wish::Resign, "resign"),
    (Wish::Check, "check"),
    (Wish::Write, "write"),
];

impl Wish {
    pub(crate) fn word(self) -> &'static str {
        WISHES.iter().find(|(wish, _)| *wish == self).map_or("", |(_, word)| word)
    }
}

/// A report of a node, with its time on the clock that leases are counted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeReport {
    pub(crate) at: u64,
    pub(crate) news: News,
}

/// An event that a node reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
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
        match self.news {
            News::Elected { term, token, until } => write!(f, "elected {term} {token} {until}."),
            News::Renewed { until } => write!(f, "renewed {until}."),
            News::Ended => write!(f, "ended."),
            News::Checked { may_act } => write!(f, "checked {}.", u8::from(may_act)),
            News::Writes { token } => write!(f, "writes {token}."),
            News::Saw { term: Some(term) } => write!(f, "saw {term}."),
            News::Saw { term: None } => write!(f, "saw."),
        }
    }
}

impl FromStr for NodeReport {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("a candidate does not say {line:?}");
        // A line that was cut off has no full stop.
        let words: Vec<&str> = line.strip_suffix('.').ok_or_else(wrong)?.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let news = match words[1..] {
            ["elected", term, token, until] => {
                News::Elected { term: number(term)?, token: number(token)?, until: number(until)? }
            }
            ["renewed", until] => News::Renewed { until: number(until)? },
            ["ended"] => News::Ended,
            ["checked", may_act] => News::Checked { may_act: number(may_act)? == 1 },
            ["writes", token] => News::Writes { token: number(token)? },
            ["saw", term] => News::Saw { term: Some(number(term)?) },
            ["saw"] => News::Saw { term: None },
            _ => return Err(wrong()),
        };
        Ok(Self { at: number(words[0])?, news })
    }
}

type Campaign = Pin<Box<dyn Future<Output = Result<Leadership, CampaignError>> + Send>>;

/// A node with its campaign and its lead.
struct Candidate<F> {
    elector: Elector,
    campaign: Option<Campaign>,
    lead: Option<Leadership>,
    /// The token that it was given last.
    token: u64,
    /// The end of the lead that was reported last.
    until: u64,
    tell: F,
}

/// An event of a lead that no order caused.
enum Turn {
    Renewed(u64),
    Ended,
}

/// Carries out orders until the sender is gone; then it leaves in order.
pub(crate) async fn stand(
    elector: Elector,
    mut wishes: mpsc::UnboundedReceiver<Wish>,
    tell: impl FnMut(NodeReport) + Send,
) {
    let mut observer = elector.observe();
    let mut node = Candidate { elector, campaign: None, lead: None, token: 0, until: 0, tell };
    loop {
        tokio::select! {
            // An order comes before the next event: its sender counts on that.
            biased;
            wish = wishes.recv() => match wish {
                Some(wish) => node.fulfil(wish),
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
                    node.say(News::Renewed { until });
                }
                Turn::Ended => node.end(),
            },
            change = observer.changed() => match change {
                Some(Change::Leader(leader)) => {
                    node.say(News::Saw { term: leader.map(|leader| leader.term.0) });
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
    fn fulfil(&mut self, wish: Wish) {
        match wish {
            Wish::Campaign if self.lead.is_some() || self.campaign.is_some() => {} // It does so already.
            Wish::Campaign => {
                let elector = self.elector.clone();
                self.campaign = Some(Box::pin(async move { elector.campaign().await }));
            }
            Wish::Cancel => {
                self.campaign = None;
                self.end();
            }
            Wish::Resign => self.end(),
            Wish::Check => {
                let may_act = self.lead.as_ref().is_some_and(|lead| lead.check().is_ok());
                self.say(News::Checked { may_act });
            }
            Wish::Write => self.say(News::Writes { token: self.token }),
        }
    }

    fn lead(&mut self, lead: Leadership) {
        (self.token, self.until) = (lead.token().0, lead.valid_until().as_nanos());
        let (term, token, until) = (lead.term().0, self.token, self.until);
        self.lead = Some(lead);
        self.say(News::Elected { term, token, until });
    }

    /// Acts as the leader no more, and gives up the lead if it still has it.
    fn end(&mut self) {
        if let Some(lead) = self.lead.take() {
            // Reported first: others may lead from the moment when it is given up.
            self.say(News::Ended);
            drop(lead);
        }
    }

    fn say(&mut self, news: News) {
        (self.tell)(NodeReport { at: clock::now().as_nanos(), news });
    }
}

/// Runs a candidate's process: reads orders, a word a line, and prints reports.
pub(crate) async fn stand_as_process(elector: Elector) {
    let (sender, wishes) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let wish = line
                .ok()
                .and_then(|line| WISHES.iter().find(|(_, word)| *word == line).map(|(wish, _)| *wish));
            let Some(wish) = wish else { return };
            if sender.send(wish).is_err() {
                return;
            }
        }
    });
    // The line before may be another program's, and not ended.
    println!();
    stand(elector, wishes, |report| println!("{LINE}{report}")).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_as_it_was_or_not_at_all() {
        for news in [
            News::Elected { term: 1, token: 2, until: 3 },
            News::Renewed { until: u64::MAX },
            News::Ended,
            News::Checked { may_act: true },
            News::Checked { may_act: false },
            News::Writes { token: 0 },
            News::Saw { term: Some(7) },
            News::Saw { term: None },
        ] {
            let report = NodeReport { at: 12, news };
            let line = report.to_string();
            assert_eq!(line.parse(), Ok(report));
            for cut in 0..line.len() {
                line[..cut].parse::<NodeReport>().expect_err("it was cut off");
            }
        }
    }
}
