//! How entries are named, so that strangers take them for their own: Curator's `LeaderLatch` or kazoo's `Election`.
//!
//! Both take the entry with the lowest sequence number, which ZooKeeper appends to the name, for the leader's, and both find
//! their own after a lost reply by a GUID in the name.

use std::fmt;

/// Whose names the entries of an election have. All who stand in it must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `_c_<uuid>-latch-<sequence>`
    Curator,
    /// `<uuid>__lock__<sequence>`
    Kazoo,
}

/// 128 random bits: what makes the name of an entry known to whoever made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guid(pub(crate) u128);

/// A child of the election's znode that stands in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The counter of the znode when the entry was made. It has 32 bits and a sign, and goes over its end.
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

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Curator => Self::Kazoo,
            Self::Kazoo => Self::Curator,
        }
    }

    /// What stands before the sequence number in the name of an entry.
    const fn mark(self) -> &'static str {
        match self {
            Self::Curator => "latch-",
            Self::Kazoo => "__lock__",
        }
    }

    /// The name of an entry, without its sequence number.
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

    /// Whether this child stands in the queue, and with which number. Others may have put anything there.
    pub(crate) fn parse(self, name: &str) -> Option<Named> {
        let (_, number) = name.rsplit_once(self.mark())?;
        // ZooKeeper writes it with `%010d`: ten characters at the least, the sign among them.
        let digits = number.strip_prefix('-').unwrap_or(number);
        let is_number = matches!((number.len(), digits.len()), (10, 9 | 10) | (11, 10))
            && digits.bytes().all(|byte| byte.is_ascii_digit());
        let sequence = number.parse().ok().filter(|_| is_number)?;
        Some(Named { sequence, name: name.to_owned() })
    }
}

/// Puts a queue in order; `false` if the numbers do not tell it, because the counter has reached its end. Then only the
/// transactions that made the entries do.
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

    #[test]
    fn names_are_those_of_the_others() {
        let curator = Layout::Curator.prefix(GUID);
        assert_eq!(curator, "_c_01234567-89ab-cdef-0011-223344556677-latch-");
        let kazoo = Layout::Kazoo.prefix(GUID);
        assert_eq!(kazoo, "0123456789abcdef0011223344556677__lock__");
        for (layout, prefix) in [(Layout::Curator, curator), (Layout::Kazoo, kazoo)] {
            let name = format!("{prefix}0000000042");
            assert_eq!(layout.parse(&name), Some(Named { sequence: 42, name: name.clone() }));
            assert_eq!(layout.other().parse(&name), None);
            assert_eq!(Layout::named(layout.name()), Some(layout));
            assert_eq!(layout.parse(&format!("{prefix}-000000005")).unwrap().sequence, -5);
            for other in
                ["", "x", "2147483648", "-2147483649", "42", "+000000042", "00000000042", "00000000é"]
            {
                assert_eq!(layout.parse(&format!("{prefix}{other}")), None, "{other}");
            }
        }
        assert_eq!(Layout::named(""), None);
        assert_eq!(Layout::Kazoo.parse("ab__rlock__0000000001"), None, "one that reads stands in no queue");
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
