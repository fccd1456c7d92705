//! Session: the owner of the first entry in a store's queue leads; an entry is removed when its owner's session ends.
//!
//! Assumes   the store's queue is linearizable, counts its entries, and ends a session no sooner than its timeout after
//!           the last keep-alive was sent; the rates of any two clocks differ by at most `drift_max`.
//! Promises  at most one node at a time leads; each leadership has a higher token.
//! Costs     one keep-alive per third of the session or less for each candidate, and a look (a read of the queue); a
//!           take-over after silence costs the whole session, after a resignation or a reported death one
//!           notification and a look. No herd: only the next in the queue is notified.
//!
//! The roles of a node:
//!
//! ```text
//!            a session, and an entry in the queue        the entry is the first, and the session was kept alive
//!   Waiting ──────────────────────────────────► Waiting ──────────────────────────► Leading ──┐ keeps alive
//!      ▲  ▲                                                                           │ │  ▲──┘ in time
//!      │  └─── the store says that the session has ended, or that the entry is gone ──┘ │
//!      └─── the entry is out of the queue ◄── Leaving ◄── drained, or not kept alive ───┘
//! ```
//!
//! Why two nodes never lead: an entry becomes the first only when the entry before it is gone, because its owner
//! removed it, or its guardian did, or its session ended. The owner ends its leadership before it removes the entry;
//! and it counts the session from before it *sent* the keep-alive, less the drift, so it stops leading before the store
//! may end the session.
//!
//! Every request may be repeated: a session that is not kept alive ends by itself, and an entry is found again by its
//! session. So a missing answer does no harm, and writes need no nonce.
//!
//! At most two requests are under way at once: a keep-alive, and one other. A keep-alive must not wait behind a slow
//! look, or the lead would be lost; and the requests to the queue are made one at a time, in order.

mod eviction;
mod state_reduction;
mod status;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

pub use self::eviction::{Ending, Eviction};
pub use self::status::Status;
use super::lease::{Holder, RequestId};
use crate::fence::FencingToken;
use crate::id::Identity;
use crate::protocol::{
    Command, Endpoint, Event, Input, Leader, Mandate, Output, Protocol, Reason, Violation,
};
use crate::term::Term;
use crate::time::{Drift, Duration, Instant};

/// The number of keep-alives per session timeout.
const KEEP_ALIVES: u64 = 3;

/// The node and the timing of the election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// This node, with the incarnation of this process, and its address; goes into its entry.
    pub me: Holder,
    /// The session timeout that the store is asked for. The store may choose another one, which then counts.
    pub timeout: Duration,
    /// The shortest usable session timeout: in a shorter session the work could not drain.
    pub timeout_min: Duration,
    /// The largest difference between the rates of two clocks.
    pub drift_max: Drift,
    /// The interval between keep-alives, or a third of the session's timeout, if that is less.
    pub keep_alive_interval: Duration,
    /// The interval at which a node looks at the queue if the store reports no change. Shorter than `timeout`, because
    /// the leader that a look shows is reported for no longer than that.
    pub look_interval: Duration,
    /// The time after which a request counts as unanswered.
    pub request_timeout: Duration,
    /// The time before a node asks an unreachable store again, or begins another session.
    pub poll_interval: Duration,
}

/// The identifier of a session in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Box<str>);

impl SessionId {
    /// Makes an id from the store's name of the session.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name in the store.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One candidate in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The candidate. For a foreign client, which is not a Primacy node, the name is derived from what the store shows
    /// of the client, the count is 0, and the nonce is derived from its session.
    pub holder: Holder,
    /// The store's counter when the entry was made; later entries have higher tokens.
    pub token: FencingToken,
}

/// The position of a session's entry in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum QueuePosition {
    /// The first: it leads, as long as its session lives.
    First {
        /// Its token.
        token: FencingToken,
        /// True if it was asked to resign.
        asked_to_resign: bool,
    },
    /// Behind others.
    Behind {
        /// The first one.
        first: Entry,
    },
}

/// The reason why a request to a store failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestFailure {
    /// The session has ended, and its entries are gone.
    Ended,
    /// There was no answer; the request may have been done, or may yet be.
    NoAnswer,
}

/// The result of a session's request.
type Answer<T> = Result<T, RequestFailure>;

/// A message between a candidate and the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Message {
    /// To the store: begin a session.
    Begin {
        /// The number of this request.
        request: RequestId,
        /// The session timeout that is asked for.
        timeout: Duration,
    },
    /// The answer: the session, and its timeout, which counts from when the request was sent.
    BeginReply {
        /// The request that is answered.
        request: RequestId,
        /// The session.
        result: Result<(SessionId, Duration), RequestFailure>,
    },
    /// To the store: this process is alive.
    KeepAlive {
        /// The number of this request.
        request: RequestId,
        /// The session.
        session: SessionId,
    },
    /// The answer: the session's timeout, which counts from when the request was sent.
    KeepAliveReply {
        /// The request that is answered.
        request: RequestId,
        /// The timeout.
        result: Result<Duration, RequestFailure>,
    },
    /// To the store: create an entry for this session if it has none, and report its position.
    Campaign {
        /// The number of this request.
        request: RequestId,
        /// The session.
        session: SessionId,
        /// The candidate that the entry names.
        holder: Holder,
    },
    /// The answer.
    CampaignReply {
        /// The request that is answered.
        request: RequestId,
        /// The position of the entry.
        result: Result<QueuePosition, RequestFailure>,
    },
    /// To the store: take this session's entry away.
    Leave {
        /// The number of this request.
        request: RequestId,
        /// The session.
        session: SessionId,
    },
    /// The answer.
    LeaveReply {
        /// The request that is answered.
        request: RequestId,
        /// Done, or not known.
        result: Result<(), RequestFailure>,
    },
    /// To the store: end this session.
    End {
        /// The number of this request.
        request: RequestId,
        /// The session.
        session: SessionId,
    },
    /// The answer.
    EndReply {
        /// The request that is answered.
        request: RequestId,
        /// Done, or not known.
        result: Result<(), RequestFailure>,
    },
    /// To the store: report the first entry.
    First {
        /// The number of this request.
        request: RequestId,
    },
    /// The answer.
    FirstReply {
        /// The request that is answered.
        request: RequestId,
        /// The first entry, if there is one.
        result: Result<Option<Entry>, RequestFailure>,
    },
    /// To the store, from a guardian: this incarnation and all its work have ended; remove its entry and its session.
    Evict {
        /// The number of this request.
        request: RequestId,
        /// The incarnation that is gone.
        dead: Identity,
    },
    /// The answer.
    EvictReply {
        /// The request that is answered.
        request: RequestId,
        /// True if there was anything to remove.
        result: Result<bool, RequestFailure>,
    },
    /// From the store: the queue may have changed since its last answer.
    Changed,
}

/// The state machine of one candidate, or of one observer that does not campaign.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    config: Config,
    role: Role,
    /// True if the application wants this node to lead.
    campaigning: bool,
    healthy: bool,
    /// The session, while there is one.
    line: Option<Line>,
    /// The request to the queue that is under way.
    asked: Option<Asked>,
    /// The keep-alive under way: its number, and the time of the request.
    keeping: Option<(RequestId, Instant)>,
    last_request: RequestId,
    /// True if the store reported a change while a request was under way.
    changed: bool,
    /// The time of the next request to the queue, while none is under way.
    act_at: Instant,
    /// The time from which this node may campaign: after a resignation it lets others go first.
    campaign_from: Instant,
    /// The time from which it may begin a session, so that a store that ends every session is not asked as fast as it
    /// can answer.
    begin_from: Instant,
    /// The timeout that the store gave, if it was shorter than `timeout_min`.
    too_short: Option<Duration>,
    /// Another node's entry that the store showed as the first, and the time of that look.
    seen: Option<(Entry, Instant)>,
    /// The token of its entry, if the entry is the first, and too little of the session was left to lead. The node
    /// leads as soon as its session is kept alive: while the session lasts, the entry stays the first.
    first: Option<FencingToken>,
    /// The highest token of other nodes and of this node's ended leaderships. A new token must be higher.
    spent: FencingToken,
    told_leader: Option<Leader>,
    outputs: VecDeque<Output<Message, ()>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Role {
    /// Watches the queue, and has an entry in it if it campaigns.
    Waiting,
    Leading(Lead),
    /// Has given up its entry for good. The entry may still be in the queue, or a late request may put it there.
    Leaving {
        until: Instant,
        /// True if the entry is out, and only the session is left.
        left: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lead {
    token: FencingToken,
    valid_until: Instant,
    /// The latest end that was reported to the application. It is later than `valid_until` if the store has since
    /// shortened the session's timeout.
    told_until: Instant,
    /// The reason for resigning, while the work is being drained. The session is kept alive until it has drained.
    resigning: Option<Reason>,
}

/// The session of this node, as the store counts it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Line {
    session: SessionId,
    timeout: Duration,
    /// The time at which the last answered keep-alive was sent.
    kept_at: Instant,
    /// The time at which the next one is due.
    keep_at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asked {
    request: RequestId,
    at: Instant,
    what: RequestKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RequestKind {
    Begin,
    Campaign,
    Leave,
    End,
    First,
}

impl Protocol for Session {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        debug_assert!(self.outputs.is_empty(), "all outputs must be drained before the next input");
        self.expire(now);
        match input {
            Input::Message { from: Endpoint::Store, message } => self.on_message(now, message),
            Input::Message { from: Endpoint::Node(_) | Endpoint::Client, .. } => {} // The candidates do not talk to each other.
            Input::Timeout => self.on_timeout(now),
            Input::Command(command) => self.on_command(now, command),
            Input::Evidence(_) => {} // Only the queue counts; a guardian takes an entry out of it.
        }
        self.tell_leader(now);
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let end = match &self.role {
            Role::Leading(lead) => lead.valid_until,
            Role::Leaving { until, .. } => *until,
            Role::Waiting => Instant::NEVER,
        };
        let told_until = match (&self.told_leader, &self.seen) {
            (Some(leader), Some((_, at))) if leader.identity != self.me() => self.is_told_until(*at),
            (Some(_) | None, _) => Instant::NEVER,
        };
        let next = match &self.asked {
            Some(asked) => self.times_out(asked.at),
            None => self.act_at,
        };
        Some(next.min(end).min(told_until).min(self.next_keep_alive()))
    }
}

impl Session {
    /// The state machine of `config.me`. It watches from the start, and campaigns when commanded to.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        Self {
            config,
            role: Role::Waiting,
            campaigning: false,
            healthy: true,
            line: None,
            asked: None,
            keeping: None,
            last_request: RequestId(0),
            changed: false,
            act_at: now,
            campaign_from: now,
            begin_from: now,
            too_short: None,
            seen: None,
            first: None,
            spent: FencingToken(0),
            told_leader: None,
            outputs: VecDeque::new(),
        }
    }

    /// True if nothing is left to clean up after a leadership or a withdrawal: its entry is out of the queue, and no
    /// session is left behind.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let begins = self.is_asked(RequestKind::Begin);
        matches!(self.role, Role::Waiting) && (self.campaigns() || (self.line.is_none() && !begins))
    }

    /// The role, for people: `watching`, `waiting`, `leading` or `leaving`.
    #[must_use]
    pub const fn role(&self) -> &'static str {
        match self.role {
            Role::Waiting if self.line.is_none() => "watching",
            Role::Waiting => "waiting",
            Role::Leading(_) => "leading",
            Role::Leaving { .. } => "leaving",
        }
    }

    // ── inputs ──────────────────────────────────────────────────────────────────────────────────────────────

    fn on_message(&mut self, now: Instant, message: Message) {
        match message {
            Message::Changed => self.changed = true,
            Message::KeepAliveReply { request, result } => {
                if let Some((_, at)) = self.keeping.take_if(|(keeping, _)| *keeping == request) {
                    self.on_kept_alive(now, at, result);
                }
            }
            Message::BeginReply { request, result } => {
                if let Some(at) = self.take_asked(request, RequestKind::Begin) {
                    self.on_begun(now, at, result);
                }
            }
            Message::CampaignReply { request, result } => {
                if self.take_asked(request, RequestKind::Campaign).is_some() {
                    self.on_place(now, result);
                }
            }
            Message::LeaveReply { request, result } => {
                if self.take_asked(request, RequestKind::Leave).is_some() {
                    self.on_left(now, result);
                }
            }
            Message::EndReply { request, result } => {
                if self.take_asked(request, RequestKind::End).is_some() {
                    self.on_ended(now, result);
                }
            }
            Message::FirstReply { request, result } => {
                if self.take_asked(request, RequestKind::First).is_some() {
                    self.on_first(now, result);
                }
            }
            // The store asks nothing, and a guardian's answers go to the guardian.
            Message::Begin { .. } | Message::KeepAlive { .. } | Message::Campaign { .. } => {}
            Message::Leave { .. } | Message::End { .. } | Message::First { .. } => {}
            Message::Evict { .. } | Message::EvictReply { .. } => {}
        }
        if self.changed && self.asked.is_none() {
            self.act(now);
        }
    }

    /// Takes the request under way, if the answer is to it, and returns the time at which it was sent; `None` if the
    /// answer is to an abandoned request.
    fn take_asked(&mut self, request: RequestId, what: RequestKind) -> Option<Instant> {
        Some(self.asked.take_if(|asked| asked.request == request && asked.what == what)?.at)
    }

    fn on_timeout(&mut self, now: Instant) {
        if now >= self.next_keep_alive() {
            self.keep_alive(now);
        }
        match &self.asked {
            // No answer. Any request may be repeated.
            Some(asked) if now >= self.times_out(asked.at) => {
                self.asked = None;
                self.act(now);
            }
            None if now >= self.act_at => self.act(now),
            Some(_) | None => {} // Early.
        }
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Campaign => {
                self.campaigning = true;
                self.act_soon(now);
            }
            Command::Withdraw => {
                self.campaigning = false;
                self.retire(now, Reason::Resigned);
            }
            Command::Healthy(true) => {
                self.healthy = true;
                self.act_soon(now);
            }
            Command::Healthy(false) => {
                self.healthy = false;
                self.retire(now, Reason::Unhealthy);
            }
            Command::Resign => self.resign(Reason::Resigned),
            // The queue decides which node is next.
            Command::Transfer(_) => self.resign(Reason::Resigned),
            Command::Down(_) => {} // It has no members.
            Command::Drained => {
                if let Role::Leading(Lead { resigning: Some(reason), .. }) = self.role {
                    self.give_up(now, reason);
                }
            }
        }
    }

    // ── the session ─────────────────────────────────────────────────────────────────────────────────────────

    fn on_begun(&mut self, now: Instant, asked_at: Instant, result: Answer<(SessionId, Duration)>) {
        let Ok((session, timeout)) = result else {
            self.act_at = now.after(self.config.poll_interval);
            return;
        };
        let is_too_short = timeout < self.config.timeout_min;
        self.too_short = is_too_short.then_some(timeout);
        let keep_at = asked_at.after(self.keep_alive_interval(timeout));
        self.line = Some(Line { session, timeout, kept_at: asked_at, keep_at });
        if is_too_short {
            // Ask again later: an operator of the store may have raised its limit.
            self.begin_from = now.after(self.config.timeout);
        }
        if is_too_short || !self.campaigns() {
            self.role = Role::Leaving { until: self.gone_by(now), left: true };
        }
        self.act(now);
    }

    fn on_kept_alive(&mut self, now: Instant, asked_at: Instant, result: Answer<Duration>) {
        match result {
            Ok(timeout) => {
                let keep_at = asked_at.after(self.keep_alive_interval(timeout));
                let Some(line) = &mut self.line else { return };
                (line.timeout, line.kept_at, line.keep_at) = (timeout, asked_at, keep_at);
                match self.role {
                    Role::Leading(_) => self.extend_lease(now),
                    Role::Waiting => {
                        if let Some(token) = self.first.take() {
                            self.become_leader(now, token);
                        }
                    }
                    Role::Leaving { .. } => {}
                }
            }
            Err(RequestFailure::Ended) => self.lose_session(now),
            Err(RequestFailure::NoAnswer) => {
                if let Some(line) = &mut self.line {
                    line.keep_at = now.after(self.config.poll_interval);
                }
            }
        }
    }

    /// The time until which this node may lead, by the last keep-alive.
    fn valid_until(&self) -> Option<Instant> {
        let line = self.line.as_ref()?;
        Some(line.kept_at.after(self.config.drift_max.shorten(line.timeout)))
    }

    fn extend_lease(&mut self, now: Instant) {
        let Some(until) = self.valid_until() else { return };
        let Role::Leading(lead) = &mut self.role else { return };
        let is_cut = until < lead.valid_until;
        lead.valid_until = until;
        if until > lead.told_until {
            lead.told_until = until;
            self.tell(Event::Renewed { valid_until: until });
        }
        if is_cut {
            // The store has shortened the timeout on which the work relied. The work must end before the store may end
            // the session; until it has, the entry stays and the session is kept alive.
            self.resign(Reason::Expired);
            self.expire(now);
        }
    }

    /// Handles the end of the session, as the store reports it; its entries go with it.
    fn lose_session(&mut self, now: Instant) {
        self.step_down(Reason::SessionEnded);
        self.drop_session(now);
    }

    fn drop_session(&mut self, now: Instant) {
        (self.role, self.line, self.asked, self.keeping) = (Role::Waiting, None, None, None);
        self.first = None;
        self.act_at = now;
    }

    // ── the queue ───────────────────────────────────────────────────────────────────────────────────────────

    /// Makes the request that is due now.
    fn act(&mut self, now: Instant) {
        self.act_at = now.after(self.config.look_interval);
        match &self.role {
            Role::Leaving { left: false, .. } => self.ask(now, RequestKind::Leave),
            Role::Leaving { left: true, .. } => self.ask(now, RequestKind::End),
            // Only look: `Campaign` would create a missing entry again, which would have to be removed.
            Role::Leading(Lead { resigning: Some(_), .. }) => self.look(now, RequestKind::First),
            Role::Leading(_) => self.look(now, RequestKind::Campaign),
            Role::Waiting if self.campaigns() && now >= self.campaign_from => match self.line {
                Some(_) => self.look(now, RequestKind::Campaign),
                None if now >= self.begin_from => {
                    self.begin_from = now.after(self.config.poll_interval);
                    self.ask(now, RequestKind::Begin);
                }
                None => self.look(now, RequestKind::First),
            },
            Role::Waiting => self.look(now, RequestKind::First),
        }
    }

    fn look(&mut self, now: Instant, what: RequestKind) {
        self.changed = false;
        self.ask(now, what);
    }

    /// Sets the time of the next look, if the store reports nothing.
    fn rest(&mut self, now: Instant) {
        let next = now.after(self.config.look_interval);
        let campaigns_at = match self.role {
            Role::Waiting if self.campaigns() && now < self.campaign_from => self.campaign_from,
            Role::Waiting if self.campaigns() && self.line.is_none() => self.begin_from,
            Role::Waiting | Role::Leading(_) | Role::Leaving { .. } => Instant::NEVER,
        };
        self.act_at = next.min(campaigns_at.max(now));
    }

    fn on_no_answer(&mut self, now: Instant) {
        // To ask again at once does not help, nor does a reported change that could not be read.
        self.changed = false;
        self.act_at = now.after(self.config.poll_interval);
    }

    fn on_place(&mut self, now: Instant, result: Answer<QueuePosition>) {
        let place = match result {
            Ok(place) => place,
            Err(RequestFailure::Ended) => return self.lose_session(now),
            Err(RequestFailure::NoAnswer) => return self.on_no_answer(now),
        };
        self.rest(now);
        match (&self.role, place) {
            // The request was sent before this node gave up its entry.
            (Role::Leaving { .. }, QueuePosition::First { .. } | QueuePosition::Behind { .. }) => {
                self.act(now)
            }
            (Role::Leading(lead), QueuePosition::First { token, asked_to_resign }) if token == lead.token => {
                if asked_to_resign {
                    self.resign(Reason::Resigned);
                }
            }
            // Its entry was removed, and another one made. It may lead with the new entry, but only after another look.
            (Role::Leading(_), QueuePosition::First { .. }) => self.entry_removed(now),
            (Role::Leading(_), QueuePosition::Behind { first }) => {
                self.entry_removed(now);
                self.see(now, first);
            }
            (Role::Waiting, QueuePosition::First { token, .. }) => self.become_leader(now, token),
            (Role::Waiting, QueuePosition::Behind { first }) => self.see(now, first),
        }
    }

    fn on_first(&mut self, now: Instant, result: Answer<Option<Entry>>) {
        let Ok(first) = result else { return self.on_no_answer(now) };
        self.rest(now);
        if let Role::Leading(lead) = &self.role {
            if first.as_ref().is_some_and(|entry| entry.token == lead.token) {
                return;
            }
            self.entry_removed(now);
        }
        match first {
            Some(entry) if entry.holder.identity != self.me() => self.see(now, entry),
            // An own entry without a session is left from a session that is ending.
            Some(_) | None => self.seen = None,
        }
        if matches!(self.role, Role::Leaving { .. }) && self.asked.is_none() {
            self.act(now);
        }
    }

    /// Records that another node's entry is the first.
    fn see(&mut self, now: Instant, entry: Entry) {
        let (seen, found) = (self.spent, entry.token);
        let is_news = self.seen.as_ref().is_none_or(|(known, _)| *known != entry);
        if found < seen && is_news {
            self.tell(Event::Violation(Violation::TokenWentDown { seen, found }));
        }
        self.spent = seen.max(found);
        (self.seen, self.first) = (Some((entry, now)), None);
    }

    /// Handles the loss of the entry from the queue, while the session lives.
    fn entry_removed(&mut self, now: Instant) {
        self.step_down(Reason::Removed);
        self.seen = None;
        self.act_at = now;
        if !self.campaigns() {
            // It was draining in order to withdraw: its session must end too.
            self.leave(now);
        }
    }

    /// Handles that this node's entry is the first.
    fn become_leader(&mut self, now: Instant, token: FencingToken) {
        self.seen = None;
        if token <= self.spent {
            // The store was restored from a backup, or the entry is of an ended leadership, whose leftover writes must
            // not pass the fence.
            self.tell(Event::Violation(Violation::TokenWentDown { seen: self.spent, found: token }));
            self.campaign_from = now.after(self.config.timeout);
            return self.leave(now);
        }
        let (Some(line), Some(valid_until)) = (&self.line, self.valid_until()) else { return };
        if now >= line.keep_at || now >= valid_until {
            // Too little of the session is certain to be left: wait for a keep-alive.
            self.first = Some(token);
            return;
        }
        self.role = Role::Leading(Lead { token, valid_until, told_until: valid_until, resigning: None });
        self.tell(Event::Elected { term: Term(token.0), mandate: Mandate::Fenced(token), valid_until });
    }

    // ── the end of a leadership ─────────────────────────────────────────────────────────────────────────────

    fn expire(&mut self, now: Instant) {
        match &self.role {
            Role::Leading(lead) if now >= lead.valid_until => {
                self.step_down(Reason::Expired);
                self.leave(now);
            }
            // The store did not answer, and must have ended the session by now.
            Role::Leaving { until, .. } if now >= *until => self.drop_session(now),
            Role::Leading(_) | Role::Leaving { .. } | Role::Waiting => {}
        }
    }

    /// Ends a candidacy, or resigns the lead in order.
    fn retire(&mut self, now: Instant, reason: Reason) {
        match &self.role {
            Role::Leading(_) => self.resign(reason),
            Role::Waiting if self.line.is_some() => self.leave(now),
            // If a session is being begun, it is ended as soon as it has begun.
            Role::Waiting | Role::Leaving { .. } => {}
        }
    }

    fn resign(&mut self, reason: Reason) {
        let Role::Leading(lead) = &mut self.role else { return };
        if lead.resigning.is_none() {
            lead.resigning = Some(reason);
            self.tell(Event::Resigning(reason));
        }
    }

    /// Ends the leadership for good, and only then removes the entry.
    fn give_up(&mut self, now: Instant, reason: Reason) {
        self.step_down(reason);
        // Let the other candidates campaign first.
        self.campaign_from = now.after(self.config.poll_interval.times(2));
        self.leave(now);
    }

    /// Takes the entry out of the queue, and then ends the session. A later campaign has a session of its own.
    fn leave(&mut self, now: Instant) {
        (self.role, self.first) = (Role::Leaving { until: self.gone_by(now), left: false }, None);
        // A look under way can be abandoned. A request that makes an entry cannot: it could make the entry after the
        // removal.
        self.asked = self.asked.filter(|asked| asked.what != RequestKind::First);
        if self.asked.is_none() {
            self.act(now);
        }
    }

    fn on_left(&mut self, now: Instant, result: Answer<()>) {
        match result {
            // End the session too: a `Leave` that lands late, or twice, must not remove a later entry.
            Ok(()) => {
                if let Role::Leaving { left, .. } = &mut self.role {
                    *left = true;
                }
                self.act(now);
            }
            Err(RequestFailure::Ended) => self.lose_session(now),
            Err(RequestFailure::NoAnswer) => self.on_no_answer(now),
        }
    }

    fn on_ended(&mut self, now: Instant, result: Answer<()>) {
        match result {
            Ok(()) | Err(RequestFailure::Ended) => self.drop_session(now),
            Err(RequestFailure::NoAnswer) => self.on_no_answer(now),
        }
    }

    fn step_down(&mut self, reason: Reason) {
        let Role::Leading(lead) = &self.role else { return };
        self.spent = self.spent.max(lead.token);
        self.role = Role::Waiting;
        self.tell(Event::Deposed(reason));
    }

    /// The time by which the store has ended a session that is no longer kept alive.
    fn gone_by(&self, now: Instant) -> Instant {
        let timeout = self.line.as_ref().map_or(self.config.timeout, |line| line.timeout);
        now.after(self.config.drift_max.lengthen(timeout))
    }

    // ── helpers ─────────────────────────────────────────────────────────────────────────────────────────────

    const fn me(&self) -> Identity {
        self.config.me.identity
    }

    const fn campaigns(&self) -> bool {
        self.campaigning && self.healthy
    }

    fn is_asked(&self, what: RequestKind) -> bool {
        self.asked.is_some_and(|asked| asked.what == what)
    }

    fn times_out(&self, asked_at: Instant) -> Instant {
        asked_at.after(self.config.request_timeout)
    }

    /// Acts at once; abandons a look under way.
    fn act_soon(&mut self, now: Instant) {
        if matches!(self.role, Role::Waiting) {
            self.asked = self.asked.filter(|asked| asked.what != RequestKind::First);
            self.act_at = now;
        }
    }

    fn keep_alive_interval(&self, timeout: Duration) -> Duration {
        self.config.keep_alive_interval.min(timeout.divided_by(KEEP_ALIVES))
    }

    /// The time of the next keep-alive. A session that is given up is not kept alive.
    fn next_keep_alive(&self) -> Instant {
        let keeps = match &self.role {
            Role::Waiting => self.campaigns(),
            Role::Leading(_) => true,
            Role::Leaving { .. } => false,
        };
        match (&self.line, &self.keeping) {
            (Some(line), None) if keeps => line.keep_at,
            (Some(_), Some((_, at))) if keeps => self.times_out(*at),
            (Some(_) | None, _) => Instant::NEVER,
        }
    }

    fn keep_alive(&mut self, now: Instant) {
        let Some(session) = self.line.as_ref().map(|line| line.session.clone()) else { return };
        let request = self.next_request();
        self.keeping = Some((request, now));
        self.send(Message::KeepAlive { request, session });
    }

    fn ask(&mut self, now: Instant, what: RequestKind) {
        let request = self.next_request();
        let session = self.line.as_ref().map(|line| line.session.clone());
        let message = match (what, session) {
            (RequestKind::Begin, _) => Message::Begin { request, timeout: self.config.timeout },
            (RequestKind::Campaign, Some(session)) => {
                Message::Campaign { request, session, holder: self.config.me.clone() }
            }
            (RequestKind::Leave, Some(session)) => Message::Leave { request, session },
            (RequestKind::End, Some(session)) => Message::End { request, session },
            (RequestKind::First | RequestKind::Campaign | RequestKind::Leave | RequestKind::End, _) => {
                Message::First { request }
            }
        };
        self.asked = Some(Asked { request, at: now, what });
        self.send(message);
    }

    fn next_request(&mut self) -> RequestId {
        self.last_request = RequestId(self.last_request.0 + 1);
        self.last_request
    }

    fn send(&mut self, message: Message) {
        self.outputs.push_back(Output::Send { to: Endpoint::Store, message });
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    /// The time until which a leader seen at `seen_at` is reported: after it, the store may have ended the leader's
    /// session.
    fn is_told_until(&self, seen_at: Instant) -> Instant {
        seen_at.after(self.config.drift_max.lengthen(self.config.timeout))
    }

    fn leader(&self, now: Instant) -> Option<Leader> {
        if let Role::Leading(lead) = &self.role {
            return Some(Leader { identity: self.me(), term: Term(lead.token.0) });
        }
        let (entry, at) = self.seen.as_ref()?;
        let is_other = entry.holder.identity != self.me() && now < self.is_told_until(*at);
        is_other.then_some(Leader { identity: entry.holder.identity, term: Term(entry.token.0) })
    }

    fn tell_leader(&mut self, now: Instant) {
        let leader = self.leader(now);
        if leader != self.told_leader {
            self.told_leader = leader;
            self.tell(Event::LeaderChanged(leader));
        }
    }
}
