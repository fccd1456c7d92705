//! The marks of events: changes of nodes, deeds, writes to the resource, broken invariants.

use primacy_core::NodeId;

use super::Placed;
use super::columns::Columns;
use super::page::Page;
use crate::trace::{Party, TraceEvent, Turn};

/// Draws the marks of all lines.
pub(super) fn draw(page: &mut Page, columns: &Columns, placed: &[Placed<'_>]) {
    for Placed { entry, y, .. } in placed.iter().filter(|placed| placed.shown) {
        match &entry.what {
            TraceEvent::Node { who, turn, text } => {
                page.open_group(text);
                turned(page, columns.of_party(*who), *y, *turn);
                page.close_group();
            }
            TraceEvent::Deed { to, text } => {
                page.open_group(text);
                deed(page, columns, *y, to);
                page.close_group();
            }
            TraceEvent::Write { node, accepted, text, .. } => {
                page.open_group(text);
                write(page, columns, *y, *node, *accepted);
                page.close_group();
            }
            TraceEvent::Breach { .. } => {
                page.rect(columns.begin() - 4, y - 8, columns.end() - columns.begin() + 8, 16, "breach");
                page.line((columns.begin() - 4, *y), (columns.end() + 4, *y), "breach-line");
            }
            TraceEvent::World { .. } => page.line((columns.begin(), *y), (columns.end(), *y), "deed-line"),
            TraceEvent::Says { .. } | TraceEvent::Hears { .. } => {}
        }
    }
}

fn turned(page: &mut Page, x: i64, y: i64, turn: Turn) {
    match turn {
        Turn::Ends => page.cross((x, y), 6, "crash"),
        Turn::Leads { term, token, .. } => {
            let token = token.map_or_else(String::new, |token| format!(", token {token}"));
            page.text(x + 12, y + 4, "label leads-text", &format!("leads: term {term}{token}"));
        }
        Turn::Alarm => page.diamond((x, y), 6, "alarm"),
        Turn::Begins | Turn::Paused | Turn::Resumed => page.circle((x, y), 4, "turn"),
        Turn::Drains | Turn::Deposed | Turn::Names(_) | Turn::Nothing => page.circle((x, y), 3, "turn"),
        Turn::Campaigns | Turn::StopsCampaigning | Turn::Renewed { .. } => {} // The band says it.
    }
}

/// Draws a deed as a line between its parties, or across the whole picture if it has none.
fn deed(page: &mut Page, columns: &Columns, y: i64, to: &[Party]) {
    let places: Vec<i64> = to.iter().map(|&party| columns.of_party(party)).collect();
    match (places.iter().min(), places.iter().max()) {
        (Some(&first), Some(&last)) => page.line((first, y), (last, y), "deed-line"),
        (None, _) | (_, None) => page.line((columns.begin(), y), (columns.end(), y), "deed-line"),
    }
    for x in places {
        page.diamond((x, y), 5, "deed");
    }
}

/// Draws a write at its arrival; the entry does not say when it was sent.
fn write(page: &mut Page, columns: &Columns, y: i64, who: NodeId, accepted: bool) {
    let Some(x) = columns.resource() else { return };
    page.text_end(
        x - 32,
        y + 4,
        if accepted { "label" } else { "label breach-text" },
        &format!("{who} writes"),
    );
    page.arrow((x - 28, y), (x - 7, y), if accepted { "write" } else { "refused" });
    if accepted {
        page.circle((x, y), 4, "accepted");
    } else {
        page.cross((x, y), 5, "crash");
    }
}
