//! The visited states: a 64-bit fingerprint of each, and its predecessor.

/// The step by which a state was first reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Predecessor {
    /// The index of the previous state; for an initial state, its own index.
    pub(super) from: u32,
    /// The number of the step.
    pub(super) step: u32,
}

/// A set of fingerprints, in the order of insertion. Two states with the same fingerprint are taken for one: among
/// 10⁸ states that happens with a probability of 3 in 10,000.
#[derive(Debug)]
pub(super) struct Visited {
    fingerprints: Vec<u64>,
    predecessors: Vec<Predecessor>,
    /// Indexes into the lists above, or `EMPTY`, hashed by fingerprint; at most half full.
    slots: Vec<u32>,
}

const EMPTY: u32 = u32::MAX;

impl Visited {
    pub(super) fn new() -> Self {
        Self { fingerprints: Vec::new(), predecessors: Vec::new(), slots: vec![EMPTY; 1 << 16] }
    }

    pub(super) fn count(&self) -> usize {
        self.fingerprints.len()
    }

    pub(super) fn predecessor(&self, place: u32) -> Predecessor {
        self.predecessors[place as usize]
    }

    /// Adds a state. Returns its index if it is new.
    ///
    /// # Panics
    /// After 2³² − 1 states.
    pub(super) fn insert(&mut self, fingerprint: u64, predecessor: Option<Predecessor>) -> Option<u32> {
        let mut slot = self.slot(fingerprint);
        while self.slots[slot] != EMPTY {
            if self.fingerprints[self.slots[slot] as usize] == fingerprint {
                return None;
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
        let place = u32::try_from(self.fingerprints.len()).expect("fewer than 2^32 states");
        self.slots[slot] = place;
        self.fingerprints.push(fingerprint);
        self.predecessors.push(predecessor.unwrap_or(Predecessor { from: place, step: 0 }));
        if self.fingerprints.len() * 2 > self.slots.len() {
            self.grow();
        }
        Some(place)
    }

    fn slot(&self, fingerprint: u64) -> usize {
        usize::try_from(fingerprint & (self.slots.len() as u64 - 1)).expect("below the number of slots")
    }

    fn grow(&mut self) {
        self.slots = vec![EMPTY; self.slots.len() * 2];
        for (place, &fingerprint) in (0_u32..).zip(&self.fingerprints) {
            let mut slot = self.slot(fingerprint);
            while self.slots[slot] != EMPTY {
                slot = (slot + 1) & (self.slots.len() - 1);
            }
            self.slots[slot] = place;
        }
    }
}
