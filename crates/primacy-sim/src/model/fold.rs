//! A hash by folded multiplication: fast on the few words of states and keys.

use std::hash::{BuildHasherDefault, Hasher};

/// The hasher of maps whose keys are numbers.
pub(super) type BuildFold = BuildHasherDefault<Fold>;

/// The hash so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fold(u64);

/// The first digits of π, as a constant without hidden purpose; odd.
const FACTOR: u64 = 0x243F_6A88_85A3_08D3;

impl Fold {
    /// Adds one word.
    pub(super) fn add(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0x9E37_79B9_7F4A_7C15) * u128::from(FACTOR);
        let (low, high) = (product & u128::from(u64::MAX), product >> 64);
        self.0 = u64::try_from(low ^ high).expect("two halves of 64 bits").wrapping_add(word.rotate_left(23));
    }
}

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        let mut last = *self;
        last.add(0);
        last.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
        self.add(bytes.len() as u64);
    }

    fn write_u8(&mut self, number: u8) {
        self.add(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.add(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }
}
