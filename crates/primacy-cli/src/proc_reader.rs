//! Reads of `/proc/PID/environ` and `/proc/PID/cmdline` that end in time.
//!
//! The kernel reads both from the memory of the process, under locks that the process holds while it executes or maps a
//! program. If that program is on a file system that does not answer (FUSE, NFS), the read waits as long as the process
//! does. So another thread reads, and is left behind when it does not answer; it ends with this process at the latest.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::Pid;

/// Reads one file of other processes.
#[derive(Debug)]
pub(crate) struct ProcReader<F> {
    read: F,
    /// Requests to the thread that has answered all of them so far.
    requests: Option<Sender<(Pid, Sender<Vec<u8>>)>>,
    /// Processes whose threads have not answered, so that each of them holds one thread and not one for each request.
    unanswered: HashMap<Pid, Receiver<Vec<u8>>>,
}

/// The kernel did not show the file in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered;

/// The time that a read may take: ten thousand times as long as it mostly does.
const ANSWER_TIME: Duration = Duration::from_millis(100);

impl<F: Fn(Pid) -> Vec<u8> + Clone + Send + 'static> ProcReader<F> {
    /// Creates a reader that calls `read` on a thread of its own.
    pub(crate) fn new(read: F) -> Self {
        Self { read, requests: None, unanswered: HashMap::new() }
    }

    /// Returns the file's bytes; empty if the process has ended or may not be read.
    pub(crate) fn read(&mut self, pid: Pid) -> Result<Vec<u8>, Unanswered> {
        if let Some(late) = self.unanswered.get(&pid) {
            if late.try_recv() == Err(TryRecvError::Empty) {
                return Err(Unanswered);
            }
            // A late answer is discarded: it may be of an earlier process with the same number.
            self.unanswered.remove(&pid);
        }
        let (reply, answer) = channel();
        let request = (pid, reply);
        // If no thread can be started, the answer is cut off at once.
        let _ = self.requests.get_or_insert_with(|| start(self.read.clone())).send(request);
        answer.recv_timeout(ANSWER_TIME).map_err(|_| {
            self.requests = None;
            self.unanswered.insert(pid, answer);
            Unanswered
        })
    }
}

fn start(read: impl Fn(Pid) -> Vec<u8> + Send + 'static) -> Sender<(Pid, Sender<Vec<u8>>)> {
    let (requests, asked) = channel::<(Pid, Sender<Vec<u8>>)>();
    let answer_all = move || {
        for (pid, reply) in asked {
            // The reader may have given up on this answer.
            let _ = reply.send(read(pid));
        }
    };
    let _ = thread::Builder::new().name("proc-reader".to_owned()).spawn(answer_all);
    requests
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_process_that_does_not_answer_holds_up_neither_the_reader_nor_other_processes() {
        let [stuck, other] = [1, 2].map(|pid| Pid::from_raw(pid).unwrap());
        let gate = Arc::new(Mutex::new(()));
        let closed = gate.lock().unwrap();
        let (reads, read) = channel();
        let at_gate = Arc::clone(&gate);
        let mut reader = ProcReader::new(move |pid| {
            reads.send(pid).unwrap();
            if pid == stuck {
                drop(at_gate.lock().unwrap());
            }
            vec![7]
        });
        assert_eq!(reader.read(stuck), Err(Unanswered));
        assert_eq!(reader.read(other), Ok(vec![7]));
        assert_eq!(reader.read(stuck), Err(Unanswered));
        assert_eq!(read.try_iter().collect::<Vec<_>>(), [stuck, other], "one thread for the stuck process");
        drop(closed);
        while reader.read(stuck).is_err() {
            thread::yield_now();
        }
        assert_eq!(read.try_iter().collect::<Vec<_>>(), [stuck], "the late answer was discarded");
    }
}
