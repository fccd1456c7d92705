//! The mapping of time to height. Every line has a row of its own, so that its text is legible; between rows the
//! height grows with the logarithm of the time, and an interval longer than [`QUIET`] is cut short and marked.

use primacy_core::Duration;

use super::columns::Columns;
use super::page::Page;
use crate::clock::Moment;
use crate::trace::{Line, TraceEvent};

/// The height of a row.
pub(super) const ROW: i64 = 15;

/// The distance from the arrow heads of a moment to its first row, so that no label hides them.
const BELOW_HEADS: i64 = 14;

/// The longest eventless interval that is not cut short.
const QUIET: Duration = Duration::from_millis(100);

/// The height of an interval that was cut short.
const CUT_SHORT: i64 = 34;

/// The distance between repetitions of the column names, which are drawn in eventless intervals.
const NAMED_EVERY: i64 = 600;

/// The number of characters of a line in one row.
const CHARACTERS: usize = 84;

/// A moment at which something happens or arrives.
#[derive(Clone, Copy, Debug)]
struct Tick {
    at: Moment,
    /// The height of the messages that arrive at this moment.
    y: i64,
    /// The end of its last row.
    end: i64,
}

/// The heights of all moments and lines.
#[derive(Debug)]
pub(super) struct Rows {
    ticks: Vec<Tick>,
    lines: Vec<i64>,
    top: i64,
    bottom: i64,
    /// The middle of each interval that was cut short, and its duration.
    quiet: Vec<(i64, Duration)>,
}

impl Rows {
    pub(super) fn of(lines: &[Line<'_>], top: i64, until: Moment) -> Self {
        let mut moments: Vec<Moment> = lines.iter().flat_map(moments).collect();
        let last = lines.last().map_or(Moment::default(), |line| line.at);
        // Messages that arrive after the end of the picture have no place in it.
        moments.retain(|&moment| moment <= last && moment <= until);
        moments.sort_unstable();
        moments.dedup();
        let mut rows = Self { ticks: Vec::new(), lines: Vec::new(), top, bottom: top, quiet: Vec::new() };
        let mut y = top;
        let mut lines = lines.iter().peekable();
        let mut before: Option<Moment> = None;
        for at in moments {
            y += match before {
                None => 12,
                Some(before) => rows.pass(y, at.since(before)),
            };
            let mut end = y;
            while let Some(line) = lines.next_if(|line| line.at == at) {
                rows.lines.push(end + BELOW_HEADS);
                end += ROW * i64::try_from(wrapped(&line.text()).len()).unwrap_or(1);
            }
            if end > y {
                end += BELOW_HEADS - ROW / 2;
            }
            rows.ticks.push(Tick { at, y, end });
            (y, before) = (end, Some(at));
        }
        rows.bottom = y + 24;
        rows
    }

    /// Returns the height of the time between two moments.
    fn pass(&mut self, y: i64, time: Duration) -> i64 {
        if time >= QUIET {
            self.quiet.push((y + CUT_SHORT / 2, time));
            return CUT_SHORT;
        }
        // In steps of 250 µs, so that a packet on a fast network still has a visible slope.
        let steps = time.as_nanos() / 250_000;
        4 + 2 * i64::from((steps + 1).ilog2())
    }

    /// The rows of the lines, in their order.
    pub(super) fn lines(&self) -> &[i64] {
        &self.lines
    }

    /// Returns the number of characters of the widest row.
    pub(super) fn width(lines: &[Line<'_>]) -> usize {
        let rows = lines.iter().flat_map(|line| wrapped(&line.text()));
        rows.map(|row| row.chars().count()).max().unwrap_or(0)
    }

    pub(super) const fn top(&self) -> i64 {
        self.top
    }

    pub(super) const fn bottom(&self) -> i64 {
        self.bottom
    }

    /// Returns the height of a moment: the top for one before the picture, and the bottom for one after it.
    pub(super) fn y_of(&self, moment: Moment) -> i64 {
        let next = self.ticks.partition_point(|tick| tick.at < moment);
        match (next.checked_sub(1).map(|last| self.ticks[last]), self.ticks.get(next)) {
            (_, Some(tick)) if tick.at == moment => tick.y,
            (Some(last), Some(next)) => {
                let (passed, all) = (moment.since(last.at).as_nanos(), next.at.since(last.at).as_nanos());
                let part = u128::from(passed) * u128::try_from(next.y - last.end).unwrap_or(0)
                    / u128::from(all.max(1));
                last.end + i64::try_from(part).unwrap_or(0)
            }
            (None, _) => self.top,
            (Some(_), None) => self.bottom,
        }
    }

    /// True if a moment lies behind the end of the picture.
    pub(super) fn is_after(&self, moment: Moment) -> bool {
        self.ticks.last().is_none_or(|last| last.at < moment)
    }

    /// True if a moment lies between the first and the last one of the picture.
    pub(super) fn is_within(&self, moment: Moment) -> bool {
        self.ticks.first().is_some_and(|first| first.at <= moment) && !self.is_after(moment)
    }

    /// Draws the times on the left, a line from each to its text on the right, and the intervals that were cut short.
    pub(super) fn draw(&self, page: &mut Page, columns: &Columns) {
        let mut named = self.top;
        for &(y, time) in &self.quiet {
            page.rect(8, y - 9, columns.end() - 8, 18, "quiet");
            let time = Duration::from_millis(time.as_millis());
            page.text(14, y + 4, "small dim", &format!("⋮ {time}"));
            if y - named >= NAMED_EVERY {
                columns.name(page, y + 4);
                named = y;
            }
        }
        for tick in self.ticks.iter().filter(|tick| tick.end > tick.y) {
            let y = tick.y + BELOW_HEADS;
            page.line((columns.begin() - 12, y), (columns.end() + 8, y), "rule");
            page.text_end(columns.begin() - 18, y + 4, "words dim", &tick.at.to_string());
        }
    }
}

/// Returns the moments that a line needs a height for.
fn moments(line: &Line<'_>) -> Vec<Moment> {
    let arrivals = line.entries.iter().flat_map(|entry| match &entry.what {
        TraceEvent::Says { delivery, .. } => delivery.arrivals,
        TraceEvent::Hears { .. } | TraceEvent::Node { .. } | TraceEvent::Deed { .. } => [None, None],
        TraceEvent::Write { .. } | TraceEvent::Breach { .. } | TraceEvent::World { .. } => [None, None],
    });
    arrivals.flatten().chain([line.at]).collect()
}

/// Wraps a line to the text column.
pub(super) fn wrapped(text: &str) -> Vec<String> {
    wrapped_at(text, CHARACTERS)
}

/// Wraps a line at this many characters, at spaces if possible.
pub(super) fn wrapped_at(text: &str, characters: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut length = 0;
    for word in text.split(' ') {
        let more = word.chars().count() + 1;
        if length + more > characters && length > 0 {
            pieces.push(String::new());
            length = 0;
        }
        let piece = pieces.last_mut().expect("never empty");
        if length > 0 {
            piece.push(' ');
        }
        piece.push_str(word);
        length += more;
    }
    pieces
}
