use primacy_core::{Endpoint, Event, FencingToken, Input, Instant, NodeId, Output, Protocol, Violation};

use super::*;
use crate::algorithm::{Algorithm, ProcessStart};
use crate::elections::blazingmq_naive::{BlazingmqNaive, Timers};
use crate::golden_file::replay;
use crate::historical::blazingmq_naive::{BlazingmqNaive as Machine, Message};
use crate::invariants::{Invariant, Meaning};
use crate::script::{ALARM, PANIC, Script};
use crate::swarm::{Beyond, run_again};

#[test]
fn what_breaks_a_promise_is_told_in_a_few_lines() {
    let mut lines = Vec::new();
    for seed in 0..40 {
        let run = Election::Lease.run_beyond(seed, Some(Beyond::FrozenMachine), Trace::keeping(&[]));
        let Some(failure) = run.verdict.failure() else { continue };
        let shorter = shrink(Election::Lease, &run.commands, failure).expect("the same story fails again");
        let again = Election::Lease.run_again(&shorter, Trace::keeping(&[]));
        assert_eq!(again.verdict.failure(), Some(failure));
        assert!(shorter.len() < run.commands.len(), "{shorter:?}");
        lines.push(shorter.len());
    }
    lines.sort_unstable();
    assert!(lines.len() > 10 && lines[lines.len() / 2] <= 20, "{lines:?}");
}

/// A machine that checks itself: a leader that hears another leader panics, or raises an alarm. The naive election
/// does neither.
#[derive(Clone, Debug)]
struct Watchful {
    machine: Machine,
    leads: bool,
    panics: bool,
    alarm: Option<Output<Message, ()>>,
}

impl Protocol for Watchful {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        if let Input::Message { from: Endpoint::Node(from), message: Message::Heartbeat } = &input
            && self.leads
        {
            assert!(!self.panics, "{from} leads too");
            let (seen, found) = (FencingToken(1), FencingToken(0));
            self.alarm = Some(Output::Event(Event::Violation(Violation::TokenWentDown { seen, found })));
        }
        self.machine.handle(now, input);
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        let output = self.machine.poll();
        match output {
            Some(Output::Event(Event::Elected { .. })) => self.leads = true,
            Some(Output::Event(Event::Deposed(_))) => self.leads = false,
            Some(Output::Event(_) | Output::Send { .. } | Output::Persist(())) | None => {}
        }
        output.or_else(|| self.alarm.take())
    }

    fn deadline(&self) -> Option<Instant> {
        self.machine.deadline()
    }
}

#[derive(Debug)]
struct Watched<const PANICS: bool>;

impl<const PANICS: bool> Algorithm for Watched<PANICS> {
    type Message = Message;
    type Durable = ();
    type Kept = ();
    type Machine = Watchful;
    type Settings = Timers;

    fn start(settings: &Timers, process: ProcessStart<'_, ()>) -> Watchful {
        let machine = BlazingmqNaive::start(settings, process);
        Watchful { machine, leads: false, panics: PANICS, alarm: None }
    }

    fn kind(message: &Message) -> &'static str {
        BlazingmqNaive::kind(message)
    }

    fn is_routine(message: &Message) -> bool {
        BlazingmqNaive::is_routine(message)
    }

    fn text(message: &Message) -> String {
        BlazingmqNaive::text(message)
    }

    fn meaning(message: &Message, to: Option<NodeId>) -> Meaning {
        BlazingmqNaive::meaning(message, to)
    }

    fn invariants(_settings: &Timers) -> Vec<Box<dyn Invariant>> {
        Vec::new()
    }
}

/// Two nodes lead after the isolation of the first one, and hear each other after the healing. Most lines are
/// irrelevant to that.
const SCRIPT: &str = "\
seed 3
nodes a b c d e
latency all 2ms
drain 80ms
set heartbeat_interval=1s
set a initial_wait=3s random_wait_max=10ms
start all
advance 3333ms
pause e
advance 1234ms
resume e
crash d
advance 777ms
restart d
advance 5s
isolate a
advance 9s
close b c
advance 8s
pause d
heal
advance 2345ms
advance 3s
resume d";

fn fails<A: Algorithm>(failure: &'static str) {
    let commands: Vec<String> = SCRIPT.lines().map(str::to_owned).collect();
    let runs = |commands: &[String]| run_again::<A>(commands, Trace::keeping(&[]));
    let run = runs(&commands);
    assert_eq!(run.verdict.failure(), Some(failure));
    let shorter = shrink_by(&runs, &run.commands, failure).expect("the same story fails again");
    assert_eq!(runs(&shorter).verdict.failure(), Some(failure));
    assert!(shorter.len() <= 8, "{shorter:?}");

    let kept = script(&shorter, Some(failure), "a leader hears another one");
    replay(&kept, &mut Script::<A>::new(Trace::keeping(&[]))).expect("the script says how it ends");
    let unsaid = script(&shorter[..shorter.len() - 1], Some(failure), "and the reason is left out");
    replay(&unsaid, &mut Script::<A>::new(Trace::keeping(&[]))).expect_err("it does not fail any more");
    assert_eq!(shrink_by(&runs, &commands, "I1"), None, "it does not fail in that way");
}

#[test]
fn what_makes_a_machine_panic_is_made_shorter_and_kept() {
    fails::<Watched<true>>(PANIC);
}

#[test]
fn what_makes_a_machine_raise_an_alarm_is_made_shorter_and_kept() {
    fails::<Watched<false>>(ALARM);
}
