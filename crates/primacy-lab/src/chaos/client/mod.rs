//! A client of the nodes: a separate process beside each node that sends every kind of etcd request to the APIs of
//! all nodes, and records each request with its outcome. SIGTERM tells it to finish, once all faults are over.
//!
//! Its callers read, write, swap and delete the current keys, with a third of the requests at their own node. Its
//! sessions are kept alive for a while, and then abandoned or ended.

mod etcd_api;
pub(crate) mod journal;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::Parser;
use primacy::clock;
use primacy_core::rng::Rng;
use tokio::sync::watch;

use self::etcd_api::EtcdApi;
use self::journal::{CALLS, Call, ClientRequest, Entry, KEYS, SESSIONS, key_of};
use crate::chaos::event_log::append;
use crate::chaos::schedule::seed_of;
use primacy_testbed::run_error::RunError;

/// The client of a chaos run
#[derive(Debug, Parser)]
pub(crate) struct Client {
    /// The directory of the arm
    dir: PathBuf,

    /// Its name
    #[arg(long)]
    name: String,

    /// The place of the node beside which it runs, counted from 0
    #[arg(long)]
    place: usize,

    /// The seed of its requests
    #[arg(long)]
    seed: u64,

    /// The etcd API addresses of each place, separated by commas
    #[arg(long, required = true)]
    etcd_api: Vec<String>,
}

/// The number of concurrent requests of a client, in addition to those about its session.
const CALLERS: u64 = 4;
/// The longest pause of a caller between two requests; a client sends about twenty requests per second.
const PAUSE_MAX_MS: u64 = 250;
/// The number of keys in use at a time.
const KEYS_AT_A_TIME: u64 = 8;
/// The time for which a set of keys is used until the next set: each key's history is judged separately.
const KEYS_FOR: u64 = 60_000_000_000;
/// The time to live of a session.
pub(crate) const TIME_TO_LIVE_SECONDS: i64 = 10;
/// The interval between two keep-alives.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(1);
/// The time for which a session is kept alive, before it is abandoned or ended.
const KEPT_MIN_MS: u64 = 5_000;
const KEPT_MAX_MS: u64 = 40_000;
/// The interval between two checks whether an abandoned session has ended.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The interval between two reads of all sessions.
const LIST_EVERY: Duration = Duration::from_secs(2);
/// The longest wait for the end of an abandoned session; the judge needs no more.
const OVER_MAX: Duration = Duration::from_secs(60);
/// The time for which the final read of all keys is retried.
const READ_ALL_MAX: Duration = Duration::from_secs(30);
/// The bit position of the client's number in its values and sessions.
const CLIENT_SHIFT: u32 = 40;

/// The state that the tasks of a client share.
struct Shared {
    client: u64,
    place: usize,
    endpoints: Vec<Vec<String>>,
    journal: RefCell<File>,
    path: PathBuf,
    /// The last value that it wrote, and the last session.
    values: RefCell<u64>,
    /// True once it must finish.
    finish: watch::Receiver<bool>,
}

/// The connections and the random generator of one task of a client.
struct Asker {
    shared: Rc<Shared>,
    endpoints: Vec<EtcdApi>,
    rng: Rng,
}

impl Client {
    /// Runs until it has finished on command.
    ///
    /// # Errors
    /// [`RunError`] if it cannot go on.
    pub(crate) fn run(&self) -> Result<(), RunError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(RunError::file("begin a client in", &self.dir))?;
        tokio::task::LocalSet::new().block_on(&runtime, self.ask())
    }

    async fn ask(&self) -> Result<(), RunError> {
        let told = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
        let mut told = told.map_err(RunError::file("listen for signals of a client in", &self.dir))?;
        let (finish, finishes) = watch::channel(false);
        let path = path_of(&self.dir, &self.name);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let endpoints =
            self.etcd_api.iter().map(|addresses| addresses.split(',').map(str::to_owned).collect()).collect();
        let shared = Rc::new(Shared {
            client: self.place as u64,
            place: self.place,
            endpoints,
            journal: RefCell::new(file.map_err(RunError::file("open", &path))?),
            path,
            values: RefCell::new(0),
            finish: finishes,
        });
        let asker = |number: u64| Asker {
            endpoints: shared.endpoints.iter().map(|addresses| EtcdApi::new(addresses)).collect(),
            shared: Rc::clone(&shared),
            rng: Rng::new(seed_of(self.seed, &self.name).wrapping_add(number)),
        };
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..CALLERS {
            tasks.spawn_local(asker(number).call());
        }
        tasks.spawn_local(asker(CALLERS).keep_sessions());
        tasks.spawn_local(asker(CALLERS + 1).list_sessions());
        tokio::select! {
            _ = told.recv() => {}
            // A task ends before the command to finish only if it fails.
            Some(ended) = tasks.join_next() => of_task(ended)?,
        }
        finish.send_replace(true);
        while let Some(ended) = tasks.join_next().await {
            of_task(ended)?;
        }
        asker(CALLERS + 2).read_all().await
    }
}

/// Propagates the failure or panic of a task.
fn of_task(ended: Result<Result<(), RunError>, tokio::task::JoinError>) -> Result<(), RunError> {
    ended.unwrap_or_else(|error| Err(RunError::NotWhole(format!("a client has failed: {error}"))))
}

impl Shared {
    fn is_finishing(&self) -> bool {
        *self.finish.borrow()
    }

    /// Waits for this time, or until it must finish.
    async fn pause(&self, time: Duration) {
        let mut finish = self.finish.clone();
        // The sender lives as long as the client.
        let _ = tokio::time::timeout(time, finish.wait_for(|finish| *finish)).await;
    }

    /// Returns a number that no client has used yet.
    fn next_value(&self) -> u64 {
        let mut values = self.values.borrow_mut();
        *values += 1;
        (self.client << CLIENT_SHIFT) + *values
    }

    fn write(&self, endpoint: usize, asked_ns: u64, act: ClientRequest) -> Result<(), RunError> {
        let answered_ns = now_ns();
        let call = Call { client: self.client, endpoint, asked_ns, answered_ns, act };
        append(&mut self.journal.borrow_mut(), &call).map_err(RunError::file("write", &self.path))
    }
}

fn now_ns() -> u64 {
    clock::now().as_nanos()
}

impl Asker {
    /// Draws the node of the next request: a third of the time the client's own.
    fn draw_endpoint(&mut self) -> usize {
        if self.rng.up_to(2) == 0 {
            return self.shared.place;
        }
        usize::try_from(self.rng.up_to(self.endpoints.len() as u64 - 1)).unwrap_or(0)
    }

    /// Reads, writes, swaps and deletes, until it must finish.
    async fn call(mut self) -> Result<(), RunError> {
        // The revision of each key at its last request, as far as known: the condition of a swap.
        let mut known: HashMap<String, i64> = HashMap::new();
        let mut minute = 0;
        while !self.shared.is_finishing() {
            let now = now_ns() / KEYS_FOR;
            if minute != now {
                minute = now;
                known.clear();
            }
            let key = format!("{KEYS}{minute}/{}", self.rng.up_to(KEYS_AT_A_TIME - 1));
            let place = self.draw_endpoint();
            let drawn = self.rng.up_to(99);
            let (endpoint, asked_ns) = (&mut self.endpoints[place], now_ns());
            let act = match drawn {
                0..=39 => {
                    let outcome = endpoint.read(&key).await;
                    remember(&mut known, &key, outcome.answer().map(|found| of(found.entry)));
                    ClientRequest::Read { key, outcome }
                }
                40..=64 => {
                    let value = self.shared.next_value();
                    let outcome = endpoint.put(&key, value, 0).await;
                    remember(&mut known, &key, outcome.answer().map(|wrote| wrote.revision));
                    ClientRequest::Put { key, value, outcome }
                }
                65..=89 => {
                    let (value, expected) = (self.shared.next_value(), known.get(&key).copied().unwrap_or(0));
                    let outcome = endpoint.swap(&key, expected, value).await;
                    let told = outcome.answer().map(|swapped| match swapped.held {
                        true => swapped.revision,
                        false => of(swapped.found),
                    });
                    remember(&mut known, &key, told);
                    ClientRequest::Swap { key, expected, value, outcome }
                }
                _ => {
                    let outcome = endpoint.delete(&key).await;
                    remember(&mut known, &key, outcome.answer().map(|_| 0));
                    ClientRequest::Delete { key, outcome }
                }
            };
            self.shared.write(place, asked_ns, act)?;
            let pause = Duration::from_millis(self.rng.up_to(PAUSE_MAX_MS));
            self.shared.pause(pause).await;
        }
        Ok(())
    }

    /// Holds one session after another.
    async fn keep_sessions(mut self) -> Result<(), RunError> {
        while !self.shared.is_finishing() {
            let session = i64::try_from(self.shared.next_value()).unwrap_or(i64::MAX);
            let (place, asked_ns) = (self.draw_endpoint(), now_ns());
            let outcome = self.endpoints[place].begin(session, TIME_TO_LIVE_SECONDS).await;
            let has_begun = outcome.answer().is_some();
            self.shared.write(place, asked_ns, ClientRequest::Begin { session, outcome })?;
            if has_begun {
                self.hold(session).await?;
            } else {
                self.shared.pause(KEEP_ALIVE_EVERY).await;
            }
        }
        Ok(())
    }

    /// Keeps a session alive, then abandons or ends it, and waits until it has ended.
    async fn hold(&mut self, session: i64) -> Result<(), RunError> {
        let until = now_ns() + 1_000_000 * (KEPT_MIN_MS + self.rng.up_to(KEPT_MAX_MS - KEPT_MIN_MS));
        let mut is_attached = false;
        while now_ns() < until && !self.shared.is_finishing() {
            let (place, asked_ns) = (self.draw_endpoint(), now_ns());
            if !is_attached {
                let value = u64::try_from(session).unwrap_or(0);
                let outcome = self.endpoints[place].put(&key_of(session), value, session).await;
                is_attached = outcome.answer().is_some();
                self.shared.write(place, asked_ns, ClientRequest::Attach { session, outcome })?;
            }
            let (place, asked_ns) = (self.draw_endpoint(), now_ns());
            let outcome = self.endpoints[place].keep_alive(session).await;
            let is_over = outcome.answer() == Some(&0);
            self.shared.write(place, asked_ns, ClientRequest::KeepAlive { session, outcome })?;
            if is_over {
                return Ok(());
            }
            self.look(session).await?;
            self.shared.pause(KEEP_ALIVE_EVERY).await;
        }
        if self.rng.up_to(2) == 0 {
            let (place, asked_ns) = (self.draw_endpoint(), now_ns());
            let outcome = self.endpoints[place].end(session).await;
            self.shared.write(place, asked_ns, ClientRequest::End { session, outcome })?;
        }
        self.shared.write(self.shared.place, now_ns(), ClientRequest::LetGo { session })?;
        let given_up = now_ns() + nanos(OVER_MAX);
        while !self.look(session).await? && now_ns() < given_up {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.list().await
    }

    /// Returns true if a session has certainly ended.
    async fn look(&mut self, session: i64) -> Result<bool, RunError> {
        let (place, asked_ns) = (self.draw_endpoint(), now_ns());
        let outcome = self.endpoints[place].look(session).await;
        let is_over = outcome.answer() == Some(&-1);
        self.shared.write(place, asked_ns, ClientRequest::Look { session, outcome })?;
        Ok(is_over)
    }

    /// Reads the keys of all sessions.
    async fn list(&mut self) -> Result<(), RunError> {
        let (place, asked_ns) = (self.draw_endpoint(), now_ns());
        let outcome = self.endpoints[place].list(SESSIONS).await;
        self.shared.write(place, asked_ns, ClientRequest::Sessions { outcome })
    }

    async fn list_sessions(mut self) -> Result<(), RunError> {
        while !self.shared.is_finishing() {
            self.list().await?;
            self.shared.pause(LIST_EVERY).await;
        }
        Ok(())
    }

    /// Reads everything that was ever written, once it can be read; and the sessions, which should have ended.
    async fn read_all(mut self) -> Result<(), RunError> {
        let given_up = now_ns() + nanos(READ_ALL_MAX);
        loop {
            let (place, asked_ns) = (self.draw_endpoint(), now_ns());
            let outcome = self.endpoints[place].list(KEYS).await;
            let is_read = outcome.answer().is_some();
            self.shared.write(place, asked_ns, ClientRequest::All { outcome })?;
            if is_read || now_ns() > given_up {
                return self.list().await;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// The revision at which a key was written; 0 if it is absent.
fn of(entry: Option<Entry>) -> i64 {
    entry.map_or(0, |entry| entry.revision)
}

fn remember(known: &mut HashMap<String, i64>, key: &str, revision: Option<i64>) {
    if let Some(revision) = revision {
        known.insert(key.to_owned(), revision);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The path of a client's record of requests.
pub(crate) fn path_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{CALLS}{name}.jsonl"))
}
