//! Entries in a queue, which end with their sessions: the election `session`.

use primacy_core::election::lease::{Holder, RequestId};
use primacy_core::election::session::{
    Config, Ending, Entry, Eviction, Message, QueuePosition, RequestFailure, Session, SessionId,
};
use primacy_core::{Drift, Duration, FencingToken, Identity};

use super::bounds::StoreBounds;
use super::store_kind::{GuardianMachine, Machine, Mood, StoreKind};
use crate::algorithm::Algorithm as _;
use crate::elections;
use crate::model::now::{self, NOW};
use crate::sessions::refusal;

/// Returns this many ticks, each of three nanoseconds: a session is kept alive after a third of its duration, and the
/// shortest one here lasts two ticks.
fn ticks(count: u8) -> Duration {
    now::ticks(count).times(Queue::TICK)
}

/// The queue, and the live sessions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Queue {
    sessions: Vec<LiveSession>,
    entries: Vec<(SessionId, Entry)>,
    /// The number of sessions that were begun.
    begun: u8,
    /// The token of the last entry.
    token: u64,
    timeout: u8,
}

/// A live session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LiveSession {
    session: SessionId,
    /// The number of ticks of the store's clock after which the session may end, at any time.
    left: u8,
}

impl Queue {
    fn lives(&self, session: &SessionId) -> bool {
        self.sessions.iter().any(|life| life.session == *session)
    }

    fn keep_alive(&mut self, session: &SessionId) -> Result<(), RequestFailure> {
        let life =
            self.sessions.iter_mut().find(|life| life.session == *session).ok_or(RequestFailure::Ended)?;
        life.left = self.timeout;
        Ok(())
    }

    fn begin(&mut self) -> SessionId {
        self.begun += 1;
        let session = SessionId::new(&format!("s{}", self.begun));
        self.sessions.push(LiveSession { session: session.clone(), left: self.timeout });
        session
    }

    fn campaign(&mut self, session: &SessionId, holder: &Holder) -> Result<QueuePosition, RequestFailure> {
        if !self.lives(session) {
            return Err(RequestFailure::Ended);
        }
        if self.entries.iter().all(|(of, _)| of != session) {
            self.token += 1;
            let entry = Entry { holder: holder.clone(), token: FencingToken(self.token) };
            self.entries.push((session.clone(), entry));
        }
        match self.entries.first() {
            Some((of, first)) if of != session => Ok(QueuePosition::Behind { first: first.clone() }),
            Some((_, own)) => Ok(QueuePosition::First { token: own.token, asked_to_resign: false }),
            None => Err(RequestFailure::Ended), // One has just been made.
        }
    }

    fn leave(&mut self, session: &SessionId) -> Result<(), RequestFailure> {
        let lived = self.lives(session);
        self.entries.retain(|(of, _)| of != session);
        if lived { Ok(()) } else { Err(RequestFailure::Ended) }
    }

    fn end(&mut self, session: &SessionId) -> Result<(), RequestFailure> {
        let left = self.leave(session);
        self.sessions.retain(|life| life.session != *session);
        left
    }

    fn evict(&mut self, dead: Identity) -> bool {
        let entry = self.entries.iter().find(|(_, entry)| entry.holder.identity == dead);
        let Some((session, _)) = entry.cloned() else { return false };
        self.end(&session).is_ok()
    }
}

impl StoreKind for Queue {
    type Message = Message;
    type Machine = Session;
    type Guardian = Eviction;

    const TICK: u64 = 3;

    fn new(bounds: &StoreBounds) -> Self {
        Self { sessions: Vec::new(), entries: Vec::new(), begun: 0, token: 1, timeout: bounds.duration }
    }

    fn machine(me: Identity, _: u64, bounds: &StoreBounds) -> Session {
        let config = Config {
            me: Holder { identity: me, address: String::new() },
            timeout: ticks(bounds.duration),
            timeout_min: ticks(bounds.duration),
            drift_max: Drift::from_ppm(bounds.drift_percent * 10_000),
            keep_alive_interval: ticks(bounds.renew),
            // The node may read at any time; a late read is equivalent to a late node.
            look_interval: ticks(bounds.poll),
            request_timeout: ticks(bounds.request_timeout),
            poll_interval: ticks(bounds.poll),
        };
        Session::new(config, NOW)
    }

    fn guardian(dead: Identity, _: u64, bounds: &StoreBounds) -> Eviction {
        Eviction::new(dead, ticks(bounds.duration), ticks(bounds.poll), NOW)
    }

    fn serve(&mut self, message: &Message, mood: Mood) -> Option<Message> {
        let unknown = refusal(message, RequestFailure::NoAnswer);
        if mood == Mood::NotDoneUnknown {
            return unknown;
        }
        let timeout = ticks(self.timeout);
        let reply = match message.clone() {
            Message::Begin { request, .. } => {
                Message::BeginReply { request, result: Ok((self.begin(), timeout)) }
            }
            Message::KeepAlive { request, session } => {
                let result = self.keep_alive(&session).map(|()| timeout);
                Message::KeepAliveReply { request, result }
            }
            Message::Campaign { request, session, holder } => {
                Message::CampaignReply { request, result: self.campaign(&session, &holder) }
            }
            Message::Leave { request, session } => {
                Message::LeaveReply { request, result: self.leave(&session) }
            }
            Message::End { request, session } => Message::EndReply { request, result: self.end(&session) },
            Message::First { request } => {
                let first = self.entries.first().map(|(_, entry)| entry.clone());
                Message::FirstReply { request, result: Ok(first) }
            }
            Message::Evict { request, dead } => Message::EvictReply { request, result: Ok(self.evict(dead)) },
            Message::BeginReply { .. } | Message::KeepAliveReply { .. } | Message::CampaignReply { .. } => {
                return None;
            }
            Message::LeaveReply { .. } | Message::EndReply { .. } | Message::FirstReply { .. } => {
                return None;
            }
            Message::EvictReply { .. } | Message::Changed => return None,
        };
        if mood == Mood::DoneUnknown { unknown } else { Some(reply) }
    }

    fn delete(&mut self) -> bool {
        let any = !self.entries.is_empty();
        if any {
            self.entries.remove(0);
        }
        any
    }

    fn by_itself(&self) -> Vec<(Self, String)> {
        let over = self.sessions.iter().filter(|life| life.left == 0);
        let ended = |life: &LiveSession| {
            let mut queue = self.clone();
            let lived = queue.end(&life.session).is_ok();
            lived.then(|| (queue, format!("the store ends the session {}", life.session.as_str())))
        };
        over.filter_map(ended).collect()
    }

    fn tick(&mut self, by: u8) -> bool {
        for life in &mut self.sessions {
            life.left = life.left.saturating_sub(by);
        }
        true
    }

    fn is_bounded(request: &Message) -> bool {
        matches!(request, Message::Begin { .. })
    }

    fn is_write(request: &Message) -> bool {
        match request {
            Message::Campaign { .. }
            | Message::Leave { .. }
            | Message::End { .. }
            | Message::Evict { .. } => true,
            // A session that no process knows has no effect, and a late keep-alive is equivalent to a session that
            // ends late.
            Message::Begin { .. } | Message::KeepAlive { .. } | Message::First { .. } => false,
            Message::BeginReply { .. } | Message::KeepAliveReply { .. } | Message::CampaignReply { .. } => {
                false
            }
            Message::LeaveReply { .. } | Message::EndReply { .. } | Message::FirstReply { .. } => false,
            Message::EvictReply { .. } | Message::Changed => false,
        }
    }

    fn lets_go(request: &Message) -> Option<Option<FencingToken>> {
        let lets_go = matches!(request, Message::Leave { .. } | Message::End { .. } | Message::Evict { .. });
        lets_go.then_some(None)
    }

    fn number(message: &mut Message) -> Option<&mut RequestId> {
        match message {
            Message::Begin { request, .. } | Message::BeginReply { request, .. } => Some(request),
            Message::KeepAlive { request, .. } | Message::KeepAliveReply { request, .. } => Some(request),
            Message::Campaign { request, .. } | Message::CampaignReply { request, .. } => Some(request),
            Message::Leave { request, .. } | Message::LeaveReply { request, .. } => Some(request),
            Message::End { request, .. } | Message::EndReply { request, .. } => Some(request),
            Message::First { request } | Message::FirstReply { request, .. } => Some(request),
            Message::Evict { request, .. } | Message::EvictReply { request, .. } => Some(request),
            Message::Changed => None,
        }
    }

    fn text(message: &Message) -> String {
        elections::session::Session::text(message)
    }
}

impl Machine for Session {
    fn leads(&self) -> bool {
        self.role() == "leading"
    }

    fn under_way(&self) -> [Option<RequestId>; 2] {
        Self::under_way(self)
    }

    fn renumber(&mut self, [asked, keeping]: [RequestId; 2]) {
        Self::renumber(self, asked, keeping);
    }
}

impl GuardianMachine for Eviction {
    fn ending(&self) -> Option<bool> {
        Self::ending(self).map(|ending| ending == Ending::Done)
    }

    fn last_request(&self) -> RequestId {
        Self::last_request(self)
    }

    fn renumber(&mut self, last: RequestId) {
        Self::renumber(self, last);
    }
}
