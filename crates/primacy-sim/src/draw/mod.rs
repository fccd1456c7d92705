//! A run as a sequence diagram in SVG: time runs down, and each party has a column.
//!
//! This module draws the entries of a trace, and has no access to the world. The picture contains no script, font or
//! link, and follows the reader's choice of a light or dark theme.

mod arrows;
pub mod bars;
mod columns;
mod legend;
mod lives;
mod marks;
mod page;
pub mod plot;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::clock::Moment;
use crate::trace::{Entry, Line, Party, TraceEvent, Turn, grouped};
use columns::Columns;
use page::Page;
use rows::Rows;

/// The maximum number of drawn lines: about thirty pages. A longer run is drawn from its end, and the picture states
/// how many lines are missing.
pub const LINES_MAX: usize = 1_500;

/// The part of a run that is drawn, and its title.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The title above the picture.
    pub title: String,
    /// The description, in some sentences.
    pub about: String,
    /// The first moment.
    pub from: Moment,
    /// The last one.
    pub until: Moment,
}

impl Frame {
    /// The whole run.
    #[must_use]
    pub const fn whole(title: String, about: String) -> Self {
        Self { title, about, from: Moment::from_nanos(0), until: Moment::NEVER }
    }
}

/// An entry and its place.
#[derive(Clone, Copy, Debug)]
struct Placed<'a> {
    entry: &'a Entry,
    y: i64,
    /// True if the entry has a row of its own. An entry without one still changes the state of nodes.
    shown: bool,
}

/// Draws the entries, in their order.
#[must_use]
pub fn svg(entries: &[Entry], frame: &Frame) -> String {
    let in_frame =
        |entry: &Entry| frame.from <= entry.at && entry.at <= frame.until && !is_shown_by_bands(entry);
    let chosen: Vec<Entry> = entries.iter().filter(|entry| in_frame(entry)).cloned().collect();
    let all = grouped(&chosen);
    let left_out = all.len().saturating_sub(LINES_MAX);
    let lines = &all[left_out..];
    let columns = Columns::of(entries, &chosen);
    let words = columns.end() + 14;
    let width = (words + 7 * i64::try_from(Rows::width(lines)).unwrap_or(0) + 16).max(legend::width());
    let about = sentences(&frame.about, width);
    let heading = 40 + 16 * i64::try_from(about.len()).unwrap_or(0);
    let top = heading + legend::height() + 26;
    let rows = Rows::of(lines, top, frame.until);
    let skipped = all[..left_out].iter().map(|line| line.entries.len()).sum();
    let placed = placed(entries, in_frame, skipped, lines, &rows);

    let mut page = Page::new(width, rows.bottom() + 40);
    page.text(16, 26, "title", &frame.title);
    for (index, sentence) in (0_i64..).zip(about) {
        page.text(16, 46 + 16 * index, "about", &sentence);
    }
    legend::draw(&mut page, heading);
    if left_out > 0 {
        page.text(words, top - 10, "small dim", &format!("{left_out} earlier lines are not drawn"));
    }
    rows.draw(&mut page, &columns);
    lives::draw(&mut page, &columns, &rows, &placed);
    columns.draw(&mut page, top - 12, rows.bottom() + 18);
    arrows::draw(&mut page, &columns, &rows, &placed);
    marks::draw(&mut page, &columns, &placed);
    for (line, &y) in lines.iter().zip(rows.lines()) {
        tell(&mut page, words, y, line);
    }
    page.end(&frame.title)
}

/// True if an entry needs no row, because the bands show it.
fn is_shown_by_bands(entry: &Entry) -> bool {
    match entry.what {
        TraceEvent::Node { turn, .. } => match turn {
            Turn::Campaigns | Turn::StopsCampaigning | Turn::Renewed { .. } => true,
            Turn::Begins | Turn::Leads { .. } | Turn::Drains | Turn::Deposed | Turn::Names(_) => false,
            Turn::Alarm | Turn::Ends | Turn::Paused | Turn::Resumed | Turn::Nothing => false,
        },
        TraceEvent::Says { .. } | TraceEvent::Hears { .. } | TraceEvent::Deed { .. } => false,
        TraceEvent::Write { .. } | TraceEvent::Breach { .. } | TraceEvent::World { .. } => false,
    }
}

/// Returns the description in lines of the picture's width.
fn sentences(about: &str, width: i64) -> Vec<String> {
    if about.is_empty() {
        return Vec::new();
    }
    rows::wrapped_at(about, usize::try_from(width / 7).unwrap_or(0))
}

/// Assigns a height to every entry, shown or not.
fn placed<'a>(
    entries: &'a [Entry],
    in_frame: impl Fn(&Entry) -> bool,
    mut skipped: usize,
    lines: &[Line<'_>],
    rows: &Rows,
) -> Vec<Placed<'a>> {
    let line_of = lines.iter().zip(rows.lines()).flat_map(|(line, &y)| line.entries.iter().map(move |_| y));
    let mut ys = line_of.into_iter();
    let mut last: Option<(Moment, i64)> = None;
    let place = |entry: &'a Entry| {
        let mut shown = in_frame(entry);
        if shown && skipped > 0 {
            (skipped, shown) = (skipped - 1, false);
        }
        let row = if shown { ys.next() } else { None };
        // An entry without a row came right after the last row of its moment.
        let after = last.filter(|(at, _)| *at == entry.at).map(|(_, y)| y);
        last = row.map(|y| (entry.at, y)).or(last);
        Placed { entry, y: row.or(after).unwrap_or_else(|| rows.y_of(entry.at)), shown }
    };
    entries.iter().map(place).collect()
}

/// Writes the text of a line, beside its arrows and marks.
fn tell(page: &mut Page, x: i64, y: i64, line: &Line<'_>) {
    let class = match &line.entries[0].what {
        TraceEvent::Says { .. } | TraceEvent::Hears { .. } => "words dim",
        TraceEvent::Node { turn, .. } if turn.is_loud() => "words loud",
        TraceEvent::Node { .. } | TraceEvent::World { .. } | TraceEvent::Write { .. } => "words",
        TraceEvent::Deed { .. } => "words deed-text",
        TraceEvent::Breach { .. } => "words breach-text",
    };
    for (index, part) in (0_i64..).zip(rows::wrapped(&line.text())) {
        page.text(x + if index > 0 { 14 } else { 0 }, y + 4 + index * rows::ROW, class, &part);
    }
}

/// Returns all parties that occur in the entries.
fn parties(entries: &[Entry]) -> BTreeSet<Party> {
    let mut found = BTreeSet::new();
    for entry in entries {
        match &entry.what {
            TraceEvent::Says { from, to, .. } | TraceEvent::Hears { from, to, .. } => {
                found.extend([*from, *to])
            }
            TraceEvent::Node { who, .. } => found.extend([*who]),
            TraceEvent::Deed { to, .. } => found.extend(to.iter().copied()),
            TraceEvent::Write { node, .. } => found.extend([Party::Node(*node)]),
            TraceEvent::Breach { .. } | TraceEvent::World { .. } => {}
        }
    }
    found
}
