//! The queue of one election: the children of its znode.

use std::sync::Arc;
use std::time::Duration;

use primacy_core::election::lease::Holder;
use primacy_core::election::session::{Entry, QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity};
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;
use tokio::try_join;

use super::client::{ClientError, Stat, ZnodeKind, ZnodeWatch};
use super::entry::{self, Data, Request};
use super::layout::{self, Guid, Layout, Named};
use super::link::{Held, Link, guid, told};
use super::rights;
use crate::runtime::{self, Aborted};
use crate::sessions::SessionError;
use crate::shared_connections::Share;

/// The maximum number of reads of a changing queue in one request.
const LOOKS_MAX: usize = 20;

/// The pause between attempts to remove the entry of a dropped handle.
const TIDY_PAUSE: Duration = Duration::from_millis(500);

/// A handle on the queue.
#[derive(Debug)]
pub(crate) struct Queue {
    link: Share<Link>,
    directory: String,
    layout: Layout,
    /// An identity that may have permissions on the znode, besides the login of this process.
    owner: Option<String>,
    state: Mutex<State>,
    /// True if the last answer may be out of date.
    stale: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    own: Option<Own>,
    watched: Option<Watched>,
}

/// The entry of this handle.
#[derive(Debug)]
struct Own {
    session: SessionId,
    guid: Guid,
    /// True if it was requested, so that it may exist, or may still be made.
    is_tried: bool,
    /// Its name and its token, once they are known.
    made: Option<(String, FencingToken)>,
    /// True if it was the first at the last answer.
    is_first: bool,
}

/// The znode on which a watch is set.
#[derive(Debug)]
struct Watched {
    path: String,
    session: i64,
    /// True if the election's znode is watched too, for a request to resign.
    requests: bool,
    _tasks: Vec<Aborted<()>>,
}

impl Queue {
    pub(crate) fn new(link: Share<Link>, directory: String, layout: Layout, owner: Option<String>) -> Self {
        Self { link, directory, layout, owner, state: Mutex::default(), stale: watch::Sender::new(false) }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    pub(crate) fn directory(&self) -> &str {
        &self.directory
    }

    pub(crate) fn stale(&self) -> watch::Receiver<bool> {
        self.stale.subscribe()
    }

    /// Checks that the servers answer and that this process may read; nothing is written.
    pub(crate) async fn probe(&self) -> Result<(), ClientError> {
        let held = self.link.look().await?;
        self.list(&held).await.map(|_| ())
    }

    pub(crate) async fn campaign(
        &self,
        session: &SessionId,
        holder: &Holder,
    ) -> Result<QueuePosition, SessionError> {
        let mut state = self.state.lock().await;
        let held = self.link.held(session)?;
        for _ in 0..LOOKS_MAX {
            let (name, token) = self.enter(&mut state, &held, session, holder).await?;
            let children = self.children(&held).await.map_err(|error| told(&error))?.unwrap_or_default();
            let queue = self.in_order(&held, &children).await.map_err(|error| told(&error))?;
            let Some(position) = queue.iter().position(|entry| entry.name == name) else {
                // An operator has removed it.
                state.own = None;
                continue;
            };
            let place = match queue.get(..position) {
                Some([first, .., before]) => self.behind(&mut state, &held, first, before).await?,
                Some([first]) => self.behind(&mut state, &held, first, first).await?,
                Some([]) | None => {
                    let stranger = self.layout.stranger(&children);
                    self.first_place(&mut state, &held, &name, token, stranger).await?
                }
            };
            if let Some(place) = place {
                return Ok(place);
            }
        }
        Err(restless())
    }

    /// Makes sure that this handle has an entry.
    async fn enter(
        &self,
        state: &mut State,
        held: &Held,
        session: &SessionId,
        holder: &Holder,
    ) -> Result<(String, FencingToken), SessionError> {
        if state.own.as_ref().is_none_or(|own| own.session != *session) {
            let guid = guid().map_err(|why| SessionError::NoAnswer { why })?;
            state.own =
                Some(Own { session: session.clone(), guid, is_tried: false, made: None, is_first: false });
        }
        let own = state.own.as_mut().expect("it was just made");
        if let Some(made) = &own.made {
            return Ok(made.clone());
        }
        if own.is_tried
            && let Some((name, stat)) = self.find(held, own.guid).await?
        {
            held.check_owner(stat.ephemeral_owner)?;
            self.check_rights(held, &name).await?;
            return Ok(own.made.insert((name, token_of(&stat))).clone());
        }
        let others = self.children(held).await.map_err(|error| told(&error))?.unwrap_or_default();
        if let Some(stranger) = self.layout.stranger(&others) {
            return Err(SessionError::Refused { why: self.layout.advice(stranger) });
        }
        let prefix = self.layout.prefix(own.guid);
        let (path, data) = (format!("{}/{prefix}", self.directory), Data::new(holder).encode());
        own.is_tried = true;
        let rights = self.link.rights();
        let create = || held.client.create(&path, &data, ZnodeKind::EphemeralSequential, &rights);
        let created = match create().await {
            Err(ClientError::NoNode) => {
                held.client.create_all(&self.directory, &rights).await.map_err(|error| told(&error))?;
                create().await
            }
            other => other,
        };
        let (made, stat) = created.map_err(|error| told(&error))?;
        held.check_owner(stat.ephemeral_owner)?;
        let name = made[self.directory.len() + 1..].to_owned();
        self.check_rights(held, &name).await?;
        Ok(own.made.insert((name, token_of(&stat))).clone())
    }

    /// If this process has a login, refuses a znode in which other users may change entries, and then removes its own entry. The ACL of the
    /// entry shows the identities of this process; and while the entry exists, no user can replace the election's znode.
    async fn check_rights(&self, held: &Held, name: &str) -> Result<(), SessionError> {
        if !self.link.has_login() {
            return Ok(());
        }
        let path = self.path(name);
        let (own, all) = try_join!(held.client.acls(&path), held.client.acls(&self.directory))
            .map_err(|error| told(&error))?;
        let Some(acl) = rights::of_others(&all, &own, self.owner.as_deref()) else { return Ok(()) };
        present(held.client.delete(&path).await)?;
        Err(SessionError::Refused { why: rights::advice(&self.directory, acl) })
    }

    /// Returns the position of an entry that is the first; `None` if it does not exist any more.
    async fn first_place(
        &self,
        state: &mut State,
        held: &Held,
        name: &str,
        token: FencingToken,
        stranger: Option<&str>,
    ) -> Result<Option<QueuePosition>, SessionError> {
        // The foreign entry may be newer than this one: then this leader resigns in order, and does not campaign again before it is gone.
        let ends = stranger.is_some();
        if let Some(stranger) = stranger {
            let why = self.layout.advice(stranger);
            match &state.own {
                Some(own) if own.is_first => tracing::error!("this node gives up the lead: {why}"),
                Some(_) | None => return Err(SessionError::Refused { why }),
            }
        }
        let path = self.path(name);
        // Both requests are sent before the first answer is awaited.
        let client = &held.client;
        let read = if self.is_watched(state, held, &path, true) {
            let read = try_join!(client.data(&path), client.data(&self.directory));
            read.map(|((_, stat), (request, _))| (stat, request))
        } else {
            state.watched = None;
            self.stale.send_replace(false);
            let read = try_join!(client.watch_data(&path), client.watch_data(&self.directory));
            read.and_then(|((_, stat, end), (request, _, requests))| {
                self.watch(state, held, path.clone(), vec![end, requests])?;
                Ok((stat, request))
            })
        };
        let Some((stat, request)) = present(read)? else { return Ok(None) };
        held.check_owner(stat.ephemeral_owner)?;
        let asked = Request::decode(&request).and_then(|request| request.token);
        if let Some(own) = &mut state.own {
            own.is_first = true;
        }
        Ok(Some(QueuePosition::First { token, asked_to_resign: ends || asked == Some(token) }))
    }

    /// Returns the position of an entry that is behind others; `None` if the queue has changed meanwhile.
    async fn behind(
        &self,
        state: &mut State,
        held: &Held,
        first: &Named,
        before: &Named,
    ) -> Result<Option<QueuePosition>, SessionError> {
        let path = self.path(&before.name);
        if !self.watch_for_end(state, held, path).await? {
            return Ok(None);
        }
        let entry = self.entry(held, first).await.map_err(|error| told(&error))?;
        Ok(entry.map(|first| QueuePosition::Behind { first }))
    }

    pub(crate) async fn leave(&self, session: &SessionId) -> Result<(), SessionError> {
        let mut state = self.state.lock().await;
        let held = self.link.held(session)?;
        let Some(own) = state.own.as_ref().filter(|own| own.session == *session) else { return Ok(()) };
        let name = match &own.made {
            Some((name, _)) => Some(name.clone()),
            None if own.is_tried => self.find(&held, own.guid).await?.map(|(name, _)| name),
            None => None,
        };
        if let Some(name) = name {
            let path = self.path(&name);
            present(held.client.delete(&path).await)?;
        }
        *state = State::default();
        // Waiters for a change must read again, which sets watches on other znodes.
        self.stale.send_replace(true);
        Ok(())
    }

    /// Removes the entry from the queue, and ends the session unless other elections use it.
    pub(crate) async fn end(&self, session: &SessionId) -> Result<(), SessionError> {
        // If other elections go on using the session, the entry must still be removed. If not: the session also ends without an answer of
        // the servers, when none is reached for long, but the servers confirm a deletion.
        match self.leave(session).await {
            Ok(()) | Err(SessionError::Ended { .. }) => self.link.end(session, &self.directory).await,
            Err(error @ (SessionError::NoAnswer { .. } | SessionError::Refused { .. })) => Err(error),
        }
    }

    /// Removes the entry of a dropped handle, and ends `used`, its sessions, unless others use them. Its leadership, if it had one, is
    /// valid for the timeout of a session, so this is done after that time.
    pub(crate) async fn tidy_up(&self, used: Vec<Arc<Held>>) {
        let Some(longest) = used.iter().map(|held| held.client.granted()).max() else { return };
        sleep(longest).await;
        let own = self.state.lock().await.own.as_ref().map(|own| own.session.clone());
        // If no other election uses the session, this drops the last reference, and the client closes it.
        drop(used);
        let Some(session) = own else { return };
        // Also while it is refused: another election may keep the session, and with it the entry, which would stay the first one.
        while let Err(SessionError::NoAnswer { .. } | SessionError::Refused { .. }) =
            self.leave(&session).await
        {
            sleep(TIDY_PAUSE).await;
        }
    }

    pub(crate) async fn first(&self) -> Result<Option<Entry>, SessionError> {
        let mut state = self.state.lock().await;
        let held = self.link.look().await.map_err(|error| told(&error))?;
        for _ in 0..LOOKS_MAX {
            self.catch_up(&held).await?;
            let looked = self.look_at_first(&mut state, &held).await.map_err(|error| told(&error))?;
            if let Some(first) = looked {
                return Ok(first);
            }
        }
        Err(restless())
    }

    /// Returns the first entry, `Some(None)` if there is none, or `None` if the queue has changed meanwhile.
    async fn look_at_first(
        &self,
        state: &mut State,
        held: &Held,
    ) -> Result<Option<Option<Entry>>, ClientError> {
        let Some(queue) = self.list(held).await? else {
            let is_missing = self.watch_for_beginning(state, held).await?;
            return Ok(is_missing.then_some(None));
        };
        // An entry of a lost session is not this handle's any more, even if it still exists.
        let own = state.own.as_ref().filter(|own| self.link.held(&own.session).is_ok());
        let prefix = own.map(|own| self.layout.prefix(own.guid));
        let stands_at =
            prefix.and_then(|prefix| queue.iter().position(|entry| entry.name.starts_with(&prefix)));
        // A candidate behind others depends on the entry before its own.
        let watched = queue.get(stands_at.unwrap_or(0).saturating_sub(1));
        if let (Some(first), Some(watched)) = (queue.first(), watched) {
            let is_there = self.watch_stat(state, held, self.path(&watched.name)).await?;
            let entry = if is_there { self.entry(held, first).await? } else { None };
            return Ok(entry.map(Some));
        }
        state.watched = None;
        self.stale.send_replace(false);
        let listed = held.client.watch_children(&self.directory).await;
        let Some((children, watcher)) = unless_missing(listed)? else { return Ok(None) };
        self.watch(state, held, self.directory.clone(), vec![watcher])?;
        let is_empty = !children.iter().any(|name| self.layout.parse(name).is_some());
        Ok(is_empty.then_some(None))
    }

    pub(crate) async fn evict(&self, dead: &Identity) -> Result<bool, SessionError> {
        let held = self.link.look().await.map_err(|error| told(&error))?;
        self.catch_up(&held).await?;
        let evict = async {
            let mut found = false;
            for entry in self.list(&held).await?.unwrap_or_default() {
                let path = self.path(&entry.name);
                let read = held.client.data(&path).await;
                let Some((data, _)) = unless_missing(read)? else { continue };
                if Data::decode(&data).is_some_and(|data| data.holder.identity == *dead) {
                    unless_missing(held.client.delete(&path).await)?;
                    found = true;
                }
            }
            Ok(found)
        };
        evict.await.map_err(|error: ClientError| told(&error))
    }

    pub(crate) async fn ask_to_resign(&self, token: FencingToken, by: &str) -> Result<bool, SessionError> {
        let held = self.link.look().await.map_err(|error| told(&error))?;
        for _ in 0..LOOKS_MAX {
            self.catch_up(&held).await?;
            if let Some(is_asked) = self.try_to_ask(&held, token, by).await? {
                return Ok(is_asked);
            }
        }
        Err(restless())
    }

    /// `None` if the queue or the election's znode has changed meanwhile.
    async fn try_to_ask(
        &self,
        held: &Held,
        token: FencingToken,
        by: &str,
    ) -> Result<Option<bool>, SessionError> {
        let queue = self.list(held).await.map_err(|error| told(&error))?.unwrap_or_default();
        let Some(first) = queue.first() else { return Ok(Some(false)) };
        let path = self.path(&first.name);
        let Some((data, stat)) = present(held.client.data(&path).await)? else { return Ok(None) };
        if Data::decode(&data).is_none() || token_of(&stat) != token {
            return Ok(Some(false));
        }
        let Some((data, of_election)) = present(held.client.data(&self.directory).await)? else {
            return Ok(None);
        };
        let Some(request) = Request::decode(&data) else {
            let why = "a request to resign is written into the election's znode, and there are data of somebody else's";
            return Err(SessionError::Refused { why: why.to_owned() });
        };
        let asked = request.asked(token, by).encode();
        let written =
            held.client.set_data_if((&self.directory, of_election.version), &asked, (&path, stat.version));
        match written.await {
            Ok(()) => Ok(Some(true)),
            Err(ClientError::BadVersion | ClientError::NoNode) => Ok(None),
            Err(error) => Err(told(&error)),
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// Brings the connected server, which may lag behind, up to date. ZooKeeper's own `sync` needs no majority: a deposed leader that does
    /// not know this yet answers it.
    async fn catch_up(&self, held: &Held) -> Result<(), SessionError> {
        held.agree(&self.directory).await.map(|_| ())
    }

    /// Returns the children of the election's znode; `None` if it does not exist.
    async fn children(&self, held: &Held) -> Result<Option<Vec<String>>, ClientError> {
        unless_missing(held.client.children(&self.directory).await)
    }

    /// Returns the queue in order.
    async fn list(&self, held: &Held) -> Result<Option<Vec<Named>>, ClientError> {
        match self.children(held).await? {
            Some(children) => self.in_order(held, &children).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns the entries among these children, in the order of the queue.
    async fn in_order(&self, held: &Held, children: &[String]) -> Result<Vec<Named>, ClientError> {
        let mut queue: Vec<Named> = children.iter().filter_map(|name| self.layout.parse(name)).collect();
        if layout::sort(&mut queue) {
            return Ok(queue);
        }
        let mut dated = Vec::new();
        for entry in queue {
            let path = self.path(&entry.name);
            if let Some(stat) = held.client.stat(&path).await? {
                dated.push((stat.czxid, entry));
            }
        }
        dated.sort_by_key(|(czxid, _)| *czxid);
        Ok(dated.into_iter().map(|(_, entry)| entry).collect())
    }

    /// Returns the entry with this GUID, also if it was requested over a connection that was lost meanwhile.
    async fn find(&self, held: &Held, guid: Guid) -> Result<Option<(String, Stat)>, SessionError> {
        self.catch_up(held).await?;
        let find = async {
            let prefix = self.layout.prefix(guid);
            let children = self.children(held).await?.unwrap_or_default();
            let Some(name) = children.into_iter().find(|name| name.starts_with(&prefix)) else {
                return Ok(None);
            };
            let path = self.path(&name);
            let stat = held.client.stat(&path).await?;
            Ok(stat.map(|stat| (name, stat)))
        };
        find.await.map_err(|error: ClientError| told(&error))
    }

    /// Returns the candidate of this entry; `None` if the entry is gone.
    async fn entry(&self, held: &Held, named: &Named) -> Result<Option<Entry>, ClientError> {
        let path = self.path(&named.name);
        let read = unless_missing(held.client.data(&path).await)?;
        Ok(read.map(|(data, stat)| Entry {
            holder: entry::holder(&named.name, &data, stat.ephemeral_owner),
            token: token_of(&stat),
        }))
    }

    async fn watch_for_end(
        &self,
        state: &mut State,
        held: &Held,
        path: String,
    ) -> Result<bool, SessionError> {
        self.watch_stat(state, held, path).await.map_err(|error| told(&error))
    }

    /// Sets a watch for a change or the deletion of this entry; `false` if it does not exist.
    async fn watch_stat(&self, state: &mut State, held: &Held, path: String) -> Result<bool, ClientError> {
        if self.is_watched(state, held, &path, false) {
            return Ok(true);
        }
        state.watched = None;
        self.stale.send_replace(false);
        let Some((_, _, watcher)) = unless_missing(held.client.watch_data(&path).await)? else {
            return Ok(false);
        };
        self.watch(state, held, path, vec![watcher])?;
        Ok(true)
    }

    /// Sets a watch for the creation of the election's znode; `false` if it exists.
    async fn watch_for_beginning(&self, state: &mut State, held: &Held) -> Result<bool, ClientError> {
        state.watched = None;
        self.stale.send_replace(false);
        let (stat, watcher) = held.client.watch_stat(&self.directory).await?;
        if stat.is_none() {
            self.watch(state, held, self.directory.clone(), vec![watcher])?;
        }
        Ok(stat.is_none())
    }

    fn is_watched(&self, state: &State, held: &Held, path: &str, requests: bool) -> bool {
        let is_so = |watched: &Watched| {
            watched.path == path
                && watched.session == held.client.session()
                && (watched.requests || !requests)
        };
        state.watched.as_ref().is_some_and(is_so) && !*self.stale.borrow()
    }

    /// Waits in tasks for the watches to fire, which they also do when the session has got another connection, or ends. A second watch is
    /// for requests to resign.
    fn watch(
        &self,
        state: &mut State,
        held: &Held,
        path: String,
        watchers: Vec<ZnodeWatch>,
    ) -> Result<(), ClientError> {
        let requests = watchers.len() > 1;
        let wait = |watcher: ZnodeWatch| {
            let stale = self.stale.clone();
            runtime::spawn(async move {
                watcher.fired().await;
                stale.send_replace(true);
            })
        };
        let tasks: Result<_, _> = watchers.into_iter().map(wait).collect();
        let tasks = tasks.map_err(ClientError::NoAnswer)?;
        state.watched = Some(Watched { path, session: held.client.session(), requests, _tasks: tasks });
        Ok(())
    }
}

fn restless() -> SessionError {
    SessionError::NoAnswer { why: "the queue changes all the time".to_owned() }
}

/// Returns the transaction number at which an entry was made. It grows as long as the servers keep their data.
fn token_of(stat: &Stat) -> FencingToken {
    FencingToken(stat.czxid.cast_unsigned())
}

fn unless_missing<T>(result: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(ClientError::NoNode) => Ok(None),
        Err(error) => Err(error),
    }
}

fn present<T>(result: Result<T, ClientError>) -> Result<Option<T>, SessionError> {
    unless_missing(result).map_err(|error| told(&error))
}

/// A queue that several tasks share.
pub(crate) type SharedQueue = Arc<Queue>;
