//! Watches: one etcd watch stream for all watches of a client, which is resumed when it breaks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tonic::Streaming;

use super::api::{self, FilterType, RequestUnion};
use super::client::{Client, Connection};
use crate::mutex::lock;
use crate::runtime::{self, Aborted};

/// The pause before a broken stream is renewed, and before a watcher is notified that etcd refuses its watch: otherwise
/// a client without the permission would retry as fast as etcd answers.
const PAUSE: Duration = Duration::from_millis(200);

/// The time for which a stream without watches is kept: after each change, its client reads, and then watches again.
const LINGER: Duration = Duration::from_secs(10);

/// The time limit for a member to begin a stream.
const BEGIN_MAX: Duration = Duration::from_secs(2);

/// The watched keys and events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) key: Vec<u8>,
    /// The first key that is not watched; empty for one key.
    pub(super) range_end: Vec<u8>,
    pub(super) only: Only,
}

/// The events that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Only {
    /// All.
    Any,
    /// A key was deleted.
    Deleted,
    /// A key was written.
    Written,
}

/// The watches of one client.
#[derive(Debug)]
pub(super) struct Watches {
    client: Arc<Client>,
    commands: mpsc::UnboundedSender<Command>,
    /// The receiver for the task, until the first watch starts it.
    received: std::sync::Mutex<Option<mpsc::UnboundedReceiver<Command>>>,
    task: OnceLock<Result<Aborted<()>, String>>,
    ids: AtomicI64,
}

/// One watch. It ends with the first event, or when this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    id: i64,
    pub(super) target: Target,
    /// The revision of the event, once there is one.
    fired: watch::Receiver<Option<i64>>,
    commands: mpsc::WeakUnboundedSender<Command>,
}

#[derive(Debug)]
enum Command {
    Add(i64, Wanted),
    Remove(i64),
}

#[derive(Debug)]
struct Wanted {
    target: Target,
    /// The first revision to watch; 0 for all events from now on.
    from: i64,
    /// True if the present stream has begun this watch.
    is_confirmed: bool,
    fire: watch::Sender<Option<i64>>,
}

impl Watches {
    pub(super) fn new(client: Arc<Client>) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let received = std::sync::Mutex::new(Some(received));
        Self { client, commands, received, task: OnceLock::new(), ids: AtomicI64::new(1) }
    }

    /// Watches for events from the revision `from` on; 0 for all events from now on.
    pub(super) fn watch(&self, target: Target, from: i64) -> Watch {
        let start = || {
            let received = lock(&self.received).take();
            let received = received.ok_or("it was started before")?;
            runtime::spawn(serve(Arc::downgrade(&self.client), received))
        };
        // Without the stores' thread, every request fails and reports it.
        let _ = self.task.get_or_init(start);
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (fire, fired) = watch::channel(None);
        // Without the task the command is not received, and the sender in it is dropped: the watch has fired.
        let _ = self
            .commands
            .send(Command::Add(id, Wanted { target: target.clone(), from, is_confirmed: false, fire }));
        Watch { id, target, fired, commands: self.commands.downgrade() }
    }
}

impl Watch {
    /// Resolves when there is, or may have been, an event; returns its revision, or 0 if it is not known.
    pub(super) async fn fired(&self) -> i64 {
        let mut fired = self.fired.clone();
        match fired.wait_for(Option::is_some).await {
            Ok(revision) => revision.unwrap_or(0),
            Err(_) => 0,
        }
    }

    /// Returns the revision if there was, or may have been, an event.
    pub(super) fn has_fired(&self) -> Option<i64> {
        let fired = *self.fired.borrow();
        fired.or_else(|| self.fired.has_changed().is_err().then_some(0))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(commands) = self.commands.upgrade() {
            let _ = commands.send(Command::Remove(self.id));
        }
    }
}

/// Serves the watches, until no handle is left that could add one.
async fn serve(client: Weak<Client>, mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut wanted = BTreeMap::new();
    loop {
        while wanted.is_empty() {
            match commands.recv().await {
                Some(command) => apply(command, &mut wanted),
                None => return,
            };
        }
        let Some(client) = client.upgrade() else { return };
        let is_broken = match client.connection().await {
            Ok(connection) => follow(&client, &connection, &mut commands, &mut wanted).await,
            Err(_) => true,
        };
        drop(client);
        if commands.is_closed() && commands.is_empty() {
            return;
        }
        if is_broken {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Applies the command; returns the request to be sent on the stream, if any.
fn apply(command: Command, wanted: &mut BTreeMap<i64, Wanted>) -> Option<api::WatchRequest> {
    let request = match command {
        Command::Add(id, watch) => {
            let request = create(id, &watch);
            wanted.insert(id, watch);
            Some(request)
        }
        Command::Remove(id) => {
            wanted.remove(&id).map(|_| RequestUnion::CancelRequest(api::WatchCancelRequest { watch_id: id }))
        }
    };
    Some(api::WatchRequest { request_union: Some(request?) })
}

fn create(id: i64, watch: &Wanted) -> RequestUnion {
    let filters = match watch.target.only {
        Only::Any => vec![],
        Only::Deleted => vec![FilterType::Noput.into()],
        Only::Written => vec![FilterType::Nodelete.into()],
    };
    RequestUnion::CreateRequest(api::WatchCreateRequest {
        key: watch.target.key.clone(),
        range_end: watch.target.range_end.clone(),
        start_revision: watch.from,
        filters,
        watch_id: id,
        ..Default::default()
    })
}

/// Follows one stream until it breaks, the client has moved to another member, or nothing is watched; returns whether
/// it broke.
async fn follow(
    client: &Client,
    connection: &Connection,
    commands: &mut mpsc::UnboundedReceiver<Command>,
    wanted: &mut BTreeMap<i64, Wanted>,
) -> bool {
    let (questions, asked) = mpsc::unbounded_channel();
    // The server does not answer before it has received the first request.
    for (&id, watch) in wanted.iter_mut() {
        watch.is_confirmed = false;
        let _ = questions.send(api::WatchRequest { request_union: Some(create(id, watch)) });
    }
    let beginning = tokio::time::timeout(BEGIN_MAX, client.watch(&connection.channel, asked));
    let mut answers = match beginning.await {
        Ok(Ok(answers)) => answers,
        Ok(Err(status)) => {
            broken(client, connection, Some(status)).await;
            return true;
        }
        Err(_) => {
            broken(client, connection, None).await;
            return true;
        }
    };
    loop {
        let answer = tokio::select! {
            () = client.newer_than(connection.number) => return false,
            () = tokio::time::sleep(LINGER), if wanted.is_empty() => return false,
            command = commands.recv() => {
                let Some(command) = command else { return false };
                if let Some(question) = apply(command, wanted) {
                    let _ = questions.send(question);
                }
                continue;
            }
            answer = next(&mut answers) => answer,
        };
        match answer {
            Ok(answer) => match heard(&answer, wanted) {
                WatchReply::Nothing => {}
                WatchReply::Event(id) => {
                    // Otherwise etcd would go on sending all later events.
                    let request = Some(RequestUnion::CancelRequest(api::WatchCancelRequest { watch_id: id }));
                    let _ = questions.send(api::WatchRequest { request_union: request });
                }
                WatchReply::Refusal => {
                    // The login with which the stream began may have expired, or the permission is missing.
                    client.forget_token();
                    return true;
                }
            },
            Err(status) => {
                broken(client, connection, status).await;
                return true;
            }
        }
    }
}

async fn next(
    answers: &mut Streaming<api::WatchResponse>,
) -> Result<api::WatchResponse, Option<tonic::Status>> {
    answers.message().await.map_err(Some)?.ok_or(None)
}

/// Handles a broken stream: moves to another member, and renews an expired login.
async fn broken(client: &Client, connection: &Connection, status: Option<tonic::Status>) {
    if status.is_some_and(|status| status.code() == tonic::Code::Unauthenticated) {
        client.forget_token();
    } else {
        client.give_up(connection.number).await;
    }
}

/// The meaning of an answer.
enum WatchReply {
    Nothing,
    /// The watch has fired, and still exists in etcd.
    Event(i64),
    /// etcd refuses to watch with this login.
    Refusal,
}

fn heard(answer: &api::WatchResponse, wanted: &mut BTreeMap<i64, Wanted>) -> WatchReply {
    let revision = answer.header.as_ref().map_or(0, |header| header.revision);
    let id = answer.watch_id;
    if answer.canceled {
        // When etcd refuses to begin a watch, it does not always name it: then it is one of the unconfirmed ones. All
        // of them fire; their callers read again, and watch again.
        let ended = match wanted.remove(&id) {
            Some(watch) => vec![watch],
            None if answer.created => {
                let unconfirmed = wanted.iter().filter(|(_, watch)| !watch.is_confirmed);
                let ids: Vec<i64> = unconfirmed.map(|(&id, _)| id).collect();
                ids.into_iter().filter_map(|id| wanted.remove(&id)).collect()
            }
            None => return WatchReply::Nothing,
        };
        if answer.compact_revision > 0 {
            // The events since then are compacted, so there may have been one.
            fire(&ended, revision);
        } else {
            tokio::spawn(async move {
                tokio::time::sleep(PAUSE).await;
                fire(&ended, 0);
            });
            return WatchReply::Refusal;
        }
    } else if answer.created {
        if let Some(watch) = wanted.get_mut(&id) {
            watch.is_confirmed = true;
            if watch.from == 0 {
                // A new stream resumes from here.
                watch.from = revision.saturating_add(1);
            }
        }
    } else if !answer.events.is_empty()
        && let Some(watch) = wanted.remove(&id)
    {
        watch.fire.send_replace(Some(revision));
        return WatchReply::Event(id);
    }
    WatchReply::Nothing
}

fn fire(watches: &[Wanted], revision: i64) {
    for watch in watches {
        watch.fire.send_replace(Some(revision));
    }
}
