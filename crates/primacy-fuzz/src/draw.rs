//! Inputs that are drawn: bytes near others, and values out of bytes.

use primacy_core::rng::Rng;

/// The largest number of changes made to one input.
const CHANGES_MAX: u64 = 6;
/// The largest number of bytes that one change touches.
const CHANGE_LENGTH_MAX: u64 = 32;
/// The largest length of a drawn input, in bytes.
const LENGTH_MAX: usize = 2 * super::KEPT_LENGTH_MAX;
/// Numbers at which code tends to be wrong.
const EDGES: [u64; 8] = [0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, u64::MAX];

/// A few changes to one of these inputs.
pub(crate) fn near(inputs: &[&[u8]], random: &mut Rng) -> Vec<u8> {
    let mut bytes = inputs[index(inputs.len(), random)].to_vec();
    for _ in 0..=random.up_to(CHANGES_MAX - 1) {
        let other = inputs[index(inputs.len(), random)];
        change(&mut bytes, other, random);
    }
    bytes.truncate(LENGTH_MAX);
    bytes
}

/// One change: something is flipped, replaced, put in, taken out or cut off.
fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Rng) {
    let at = index(bytes.len() + 1, random);
    let length = 1 + usize::try_from(random.up_to(CHANGE_LENGTH_MAX - 1)).unwrap_or_default();
    let end = bytes.len().min(at + length);
    match random.up_to(6) {
        0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.up_to(7)),
        1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = low_byte(random)),
        2 => drop(bytes.drain(at..end)),
        3 => bytes.truncate(at),
        4 => {
            let edge = EDGES[index(EDGES.len(), random)].to_be_bytes();
            let width = 1_usize << random.up_to(3);
            bytes.splice(at..bytes.len().min(at + width), edge[8 - width..].iter().copied());
        }
        5 => drop(bytes.splice(at..at, (0..length).map(|_| low_byte(random)).collect::<Vec<u8>>())),
        _ => {
            let from = index(other.len() + 1, random);
            let part = &other[from..other.len().min(from + length)];
            bytes.splice(at..end, part.iter().copied());
        }
    }
}

fn index(length: usize, random: &mut Rng) -> usize {
    let max = u64::try_from(length).unwrap_or(u64::MAX).saturating_sub(1);
    usize::try_from(random.up_to(max)).unwrap_or_default()
}

fn low_byte(random: &mut Rng) -> u8 {
    random.next_u64().to_le_bytes()[0]
}

/// Draws values from the bytes of an input, so that a fuzzer which changes the bytes changes the values. When the bytes
/// are used up, every further value is zero or empty.
#[derive(Clone, Debug)]
pub struct Draw<'a> {
    rest: &'a [u8],
}

impl<'a> Draw<'a> {
    /// Draws from the start of these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that have not been drawn from.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns whether nothing is left to draw from.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        first
    }

    /// A number below 2 to the power of 16.
    pub fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// Any number of 64 bits; small ones take few bytes.
    pub fn number(&mut self) -> u64 {
        let width = self.byte() % 9;
        (0..width).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// The next bytes: as many as the byte before them says, or fewer at the end.
    pub fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.rest.len());
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        bytes
    }

    /// The next bytes as a text, with a replacement for invalid ones.
    pub fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// One of these.
    ///
    /// # Panics
    /// If there is none.
    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_reach_every_place_and_keep_within_the_limit() {
        let mut random = Rng::new(3);
        let (long, short) = (vec![7_u8; LENGTH_MAX], b"abc".to_vec());
        let drawn: Vec<Vec<u8>> = (0..2_000).map(|_| near(&[&short], &mut random)).collect();
        for place in 0..3 {
            assert!(drawn.iter().any(|bytes| bytes.len() == 3 && bytes[place] != short[place]));
        }
        assert!(drawn.iter().any(|bytes| bytes.len() < 3) && drawn.iter().any(|bytes| bytes.len() > 3));
        assert!(drawn.iter().any(|bytes| bytes.windows(4).any(|edge| edge == [0xff; 4])));
        assert!((0..50).all(|_| near(&[&long], &mut random).len() <= LENGTH_MAX));
        assert!(near(&[b""], &mut random).len() <= LENGTH_MAX);
    }

    #[test]
    fn values_are_drawn_until_the_bytes_are_used_up() {
        let mut draw = Draw::new(&[2, 1, 4, 3, b'a', b'b', b'c', 9, b'd', 0xff]);
        assert_eq!(draw.number(), 0x104);
        assert_eq!(draw.bytes(), b"abc");
        assert_eq!(draw.text(), "d\u{fffd}");
        assert!(draw.is_empty());
        assert_eq!((draw.number(), draw.short(), draw.bytes()), (0, 0, &b""[..]));
        assert_eq!(draw.one_of(&['x', 'y']), 'x');
    }
}
