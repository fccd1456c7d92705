//! Children that a node must reap or kill: the orphans that a dead guardian leaves, and, where the node is
//! the first process of a container, all orphans there.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use primacy::core::Instant;
use rustix::process::Pid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::cgroup::Cgroup;
use crate::process_tree::{end_descendants, ended_children, kill_descendants, take_end};

/// The pause before each check for children that have ended.
const LOOK: Duration = Duration::from_millis(100);
/// The number of checks after which an ended child is reaped here.
const LOOKS: u32 = 3;

/// Reaps, without end, children that no other part of this process waits for. Other parts wait for children of their
/// own, such as the program that a kubeconfig names. They reap them at once, and would miss a child that was reaped
/// here; so a child is reaped only after several checks. Code that waits for a child by its pidfd leaves the reaping to
/// this task.
///
/// # Errors
/// If the system does not let this process listen to `SIGCHLD`.
pub(crate) fn reap_for_ever() -> io::Result<()> {
    let mut child_ended = signal(SignalKind::child())?;
    tokio::spawn(async move {
        // The number of checks in which each child was found. A timer separates the checks, so that all other tasks
        // have run in between.
        let mut seen: HashMap<Pid, u32> = HashMap::new();
        loop {
            sleep(LOOK).await;
            let ended = ended_children();
            seen.retain(|child, _| ended.contains(child));
            for child in ended {
                let looks = seen.entry(child).or_default();
                *looks += 1;
                if *looks >= LOOKS {
                    take_end(child);
                }
            }
            if seen.is_empty() && child_ended.recv().await.is_none() {
                return;
            }
        }
    });
    Ok(())
}

/// A thread that kills or ends all descendants on command. It is started before it is needed, since a system without a
/// free process has no free thread either.
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
    /// If the system refuses the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (orders, received) = channel();
        std::thread::Builder::new().name("end processes".to_owned()).spawn(move || obey(&received))?;
        Ok(Self { orders })
    }

    /// Sends SIGKILL to all descendants and to all processes in the job's control group. Processes that are started
    /// meanwhile may be missed.
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
        // The caller may have stopped waiting.
        let _ = done.send(());
    }
}

/// Opens the group only when it is needed, since it is made anew for each job.
fn opened(cgroup: Option<PathBuf>) -> Option<Cgroup> {
    Cgroup::open(&cgroup?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_a_child_is_left_to_what_waits_for_it_and_taken_where_nothing_does() {
        reap_for_ever().unwrap();
        for _ in 0..50 {
            let ended = tokio::process::Command::new("true").status().await.unwrap();
            assert!(ended.success(), "{ended}");
        }
        let left = Pid::from_child(&std::process::Command::new("true").spawn().unwrap());
        let taken = async {
            while std::path::Path::new("/proc").join(left.as_raw_nonzero().to_string()).exists() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), taken).await.expect("its end is taken");
    }
}
