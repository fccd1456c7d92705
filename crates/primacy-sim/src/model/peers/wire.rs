//! The set of all messages ever sent. Messages are never removed: each may arrive at any later moment, any number of
//! times, or never. So this covers loss, doubling, delay and reordering of every message without a bound, and with
//! fewer states than counting copies would need.

/// The maximum number of distinct messages.
const ROOM: usize = 64 * WORDS;
const WORDS: usize = 16;

/// A set of messages, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wire([u64; WORDS]);

impl Wire {
    /// Adds a message.
    ///
    /// # Panics
    /// If its number exceeds the capacity of the set.
    pub(super) fn add(&mut self, item: u16) {
        let item = usize::from(item);
        assert!(item < ROOM, "no room for more than {ROOM} different messages");
        self.0[item / 64] |= 1 << (item % 64);
    }

    /// Returns the union of both sets.
    pub(super) fn with(mut self, other: &Self) -> Self {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word |= other;
        }
        self
    }

    /// Returns the messages of this set that are in `wanted` and not in `unwanted`.
    pub(super) fn among(&self, wanted: &Self, unwanted: &Self) -> impl Iterator<Item = u16> {
        let words = self.0.iter().zip(wanted.0).zip(unwanted.0);
        let words: [u64; WORDS] = {
            let mut both = [0; WORDS];
            for (place, ((&here, wanted), unwanted)) in both.iter_mut().zip(words) {
                *place = here & wanted & !unwanted;
            }
            both
        };
        (0_u16..).step_by(64).zip(words).flat_map(|(first, mut word)| {
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros();
                word &= word.wrapping_sub(1);
                u16::try_from(bit).ok().filter(|&bit| bit < 64).map(|bit| first + bit)
            })
        })
    }

    /// Returns the non-zero words, with their indexes.
    pub(super) fn words(&self) -> impl Iterator<Item = (u64, u64)> {
        (0_u64..).zip(self.0).filter(|&(_, word)| word != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_stays_sent_and_is_there_once() {
        let of = |items: &[u16]| {
            items.iter().fold(Wire::default(), |wire, &item| {
                wire.with(&{
                    let mut one = Wire::default();
                    one.add(item);
                    one
                })
            })
        };
        let (sent, wanted) = (of(&[0, 63, 64, 200]), of(&[63, 64, 1000]));
        let found: Vec<u16> = sent.among(&wanted, &of(&[64])).collect();
        assert_eq!(found, [63]);
        let found: Vec<u16> = sent.among(&wanted, &of(&[])).collect();
        assert_eq!(found, [63, 64]);
        assert_eq!(sent.with(&sent), sent);
        assert_eq!(sent.with(&wanted), of(&[0, 63, 64, 200, 1000]));
    }
}
