//! Foreign clients: a client from PyPI, by itself, and in one election with Primacy by the steps of `consul lock`.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use primacy_conformance::live::{consul::stranger, program};

use super::*;

/// Python with that client; `None` where it is not there.
fn python() -> Option<Command> {
    let python = program("python3").and_then(|python| {
        let has_client =
            Command::new(&python).args(["-c", "import consul.base"]).stderr(Stdio::null()).status();
        let is_there = has_client.is_ok_and(|status| status.success());
        is_there
            .then_some(python)
            .ok_or_else(|| "there is no python-consul2; `cargo xtask live` installs it".to_owned())
    });
    crate::found("consul", python).map(Command::new)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_client_takes_the_stand_in_for_an_agent() {
    let Some(consul) = consul().await else { return };
    let Some(mut python) = python() else { return };
    let told = python.arg(stranger()).arg(consul.port().to_string()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&told.stdout), "ok\n", "{}", String::from_utf8_lossy(&told.stderr));
}

/// A process that wants the lock of `consul lock company/e`.
struct Stranger {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Stranger {
    fn new(consul: &Consul) -> Option<Self> {
        let mut command = python()?;
        command.arg(stranger()).arg(consul.port().to_string()).args(["hold", "company/e/.lock"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python runs");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Some(Self { child, output })
    }

    /// The next line that it prints.
    fn says(&mut self) -> String {
        let mut line = String::new();
        tokio::task::block_in_place(|| self.output.read_line(&mut line)).expect("a line");
        line.trim().to_owned()
    }

    /// Waits until it leads; returns the index of the key, which is its token.
    fn leads(&mut self) -> FencingToken {
        let said = self.says();
        let index = said.strip_prefix("held ").and_then(|index| index.parse().ok());
        FencingToken(index.unwrap_or_else(|| panic!("it says {said:?}")))
    }

    fn let_go(&mut self) {
        drop(self.child.stdin.take());
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consul_lock_and_primacy_take_over_from_each_other() {
    let Some(consul) = consul().await else { return };
    let Some(mut stranger) = Stranger::new(&consul) else { return };
    let mut last = stranger.leads();
    let one = Candidate::new(&consul.url("company"), "e", "a").await;
    for round in 0..3 {
        // The foreign client leads, and Primacy waits.
        let first = one.behind().await;
        assert_eq!((first.holder.identity.node.as_str(), first.token), ("ConsulAPILock", last));
        stranger.let_go();
        let token = one.become_first().await;
        assert!(token > last, "round {round}: {token} after {last}");
        assert_eq!(stranger.says(), "released");
        // Primacy leads, and another foreign client waits.
        stranger = Stranger::new(&consul).unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(one.lead().await, token);
        one.leave().await;
        last = stranger.leads();
        assert!(last > token, "round {round}: {last} after {token}");
    }
}
