//! The operator's side of the control socket.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use primacy::NodeId;

use super::message::{Answer, ControlError, NodeVerb, Reply, Request, VERSION};
use super::socket::{self, ConnectProblem, Dir};
use crate::exit::{Exit, Failure};

/// The time that a node may take to answer. Before it answers, it at most writes a file.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shortest timeout: the system takes zero for no timeout.
const LEAST_PATIENCE: Duration = Duration::from_millis(1);
/// The length of the longest answer, in bytes. The node is trusted, but another program may answer in its place.
const ANSWER_MAX: u64 = 4 << 20;

/// A node whose control socket is on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// Its election.
    pub(crate) election: String,
    /// Its name.
    pub(crate) node: String,
    dir: PathBuf,
    file: String,
}

/// The next answer of a node, or its absence.
#[derive(Debug)]
pub(crate) enum Next {
    /// An answer.
    Answer(Answer),
    /// No answer came within its time.
    Late,
    /// The connection has ended.
    Ended,
}

/// The answers of a node to one request, line by line.
#[derive(Debug)]
pub(crate) struct Answers {
    node: String,
    lines: BufReader<io::Take<UnixStream>>,
    begun: Vec<u8>,
    /// The time by which the next answer must be complete; `None` to wait without end.
    due: Option<Instant>,
}

/// Returns the running nodes of one election, or of all, as the state directory lists them, ordered by election and
/// name.
///
/// # Errors
/// [`Exit::Unavailable`] if there is none, [`Exit::NotPermitted`] if another user could answer in its place.
pub(crate) fn find_all(dir: &Path, election: Option<&str>) -> Result<Vec<Node>, Failure> {
    let none = || {
        let whose = election.map(|election| format!(" of the election {election:?}")).unwrap_or_default();
        let message = format!(
            "no node{whose} runs here, by the state directory {}; name another with --state-dir, \
             or an election and its store with --election and --store",
            dir.display()
        );
        Failure::new(Exit::Unavailable, message)
    };
    let Some(opened) = open(dir)? else { return Err(none()) };
    let names = opened.names().map_err(|error| unusable(dir, &error))?;
    let mut found = Vec::new();
    for file in names {
        let Some((its_election, node)) = socket::named(&file) else { continue };
        // A file whose name contains no valid node name can only have been made by another user.
        if election.is_some_and(|election| election != its_election) || node.parse::<NodeId>().is_err() {
            continue;
        }
        match opened.connect(&file) {
            Err(ConnectProblem::Nobody(_)) => {} // It was killed, and could not remove its socket.
            Err(problem @ ConnectProblem::Unsafe(_)) => return Err(problem.into()),
            // Other errors are reported when the node is asked.
            Ok(_) | Err(ConnectProblem::Busy(_) | ConnectProblem::System { .. }) => {
                let (election, node) = (its_election.to_owned(), node.to_owned());
                found.push(Node { election, node, dir: dir.to_owned(), file: file.clone() });
            }
        }
    }
    found.sort_by(|a: &Node, b: &Node| (&a.election, &a.node).cmp(&(&b.election, &b.node)));
    if found.is_empty() { Err(none()) } else { Ok(found) }
}

/// Returns this node, whether it runs or not.
pub(crate) fn find(dir: &Path, election: &str, node: &str) -> Node {
    let file = socket::name(election, node);
    Node { election: election.to_owned(), node: node.to_owned(), dir: dir.to_owned(), file }
}

fn open(dir: &Path) -> Result<Option<Dir>, Failure> {
    let opened = match Dir::open(dir) {
        Ok(opened) => opened,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(dir, &error)),
    };
    opened.check()?;
    Ok(Some(opened))
}

fn unusable(dir: &Path, error: &io::Error) -> Failure {
    Failure::new(
        Exit::of_state(error),
        format!("the state directory {} cannot be read: {error}", dir.display()),
    )
}

impl Node {
    /// Sends a request, and returns the answer.
    ///
    /// # Errors
    /// [`Exit::Unavailable`] if the node does not run or does not answer. A refusal is an answer, not an error.
    pub(crate) fn ask(&self, verb: NodeVerb) -> Result<Answer, Failure> {
        self.open(verb)?.owed("what it was asked may be done all the same")
    }

    /// Subscribes to every change.
    ///
    /// # Errors
    /// As [`ask`](Self::ask)
    pub(crate) fn watch(&self) -> Result<Answers, Failure> {
        self.open(NodeVerb::Watch)
    }

    fn open(&self, verb: NodeVerb) -> Result<Answers, Failure> {
        let nobody = || {
            let message = format!(
                "the node {} does not run here, by the state directory {}; start it, or name another with --node or \
                 --state-dir",
                self.node,
                self.dir.display()
            );
            Failure::new(Exit::Unavailable, message)
        };
        let dir = open(&self.dir)?.ok_or_else(nobody)?;
        let mut stream = match dir.connect(&self.file) {
            Err(ConnectProblem::Nobody(_)) => return Err(nobody()),
            connected => connected?,
        };
        let due = Some(Instant::now() + PATIENCE);
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_vec(&Request { version: VERSION, verb })
            .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        line.push(b'\n');
        match stream.write_all(&line) {
            // The node has refused already, and its answer says why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            written => written?,
        }
        let lines = BufReader::new(stream.take(ANSWER_MAX));
        Ok(Answers { node: self.node.clone(), lines, begun: Vec::new(), due })
    }
}

impl Answers {
    /// Returns the next answer. The first one must come within ten seconds. Later ones may come at any time, unless
    /// [`set_patience`](Self::set_patience) has set a deadline.
    ///
    /// # Errors
    /// [`Exit::Protocol`] if it cannot be understood, or is too long.
    pub(crate) fn next(&mut self) -> Result<Next, Failure> {
        if self.begun.is_empty() {
            self.lines.get_mut().set_limit(ANSWER_MAX);
        }
        match self.read_line() {
            Ok(true) => {}
            Ok(false) if self.lines.get_ref().limit() == 0 => {
                let message = format!("an answer of the node {} has more than {ANSWER_MAX} bytes", self.node);
                return Err(Failure::new(Exit::Protocol, message));
            }
            Ok(false) => return Ok(Next::Ended), // A line that was cut off says nothing.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Ok(Next::Late);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(Next::Ended),
            Err(error) => return Err(error.into()),
        }
        self.due = None;
        let node = &self.node;
        let line = std::mem::take(&mut self.begun);
        let reply: Reply = serde_json::from_slice(&line).map_err(|error| {
            let message = format!(
                "the answer of the node {node} is not understood ({error}); use its version of primacy"
            );
            Failure::new(Exit::Protocol, message)
        })?;
        Ok(Next::Answer(reply.answer))
    }

    /// Reads up to the end of the line, and returns whether the line is complete. If it is late, the part that has come
    /// stays in `begun`: the deadline is for the whole line, however slowly it comes.
    fn read_line(&mut self) -> io::Result<bool> {
        loop {
            let left = self.due.map(|due| due.saturating_duration_since(Instant::now()));
            // Reads what has come already even if the time is over.
            let left = left.map(|left| left.max(LEAST_PATIENCE));
            self.lines.get_ref().get_ref().set_read_timeout(left)?;
            let come = match self.lines.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                come => come?,
            };
            if come.is_empty() {
                return Ok(false);
            }
            let end = come.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
            let taken = end.unwrap_or(come.len());
            self.begun.extend_from_slice(&come[..taken]);
            self.lines.consume(taken);
            if end.is_some() {
                return Ok(true);
            }
            if self.due.is_some_and(|due| Instant::now() >= due) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Returns the first answer, which a node gives at once.
    ///
    /// # Errors
    /// [`Exit::Unavailable`] if no answer comes.
    pub(crate) fn first(&mut self) -> Result<Answer, Failure> {
        self.set_patience(PATIENCE);
        self.owed("it was asked nothing yet")
    }

    /// Returns an answer that must come. If it does not, `done` is the text about the state of the request.
    fn owed(&mut self, done: &str) -> Result<Answer, Failure> {
        match self.next()? {
            Next::Answer(answer) => Ok(answer),
            Next::Late => Err(self.late(done)),
            Next::Ended => {
                let message = format!("the node {} ended before it answered; {done}", self.node);
                Err(Failure::new(Exit::Unavailable, message))
            }
        }
    }

    /// Returns the failure for a late answer.
    pub(crate) fn late(&self, done: &str) -> Failure {
        let message = format!("the node {} does not answer; is its process paused? {done}", self.node);
        Failure::new(Exit::Unavailable, message)
    }

    /// Sets the time for the next answer, from now on.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.due = Some(Instant::now() + patience);
    }
}

impl From<ConnectProblem> for Failure {
    fn from(problem: ConnectProblem) -> Self {
        let exit = match problem {
            ConnectProblem::Nobody(_) | ConnectProblem::Busy(_) => Exit::Unavailable,
            ConnectProblem::Unsafe(_) => Exit::NotPermitted,
            ConnectProblem::System { .. } => Exit::State,
        };
        Self::new(exit, problem.to_string())
    }
}

impl From<ControlError> for Failure {
    fn from(refused: ControlError) -> Self {
        use super::message::Kind;
        let exit = match refused.kind {
            Kind::Malformed | Kind::NotAVoter | Kind::ToWitness | Kind::OverAStore | Kind::Witness => {
                Exit::Usage
            }
            Kind::NoMembers | Kind::NotAMember | Kind::ByRule => Exit::Usage,
            Kind::TooLong | Kind::NotCarried | Kind::NoMetadata => Exit::Usage,
            Kind::Version | Kind::Unknown => Exit::Protocol,
            Kind::NotPermitted => Exit::NotPermitted,
            Kind::TooMany | Kind::Opening | Kind::Closed | Kind::NoAnswer => Exit::Unavailable,

            Kind::NotLeading | Kind::NotConnected | Kind::NotRefused | Kind::Recovering => Exit::NotElected,
            Kind::NotNow => Exit::NotElected,
            Kind::ToItself => Exit::Success,
            Kind::Disk => Exit::State,
        };
        Self::new(exit, refused.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a time limit for each byte, the wait would last as long as single bytes come.
    #[test]
    fn an_answer_that_comes_byte_by_byte_is_late_when_its_time_is_over() {
        let (asks, mut answers) = UnixStream::pair().unwrap();
        let drips = std::thread::spawn(move || while answers.write_all(b" ").is_ok() {});
        let lines = BufReader::new(asks.take(u64::MAX));
        let mut asked = Answers { node: "a".to_owned(), lines, begun: Vec::new(), due: None };
        for _ in 0..2 {
            asked.set_patience(Duration::from_millis(50));
            assert!(matches!(asked.next().unwrap(), Next::Late));
        }
        assert!(!asked.begun.is_empty(), "it goes on where it was");
        drop(asked);
        drips.join().unwrap();
    }

    #[test]
    fn an_answer_without_an_end_is_refused_and_many_short_ones_are_not() {
        let (asks, mut answers) = UnixStream::pair().unwrap();
        let line = b"{\"version\":1,\"answer\":\"Withdrawn\"}\n";
        let floods = std::thread::spawn(move || {
            let short = line.repeat(usize::try_from(ANSWER_MAX).unwrap() / line.len() + 1);
            answers.write_all(&short).unwrap();
            while answers.write_all(&[b' '; 4_096]).is_ok() {}
        });
        let lines = BufReader::new(asks.take(0));
        let mut asked = Answers { node: "a".to_owned(), lines, begun: Vec::new(), due: None };
        let mut bytes = 0;
        let failure = loop {
            match asked.next() {
                Err(failure) if failure.message.contains("not understood") => bytes += line.len(),
                Err(failure) => break failure,
                Ok(next) => panic!("{next:?}"),
            }
        };
        assert!(failure.message.contains("has more than 4194304 bytes"), "{}", failure.message);
        assert!(bytes as u64 > ANSWER_MAX, "all short ones together");
        // The reader's own buffer comes on top.
        assert!(asked.begun.len() as u64 <= ANSWER_MAX + (16 << 10), "{}", asked.begun.len());
        drop(asked);
        floods.join().unwrap();
    }
}
