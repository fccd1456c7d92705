//! Operators' requests to a running node: its status, and changes of the leader or of who may lead.

use std::io;
use std::path::PathBuf;

use primacy_core::{Command, Input, NodeId, Protocol, Reason, Term};
use tokio::sync::oneshot;

use crate::disk::DiskError;
use crate::driver::{Asked, Desk, Order};
use crate::elector::Elector;
use crate::handshake::{DiskId, ElectionKind};
use crate::status::Status;

/// A question, and where its answer goes.
#[derive(Debug)]
pub(crate) enum Ask {
    Status(oneshot::Sender<Status>),
    Resign(oneshot::Sender<Result<Term, AskError>>),
    Transfer(NodeId, oneshot::Sender<Result<Term, AskError>>),
    Cordon(bool, oneshot::Sender<Result<Kept, AskError>>),
    Readmit(NodeId, oneshot::Sender<Result<DiskId, AskError>>),
    Down(NodeId, oneshot::Sender<Result<(), AskError>>),
}

/// The durability of an operator's order over a restart of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is on the disk.
    Durably,
    /// The node keeps nothing on a disk; it holds until the process ends.
    UntilRestart,
}

/// The reason why a node does not carry out a request. Every text names an alternative.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Only the leader can give up the lead.
    #[error(
        "{node} does not lead: {}; ask the leader{}",
        leader.map_or_else(|| "nobody does, as far as it knows".to_owned(), |leader| format!("{leader} does")),
        not_campaigning.as_ref().map(|why| format!("; {node} does not campaign: {why}")).unwrap_or_default()
    )]
    NotLeading {
        /// The node that was asked.
        node: NodeId,
        /// The leader, as far as it knows.
        leader: Option<NodeId>,
        /// The reason why its application does not want to lead, where it has stated that.
        not_campaigning: Option<String>,
    },
    /// The node is giving up its lead already, and cannot give it to another node any more.
    #[error(
        "{node} is giving up the lead of term {term} already; wait for its end, or ask {node} to resign, which says what keeps the lead"
    )]
    GivingUp {
        /// The node that was asked.
        node: NodeId,
        /// The term of the lead.
        term: Term,
    },
    /// The lead can be given to a voter only.
    #[error("{to} is none of the voters ({voters}); name one of them")]
    NotAVoter {
        /// The intended successor.
        to: NodeId,
        /// The voters.
        voters: String,
    },
    /// The lead can only be given to a connected node: else it would be given up for nothing.
    #[error(
        "{to} is not connected to the leader, so the lead would be given up and not go there; name a node that is connected"
    )]
    NotConnected {
        /// The intended successor.
        to: NodeId,
    },
    /// A witness never leads.
    #[error("{to} is a witness: it votes and never leads; name another node")]
    ToWitness {
        /// The intended successor.
        to: NodeId,
    },
    /// The lead is there already.
    #[error("{to} leads already")]
    ToItself {
        /// The intended successor.
        to: NodeId,
    },
    /// Where the algorithm chooses the leader, the lead cannot be transferred.
    #[error(
        "by {kind}, the rule of the election says who leads next, and nobody else would lead for long; use resign, and cordon the nodes that shall not lead"
    )]
    ByRule {
        /// The election.
        kind: ElectionKind,
    },
    /// Over a store the candidates do not know each other.
    #[error(
        "over a store the lead cannot be given to a certain node, nor need a node be readmitted; use resign, and cordon the nodes that shall not lead"
    )]
    OverAStore,
    /// A witness never leads.
    #[error("{node} is a witness: it votes and never leads")]
    Witness {
        /// This node.
        node: NodeId,
    },
    /// Only a cluster by seniority has members that can be removed.
    #[error("only an election by seniority has members; here the configuration says who takes part")]
    NoMembers,
    /// This node does not know it as a member.
    #[error("{node} is no member of the cluster that {by} belongs to ({members}); name one of them")]
    NotAMember {
        /// The node to remove.
        node: NodeId,
        /// The node that was asked.
        by: NodeId,
        /// The members that it knows.
        members: String,
    },
    /// A node vouches for others only.
    #[error("{node} cannot vouch for its own death; let it resign, or cordon it")]
    Itself {
        /// This node.
        node: NodeId,
    },
    /// Only the founder of clusters waits for others.
    #[error(
        "{by} belongs to no cluster, and it is not for {node} that it waits: {} founds one, as the first of the seeds; start that one, or name another first with --seeds, on all nodes",
        founder.map_or_else(|| "nobody".to_owned(), |founder| founder.to_string())
    )]
    NotAwaited {
        /// The node that should not be waited for.
        node: NodeId,
        /// The node that was asked.
        by: NodeId,
        /// The node that founds clusters.
        founder: Option<NodeId>,
    },
    /// The node has not come with another disk, and has not reported that it has lost one.
    #[error(
        "{node} has not come to {by} with another disk than the recorded one, nor said that it has lost one, so there is nothing to readmit; start it first, and ask again"
    )]
    NotRefused {
        /// The node to readmit.
        node: NodeId,
        /// The node that was asked.
        by: NodeId,
    },
    /// A node that has lost its own votes cannot vouch for terms to another one that has.
    #[error(
        "{by} has lost its own disk and has not heard from all others yet; let it be readmitted first, and ask again"
    )]
    Recovering {
        /// The node that was asked.
        by: NodeId,
    },
    /// A word that must outlast a restart could not be written. Nothing has changed.
    #[error("nothing has changed: {} cannot be written: {source}; make room or mend the directory, and ask again", path.display())]
    NotKept {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The state of the node could not be written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The node is ending, or has ended.
    #[error("the node takes no part in the election any more; look at its log, and start it again")]
    Closed,
}

impl Elector {
    /// The status of this node, and its knowledge of the others.
    ///
    /// # Errors
    /// [`AskError::Closed`]
    pub async fn status(&self) -> Result<Status, AskError> {
        let (answer, status) = oneshot::channel();
        self.ask(Ask::Status(answer))?;
        status.await.map_err(|_| AskError::Closed)
    }

    /// Gives up the lead of this node in order, whether or not the caller holds the [`Leadership`](crate::Leadership); returns its
    /// term, also where it is being given up already. The lead is given up later, when its work has drained.
    ///
    /// # Errors
    /// [`AskError::NotLeading`] or [`AskError::Closed`]
    pub async fn resign(&self) -> Result<Term, AskError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Ask::Resign(answer))?;
        answered.await.map_err(|_| AskError::Closed)?
    }

    /// Transfers the lead of this node to another one: it drains, gives up, and tells `to` to campaign at once, even if `to` is
    /// behind. Giving up is final: if `to` fails, another node is elected in order.
    ///
    /// # Errors
    /// [`AskError`], after which nothing has changed.
    pub async fn transfer(&self, to: NodeId) -> Result<Term, AskError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Ask::Transfer(to, answer))?;
        answered.await.map_err(|_| AskError::Closed)?
    }

    /// Lets this node lead again, after [`cordon`](Self::cordon).
    ///
    /// # Errors
    /// [`AskError`], after which it is as it was.
    pub async fn uncordon(&self) -> Result<Kept, AskError> {
        self.set_cordon(false).await
    }

    /// Keeps this node from leading: it does not campaign, and resigns if it leads. Among peers it goes on voting. It is
    /// remembered after a restart where the node has a state directory.
    ///
    /// # Errors
    /// [`AskError`], after which it is as it was.
    pub async fn cordon(&self) -> Result<Kept, AskError> {
        self.set_cordon(true).await
    }

    async fn set_cordon(&self, cordon: bool) -> Result<Kept, AskError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Ask::Cordon(cordon, answer))?;
        answered.await.map_err(|_| AskError::Closed)?
    }

    /// Readmits a peer that lost its disk, with the disk that it has presented since. To be called on every other node: the peer
    /// takes part again when all of them have told it their term, so that no lost vote of its can be missed. Returns the disk that
    /// counts from now on; messages from the former one that still arrive are dropped.
    ///
    /// # Errors
    /// [`AskError`], after which nothing has changed.
    pub async fn readmit(&self, node: NodeId) -> Result<DiskId, AskError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Ask::Readmit(node, answer))?;
        answered.await.map_err(|_| AskError::Closed)?
    }

    /// By seniority: vouches that this member is not to be waited for, because it is dead for good or its machine is off. The
    /// coordinator removes it at once, however few are left. If it is alive after all, it leads on beside the others until they
    /// meet.
    ///
    /// # Errors
    /// [`AskError`], after which nothing has changed.
    pub async fn down(&self, node: NodeId) -> Result<(), AskError> {
        let (answer, answered) = oneshot::channel();
        self.ask(Ask::Down(node, answer))?;
        answered.await.map_err(|_| AskError::Closed)?
    }

    fn ask(&self, ask: Ask) -> Result<(), AskError> {
        self.orders.send(Order::Ask(ask)).map_err(|_| AskError::Closed)
    }
}

impl Desk {
    /// Answers, and returns the input for the machine. The caller may have gone away.
    pub(crate) fn on_ask<P: Protocol, W: Asked<P>>(
        &mut self,
        ask: Ask,
        machine: &P,
        world: &mut W,
    ) -> Option<Input<P::Message>> {
        let command = match ask {
            Ask::Status(answer) => {
                let _ = answer.send(self.status(world.view(machine)));
                return None;
            }
            Ask::Readmit(node, answer) => {
                let by = self.identity.node;
                let recovering = world.view(machine).is_recovering();
                let readmitted =
                    if recovering { Err(AskError::Recovering { by }) } else { world.readmit(node) };
                let _ = answer.send(readmitted);
                return None;
            }
            Ask::Down(node, answer) => {
                let known = world.view(machine).has_member(self.identity.node, node);
                let command = known.is_ok().then_some(Command::Down(node));
                let _ = answer.send(known);
                command?
            }
            Ask::Resign(answer) => {
                let resigned = match self.leads() {
                    Err(AskError::GivingUp { term, .. }) => Ok(term),
                    resigned => resigned,
                };
                // A lead that is being given up already has its reason.
                let command = self.leads().is_ok().then_some(Command::Resign);
                let _ = answer.send(resigned);
                self.begin_end(command)?
            }
            Ask::Transfer(to, answer) => {
                let transferred = self.leads().and_then(|term| {
                    world.view(machine).may_lead(self.identity.node, to)?;
                    Ok(term)
                });
                let command = transferred.is_ok().then_some(Command::Transfer(to));
                let _ = answer.send(transferred);
                command?
            }
            Ask::Cordon(cordon, answer) => {
                let set = self.set_cordon(cordon);
                let command = set.is_ok().then(|| Command::Healthy(self.is_fit()));
                let _ = answer.send(set);
                if cordon { self.begin_end(command)? } else { command? }
            }
        };
        Some(Input::Command(command))
    }

    fn leads(&self) -> Result<Term, AskError> {
        let node = self.identity.node;
        if let Some(cell) = &self.cell {
            let term = cell.term();
            return if cell.is_ending() { Err(AskError::GivingUp { node, term }) } else { Ok(term) };
        }
        let leader = self.publisher.leader().map(|leader| leader.identity.node);
        let leader = leader.filter(|&leader| leader != node);
        let not_campaigning = self.not_campaigning.clone().filter(|_| self.candidate.is_none());
        Err(AskError::NotLeading { node, leader, not_campaigning })
    }

    /// Ends the leadership as the operator asked; the machine does not know the reason.
    fn begin_end(&self, command: Option<Command>) -> Option<Command> {
        if let (Some(_), Some(cell)) = (command, &self.cell) {
            cell.begin_end(Reason::Resigned);
        }
        command
    }

    fn set_cordon(&mut self, cordon: bool) -> Result<Kept, AskError> {
        if !cordon && self.witness {
            return Err(AskError::Witness { node: self.identity.node });
        }
        self.cordon.set(cordon)?;
        tracing::info!(cordon, "changed by the operator");
        Ok(if self.cordon.is_kept() { Kept::Durably } else { Kept::UntilRestart })
    }
}
