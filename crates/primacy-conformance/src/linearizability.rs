//! The check that the answers of one object could have come from it asked one request at a time, each request taking effect
//! at one moment between its call and its answer (Herlihy and Wing 1990).
//!
//! Intuition: walk along the clock, and keep every state that the thing can be in, each with the requests under way
//! that have taken effect by then. A call adds nothing but a possibility. At an answer, its request must have taken
//! effect: where it has not, it is done now, perhaps after others under way. If no state is left, that answer is the
//! first that nothing explains.
//!
//! This is the search of Wing and Gong (1993) with Lowe's memory of visited states (2017) and his rule to place a request no sooner than an
//! answer asks for it; breadth first, so that the memory is in proportion to the requests under way and not to the whole history, and so
//! that it stops at the shortest prefix which has no order.
//!
//! Limits. A decision takes work in proportion to the length of the history, and in the worst case exponential in the number of requests
//! that are under way at once, where a request of unknown outcome is under way for ever. Of a register, whose versions show the order,
//! 10,000 requests of 64 callers with one outcome in 20 unknown take less than 100,000 steps, a fraction of a second; of a queue, 8
//! requests at once with nothing that shows their order until later take 400,000, and 9 more than the budget. A budget of steps bounds the
//! work; beyond, the verdict is [`Verdict::Undecided`], which is never taken for `fine`. `tests/linearizability/effort.rs` counts the
//! steps.

mod explanation;
mod history;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;

pub use explanation::Explanation;
pub use history::{Answer, Request};
use history::{Event, events};

/// The default budget: the most steps of the model that a decision may take; seconds of work, not minutes.
pub const BUDGET: u64 = 2_000_000;

/// The sequential specification of the thing: its behaviour when asked one request at a time.
pub trait Model {
    /// The key that separates things of one kind that do not touch each other; `()` if there is only one.
    type Key: Ord + Clone + Debug;
    /// The state of the thing.
    type State: Clone + Eq + Hash;
    /// A request to it.
    type Action;
    /// An answer of it.
    type Reply;

    /// The thing that is asked. A history is judged for each by itself, which is as good and far less work.
    fn key(&self, action: &Self::Action) -> Self::Key;

    /// The state before the first request.
    fn initial(&self) -> Self::State;

    /// The state after a request, if in this state the thing can have given this reply. Without a reply: the state after a request of
    /// unknown outcome has taken effect; `None` if it has no effect here.
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

/// A request to such a thing.
pub type Asked<M> = Request<<M as Model>::Action, <M as Model>::Reply>;

/// The result of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains every answer.
    Ordered(Effort),
    /// There is none.
    Impossible(Explanation),
    /// The budget was used up. It is not known whether there is an order.
    Undecided(Effort),
}

/// The cost of a decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// The number of questions to the model.
    pub steps: u64,
    /// The largest number of possibilities that were kept at a time.
    pub possibilities: usize,
}

impl Verdict {
    /// `Ok` if there is an order, and only then.
    ///
    /// # Errors
    /// The answer that nothing explains, or that it is not known; for people.
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

/// Judges a history within [`BUDGET`].
pub fn check<M: Model>(model: &M, history: &[Asked<M>]) -> Verdict {
    check_within(model, history, BUDGET)
}

/// Judges a history, asking the model no more often than `budget` allows. If one thing has no order, that is the verdict, even where
/// another one is undecided.
pub fn check_within<M: Model>(model: &M, history: &[Asked<M>], budget: u64) -> Verdict {
    let mut parts: BTreeMap<M::Key, Vec<&Asked<M>>> = BTreeMap::new();
    for request in history {
        // A request that surely had no effect can be anywhere in the order, and shows nothing.
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

/// One way in which the history can have gone so far.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Possibility<S> {
    state: S,
    /// The requests under way that have taken effect, in the order of their numbers.
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
        // The last moment at which everything was known, with its one state.
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

    /// The possibilities after the answer to this request.
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

    /// A request that is right here and changes nothing is placed here: it must be placed somewhere, and wherever an
    /// order has it later, it can be moved here. One of unknown outcome that changes nothing is as good as none.
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

    /// Forgets the requests of unknown outcome that have taken effect however it went: they are over.
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
