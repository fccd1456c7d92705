//! A live arm: three nodes of the library within this process, on real clocks.

use std::time::Duration;

use primacy::clock;
use primacy_stores::faulty::{Fault, FaultSwitch};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::candidate::{Wish, stand};
use super::harness::{Bounds, ElectionHarness, NODES, Need, Order, Pace, Seen, Waiting};
use super::listener::{Life, Listener, PATIENCE};
use super::venue::{Entry, Place, Venue};

/// Three nodes in this process.
#[derive(Debug)]
pub struct InProcess {
    name: &'static str,
    venue: Venue,
    setting: Option<Set>,
    nodes: [Option<Node>; NODES],
    listener: Listener,
}

/// The setting of one run of a law.
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
        Self { name, venue, setting: None, nodes: [const { None }; NODES], listener: Listener::new() }
    }

    async fn order_now(&mut self, number: usize, order: Order) {
        let wish = match order {
            Order::Start => return self.start(number).await,
            Order::Stop => {
                // Within one process nothing ends without notice: it leaves in order.
                if let Some(Node { life, wishes, task, .. }) = self.nodes[number].take() {
                    drop(wishes);
                    task.await.expect("a candidate that does not panic");
                    self.listener.tell_end(life);
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
        let Set { election, pace, place } = self.setting.clone().expect("it was begun");
        let entry = Entry { election, node: number, lease: self.venue.lease(pace), place };
        let (elector, switch) = entry.enter().await;
        let (wishes, orders) = mpsc::unbounded_channel();
        let (life, teller) = self.listener.new_life(number);
        let task = tokio::spawn(stand(elector, orders, move |told| teller.tell(told)));
        self.nodes[number] = Some(Node { life, wishes, task, switch });
    }

    fn switch(&self, number: usize, fault: Fault) {
        if let Some(node) = &self.nodes[number] {
            node.switch.always(fault);
        }
    }
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
            (Need::Silence, Venue::Store(_) | Venue::Server(_)) => None,
        }
    }

    fn begin<'a>(&'a mut self, election: &'a str, pace: Pace) -> Waiting<'a, ()> {
        Box::pin(async move {
            let place = self.venue.place(election, pace).await;
            self.setting = Some(Set { election: election.to_owned(), pace, place });
            self.listener.begin();
        })
    }

    fn order(&mut self, node: usize, order: Order) -> Waiting<'_, ()> {
        Box::pin(self.order_now(node, order))
    }

    fn next(&mut self) -> Waiting<'_, Option<Seen>> {
        Box::pin(async {
            let Self { listener, nodes, .. } = self;
            listener.next(|number| nodes[number].as_ref().map(|node| node.life)).await
        })
    }

    fn now(&self) -> u64 {
        clock::now().as_nanos()
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn bounds(&self) -> Bounds {
        self.venue.bounds(self.setting.as_ref().map_or(Pace::Quick, |stage| stage.pace))
    }

    fn stalled_since(&self, start: u64) -> Duration {
        self.listener.stalled_since(start)
    }
}
