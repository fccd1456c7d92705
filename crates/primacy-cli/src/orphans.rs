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

/// The pause before each look for children that have ended.
const LOOK: Duration = Duration::from_millis(100);
/// The number of looks after which a child is reaped here.
const LOOKS: u32 = 3;

/// Reaps children that no other part of this process waits for, without end. A part of this process that
/// waits for a child of its own, such as the program that a kubeconfig names, reaps it at once, and would
/// miss one that was reaped here. Code that waits for a child by a descriptor of it leaves the reaping to
/// this.
///
/// # Errors
/// If the system does not let this process listen to `SIGCHLD`.
pub(crate) fn reap_for_ever() -> io::Result<()> {
    let mut child_ended = signal(SignalKind::child())?;
    tokio::spawn(async move {
        // The number of times that each was seen. One look follows another by a timer, so that all others have
        // run meanwhile.
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

/// A thread that kills or ends all descendants when ordered to. It is there before it is needed: where the
/// system has no process left, it has no thread either.
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

    /// Sends SIGKILL to all descendants and to all in the job's control group. Processes that are started
    /// meanwhile are not met.
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
        // The caller may not wait any more.
        let _ = done.send(());
    }
}

/// A group is made anew for each job, so it is opened when it is needed.
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
