//! The life lines: the state of each node at every moment, as colour.

use std::collections::BTreeMap;

use super::Placed;
use super::columns::Columns;
use super::page::Page;
use super::rows::Rows;
use crate::clock::Moment;
use crate::trace::{Party, TraceEvent, Turn};

/// The state of a node, shown as the colour of its band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stance {
    /// It does not run.
    Down,
    /// It neither leads nor campaigns.
    Follower,
    /// It campaigns.
    Campaigning,
    /// It leads.
    Leading,
    /// It drains its work.
    Draining,
    /// Its lease has expired, and it has not noticed yet.
    Lapsed,
}

impl Stance {
    pub(super) const fn class(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Follower => "follower",
            Self::Campaigning => "campaigning",
            Self::Leading => "leading",
            Self::Draining => "draining",
            Self::Lapsed => "lapsed",
        }
    }

    /// The width of its band.
    pub(super) const fn width(self) -> i64 {
        match self {
            Self::Down => 0,
            Self::Follower => 6,
            Self::Campaigning => 10,
            Self::Leading | Self::Draining | Self::Lapsed => 14,
        }
    }
}

/// The state of a node, and the height at which that state began.
#[derive(Clone, Copy, Debug)]
struct Life {
    since: i64,
    stance: Stance,
    paused: bool,
    /// The end of its leadership by its own clock.
    until: Moment,
}

/// Draws the bands of all columns.
pub(super) fn draw(page: &mut Page, columns: &Columns, rows: &Rows, placed: &[Placed<'_>]) {
    let top = rows.top();
    for (party, x) in columns.parties() {
        page.line(
            (x, top),
            (x, rows.bottom()),
            if matches!(party, Party::Node(_)) { "absent" } else { "thread" },
        );
    }
    if let Some(x) = columns.resource() {
        page.line((x, top), (x, rows.bottom()), "thread");
    }
    let none = Life { since: top, stance: Stance::Down, paused: false, until: Moment::NEVER };
    let mut lives: BTreeMap<Party, Life> = BTreeMap::new();
    for Placed { entry, y, .. } in placed {
        let TraceEvent::Node { who: who @ Party::Node(_), turn, .. } = entry.what else { continue };
        let life = lives.entry(who).or_insert(none);
        let next = after(*life, turn, *y);
        if (next.stance, next.paused) == (life.stance, life.paused) {
            life.until = next.until;
        } else {
            band(page, columns.of_party(who), life, *y, entry.at, rows);
            *life = next;
        }
    }
    for (who, life) in &lives {
        band(page, columns.of_party(*who), life, rows.bottom(), Moment::NEVER, rows);
    }
}

/// Returns the state after a change of the node.
fn after(life: Life, turn: Turn, y: i64) -> Life {
    let campaigns = |stance| Life { since: y, stance, ..life };
    match turn {
        Turn::Begins => Life { since: y, stance: Stance::Follower, paused: false, until: Moment::NEVER },
        Turn::Ends => Life { since: y, stance: Stance::Down, paused: false, until: Moment::NEVER },
        Turn::Campaigns => campaigns(Stance::Campaigning),
        Turn::StopsCampaigning | Turn::Deposed => campaigns(Stance::Follower),
        Turn::Leads { until, .. } => Life { until, ..campaigns(Stance::Leading) },
        Turn::Renewed { until } => Life { until, ..life },
        Turn::Drains => campaigns(Stance::Draining),
        Turn::Paused => Life { since: y, paused: true, ..life },
        Turn::Resumed => Life { since: y, paused: false, ..life },
        Turn::Names(_) | Turn::Alarm | Turn::Nothing => life,
    }
}

/// Draws a stretch of a life line; the part of a leadership after its end is drawn as lapsed.
fn band(page: &mut Page, x: i64, life: &Life, end: i64, at: Moment, rows: &Rows) {
    let leads = matches!(life.stance, Stance::Leading | Stance::Draining);
    let lapses = leads && life.until < at && !rows.is_after(life.until);
    let lapsed_at = if lapses { rows.y_of(life.until).clamp(life.since, end) } else { end };
    piece(page, x, (life.since, lapsed_at), life.stance, life.paused);
    if lapsed_at < end {
        piece(page, x, (lapsed_at, end), Stance::Lapsed, life.paused);
    }
}

/// Draws one band.
pub(super) fn piece(page: &mut Page, x: i64, (from, to): (i64, i64), stance: Stance, paused: bool) {
    let width = stance.width();
    if stance == Stance::Down {
        return; // Only the line behind it is seen then.
    }
    page.rect(x - width / 2, from, width, to - from, stance.class());
    if paused {
        page.rect(x - 8, from, 16, to - from, "paused");
    }
}
