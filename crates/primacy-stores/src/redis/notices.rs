//! Notices of changes: a subscription on a connection of its own, which is read no faster than needed.
//!
//! Users who may write to no key may still publish on the channel, as all may by default before Redis 7. Their messages must
//! neither delay the answers to requests nor take this process' time: so the requests have another connection, a subscription
//! that brings too much is given up for a while, and elections are notified of its messages in intervals. Missed changes are
//! found by polling.

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

/// The time between two looks whether the subscription still works. Between two such moments no more is read of it than
/// of one answer.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The pause before another subscription follows one that has ended.
const PAUSE: Duration = Duration::from_secs(5);

/// The versions that were named last, of elections that are open and have not been notified yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    named: Mutex<HashMap<String, u64>>,
    arrived: Notify,
}

/// A connection that has subscribed.
pub(super) struct Subscription(Live);

impl Inbox {
    /// Takes in a message of the channel: `VERSION ELECTION`.
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

    /// Notifies the elections until it is dropped.
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

/// Keeps a subscription, after the first one.
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
    /// Resolves when it has ended, or requests go over another connection than they did, perhaps to another server.
    async fn last(&mut self, inner: &Inner, requests: &Weak<Live>) {
        let channel = inner.settings.channel();
        loop {
            tokio::select! {
                _ = self.0.driver.finished() => return,
                () = sleep(CHECK_INTERVAL) => {}
            }
            // To subscribe again changes nothing, and needs no other right.
            let answer = timeout(REQUEST_PATIENCE, self.0.connection.subscribe(&channel)).await;
            if !matches!(answer, Ok(Ok(()))) || !Weak::ptr_eq(requests, &inner.newest()) {
                return;
            }
            self.0.limit.renew();
        }
    }
}

impl Inner {
    /// Subscribes, over a connection that is made for it.
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
