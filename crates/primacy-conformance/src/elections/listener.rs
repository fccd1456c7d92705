//! What all live arms share: who listens to the nodes, and shows what they write to the resource.

use std::time::Duration;

use primacy::clock;
use primacy_core::{Fence, FencingToken};
use tokio::sync::mpsc;

use super::candidate::{News, Told};
use super::harness::{Seen, What};
use crate::stalls::Stalls;

/// How long is waited for something that must come: far longer than anything takes that works.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Listens to the nodes of one arm.
#[derive(Debug)]
pub(super) struct Listener {
    news: mpsc::UnboundedReceiver<(Life, Told)>,
    tell: mpsc::UnboundedSender<(Life, Told)>,
    /// How many lives of nodes there have been.
    lives: u64,
    resource: Fence,
    stalls: Stalls,
}

/// One life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    node: usize,
    /// Counted from 1; 0 for what is told of a node after its end.
    number: u64,
}

/// Tells what one life of a node has to tell.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    life: Life,
    tell: mpsc::UnboundedSender<(Life, Told)>,
}

impl Teller {
    /// At the end of a law nobody listens, and then it is lost.
    pub(super) fn tell(&self, told: Told) {
        let _ = self.tell.send((self.life, told));
    }
}

impl Listener {
    pub(super) fn new() -> Self {
        let (tell, news) = mpsc::unbounded_channel();
        Self { news, tell, lives: 0, resource: Fence::default(), stalls: Stalls::watch() }
    }

    /// For the next law: with another resource, and nothing of what was told so far.
    pub(super) fn begin(&mut self) {
        self.resource = Fence::default();
        (self.tell, self.news) = mpsc::unbounded_channel();
    }

    /// A new life of this node, and who tells of it.
    pub(super) fn new_life(&mut self, node: usize) -> (Life, Teller) {
        self.lives += 1;
        let life = Life { node, number: self.lives };
        (life, Teller { life, tell: self.tell.clone() })
    }

    /// Nothing of this life acts after this; and what it told before it was stopped, and nobody has looked at, is of the
    /// past.
    pub(super) fn tell_end(&self, life: Life) {
        let teller = Teller { life: Life { number: 0, ..life }, tell: self.tell.clone() };
        teller.tell(Told { at: clock::now().as_nanos(), news: News::Ended });
    }

    /// The next news of a life that is the current one of its node; `None` if none comes.
    pub(super) async fn next(&mut self, current: impl Fn(usize) -> Option<Life>) -> Option<Seen> {
        loop {
            let (life, told) = tokio::time::timeout(PATIENCE, self.news.recv()).await.ok()??;
            if life.number == 0 || current(life.node) == Some(life) {
                return Some(self.see(life.node, told));
            }
        }
    }

    /// How long the machine has let others wait since then.
    pub(super) fn stalled_since(&self, start: u64) -> Duration {
        self.stalls.in_the_latest(Duration::from_nanos(clock::now().as_nanos().saturating_sub(start)))
    }

    /// What is seen in what a node tells; a write is shown to the resource.
    fn see(&mut self, node: usize, told: Told) -> Seen {
        let what = match told.news {
            News::Elected { term, token, until } => What::Elected { term, token, until },
            News::Renewed { until } => What::Renewed { until },
            News::Ended => What::Ended,
            News::Checked { may_act } => What::Checked { may_act },
            News::Writes { token } => {
                What::Wrote { token, is_accepted: self.resource.admit(FencingToken(token)).is_ok() }
            }
            News::Saw { term } => What::Saw { term },
        };
        Seen { at: told.at, node, what }
    }
}
