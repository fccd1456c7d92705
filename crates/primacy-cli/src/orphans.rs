//! Children of a node that it must take the ends of, or kill: the orphans that a dead guardian leaves, and, where the node is
//! the first process of a container, everybody's.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use primacy::core::Instant;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Mutex, oneshot};

use crate::cgroup::Cgroup;
use crate::process_tree::{end_descendants, kill_descendants, reap};

/// Takes the ends of all children, for ever. Nothing in this process waits for a child otherwise than by a descriptor of it, so
/// nothing misses an end that was taken here. `starting` is held by whoever starts a process, for the standard library waits
/// for one that could not be executed.
///
/// # Errors
/// If the system does not let this process listen to `SIGCHLD`.
pub(crate) fn reap_for_ever(starting: Arc<Mutex<()>>) -> io::Result<()> {
    let mut child_ended = signal(SignalKind::child())?;
    tokio::spawn(async move {
        loop {
            {
                let _nobody_starts = starting.lock().await;
                reap(|_, _| {});
            }
            if child_ended.recv().await.is_none() {
                return;
            }
        }
    });
    Ok(())
}

/// A thread that kills or ends all descendants when it is told to. It is there before it is needed: where the system has no
/// process left, it has no thread either.
#[derive(Debug)]
pub(crate) struct Ender {
    orders: Sender<(Order, oneshot::Sender<()>)>,
}

#[derive(Debug)]
enum Order {
    /// Send SIGKILL to all descendants, and to all in the control group in this directory.
    Kill(Option<PathBuf>),
    /// Kill them until none is left.
    End(Option<PathBuf>),
}

impl Ender {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the system has none.
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, received) = channel();
        std::thread::Builder::new().name("end processes".to_owned()).spawn(move || obey(&received))?;
        Ok(Self { orders })
    }

    /// Sends SIGKILL to all descendants and to all in the job's control group. Those that are started meanwhile are not met.
    pub(crate) async fn kill_all(&self, cgroup: Option<PathBuf>) {
        self.order(Order::Kill(cgroup)).await;
    }

    /// Ends all descendants, and returns when none is left.
    pub(crate) async fn end_all(&self, cgroup: Option<PathBuf>) {
        self.order(Order::End(cgroup)).await;
    }

    async fn order(&self, order: Order) {
        let (done, is_done) = oneshot::channel();
        let sent = self.orders.send((order, done)).is_ok();
        let obeyed = sent && is_done.await.is_ok();
        assert!(obeyed, "a panic ends the whole process, and then the guardian ends the job");
    }
}

fn obey(orders: &Receiver<(Order, oneshot::Sender<()>)>) {
    for (order, done) in orders {
        match order {
            Order::Kill(cgroup) => {
                if let Some(cgroup) = opened(cgroup) {
                    cgroup.kill();
                }
                kill_descendants(Instant::NEVER);
            }
            Order::End(cgroup) => end_descendants(None, opened(cgroup).as_ref(), |_, _| {}),
        }
        // Whoever ordered it may not wait any more.
        let _ = done.send(());
    }
}

/// A group is made anew for each job, so it is opened when it is needed.
fn opened(cgroup: Option<PathBuf>) -> Option<Cgroup> {
    Cgroup::open(&cgroup?).ok()
}
