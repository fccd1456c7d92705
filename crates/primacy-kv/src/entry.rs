//! An entry of the map: a key, its value, and the versions that wrote it.

use alloc::sync::Arc;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::num::NonZeroU64;

use super::encoding::{Reader, number_length, put_number, signed, unsigned};
use super::session_id::SessionId;

/// The number of a change to the map (etcd's revision): each command that changes any entry makes the next one.
///
/// The empty map is at [`Version::FIRST`]. All changes of one command have the same version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// The version of the empty map.
    pub const FIRST: Self = Self(1);

    /// The version after this one.
    ///
    /// # Panics
    /// After 2⁶⁴ changes.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("a map does not see 2^64 changes"))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A key, its value, and the versions that wrote it. Immutable, and cheap to clone.
///
/// An entry is one byte string, because in a map of small entries pointers would take more memory than the entries. It
/// holds the length of the key, the key, the session, [`Self::made_at`], the difference of [`Self::changed_at`] to
/// that, [`Self::writes`], and the value. The numbers have a variable length.
#[derive(Clone)]
pub struct Entry(Body);

#[derive(Clone)]
enum Body {
    /// The entry in one piece.
    Whole(Arc<[u8]>),
    /// A stamp of its own, with the key and the value of another entry.
    Rewritten(Arc<Rewritten>),
}

struct Rewritten {
    stamp: Stamp,
    /// The other entry, in one piece.
    of: Arc<[u8]>,
}

/// The length from which an entry's bytes are shared with entries that [keep its value](Entry::rewritten), so that a
/// request that keeps a long value does not copy it. Shorter ones are copied, because sharing would cost more. Unit
/// tests share nearly all entries.
const SHARED_LENGTH_MIN: usize = if cfg!(test) { 8 } else { 1024 };

/// The numbers of an entry besides its key and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// The session with whose end the entry is deleted; `None` if the entry has no session.
    pub session: Option<SessionId>,
    /// The version that created the entry (`create_revision` in etcd).
    pub made_at: Version,
    /// The version that last wrote the entry (etcd's `mod_revision`); not below `made_at`.
    pub changed_at: Version,
    /// The number of writes since the entry was created, that one included (`version` in etcd).
    pub writes: NonZeroU64,
}

impl Entry {
    /// Makes an entry.
    ///
    /// # Panics
    /// If `stamp.changed_at` is below `stamp.made_at`.
    #[must_use]
    pub fn new(key: &[u8], value: &[u8], stamp: Stamp) -> Self {
        let key_length = u64::try_from(key.len()).expect("a length fits");
        let numbers = stamp.numbers();
        let length = length(key, &numbers, value);
        // This way there is one allocation, and nothing is copied twice.
        let mut bytes: Arc<[u8]> = core::iter::repeat_n(0, length).collect();
        let mut rest = Arc::get_mut(&mut bytes).expect("nobody else has it yet");
        put_number(&mut rest, key_length);
        rest = put_bytes(rest, key);
        for number in numbers {
            put_number(&mut rest, number);
        }
        put_bytes(rest, value);
        Self(Body::Whole(bytes))
    }

    /// The same key and value with another stamp. A long entry is not copied.
    pub(super) fn rewritten(&self, stamp: Stamp) -> Self {
        let of = self.piece();
        if of.len() < SHARED_LENGTH_MIN {
            return Self::new(self.key(), self.value(), stamp);
        }
        Self(Body::Rewritten(Arc::new(Rewritten { stamp, of: Arc::clone(of) })))
    }

    /// The entry that these bytes encode, if they encode one: see [`Entry`].
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let key_length = usize::try_from(reader.number().ok()?).ok()?;
        reader.exactly(key_length).ok()?;
        reader.number().ok()?;
        let made_at = reader.number().ok()?;
        made_at.checked_add(reader.number().ok()?)?;
        NonZeroU64::new(reader.number().ok()?)?;
        Some(Self(Body::Whole(bytes.into())))
    }

    /// The entry in one piece.
    pub(super) fn to_bytes(&self) -> Arc<[u8]> {
        match &self.0 {
            Body::Whole(bytes) => Arc::clone(bytes),
            Body::Rewritten(it) => Arc::clone(Self::new(self.key(), self.value(), it.stamp).piece()),
        }
    }

    /// The length of the entry as one byte string.
    pub(super) fn length(&self) -> u64 {
        let length = match &self.0 {
            Body::Whole(bytes) => bytes.len(),
            Body::Rewritten(it) => length(self.key(), &it.stamp.numbers(), self.value()),
        };
        u64::try_from(length).expect("a length fits")
    }

    /// The byte string that has the key and the value.
    fn piece(&self) -> &Arc<[u8]> {
        match &self.0 {
            Body::Whole(bytes) => bytes,
            Body::Rewritten(it) => &it.of,
        }
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.split().0
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.stamp_and_value().1
    }

    /// The numbers besides the key and the value.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.stamp_and_value().0
    }

    /// The session with which it goes; `None` if it stays.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        self.stamp().session
    }

    /// The version that created the entry (`create_revision` in etcd).
    #[must_use]
    pub fn made_at(&self) -> Version {
        self.stamp().made_at
    }

    /// The version that wrote it last.
    #[must_use]
    pub fn changed_at(&self) -> Version {
        self.stamp().changed_at
    }

    /// The number of writes since the entry was created, that one included (`version` in etcd).
    #[must_use]
    pub fn writes(&self) -> u64 {
        self.stamp().writes.get()
    }

    /// The same entry with an empty value.
    #[must_use]
    pub fn without_value(&self) -> Self {
        Self::new(self.key(), &[], self.stamp())
    }

    fn split(&self) -> (&[u8], Reader<'_>) {
        let mut reader = Reader::new(self.piece());
        let key = reader.bytes().expect("an entry is whole");
        (key, reader)
    }

    fn stamp_and_value(&self) -> (Stamp, &[u8]) {
        let (_, mut reader) = self.split();
        let mut number = || reader.number().expect("an entry is whole");
        let session = SessionId::new(signed(number()));
        let made_at = Version(number());
        let stamp = Stamp {
            session,
            made_at,
            changed_at: Version(made_at.0 + number()),
            writes: NonZeroU64::new(number()).expect("it was written"),
        };
        let stamp = match &self.0 {
            Body::Whole(_) => stamp,
            Body::Rewritten(it) => it.stamp,
        };
        (stamp, reader.rest())
    }
}

impl Stamp {
    /// The numbers of an entry, in their order.
    fn numbers(self) -> [u64; 4] {
        let later = self.changed_at.0.checked_sub(self.made_at.0).expect("first made, then changed");
        let session = unsigned(self.session.map_or(0, SessionId::get));
        [session, self.made_at.0, later, self.writes.get()]
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key() && self.stamp_and_value() == other.stamp_and_value()
    }
}

impl Eq for Entry {}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.key(), self.stamp_and_value()).hash(state);
    }
}

/// The length of an entry as one byte string.
fn length(key: &[u8], numbers: &[u64; 4], value: &[u8]) -> usize {
    let key_length = u64::try_from(key.len()).expect("a length fits");
    let numbers = numbers.iter().map(|&number| number_length(number)).sum::<usize>();
    number_length(key_length) + key.len() + numbers + value.len()
}

/// Writes bytes to the start of `place`, and returns the rest of it.
fn put_bytes<'a>(place: &'a mut [u8], bytes: &[u8]) -> &'a mut [u8] {
    let (start, rest) = place.split_at_mut(bytes.len());
    start.copy_from_slice(bytes);
    rest
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stamp, value) = self.stamp_and_value();
        write!(f, "{}={} {stamp:?}", self.key().escape_ascii(), value.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_what_it_was_made_of() {
        let texts: [&[u8]; 4] = [b"", b"k", &[0; 127], &[0xFF; 128]];
        let numbers = [1, 127, 128, u64::MAX / 2, u64::MAX];
        let sessions = [None, SessionId::new(1), SessionId::new(-1), SessionId::new(i64::MIN)];
        let mut seen = 0;
        for (key, value) in texts.iter().flat_map(|key| texts.map(|value| (key, value))) {
            for (made_at, changed_at) in numbers.iter().flat_map(|one| numbers.map(|other| (*one, other))) {
                if changed_at < made_at {
                    continue;
                }
                for (session, writes) in sessions.iter().flat_map(|id| numbers.map(|writes| (*id, writes))) {
                    let (made_at, changed_at) = (Version(made_at), Version(changed_at));
                    let stamp =
                        Stamp { session, made_at, changed_at, writes: NonZeroU64::new(writes).unwrap() };
                    let entry = Entry::new(key, value, stamp);
                    assert_eq!((entry.key(), entry.value(), entry.stamp()), (*key, value, stamp));
                    assert_eq!(Entry::from_bytes(&entry.to_bytes()), Some(entry.clone()));
                    let other = Stamp { session: SessionId::new(7), writes: NonZeroU64::MIN, ..stamp };
                    let rewritten = Entry::new(key, value, other).rewritten(stamp);
                    assert_eq!((&rewritten, rewritten.stamp()), (&entry, stamp));
                    assert_eq!(rewritten.to_bytes(), entry.to_bytes());
                    assert_eq!(rewritten.length(), u64::try_from(entry.to_bytes().len()).unwrap());
                    assert_eq!(
                        (entry.without_value().value(), entry.without_value().stamp()),
                        (&[][..], stamp)
                    );
                    seen += 1;
                }
            }
        }
        assert_eq!(seen, 16 * 15 * 20);
    }

    #[test]
    fn bytes_that_are_no_entry_are_refused() {
        let good = [1, b'k', 0, 2, 1, 1, b'v'];
        assert_eq!(Entry::from_bytes(&good).unwrap().value(), b"v");
        for length in 0..6 {
            assert_eq!(Entry::from_bytes(&good[..length]), None, "{length}");
        }
        assert_eq!(Entry::from_bytes(&[1, b'k', 0, 2, 1, 0]), None, "it was never written");
        assert_eq!(Entry::from_bytes(&[1, b'k', 0, 2, 0x81, 0, 1]), None, "a number is longer than it needs");
        let end = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1];
        let overflow = [&[1, b'k', 0][..], &end, &[1, 1]].concat();
        assert_eq!(Entry::from_bytes(&overflow), None, "it was changed after the last version");
    }
}
