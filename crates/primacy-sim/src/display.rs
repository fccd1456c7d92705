//! Commands, states, partitions and views as text for people: in traces, in breaches and in the output of scripts.

pub mod metadata;
pub mod partitions;
pub mod views;

use primacy_core::election::lease::Record;

/// Returns the contents of a record as text for people.
#[must_use]
pub fn record_text(record: &Record) -> String {
    let token = record.token;
    let request = record.resign_request.as_ref();
    let request = request.map_or_else(String::new, |asked| format!(", {} asks to resign", asked.by));
    match &record.holder {
        None => format!("released, token {token}{request}"),
        Some(holder) => {
            let node = holder.identity.node;
            format!("{node} holds token {token}, renewal {}{request}", record.renewal)
        }
    }
}
