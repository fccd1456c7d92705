//! A client that knows one broker, or the document, and finds the leader by their answers: it has no list of brokers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::PATIENCE;
use crate::store::Store;

/// The time limits of a connection and of an answer.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1_500);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause before a client repeats a request.
const POLL: Duration = Duration::from_millis(20);

/// A client's initial knowledge of the brokers.
#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// The address of one broker, which may lead, stand by, or not run. The client asks it when it knows no better address.
    Address(String),
    /// No broker: it reads the field `broker` of the document.
    Document,
}

/// The source of the address that a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It was configured.
    Given,
    /// A standby broker named it, with status 503.
    Standby,
    /// The document named it.
    Document,
}

/// A client got an answer from another broker than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Discovery {
    pub(crate) way: Way,
    pub(crate) address: String,
}

/// One client.
pub(crate) struct Client<'a> {
    store: &'a Store,
    known: Known,
    /// The address that it uses; `None` if it must find one first.
    at: Option<(String, Way)>,
    answered_by: String,
    discoveries: &'a Mutex<Vec<Discovery>>,
}

impl<'a> Client<'a> {
    pub(crate) fn new(store: &'a Store, known: Known, discoveries: &'a Mutex<Vec<Discovery>>) -> Self {
        Self { store, known, at: None, answered_by: String::new(), discoveries }
    }

    /// Sends a request to the leader, and finds the leader again when it has changed; `None` if the answer was lost, so that the
    /// request may have been carried out.
    pub(crate) fn ask(&mut self, path: &str, body: &Value) -> Option<(u16, Value)> {
        let began = Instant::now();
        loop {
            if let Some((address, way)) = self.at.take().or_else(|| self.look()) {
                match request(&address, "POST", path, Some(body)) {
                    // Not the leader; nothing was done.
                    Ok((503, answer)) => self.follow(&address, answer["leader"].as_str()),
                    Ok((504, _)) | Err(Silence::Lost) => return None,
                    Ok(answer) => {
                        self.note(address, way);
                        return Some(answer);
                    }
                    Err(Silence::Unreachable) => {}
                }
            }
            assert!(began.elapsed() < PATIENCE, "nobody answers {path} to one who knows {:?}", self.known);
            std::thread::sleep(POLL);
        }
    }

    fn look(&self) -> Option<(String, Way)> {
        match &self.known {
            Known::Address(address) => Some((address.clone(), Way::Given)),
            Known::Document => Some((self.store.leader()?, Way::Document)),
        }
    }

    /// Follows a standby broker's answer to the leader, if it names one.
    fn follow(&mut self, asked: &str, leader: Option<&str>) {
        match &self.known {
            // A broker that was restarted at its old address may name itself until it has read the document again.
            Known::Address(_) => {
                let other = leader.filter(|&leader| leader != asked);
                self.at = other.map(|leader| (leader.to_owned(), Way::Standby));
            }
            // It reads the document instead.
            Known::Document => {}
        }
    }

    fn note(&mut self, address: String, way: Way) {
        if self.answered_by != address {
            self.answered_by.clone_from(&address);
            self.discoveries.lock().unwrap().push(Discovery { way, address: address.clone() });
        }
        self.at = Some((address, way));
    }
}

/// The reason why there was no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// No connection: nothing was done.
    Unreachable,
    /// It may have been done before the connection broke.
    Lost,
}

/// One request.
pub(crate) fn request(
    address: &str,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> Result<(u16, Value), Silence> {
    let address: SocketAddr = address.parse().map_err(|_| Silence::Unreachable)?;
    let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
    let mut stream = stream.map_err(|_| Silence::Unreachable)?;
    let body = body.map_or(String::new(), Value::to_string);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    let mut answer = String::new();
    stream
        .set_read_timeout(Some(ANSWER_TIMEOUT))
        .and_then(|()| stream.write_all((head + &body).as_bytes()))
        .and_then(|()| stream.read_to_string(&mut answer))
        .map_err(|_| Silence::Lost)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let (Some(status), Some((_, body))) = (status, answer.split_once("\r\n\r\n")) else {
        return Err(Silence::Lost);
    };
    Ok((status, serde_json::from_str(body).unwrap_or(Value::Null)))
}
