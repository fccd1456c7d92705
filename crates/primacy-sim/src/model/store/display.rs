//! The steps of a path as text for people.

use primacy_core::{Output, display};

use super::node::{StoreAction, name};
use super::store_kind::StoreKind;
use crate::model::now::NOW;

/// Returns an effect as text.
pub(super) fn effect<K: StoreKind>(output: &Output<K::Message, ()>) -> String {
    match output {
        Output::Persist(()) => "writes".to_owned(),
        Output::Send { message, .. } => format!("to the store: {}", K::text(message)),
        Output::Event(event) => display::event(event, |until| {
            format!("for {} ticks", until.since(NOW).as_nanos().div_ceil(K::TICK))
        }),
    }
}

/// Returns an action as text.
pub(super) fn action<K: StoreKind>(seat: u8, action: &StoreAction<K::Message>) -> String {
    let who = name(seat);
    match action {
        StoreAction::Hear(_, message) => format!("{who} hears the store: {}", K::text(message)),
        StoreAction::Timeout => format!("{who} looks at its clock"),
        StoreAction::GuardianTimeout => format!("{who}: its guardian looks at its clock"),
        StoreAction::Tick(by) => format!("{who}: {by} ticks pass"),
        StoreAction::Crash => format!("{who} crashes"),
        StoreAction::Start => format!("{who} starts"),
        StoreAction::Drained => format!("{who}: the work has drained"),
        StoreAction::Resign => format!("{who} is asked to resign"),
        StoreAction::JobExits => format!("{who}: the job ends by itself"),
        StoreAction::JobEnds => {
            format!("{who}: the guardian has ended the job, and goes to let go for the dead")
        }
        StoreAction::GuardianDies => format!("{who}: the guardian dies, and the job with it"),
    }
}

/// Returns the service of a request by the store as text.
pub(super) fn served<K: StoreKind>(seat: u8, request: &K::Message, how: &str) -> String {
    format!("the store takes from {}: {}{how}", name(seat), K::text(request))
}
