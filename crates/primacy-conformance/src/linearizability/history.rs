//! What callers asked, when, and what they were told.

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<A, R> {
    /// Who asked; for people.
    pub caller: u64,
    /// Right before it was asked for. All times are of one clock, in nanoseconds; which one does not matter.
    pub start: u64,
    /// Right after it was answered. Without meaning where the answer is [`Answer::Unknown`].
    pub end: u64,
    /// What was asked for.
    pub action: A,
    /// What the caller may believe.
    pub answer: Answer<R>,
}

/// What a caller may believe of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<R> {
    /// It was done, and this was said.
    Known(R),
    /// It may take effect at any time after its call, or never.
    Unknown,
    /// It surely has no effect, and nothing was said of the thing.
    Failed,
}

/// What happens along the clock; requests by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Call(usize),
    Answer(usize),
}

/// All that happens, in order. Of what has the same time calls come first: only what ended *before* something else
/// began must stand before it.
pub(super) fn events<A, R>(requests: &[&Request<A, R>]) -> Vec<Event> {
    let mut events = Vec::new();
    for (number, request) in requests.iter().enumerate() {
        events.push((request.start, 0, Event::Call(number)));
        if matches!(request.answer, Answer::Known(_)) {
            // A clock that went back would make an answer to nothing.
            events.push((request.end.max(request.start), 1, Event::Answer(number)));
        }
    }
    events.sort_by_key(|&(at, order, _)| (at, order));
    events.into_iter().map(|(.., event)| event).collect()
}
