//! A register for one value with compare-and-set on versions: the sequential specification of [`Register`].
//!
//! [`Register`]: primacy_stores::Register

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;

use crate::linearizability::{Answer, Effort, Model, Request, check};

/// The register, with values `T` under versions `V`.
#[derive(Clone, Debug)]
pub struct RegisterModel<T, V> {
    /// The values that came with each version in any answer. A version belongs to one write, so a value with an
    /// unknown version cannot have the version of another value; without this rule, unknown writes could be combined
    /// in any number of ways that no answer could ever distinguish.
    told: BTreeMap<V, Vec<T>>,
}

impl<T: Clone + PartialEq, V: Clone + Ord> RegisterModel<T, V> {
    /// The model of the register that gave these answers.
    #[must_use]
    pub fn of(history: &[Asked<T, V>]) -> Self {
        let mut told: BTreeMap<V, Vec<T>> = BTreeMap::new();
        for request in history {
            if let Some((value, version)) = request.told() {
                let values = told.entry(version.clone()).or_default();
                if !values.contains(value) {
                    values.push(value.clone());
                }
            }
        }
        Self { told }
    }

    fn may_be(&self, value: &T, label: &Label<V>, version: &V) -> bool {
        let is_of_another = || self.told.get(version).is_some_and(|values| !values.contains(value));
        match label {
            Label::Known(known) => known == version,
            Label::Not(others) => !others.contains(version) && !is_of_another(),
        }
    }
}

/// Checks that one register can have given these answers, with a different version for each write.
///
/// # Errors
/// The impossible answer, or that the check is undecided, as text.
pub fn judge<T, V>(history: &[Asked<T, V>]) -> Result<Effort, String>
where
    T: Clone + Eq + Hash + Debug,
    V: Clone + Ord + Hash + Debug,
{
    let model = RegisterModel::of(history);
    if let Some((version, values)) = model.told.iter().find(|(_, values)| values.len() > 1) {
        return Err(format!("the version {version:?} had several values: {values:?}"));
    }
    let mut made: BTreeMap<&V, u64> = BTreeMap::new();
    for request in history {
        if let Answer::Known(Reply::Done(version)) = &request.answer
            && let Some(other) = made.insert(version, request.caller)
        {
            return Err(format!(
                "the callers {other} and {} have both made the version {version:?}",
                request.caller
            ));
        }
    }
    check(&model, history).ordered()
}

impl<T, V> Asked<T, V> {
    /// Returns the value and version that this answer shows to belong together.
    fn told(&self) -> Option<(&T, &V)> {
        match (&self.action, &self.answer) {
            (Action::CompareAndSet { value, .. }, Answer::Known(Reply::Done(version))) => {
                Some((value, version))
            }
            (_, Answer::Known(Reply::Found(Some((value, version))))) => Some((value, version)),
            (
                Action::Read | Action::CompareAndSet { .. },
                Answer::Known(_) | Answer::Unknown | Answer::Failed,
            ) => None,
        }
    }
}

/// A request to the register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<T, V> {
    /// Read the value.
    Read,
    /// Write `value` if the version is `expect`; `None` if there must be no value.
    CompareAndSet {
        /// The expected version.
        expect: Option<V>,
        /// The new value.
        value: T,
    },
}

/// An answer of the cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply<T, V> {
    /// To a read: the value with its version, if there is one.
    Found(Option<(T, V)>),
    /// The write took effect, with this new version.
    Done(V),
    /// The version is another one, and the write had no effect.
    Conflict,
}

/// A request to the register, with its answer.
pub type Asked<T, V> = Request<Action<T, V>, Reply<T, V>>;

/// The state of the register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State<T, V> {
    /// No value yet.
    Absent,
    /// A value.
    Present(T, Label<V>),
}

/// The version of a value, as far as any answer has shown it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Label<V> {
    /// It is known.
    Known(V),
    /// No write of the value was answered, so only versions that it cannot have are known. The first answer with the value shows its
    /// version.
    Not(Vec<V>),
}

impl<V: Clone + Ord> Label<V> {
    /// Returns the label once it is known not to be `version`; `None` if it is.
    fn without(&self, version: &V) -> Option<Self> {
        match self {
            Self::Known(known) => (known != version).then(|| self.clone()),
            Self::Not(others) => {
                let mut others = others.clone();
                if let Err(place) = others.binary_search(version) {
                    others.insert(place, version.clone());
                }
                Some(Self::Not(others))
            }
        }
    }
}

impl<T, V> Model for RegisterModel<T, V>
where
    T: Clone + Eq + Hash + Debug,
    V: Clone + Ord + Hash + Debug,
{
    type Key = ();
    type State = State<T, V>;
    type Action = Action<T, V>;
    type Reply = Reply<T, V>;

    fn key(&self, _action: &Self::Action) {}

    fn initial(&self) -> Self::State {
        State::Absent
    }

    fn step(
        &self,
        state: &Self::State,
        action: &Self::Action,
        reply: Option<&Self::Reply>,
    ) -> Option<Self::State> {
        match (action, reply) {
            (Action::Read, Some(Reply::Found(found))) => self.read(state, found.as_ref()),
            (Action::Read, None) => Some(state.clone()),
            (Action::CompareAndSet { expect, value }, Some(Reply::Done(version))) => {
                let before = self.expected(state, expect.as_ref())?;
                let is_new = before.as_ref() != Some(version);
                is_new.then(|| State::Present(value.clone(), Label::Known(version.clone())))
            }
            (Action::CompareAndSet { expect, value }, None) => {
                let before = self.expected(state, expect.as_ref())?;
                Some(State::Present(value.clone(), Label::Not(before.into_iter().collect())))
            }
            (Action::CompareAndSet { expect, .. }, Some(Reply::Conflict)) => {
                self.conflict(state, expect.as_ref())
            }
            (Action::Read, Some(Reply::Done(_) | Reply::Conflict))
            | (Action::CompareAndSet { .. }, Some(Reply::Found(_))) => None, // No answer to this.
        }
    }

    fn describe(&self, action: &Self::Action, answer: &Answer<Self::Reply>) -> String {
        let asked = match action {
            Action::Read => "read".to_owned(),
            Action::CompareAndSet { expect: None, value } => format!("create {value:?}"),
            Action::CompareAndSet { expect: Some(expect), value } => {
                format!("write {value:?} over version {expect:?}")
            }
        };
        let answered = match answer {
            Answer::Known(Reply::Found(None)) => "nothing is there".to_owned(),
            Answer::Known(Reply::Found(Some((value, version)))) => format!("{value:?}, version {version:?}"),
            Answer::Known(Reply::Done(version)) => format!("done, version {version:?}"),
            Answer::Known(Reply::Conflict) => "conflict".to_owned(),
            Answer::Unknown => "outcome unknown".to_owned(),
            Answer::Failed => "not done".to_owned(),
        };
        format!("{asked}: {answered}")
    }

    fn describe_state(&self, state: &Self::State) -> String {
        match state {
            State::Absent => "nothing is there".to_owned(),
            State::Present(value, Label::Known(version)) => format!("{value:?}, version {version:?}"),
            State::Present(value, Label::Not(_)) => {
                format!("{value:?}, under a version that nobody was told")
            }
        }
    }
}

impl<T: Clone + PartialEq, V: Clone + Ord> RegisterModel<T, V> {
    fn read(&self, state: &State<T, V>, found: Option<&(T, V)>) -> Option<State<T, V>> {
        match (state, found) {
            (State::Absent, None) => Some(State::Absent),
            (State::Present(value, label), Some((seen, version))) => {
                let is_it = value == seen && self.may_be(value, label, version);
                is_it.then(|| State::Present(value.clone(), Label::Known(version.clone())))
            }
            (State::Absent, Some(_)) | (State::Present(..), None) => None,
        }
    }

    /// Returns the version that a write with this expectation replaces, if it can succeed here; the inner value is
    /// `None` if there is no value yet.
    fn expected(&self, state: &State<T, V>, expect: Option<&V>) -> Option<Option<V>> {
        match (state, expect) {
            (State::Absent, None) => Some(None),
            (State::Present(value, label), Some(version)) => {
                self.may_be(value, label, version).then(|| Some(version.clone()))
            }
            (State::Absent, Some(_)) | (State::Present(..), None) => None,
        }
    }

    fn conflict(&self, state: &State<T, V>, expect: Option<&V>) -> Option<State<T, V>> {
        match (state, expect) {
            (State::Absent, None) => None,
            (State::Absent, Some(_)) => Some(State::Absent),
            (State::Present(value, label), None) => Some(State::Present(value.clone(), label.clone())),
            (State::Present(value, label), Some(version)) if self.may_be(value, label, version) => {
                Some(State::Present(value.clone(), label.without(version)?))
            }
            (State::Present(value, label), Some(_)) => Some(State::Present(value.clone(), label.clone())),
        }
    }
}
