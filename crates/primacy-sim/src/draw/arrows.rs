//! Messages as arrows from where they are sent to where they arrive.

use std::collections::BTreeSet;

use super::Placed;
use super::columns::Columns;
use super::page::Page;
use super::rows::Rows;
use crate::clock::Moment;
use crate::network::Remark;
use crate::trace::{Delivery, Entry, Level, Party, TraceEvent};

/// The horizontal distance between the middle of a column and the end of an arrow.
const ASIDE: i64 = 9;

/// The estimated width of a letter of a label, in tenths of a pixel; rather too wide than too narrow.
const LETTER: i64 = 58;

/// Draws the messages of all lines, and those that were under way when the picture begins.
pub(super) fn draw(page: &mut Page, columns: &Columns, rows: &Rows, placed: &[Placed<'_>]) {
    let mut labelled: BTreeSet<(i64, Party, bool)> = BTreeSet::new();
    let mut drawn: BTreeSet<(Party, Party, &str, Moment)> = BTreeSet::new();
    for placed in placed {
        match &placed.entry.what {
            TraceEvent::Says { from, to, text, delivery, .. } => {
                let mut arrivals = delivery.arrivals.iter().flatten();
                if !placed.shown && !arrivals.any(|&at| rows.is_within(at)) {
                    continue;
                }
                let ends = (columns.of_party(*from), columns.of_party(*to));
                page.open_group(text);
                message(page, rows, placed.entry, placed.y, ends, delivery);
                // One text to several receivers is labelled once on each side.
                let right = ends.0 < ends.1;
                if placed.shown && labelled.insert((placed.y, *from, right)) {
                    label(page, columns, placed, ends.0, right, text);
                }
                page.close_group();
                drawn.insert((*from, *to, text, placed.entry.at));
            }
            // Its sender was not drawn.
            TraceEvent::Hears { from, to, text, sent_at, .. }
                if placed.shown && !drawn.contains(&(*from, *to, text.as_str(), *sent_at)) =>
            {
                let (from, to) = (columns.of_party(*from), columns.of_party(*to));
                let side = if from < to { ASIDE } else { -ASIDE };
                page.open_group(text);
                page.arrow((from + side, rows.y_of(*sent_at)), (to - side, placed.y), "late");
                page.close_group();
            }
            TraceEvent::Hears { .. } | TraceEvent::Node { .. } | TraceEvent::Deed { .. } => {}
            TraceEvent::Write { .. } | TraceEvent::Breach { .. } | TraceEvent::World { .. } => {}
        }
    }
}

fn message(page: &mut Page, rows: &Rows, entry: &Entry, y: i64, (from, to): (i64, i64), delivery: &Delivery) {
    let side = if from < to { ASIDE } else { -ASIDE };
    let start = (from + side, y);
    let class = match (delivery.remark, entry.level) {
        (Some(Remark::Cut | Remark::Unconnected | Remark::Lost), _) => "lost",
        (Some(Remark::Late(_)), _) => "late",
        (None | Some(Remark::Doubled), Level::Heartbeat) => "routine",
        (None | Some(Remark::Doubled), _) => "message",
    };
    if delivery.arrivals == [None, None] {
        // The message does not arrive: its arrow ends after most of the way, with a cross.
        let end = (from + (to - from) * 6 / 10, y + 8);
        page.line(start, end, class);
        return page.cross(end, 4, "cross");
    }
    for (again, arrival) in delivery.arrivals.iter().flatten().enumerate() {
        let class = if again > 0 { "again" } else { class };
        if rows.is_after(*arrival) {
            // The message is still on its way when the picture ends.
            page.line(start, (from + (to - from) / 2, rows.bottom()), class);
            continue;
        }
        let end = (to - side, rows.y_of(*arrival).max(y + 4));
        page.arrow(start, end, class);
    }
}

/// Draws the first words of a message, as many as there is room for.
fn label(page: &mut Page, columns: &Columns, placed: &Placed<'_>, from: i64, right: bool, text: &str) {
    let room = usize::try_from((columns.room(from, right) - 26) * 10 / LETTER).unwrap_or(0);
    let words = shortened(text, room);
    let class = if placed.entry.level == Level::Heartbeat { "label dim" } else { "label" };
    if right {
        page.text(from + ASIDE + 4, placed.y - 3, class, &words);
    } else {
        page.text_end(from - ASIDE - 4, placed.y - 3, class, &words);
    }
}

fn shortened(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    let mut words: String = text.chars().take(room.saturating_sub(1)).collect();
    words.truncate(words.trim_end_matches([' ', ',', ':', '(']).len());
    words.push('…');
    words
}
