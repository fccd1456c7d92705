//! Encoding of numbers and byte strings: the parts of the encodings of commands, entries and states.
//!
//! A number has seven bits in each byte, the lowest first, and as few bytes as possible, so equal values have equal
//! encodings. A byte string is preceded by its length.

use alloc::vec::Vec;
use core::fmt;

use primacy_core::id::{Identity, Incarnation, NodeId};
use primacy_core::time::Duration;

use super::session_id::SessionId;

/// The deepest nesting of transactions.
pub const NESTING_MAX: usize = 64;

/// The longest encoding of a number, in bytes: enough for 64 bits.
const NUMBER_LENGTH_MAX: usize = 10;

/// The reason why bytes cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodeError {
    /// They end before they should.
    Short,
    /// There are more than there should be.
    Long,
    /// A number has more bytes than it needs, or more than 64 bits.
    Number,
    /// The tag of a value is not known; a later program may know it.
    Kind(&'static str),
    /// A field has a value that it cannot have.
    Value(&'static str),
    /// Transactions are nested deeper than [`NESTING_MAX`].
    Nesting,
    /// The format is not one that this program knows.
    Format(u64),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the bytes end too early"),
            Self::Long => f.write_str("there are bytes after the end"),
            Self::Number => f.write_str("a number has too many bytes"),
            Self::Kind(what) => write!(f, "{what} is of a kind that is not known"),
            Self::Value(what) => write!(f, "{what} has a value that is not allowed"),
            Self::Nesting => {
                write!(f, "transactions stand more than {NESTING_MAX} deep within each other")
            }
            Self::Format(format) => write!(f, "the format {format} is not known"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// The number of bytes that a number takes.
pub(super) fn number_length(number: u64) -> usize {
    let bits = u64::BITS - (number | 1).leading_zeros();
    usize::try_from(bits.div_ceil(7)).expect("at most ten")
}

/// Writes a number to the start of `place`, and advances `place` past it.
///
/// # Panics
/// If the place is too short.
pub(super) fn put_number(place: &mut &mut [u8], number: u64) {
    let length = number_length(number);
    let (start, rest) = core::mem::take(place).split_at_mut(length);
    write_number(start, number);
    *place = rest;
}

fn write_number(place: &mut [u8], mut number: u64) {
    let last = place.len() - 1;
    for (index, byte) in place.iter_mut().enumerate() {
        let low = u8::try_from(number & 0x7F).expect("seven bits");
        *byte = if index == last { low } else { low | 0x80 };
        number >>= 7;
    }
}

/// The zigzag encoding of a signed number: numbers near 0 stay small.
pub(super) fn unsigned(number: i64) -> u64 {
    (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned()
}

/// The inverse of [`unsigned`].
pub(super) fn signed(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Appends a number.
pub(super) fn push_number(to: &mut Vec<u8>, number: u64) {
    let start = to.len();
    to.resize(start + number_length(number), 0);
    write_number(&mut to[start..], number);
}

/// Appends a byte string, preceded by its length.
pub(super) fn push_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    push_number(to, u64::try_from(bytes.len()).expect("a length fits"));
    to.extend_from_slice(bytes);
}

/// A reader of untrusted bytes.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes that are left.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&byte, rest) = self.rest.split_first().ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(byte)
    }

    #[inline]
    pub(super) fn number(&mut self) -> Result<u64, DecodeError> {
        // Fast path: most numbers are small, and each comparison of keys reads one, the length.
        match self.rest.split_first() {
            Some((&byte, rest)) if byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(byte))
            }
            Some(_) | None => self.long_number(),
        }
    }

    fn long_number(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0;
        for index in 0..NUMBER_LENGTH_MAX {
            let byte = self.byte()?;
            let low = u64::from(byte & 0x7F);
            let shifted = low << (7 * index);
            if shifted >> (7 * index) != low {
                return Err(DecodeError::Number);
            }
            number |= shifted;
            if byte & 0x80 == 0 {
                let is_longer_than_needed = low == 0 && index > 0;
                return if is_longer_than_needed { Err(DecodeError::Number) } else { Ok(number) };
            }
        }
        Err(DecodeError::Number)
    }

    /// Reads this many bytes.
    pub(super) fn exactly(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a byte string that is preceded by its length.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let length = self.number()?;
        self.exactly(usize::try_from(length).map_err(|_| DecodeError::Short)?)
    }

    /// Reads a list that is preceded by its length. A false length allocates no memory in advance.
    pub(super) fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let length = usize::try_from(self.number()?).map_err(|_| DecodeError::Short)?;
        if length > self.rest.len() {
            return Err(DecodeError::Short);
        }
        // An element takes at least one byte, but may be much larger in memory, so the list grows as elements are read.
        let mut list = Vec::new();
        for _ in 0..length {
            list.push(one(self)?);
        }
        Ok(list)
    }

    /// Checks that nothing is left.
    pub(super) fn end(self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DecodeError::Long) }
    }
}

pub(super) fn push_identity(to: &mut Vec<u8>, identity: &Identity) {
    push_bytes(to, identity.node.as_str().as_bytes());
    push_incarnation(to, identity.incarnation);
}

pub(super) fn push_incarnation(to: &mut Vec<u8>, incarnation: Incarnation) {
    push_number(to, incarnation.count);
    to.extend_from_slice(&incarnation.nonce.to_be_bytes());
}

pub(super) fn identity(from: &mut Reader<'_>) -> Result<Identity, DecodeError> {
    Ok(Identity { node: node(from)?, incarnation: incarnation(from)? })
}

pub(super) fn incarnation(from: &mut Reader<'_>) -> Result<Incarnation, DecodeError> {
    let count = from.number()?;
    let nonce = from.exactly(size_of::<u64>())?.try_into().expect("as many as were asked for");
    Ok(Incarnation { count, nonce: u64::from_be_bytes(nonce) })
}

pub(super) fn node(from: &mut Reader<'_>) -> Result<NodeId, DecodeError> {
    let name = core::str::from_utf8(from.bytes()?).map_err(|_| DecodeError::Value("the name of a node"))?;
    NodeId::new(name).map_err(|_| DecodeError::Value("the name of a node"))
}

pub(super) fn session(from: &mut Reader<'_>) -> Result<SessionId, DecodeError> {
    SessionId::new(signed(from.number()?)).ok_or(DecodeError::Value("a session"))
}

pub(super) fn duration(from: &mut Reader<'_>) -> Result<Duration, DecodeError> {
    from.number().map(Duration::from_nanos)
}
