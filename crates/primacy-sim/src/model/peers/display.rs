//! The steps of a path as text for people.

use primacy_core::election::quorum::HardState;
use primacy_core::{Endpoint, Output, display};

use super::machine::Machine;
use super::node::{NodeAction, name};
use super::transitions::Item;
use crate::model::now::NOW;

/// Returns an effect as text.
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

/// Returns an action as text.
pub(super) fn action<M: Machine>(seat: u8, action: NodeAction, item: Option<&Item<M::Message>>) -> String {
    let who = name(seat);
    match (action, item) {
        (NodeAction::Hear(_), Some(Item::Said { from, message, .. })) => {
            format!("{who} hears {}: {}", name(*from), M::text(message))
        }
        (NodeAction::Hear(_), Some(Item::Died { of, starts, .. })) => {
            format!("{who} is told that life {starts} of {} is gone", name(*of))
        }
        (NodeAction::Hear(_), None) => format!("{who} hears"),
        (NodeAction::Timeout, _) => format!("{who} looks at its clock"),
        (NodeAction::Tick(by), _) => format!("{who}: {by} ticks pass"),
        (NodeAction::Crash, _) => format!("{who} crashes"),
        (NodeAction::Start, _) => format!("{who} starts"),
        (NodeAction::Drained, _) => format!("{who}: the work has drained"),
        (NodeAction::Resign, _) => format!("{who} is asked to resign"),
        (NodeAction::Transfer(to), _) => format!("{who} is asked to transfer the lead to {}", name(to)),
        (NodeAction::Connected(to, _), _) => format!("{who} is connected with {}", name(to)),
        (NodeAction::Disconnected(to), _) => format!("{who}: the connection with {} closes", name(to)),
        (NodeAction::Died(of, starts), _) => {
            format!("{who} is told that life {starts} of {} is gone", name(of))
        }
        (NodeAction::JobExits, _) => format!("{who}: the job ends by itself"),
        (NodeAction::JobEnds, _) => format!("{who}: the guardian has ended the job"),
        (NodeAction::GuardianDies, _) => format!("{who}: the guardian dies, and the job with it"),
    }
}
