//! The requests of callers with their times and answers.

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<A, R> {
    /// The caller, for people.
    pub caller: u64,
    /// Right before it was asked for. All times are of one clock, in nanoseconds; which one does not matter.
    pub start: u64,
    /// Right after it was answered. Without meaning where the answer is [`Answer::Unknown`].
    pub end: u64,
    /// The request.
    pub action: A,
    /// The belief that the answer allows.
    pub answer: Answer<R>,
}

/// The belief that a caller may have of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<R> {
    /// It was done, with this reply.
    Known(R),
    /// It may take effect at any time after its call, or never.
    Unknown,
    /// It surely has no effect, and nothing is known of the thing.
    Failed,
}

/// An event along the clock; requests by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Call(usize),
    Answer(usize),
}

/// All events, in order. Of events at the same time calls come first: only a request that ended *before* another one
/// began must come before it.
pub(super) fn events<A, R>(requests: &[&Request<A, R>]) -> Vec<Event> {
    let mut events = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        events.push((request.start, 0, Event::Call(number)));
        if matches!(request.answer, Answer::Known(_)) {
            // An answer must not come before its call, even by a clock that went back.
            events.push((request.end.max(request.start), 1, Event::Answer(number)));
        }
    }
    events.sort_by_key(|&(at, order, _)| (at, order));
    events.into_iter().map(|(.., event)| event).collect()
}
