//! The names of entries, in the layout of Curator's `LeaderLatch` or kazoo's `Election`, so that these programs recognise them.
//!
//! For both, the entry with the lowest sequence number, which ZooKeeper appends to the name, is the leader's, and both use a GUID in the
//! name to find their own entry after a lost reply.

use std::fmt;

/// The layout of the entries of an election. All candidates must use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `_c_<uuid>-latch-<sequence>`
    Curator,
    /// `<uuid>__lock__<sequence>`
    Kazoo,
}

/// 128 random bits, by which a candidate recognises the name of its own entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guid(pub(crate) u128);

/// A child of the election's znode that is in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The sequence number: a signed 32-bit counter of the znode, which overflows.
    pub(crate) sequence: i32,
    /// The whole name.
    pub(crate) name: String,
}

impl Layout {
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Curator, Self::Kazoo].into_iter().find(|layout| layout.name() == name)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Curator => "curator",
            Self::Kazoo => "kazoo",
        }
    }

    /// Returns the first of these children that belongs to another layout, whose owner does not see entries of this one. Any name to which
    /// ZooKeeper has appended a number counts, such as those of ZooKeeper's own recipe (`node-0000000007`) and of read locks.
    pub(crate) fn stranger(self, children: &[String]) -> Option<&str> {
        let is_strange = |name: &&String| sequence(name).is_some() && self.parse(name).is_none();
        children.iter().find(is_strange).map(String::as_str)
    }

    /// Returns the remedy for an entry of another layout.
    pub(crate) fn advice(self, stranger: &str) -> String {
        let of = [Self::Curator, Self::Kazoo].into_iter().find(|layout| layout.parse(stranger).is_some());
        let of = of.map_or("another layout".to_owned(), |layout| format!("the layout `{layout}`"));
        format!(
            "{stranger} is in the queue, an entry of {of}, and this node stands with `{self}`: neither sees the other, and both would \
             lead. All need the same `layout` in their URLs, or znodes of their own"
        )
    }

    /// Returns the text before the sequence number in the name of an entry.
    const fn mark(self) -> &'static str {
        match self {
            Self::Curator => "latch-",
            Self::Kazoo => "__lock__",
        }
    }

    /// Returns the name of an entry, without its sequence number.
    pub(crate) fn prefix(self, guid: Guid) -> String {
        match self {
            Self::Curator => {
                let hex = format!("{:032x}", guid.0);
                let [a, b, c, d, e] = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
                format!("_c_{a}-{b}-{c}-{d}-{e}-{}", self.mark())
            }
            Self::Kazoo => format!("{:032x}{}", guid.0, self.mark()),
        }
    }

    /// Returns the child with its number, if it is in the queue. Other programs may have put anything there.
    pub(crate) fn parse(self, name: &str) -> Option<Named> {
        let (_, number) = name.rsplit_once(self.mark())?;
        Some(Named { sequence: number_of(number)?, name: name.to_owned() })
    }
}

/// Parses a sequence number, which ZooKeeper writes with `%010d`: at least ten characters, including the sign.
fn number_of(number: &str) -> Option<i32> {
    let digits = number.strip_prefix('-').unwrap_or(number);
    let is_number = matches!((number.len(), digits.len()), (10, 9 | 10) | (11, 10))
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| is_number)
}

/// The number at the end of a name of any layout.
fn sequence(name: &str) -> Option<i32> {
    name.get(name.len().checked_sub(10)?..).and_then(number_of)
}

/// Sorts a queue by sequence numbers; `false` if the counter has overflowed. Then only the transactions that made the entries show the
/// order.
pub(crate) fn sort(queue: &mut [Named]) -> bool {
    queue.sort_by(|a, b| (a.sequence, &a.name).cmp(&(b.sequence, &b.name)));
    queue.iter().all(|entry| (0..i32::MAX).contains(&entry.sequence))
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUID: Guid = Guid(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

    /// Entries of recipes that do not see those of the two layouts: of ZooKeeper's documentation and its own clients, of kazoo's read locks
    /// and queues, and of Curator's locks, read-write locks, semaphores and queues.
    const STRANGE: [&str; 13] = [
        "0000000000",
        "n_-000000007",
        "node-0000000007",
        "read-0000000001",
        "write-0000000001",
        "x-144115188075855872-0000000001",
        "0123456789abcdef0011223344556677__rlock__0000000001",
        "entry-100-0000000001",
        "_c_01234567-89ab-cdef-0011-223344556677-lock-0000000001",
        "_c_01234567-89ab-cdef-0011-223344556677-__READ__0000000001",
        "_c_01234567-89ab-cdef-0011-223344556677-__WRIT__0000000001",
        "_c_01234567-89ab-cdef-0011-223344556677-lease-0000000001",
        "queue-0000000001",
    ];

    #[test]
    fn names_are_those_of_the_others() {
        let curator = Layout::Curator.prefix(GUID);
        assert_eq!(curator, "_c_01234567-89ab-cdef-0011-223344556677-latch-");
        let kazoo = Layout::Kazoo.prefix(GUID);
        assert_eq!(kazoo, "0123456789abcdef0011223344556677__lock__");
        for (layout, prefix) in [(Layout::Curator, curator), (Layout::Kazoo, kazoo)] {
            let name = format!("{prefix}0000000042");
            assert_eq!(layout.parse(&name), Some(Named { sequence: 42, name: name.clone() }));
            assert_eq!(Layout::named(layout.name()), Some(layout));
            assert_eq!(layout.parse(&format!("{prefix}-000000005")).unwrap().sequence, -5);
            for other in
                ["", "x", "2147483648", "-2147483649", "42", "+000000042", "00000000042", "00000000é"]
            {
                assert_eq!(layout.parse(&format!("{prefix}{other}")), None, "{other}");
            }
        }
        assert_eq!(Layout::named(""), None);
        let [of_curator, of_kazoo] =
            [Layout::Curator, Layout::Kazoo].map(|layout| format!("{}0000000042", layout.prefix(GUID)));
        let children = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (layout, own, other) in
            [(Layout::Curator, &of_curator, &of_kazoo), (Layout::Kazoo, &of_kazoo, &of_curator)]
        {
            let none = children(&[own, "notes", "0000042", "leases", "ab__party__", ""]);
            assert_eq!(layout.stranger(&none), None);
            for stranger in STRANGE.into_iter().chain([other.as_str()]) {
                assert_eq!(layout.stranger(&children(&[own, stranger])), Some(stranger));
            }
            assert!(layout.advice(other).contains(&format!("stands with `{layout}`")));
        }
        assert_eq!(Layout::Kazoo.parse("ab__rlock__0000000001"), None, "not behind it, nor before it");
    }

    #[test]
    fn the_lowest_number_is_first_and_the_end_of_the_counter_is_noticed() {
        let parse = |name: &str| Layout::Kazoo.parse(name).unwrap();
        let mut queue = ["z__lock__0000000007", "a__lock__0000000010", "m__lock__0000000009"].map(parse);
        assert!(sort(&mut queue));
        assert_eq!(queue.each_ref().map(|entry| entry.sequence), [7, 9, 10]);
        let mut over = ["a__lock__2147483646", "b__lock__-2147483648"].map(parse);
        assert!(!sort(&mut over), "the negative one came later");
        assert!(!sort(&mut ["a__lock__2147483647"].map(parse)), "there may be several of these");
        assert!(sort(&mut []));
    }
}
