//! Pending connections: accepted, with an unfinished handshake.
//!
//! Any client can make them, so there is a limit. When it is reached, the next one is still accepted, and another is
//! closed: the oldest that has sent nothing; otherwise the oldest that has not proved its identity; otherwise the
//! oldest. A node sends its hello at once and completes the handshake within a few round trips. So it succeeds, however
//! many connections send little or nothing, and however long their timeout is. To keep a node out, an attacker must make
//! as many connections as the limit and send data over each, within that short time. With TLS, an attacker without the
//! node's certificate cannot do it even then, once the node has presented it: of connections with the same certificate
//! (in cleartext, the same name), only the latest few rank above unproved ones.

use std::cell::RefCell;
use std::rc::Rc;

use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// The most connections with the same certificate that rank as known. A process and its predecessor may connect at the
/// same time, each with a guardian.
const KNOWN_BY_THE_SAME_MAX: usize = 4;

/// The pending connections, the oldest first.
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
    /// The certificate, or in cleartext the name, that it has presented.
    by: Vec<u8>,
    tcp: Rc<TcpStream>,
    leave: Rc<Notify>,
}

/// The progress of a connection's proof of identity. The connection with the least progress is closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProofProgress {
    Silent,
    Spoken,
    /// Its certificate, or in cleartext its hello, is right.
    Known,
}

/// The registration of a pending connection; dropping it makes room.
#[derive(Debug)]
pub(super) struct PendingConnection {
    pending: Rc<PendingConnections>,
    number: u64,
    leave: Rc<Notify>,
}

impl PendingConnections {
    /// Registers a connection; returns true if another one must be closed for it.
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

    /// The index of the connection with the least progress; of several, the oldest.
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
    /// Peeks at the socket: bytes may have arrived that were not processed yet. To close the connection then would
    /// punish clients that connect at a busy time.
    fn has_sent_nothing(&self) -> bool {
        let peeked = recv(&self.tcp, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        // Zero bytes are the end, and errors count as the end too; but `WouldBlock` means that nothing has arrived.
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

    /// Records the certificate, or in cleartext the name, that it has presented; only the first one counts.
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

    /// Resolves when the connection must make room for another one.
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
            // The limit is reached, and all have presented a certificate. New connections replace those of the
            // certificate with most connections.
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
