//! Notices of changes: a subscription on a separate connection, whose messages are limited.
//!
//! Users without the right to write to any key may still publish on the channel; before Redis 7, all users may by default. Their messages
//! must neither delay answers to requests nor load this process: so requests use another connection, a subscription that receives too much
//! is paused, and elections are notified at intervals. Polling finds missed changes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use redis::{PushInfo, PushKind, Value};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::link::{CONNECT_PATIENCE, Inner, Live, REQUEST_PATIENCE};
use super::refusal;
use crate::changes::Listeners;
use crate::mutex::lock;
use crate::open_error::OpenError;

/// The interval at which elections are notified.
const TELL_INTERVAL: Duration = Duration::from_millis(20);

/// The interval at which the subscription is checked. Between two checks, at most the length of one answer is read from it.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The pause after a subscription has ended, before the next one.
const PAUSE: Duration = Duration::from_secs(5);

/// The latest versions in messages, of open elections that have not been notified yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    named: Mutex<HashMap<String, u64>>,
    arrived: Notify,
}

/// A connection that has subscribed.
pub(super) struct Subscription(Live);

impl Inbox {
    /// Receives a message of the channel: `VERSION ELECTION`.
    pub(super) fn take(&self, elections: &Listeners, push: &PushInfo) {
        if push.kind == PushKind::Message
            && let [_, Value::BulkString(told)] = push.data.as_slice()
            && let Ok(told) = std::str::from_utf8(told)
            && let Some((version, election)) = told.split_once(' ')
            && let Ok(version) = version.parse()
            && elections.contain(election)
        {
            lock(&self.named).insert(election.to_owned(), version);
            self.arrived.notify_one();
        }
    }

    /// Notifies the elections until the future is dropped.
    async fn tell(&self, elections: &Listeners) {
        loop {
            self.arrived.notified().await;
            let named = std::mem::take(&mut *lock(&self.named));
            for (election, version) in named {
                elections.notify(&election, version);
            }
            sleep(TELL_INTERVAL).await;
        }
    }
}

/// Keeps a subscription alive: the first one, and then its replacements.
pub(super) async fn keep(inner: Arc<Inner>, first: Subscription) {
    let mut subscription = Some(first);
    loop {
        if let Some(mut subscription) = subscription.take() {
            let (inbox, requests) = (Arc::clone(&subscription.0.inbox), inner.newest());
            tokio::select! {
                () = inbox.tell(&inner.elections) => {}
                () = subscription.last(&inner, &requests) => {}
            }
        }
        sleep(PAUSE).await;
        // The error is ignored: requests report their own.
        subscription = inner.subscribe().await.ok();
    }
}

impl Subscription {
    /// Resolves when the subscription has ended, or requests use a new connection, perhaps to another server.
    async fn last(&mut self, inner: &Inner, requests: &Weak<Live>) {
        let channel = inner.settings.channel();
        loop {
            tokio::select! {
                _ = self.0.driver.finished() => return,
                () = sleep(CHECK_INTERVAL) => {}
            }
            // Subscribing again has no effect and needs no other right, so it serves as a ping.
            let answer = timeout(REQUEST_PATIENCE, self.0.connection.subscribe(&channel)).await;
            if !matches!(answer, Ok(Ok(()))) || !Weak::ptr_eq(requests, &inner.newest()) {
                return;
            }
            self.0.limit.renew();
        }
    }
}

impl Inner {
    /// Subscribes, over a new connection.
    pub(super) async fn subscribe(&self) -> Result<Subscription, OpenError> {
        let subscribing = async {
            let mut live = self.connect().await?;
            let subscribed = live.connection.subscribe(self.settings.channel()).await;
            subscribed.map(|()| Subscription(live)).map_err(|error| refusal::of_opening(&error))
        };
        match timeout(CONNECT_PATIENCE, subscribing).await {
            Ok(subscribed) => subscribed.map_err(|error| self.named_error(error)),
            Err(_) => Err(OpenError::Unavailable { why: self.silence("answer") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(text: &str) -> PushInfo {
        let data = [&b"p:changed"[..], text.as_bytes()].map(|bytes| Value::BulkString(bytes.to_vec()));
        PushInfo { kind: PushKind::Message, data: data.into() }
    }

    #[tokio::test]
    async fn many_notices_are_told_as_one_and_of_unknown_elections_none_is_kept() {
        let (elections, inbox) = (Listeners::default(), Inbox::default());
        let changes = elections.add("e");
        for number in 1..=10_000_u64 {
            inbox.take(&elections, &notice(&format!("{number} e")));
            inbox.take(&elections, &notice(&format!("{number} e{number}")));
        }
        assert_eq!(lock(&inbox.named).len(), 1);
        let telling = async {
            changes.heard().await;
            let first = changes.last();
            changes.saw(first.0, first.1);
            inbox.take(&elections, &notice("1 e"));
            inbox.take(&elections, &notice("2 e"));
            changes.heard().await;
            (first, changes.last())
        };
        let (first, second) = tokio::select! {
            () = inbox.tell(&elections) => unreachable!("it has no end"),
            told = telling => told,
        };
        assert_eq!(first, (1, 10_000));
        assert_eq!(second, (2, 2));
    }
}
