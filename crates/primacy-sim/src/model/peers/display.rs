//! The steps of a story as text for people.

use primacy_core::election::quorum::HardState;
use primacy_core::{Endpoint, Output, display};

use super::machine::Machine;
use super::node::{Act, name};
use super::transitions::Item;
use crate::model::now::NOW;

/// An effect.
pub(super) fn effect<M: Machine>(output: &Output<M::Message, HardState>) -> String {
    match output {
        Output::Persist(hard) => {
            let voted = hard.voted_for.map_or_else(|| "nobody".to_owned(), |who| who.to_string());
            format!("writes term {}, vote for {voted}", hard.term)
        }
        Output::Send { to: Endpoint::Node(to), message } => format!("to {to}: {}", M::text(message)),
        Output::Send { to: Endpoint::Store, .. } => "to the store".to_owned(),
        Output::Send { to: Endpoint::Client, .. } => "to a client".to_owned(),
        Output::Event(event) => {
            display::event(event, |until| format!("for {} ticks", until.since(NOW).as_nanos()))
        }
    }
}

/// An act.
pub(super) fn act<M: Machine>(seat: u8, act: Act, item: Option<&Item<M::Message>>) -> String {
    let who = name(seat);
    match (act, item) {
        (Act::Hear(_), Some(Item::Said { from, message, .. })) => {
            format!("{who} hears {}: {}", name(*from), M::text(message))
        }
        (Act::Hear(_), Some(Item::Died { of, starts, .. })) => {
            format!("{who} is told that life {starts} of {} is gone", name(*of))
        }
        (Act::Hear(_), None) => format!("{who} hears"),
        (Act::Timeout, _) => format!("{who} looks at its clock"),
        (Act::Tick(by), _) => format!("{who}: {by} ticks pass"),
        (Act::Crash, _) => format!("{who} crashes"),
        (Act::Start, _) => format!("{who} starts"),
        (Act::Drained, _) => format!("{who}: the work has drained"),
        (Act::Resign, _) => format!("{who} is asked to resign"),
        (Act::Transfer(to), _) => format!("{who} is asked to transfer the lead to {}", name(to)),
        (Act::Connected(to, _), _) => format!("{who} is connected with {}", name(to)),
        (Act::Disconnected(to), _) => format!("{who}: the connection with {} closes", name(to)),
        (Act::Died(of, starts), _) => format!("{who} is told that life {starts} of {} is gone", name(of)),
        (Act::JobExits, _) => format!("{who}: the job ends by itself"),
        (Act::JobEnds, _) => format!("{who}: the guardian has ended the job"),
        (Act::GuardianDies, _) => format!("{who}: the guardian dies, and the job with it"),
    }
}
