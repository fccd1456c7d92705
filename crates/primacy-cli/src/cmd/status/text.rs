//! A node's status as text for people.

use std::collections::BTreeMap;

use primacy::core::Duration;

use crate::control::{
    Announced, Certificate, Member, Members, Metadata, NodeStatus, PeerRefused, Peers, Queue, Record,
    RecordNumber, State, moves,
};
use crate::printable::one_line;

/// The most characters of an announced state that are shown to people.
const ANNOUNCED_SHOWN_MAX: usize = 72;
const SECONDS_PER_DAY: u64 = 86_400;

/// Formats the lines about one node, without a final newline.
pub(super) fn text(who: &NodeStatus) -> String {
    let mut lines = vec![leader(who)];
    lines.extend(who.why_no_leader.iter().map(|why| format!("  - {why}")));
    lines.push(own_part(who));
    // If no leader is known, the store's troubles are already among the reasons.
    let troubles = who.store_troubles.iter().filter(|trouble| !who.why_no_leader.contains(*trouble));
    lines.extend(troubles.map(|trouble| format!("  {trouble}")));
    if let Some(peers) = &who.peers {
        lines.extend(among_peers(who, peers));
    }
    lines.extend(who.too_few_members.as_ref().map(|why| format!("  {why}")));
    lines.extend(who.announced.as_ref().map(announced));
    if let Some(record) = &who.record {
        lines.push(format!("  {}", over_store(record)));
    }
    lines.extend(who.queue.iter().flat_map(over_sessions));
    let lines: Vec<String> = lines.iter().map(|line| one_line(line)).collect();
    lines.join("\n")
}

/// Formats the queue of a store that keeps sessions.
fn over_sessions(queue: &Queue) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(session), Some(timeout), Some(age)) =
        (&queue.session, queue.timeout_ms, queue.not_kept_alive_for_ms)
    {
        let (timeout, age) = (milliseconds(timeout), milliseconds(age));
        lines.push(format!("  session {session} of {timeout}, kept alive {age} ago"));
    }
    lines.extend(queue.first.as_ref().map(|first| format!("  {}", first.text())));
    lines
}

/// Formats the state that the leader has announced, shortened if it is long or has several lines.
fn announced(announced: &Announced) -> String {
    let Announced { term, number, state } = announced;
    let said = match state {
        State::Text(text) if text.is_empty() => "nothing".to_owned(),
        State::Text(text) => shortened(text, state.len()),
        State::Hex(digits) => format!("0x{}", shortened(digits, state.len())),
    };
    format!("  announced, by number {number} of term {term}: {said}")
}

/// Returns the beginning of a text that represents `bytes` bytes.
fn shortened(text: &str, bytes: usize) -> String {
    let line: String = text.chars().take_while(|&c| !moves(c)).take(ANNOUNCED_SHOWN_MAX).collect();
    if line.len() < text.len() {
        format!("{line}… ({bytes} bytes in all; --json shows them)")
    } else {
        line
    }
}

fn leader(who: &NodeStatus) -> String {
    let known_for = milliseconds(who.known_for_ms);
    let Some(leader) = &who.leader else {
        return format!("{}: nobody leads, as {} has known for {known_for}", who.election, who.node);
    };
    let number = leader.number();
    let validity = match (who.valid_for_ms, &who.ending) {
        (Some(_), Some(ending)) => format!(", and is being given up: {ending}"),
        (Some(left), None) => format!(", valid for {} unless renewed", milliseconds(left)),
        (None, Some(ending)) => format!(", and is being given up: {ending}"),
        (None, None) => String::new(),
    };
    let kept = who.kept_by.as_ref().map(|kept_by| format!("; still leading: {kept_by}")).unwrap_or_default();
    format!(
        "{}: {} leads, {number}, as {} has known for {known_for}{validity}{kept}",
        who.election, leader.node, who.node
    )
}

fn own_part(who: &NodeStatus) -> String {
    let mut part = format!("{}: {}", who.node, who.role);
    if let Some(peers) = &who.peers {
        part.push_str(&format!(", term {}", peers.term));
        part.extend(peers.ballot.map(|ballot| format!(", in a round with ballot {ballot}")));
    }
    let is_witness = who.peers.as_ref().is_some_and(|peers| peers.witness);
    part.push_str(&if is_witness {
        ", a witness".to_owned()
    } else if who.cordoned {
        ", cordoned".to_owned()
    } else if !who.healthy {
        ", kept from leading by its health check".to_owned()
    } else if let Some(why) = &who.not_campaigning {
        // If no leader is known, this is already among the reasons.
        let reason = who.leader.as_ref().map(|_| format!(": {why}")).unwrap_or_default();
        format!(", does not campaign{reason}")
    } else if !who.campaigning {
        ", does not want to lead".to_owned()
    } else {
        ", may lead".to_owned()
    });
    part
}

/// Formats the source of the list of voters.
fn stated(RecordNumber { term, counter }: RecordNumber) -> String {
    match (term, counter) {
        (0, 0) => " of the configuration".to_owned(),
        (term, counter) => format!(" of the record ({term}, {counter})"),
    }
}

/// Formats the state of the node's log.
fn log(metadata: &Metadata) -> String {
    let number = |RecordNumber { term, counter }| format!("({term}, {counter})");
    let Metadata { durability, last, committed, applied, recovering, .. } = metadata;
    let (last, committed, applied) = (number(*last), number(*committed), number(*applied));
    let lost = if *recovering { "; the log was lost and does not count yet" } else { "" };
    format!("  metadata by {durability}: last record {last}, committed {committed}, applied {applied}{lost}")
}

fn among_peers(who: &NodeStatus, peers: &Peers) -> Vec<String> {
    let mut lines = vec![format!(
        "  by {}; voters {}{}; safety {}; disk {}",
        peers.algorithm,
        peers.voters.join(", "),
        peers.metadata.as_ref().map(|metadata| stated(metadata.voters_number)).unwrap_or_default(),
        peers.safety,
        peers.disk
    )];
    lines.extend(peers.metadata.as_ref().map(log));
    lines.extend(peers.members.as_ref().map(|all| format!("  {}", members(all))));
    lines.extend(peers.nominee.as_ref().map(|nominee| format!("  {nominee} is nominated")));
    if let (Some(to), Some(left)) = (&peers.promised_to, peers.promised_for_ms)
        && *to != who.node
    {
        lines.push(format!("  has promised to support {to} for {} more", milliseconds(left)));
    }
    lines.extend(peers.other_leases_ms.iter().map(|(node, &theirs)| {
        let (theirs, mine) = (milliseconds(theirs), milliseconds(who.lease_ms));
        format!("  the lease of {node} is {theirs}, and that of {} {mine}: give all nodes the same", who.node)
    }));
    lines.extend(peers.certificate.iter().flat_map(certificate));
    for peer in &peers.others {
        let connected = connected(peer.outbound.is_some(), peer.inbound.is_some());
        let guardian = guardian(peer.inbound.is_some(), peer.guardian.is_some());
        let round_trip = peer.round_trip_us.map(|us| format!(", {}", Duration::from_nanos(us * 1_000)));
        let round_trip = round_trip.filter(|_| peer.inbound.is_some()).unwrap_or_default();
        lines.push(format!("  {} at {}: {connected}{guardian}{round_trip}", peer.node, peer.address));
        let (text, ago) = match (&peer.refusal, &peer.trouble) {
            (Some(refusal), _) => (&refusal.text, format!(" ({} ago)", milliseconds(refusal.ago_ms))),
            (None, Some(trouble)) => (trouble, String::new()),
            (None, None) => continue,
        };
        // This text may already be among the reasons why no node leads.
        if !who.why_no_leader.iter().any(|why| why.contains(text.as_str())) {
            lines.push(format!("    {text}{ago}"));
        }
    }
    lines.extend(counted("refused by this node", &peers.refused));
    lines.extend(counted("refused by others", &peers.refused_by_peers));
    let unidentified = |PeerRefused { text, ago_ms, .. }: &PeerRefused| {
        format!("  an unidentified peer, {} ago: {text}", milliseconds(*ago_ms))
    };
    lines.extend(peers.unidentified_refused.as_ref().map(unidentified));
    if peers.unidentified_dropped > 0 {
        lines.push(format!("  connections that led to nothing: {}", peers.unidentified_dropped));
    }
    lines
}

/// Formats the members of the cluster, the oldest first.
pub(crate) fn members(members: &Members) -> String {
    let member = |member: &Member| {
        let suspected = if member.suspected { ", suspected" } else { "" };
        let zone = if member.zone.is_empty() { String::new() } else { format!(" in {}", member.zone) };
        format!("{}{zone} (age {}{suspected})", member.node, member.age)
    };
    let all: Vec<String> = members.all.iter().map(member).collect();
    format!("members by view {}.{}: {}", members.term, members.view, all.join(", "))
}

const fn connected(outbound: bool, inbound: bool) -> &'static str {
    match (outbound, inbound) {
        (true, true) => "connected",
        (true, false) => "can be told, and is not heard",
        (false, true) => "is heard, and cannot be told",
        (false, false) => "not connected",
    }
}

/// Describes the connection of a peer's guardian, which only sends: it outlives its node, to report the node's death.
const fn guardian(inbound: bool, guardian: bool) -> &'static str {
    match (inbound, guardian) {
        (true, true) => ", its guardian too",
        (false, true) => ", its guardian is heard",
        (_, false) => "",
    }
}

fn certificate(certificate: &Certificate) -> impl Iterator<Item = String> {
    let Certificate { valid_until, valid_for_seconds, replaced, trouble, .. } = certificate;
    let still = match valid_for_seconds / SECONDS_PER_DAY {
        0 if *valid_for_seconds == 0 => "it has expired".to_owned(),
        0 => format!("{} more", milliseconds(valid_for_seconds.saturating_mul(1_000))),
        days => format!("{days} days more"),
    };
    let line = format!("  certificate valid until {valid_until} ({still}), replaced {replaced} times");
    std::iter::once(line).chain(trouble.as_ref().map(|trouble| format!("    {trouble}")))
}

fn counted(what: &str, counts: &BTreeMap<String, u64>) -> Option<String> {
    let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    (!counts.is_empty()).then(|| format!("  handshakes {what}: {}", counts.join(", ")))
}

/// Formats the record of a store.
pub(crate) fn over_store(record: &Record) -> String {
    let duration = milliseconds(record.duration_ms);
    let Some(holder) = &record.holder else {
        return format!("the record is released; its last token was {}", record.token);
    };
    let at = record.address.as_ref().map(|address| format!(" at {address}")).unwrap_or_default();
    let unchanged = record
        .unchanged_for_ms
        .map_or_else(String::new, |unchanged| format!(", and not for {}", milliseconds(unchanged)));
    let request = record.resign_request.as_ref().map(|by| format!("; {by} asks it to resign"));
    format!(
        "{holder}{at} holds the record with the token {}, for {duration} from each renewal, renewed {} times{unchanged}{}",
        record.token,
        record.renewal,
        request.unwrap_or_default()
    )
}

fn milliseconds(ms: u64) -> Duration {
    Duration::from_nanos(ms.saturating_mul(1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_state_the_beginning_is_shown_and_how_many_bytes_it_has() {
        let shown = |bytes: &[u8]| announced(&Announced { term: 2, number: 3, state: State::new(bytes) });
        assert_eq!(shown(b"shard 7"), "  announced, by number 3 of term 2: shard 7");
        assert!(shown("ö\nü".as_bytes()).ends_with(": ö… (5 bytes in all; --json shows them)"));
        let long = shown(&[0xff; 100]);
        assert!(
            long.contains(": 0xffff") && long.ends_with("… (100 bytes in all; --json shows them)"),
            "{long}"
        );
        // This character would change the direction of the rest of the line.
        assert!(shown("a\u{202e}b".as_bytes()).ends_with(": 0x61e280ae62"));
    }

    #[test]
    fn a_certificate_that_was_not_replaced_has_a_line_of_its_own() {
        let lines: Vec<String> = certificate(&Certificate {
            valid_until: "2030-01-01T00:00:00Z".to_owned(),
            valid_for_seconds: 2 * SECONDS_PER_DAY,
            replaced: 1,
            replacements_refused: 1,
            trouble: Some("b.pem is for c".to_owned()),
        })
        .collect();
        let first = "  certificate valid until 2030-01-01T00:00:00Z (2 days more), replaced 1 times";
        assert_eq!(lines, [first, "    b.pem is for c"]);
    }

    #[test]
    fn the_reason_for_which_a_node_does_not_stand_is_printed_once() {
        let printed = |leader: serde_json::Value, why_no_leader: &[&str]| {
            let who = serde_json::json!({
                "election": "e", "node": "a", "incarnation": "1.1", "leader": leader, "known_for_ms": 5,
                "valid_for_ms": null, "ending": null, "why_no_leader": why_no_leader, "role": "follower",
                "campaigning": false, "not_campaigning": "the disk is full", "healthy": true, "cordoned": false,
                "lease_ms": 1000,
            });
            text(&serde_json::from_value(who).unwrap())
        };
        let led = printed(serde_json::json!({"node": "b", "incarnation": "1.2", "term": 2}), &[]);
        assert!(led.ends_with("a: follower, does not campaign: the disk is full"), "{led}");
        let not_led = printed(serde_json::Value::Null, &["a does not campaign: the disk is full"]);
        assert_eq!(not_led.matches("the disk is full").count(), 1, "{not_led}");
    }

    #[test]
    fn a_guardian_that_is_left_alone_is_told_apart_from_its_node() {
        let line = |out, inbound| format!("{}{}", connected(out, inbound), guardian(inbound, true));
        assert_eq!(line(true, true), "connected, its guardian too");
        assert_eq!(line(false, false), "not connected, its guardian is heard");
    }
}
