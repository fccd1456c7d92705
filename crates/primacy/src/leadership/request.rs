//! Requests of the application and of operators to the driver, which holds the machine.

use std::sync::{Arc, Weak};

use primacy_core::{LeaderSequence, Mandate, NodeId, Term};
use tokio::sync::oneshot;

use super::Leadership;
use crate::error::{AdminError, CampaignError, Kept, PublishError};
use crate::handshake::DiskId;
use crate::observer::ANNOUNCEMENT_MAX;
use crate::progress::Due;
use crate::status::Status;

/// The answer to a campaign.
pub(crate) type CampaignReply = oneshot::Sender<Result<Leadership<Mandate>, CampaignError>>;

/// A request of the application to the driver.
#[derive(Debug)]
pub(crate) enum Request {
    /// Campaign, and reply when elected. If the receiver is dropped, stop the campaign.
    Campaign(CampaignReply),
    /// Give up this leadership, if it is still the current one.
    Resign { term: Term },
    /// Transfer this leadership to this node.
    Transfer { term: Term, to: NodeId },
    /// The result of the health check.
    Healthy(bool),
    /// The reason why the application does not campaign.
    NotCampaigning(Option<String>),
    /// The work in this leadership must report progress.
    Promise { term: Term, due: Weak<Due> },
    /// Publish this state to all nodes.
    Publish(PublishRequest),
    /// A request of an operator.
    Admin(AdminRequest),
    /// Leave the election in order, and reply.
    Close(oneshot::Sender<()>),
}

/// A request of an operator, with the sender of its reply.
#[derive(Debug)]
pub(crate) enum AdminRequest {
    Status(oneshot::Sender<Status>),
    Resign(oneshot::Sender<Result<Term, AdminError>>),
    Transfer(NodeId, oneshot::Sender<Result<Term, AdminError>>),
    Cordon(bool, oneshot::Sender<Result<Kept, AdminError>>),
    Readmit(NodeId, oneshot::Sender<Result<DiskId, AdminError>>),
    Down(NodeId, oneshot::Sender<Result<(), AdminError>>),
}

/// A request to publish a state.
#[derive(Debug)]
pub(crate) struct PublishRequest {
    /// The leadership that may announce it; `None`: any of this node.
    pub(crate) term: Option<Term>,
    pub(crate) state: Arc<[u8]>,
    pub(crate) answer: oneshot::Sender<Result<LeaderSequence, PublishError>>,
}

/// Checks the length of a state, and hands the request to the driver.
pub(crate) async fn publish(
    state: &[u8],
    term: Option<Term>,
    request: impl FnOnce(Request) -> bool,
) -> Result<LeaderSequence, PublishError> {
    if state.len() > ANNOUNCEMENT_MAX {
        return Err(PublishError::TooLong { length: state.len() });
    }
    let (answer, answered) = oneshot::channel();
    if !request(Request::Publish(PublishRequest { term, state: state.into(), answer })) {
        return Err(PublishError::Closed);
    }
    answered.await.unwrap_or(Err(PublishError::Closed))
}
