//! Replies to operators' requests.

use primacy_core::{Command, Input, Protocol, Reason, Term};

use super::{AdminView, Frontend};
use crate::clock;
use crate::error::{AdminError, Kept};
use crate::leadership::request::AdminRequest;
use crate::status::{Status, View};

impl Frontend {
    /// Replies to a request, and returns the input for the machine. The caller may have stopped waiting.
    pub(crate) fn on_admin_request<P: Protocol, W: AdminView<P>>(
        &mut self,
        ask: AdminRequest,
        machine: &P,
        effects: &mut W,
    ) -> Option<Input<P::Message>> {
        let command = match ask {
            AdminRequest::Status(answer) => {
                let _ = answer.send(self.status(effects.view(machine)));
                return None;
            }
            AdminRequest::Readmit(node, answer) => {
                let by = self.identity.node;
                let recovering = effects.view(machine).is_recovering();
                let readmitted =
                    if recovering { Err(AdminError::Recovering { by }) } else { effects.readmit(node) };
                let _ = answer.send(readmitted);
                return None;
            }
            AdminRequest::Down(node, answer) => {
                let known = effects.view(machine).has_member(self.identity.node, node);
                let command = known.is_ok().then_some(Command::Down(node));
                let _ = answer.send(known);
                command?
            }
            AdminRequest::Resign(answer) => {
                let resigned = match self.leads() {
                    Err(AdminError::GivingUp { term, .. }) => Ok(term),
                    resigned => resigned,
                };
                // A lead that is being given up already keeps its reason.
                let command = self.leads().is_ok().then_some(Command::Resign);
                let _ = answer.send(resigned);
                self.begin_end(command)?
            }
            AdminRequest::Transfer(to, answer) => {
                let transferred = self.leads().and_then(|term| {
                    effects.view(machine).may_lead(self.identity.node, to)?;
                    Ok(term)
                });
                let command = transferred.is_ok().then_some(Command::Transfer(to));
                let _ = answer.send(transferred);
                command?
            }
            AdminRequest::Cordon(cordon, answer) => {
                let set = self.set_cordon(cordon);
                let command = set.is_ok().then(|| Command::Healthy(self.is_fit()));
                let _ = answer.send(set);
                if cordon { self.begin_end(command)? } else { command? }
            }
        };
        Some(Input::Command(command))
    }

    fn leads(&self) -> Result<Term, AdminError> {
        let node = self.identity.node;
        if let Some(cell) = &self.cell {
            let term = cell.term();
            return if cell.is_ending() { Err(AdminError::GivingUp { node, term }) } else { Ok(term) };
        }
        let leader = self.publisher.leader().map(|leader| leader.identity.node);
        let leader = leader.filter(|&leader| leader != node);
        let not_campaigning = self.not_campaigning.clone().filter(|_| self.candidate.is_none());
        Err(AdminError::NotLeading { node, leader, not_campaigning })
    }

    /// Begins the end of the leadership, for the operator's reason, which the machine does not know.
    fn begin_end(&self, command: Option<Command>) -> Option<Command> {
        if let (Some(_), Some(cell)) = (command, &self.cell) {
            cell.begin_end(Reason::Resigned);
        }
        command
    }

    fn set_cordon(&mut self, cordon: bool) -> Result<Kept, AdminError> {
        if !cordon && self.witness {
            return Err(AdminError::Witness { node: self.identity.node });
        }
        self.cordon.set(cordon)?;
        tracing::info!(cordon, "changed by the operator");
        Ok(if self.cordon.is_kept() { Kept::Durably } else { Kept::UntilRestart })
    }
}

impl Frontend {
    pub(crate) fn status(&self, view: View) -> Status {
        let (leader, since) = self.publisher.leader_since();
        let (campaigning, lead) = match (&self.cell, &self.candidate) {
            (Some(cell), _) => (true, Some(cell.lead())),
            (None, candidate) => (candidate.as_ref().is_some_and(|candidate| !candidate.is_closed()), None),
        };
        Status {
            at: clock::now(),
            election: self.election.clone(),
            identity: self.identity,
            timers: self.timers.clone(),
            leader,
            since,
            lead,
            kept_by: self.cell.as_ref().and_then(|cell| cell.kept_by()),
            announced: self.publisher.newest_announced(),
            campaigning,
            not_campaigning: self.why_not_campaigning(&view).filter(|_| !campaigning),
            healthy: self.healthy,
            cordoned: self.cordon.is_set(),
            store_troubles: self.stats.store.troubles(),
            view,
        }
    }

    /// Returns why the application does not campaign, if it does not.
    fn why_not_campaigning(&self, view: &View) -> Option<String> {
        let unstated = || {
            let is_releasing = matches!(view, View::Store(view) if view.role == "releasing");
            let why = if is_releasing {
                "it has led, and does not campaign again before its lease has run out or it has released the record"
            } else {
                "its last campaign has ended, and it has not begun another"
            };
            self.has_campaigned.then(|| why.to_owned())
        };
        self.not_campaigning.clone().or_else(unstated)
    }
}
