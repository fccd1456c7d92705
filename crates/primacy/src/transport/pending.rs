//! Connections that were accepted and have not completed the handshake.
//!
//! Anyone can make them, so there is a limit. When it is reached, the next one is still accepted, and another is closed:
//! the oldest one that has sent nothing; else the oldest one that has not shown yet that it may be here; else the
//! oldest. A node speaks at once and shakes hands within a few round trips, so it gets through however many connections
//! send nothing or next to nothing, and however long they are allowed to. To keep it out, an attacker must make as many
//! connections as the limit, and speak over each, within that short time; and with TLS, an attacker without its
//! certificate cannot even then, once the node has shown it: of connections that show the same one, or in cleartext the
//! same name, only the latest few count for more than those that have shown nothing.

use std::cell::RefCell;
use std::rc::Rc;

use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// The most connections that may be known by the same certificate at a time. A process that takes its predecessor's
/// place may have one as well, and each has a guardian.
const KNOWN_BY_THE_SAME_MAX: usize = 4;

/// The connections in their handshake, the oldest first.
#[derive(Debug, Default)]
pub(super) struct PendingConnections {
    places: RefCell<Places>,
}

#[derive(Debug, Default)]
struct Places {
    taken: Vec<PendingSlot>,
    ever: u64,
}

#[derive(Debug)]
struct PendingSlot {
    number: u64,
    stage: ProofProgress,
    /// The certificate, or in cleartext the name, by which it is known.
    by: Vec<u8>,
    tcp: Rc<TcpStream>,
    leave: Rc<Notify>,
}

/// The progress of a connection's proof of identity. The one with least is closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProofProgress {
    Silent,
    Spoken,
    /// Its certificate, or in cleartext its hello, is right.
    Known,
}

/// A connection's place; dropping it makes room.
#[derive(Debug)]
pub(super) struct PendingConnection {
    pending: Rc<PendingConnections>,
    number: u64,
    leave: Rc<Notify>,
}

impl PendingConnections {
    /// Takes one in, and whether another had to go for it.
    pub(super) fn enter(self: &Rc<Self>, tcp: &Rc<TcpStream>, limit: usize) -> (PendingConnection, bool) {
        let mut places = self.places.borrow_mut();
        let full = places.taken.len() >= limit.max(1);
        if full {
            let place = places.least();
            places.taken.remove(place).leave.notify_one();
        }
        let (number, leave) = (places.ever, Rc::new(Notify::new()));
        places.ever += 1;
        let (tcp, left) = (Rc::clone(tcp), Rc::clone(&leave));
        places.taken.push(PendingSlot {
            number,
            stage: ProofProgress::Silent,
            by: Vec::new(),
            tcp,
            leave: left,
        });
        (PendingConnection { pending: Rc::clone(self), number, leave }, full)
    }
}

impl Places {
    fn of(&mut self, number: u64) -> Option<&mut PendingSlot> {
        self.taken.iter_mut().find(|place| place.number == number)
    }

    /// The place of the connection that has shown least; of several, of the oldest.
    fn least(&self) -> usize {
        let silent = self
            .taken
            .iter()
            .position(|place| place.stage == ProofProgress::Silent && place.has_sent_nothing());
        let stages =
            || self.taken.iter().enumerate().min_by_key(|(_, place)| place.stage.max(ProofProgress::Spoken));
        silent.or_else(|| stages().map(|(position, _)| position)).expect("it is full")
    }
}

impl PendingSlot {
    /// Bytes that have come may not have been looked at yet. To drop the connection for that would punish clients that
    /// come when much comes.
    fn has_sent_nothing(&self) -> bool {
        let peeked = recv(&self.tcp, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        // Zero bytes are the end, and an error is one, too; but not that there is nothing yet.
        !matches!(peeked, Ok((count, _)) if count > 0)
    }
}

impl PendingConnection {
    pub(super) fn has_spoken(&self) {
        let mut places = self.pending.places.borrow_mut();
        if let Some(place) = places.of(self.number) {
            place.stage = place.stage.max(ProofProgress::Spoken);
        }
    }

    /// Notes the certificate, or in cleartext the name, by which it is known; the first one counts.
    pub(super) fn is_known(&self, by: &[u8]) {
        let mut places = self.pending.places.borrow_mut();
        let Some(place) = places.of(self.number).filter(|place| place.stage < ProofProgress::Known) else {
            return;
        };
        (place.stage, place.by) = (ProofProgress::Known, by.to_vec());
        let mut same: Vec<&mut PendingSlot> = places
            .taken
            .iter_mut()
            .filter(|place| place.stage == ProofProgress::Known && place.by == by)
            .collect();
        if same.len() > KNOWN_BY_THE_SAME_MAX {
            same[0].stage = ProofProgress::Spoken;
        }
    }

    /// Returns when it has to make room for another.
    pub(super) async fn must_leave(&self) {
        self.leave.notified().await;
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        self.pending.places.borrow_mut().taken.retain(|place| place.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 8;

    #[test]
    fn those_who_show_the_same_certificate_keep_nobody_out_who_shows_another() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let all = Rc::new(PendingConnections::default());
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut far = Vec::new();
            let mut enter = async |by: &str| {
                far.push(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
                let tcp = Rc::new(listener.accept().await.unwrap().0);
                let pending = all.enter(&tcp, LIMIT).0;
                pending.has_spoken();
                pending.is_known(by.as_bytes());
                (tcp, pending)
            };
            let mut taken = vec![enter("peer").await];
            for _ in 0..LIMIT - 1 {
                taken.push(enter("thief").await);
            }
            // It is full, and all have shown a certificate. New connections take the places of the certificate that has
            // most.
            for newcomer in ["another peer", "yet another"] {
                taken.push(enter(newcomer).await);
            }
            let stay: Vec<u64> = all.places.borrow().taken.iter().map(|place| place.number).collect();
            assert_eq!(stay, [0, 3, 4, 5, 6, 7, 8, 9]);
            for (number, (_, pending)) in taken.iter().enumerate() {
                let leaves = tokio::select! {
                    biased;
                    () = pending.must_leave() => true,
                    () = std::future::ready(()) => false,
                };
                assert_eq!(leaves, [1, 2].contains(&number), "{number}");
            }
        });
    }
}
