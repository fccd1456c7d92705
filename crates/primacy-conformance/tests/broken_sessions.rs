//! Each law of sessions can fail: for each there is a store that breaks it, and is caught.

#![expect(clippy::wildcard_enum_match_arm, reason = "a flaw concerns the one place that has it")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use primacy_conformance::{SESSION_LAWS, SessionCapabilities, SessionsHarness, check_sessions};
use primacy_core::election::lease::Holder;
use primacy_core::election::session::{Entry, QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity, Incarnation};
use primacy_stores::{Begun, Pending, SessionError, Sessions};

/// The bound that a sound store states for the delay of its news.
const CHANGE_BOUND: Duration = Duration::from_millis(300);
/// The interval at which it looks for a change.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The flaw of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    InventsAFirst,
    MakesAnEntryEachTime,
    PutsTheNewestFirst,
    LetsTheNewestGoNext,
    ForgetsAddresses,
    AnswersFromBeforeTheLastChange,
    TellsAllThatTheyAreFirst,
    KeepsWhatHasLeft,
    TakesTheFirstOutWhoeverLeaves,
    KeepsEntriesOfEndedSessions,
    RevivesSessions,
    TakesEachRequestForTheHandlesOwn,
    CountsFromOneWhenAllHaveGone,
    CountsFromOneAfterARestart,
    EndsSessionsEarly,
    NeverEndsSessions,
    IgnoresKeepAlives,
    EvictsByName,
    EvictsNobody,
    SharesASession,
    TakesSimilarNamesForTheSame,
    AsksWhoeverIsNext,
    BringsRemovedEntriesBack,
    NeverTells,
    TellsAllTheTime,
    TellsForEverOfALostEntry,
}

/// The laws, each with the flaw that it must catch.
const CAUGHT: [(&str, Flaw); 32] = [
    ("where_nobody_stands_nobody_is_first", Flaw::InventsAFirst),
    ("a_session_has_one_entry_however_often_it_stands", Flaw::MakesAnEntryEachTime),
    ("an_entry_whose_answer_was_lost_is_found_again", Flaw::MakesAnEntryEachTime),
    ("the_first_stays_the_first_while_others_stand", Flaw::PutsTheNewestFirst),
    ("the_oldest_is_the_first", Flaw::LetsTheNewestGoNext),
    ("a_holder_is_shown_whole", Flaw::ForgetsAddresses),
    ("a_reader_never_sees_who_was_first_before", Flaw::AnswersFromBeforeTheLastChange),
    ("of_many_rivals_exactly_one_is_first", Flaw::TellsAllThatTheyAreFirst),
    ("leaving_hands_over_to_the_next", Flaw::KeepsWhatHasLeft),
    ("leaving_twice_is_leaving_once", Flaw::TakesTheFirstOutWhoeverLeaves),
    ("ending_a_session_takes_its_entry_along", Flaw::KeepsEntriesOfEndedSessions),
    ("an_ended_session_is_told_as_ended", Flaw::RevivesSessions),
    ("an_ended_session_touches_no_later_one", Flaw::TakesEachRequestForTheHandlesOwn),
    ("tokens_grow_across_leaving_and_ending", Flaw::CountsFromOneWhenAllHaveGone),
    ("tokens_grow_across_restart_of_everything", Flaw::CountsFromOneAfterARestart),
    ("a_session_that_is_not_kept_alive_ends_in_time_and_not_before", Flaw::EndsSessionsEarly),
    ("a_session_that_is_not_kept_alive_ends_in_time_and_not_before", Flaw::NeverEndsSessions),
    ("a_session_that_is_kept_alive_lasts", Flaw::IgnoresKeepAlives),
    ("evicting_takes_that_life_and_no_other", Flaw::EvictsByName),
    ("evicting_takes_that_life_and_no_other", Flaw::EvictsNobody),
    ("two_handles_have_two_sessions", Flaw::SharesASession),
    ("queues_of_elections_do_not_touch_each_other", Flaw::TakesSimilarNamesForTheSame),
    ("a_request_to_resign_reaches_the_first_and_nobody_else", Flaw::AsksWhoeverIsNext),
    ("an_entry_that_was_removed_is_made_anew_with_a_higher_token", Flaw::BringsRemovedEntriesBack),
    ("changed_wakes_the_next_when_the_first_goes", Flaw::NeverTells),
    ("changed_wakes_an_onlooker", Flaw::NeverTells),
    ("changed_wakes_the_first_whose_entry_is_removed", Flaw::NeverTells),
    ("changed_wakes_the_first_that_is_asked_to_resign", Flaw::NeverTells),
    ("changed_rests_while_nothing_changes", Flaw::TellsAllTheTime),
    ("tokens_grow_across_leaving_and_ending", Flaw::KeepsEntriesOfEndedSessions),
    ("ending_takes_the_entry_along_also_where_others_share_the_session", Flaw::KeepsEntriesOfEndedSessions),
    ("changed_rests_for_whoever_has_lost_its_entry", Flaw::TellsForEverOfALostEntry),
];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    session: SessionId,
    entry: Entry,
    asked_to_resign: bool,
}

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<SessionId, (Duration, Instant)>,
    queues: BTreeMap<String, Vec<Standing>>,
    /// The first before the last change.
    before: BTreeMap<String, Option<Entry>>,
    removed: Vec<Standing>,
    asked: BTreeMap<String, bool>,
    sessions_begun: u64,
    entries_made: u64,
}

#[derive(Debug)]
struct Server {
    flaw: Flaw,
    state: Mutex<State>,
}

#[derive(Debug)]
struct Handle {
    server: Arc<Server>,
    election: String,
    own: Mutex<Option<SessionId>>,
    /// The entry that it saw last: the one before its own, or its own if that is the first; or the first, if it has
    /// none.
    seen: Mutex<Option<View>>,
}

/// The session of an entry, its token, and whether it was asked to resign.
type View = Option<(SessionId, FencingToken, bool)>;

impl Handle {
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.server.state.lock().expect("no panic there");
        if self.server.flaw != Flaw::NeverEndsSessions {
            let now = Instant::now();
            let over: Vec<SessionId> =
                state.sessions.iter().filter(|(_, (_, end))| *end <= now).map(|(it, _)| it.clone()).collect();
            over.iter().for_each(|session| state.end(session, self.server.flaw));
        }
        state
    }

    fn view(&self, state: &State) -> View {
        let queue = state.queue(&self.election);
        let own = self.own.lock().expect("no panic there").clone();
        let place = queue.iter().position(|it| Some(&it.session) == own.as_ref());
        let shown = queue.get(place.map_or(0, |place| place.saturating_sub(1)));
        shown.map(|it| (it.session.clone(), it.entry.token, it.asked_to_resign))
    }

    fn note(&self, state: &State) {
        *self.seen.lock().expect("no panic there") = Some(self.view(state));
    }

    /// The session that a request is about, if it lives.
    fn session(&self, state: &mut State, session: &SessionId) -> Result<SessionId, SessionError> {
        let flaw = self.server.flaw;
        let own = self.own.lock().expect("no panic there").clone();
        let session = match own {
            Some(own) if flaw == Flaw::TakesEachRequestForTheHandlesOwn => own,
            _ => session.clone(),
        };
        if flaw == Flaw::RevivesSessions {
            let lasts = Duration::from_secs(60);
            state.sessions.entry(session.clone()).or_insert((lasts, Instant::now() + lasts));
        }
        match state.sessions.contains_key(&session) {
            true => Ok(session),
            false => Err(SessionError::Ended { why: "there is no such session".to_owned() }),
        }
    }
}

impl State {
    fn queue(&self, election: &str) -> &[Standing] {
        self.queues.get(election).map_or(&[], Vec::as_slice)
    }

    fn end(&mut self, session: &SessionId, flaw: Flaw) {
        self.sessions.remove(session);
        if flaw != Flaw::KeepsEntriesOfEndedSessions {
            self.queues.values_mut().for_each(|queue| queue.retain(|it| it.session != *session));
        }
    }

    fn make(&mut self, election: &str, session: &SessionId, holder: &Holder, flaw: Flaw) {
        let has_one = self.queue(election).iter().any(|it| it.session == *session);
        if has_one && flaw != Flaw::MakesAnEntryEachTime {
            return;
        }
        if flaw == Flaw::CountsFromOneWhenAllHaveGone && self.queue(election).is_empty() {
            self.entries_made = 0;
        }
        self.entries_made += 1;
        let mut holder = holder.clone();
        if flaw == Flaw::ForgetsAddresses {
            holder.address.clear();
        }
        let entry = Entry { holder, token: FencingToken(self.entries_made) };
        let mut standing = Standing { session: session.clone(), entry, asked_to_resign: false };
        if let (Flaw::BringsRemovedEntriesBack, Some(removed)) = (flaw, self.removed.pop()) {
            standing = removed;
        }
        let queue = self.queues.entry(election.to_owned()).or_default();
        let place = match flaw {
            Flaw::PutsTheNewestFirst => 0,
            Flaw::LetsTheNewestGoNext => queue.len().min(1),
            _ => queue.len(),
        };
        queue.insert(place, standing);
    }
}

impl Sessions for Handle {
    fn begin(&self, timeout: Duration) -> Pending<'_, Result<Begun, SessionError>> {
        Box::pin(async move {
            let mut state = self.state();
            if self.server.flaw != Flaw::SharesASession {
                state.sessions_begun += 1;
            }
            let session = SessionId::new(&format!("s{}", state.sessions_begun));
            let lasts = if self.server.flaw == Flaw::EndsSessionsEarly { timeout / 2 } else { timeout };
            state.sessions.insert(session.clone(), (lasts, Instant::now() + lasts));
            *self.own.lock().expect("no panic there") = Some(session.clone());
            Ok(Begun { session, timeout })
        })
    }

    fn keep_alive<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<Duration, SessionError>> {
        Box::pin(async move {
            let mut state = self.state();
            let session = self.session(&mut state, session)?;
            let Some((lasts, end)) = state.sessions.get_mut(&session) else { return Ok(Duration::ZERO) };
            if self.server.flaw != Flaw::IgnoresKeepAlives {
                *end = Instant::now() + *lasts;
            }
            Ok(if self.server.flaw == Flaw::EndsSessionsEarly { *lasts * 2 } else { *lasts })
        })
    }

    fn campaign<'a>(
        &'a self,
        session: &'a SessionId,
        holder: &'a Holder,
    ) -> Pending<'a, Result<QueuePosition, SessionError>> {
        Box::pin(async move {
            let mut state = self.state();
            let session = self.session(&mut state, session)?;
            state.make(&self.election, &session, holder, self.server.flaw);
            self.note(&state);
            let queue = state.queue(&self.election);
            let (first, own) = (queue.first(), queue.iter().find(|it| it.session == session));
            let (Some(first), Some(own)) = (first, own) else { panic!("it has an entry") };
            if first.session == session || self.server.flaw == Flaw::TellsAllThatTheyAreFirst {
                let lingers = self.server.flaw == Flaw::AsksWhoeverIsNext
                    && state.asked.get(&self.election).copied().unwrap_or_default();
                let asked_to_resign = own.asked_to_resign || lingers;
                return Ok(QueuePosition::First { token: own.entry.token, asked_to_resign });
            }
            Ok(QueuePosition::Behind { first: first.entry.clone() })
        })
    }

    fn leave<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        Box::pin(async move {
            let mut state = self.state();
            let session = self.session(&mut state, session)?;
            let before = state.queue(&self.election).first().map(|it| it.entry.clone());
            state.before.insert(self.election.clone(), before);
            let flaw = self.server.flaw;
            if let Some(queue) = state.queues.get_mut(&self.election) {
                let mut place = 0;
                queue.retain(|it| {
                    place += 1;
                    match flaw {
                        Flaw::KeepsWhatHasLeft => true,
                        Flaw::TakesTheFirstOutWhoeverLeaves => place != 1,
                        // One of several.
                        Flaw::MakesAnEntryEachTime => it.session != session || place > 1,
                        _ => it.session != session,
                    }
                });
            }
            self.note(&state);
            Ok(())
        })
    }

    fn end<'a>(&'a self, session: &'a SessionId) -> Pending<'a, Result<(), SessionError>> {
        Box::pin(async move {
            let mut state = self.state();
            let session = self.session(&mut state, session)?;
            state.end(&session, self.server.flaw);
            self.note(&state);
            Ok(())
        })
    }

    fn first(&self) -> Pending<'_, Result<Option<Entry>, SessionError>> {
        Box::pin(async move {
            let state = self.state();
            self.note(&state);
            let first = state.queue(&self.election).first().map(|it| it.entry.clone());
            Ok(match self.server.flaw {
                Flaw::InventsAFirst => {
                    let identity =
                        Identity::new("x".parse().expect("a name"), Incarnation { count: 1, nonce: 1 });
                    let holder = Holder { identity, address: String::new() };
                    first.or(Some(Entry { holder, token: FencingToken(1) }))
                }
                Flaw::AnswersFromBeforeTheLastChange => {
                    state.before.get(&self.election).cloned().unwrap_or(first)
                }
                _ => first,
            })
        })
    }

    fn evict<'a>(&'a self, dead: &'a Identity) -> Pending<'a, Result<bool, SessionError>> {
        Box::pin(async move {
            let mut state = self.state();
            let flaw = self.server.flaw;
            let is_dead = |it: &&Standing| {
                let found = it.entry.holder.identity;
                if flaw == Flaw::EvictsByName { found.node == dead.node } else { found == *dead }
            };
            let session = state.queue(&self.election).iter().find(is_dead).map(|it| it.session.clone());
            if let Some(session) = session.as_ref().filter(|_| flaw != Flaw::EvictsNobody) {
                state.end(session, flaw);
            }
            Ok(session.is_some())
        })
    }

    fn ask_to_resign<'a>(
        &'a self,
        token: FencingToken,
        _by: &'a str,
    ) -> Pending<'a, Result<bool, SessionError>> {
        Box::pin(async move {
            let mut state = self.state();
            let first = state.queues.get_mut(&self.election).and_then(|queue| queue.first_mut());
            let asked =
                first.filter(|it| it.entry.token == token).map(|it| it.asked_to_resign = true).is_some();
            *state.asked.entry(self.election.clone()).or_default() |= asked;
            Ok(asked)
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            match self.server.flaw {
                Flaw::NeverTells => std::future::pending().await,
                Flaw::TellsAllTheTime => {}
                _ => {
                    let own = self.own.lock().expect("no panic there").clone();
                    let is_lost = own.is_some_and(|own| !self.state().sessions.contains_key(&own));
                    if self.server.flaw == Flaw::TellsForEverOfALostEntry && is_lost {
                        return;
                    }
                    let is_news = || {
                        let view = self.view(&self.state());
                        self.seen.lock().expect("no panic there").as_ref().is_some_and(|seen| *seen != view)
                    };
                    while !is_news() {
                        tokio::time::sleep(LOOK_INTERVAL).await;
                    }
                }
            }
        })
    }
}

struct BrokenHarness(Arc<Server>);

impl BrokenHarness {
    fn new(flaw: Flaw) -> Self {
        Self(Arc::new(Server { flaw, state: Mutex::default() }))
    }

    fn named(&self, election: &str) -> String {
        match self.0.flaw {
            Flaw::TakesSimilarNamesForTheSame => election.to_lowercase(),
            _ => election.to_owned(),
        }
    }
}

impl SessionsHarness for BrokenHarness {
    fn name(&self) -> String {
        format!("{:?}", self.0.flaw)
    }

    fn capabilities(&self) -> SessionCapabilities {
        SessionCapabilities { ordered: true, expiry: true, requests: true, deletion: true, restart: true }
    }

    fn change_bound(&self) -> Duration {
        CHANGE_BOUND
    }

    fn short_timeout(&self) -> Duration {
        Duration::from_millis(300)
    }

    fn expiry_bound(&self) -> Duration {
        CHANGE_BOUND
    }

    fn long_timeout(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn patience(&self) -> Duration {
        // A sound store is waited for as long as it takes.
        if self.0.flaw == Flaw::None { Duration::from_secs(60) } else { Duration::from_secs(2) }
    }

    fn open<'a>(&'a self, election: &'a str) -> Pending<'a, Arc<dyn Sessions>> {
        let (server, election) = (Arc::clone(&self.0), self.named(election));
        let handle = Handle { server, election, own: Mutex::default(), seen: Mutex::default() };
        Box::pin(async move { Arc::new(handle) as Arc<dyn Sessions> })
    }

    fn remove_first<'a>(&'a self, election: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            let mut state = self.0.state.lock().expect("no panic there");
            let removed = state.queues.get_mut(election).map(|queue| queue.remove(0));
            state.removed.extend(removed);
        })
    }

    fn restart(&self) -> Pending<'_, ()> {
        Box::pin(async move {
            if self.0.flaw == Flaw::CountsFromOneAfterARestart {
                self.0.state.lock().expect("no panic there").entries_made = 0;
            }
        })
    }
}

/// The violation that a law finds, if it does.
async fn finding(law: &'static str, flaw: Flaw) -> Option<String> {
    let law = SESSION_LAWS.iter().find(|known| known.name == law).expect("a law of this name");
    let holding = tokio::spawn(async move { law.check(&BrokenHarness::new(flaw)).await });
    let panic = holding.await.err()?.try_into_panic().expect("it is not cancelled");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_law_of_sessions_catches_what_it_is_there_for() {
    for law in &SESSION_LAWS {
        assert!(CAUGHT.iter().any(|(name, _)| *name == law.name), "{} has no flaw to catch", law.name);
    }
    let mut missed = Vec::new();
    for (law, flaw) in CAUGHT {
        let found = finding(law, flaw).await;
        println!("{law}, {flaw:?}: {found:?}");
        if found.is_none_or(|found| found.contains("it has an entry")) {
            missed.push((law, flaw));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_store_without_a_flaw_keeps_the_laws_of_sessions() {
    check_sessions(&BrokenHarness::new(Flaw::None)).await;
}
