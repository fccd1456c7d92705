//! Requests of operators to a running node: its status, changes of the leader, and changes of the nodes that may lead.

use primacy_core::{NodeId, Term};
use tokio::sync::oneshot;

use super::Elector;
use crate::error::{AdminError, Kept};
use crate::handshake::DiskId;
use crate::leadership::request::{AdminRequest, Request};
use crate::status::Status;

impl Elector {
    /// The status of this node, with its knowledge of the others.
    ///
    /// # Errors
    /// [`AdminError::Closed`]
    pub async fn status(&self) -> Result<Status, AdminError> {
        let (answer, status) = oneshot::channel();
        self.ask(AdminRequest::Status(answer))?;
        status.await.map_err(|_| AdminError::Closed)
    }

    /// Gives up the lead of this node in order, whether or not the caller holds the [`Leadership`](crate::Leadership). Returns the
    /// term at once, also if the lead is being given up already; the lead is released when its work has drained.
    ///
    /// # Errors
    /// [`AdminError::NotLeading`] or [`AdminError::Closed`]
    pub async fn resign(&self) -> Result<Term, AdminError> {
        let (answer, answered) = oneshot::channel();
        self.ask(AdminRequest::Resign(answer))?;
        answered.await.map_err(|_| AdminError::Closed)?
    }

    /// Transfers the lead of this node to `to`: it drains, releases the lead, and sends `to` the request to campaign at once,
    /// even if `to` is behind. The release is final: if `to` fails, another node is elected in order.
    ///
    /// # Errors
    /// [`AdminError`], after which nothing has changed.
    pub async fn transfer(&self, to: NodeId) -> Result<Term, AdminError> {
        let (answer, answered) = oneshot::channel();
        self.ask(AdminRequest::Transfer(to, answer))?;
        answered.await.map_err(|_| AdminError::Closed)?
    }

    /// Lets this node lead again, after [`cordon`](Self::cordon).
    ///
    /// # Errors
    /// [`AdminError`]; then the cordon is unchanged.
    pub async fn uncordon(&self) -> Result<Kept, AdminError> {
        self.set_cordon(false).await
    }

    /// Keeps this node from leading: it does not campaign, and resigns if it leads. Among peers it still votes. The
    /// cordon survives a restart if the node has a state directory.
    ///
    /// # Errors
    /// [`AdminError`]; then the cordon is unchanged.
    pub async fn cordon(&self) -> Result<Kept, AdminError> {
        self.set_cordon(true).await
    }

    async fn set_cordon(&self, cordon: bool) -> Result<Kept, AdminError> {
        let (answer, answered) = oneshot::channel();
        self.ask(AdminRequest::Cordon(cordon, answer))?;
        answered.await.map_err(|_| AdminError::Closed)?
    }

    /// Readmits a peer that lost its disk, with the new disk that it has presented. Call this on every other node: the peer takes
    /// part again when all of them have reported their term to it, so that none of its lost votes is missed. Returns the accepted
    /// disk; late messages from the former disk are dropped.
    ///
    /// # Errors
    /// [`AdminError`], after which nothing has changed.
    pub async fn readmit(&self, node: NodeId) -> Result<DiskId, AdminError> {
        let (answer, answered) = oneshot::channel();
        self.ask(AdminRequest::Readmit(node, answer))?;
        answered.await.map_err(|_| AdminError::Closed)?
    }

    /// By seniority: declares that this member is dead for good or its machine is off. The coordinator removes it at once,
    /// however few members remain. If the member is alive after all, it leads on beside the others until the parts reach each
    /// other.
    ///
    /// # Errors
    /// [`AdminError`], after which nothing has changed.
    pub async fn down(&self, node: NodeId) -> Result<(), AdminError> {
        let (answer, answered) = oneshot::channel();
        self.ask(AdminRequest::Down(node, answer))?;
        answered.await.map_err(|_| AdminError::Closed)?
    }

    fn ask(&self, ask: AdminRequest) -> Result<(), AdminError> {
        self.requests.send(Request::Admin(ask)).map_err(|_| AdminError::Closed)
    }
}
