//! A trace for programs: one JSON object per line.

use core::fmt;
use core::fmt::Write as _;

use super::{Entry, Level, TraceEvent, Turn};
use crate::clock::Moment;
use crate::network::Remark;

/// Returns an entry as a line of JSON, without the line end.
///
/// `at_ns` is the world's true time in nanoseconds since it began, `level` is `event`, `scene`, `message`,
/// `heartbeat` or `disk`, `what` determines the other members, and `text` is for people. Moments end in
/// `_ns`; one that never comes is `null`.
#[must_use]
pub fn json(entry: &Entry) -> String {
    let mut object = Object::new();
    object.moment("at_ns", entry.at);
    object.text("level", level(entry.level));
    object.text("what", what(&entry.what));
    match &entry.what {
        TraceEvent::Says { from, to, kind, text, delivery } => {
            object.text("from", from);
            object.text("to", to);
            object.text("kind", kind);
            object.moments("arrivals_ns", delivery.arrivals.iter().flatten());
            object.some_text("remark", delivery.remark.map(remark));
            object.text("text", text);
        }
        TraceEvent::Hears { to, from, kind, text, sent_at } => {
            object.text("to", to);
            object.text("from", from);
            object.text("kind", kind);
            object.moment("sent_at_ns", *sent_at);
            object.text("text", text);
        }
        TraceEvent::Node { who, turn, text } => {
            object.text("who", who);
            object.turn(*turn);
            object.text("text", text);
        }
        TraceEvent::Deed { to, text } => {
            object.texts("to", to);
            object.text("text", text);
        }
        TraceEvent::Write { node, token, accepted, text } => {
            object.text("node", node);
            object.plain("token", token.map(|token| token.0));
            object.plain("accepted", Some(accepted));
            object.text("text", text);
        }
        TraceEvent::Breach { invariant, text } => {
            object.text("invariant", invariant);
            object.text("text", text);
        }
        TraceEvent::World { text } => object.text("text", text),
    }
    object.end()
}

const fn level(level: Level) -> &'static str {
    match level {
        Level::Event => "event",
        Level::Scene => "scene",
        Level::Message => "message",
        Level::Heartbeat => "heartbeat",
        Level::Disk => "disk",
    }
}

const fn what(what: &TraceEvent) -> &'static str {
    match what {
        TraceEvent::Says { .. } => "says",
        TraceEvent::Hears { .. } => "hears",
        TraceEvent::Node { .. } => "node",
        TraceEvent::Deed { .. } => "deed",
        TraceEvent::Write { .. } => "write",
        TraceEvent::Breach { .. } => "breach",
        TraceEvent::World { .. } => "world",
    }
}

const fn remark(remark: Remark) -> &'static str {
    match remark {
        Remark::Cut => "cut",
        Remark::Unconnected => "not_connected",
        Remark::Lost => "lost",
        Remark::Doubled => "doubled",
        Remark::Late(_) => "late",
    }
}

const fn turn(turn: Turn) -> &'static str {
    match turn {
        Turn::Begins => "begins",
        Turn::Campaigns => "campaigns",
        Turn::StopsCampaigning => "stops_campaigning",
        Turn::Leads { .. } => "leads",
        Turn::Renewed { .. } => "renewed",
        Turn::Drains => "drains",
        Turn::Deposed => "deposed",
        Turn::Names(_) => "names",
        Turn::Alarm => "alarm",
        Turn::Ends => "ends",
        Turn::Paused => "paused",
        Turn::Resumed => "resumed",
        Turn::Nothing => "nothing",
    }
}

/// A JSON object under construction. This small type writes all JSON by hand, so that the crate needs no serializer;
/// a test parses the result.
struct Object(String);

impl Object {
    const fn new() -> Self {
        Self(String::new())
    }

    fn key(&mut self, key: &str) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
        self.string(key);
        self.0.push(':');
    }

    fn text(&mut self, key: &str, value: impl fmt::Display) {
        self.key(key);
        self.string(&value.to_string());
    }

    fn some_text(&mut self, key: &str, value: Option<&str>) {
        match value {
            Some(value) => self.text(key, value),
            None => self.plain(key, None::<u64>),
        }
    }

    fn texts(&mut self, key: &str, values: &[impl fmt::Display]) {
        self.key(key);
        self.list(values.iter(), |object, value| object.string(&value.to_string()));
    }

    /// Adds a number or a boolean.
    fn plain(&mut self, key: &str, value: Option<impl fmt::Display>) {
        self.key(key);
        match value {
            Some(value) => self.write(value),
            None => self.write("null"),
        }
    }

    fn moment(&mut self, key: &str, moment: Moment) {
        self.plain(key, Some(moment).filter(|&moment| moment != Moment::NEVER).map(Moment::as_nanos));
    }

    fn moments<'a>(&mut self, key: &str, moments: impl Iterator<Item = &'a Moment>) {
        self.key(key);
        self.list(moments, |object, moment| object.write(moment.as_nanos()));
    }

    fn turn(&mut self, what: Turn) {
        self.text("turn", turn(what));
        match what {
            Turn::Leads { term, token, until } => {
                self.plain("term", Some(term.0));
                self.plain("token", token.map(|token| token.0));
                self.moment("until_ns", until);
            }
            Turn::Renewed { until } => self.moment("until_ns", until),
            Turn::Names(leader) => self.some_text("leader", leader.as_ref().map(|leader| leader.as_str())),
            Turn::Begins | Turn::Campaigns | Turn::StopsCampaigning | Turn::Drains | Turn::Deposed => {}
            Turn::Alarm | Turn::Ends | Turn::Paused | Turn::Resumed | Turn::Nothing => {}
        }
    }

    fn list<T>(&mut self, items: impl Iterator<Item = T>, item: impl Fn(&mut Self, T)) {
        self.0.push('[');
        for (index, value) in items.enumerate() {
            if index > 0 {
                self.0.push(',');
            }
            item(self, value);
        }
        self.0.push(']');
    }

    fn write(&mut self, value: impl fmt::Display) {
        let _ = write!(self.0, "{value}"); // A string takes everything.
    }

    /// Quotes and escapes a string as RFC 8259 (section 7) requires.
    fn string(&mut self, text: &str) {
        self.0.push('"');
        for character in text.chars() {
            match character {
                '"' => self.0.push_str("\\\""),
                '\\' => self.0.push_str("\\\\"),
                control if u32::from(control) < 0x20 => {
                    self.write(format_args!("\\u{:04x}", u32::from(control)))
                }
                other => self.0.push(other),
            }
        }
        self.0.push('"');
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use primacy_core::{Duration, FencingToken, NodeId, Term};
    use serde_json::{Value, json as value};

    use super::*;
    use crate::trace::{Delivery, Party};

    fn parsed(what: TraceEvent) -> Value {
        let entry = Entry { at: Moment::from_nanos(1_500), level: Level::Event, what };
        serde_json::from_str(&json(&entry)).unwrap()
    }

    #[test]
    fn a_parser_reads_what_is_written() {
        let node = NodeId::new("a").unwrap();
        let (from, to) = (Party::Guardian(node), Party::Store);
        let delivery = Delivery {
            arrivals: [Some(Moment::from_nanos(7)), None],
            remark: Some(Remark::Late(Duration::from_nanos(5))),
        };
        let says = TraceEvent::Says { from, to, kind: "Write", text: "Write \"x\"".to_owned(), delivery };
        assert_eq!(
            parsed(says),
            value!({
                "at_ns": 1_500, "level": "event", "what": "says", "from": "a:guardian", "to": "store",
                "kind": "Write", "arrivals_ns": [7], "remark": "late", "text": "Write \"x\"",
            })
        );
        let until = Moment::NEVER;
        let turn = Turn::Leads { term: Term(3), token: Some(FencingToken(9)), until };
        assert_eq!(
            parsed(TraceEvent::Node { who: Party::Node(node), turn, text: String::new() }),
            value!({
                "at_ns": 1_500, "level": "event", "what": "node", "who": "a", "turn": "leads",
                "term": 3, "token": 9, "until_ns": null, "text": "",
            })
        );
        let write = TraceEvent::Write { node, token: None, accepted: true, text: String::new() };
        assert_eq!(
            (&parsed(write.clone())["token"], &parsed(write)["accepted"]),
            (&Value::Null, &value!(true))
        );
        let deed = TraceEvent::Deed { to: vec![from, to], text: String::new() };
        assert_eq!(parsed(deed)["to"], value!(["a:guardian", "store"]));
        let names = TraceEvent::Node { who: from, turn: Turn::Names(None), text: String::new() };
        assert_eq!(parsed(names)["leader"], Value::Null);
    }

    #[test]
    fn every_character_survives() {
        let text: String = (0..0x300).chain([0x2028, 0xfffd, 0x1_f600]).filter_map(char::from_u32).collect();
        let text = format!("{text}\\u0041\"\\");
        assert_eq!(parsed(TraceEvent::World { text: text.clone() })["text"], text);
        let line = json(&Entry { at: Moment::NEVER, level: Level::Disk, what: TraceEvent::World { text } });
        assert!(!line.chars().any(|character| u32::from(character) < 0x20), "an entry is one line");
    }
}
