//! A proxy for HTTP/1 with the faults of networks, gateways and bad servers.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A fault of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is forwarded unchanged.
    None,
    /// It is forwarded, and the connection is closed instead of an answer.
    LoseReply,
    /// It is dropped, and the connection is closed instead of an answer.
    LoseRequest,
    /// It is dropped, and answered with this status and body.
    Answer(&'static str, &'static str),
    /// It is forwarded, and answered with this status and body.
    AnswerAfter(&'static str, &'static str),
    /// It is forwarded twice, as by gateways that retry a PUT; the second answer is returned.
    Repeat,
    /// It is forwarded without its conditions, as if the server did not know them.
    Unconditional,
}

/// The proxy, which ends on drop.
#[derive(Debug)]
pub struct HttpFaults {
    port: u16,
    plan: Arc<Plan>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Plan {
    upstream: u16,
    is_over: AtomicBool,
    /// The faults of the next requests of each method, one each.
    next: Mutex<VecDeque<(&'static str, Fault)>>,
    /// The fault of all other requests.
    standing: Mutex<Fault>,
}

impl HttpFaults {
    /// Starts the proxy in front of a server on this machine.
    ///
    /// # Panics
    /// If the loopback interface has no free port.
    #[must_use]
    pub fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port of the loopback interface");
        let port = listener.local_addr().expect("it is bound").port();
        let plan = Arc::new(Plan {
            upstream,
            is_over: AtomicBool::new(false),
            next: Mutex::default(),
            standing: Mutex::new(Fault::None),
        });
        let told = Arc::clone(&plan);
        let accepting = std::thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                if told.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let plan = Arc::clone(&told);
                // Connection errors are expected here.
                std::thread::spawn(move || drop(plan.serve(client)));
            }
        });
        Self { port, plan, accepting: Some(accepting) }
    }

    /// The port on which it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sets the fault of the next request of this method that has none yet.
    pub fn next(&self, method: &'static str, fault: Fault) {
        self.plan.next.lock().unwrap_or_else(PoisonError::into_inner).push_back((method, fault));
    }

    /// Sets the fault of all requests without one of their own.
    pub fn always(&self, fault: Fault) {
        *self.plan.standing.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// True if every fault of a single request has been used.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.plan.next.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

impl Drop for HttpFaults {
    fn drop(&mut self) {
        self.plan.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// A request as received.
struct Request {
    /// The lines of its head, without line ends.
    head: Vec<String>,
    body: Vec<u8>,
}

impl Plan {
    fn draw(&self, method: &str) -> Fault {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        match next.iter().position(|(of, _)| *of == method) {
            Some(position) => next.remove(position).map_or(Fault::None, |(_, fault)| fault),
            None => self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Serves one request, and closes the connection, so that each request meets its own fault.
    fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        let Some(request) = Request::read(&client)? else { return Ok(()) };
        let answer = |status: &str, body: &str| {
            let length = body.len();
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
        };
        let answer = match self.draw(request.method()) {
            Fault::None => self.forward(&request, true)?,
            Fault::Unconditional => self.forward(&request, false)?,
            Fault::LoseRequest => return Ok(()),
            Fault::LoseReply => {
                self.forward(&request, true)?;
                return Ok(());
            }
            Fault::Repeat => {
                self.forward(&request, true)?;
                self.forward(&request, true)?
            }
            Fault::Answer(status, body) => answer(status, body).into_bytes(),
            Fault::AnswerAfter(status, body) => {
                self.forward(&request, true)?;
                answer(status, body).into_bytes()
            }
        };
        client.write_all(&answer)
    }

    /// Returns the server's answer.
    fn forward(&self, request: &Request, with_conditions: bool) -> std::io::Result<Vec<u8>> {
        let mut server = TcpStream::connect(("127.0.0.1", self.upstream))?;
        let mut text = String::new();
        for line in &request.head {
            let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
            let is_condition = ["if-match", "if-none-match"].contains(&name.as_str());
            if name != "connection" && (with_conditions || !is_condition) {
                text += line;
                text += "\r\n";
            }
        }
        text += "Connection: close\r\n\r\n";
        server.write_all(&[text.as_bytes(), &request.body].concat())?;
        let mut answer = Vec::new();
        server.read_to_end(&mut answer)?;
        Ok(answer)
    }
}

impl Request {
    /// Reads a request; `None` if the connection ends without one.
    fn read(client: &TcpStream) -> std::io::Result<Option<Self>> {
        let mut reader = BufReader::new(client);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            head.push(line.to_owned());
        }
        let length = head.iter().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body)?;
        Ok(Some(Self { head, body }))
    }

    fn method(&self) -> &str {
        self.head.first().and_then(|line| line.split(' ').next()).unwrap_or_default()
    }
}
