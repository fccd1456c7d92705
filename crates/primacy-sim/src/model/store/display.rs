//! The steps of a story as text for people.

use primacy_core::{Output, display};

use super::node::{Act, name};
use super::store_kind::StoreKind;
use crate::model::now::NOW;

/// An effect.
pub(super) fn effect<K: StoreKind>(output: &Output<K::Message, ()>) -> String {
    match output {
        Output::Persist(()) => "writes".to_owned(),
        Output::Send { message, .. } => format!("to the store: {}", K::text(message)),
        Output::Event(event) => display::event(event, |until| {
            format!("for {} ticks", until.since(NOW).as_nanos().div_ceil(K::TICK))
        }),
    }
}

/// An act.
pub(super) fn act<K: StoreKind>(seat: u8, act: &Act<K::Message>) -> String {
    let who = name(seat);
    match act {
        Act::Hear(_, message) => format!("{who} hears the store: {}", K::text(message)),
        Act::Timeout => format!("{who} looks at its clock"),
        Act::GuardianTimeout => format!("{who}: its guardian looks at its clock"),
        Act::Tick(by) => format!("{who}: {by} ticks pass"),
        Act::Crash => format!("{who} crashes"),
        Act::Start => format!("{who} starts"),
        Act::Drained => format!("{who}: the work has drained"),
        Act::Resign => format!("{who} is asked to resign"),
        Act::JobExits => format!("{who}: the job ends by itself"),
        Act::JobEnds => format!("{who}: the guardian has ended the job, and goes to let go for the dead"),
        Act::GuardianDies => format!("{who}: the guardian dies, and the job with it"),
    }
}

/// The store's service of a request.
pub(super) fn served<K: StoreKind>(seat: u8, request: &K::Message, how: &str) -> String {
    format!("the store takes from {}: {}{how}", name(seat), K::text(request))
}
