//! The formats of persistent and replicated data, for each version of the protocol.
//!
//! Only this file defines them. A program that writes a format that is not listed here does not compile.

#[cfg(feature = "peers")]
use crate::versions::{PROTOCOL_VERSION, SPOKEN};

/// The formats of one kind of data that a program reads and writes, by their numbers.
#[derive(Clone, Copy, Debug)]
struct Formats {
    /// The oldest that it reads.
    oldest: u64,
    /// The newest that it reads.
    newest: u64,
    /// The newest that it writes.
    written: u64,
}

/// The formats that a program of one version of the protocol reads and writes.
#[derive(Clone, Copy, Debug)]
struct Version {
    protocol: u32,
    /// Requests in the records of the log, and on their way to the leader.
    requests: Formats,
    /// Snapshots of the state, on disks and on their way to other nodes.
    snapshots: Formats,
    /// The files of a log.
    log_files: Formats,
    /// The state file.
    state_file: Formats,
}

/// All versions, the oldest first. The row of a released version never changes.
const VERSIONS: [Version; 1] = [Version {
    protocol: 1,
    requests: Formats { oldest: 1, newest: 1, written: 1 },
    snapshots: Formats { oldest: 1, newest: 1, written: 1 },
    log_files: Formats { oldest: 1, newest: 1, written: 1 },
    state_file: Formats { oldest: 1, newest: 2, written: 2 },
}];

impl Formats {
    /// True if a program with these formats may replace one with those `before`, and run beside it: each reads everything that the
    /// other writes, and the later one everything that the earlier one reads, because an old record may stay in a log without
    /// limit, and is sent to other nodes.
    const fn may_follow(self, before: Self) -> bool {
        let is_sound = self.oldest <= self.written && self.written <= self.newest;
        is_sound && self.oldest <= before.oldest && self.written <= before.newest
    }
}

impl Version {
    /// True if nodes of this version and of the version `before` can form one cluster, and any of them can be upgraded
    /// or downgraded.
    const fn may_follow(self, before: Self) -> bool {
        self.protocol == before.protocol + 1
            && self.requests.may_follow(before.requests)
            && self.snapshots.may_follow(before.snapshots)
            && self.log_files.may_follow(before.log_files)
            && self.state_file.may_follow(before.state_file)
    }
}

#[cfg(feature = "peers")]
const _: () = {
    use primacy_kv::command::REQUEST_FORMAT;
    use primacy_kv::state::FORMAT as SNAPSHOT_FORMAT;

    use crate::disk;
    use crate::log_file;

    let mut place = 1;
    while place < VERSIONS.len() {
        assert!(
            VERSIONS[place].may_follow(VERSIONS[place - 1]),
            "a format is read one version before it is written"
        );
        place += 1;
    }
    let mine = VERSIONS[VERSIONS.len() - 1];
    assert!(mine.protocol == PROTOCOL_VERSION, "this version has a row");
    assert!(SPOKEN.highest == PROTOCOL_VERSION, "this version is spoken");
    assert!(
        SPOKEN.lowest == if PROTOCOL_VERSION > 1 { PROTOCOL_VERSION - 1 } else { 1 },
        "and the one before"
    );
    assert!(mine.requests.written == REQUEST_FORMAT as u64, "another format of requests is a row here");
    assert!(mine.snapshots.written == SNAPSHOT_FORMAT, "another format of snapshots is a row here");
    assert!(
        mine.log_files.written == log_file::FILE_VERSION as u64,
        "another format of the log's files is a row here"
    );
    assert!(
        mine.state_file.written == disk::VERSION as u64,
        "another format of the state file is a row here"
    );
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 2 reads another format of requests, and version 3 writes it; a version 4 that no longer reads the former one must
    /// be refused.
    #[test]
    fn a_format_is_read_one_version_before_it_is_written() {
        let formats = |oldest, newest, written| Formats { oldest, newest, written };
        let [first, second, third, fourth] =
            [formats(1, 1, 1), formats(1, 2, 1), formats(1, 2, 2), formats(2, 2, 2)];
        assert!(second.may_follow(first) && third.may_follow(second));
        assert!(!third.may_follow(first), "it writes what the version before cannot read");
        assert!(!fourth.may_follow(third), "it cannot read what stands in a log");
        assert!(!formats(1, 1, 2).may_follow(second), "it cannot read what it writes");
        let of = |protocol, requests| Version { protocol, requests, ..VERSIONS[0] };
        assert!(of(2, second).may_follow(VERSIONS[0]));
        assert!(!of(2, third).may_follow(VERSIONS[0]) && !of(3, second).may_follow(VERSIONS[0]));
    }
}
