//! Connections that were accepted and have not shaken hands yet.
//!
//! Anybody can make them, so there is a limit. When it is reached, the next one is still taken in, and another
//! has to go: the oldest of those that have said nothing; else the oldest that has not shown yet that it may be
//! here; else the oldest. A node speaks at once and shakes hands within a few round trips, so it gets through
//! however many connections say nothing or next to nothing, and however long they are allowed to. To keep it out,
//! others must make as many connections as the limit says, and speak over each, within that short time; and with TLS,
//! those who have no certificate cannot even then, once the node has shown its own.

use std::cell::RefCell;
use std::rc::Rc;

use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Those that are in their handshake, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    places: RefCell<Places>,
}

#[derive(Debug, Default)]
struct Places {
    taken: Vec<Place>,
    ever: u64,
}

#[derive(Debug)]
struct Place {
    number: u64,
    stage: Stage,
    tcp: Rc<TcpStream>,
    leave: Rc<Notify>,
}

/// What one has shown of itself. Who has shown less goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Silent,
    Spoken,
    /// Its certificate, or in cleartext what it says of itself, is right.
    Known,
}

/// One connection's place; dropping it makes room.
#[derive(Debug)]
pub(super) struct Stranger {
    strangers: Rc<Strangers>,
    number: u64,
    leave: Rc<Notify>,
}

impl Strangers {
    /// Takes one in, and whether another had to go for it.
    pub(super) fn enter(self: &Rc<Self>, tcp: &Rc<TcpStream>, limit: usize) -> (Stranger, bool) {
        let mut places = self.places.borrow_mut();
        let full = places.taken.len() >= limit.max(1);
        if full {
            let place = places.least();
            places.taken.remove(place).leave.notify_one();
        }
        let (number, leave) = (places.ever, Rc::new(Notify::new()));
        places.ever += 1;
        let (tcp, left) = (Rc::clone(tcp), Rc::clone(&leave));
        places.taken.push(Place { number, stage: Stage::Silent, tcp, leave: left });
        (Stranger { strangers: Rc::clone(self), number, leave }, full)
    }
}

impl Places {
    /// The place of the one that has shown least; of several, of the oldest.
    fn least(&self) -> usize {
        let silent =
            self.taken.iter().position(|place| place.stage == Stage::Silent && place.has_sent_nothing());
        let stages = || self.taken.iter().enumerate().min_by_key(|(_, place)| place.stage.max(Stage::Spoken));
        silent.or_else(|| stages().map(|(position, _)| position)).expect("it is full")
    }
}

impl Place {
    /// What has come may not have been looked at yet. To drop it for that would punish those who come when much
    /// comes.
    fn has_sent_nothing(&self) -> bool {
        let peeked = recv(&self.tcp, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        // Zero bytes are the end, and an error is one, too; but not that there is nothing yet.
        !matches!(peeked, Ok((count, _)) if count > 0)
    }
}

impl Stranger {
    pub(super) fn has_spoken(&self) {
        self.reach(Stage::Spoken);
    }

    pub(super) fn is_known(&self) {
        self.reach(Stage::Known);
    }

    fn reach(&self, stage: Stage) {
        let mut places = self.strangers.places.borrow_mut();
        if let Some(place) = places.taken.iter_mut().find(|place| place.number == self.number) {
            place.stage = place.stage.max(stage);
        }
    }

    /// Returns when it has to make room for another.
    pub(super) async fn must_leave(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.strangers.places.borrow_mut().taken.retain(|place| place.number != self.number);
    }
}
