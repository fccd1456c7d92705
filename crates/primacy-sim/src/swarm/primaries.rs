//! Nodes that distribute partitions among themselves, under all faults.
//!
//! As with operators, the commands are drawn from a generator of their own.

use primacy_core::rng::Rng;

use super::{Swarm, in_micros, one_in, text};
use crate::algorithm::Algorithm;
use crate::process_slot::ProcessSlot;

/// The constant that separates this generator from that of the rest of the world. With this value the worlds in
/// seeds.txt stay the same.
const APART: u64 = 0x7072_696d_6172_6966;

/// The offset of the numbers of nodes' sessions, above those of clients.
const SESSIONS: u64 = 1_000_000;

const GROUPS: [&str; 2] = ["p", "q"];

/// The clients of partitions.
#[derive(Debug)]
pub(crate) struct Sharing {
    rng: Rng,
    sessions: u64,
}

impl Sharing {
    /// Returns `Some` in one world of three.
    pub(crate) fn of(seed: u64) -> Option<Self> {
        let mut rng = Rng::new(seed ^ APART);
        one_in(&mut rng, 3).then_some(Self { rng, sessions: SESSIONS })
    }

    fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.rng.up_to(count.saturating_sub(1) as u64)).unwrap_or(0)
    }
}

impl<A: Algorithm> Swarm<A> {
    /// Sends requests about partitions to drawn nodes.
    pub(super) fn share(&mut self) {
        let Some(mut sharing) = self.sharing.take() else { return };
        for _ in 0..sharing.rng.up_to(2) {
            if let Some(command) = self.draw_share(&mut sharing) {
                self.tell(command);
            }
        }
        self.sharing = Some(sharing);
    }

    fn draw_share(&mut self, sharing: &mut Sharing) -> Option<String> {
        let count = self.world().slots().count();
        let (slot, other) = (ProcessSlot(sharing.index(count)), ProcessSlot(sharing.index(count)));
        if !self.runs(slot) {
            return None;
        }
        let (name, other) = (self.name(slot), self.name(other));
        let (group, index) = (GROUPS[sharing.index(GROUPS.len())], sharing.rng.up_to(4));
        let session = self.world().joined(slot);
        let command = match (sharing.rng.up_to(17), session) {
            (0..=5, None) => {
                sharing.sessions += 1;
                let longest = self.patience;
                let lives = longest.divided_by(2).plus(sharing.rng.duration_up_to(longest));
                format!("client {name} joins {} {}", sharing.sessions, text(in_micros(lives)))
            }
            (0..=3, Some(session)) => format!("client {name} gives back {session}"),
            (4, Some(session)) => format!("client {name} gives back all {session}"),
            (5, Some(session)) => format!("client {name} leaves {session}"),
            (6..=8, _) => format!("client {name} creates {group} {}", 1 + sharing.rng.up_to(4)),
            (9, _) => format!("client {name} drops {group}"),
            (10, _) => format!("client {name} drains {other}"),
            (11, _) => format!("client {name} undrains {other}"),
            (12..=13, _) => format!("client {name} moves {group} {index} to {other}"),
            _ => return self.write_as_primary(sharing, slot),
        };
        Some(command)
    }

    /// Draws a slow or fast write of a node to a partition whose primary it believes to be.
    fn write_as_primary(&mut self, sharing: &mut Sharing, slot: ProcessSlot) -> Option<String> {
        let node = self.world().node(slot).name;
        let runs = self.world().partitions(slot)?.runs_with_primary(node);
        let run = runs.get(sharing.index(runs.len()))?;
        let after = in_micros(sharing.rng.duration_up_to(self.patience.times(2)));
        Some(format!("write {node} {} {} late {}", run.group, run.range.start, text(after)))
    }
}
