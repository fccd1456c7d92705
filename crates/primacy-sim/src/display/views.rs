//! Views of the members of a cluster as text for people.

use std::collections::BTreeSet;

use primacy_core::NodeId;
use primacy_core::membership::{Member, View, ViewVersion};

/// A view, as a line about a node.
pub(crate) fn view_text(view: &View) -> String {
    format!("· view {}: {}", version_text(view.version()), names_text(view))
}

/// The members of a view, a line each.
pub(crate) fn members_text(view: &View) -> Vec<String> {
    let first = format!("view {}, removed: {}", version_text(view.version()), list(view.removed()));
    let member = |member: &Member| {
        let zone = member.attributes.zone();
        let zone = if zone.is_empty() { String::new() } else { format!(", zone {zone}") };
        format!(
            "{} age {}, life {}{zone}",
            member.identity.node, member.age.0, member.identity.incarnation.count
        )
    };
    [first].into_iter().chain(view.members().iter().map(member)).collect()
}

pub(crate) fn version_text(version: ViewVersion) -> String {
    format!("{}/{}.{}", version.coordinator.node, version.term, version.number)
}

pub(crate) fn names_text(view: &View) -> String {
    let names = view.members().iter().map(|member| format!("{} {}", member.identity.node, member.age.0));
    names.collect::<Vec<_>>().join(", ")
}

pub(crate) fn list(nodes: &BTreeSet<NodeId>) -> String {
    if nodes.is_empty() {
        return "nobody".to_owned();
    }
    nodes.iter().map(|node| node.as_str()).collect::<Vec<_>>().join(" ")
}
