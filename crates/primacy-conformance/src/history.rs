//! What several rivals have done to one record, when, and whether a single record could have answered so.
//!
//! Each write that is done takes the record from a version to the next, and raises the token. So the order of the
//! tokens is the only order in which the writes can have happened, and all that is left to judge is whether it agrees
//! with the clock: what ended before something else began must stand before it.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// One request of a rival, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who asked.
    pub rival: u64,
    /// Right before it was asked for: nanoseconds of the clock that all processes of the machine share.
    pub start: u64,
    /// Right after it was answered.
    pub end: u64,
    /// The token that was read, or was to be written; 0 where there was no record.
    pub token: u64,
    /// What it was.
    pub kind: Kind,
}

/// What was asked for, and what came of it. Versions are hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A read.
    Read {
        /// The rival whose record was found.
        writer: u64,
        /// Its version; empty where there was no record.
        version: String,
    },
    /// A write is about to be asked for. If nothing else follows, it may have been done.
    Begun,
    /// It was done.
    Won {
        /// The version that it made.
        version: String,
    },
    /// It was not done.
    Refused,
    /// It may have been done.
    Unknown,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rival, start, end, token, kind } = self;
        let (name, writer, version) = match kind {
            Kind::Read { writer, version } => ("read", *writer, version.as_str()),
            Kind::Begun => ("begun", *rival, ""),
            Kind::Won { version } => ("won", *rival, version.as_str()),
            Kind::Refused => ("refused", *rival, ""),
            Kind::Unknown => ("unknown", *rival, ""),
        };
        write!(f, "{rival} {start} {end} {token} {name} {writer} {version}.")
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("not an operation: {line:?}");
        // A line that was cut off has no full stop.
        let words: Vec<&str> = line.strip_suffix('.').ok_or_else(wrong)?.split(' ').collect();
        let [rival, start, end, token, name, writer, version] = words.as_slice() else { return Err(wrong()) };
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let version = (*version).to_owned();
        let kind = match *name {
            "read" => Kind::Read { writer: number(writer)?, version },
            "begun" => Kind::Begun,
            "won" => Kind::Won { version },
            "refused" => Kind::Refused,
            "unknown" => Kind::Unknown,
            _ => return Err(wrong()),
        };
        Ok(Self {
            rival: number(rival)?,
            start: number(start)?,
            end: number(end)?,
            token: number(token)?,
            kind,
        })
    }
}

/// A write that was done: by whom, when, and the version that it made, as far as is known.
struct Write {
    rival: u64,
    start: u64,
    /// Of a writer that was killed nobody knows.
    end: Option<u64>,
    version: Option<String>,
}

/// Whether one record, asked one request at a time, can have given these answers.
///
/// # Errors
/// What cannot have been.
pub fn check(history: &[Operation]) -> Result<(), String> {
    let mut writes = done_for_sure(history)?;
    for read in history {
        let Kind::Read { writer, version } = &read.kind else { continue };
        if read.token == 0 {
            continue;
        }
        if let std::collections::btree_map::Entry::Vacant(vacant) = writes.entry(read.token) {
            vacant.insert(may_be_done(history, read.token, *writer).ok_or_else(|| {
                format!("rival {} read a record that nobody has written: {read}", read.rival)
            })?);
        }
        let write = writes.get_mut(&read.token).ok_or("inserted above")?;
        let known = write.version.get_or_insert_with(|| version.clone());
        if (write.rival, &*known) != (*writer, version) {
            return Err(format!("two writes have the token {}: {read}", read.token));
        }
    }
    versions_differ(&writes)?;
    writes_agree_with_the_clock(&writes)?;
    reads_agree_with_the_clock(history, &writes)
}

fn done_for_sure(history: &[Operation]) -> Result<BTreeMap<u64, Write>, String> {
    let mut writes = BTreeMap::new();
    for operation in history {
        let Kind::Won { version } = &operation.kind else { continue };
        let (rival, start, end) = (operation.rival, operation.start, Some(operation.end));
        let write = Write { rival, start, end, version: Some(version.clone()) };
        if let Some(other) = writes.insert(operation.token, write) {
            let token = operation.token;
            return Err(format!("the rivals {} and {rival} have both won the token {token}", other.rival));
        }
    }
    Ok(writes)
}

/// The write of a rival that was killed before it was answered, or was not told.
fn may_be_done(history: &[Operation], token: u64, rival: u64) -> Option<Write> {
    let of = |kind: Kind| {
        history.iter().filter(move |found| found.rival == rival && found.token == token && found.kind == kind)
    };
    // All that were begun and were not refused; the first one bounds the time from below.
    let is_open = of(Kind::Begun).count() > of(Kind::Refused).count();
    let first = of(Kind::Begun).next().filter(|_| is_open)?;
    Some(Write { rival, start: first.start, end: None, version: None })
}

fn versions_differ(writes: &BTreeMap<u64, Write>) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    for (token, write) in writes {
        if let Some(version) = &write.version
            && let Some(other) = seen.insert(version, token)
        {
            return Err(format!("the tokens {other} and {token} had the same version {version}"));
        }
    }
    Ok(())
}

fn writes_agree_with_the_clock(writes: &BTreeMap<u64, Write>) -> Result<(), String> {
    let mut latest_start = 0;
    for (token, write) in writes {
        if write.end.is_some_and(|end| end < latest_start) {
            return Err(format!("the token {token} was written before a lower one was asked for"));
        }
        latest_start = latest_start.max(write.start);
    }
    Ok(())
}

fn reads_agree_with_the_clock(history: &[Operation], writes: &BTreeMap<u64, Write>) -> Result<(), String> {
    // What is known at a time: the highest token of a write that was answered, or of a read.
    let mut known: Vec<(u64, u64)> =
        writes.iter().filter_map(|(token, write)| Some((write.end?, *token))).collect();
    let mut reads: Vec<&Operation> =
        history.iter().filter(|found| matches!(found.kind, Kind::Read { .. })).collect();
    known.extend(reads.iter().map(|read| (read.end, read.token)));
    known.sort_unstable();
    reads.sort_unstable_by_key(|read| read.start);
    let (mut known, mut highest) = (known.into_iter().peekable(), 0);
    for read in reads {
        while let Some((_, token)) = known.next_if(|(end, _)| *end < read.start) {
            highest = highest.max(token);
        }
        if read.token < highest {
            return Err(format!(
                "rival {} read the past: {highest} was known before it asked: {read}",
                read.rival
            ));
        }
        if writes.get(&read.token).is_some_and(|write| read.end < write.start) {
            return Err(format!("rival {} read what was not yet asked for: {read}", read.rival));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(text: &str) -> Vec<Operation> {
        text.lines().map(|line| line.trim().parse().unwrap()).collect()
    }

    #[test]
    fn lines_are_parsed_whole_or_not_at_all() {
        let line = "1 10 20 3 read 2 0a0b.";
        assert_eq!(line.parse::<Operation>().unwrap().to_string(), line);
        let begun = "1 10 10 3 begun 1 .";
        assert_eq!(begun.parse::<Operation>().unwrap().to_string(), begun);
        for cut in 0..line.len() {
            line[..cut].parse::<Operation>().expect_err("it was cut off");
        }
    }

    #[test]
    fn one_record_can_have_given_these_answers() {
        // The first write of rival 2 is not answered, and was done; its second one is not, and was not.
        let sound = "1 0 1 0 read 0 .
            1 2 2 1 begun 1 .
            1 2 5 1 won 1 aa.
            2 3 6 1 read 1 aa.
            2 7 7 2 begun 2 .
            1 8 9 2 read 2 bb.
            1 10 12 3 won 1 cc.
            2 11 13 2 read 2 bb.
            2 14 14 4 begun 2 .";
        check(&history(sound)).unwrap();
    }

    #[test]
    fn what_cannot_have_been_is_found() {
        for (wrong, why) in [
            ("1 0 1 1 won 1 aa.\n2 0 2 1 won 2 bb.", "both won"),
            ("1 0 1 1 won 1 aa.\n1 2 3 2 won 1 aa.", "same version"),
            ("1 0 1 1 won 1 aa.\n2 2 3 2 won 2 bb.\n3 4 5 1 read 1 aa.", "read the past"),
            ("1 0 1 1 won 1 aa.\n2 2 3 0 read 0 .", "read the past"),
            ("1 0 9 1 won 1 aa.\n2 2 3 1 read 1 aa.\n3 4 5 0 read 0 .", "read the past"),
            ("1 5 6 1 won 1 aa.\n2 2 3 1 read 1 aa.", "not yet asked for"),
            ("1 5 6 1 won 1 aa.\n2 2 3 2 won 2 bb.", "before a lower one"),
            ("2 2 3 1 read 1 aa.", "nobody has written"),
            ("1 0 0 1 begun 1 .\n1 0 1 1 refused 1 .\n2 2 3 1 read 1 aa.", "nobody has written"),
            ("1 0 1 1 won 1 aa.\n2 2 3 1 read 2 bb.", "two writes"),
        ] {
            let error = check(&history(wrong)).expect_err(wrong);
            assert!(error.contains(why), "{error}");
        }
    }
}
