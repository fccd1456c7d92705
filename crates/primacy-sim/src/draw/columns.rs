//! The columns and their positions: the nodes by name, each with its guardian beside it if the guardian sends
//! anything, then the store and the resource.

use std::collections::{BTreeMap, BTreeSet};

use primacy_core::NodeId;

use super::page::Page;
use super::parties;
use crate::trace::{Entry, Party, TraceEvent};

/// The width of the time axis, left of the first column.
const AXIS: i64 = 84;

/// The widths of the columns that do not depend on the number of nodes.
const GUARDIAN: i64 = 104;
const RESOURCE: i64 = 170;

/// The places of all columns.
#[derive(Debug)]
pub(super) struct Columns {
    places: BTreeMap<Party, i64>,
    resource: Option<i64>,
    /// All positions, from left to right.
    all: Vec<i64>,
    end: i64,
}

impl Columns {
    /// Lays out a column for every node of the run, and for the other parties that occur in `shown`.
    pub(super) fn of(entries: &[Entry], shown: &[Entry]) -> Self {
        let mut parties = parties(entries);
        parties.retain(|party| matches!(party, Party::Node(_)));
        parties.extend(super::parties(shown));
        let named = parties.iter().filter_map(|party| match *party {
            Party::Node(node) | Party::Guardian(node) => Some(node),
            Party::Store | Party::Clients => None,
        });
        let nodes: BTreeSet<NodeId> = named.collect();
        // Wide enough for the kind of a message; narrower when there are many.
        let width = match nodes.len() {
            0..=3 => 164,
            4..=5 => 138,
            _ => 112,
        };
        let mut columns = Self { places: BTreeMap::new(), resource: None, all: Vec::new(), end: AXIS };
        for node in nodes {
            let place = columns.take(width);
            columns.places.insert(Party::Node(node), place);
            if parties.contains(&Party::Guardian(node)) {
                let place = columns.take(GUARDIAN);
                columns.places.insert(Party::Guardian(node), place);
            }
        }
        for party in [Party::Store, Party::Clients] {
            if parties.contains(&party) {
                let place = columns.take(width);
                columns.places.insert(party, place);
            }
        }
        if shown.iter().any(|entry| matches!(entry.what, TraceEvent::Write { .. })) {
            columns.resource = Some(columns.take(RESOURCE));
        }
        columns
    }

    /// Allocates the next column, and returns its middle.
    fn take(&mut self, width: i64) -> i64 {
        let place = self.end + width / 2;
        self.end += width;
        self.all.push(place);
        place
    }

    /// The middle of a column.
    pub(super) fn of_party(&self, party: Party) -> i64 {
        self.places.get(&party).copied().unwrap_or(AXIS)
    }

    /// The middle of the resource's column, if any write was made.
    pub(super) const fn resource(&self) -> Option<i64> {
        self.resource
    }

    /// Returns the parties that have a column, with its middle, from left to right by kind.
    pub(super) fn parties(&self) -> impl Iterator<Item = (Party, i64)> + '_ {
        self.places.iter().map(|(&party, &place)| (party, place))
    }

    /// The left edge of the first column.
    pub(super) const fn begin(&self) -> i64 {
        AXIS
    }

    /// The right edge of the last column.
    pub(super) const fn end(&self) -> i64 {
        self.end
    }

    /// Returns the space between a position and its neighbour on one side.
    pub(super) fn room(&self, place: i64, to_the_right: bool) -> i64 {
        let next = if to_the_right {
            self.all.iter().copied().find(|&other| other > place)
        } else {
            self.all.iter().rev().copied().find(|&other| other < place)
        };
        next.map_or(120, |next| (next - place).abs())
    }

    /// Repeats the names, in small letters.
    pub(super) fn name(&self, page: &mut Page, y: i64) {
        for (party, place) in self.parties().filter(|(party, _)| !matches!(party, Party::Guardian(_))) {
            page.text(place + 10, y, "small dim", &party.to_string());
        }
    }

    /// Draws the names, above and below.
    pub(super) fn draw(&self, page: &mut Page, above: i64, below: i64) {
        for y in [above, below] {
            for (party, place) in self.parties() {
                match party {
                    Party::Node(node) => page.boxed(place, y, "name", node.as_str()),
                    Party::Guardian(node) => {
                        page.centred(place, y, "small dim", &format!("guardian of {node}"))
                    }
                    Party::Store => page.boxed(place, y, "name", "store"),
                    Party::Clients => page.boxed(place, y, "name", "clients"),
                }
            }
            if let Some(place) = self.resource {
                page.boxed(place, y, "name", "resource");
            }
        }
    }
}
