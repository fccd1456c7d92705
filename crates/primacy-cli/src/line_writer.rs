//! A writer of lines for a reader that may be slow, stopped or gone. Its own thread does the writing, so that no other
//! thread waits for the reader: a full pipe or a stopped terminal must not keep a node from starting, stopping or
//! ending.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The most lines that may wait for the reader; further ones are dropped and counted.
const LINES_MAX: usize = 1_000;
/// The time that the last lines may take to be written, at the end of a process.
pub(crate) const LAST_LINES_TIME: Duration = Duration::from_millis(200);
/// The stack size of the thread, which needs little.
const STACK_LENGTH: usize = 256 * 1024;
/// A pipe that `poll` calls writable takes this many bytes without waiting.
const PIPE_BUF: usize = 4_096;

/// The queue of a writing thread. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct LineWriter(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    /// Notified when there is a line to write.
    filled: Condvar,
    /// Notified when all lines were written.
    emptied: Condvar,
}

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Entry>,
    /// True while a line was taken out and is being written.
    is_writing: bool,
}

#[derive(Debug)]
enum Entry {
    Line(String),
    /// This number of lines was dropped here.
    Dropped(u64),
}

impl LineWriter {
    /// Starts a thread of this name, which passes each line to `write`. Where lines were dropped, it passes the text of
    /// `dropped` for their number instead.
    ///
    /// # Errors
    /// If the system refuses the thread.
    pub(crate) fn start(
        thread: &str,
        write: impl FnMut(&[u8]) + Send + 'static,
        dropped: impl Fn(u64) -> String + Send + 'static,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let lines = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name(thread.to_owned()).stack_size(STACK_LENGTH);
        thread.spawn(move || lines.write_all(write, dropped))?;
        Ok(Self(queue))
    }

    /// Puts a line in the queue, or counts it as dropped. Never waits for the reader.
    pub(crate) fn put(&self, line: String) {
        let mut state = self.0.lock();
        if state.entries.len() < LINES_MAX {
            state.entries.push_back(Entry::Line(line));
        } else if let Some(Entry::Dropped(count)) = state.entries.back_mut() {
            *count += 1;
        } else {
            state.entries.push_back(Entry::Dropped(1));
        }
        self.0.filled.notify_one();
    }

    /// Waits until all lines are written, for this time at the most.
    pub(crate) fn finish(&self, bound: Duration) {
        let is_busy = |state: &mut State| state.is_writing || !state.entries.is_empty();
        let waited = self.0.emptied.wait_timeout_while(self.0.lock(), bound, is_busy);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, mut write: impl FnMut(&[u8]), dropped: impl Fn(u64) -> String) {
        loop {
            let entry = {
                let is_empty = |state: &mut State| state.entries.is_empty();
                let waited = self.filled.wait_while(self.lock(), is_empty);
                let mut state = waited.unwrap_or_else(PoisonError::into_inner);
                state.is_writing = true;
                state.entries.pop_front()
            };
            match entry {
                Some(Entry::Line(line)) => write(line.as_bytes()),
                Some(Entry::Dropped(count)) => write(dropped(count).as_bytes()),
                None => {}
            }
            let mut state = self.lock();
            state.is_writing = false;
            if state.entries.is_empty() {
                self.emptied.notify_all();
            }
        }
    }
}

/// Writes bytes to standard error, and waits for its reader; only the writing thread does so. Errors are ignored, since
/// there is nowhere to report them.
pub(crate) fn write_to_stderr(mut bytes: &[u8]) {
    // Does not take the lock of `io::Stderr`, on which another thread that prints would wait.
    let stderr = io::stderr();
    while !bytes.is_empty() {
        match rustix::io::write(&stderr, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // Another process that shares it has set it non-blocking.
                let _ = poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None);
            }
            Err(_) => return,
        }
    }
}

/// Writes the last line of this process to standard error, and waits only a moment for its reader.
pub(crate) fn write_last_words(text: &str) {
    let line = format!("{text}\n");
    match LineWriter::start("last words", write_to_stderr, |_| String::new()) {
        Ok(writer) => {
            writer.put(line);
            writer.finish(LAST_LINES_TIME);
        }
        // The system has no thread left.
        Err(_) => write_if_there_is_room(line.as_bytes()),
    }
}

fn write_if_there_is_room(bytes: &[u8]) {
    let mut stderr = io::stderr();
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let fd = stderr.as_fd().try_clone_to_owned();
    let Ok(fd) = fd else { return };
    if poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&at_once)) == Ok(1) {
        let _ = stderr.write_all(&bytes[..bytes.len().min(PIPE_BUF)]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Returns a writer whose reader takes a line for each `()` that is sent to it.
    fn slow() -> (LineWriter, Sender<()>, Receiver<String>) {
        let (go_on, waits) = channel::<()>();
        let (read, lines) = channel();
        let write = move |line: &[u8]| {
            let _ = waits.recv();
            let _ = read.send(String::from_utf8_lossy(line).into_owned());
        };
        let writer = LineWriter::start("slow", write, |count| format!("{count} dropped")).unwrap();
        (writer, go_on, lines)
    }

    #[test]
    fn lines_that_find_no_room_are_dropped_and_counted_where_they_were() {
        let (writer, go_on, lines) = slow();
        for number in 0..LINES_MAX + 20 {
            writer.put(number.to_string());
        }
        writer.finish(Duration::ZERO);
        drop(go_on); // The reader is back.
        writer.finish(PATIENCE);
        writer.put("next".to_owned());
        writer.finish(PATIENCE);
        let read: Vec<String> = lines.try_iter().collect();
        let (kept, told) = read.split_at(read.len() - 2);
        // The thread may have taken out one line before the queue was full.
        let all_kept: Vec<String> = (0..kept.len()).map(|number| number.to_string()).collect();
        assert_eq!(kept, all_kept);
        assert_eq!(told, [format!("{} dropped", LINES_MAX + 20 - kept.len()), "next".to_owned()]);
    }
}
