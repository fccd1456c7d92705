//! A live arm: three nodes of the library within this process, on real clocks.

use std::time::Duration;

use primacy::clock;
use primacy_core::{Fence, FencingToken};
use primacy_stores::faulty::{Fault, FaultSwitch};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::candidate::{News, Told, Wish, stand};
use super::harness::{Bounds, ElectionHarness, NODES, Need, Order, Pace, Seen, Waiting, What};
use super::venue::{Entry, Place, Venue};
use crate::stalls::Stalls;

/// How long is waited for something that must come: far longer than anything takes that works.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Three nodes in this process.
#[derive(Debug)]
pub struct InProcess {
    name: &'static str,
    venue: Venue,
    stage: Option<Set>,
    nodes: [Option<Node>; NODES],
    news: mpsc::UnboundedReceiver<(Life, Told)>,
    tell: mpsc::UnboundedSender<(Life, Told)>,
    /// How often a node was started.
    lives: u64,
    resource: Fence,
    stalls: Stalls,
}

/// One life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) node: usize,
    /// Counted from 1; 0 for what is told of a node after its end.
    pub(super) number: u64,
}

impl Life {
    /// Whether what it tells is news while `current` lives: what it told before it was stopped, and nobody has looked at,
    /// is not.
    pub(super) fn is_news(self, current: Option<Self>) -> bool {
        self.number == 0 || current == Some(self)
    }
}

/// What one run of a law is about.
#[derive(Clone, Debug)]
struct Set {
    election: String,
    pace: Pace,
    place: Place,
}

#[derive(Debug)]
struct Node {
    life: Life,
    wishes: mpsc::UnboundedSender<Wish>,
    task: JoinHandle<()>,
    switch: FaultSwitch,
}

impl InProcess {
    /// Nodes that hold their elections there.
    #[must_use]
    pub fn new(name: &'static str, venue: Venue) -> Self {
        let (tell, news) = mpsc::unbounded_channel();
        let (nodes, resource, stalls) = ([const { None }; NODES], Fence::default(), Stalls::watch());
        Self { name, venue, stage: None, nodes, news, tell, lives: 0, resource, stalls }
    }

    async fn order_now(&mut self, number: usize, order: Order) {
        let wish = match order {
            Order::Start => return self.start(number).await,
            Order::Stop => {
                // Within one process nothing ends without a word: it leaves in order.
                if let Some(Node { life, wishes, task, .. }) = self.nodes[number].take() {
                    drop(wishes);
                    task.await.expect("a candidate that does not panic");
                    let told = Told { at: self.now(), news: News::Ended };
                    // The other end is kept here.
                    let _ = self.tell.send((Life { number: 0, ..life }, told));
                }
                return;
            }
            Order::Silence => return self.switch(number, Fault::LoseRequest),
            Order::Heal => return self.switch(number, Fault::None),
            Order::Pause | Order::Resume | Order::SlowestClock => unreachable!("it is not claimed"),
            Order::Campaign => Wish::Campaign,
            Order::Cancel => Wish::Cancel,
            Order::Resign => Wish::Resign,
            Order::Check => Wish::Check,
            Order::Write => Wish::Write,
        };
        let node = self.nodes[number].as_ref().expect("it was started");
        node.wishes.send(wish).expect("a candidate that does not panic");
    }

    async fn start(&mut self, number: usize) {
        let Set { election, pace, place } = self.stage.clone().expect("it was begun");
        let entry = Entry { election, node: number, lease: self.venue.lease(pace), place };
        let (elector, switch) = entry.enter().await;
        let (wishes, orders) = mpsc::unbounded_channel();
        self.lives += 1;
        let (life, tell) = (Life { node: number, number: self.lives }, self.tell.clone());
        let task = tokio::spawn(stand(elector, orders, move |told| {
            // At the end of a law nobody listens.
            let _ = tell.send((life, told));
        }));
        self.nodes[number] = Some(Node { life, wishes, task, switch });
    }

    fn switch(&self, number: usize, fault: Fault) {
        if let Some(node) = &self.nodes[number] {
            node.switch.always(fault);
        }
    }
}

/// What is seen in what a node tells; a write is shown to the resource.
pub(super) fn seen(node: usize, told: Told, resource: &mut Fence) -> Seen {
    let what = match told.news {
        News::Elected { term, token, until } => What::Elected { term, token, until },
        News::Renewed { until } => What::Renewed { until },
        News::Ended => What::Ended,
        News::Checked { may_act } => What::Checked { may_act },
        News::Writes { token } => {
            What::Wrote { token, is_accepted: resource.admit(FencingToken(token)).is_ok() }
        }
        News::Saw { term } => What::Saw { term },
    };
    Seen { at: told.at, node, what }
}

impl ElectionHarness for InProcess {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn lacks(&self, need: Need) -> Option<&'static str> {
        match (need, &self.venue) {
            (Need::Pause, _) => Some("within one process no node can be stopped alone"),
            (Need::Drift, _) => Some("all nodes of one machine have its clock"),
            (Need::Silence, Venue::Peers(_)) => Some("within one process no socket can be cut"),
            (Need::Silence, Venue::Store(_)) => None,
        }
    }

    fn begin<'a>(&'a mut self, election: &'a str, pace: Pace) -> Waiting<'a, ()> {
        Box::pin(async move {
            let place = self.venue.place(election, pace).await;
            self.stage = Some(Set { election: election.to_owned(), pace, place });
            self.resource = Fence::default();
            (self.tell, self.news) = mpsc::unbounded_channel();
        })
    }

    fn order(&mut self, node: usize, order: Order) -> Waiting<'_, ()> {
        Box::pin(self.order_now(node, order))
    }

    fn next(&mut self) -> Waiting<'_, Option<Seen>> {
        Box::pin(async {
            loop {
                let (life, told) = tokio::time::timeout(PATIENCE, self.news.recv()).await.ok()??;
                let current = self.nodes[life.node].as_ref().map(|node| node.life);
                if life.is_news(current) {
                    return Some(seen(life.node, told, &mut self.resource));
                }
            }
        })
    }

    fn now(&self) -> u64 {
        clock::now().as_nanos()
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn bounds(&self) -> Bounds {
        self.venue.bounds(self.stage.as_ref().map_or(Pace::Quick, |stage| stage.pace))
    }

    fn stalled_since(&self, start: u64) -> Duration {
        self.stalls.in_the_latest(Duration::from_nanos(self.now().saturating_sub(start)))
    }
}
