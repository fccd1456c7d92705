//! The linearizability check: whether the answers of one object are possible if each request takes effect at one
//! moment between its call and its answer (Herlihy and Wing 1990).
//!
//! Intuition: follow the clock, and keep every state that the object may have, each with the set of open requests
//! that have taken effect so far. A call only opens a possibility. At an answer, its request must have taken effect:
//! if it has not, it is applied now, possibly after other open ones. If no state is left, that answer is the first
//! that has no explanation.
//!
//! This is the search of Wing and Gong (1993) with Lowe's memory of visited states (2017) and his rule to apply a
//! request only when an answer requires it. It is breadth first, so that memory is proportional to the open requests
//! rather than to the whole history, and so that it stops at the shortest prefix without an order.
//!
//! Limits: a decision takes work linear in the length of the history, and in the worst case exponential in the number
//! of concurrent requests; a request with an unknown outcome stays open for ever. For a register, whose versions show
//! the order, 10,000 requests of 64 callers with 5 % unknown outcomes take less than 100,000 steps, a fraction of a
//! second; for a queue, 8 concurrent requests whose order only shows later take 400,000, and 9 more than the budget.
//! A budget of steps limits the work; beyond it, the verdict is [`Verdict::Undecided`], which never counts as a pass.
//! `tests/linearizability/effort.rs` counts the steps.

mod explanation;
mod history;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;

pub use explanation::Explanation;
pub use history::{Answer, Request};
use history::{Event, events};

/// The default budget: the maximum number of model steps of a decision; seconds of work, not minutes.
pub const BUDGET: u64 = 2_000_000;

/// The sequential specification of an object.
pub trait Model {
    /// The key that separates independent objects of one kind; `()` if there is only one.
    type Key: Ord + Clone + Debug;
    /// The state of the object.
    type State: Clone + Eq + Hash;
    /// A request to the object.
    type Action;
    /// An answer of the object.
    type Reply;

    /// The object of a request. A history is checked for each object separately, which is sufficient (linearizability
    /// is compositional) and far less work.
    fn key(&self, action: &Self::Action) -> Self::Key;

    /// The state before the first request.
    fn initial(&self) -> Self::State;

    /// Returns the state after a request, if this reply is possible in this state. Without a reply: the state after a
    /// request with an unknown outcome has taken effect; `None` if it can have no effect here.
    fn step(
        &self,
        state: &Self::State,
        action: &Self::Action,
        reply: Option<&Self::Reply>,
    ) -> Option<Self::State>;

    /// Describes a request and its answer, for people.
    fn describe(&self, action: &Self::Action, answer: &Answer<Self::Reply>) -> String;

    /// Describes a state, for people.
    fn describe_state(&self, state: &Self::State) -> String;
}

/// A request to an object of this model.
pub type Asked<M> = Request<<M as Model>::Action, <M as Model>::Reply>;

/// The result of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains every answer.
    Ordered(Effort),
    /// There is no such order.
    Impossible(Explanation),
    /// The budget was exhausted before a decision.
    Undecided(Effort),
}

/// The cost of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// The number of model steps.
    pub steps: u64,
    /// The maximum number of possibilities kept at a time.
    pub possibilities: usize,
}

impl Verdict {
    /// Returns `Ok` only if there is an order.
    ///
    /// # Errors
    /// The answer without an explanation, or that the check is undecided, as text.
    pub fn ordered(self) -> Result<Effort, String> {
        match self {
            Self::Ordered(effort) => Ok(effort),
            Self::Impossible(explanation) => Err(explanation.to_string()),
            Self::Undecided(Effort { steps, possibilities }) => Err(format!(
                "UNDECIDED after {steps} steps, with up to {possibilities} possibilities at a time; make the history \
                 shorter, or have fewer requests under way at once"
            )),
        }
    }
}

/// Checks a history within [`BUDGET`].
pub fn check<M: Model>(model: &M, history: &[Asked<M>]) -> Verdict {
    check_within(model, history, BUDGET)
}

/// Checks a history with at most `budget` model steps. If one object has no order, that is the verdict, even if
/// another object is undecided.
pub fn check_within<M: Model>(model: &M, history: &[Asked<M>], budget: u64) -> Verdict {
    let mut parts: BTreeMap<M::Key, Vec<&Asked<M>>> = BTreeMap::new();
    for request in history {
        // A request without effect can be anywhere in the order, and proves nothing.
        if !matches!(request.answer, Answer::Failed) {
            parts.entry(model.key(&request.action)).or_default().push(request);
        }
    }
    let (mut effort, mut is_undecided) = (Effort::default(), false);
    for part in parts.values_mut() {
        part.sort_by_key(|request| request.start);
        let mut search = Search { model, requests: part, effort, budget };
        let end = search.run();
        effort = search.effort;
        match end {
            End::Ordered => {}
            End::Impossible(explanation) => return Verdict::Impossible(explanation),
            End::Undecided => is_undecided = true,
        }
    }
    if is_undecided { Verdict::Undecided(effort) } else { Verdict::Ordered(effort) }
}

enum End {
    Ordered,
    Impossible(Explanation),
    Undecided,
}

/// The budget is used up.
struct Exhausted;

/// A possible course of the history so far.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Possibility<S> {
    state: S,
    /// The open requests that have taken effect, in the order of their numbers.
    done: Vec<usize>,
}

struct Search<'a, M: Model> {
    model: &'a M,
    /// The requests, in the order of their calls.
    requests: &'a [&'a Asked<M>],
    effort: Effort,
    budget: u64,
}

impl<M: Model> Search<'_, M> {
    fn run(&mut self) -> End {
        let mut possible = HashSet::from([Possibility { state: self.model.initial(), done: Vec::new() }]);
        let mut open: Vec<usize> = Vec::new();
        // The last moment with a single possible state, and that state.
        let mut settled = (0, self.model.initial());
        for event in events(self.requests) {
            match event {
                Event::Call(number) => open.push(number),
                Event::Answer(number) => {
                    let Ok(after) = self.answer(&possible, &open, number) else { return End::Undecided };
                    if after.is_empty() {
                        let states = possible.iter().map(|found| self.model.describe_state(&found.state));
                        let from = self.model.describe_state(&settled.1);
                        let states = states.collect();
                        return End::Impossible(explanation::explain(
                            self.model,
                            self.requests,
                            number,
                            (settled.0, from),
                            states,
                        ));
                    }
                    possible = after;
                    open.retain(|&other| other != number);
                    self.settle(&mut possible, &mut open);
                    let is_quiet = !open.iter().any(|&other| self.is_answered(other));
                    if let (1, true, Some(only)) = (possible.len(), is_quiet, possible.iter().next()) {
                        settled = (self.requests[number].end, only.state.clone());
                    }
                }
            }
            self.effort.possibilities = self.effort.possibilities.max(possible.len());
        }
        End::Ordered
    }

    fn is_answered(&self, number: usize) -> bool {
        matches!(self.requests[number].answer, Answer::Known(_))
    }

    /// Returns the possibilities after the answer to this request.
    fn answer(
        &mut self,
        before: &HashSet<Possibility<M::State>>,
        open: &[usize],
        number: usize,
    ) -> Result<HashSet<Possibility<M::State>>, Exhausted> {
        let mut after = HashSet::new();
        let mut seen: HashSet<Possibility<M::State>> = before.clone();
        let mut left: Vec<_> = before.iter().cloned().collect();
        while let Some(mut found) = left.pop() {
            self.place_what_changes_nothing(&mut found, open)?;
            if let Ok(place) = found.done.binary_search(&number) {
                found.done.remove(place);
                after.insert(found);
                continue;
            }
            for &next in open {
                let Err(place) = found.done.binary_search(&next) else { continue };
                if let Some(state) = self.step(&found.state, next)? {
                    let mut done = found.done.clone();
                    done.insert(place, next);
                    let further = Possibility { state, done };
                    if seen.insert(further.clone()) {
                        left.push(further);
                    }
                }
            }
        }
        Ok(after)
    }

    /// Applies open requests whose answers fit the present state and that do not change it: each must be applied
    /// somewhere, and any later position in an order can be moved to here. One with an unknown outcome that changes
    /// nothing can be left out.
    fn place_what_changes_nothing(
        &mut self,
        found: &mut Possibility<M::State>,
        open: &[usize],
    ) -> Result<(), Exhausted> {
        for &next in open {
            let Err(place) = found.done.binary_search(&next) else { continue };
            if self.is_answered(next)
                && self.step(&found.state, next)?.is_some_and(|state| state == found.state)
            {
                found.done.insert(place, next);
            }
        }
        Ok(())
    }

    fn step(&mut self, state: &M::State, number: usize) -> Result<Option<M::State>, Exhausted> {
        if self.effort.steps == self.budget {
            return Err(Exhausted);
        }
        self.effort.steps += 1;
        let request = self.requests[number];
        let after = match &request.answer {
            Answer::Known(reply) => self.model.step(state, &request.action, Some(reply)),
            Answer::Unknown => self.model.step(state, &request.action, None).filter(|after| after != state),
            Answer::Failed => None, // Left out before.
        };
        Ok(after)
    }

    /// Removes the requests with unknown outcomes that have taken effect in every possibility.
    fn settle(&self, possible: &mut HashSet<Possibility<M::State>>, open: &mut Vec<usize>) {
        let mut in_all = possible.iter().map(|found| &found.done);
        let Some(first) = in_all.next() else { return };
        let mut over: Vec<usize> =
            first.iter().copied().filter(|&number| !self.is_answered(number)).collect();
        in_all.for_each(|done| over.retain(|number| done.binary_search(number).is_ok()));
        if over.is_empty() {
            return;
        }
        open.retain(|number| !over.contains(number));
        let without = |mut found: Possibility<M::State>| {
            found.done.retain(|number| !over.contains(number));
            found
        };
        *possible = possible.drain().map(without).collect();
    }
}
