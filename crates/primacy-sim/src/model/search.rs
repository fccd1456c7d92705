//! Breadth-first search of all reachable states.

use std::collections::VecDeque;
use std::fmt::Debug;

use super::visited::{Predecessor, Visited};

/// A model that can be searched.
pub trait Model {
    /// The whole system at one moment.
    type State: Clone + Debug;

    /// Returns the initial states.
    fn starts(&mut self) -> Vec<Self::State>;

    /// Returns a number that is different for different states, except with a probability of 2⁻⁶⁴.
    fn fingerprint(&self, state: &Self::State) -> u64;

    /// Finds every step out of `state`; steps that lead back to it may be left out.
    fn steps(&mut self, state: &Self::State, successors: &mut Successors<Self::State>);

    /// Returns one of these steps as text for people: the actor and the action, and one line for each effect.
    fn tell(&mut self, state: &Self::State, step: u32) -> Vec<String>;
}

/// The steps out of a state.
#[derive(Debug)]
pub struct Successors<S> {
    /// The steps within the bounds.
    pub steps: Vec<Step<S>>,
    /// The number of steps that lead out of the bounds.
    pub cut: u64,
}

impl<S> Successors<S> {
    /// Adds a step numbered by its position, for models that always find the same steps in the same order.
    ///
    /// # Panics
    /// After 2³² steps out of one state.
    pub fn push(&mut self, state: S, reached: u64, broken: Option<&'static str>) {
        let number = u32::try_from(self.steps.len()).expect("a state has few steps");
        self.steps.push(Step { number, state, reached, broken });
    }
}

/// A step.
#[derive(Clone, Debug)]
pub struct Step<S> {
    /// Its number among the steps out of that state, which is the same in every run.
    pub number: u32,
    /// The state after it.
    pub state: S,
    /// The marks that the step reaches, one bit each.
    pub reached: u64,
    /// The invariant that it breaks.
    pub broken: Option<&'static str>,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Searched {
    /// The number of states.
    pub states: u64,
    /// The number of steps between states.
    pub steps: u64,
    /// The number of steps that lead out of the bounds; the states behind them are not searched.
    pub cut: u64,
    /// The number of steps to the farthest state.
    pub depth: u32,
    /// The marks that were reached.
    pub reached: u64,
    /// The shortest path to a broken invariant, if there is one.
    pub broken: Option<Broken>,
    /// True if every state within the bounds was seen.
    pub complete: bool,
}

/// A broken invariant.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Its name.
    pub invariant: &'static str,
    /// The path from an initial state: each step with its effects.
    pub story: Vec<Vec<String>>,
}

/// Searches all states, or the first `states_max`, until the first broken invariant.
pub fn search<M: Model>(model: &mut M, states_max: u64) -> Searched {
    let mut visited = Visited::new();
    let mut waiting: VecDeque<(u32, M::State)> = VecDeque::new();
    let mut starts = Vec::new();
    for state in model.starts() {
        if let Some(place) = visited.insert(model.fingerprint(&state), None) {
            starts.push((place, state.clone()));
            waiting.push_back((place, state));
        }
    }
    let (mut steps, mut reached, mut depth) = (0, 0, 0);
    let mut layer_end = visited.count();
    let mut successors = Successors { steps: Vec::new(), cut: 0 };
    let mut broken = None;
    'search: while let Some((from, state)) = waiting.pop_front() {
        if from as usize >= layer_end {
            layer_end = visited.count();
            depth += 1;
        }
        successors.steps.clear();
        model.steps(&state, &mut successors);
        steps += successors.steps.len() as u64;
        for step in successors.steps.drain(..) {
            reached |= step.reached;
            if let Some(invariant) = step.broken {
                broken = Some((invariant, from, step.number));
                break 'search;
            }
            let predecessor = Predecessor { from, step: step.number };
            if let Some(place) = visited.insert(model.fingerprint(&step.state), Some(predecessor)) {
                waiting.push_back((place, step.state));
            }
        }
        if visited.count() as u64 >= states_max {
            break;
        }
    }
    let broken = broken.map(|(invariant, from, step)| Broken {
        invariant,
        story: replay(model, &visited, &starts, Predecessor { from, step }),
    });
    let (states, cut) = (visited.count() as u64, successors.cut);
    let complete = waiting.is_empty() && broken.is_none();
    Searched { states, steps, cut, depth, reached, broken, complete }
}

/// Replays the path to a state, and returns each step as text.
fn replay<M: Model>(
    model: &mut M,
    visited: &Visited,
    starts: &[(u32, M::State)],
    last: Predecessor,
) -> Vec<Vec<String>> {
    let mut steps = vec![last.step];
    let mut place = last.from;
    while visited.predecessor(place).from != place {
        steps.push(visited.predecessor(place).step);
        place = visited.predecessor(place).from;
    }
    let Some((_, start)) = starts.iter().find(|(start, _)| *start == place) else { return Vec::new() };
    let mut state = start.clone();
    let mut story = Vec::new();
    for step in steps.into_iter().rev() {
        story.push(model.tell(&state, step));
        let mut successors = Successors { steps: Vec::new(), cut: 0 };
        model.steps(&state, &mut successors);
        let Some(taken) = successors.steps.into_iter().find(|taken| taken.number == step) else { break };
        state = taken.state;
    }
    story
}
