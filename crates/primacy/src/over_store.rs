//! An election over a store: the lease machine, and a register that answers it.

use std::sync::Arc;

use primacy_core::election::lease::{self, Found, Lease, Message, SetError};
use primacy_core::{Endpoint, FencingToken, Identity, Input, Protocol};
use primacy_stores::{ReadError, Register};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::clock;
use crate::config::Config;
use crate::driver::{Halt, Settles, World};

/// The store, as the machine sees it. Requests run beside the driver, and their answers come as arrivals.
#[derive(Debug)]
pub(crate) struct StoreWorld {
    register: Arc<dyn Register>,
    answers: mpsc::UnboundedSender<Message>,
    inbox: mpsc::UnboundedReceiver<Message>,
    /// Ends what is under way with this world.
    requests: JoinSet<()>,
}

impl StoreWorld {
    /// To be called inside a `LocalSet`.
    pub(crate) fn new(register: Arc<dyn Register>) -> Self {
        // Unbounded, and yet never long: the machine has one request under way, and a change is told once.
        let (answers, inbox) = mpsc::unbounded_channel();
        let mut requests = JoinSet::new();
        requests.spawn_local(tell_changes(Arc::clone(&register), answers.clone()));
        Self { register, answers, inbox, requests }
    }

    /// Sends a request to the store.
    fn request(&mut self, message: Message) {
        while self.requests.try_join_next().is_some() {}
        let (register, answers) = (Arc::clone(&self.register), self.answers.clone());
        self.requests.spawn_local(async move {
            if let Some(answer) = answer(register.as_ref(), message).await {
                // The driver may have ended.
                let _ = answers.send(answer);
            }
        });
    }
}

async fn answer(register: &dyn Register, message: Message) -> Option<Message> {
    match message {
        Message::Read { request } => {
            let found = match register.read().await {
                Ok(found) => {
                    Some(found.map_or_else(absent, |(record, version)| Found::Record { record, version }))
                }
                Err(error @ ReadError::Unavailable { .. }) => {
                    tracing::warn!(%error, "the record could not be read");
                    None
                }
                Err(error @ ReadError::Malformed { .. }) => {
                    tracing::error!(%error, "the record cannot be understood, and nobody is elected over it here");
                    None
                }
            };
            Some(Message::ReadReply { request, found })
        }
        Message::CompareAndSet { request, expect, record } => {
            let result = register.compare_and_set(expect.as_ref(), &record).await;
            if let Err(error) = &result {
                tracing::debug!(%error, "the record was not written, or it is not known");
            }
            Some(Message::CompareAndSetReply { request, result: result.map_err(SetError::from) })
        }
        Message::ReadReply { .. } | Message::CompareAndSetReply { .. } | Message::Changed => None,
    }
}

/// The milliseconds since 1970 are above any token of a record that was deleted: no election has had a thousand
/// leaders a second since it was created.
fn absent() -> Found {
    Found::Absent { first_token: FencingToken(clock::wall_millis()) }
}

async fn tell_changes(register: Arc<dyn Register>, answers: mpsc::UnboundedSender<Message>) {
    loop {
        register.changed().await;
        if answers.send(Message::Changed).is_err() {
            return;
        }
        // The read that follows settles what has changed; whatever comes before it is the same news.
        tokio::task::yield_now().await;
    }
}

impl<P: Protocol<Message = Message, Durable = ()>> World<P> for StoreWorld {
    fn persist(&mut self, (): ()) -> Result<(), Halt> {
        Ok(()) // What must not be forgotten is in the store.
    }

    fn send(&mut self, to: Endpoint, message: Message) {
        match to {
            Endpoint::Store => self.request(message),
            Endpoint::Node(_) => {} // The candidates do not talk to each other.
        }
    }

    async fn arrival(&mut self) -> Result<Input<Message>, Halt> {
        match self.inbox.recv().await {
            Some(message) => Ok(Input::Message { from: Endpoint::Store, message }),
            None => std::future::pending().await, // This world holds a sender itself.
        }
    }
}

impl Settles for Lease {
    fn is_settled(&self) -> bool {
        Self::is_settled(self)
    }
}

/// The machine of one candidate.
pub(crate) fn machine(config: &Config, me: Identity, seed: u64) -> Lease {
    let timers = &config.timers;
    let lease = lease::Config {
        me,
        address: config.address.clone(),
        duration: timers.lease.into(),
        drift_max: timers.drift_max,
        renew_interval: timers.renewal.into(),
        request_timeout: timers.answer_timeout.into(),
        poll_interval: timers.poll_interval.into(),
        seed,
    };
    Lease::new(lease, clock::now())
}
