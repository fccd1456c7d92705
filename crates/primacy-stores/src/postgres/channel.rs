//! The notification channel: `LISTEN` on a connection of its own, and `NOTIFY` after each write.
//!
//! The queue of notifications belongs to the whole server, and every role that may connect can fill it. `NOTIFY` then fails when its
//! transaction commits, and `LISTEN` reads the whole queue before it returns. So the `NOTIFY` of a write is a separate transaction, no
//! request waits behind a `LISTEN`, and a process has at most one connection that listens or waits to listen. Polling finds changes without
//! a notification.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::types::Type;

use super::link::{Inner, LOOK_INTERVAL, Live, connect};
use super::{pooler, refusal};
use crate::open_error::OpenError;
use crate::runtime;

/// The time for which a `NOTIFY` waits for the server-wide lock under which notifications are committed. Other requests wait behind it.
const LOCK_PATIENCE: &str = "100ms";

/// The time that a writer waits for the answer to its `NOTIFY`.
const NOTIFY_PATIENCE: Duration = Duration::from_millis(250);

/// The pause before the second attempt to listen. It doubles with each.
const PAUSE_MIN: Duration = Duration::from_millis(200);

/// The longest pause between two attempts to listen.
const PAUSE_MAX: Duration = Duration::from_secs(30);

impl Inner {
    /// Notifies other processes of versions that were written, once these are committed. After a failure, they notice the versions by
    /// polling.
    pub(super) async fn notify(self: &Arc<Self>, written: Vec<(i64, String)>) {
        if written.is_empty() {
            return;
        }
        let payloads: Vec<String> =
            written.iter().map(|(version, election)| format!("{version} {election}")).collect();
        let statement = format!(
            "WITH limits AS MATERIALIZED (SELECT pg_catalog.set_config('lock_timeout', '{LOCK_PATIENCE}', true)) \
             SELECT pg_catalog.pg_notify('{}', payload) FROM limits, pg_catalog.unnest($1) AS payload",
            self.table.name()
        );
        let sending = async {
            let live = self.connection().await.map_err(|error| error.to_string())?;
            let sent = live.client.query_typed(&statement, &[(&payloads, Type::TEXT_ARRAY)]).await;
            sent.map(drop).map_err(|error| refusal::told(&error))
        };
        let sent = timeout(NOTIFY_PATIENCE, sending).await;
        let failure = sent.unwrap_or_else(|_| Err(self.silence("answer"))).err();
        let was_told = self.is_told.swap(failure.is_none(), Ordering::SeqCst);
        match failure {
            Some(error) if was_told => tracing::warn!(
                %error,
                "NOTIFY failed: other processes find what is written by looking, once a second or more often"
            ),
            None if !was_told => tracing::warn!("NOTIFY succeeds again"),
            Some(_) | None => {}
        }
    }

    /// Listens until the future is dropped, over one connection after another.
    async fn listen(self: Arc<Self>) {
        let mut pause = PAUSE_MIN;
        loop {
            let began_at = Instant::now();
            // The error is ignored: requests report their own.
            let _ = self.listen_once().await;
            self.is_listening.store(false, Ordering::SeqCst);
            if began_at.elapsed() > PAUSE_MAX {
                pause = PAUSE_MIN;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Listens over one connection, until that ends or requests go over another connection than before.
    async fn listen_once(self: &Arc<Self>) -> Result<(), OpenError> {
        let requests = Arc::downgrade(&self.connection().await?);
        let live = connect(&self.settings, Some(self.news())).await?;
        // Without a time limit: with a long queue, an abandoned LISTEN continues in the server, and the next one would run beside it.
        let of_opening = |error| refusal::of_opening(&error);
        if pooler::is_between(&live.client).await.map_err(of_opening)? {
            return Ok(());
        }
        let listen = format!("LISTEN {}", self.table.name());
        live.client.batch_execute(&listen).await.map_err(of_opening)?;
        self.is_listening.store(true, Ordering::SeqCst);
        let mut lives = live.lives.clone();
        while timeout(LOOK_INTERVAL, lives.changed()).await.is_err() && self.is_used(&requests) {}
        Ok(())
    }

    /// Starts to listen, until the guard is dropped.
    pub(super) fn start_listening(self: &Arc<Self>) -> Option<runtime::Aborted<()>> {
        runtime::spawn(Arc::clone(self).listen()).ok()
    }

    /// Returns whether requests go over this connection.
    fn is_used(&self, live: &Weak<Live>) -> bool {
        self.live.newest().is_some_and(|newest| Weak::ptr_eq(&Arc::downgrade(&newest), live))
    }
}
