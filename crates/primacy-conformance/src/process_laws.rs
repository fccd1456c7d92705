//! The laws that need several processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use primacy_stores::{Register, SetError};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{Harness, read, within};
use crate::history::{self, Kind, Operation};
use crate::rival;

/// The number of concurrent processes, in addition to the one that is killed.
const PROCESSES: u64 = 4;

/// Among rivals in several processes, each version is followed by one write, and no rival reads an old state.
pub async fn of_many_processes_exactly_one_wins(harness: &dyn Harness) {
    const LAST: u64 = 50;
    let election = "of_many_processes_exactly_one_wins";
    let rivals: Vec<Rival> =
        (1..=PROCESSES).map(|number| Rival::start(harness, election, number, LAST)).collect();
    let history: Vec<Operation> = rivals.into_iter().flat_map(Rival::finish).collect();
    history::check(&history).unwrap_or_else(|error| panic!("{error}"));
    let won = history.iter().filter(|operation| matches!(operation.kind, Kind::Won { .. })).count();
    assert_eq!(u64::try_from(won), Ok(LAST), "each token has a winner");
}

/// The answers to processes are linearizable, while requests are delayed, lost, or abandoned and delivered late, and
/// replies are lost.
pub async fn answers_to_many_processes_fit_one_order(harness: &dyn Harness) {
    const LAST: u64 = 120;
    let election = "answers_to_many_processes_fit_one_order";
    let start = |number| Rival::start_with_faults(harness, election, number, LAST, number);
    let rivals: Vec<Rival> = (1..=PROCESSES).map(start).collect();
    let history: Vec<Operation> = rivals.into_iter().flat_map(Rival::finish).collect();
    history::check(&history).unwrap_or_else(|error| panic!("{error}"));
    assert_outcomes_differ(&history);
}

/// Checks that outcomes of every kind occurred; otherwise the law proves nothing about some.
pub(crate) fn assert_outcomes_differ(history: &[Operation]) {
    let count = |is: fn(&Kind) -> bool| history.iter().filter(|operation| is(&operation.kind)).count();
    let counts = [
        count(|kind| matches!(kind, Kind::Won { .. })),
        count(|kind| *kind == Kind::Conflict),
        count(|kind| *kind == Kind::Failed),
        count(|kind| *kind == Kind::Unknown),
    ];
    assert!(counts.iter().all(|&count| count > 0), "done, refused, failed, unknown: {counts:?}");
}

/// Writers that are stopped or killed in the middle leave the old record or the new one, and all other writers see a single
/// record.
pub async fn killed_writers_leave_the_old_or_the_new(harness: &dyn Harness) {
    const KILLS: u64 = 12;
    // Among rivals with open connections, new ones on a slow store may lose every race.
    const KILLS_MAX: u64 = 100;
    // Never reached: a process that reaches it ends.
    const LAST: u64 = 1 << 40;
    let election = "killed_writers_leave_the_old_or_the_new";
    let rivals: Vec<Rival> =
        (1..=PROCESSES).map(|number| Rival::start(harness, election, number, LAST)).collect();
    let mut history = Vec::new();
    let mut won = 0;
    for number in PROCESSES + 1..=PROCESSES + KILLS_MAX {
        let killed = Rival::start(harness, election, number, LAST).kill_while_it_writes(number);
        won += killed.iter().filter(|operation| matches!(operation.kind, Kind::Won { .. })).count();
        history.extend(killed);
        if won > 0 && number >= PROCESSES + KILLS {
            break;
        }
    }
    let register = harness.open(election).await;
    history.extend(within(harness, "the last write", write_last(&*register, LAST)).await);
    history.extend(rivals.into_iter().flat_map(Rival::finish));
    history::check(&history).unwrap_or_else(|error| panic!("{error}"));
    assert!(won > 0, "those that were killed have written");
}

/// Overwrites any record with the last token, so that the rivals end. Returns its operations.
async fn write_last(register: &dyn Register, last: u64) -> Vec<Operation> {
    let mut history = Vec::new();
    loop {
        // With many writers, some of them killed, the store may be too busy for a while.
        if let Ok(Some((_, version))) = register.read().await {
            let start = rival::now();
            let mut note = |kind| {
                history.push(Operation { rival: 0, start, end: rival::now(), token: last, kind });
            };
            note(Kind::Begun { expect: rival::hexadecimal(&version) });
            match rival::take(register, Some(&version), 0, last).await {
                Ok(version) => {
                    note(Kind::Won { version: rival::hexadecimal(&version) });
                    return history;
                }
                Err(SetError::Conflict) => note(Kind::Conflict),
                Err(SetError::Unavailable { .. }) => note(Kind::Failed),
                Err(SetError::Unknown { .. }) => note(Kind::Unknown),
            }
        }
        tokio::task::yield_now().await;
    }
}

/// A caller that waits for a change is woken by changes of other processes.
pub async fn changed_wakes_across_processes(harness: &dyn Harness) {
    const LAST: u64 = 30;
    let election = "changed_wakes_across_processes";
    let waiter = harness.open(election).await;
    let rival = Rival::start(harness, election, 1, LAST);
    while read(&waiter).await.map_or(0, |(record, _)| record.token.0) < LAST {
        within(harness, "the change to be noticed", waiter.changed()).await;
    }
    rival.finish();
}

/// The process of a rival, and its output.
pub(crate) struct Rival {
    process: Child,
    /// Each output line, as it is printed.
    lines: mpsc::Receiver<String>,
    printed: JoinHandle<String>,
}

impl Rival {
    pub(crate) fn start(harness: &dyn Harness, election: &str, number: u64, last: u64) -> Self {
        Self::run(harness.rival(election, number, last))
    }

    /// Starts a rival like [`start`](Self::start), with faults drawn from `seed`.
    fn start_with_faults(harness: &dyn Harness, election: &str, number: u64, last: u64, seed: u64) -> Self {
        let mut command = harness.rival(election, number, last);
        command.env(rival::FAULTS_VARIABLE, seed.to_string());
        Self::run(command)
    }

    fn run(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = command.spawn().expect("a process can be started");
        let output = process.stdout.take().expect("it was piped");
        let (sender, lines) = mpsc::channel();
        // A pipe that is not read would block the process.
        let printed = std::thread::spawn(move || collect(output, &sender));
        Self { process, lines, printed }
    }

    /// Waits until it has ended, and returns its operations.
    pub(crate) fn finish(mut self) -> Vec<Operation> {
        // A rival that hangs is ended with the test that waits for it.
        let status = self.process.wait().expect("a process can be waited for");
        assert!(status.success(), "a rival failed: {status:?}");
        let (operations, is_whole) = rival::parse(&self.printed.join().expect("no panic there"));
        assert!(is_whole, "a rival tells all that it did");
        operations
    }

    /// Kills it by SIGKILL while it is about to write, each time a little later, and returns its operations. Every
    /// second one is stopped for a while before that, so that its request is overtaken by others.
    fn kill_while_it_writes(self, number: u64) -> Vec<Operation> {
        // Not at its first write, so that it has also waited for other rivals.
        self.wait_for_writes(3);
        std::thread::sleep(Duration::from_micros(300 * (number % 8)));
        if number.is_multiple_of(2) {
            let process = Pid::from_child(&self.process);
            kill_process(process, Signal::STOP).expect("a process can be stopped");
            std::thread::sleep(Duration::from_millis(30));
            kill_process(process, Signal::CONT).expect("a process can go on");
            std::thread::sleep(Duration::from_micros(500 * (number % 8)));
        }
        self.kill()
    }

    /// Kills it by SIGKILL this long after the announcement of its first write, and returns its operations.
    pub(crate) fn kill_after(self, delay: Duration) -> Vec<Operation> {
        self.wait_for_writes(1);
        std::thread::sleep(delay);
        self.kill()
    }

    /// Waits until it is about to write for the `count`th time.
    fn wait_for_writes(&self, count: usize) {
        let begun = |line: &String| {
            let operation = line.strip_prefix(rival::LINE).and_then(|line| line.parse::<Operation>().ok());
            operation.is_some_and(|operation| matches!(operation.kind, Kind::Begun { .. }))
        };
        let writes = self.lines.iter().filter(begun).take(count).count();
        assert_eq!(writes, count, "a rival that is to be killed writes until then");
    }

    fn kill(mut self) -> Vec<Operation> {
        self.process.kill().expect("a process can be killed");
        self.process.wait().expect("a process can be waited for");
        rival::parse(&self.printed.join().expect("no panic there")).0
    }
}

fn collect(output: ChildStdout, lines: &mpsc::Sender<String>) -> String {
    let mut printed = String::new();
    let mut output = BufReader::new(output);
    loop {
        let mut line = String::new();
        match output.read_line(&mut line) {
            Ok(0) | Err(_) => return printed,
            Ok(_) => {}
        }
        printed.push_str(&line);
        // The receiver may be gone.
        let _ = lines.send(line.trim_end().to_owned());
    }
}
