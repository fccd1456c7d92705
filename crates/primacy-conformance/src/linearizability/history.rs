//! The requests of callers, with their times and answers.

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<A, R> {
    /// The caller, for messages.
    pub caller: u64,
    /// Immediately before it was sent. All times are nanoseconds of one clock, of any origin.
    pub start: u64,
    /// Immediately after it was answered. Meaningless for [`Answer::Unknown`].
    pub end: u64,
    /// The request.
    pub action: A,
    /// The knowledge that the answer gives.
    pub answer: Answer<R>,
}

/// A caller's knowledge of a request's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<R> {
    /// It took effect, with this reply.
    Known(R),
    /// It may take effect at any time after its call, or never.
    Unknown,
    /// It certainly has no effect, and the state is unknown.
    Failed,
}

/// An event in the order of the clock, by the number of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Call(usize),
    Answer(usize),
}

/// Returns all events, in order. At equal times calls come first: only a request that ended *before* another one
/// began must precede it.
pub(super) fn events<A, R>(requests: &[&Request<A, R>]) -> Vec<Event> {
    let mut events = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        events.push((request.start, 0, Event::Call(number)));
        if matches!(request.answer, Answer::Known(_)) {
            // An answer must not precede its call, even if the clock has gone back.
            events.push((request.end.max(request.start), 1, Event::Answer(number)));
        }
    }
    events.sort_by_key(|&(at, order, _)| (at, order));
    events.into_iter().map(|(.., event)| event).collect()
}
