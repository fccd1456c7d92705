//! A trace for people: one line per event, or per group of equal events of several parties at the same time.

use core::fmt;

use super::{Entry, Party, TraceEvent};
use crate::clock::Moment;
use crate::network::Remark;

/// Returns the entries as lines. The same message to several receivers or from several senders at the same
/// time, and the same event of several nodes, is one line.
#[must_use]
pub fn lines(entries: &[Entry]) -> Vec<String> {
    grouped(entries).iter().map(ToString::to_string).collect()
}

/// Groups the entries by line.
#[must_use]
pub fn grouped(entries: &[Entry]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let said = Said::of(entry);
        if let Some(last) = lines.last_mut().filter(|last| last.at == entry.at)
            && last.said.takes_in(&said)
        {
            last.entries = &entries[index - last.entries.len()..=index];
            continue;
        }
        lines.push(Line { at: entry.at, entries: &entries[index..=index], said });
    }
    lines
}

/// A line, with its entries.
#[derive(Debug)]
pub struct Line<'a> {
    /// The moment.
    pub at: Moment,
    /// The entries, at least one.
    pub entries: &'a [Entry],
    said: Said<'a>,
}

impl Line<'_> {
    /// Returns its text, without the time.
    #[must_use]
    pub fn text(&self) -> String {
        self.said.to_string()
    }
}

#[derive(Debug)]
enum Said<'a> {
    Message { from: Vec<Party>, to: Vec<(Party, Option<Remark>)>, text: &'a str },
    Late { to: Party, from: Party, text: &'a str, sent_at: Moment },
    Nodes { who: Vec<Party>, text: &'a str },
    Breach { invariant: &'static str, text: &'a str },
    Text(&'a str),
}

impl<'a> Said<'a> {
    fn of(entry: &'a Entry) -> Self {
        match &entry.what {
            TraceEvent::Says { from, to, text, delivery, .. } => {
                Self::Message { from: vec![*from], to: vec![(*to, delivery.remark)], text }
            }
            TraceEvent::Hears { to, from, text, sent_at, .. } => {
                Self::Late { to: *to, from: *from, text, sent_at: *sent_at }
            }
            TraceEvent::Node { who, text, .. } => Self::Nodes { who: vec![*who], text },
            TraceEvent::Breach { invariant, text } => Self::Breach { invariant, text },
            TraceEvent::Deed { text, .. } | TraceEvent::Write { text, .. } | TraceEvent::World { text } => {
                Self::Text(text)
            }
        }
    }

    /// Joins an equal entry to this line. Returns false if it differs.
    fn takes_in(&mut self, next: &Self) -> bool {
        match (self, next) {
            (Self::Nodes { who, text }, Self::Nodes { who: more, text: same }) if text == same => {
                who.extend_from_slice(more);
                true
            }
            (
                Self::Message { from, to, text },
                Self::Message { from: from_next, to: to_next, text: same },
            ) if text == same => {
                if from == from_next {
                    to.extend_from_slice(to_next);
                    return true;
                }
                if to == to_next && to.len() == 1 {
                    from.extend_from_slice(from_next);
                    return true;
                }
                false
            }
            (
                Self::Message { .. }
                | Self::Late { .. }
                | Self::Nodes { .. }
                | Self::Breach { .. }
                | Self::Text(_),
                _,
            ) => false,
        }
    }
}

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { from, to, text } => {
                separated(f, from, |f, party| write!(f, "{party}"))?;
                f.write_str(" → ")?;
                separated(f, to, |f, &(to, remark)| addressee(f, to, remark))?;
                write!(f, "  {text}")
            }
            Self::Late { to, from, text, sent_at } => write!(f, "{to} ← {from}  {text} (sent at {sent_at})"),
            Self::Nodes { who, text } => {
                separated(f, who, |f, party| write!(f, "{party}"))?;
                write!(f, " {text}")
            }
            Self::Breach { invariant, text } => write!(f, "!! {invariant} is broken: {text}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8}  {}", self.at, self.said)
    }
}

impl fmt::Display for Entry {
    /// Formats the entry as a line of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8}  {}", self.at, Said::of(self))
    }
}

fn separated<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    write: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            f.write_str(" ")?;
        }
        write(f, item)?;
    }
    Ok(())
}

fn addressee(f: &mut fmt::Formatter<'_>, to: Party, remark: Option<Remark>) -> fmt::Result {
    match remark {
        None => write!(f, "{to}"),
        Some(Remark::Cut) => write!(f, "{to}(cut)"),
        Some(Remark::Unconnected) => write!(f, "{to}(not connected)"),
        Some(Remark::Lost) => write!(f, "{to}(lost)"),
        Some(Remark::Doubled) => write!(f, "{to}(twice)"),
        Some(Remark::Late(later)) => write!(f, "{to}(late by {later})"),
    }
}

#[cfg(test)]
mod tests {
    use primacy_core::NodeId;

    use super::*;
    use crate::trace::{Delivery, Level, Turn};

    fn node(name: &str) -> Party {
        Party::Node(NodeId::new(name).unwrap())
    }

    fn says(at: u64, from: &str, to: &str, remark: Option<Remark>) -> Entry {
        let delivery = Delivery { arrivals: [None; 2], remark };
        let (from, to, kind, text) = (node(from), node(to), "Vote", "Vote for term 1".to_owned());
        let what = TraceEvent::Says { from, to, kind, text, delivery };
        Entry { at: Moment::from_nanos(at * 1_000_000), level: Level::Message, what }
    }

    #[test]
    fn what_is_alike_at_the_same_time_is_one_line() {
        let to_all = [says(1, "a", "b", None), says(1, "a", "c", Some(Remark::Lost))];
        assert_eq!(lines(&to_all), ["  0.001s  a → b c(lost)  Vote for term 1"]);
        let to_one = [says(1, "a", "c", None), says(1, "b", "c", None)];
        assert_eq!(lines(&to_one), ["  0.001s  a b → c  Vote for term 1"]);
        let later = [says(1, "a", "b", None), says(2, "a", "c", None)];
        assert_eq!(lines(&later).len(), 2);
        let apart = [says(1, "a", "b", None), says(1, "b", "a", None)];
        assert_eq!(lines(&apart).len(), 2);
        let turn = |name| TraceEvent::Node { who: node(name), turn: Turn::Ends, text: "crashes".to_owned() };
        let entry = |what| Entry { at: Moment::from_nanos(0), level: Level::Event, what };
        assert_eq!(lines(&[entry(turn("a")), entry(turn("b"))]), ["  0.000s  a b crashes"]);
    }
}
