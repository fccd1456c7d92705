//! A trace for people: one line for each thing that happens, and for what several do alike at the same time.

use core::fmt;

use super::{Entry, Party, What};
use crate::clock::Moment;
use crate::network::Remark;

/// The entries as lines. The same thing said to several, said by several or happening to several at the same time is
/// one line.
#[must_use]
pub fn lines(entries: &[Entry]) -> Vec<String> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for entry in entries {
        let next = Line::of(entry);
        let joined = lines.last_mut().is_some_and(|last| last.takes_in(&next));
        if !joined {
            lines.push(next);
        }
    }
    lines.iter().map(ToString::to_string).collect()
}

/// A line that may still grow.
struct Line<'a> {
    at: Moment,
    what: Said<'a>,
}

enum Said<'a> {
    Message { from: Vec<Party>, to: Vec<(Party, Option<Remark>)>, text: &'a str },
    Late { to: Party, from: Party, text: &'a str, sent_at: Moment },
    Nodes { who: Vec<Party>, text: &'a str },
    Breach { invariant: &'static str, text: &'a str },
    Text(&'a str),
}

impl<'a> Line<'a> {
    fn of(entry: &'a Entry) -> Self {
        let what = match &entry.what {
            What::Says { from, to, text, way, .. } => {
                Said::Message { from: vec![*from], to: vec![(*to, way.remark)], text }
            }
            What::Hears { to, from, text, sent_at, .. } => {
                Said::Late { to: *to, from: *from, text, sent_at: *sent_at }
            }
            What::Node { who, text, .. } => Said::Nodes { who: vec![*who], text },
            What::Breach { invariant, text } => Said::Breach { invariant, text },
            What::Deed { text, .. } | What::Write { text, .. } | What::World { text } => Said::Text(text),
        };
        Self { at: entry.at, what }
    }

    /// Makes one line of two that say the same.
    fn takes_in(&mut self, next: &Self) -> bool {
        if self.at != next.at {
            return false;
        }
        match (&mut self.what, &next.what) {
            (Said::Nodes { who, text }, Said::Nodes { who: more, text: same }) if text == same => {
                who.extend_from_slice(more);
                true
            }
            (
                Said::Message { from, to, text },
                Said::Message { from: from_next, to: to_next, text: same },
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
                Said::Message { .. }
                | Said::Late { .. }
                | Said::Nodes { .. }
                | Said::Breach { .. }
                | Said::Text(_),
                _,
            ) => false,
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8}  ", self.at)?;
        match &self.what {
            Said::Message { from, to, text } => {
                separated(f, from, |f, party| write!(f, "{party}"))?;
                f.write_str(" → ")?;
                separated(f, to, |f, &(to, remark)| addressee(f, to, remark))?;
                write!(f, "  {text}")
            }
            Said::Late { to, from, text, sent_at } => write!(f, "{to} ← {from}  {text} (sent at {sent_at})"),
            Said::Nodes { who, text } => {
                separated(f, who, |f, party| write!(f, "{party}"))?;
                write!(f, " {text}")
            }
            Said::Breach { invariant, text } => write!(f, "!! {invariant} is broken: {text}"),
            Said::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for Entry {
    /// The line that this entry is if it stands alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Line::of(self).fmt(f)
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
    use crate::trace::{Level, Turn, Way};

    fn node(name: &str) -> Party {
        Party::Node(NodeId::new(name).unwrap())
    }

    fn says(at: u64, from: &str, to: &str, remark: Option<Remark>) -> Entry {
        let way = Way { arrivals: [None; 2], remark };
        let (from, to, kind, text) = (node(from), node(to), "Vote", "Vote for term 1".to_owned());
        let what = What::Says { from, to, kind, text, way };
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
        let turn = |name| What::Node { who: node(name), turn: Turn::Ends, text: "crashes".to_owned() };
        let entry = |what| Entry { at: Moment::from_nanos(0), level: Level::Event, what };
        assert_eq!(lines(&[entry(turn("a")), entry(turn("b"))]), ["  0.000s  a b crashes"]);
    }
}
