//! The guardian's end of the socket to its supervisor. It never blocks: a supervisor that is paused must not
//! keep the guardian from its deadline.

use std::io::{self, BufRead, Read, Write};
use std::os::unix::net::UnixStream;

use crate::guardian::message::{GuardianCommand, GuardianConfig, Report};

pub(crate) struct Wire {
    stream: UnixStream,
    heard: Vec<u8>,
    unsent: Vec<u8>,
    closed: bool,
}

impl Wire {
    /// Waits for the first line, which has the guardian's settings.
    pub(crate) fn open(stream: UnixStream) -> io::Result<(Self, GuardianConfig)> {
        let mut reader = io::BufReader::new(&stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let config = serde_json::from_str(&line)?;
        let heard = reader.buffer().to_vec();
        stream.set_nonblocking(true)?;
        Ok((Self { stream, heard, unsent: Vec::new(), closed: false }, config))
    }

    /// Returns all commands that have arrived.
    pub(crate) fn hear(&mut self) -> Vec<GuardianCommand> {
        let mut bytes = [0; 4096];
        while !self.closed {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.closed = true,
                Ok(count) => self.heard.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.closed = true,
            }
        }
        let mut orders = Vec::new();
        while let Some(end) = self.heard.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=end).collect();
            // Both ends are the same program, so an unreadable line is dropped.
            orders.extend(serde_json::from_slice::<GuardianCommand>(&line).ok());
        }
        self.flush();
        orders
    }

    /// Sends a report to the supervisor, now or as soon as it reads again.
    pub(crate) fn say(&mut self, report: &Report) {
        if let Ok(line) = serde_json::to_vec(report) {
            self.unsent.extend_from_slice(&line);
            self.unsent.push(b'\n');
            self.flush();
        }
    }

    fn flush(&mut self) {
        while !self.closed && !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return, // It is full, or closed, which reading will show.
            }
        }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns whether the supervisor's end is closed.
    pub(crate) fn closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }
}
