//! A linearizable queue whose entries end with their sessions, with expiry by the store's own clock.

use std::collections::BTreeMap;

use primacy_core::election::lease::{Holder, RequestId};
use primacy_core::election::session::{Entry, Message, QueuePosition, RequestFailure, SessionId};
use primacy_core::{Duration, FencingToken, Identity};

use crate::clock::Moment;
use crate::store::{Mishap, Mood};

/// The queue of a store that keeps sessions.
#[derive(Clone, Debug, Default)]
pub struct SessionStore {
    sessions: BTreeMap<SessionId, LiveSession>,
    queue: Vec<QueuedEntry>,
    /// The number of sessions and entries so far.
    count: u64,
    /// The delay with which the store ends an expired session.
    pub lateness: Duration,
    /// The timeout that it grants, in place of the requested one.
    pub timeout: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct LiveSession {
    timeout: Duration,
    ends_at: Moment,
}

#[derive(Clone, Debug)]
struct QueuedEntry {
    session: SessionId,
    entry: Entry,
    asked_to_resign: bool,
}

/// The result of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionServed {
    /// The reply, unless it was lost.
    pub reply: Option<Message>,
    /// The processes to notify.
    pub notice: ChangeNotice,
    /// The released leadership.
    pub released: Option<FencingToken>,
    /// The name of the counter to increment, if any.
    pub met: Option<&'static str>,
    /// The moment at which the queue must be checked for expired sessions.
    pub look_at: Option<Moment>,
}

/// The processes to notify of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeNotice {
    /// The processes whose own entry was changed, or the entry before it.
    pub to: Vec<Identity>,
    /// True if all processes without an entry are notified too.
    pub to_onlookers: bool,
}

impl ChangeNotice {
    /// True if no process is notified.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.to.is_empty() && !self.to_onlookers
    }
}

impl SessionStore {
    /// The first entry.
    #[must_use]
    pub fn first(&self) -> Option<&Entry> {
        self.queue.first().map(|it| &it.entry)
    }

    /// True if this process has an entry.
    #[must_use]
    pub fn has_entry(&self, who: Identity) -> bool {
        self.queue.iter().any(|it| it.entry.holder.identity == who)
    }

    /// The queue as text for people.
    #[must_use]
    pub fn text(&self) -> String {
        let text = |it: &QueuedEntry| {
            let asked = if it.asked_to_resign { ", asked to resign" } else { "" };
            format!(
                "{} with token {} in {}{asked}",
                it.entry.holder.identity.node,
                it.entry.token,
                it.session.as_str()
            )
        };
        let entries: Vec<String> = self.queue.iter().map(text).collect();
        if entries.is_empty() { "nobody".to_owned() } else { entries.join("; ") }
    }

    /// Removes the first entry, as an operator does.
    pub fn remove_first(&mut self) -> ChangeNotice {
        if self.queue.is_empty() { ChangeNotice::default() } else { self.remove(|place, _| place == 0) }
    }

    /// Ends the session of this process at once, which a correct store never does.
    pub fn end_session_of(&mut self, who: Identity) -> ChangeNotice {
        let session =
            self.queue.iter().find(|it| it.entry.holder.identity == who).map(|it| it.session.clone());
        session.map(|session| self.end(&session)).unwrap_or_default()
    }

    /// Asks the first process in the queue to resign.
    pub fn ask_to_resign(&mut self) -> ChangeNotice {
        let Some(first) = self.queue.first_mut() else { return ChangeNotice::default() };
        first.asked_to_resign = true;
        ChangeNotice { to: vec![first.entry.holder.identity], to_onlookers: false }
    }

    /// Ends expired sessions.
    pub fn run_out(&mut self, now: Moment) -> ChangeNotice {
        let over = self.sessions.iter().filter(|(_, life)| life.ends_at.after(self.lateness) <= now);
        let over: Vec<SessionId> = over.map(|(session, _)| session.clone()).collect();
        let mut notice = ChangeNotice::default();
        for session in over {
            let more = self.end(&session);
            notice.to.extend(more.to);
            notice.to_onlookers |= more.to_onlookers;
        }
        notice
    }

    fn end(&mut self, session: &SessionId) -> ChangeNotice {
        self.sessions.remove(session);
        self.remove(|_, it| it.session == *session)
    }

    /// Removes these entries. Their owners are notified, the process behind each removed entry, and all observers if
    /// the first entry was removed.
    fn remove(&mut self, is_out: impl Fn(usize, &QueuedEntry) -> bool) -> ChangeNotice {
        let mut notice = ChangeNotice::default();
        let mut stay = Vec::new();
        let mut before_went = false;
        for (place, it) in core::mem::take(&mut self.queue).into_iter().enumerate() {
            let goes = is_out(place, &it);
            if goes || before_went {
                notice.to.push(it.entry.holder.identity);
            }
            notice.to_onlookers |= goes && place == 0;
            before_went = goes;
            if !goes {
                stay.push(it);
            }
        }
        self.queue = stay;
        notice
    }

    /// Serves one request, unless the store is down or silent.
    pub fn serve(
        &mut self,
        now: Moment,
        mood: Mood,
        mishap: Option<Mishap>,
        message: &Message,
    ) -> SessionServed {
        match mood {
            Mood::Silent => return SessionServed { met: Some("store: silent"), ..SessionServed::default() },
            Mood::Down => {
                return SessionServed {
                    reply: refusal(message, RequestFailure::NoAnswer),
                    ..SessionServed::default()
                };
            }
            Mood::Up => {}
        }
        if mishap == Some(Mishap::UnknownNotDone) {
            let reply = refusal(message, RequestFailure::NoAnswer);
            return SessionServed { reply, met: mishap.map(Mishap::name), ..SessionServed::default() };
        }
        let mut served = self.serve_once(now, message);
        if mishap == Some(Mishap::DoneTwice) {
            let again = self.serve_once(now, message);
            served.reply = again.reply;
        }
        match mishap {
            Some(Mishap::ReplyLost) => served.reply = None,
            Some(Mishap::UnknownButDone) => served.reply = refusal(message, RequestFailure::NoAnswer),
            Some(Mishap::DoneTwice | Mishap::UnknownNotDone) | None => {}
        }
        served.met = mishap.map(Mishap::name);
        served
    }

    fn serve_once(&mut self, now: Moment, message: &Message) -> SessionServed {
        let mut served = SessionServed { notice: self.run_out(now), ..SessionServed::default() };
        let (reply, notice) = match message.clone() {
            Message::Begin { request, timeout } => {
                let timeout = self.timeout.unwrap_or(timeout);
                self.count += 1;
                let session = SessionId::new(&format!("s{}", self.count));
                served.look_at = Some(self.keep(now, &session, timeout));
                (Message::BeginReply { request, result: Ok((session, timeout)) }, ChangeNotice::default())
            }
            Message::KeepAlive { request, session } => {
                let known = self.sessions.get(&session).map(|life| self.timeout.unwrap_or(life.timeout));
                let timeout = known.ok_or(RequestFailure::Ended);
                served.look_at = timeout.ok().map(|timeout| self.keep(now, &session, timeout));
                (Message::KeepAliveReply { request, result: timeout }, ChangeNotice::default())
            }
            Message::Campaign { request, session, holder } => {
                let (result, notice) = self.campaign(&session, holder);
                (Message::CampaignReply { request, result }, notice)
            }
            Message::Leave { request, session } => {
                let (result, notice) = self.let_go(&session, &mut served.released, false);
                (Message::LeaveReply { request, result }, notice)
            }
            Message::End { request, session } => {
                let (result, notice) = self.let_go(&session, &mut served.released, true);
                (Message::EndReply { request, result }, notice)
            }
            Message::First { request } => {
                (Message::FirstReply { request, result: Ok(self.first().cloned()) }, ChangeNotice::default())
            }
            Message::Evict { request, dead } => {
                let entry = self.queue.iter().find(|it| it.entry.holder.identity == dead);
                served.released = entry.map(|it| it.entry.token);
                let found = served.released.is_some();
                (Message::EvictReply { request, result: Ok(found) }, self.end_session_of(dead))
            }
            Message::BeginReply { .. }
            | Message::KeepAliveReply { .. }
            | Message::CampaignReply { .. }
            | Message::LeaveReply { .. }
            | Message::EndReply { .. }
            | Message::FirstReply { .. }
            | Message::EvictReply { .. }
            | Message::Changed => return served, // No request.
        };
        served.reply = Some(reply);
        served.notice.to.extend(notice.to);
        served.notice.to_onlookers |= notice.to_onlookers;
        served
    }

    /// Renews a session. Returns the moment at which it would expire now.
    fn keep(&mut self, now: Moment, session: &SessionId, timeout: Duration) -> Moment {
        let ends_at = now.after(timeout);
        self.sessions.insert(session.clone(), LiveSession { timeout, ends_at });
        ends_at.after(self.lateness)
    }

    fn campaign(
        &mut self,
        session: &SessionId,
        holder: Holder,
    ) -> (Result<QueuePosition, RequestFailure>, ChangeNotice) {
        if !self.sessions.contains_key(session) {
            return (Err(RequestFailure::Ended), ChangeNotice::default());
        }
        let mut notice = ChangeNotice::default();
        if !self.queue.iter().any(|it| it.session == *session) {
            notice.to_onlookers = self.queue.is_empty();
            self.count += 1;
            let entry = Entry { holder, token: FencingToken(self.count) };
            self.queue.push(QueuedEntry { session: session.clone(), entry, asked_to_resign: false });
        }
        let place = match self.queue.first() {
            Some(first) if first.session != *session => QueuePosition::Behind { first: first.entry.clone() },
            Some(QueuedEntry { entry, asked_to_resign, .. }) => {
                QueuePosition::First { token: entry.token, asked_to_resign: *asked_to_resign }
            }
            None => return (Err(RequestFailure::Ended), notice), // It has just been pushed.
        };
        (Ok(place), notice)
    }

    fn let_go(
        &mut self,
        session: &SessionId,
        released: &mut Option<FencingToken>,
        ends: bool,
    ) -> (Result<(), RequestFailure>, ChangeNotice) {
        if !self.sessions.contains_key(session) {
            return (Err(RequestFailure::Ended), ChangeNotice::default());
        }
        *released = self.queue.iter().find(|it| it.session == *session).map(|it| it.entry.token);
        let notice = if ends { self.end(session) } else { self.remove(|_, it| it.session == *session) };
        (Ok(()), notice)
    }
}

/// Returns the reply that carries this failure; `None` if the message is no request.
pub(crate) fn refusal(message: &Message, failure: RequestFailure) -> Option<Message> {
    let id = |request: &RequestId| *request;
    Some(match message {
        Message::Begin { request, .. } => Message::BeginReply { request: id(request), result: Err(failure) },
        Message::KeepAlive { request, .. } => {
            Message::KeepAliveReply { request: id(request), result: Err(failure) }
        }
        Message::Campaign { request, .. } => {
            Message::CampaignReply { request: id(request), result: Err(failure) }
        }
        Message::Leave { request, .. } => Message::LeaveReply { request: id(request), result: Err(failure) },
        Message::End { request, .. } => Message::EndReply { request: id(request), result: Err(failure) },
        Message::First { request } => Message::FirstReply { request: id(request), result: Err(failure) },
        Message::Evict { request, .. } => Message::EvictReply { request: id(request), result: Err(failure) },
        Message::BeginReply { .. }
        | Message::KeepAliveReply { .. }
        | Message::CampaignReply { .. }
        | Message::LeaveReply { .. }
        | Message::EndReply { .. }
        | Message::FirstReply { .. }
        | Message::EvictReply { .. }
        | Message::Changed => return None,
    })
}
