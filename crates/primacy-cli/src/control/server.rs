//! A node's side of the control socket.
//!
//! It runs beside the election, on the runtime of the process, and uses the election's own thread only for an
//! operator's requests. A client that is slow, sends too much, or sends nothing only takes one of the
//! [`CONNECTIONS_MAX`] places for a while.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use primacy::metadata::{Map, MapError, VoterChange};

use primacy::{ANNOUNCEMENT_MAX, Algorithm, Change, Elector, Kept, Membership, NodeId};
use rustix::process::geteuid;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::message::{self, Answer, ControlError, Kind, NodeVerb, Progress, Reply, VERSION};
use super::node_status::{Leader, Members, NodeStatus};
use super::own_socket::{Look, OwnSocket};
use super::partitions;
use super::socket::Dir;
use crate::exit::Failure;
use crate::report::{Event, Reporter};

/// The most clients at a time, including watchers.
const CONNECTIONS_MAX: usize = 64;
/// The longest request, in bytes. A state to be announced takes at most two bytes for each of its own.
const REQUEST_MAX: u64 = 4_096 + 2 * ANNOUNCEMENT_MAX as u64;
/// The time for reading a request, and for writing each answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause when the system has no descriptor for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The interval at which the socket and its directory are checked.
const LOOK: Duration = Duration::from_secs(1);

/// The control socket of one node. Dropping it removes the socket and closes every connection.
#[derive(Debug)]
pub(crate) struct Server {
    socket: Arc<OwnSocket>,
    listener: std::os::unix::net::UnixListener,
    /// True if the node ends when the state directory is gone.
    needs_directory: bool,
    /// The reason why this server has closed the node.
    lost: Arc<Mutex<Option<Failure>>>,
    /// The state by which requests are answered; `None` before [`answer_by`](Self::answer_by). Dropping it ends the
    /// task.
    responder: watch::Sender<Option<Responder>>,
}

/// The state of this node, by which it answers.
#[derive(Clone, Debug)]
pub(crate) enum Responder {
    /// The election cannot be entered yet, for this reason.
    Opening(String),
    /// The node takes part.
    Entered(Elector),
}

impl Server {
    /// Creates the socket of this node in its state directory, and the directory if necessary. A client that connects
    /// from now on waits until [`answer_by`](Self::answer_by) is called.
    ///
    /// # Errors
    /// `Exit::NotPermitted` if other users may write there, `Exit::InUse` if a live node has this socket, and
    /// `Exit::State` if the directory cannot be used.
    pub(crate) fn bind(state_dir: &Path, election: &str, node: NodeId) -> Result<Self, Failure> {
        let (socket, listener) = OwnSocket::make(Dir::make(state_dir)?, election, node)?;
        let (lost, responder) = (Arc::default(), watch::Sender::new(None));
        Ok(Self { socket: Arc::new(socket), listener, needs_directory: false, lost, responder })
    }

    /// Makes the node end when its state directory is removed or replaced: if the node has no other file open there, a
    /// second process of the same node could start in the new one.
    pub(crate) fn ending_with_its_directory(mut self) -> Self {
        self.needs_directory = true;
        self
    }

    /// Returns the reason why this server has closed the node, if it has.
    pub(crate) fn lost(&self) -> Option<Failure> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Answers requests with `responder` from now on, until this server is dropped, and reports the requests of
    /// operators. To be called inside a runtime.
    ///
    /// # Errors
    /// `Exit::System` if the runtime cannot register the socket.
    pub(crate) fn answer_by(&self, responder: Responder, reporter: &Reporter) -> Result<(), Failure> {
        if self.responder.send_replace(Some(responder)).is_some() {
            return Ok(());
        }
        let acceptor = Acceptor {
            listener: UnixListener::from_std(self.listener.try_clone()?)?,
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            connections: JoinSet::new(),
            has_failed: false,
            responder: self.responder.subscribe(),
            reporter: reporter.clone(),
        };
        let watched = Watched {
            socket: Arc::clone(&self.socket),
            needs_directory: self.needs_directory,
            lost: Arc::clone(&self.lost),
            trouble: None,
        };
        let mut open = self.responder.subscribe();
        tokio::spawn(async move {
            let closed = async { while open.changed().await.is_ok() {} };
            tokio::select! {
                () = serve(acceptor, watched) => {}
                () = closed => {} // The connections end with the future that has them.
            }
        });
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.socket.remove();
    }
}

/// The acceptor of connections.
struct Acceptor {
    listener: UnixListener,
    places: Arc<Semaphore>,
    connections: JoinSet<()>,
    has_failed: bool,
    responder: watch::Receiver<Option<Responder>>,
    reporter: Reporter,
}

/// The periodic check of the socket.
struct Watched {
    socket: Arc<OwnSocket>,
    needs_directory: bool,
    lost: Arc<Mutex<Option<Failure>>>,
    /// The reason, as last reported, why the socket could not be created anew.
    trouble: Option<String>,
}

/// Accepts connections without end. When the socket is gone, goes on with a new one.
async fn serve(mut acceptor: Acceptor, mut watched: Watched) {
    let mut is_closing = false;
    loop {
        let socket = Arc::clone(&watched.socket);
        let look = async {
            sleep(LOOK).await;
            // The check may block on a disk that hangs.
            tokio::task::spawn_blocking(move || socket.look()).await
        };
        let found = tokio::select! {
            () = acceptor.accept() => continue,
            found = look, if !is_closing => found.unwrap_or(Look::InPlace),
        };
        is_closing = watched.take(found, &mut acceptor);
    }
}

impl Watched {
    /// Acts on the state of the socket; returns whether the node is being closed.
    fn take(&mut self, found: Look, acceptor: &mut Acceptor) -> bool {
        let warn = |message: String| acceptor.reporter.tell(&Event::Warning { message });
        let trouble = match found {
            Look::InPlace => None,
            Look::DirectoryGone(_) if !self.needs_directory => None, // Its files in there end it.
            Look::DirectoryGone(failure) | Look::InUse(failure) => {
                let Some(Responder::Entered(elector)) = acceptor.responder.borrow().clone() else {
                    return false;
                };
                *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
                tokio::spawn(elector.close());
                return true;
            }
            Look::MadeAnew(listener) => match UnixListener::from_std(listener) {
                Ok(listener) => {
                    acceptor.listener = listener;
                    let path = self.socket.path();
                    warn(format!(
                        "the control socket {} was removed or replaced while this node was running, and was made anew",
                        path.display()
                    ));
                    None
                }
                Err(error) => Some(error.to_string()),
            },
            Look::Fails(failure) => Some(failure.message),
        };
        if let Some(why) = trouble.as_ref().filter(|_| trouble != self.trouble) {
            warn(format!("the operator's verbs cannot ask this node: {why}; it is tried again"));
        }
        self.trouble = trouble;
        false
    }
}

impl Acceptor {
    /// Accepts connections without end. Cancelling loses none.
    async fn accept(&mut self) {
        loop {
            let accepted = self.listener.accept().await;
            let fails_anew = accepted.is_err() && !std::mem::replace(&mut self.has_failed, accepted.is_err());
            match accepted {
                Ok((stream, _)) => self.take(stream),
                Err(error) => {
                    if fails_anew {
                        tracing::warn!(%error, "the control socket cannot take a connection");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn take(&mut self, stream: UnixStream) {
        while self.connections.try_join_next().is_some() {}
        match (admit(&stream), Arc::clone(&self.places).try_acquire_owned()) {
            (Err(refused), _) => refuse_at_once(&stream, refused),
            (Ok(by), Ok(place)) => {
                let Some(responder) = self.responder.borrow().clone() else { return };
                let asked = Asked { responder, reporter: self.reporter.clone(), by };
                self.connections.spawn(async move {
                    // The client may be gone.
                    let _ = converse(stream, asked).await;
                    drop(place);
                });
            }
            (Ok(_), Err(_)) => {
                let text = format!(
                    "{CONNECTIONS_MAX} ask this node already; end those that watch it and are not needed"
                );
                refuse_at_once(&stream, ControlError::new(Kind::TooMany, text));
            }
        }
    }
}

/// A connected client's context: the node's state, and the client's user.
struct Asked {
    responder: Responder,
    reporter: Reporter,
    by: u32,
}

/// Returns the client's user, if it may send requests. File permissions keep other users out already; this check holds
/// even if the permissions were changed.
fn admit(stream: &UnixStream) -> Result<u32, ControlError> {
    let (me, user) = (geteuid().as_raw(), stream.peer_cred().map(|peer| peer.uid()));
    match user {
        Ok(user) if user == me || user == 0 => Ok(user),
        Ok(user) => {
            let text =
                format!("user {user} may not ask this node, which user {me} runs; ask as that user or root");
            Err(ControlError::new(Kind::NotPermitted, text))
        }
        Err(error) => {
            let text = format!("the system does not say who asks: {error}");
            Err(ControlError::new(Kind::NotPermitted, text))
        }
    }
}

/// Writes a refusal without waiting: a new socket has room for a line.
fn refuse_at_once(stream: &UnixStream, refused: ControlError) {
    let _ = stream.try_write(&line(Answer::Refused(refused)));
}

/// Handles one request and its answer.
async fn converse(stream: UnixStream, asked: Asked) -> std::io::Result<()> {
    let (reading, mut writing) = stream.into_split();
    let mut reading = BufReader::new(reading.take(REQUEST_MAX));
    // A client that connects without a request only checks whether a node listens.
    let Some(verb) = request(&mut reading).await? else { return Ok(()) };
    match (verb, &asked.responder) {
        (Err(refused), _) => write(&mut writing, Answer::Refused(refused)).await,
        (Ok(_), Responder::Opening(why)) => {
            let refused = ControlError::new(Kind::Opening, format!("this node takes no part yet: {why}"));
            write(&mut writing, Answer::Refused(refused)).await
        }
        (Ok(NodeVerb::Watch), Responder::Entered(elector)) => {
            // A watcher sends nothing more, so the next event on the connection is its end.
            let gone = async {
                reading.get_mut().set_limit(1);
                let _ = reading.read_u8().await;
            };
            tokio::select! {
                watched = watch_changes(elector, &mut writing) => watched,
                () = gone => Ok(()),
            }
        }
        (Ok(verb), Responder::Entered(elector)) => {
            asked.tell(&verb);
            let answered = answer(elector, verb).await.unwrap_or_else(Answer::Refused);
            write(&mut writing, answered).await
        }
    }
}

/// Reads a request; returns a refusal if it is malformed, and `None` if nothing was sent. Reads no more than the line.
async fn request(
    reading: &mut (impl AsyncBufRead + Unpin),
) -> std::io::Result<Option<Result<NodeVerb, ControlError>>> {
    let mut request = Vec::new();
    let verb = match timeout(PATIENCE, reading.read_until(b'\n', &mut request)).await {
        Err(_) => {
            let text = format!("no request came within {} seconds", PATIENCE.as_secs());
            Err(ControlError::new(Kind::Malformed, text))
        }
        Ok(Err(error)) => return Err(error),
        Ok(Ok(0)) => return Ok(None),
        Ok(Ok(_)) if request.last() != Some(&b'\n') => {
            let text = format!("a request is one line of at most {REQUEST_MAX} bytes, and this is none");
            Err(ControlError::new(Kind::Malformed, text))
        }
        Ok(Ok(_)) => message::parse(&request),
    };
    Ok(Some(verb))
}

impl Asked {
    /// Reports a request that is more than a question.
    fn tell(&self, verb: &NodeVerb) {
        let (what, to) = match verb {
            NodeVerb::Status | NodeVerb::Watch | NodeVerb::Partitions { .. } => return,
            NodeVerb::Resign => ("resign", None),
            NodeVerb::Transfer { to } => ("transfer", Some(to.clone())),
            NodeVerb::Uncordon => ("uncordon", None),
            NodeVerb::Cordon => ("cordon", None),
            NodeVerb::Readmit { node } => ("member readmit", Some(node.clone())),
            NodeVerb::Down { node } => ("member remove --dead", Some(node.clone())),
            NodeVerb::Publish { .. } => ("publish", None),
            NodeVerb::Rearrange { change } => {
                let (what, to) = change.told();
                (what, Some(to))
            }
            NodeVerb::Voters => return,
            NodeVerb::AcceptLoss => ("accept loss", None),
            // A client that waits repeats the request several times a second.
            NodeVerb::Revise { again: true, .. } => return,
            NodeVerb::Revise { node, address: Some(_), .. } => ("member add", Some(node.clone())),
            NodeVerb::Revise { node, address: None, .. } => ("member remove", Some(node.clone())),
        };
        self.reporter.tell(&Event::Asked { what, to, by: self.by });
    }
}

async fn answer(elector: &Elector, verb: NodeVerb) -> Result<Answer, ControlError> {
    Ok(match verb {
        NodeVerb::Status => Answer::Status(Box::new(NodeStatus::from(&elector.status().await?))),
        NodeVerb::Resign => Answer::Resigning { term: elector.resign().await?.0 },
        NodeVerb::Transfer { to } => Answer::Resigning { term: elector.transfer(parse_node(&to)?).await?.0 },
        NodeVerb::Uncordon => {
            Answer::Cordoned { cordoned: false, kept: elector.uncordon().await? == Kept::Durably }
        }
        NodeVerb::Cordon => {
            Answer::Cordoned { cordoned: true, kept: elector.cordon().await? == Kept::Durably }
        }
        NodeVerb::Readmit { node } => {
            Answer::Readmitted { disk: elector.readmit(parse_node(&node)?).await?.to_string() }
        }
        NodeVerb::Down { node } => {
            elector.down(parse_node(&node)?).await?;
            Answer::Downed
        }
        NodeVerb::Publish { state } => {
            let text = "a state in `hex` has two digits for each byte; this has not";
            let state = state.bytes().ok_or_else(|| ControlError::new(Kind::Malformed, text))?;
            let number = elector.publish(state).await?;
            Answer::Announced { term: number.term.0, number: number.counter }
        }
        NodeVerb::Partitions { group } => {
            Answer::Partitions(Box::new(partitions::shown(elector.map(), group.as_deref()).await?))
        }
        NodeVerb::Rearrange { change } => {
            partitions::rearrange(elector.map(), change).await?;
            Answer::Rearranged
        }
        NodeVerb::Voters => {
            let board = map(elector)?.board();
            let (number, members) = (board.voters.number, &board.voters.members);
            let voters = members.iter().map(|(node, address)| (node.to_string(), address.to_string()));
            Answer::Voters { term: number.term.0, number: number.counter, voters: voters.collect() }
        }
        NodeVerb::Revise { node, address, again: _ } => {
            let (node, adds) = (parse_node(&node)?, address.is_some());
            let change = match address {
                Some(address) => VoterChange::Add { node, address: address.into() },
                None => VoterChange::Remove { node },
            };
            let map = map(elector)?;
            match timeout(PATIENCE, map.revise(change)).await {
                // A node that was removed from the voters knows no leader, but may know that it was removed.
                Ok(Ok(_)) if is_gone(map, node, adds) => Answer::Revising { progress: Progress::Done },
                Ok(Ok(progress)) => Answer::Revising { progress: progress.into() },

                Ok(Err(error @ MapError::Voter { .. })) => {
                    Answer::Revising { progress: Progress::Refused { why: error.to_string() } }
                }
                Ok(Err(error)) => return Err(ControlError::new(Kind::NoAnswer, error.to_string())),

                // The request or its answer was lost, perhaps on the way to a leader that is gone.
                Err(_) => Answer::Revising { progress: Progress::NotLed },
            }
        }
        NodeVerb::AcceptLoss => match map(elector)?.accept_loss().await {
            Ok(was_lost) => Answer::LossAccepted { was_lost },
            Err(error) => return Err(ControlError::new(Kind::NoAnswer, error.to_string())),
        },
        NodeVerb::Watch => {
            return Err(ControlError::new(Kind::Malformed, "a watch has more than one answer"));
        }
    })
}

fn map(elector: &Elector) -> Result<&Map, ControlError> {
    let text =
        "the nodes of this election keep no metadata together: start them with --metadata or --etcd-api";
    elector.map().ok_or_else(|| ControlError::new(Kind::NoMetadata, text))
}

/// Returns whether this node is known to be no voter, if it is to be removed.
fn is_gone(map: &Map, node: NodeId, adds: bool) -> bool {
    let board = map.board();
    !adds && !board.voters.contains(node) && board.committed >= board.voters.number
}

fn parse_node(name: &str) -> Result<NodeId, ControlError> {
    name.parse()
        .map_err(|error| ControlError::new(Kind::Malformed, format!("{name:?} is no node's name: {error}")))
}

async fn watch_changes(
    elector: &Elector,
    writing: &mut tokio::net::unix::OwnedWriteHalf,
) -> std::io::Result<()> {
    let (mut observer, fenced) = (elector.observe(), elector.kind().is_fenced());
    let (mut members, has_members) = (elector.members(), elector.kind().algorithm == Algorithm::Seniority);
    loop {
        let answer = tokio::select! {
            biased;
            change = observer.changed() => match change {
                Some(Change::Leader(leader)) => {
                    Answer::Leader { leader: leader.map(|leader| Leader::new(leader, fenced)) }
                }
                Some(Change::Violation(violation)) => {
                    Answer::Violation { violation: violation.to_string() }
                }
                Some(Change::Missed(changes)) => Answer::Missed { changes },
                None => return Ok(()),
            },
            Some(membership) = members.changed(), if has_members => Answer::Members {
                members: match membership {
                    Membership::Member(view) => Some(Members::of(&view, &BTreeSet::new())),
                    Membership::Outside => None,
                },
            },
        };
        write(writing, answer).await?;
    }
}

/// Writes an answer. A client that does not read it in time is disconnected, which it sees as the end of the
/// connection.
async fn write(writing: &mut tokio::net::unix::OwnedWriteHalf, answer: Answer) -> std::io::Result<()> {
    timeout(PATIENCE, writing.write_all(&line(answer))).await?
}

fn line(answer: Answer) -> Vec<u8> {
    let reply = Reply { version: VERSION, answer };
    let mut line = serde_json::to_vec(&reply).expect("answers have no maps whose keys are not text");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    mod fuzz;

    use super::*;

    #[tokio::test]
    async fn one_that_does_not_read_is_left_alone() {
        let (asked, _asks) = UnixStream::pair().unwrap();
        let (_reading, mut writing) = asked.into_split();
        let error = loop {
            if let Err(error) = write(&mut writing, Answer::Leader { leader: None }).await {
                break error;
            }
        };
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    }
}
