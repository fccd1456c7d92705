//! The legend of colours and marks.

use super::lives::{Stance, piece};
use super::page::Page;

/// The width of an item.
const WIDTH: i64 = 178;
const HEIGHT: i64 = 24;
const ITEMS_IN_A_ROW: i64 = 5;

type Sample = fn(&mut Page, i64, i64);

const ITEMS: &[(&str, Sample)] = &[
    ("follows", |page, x, y| stance(page, x, y, Stance::Follower, false)),
    ("campaigns", |page, x, y| stance(page, x, y, Stance::Campaigning, false)),
    ("leads", |page, x, y| stance(page, x, y, Stance::Leading, false)),
    ("drains its work", |page, x, y| stance(page, x, y, Stance::Draining, false)),
    ("lead ran out, unnoticed", |page, x, y| stance(page, x, y, Stance::Lapsed, false)),
    ("paused", |page, x, y| stance(page, x, y, Stance::Follower, true)),
    ("does not run", |page, x, y| page.line((x, y - 9), (x, y + 9), "absent")),
    ("message", |page, x, y| page.arrow((x - 14, y - 3), (x + 14, y + 3), "message")),
    ("routine message", |page, x, y| page.arrow((x - 14, y - 3), (x + 14, y + 3), "routine")),
    ("is lost", |page, x, y| {
        page.line((x - 14, y - 2), (x + 8, y + 2), "lost");
        page.cross((x + 8, y + 2), 4, "cross");
    }),
    ("comes late", |page, x, y| page.arrow((x - 14, y - 3), (x + 14, y + 3), "late")),
    ("comes a second time", |page, x, y| page.arrow((x - 14, y - 3), (x + 14, y + 3), "again")),
    ("crashes, or is refused", |page, x, y| page.cross((x, y), 6, "crash")),
    ("a fault, or a command", |page, x, y| page.diamond((x, y), 5, "deed")),
    ("an invariant is broken", |page, x, y| {
        page.rect(x - 14, y - 7, 28, 14, "breach");
        page.line((x - 14, y), (x + 14, y), "breach-line");
    }),
];

/// The height of the legend.
pub(super) fn height() -> i64 {
    let items = i64::try_from(ITEMS.len()).unwrap_or(0);
    (items + ITEMS_IN_A_ROW - 1) / ITEMS_IN_A_ROW * HEIGHT + 24
}

/// The width of the legend.
pub(super) const fn width() -> i64 {
    ITEMS_IN_A_ROW * WIDTH + 20
}

/// Draws the legend.
pub(super) fn draw(page: &mut Page, top: i64) {
    page.open_group("The meaning of colours and marks");
    for (index, (name, sample)) in (0_i64..).zip(ITEMS) {
        let place = 34 + index % ITEMS_IN_A_ROW * WIDTH;
        let y = top + 12 + index / ITEMS_IN_A_ROW * HEIGHT;
        sample(page, place, y);
        page.text(place + 22, y + 4, "small", name);
    }
    page.close_group();
}

fn stance(page: &mut Page, x: i64, y: i64, stance: Stance, paused: bool) {
    piece(page, x, (y - 9, y + 9), stance, paused);
}
