//! Histories written by hand: a correct one, and for each rule incorrect ones that the judge must detect.

use primacy_core::{FencingToken, Reason, Term};
use serde_json::json;

use super::clocks::NodeClock;
use super::gaps::{by_kind, median};
use super::record::{NodeReport, Record, Said, node_report};
use super::{Exempted, FaultResult, Stalled, Verdict, verdict};
use crate::chaos::event_log::{RunEvent, Sent, TimedEvent};
use crate::chaos::fault::{Kind, NodeProcess};
use crate::chaos::ledger::{Entry, JobReport, Line, Writer};
use crate::chaos::stalls::{DiskWatch, Stall, StalledResource as Machine};

const MS: u64 = 1_000_000;

/// A record that is built line by line; all times in milliseconds.
struct Story {
    events: Vec<TimedEvent>,
    reports: Vec<(String, NodeReport)>,
    ledger: Vec<Line>,
    journal: Vec<Entry>,
    stalls: Vec<Stall>,
}

fn writer(node: &str, token: u64) -> Writer {
    Writer { token, node: node.into(), pid: i32::try_from(token).unwrap() }
}

impl Story {
    /// Three running nodes.
    fn new() -> Self {
        Self::over("peers-3")
    }

    /// The same with this arm.
    fn over(arm: &str) -> Self {
        let (events, reports, ledger, journal) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut story = Self { events, reports, ledger, journal, stalls: Vec::new() };
        story.log(0, RunEvent::Run { arm: arm.into(), seed: 1, not_run: Vec::new(), faked: None });
        for node in ["a", "b", "c"] {
            story.life(0, node, 1);
        }
        story
    }

    fn log(&mut self, at: u64, event: RunEvent) -> &mut Self {
        self.events.push(TimedEvent { boot_ns: at * MS, event });
        self
    }

    fn life(&mut self, at: u64, node: &str, life: u32) -> &mut Self {
        self.log(at, RunEvent::Incarnation { node: node.into(), life, pid: 1 })
    }

    fn signal(&mut self, at: u64, node: &str, part: NodeProcess, signal: Sent) -> &mut Self {
        self.log(at, RunEvent::Signal { node: node.into(), life: 1, part, signal })
    }

    fn ended(&mut self, at: u64, node: &str, code: i32) -> &mut Self {
        self.log(at, RunEvent::Ended { node: node.into(), life: 1, code })
    }

    fn says(&mut self, at: u64, node: &str, said: Said) -> &mut Self {
        self.reports.push((node.into(), NodeReport { at: at * MS, within_ns: 0, said }));
        self
    }

    fn elected(&mut self, at: u64, node: &str, token: u64, until: u64) -> &mut Self {
        self.only_elected(at, node, token, until).says(at, node, Said::Taken { token: FencingToken(token) })
    }

    /// Elects a node; its supervisor has not begun the leadership yet.
    fn only_elected(&mut self, at: u64, node: &str, token: u64, until: u64) -> &mut Self {
        let said = Said::Elected { term: Term(token), token: FencingToken(token), until: until * MS };
        self.says(at, node, said)
    }

    fn renewed(&mut self, at: u64, node: &str, until: u64) -> &mut Self {
        self.says(at, node, Said::Renewed { until: until * MS })
    }

    /// Resigns in order: first the job ends, then the leadership.
    fn resigns(&mut self, at: u64, node: &str, token: u64) -> &mut Self {
        self.says(at, node, Said::Drained { token: FencingToken(token) });
        self.says(at + 1, node, Said::Deposed(Reason::Resigned))
    }

    fn writes(&mut self, at: u64, node: &str, token: u64) -> &mut Self {
        self.ledger.push(Line { writer: writer(node, token), boot_ns: at * MS });
        self
    }

    fn job(&mut self, at: u64, node: &str, token: u64, report: JobReport) -> &mut Self {
        self.journal.push(Entry { writer: writer(node, token), boot_ns: at * MS, report });
        self
    }

    fn record(&self) -> Record {
        let mut events = self.events.clone();
        events.sort_by_key(|event| event.boot_ns);
        events.push(TimedEvent { boot_ns: 60_000 * MS, event: RunEvent::End });
        let mut record = Record::of_events(events).unwrap();
        for (node, report) in &self.reports {
            let of_node = |life: &&mut super::record::IncarnationRecord| life.who.node.as_str() == node;
            let life = record.lives.iter_mut().find(of_node).unwrap();
            life.reports.push(report.clone());
            life.words.push(report.at);
        }
        (record.ledger, record.journal) = (self.ledger.clone(), self.journal.clone());
        record.stalls.clone_from(&self.stalls);
        record
    }

    fn verdict(&self) -> Verdict {
        verdict(&self.record())
    }

    /// Returns the broken rules, each once.
    fn broken(&self) -> Vec<String> {
        let mut rules: Vec<String> =
            self.verdict().findings.into_iter().map(|finding| finding.rule).collect();
        rules.sort();
        rules.dedup();
        rules
    }
}

/// A leads, resigns; b leads, is killed, and its job with it; c leads.
fn good() -> Story {
    let mut story = Story::new();
    story
        .elected(1_000, "a", 1, 2_000)
        .writes(1_010, "a", 1)
        .renewed(1_500, "a", 2_500)
        .writes(1_900, "a", 1);
    story.resigns(2_000, "a", 1);
    story.elected(2_010, "b", 2, 3_010).writes(2_020, "b", 2).writes(2_400, "b", 2);
    story.signal(2_405, "b", NodeProcess::Supervisor, Sent::Kill).ended(2_410, "b", 137).life(2_500, "b", 2);
    story.elected(2_420, "c", 3, 3_420).writes(2_430, "c", 3);
    story
}

#[test]
fn a_good_history_has_nothing_broken() {
    let verdict = good().verdict();
    assert_eq!((verdict.findings, verdict.missing), (vec![], vec![]));
    assert_eq!(verdict.judged, ["I1", "I2", "I3", "I8"]);
    assert_eq!(Story::new().verdict().missing, ["the leader never changed"]);
    let tally = verdict.tally;
    assert_eq!((tally.leaderships, tally.tokens_accepted, tally.writes_accepted, tally.lives), (3, 3, 5, 4));
    let mut again = Story::new();
    again
        .elected(1_000, "a", 1, 2_000)
        .writes(1_010, "a", 1)
        .elected(3_000, "a", 2, 4_000)
        .writes(3_010, "a", 2);
    let Verdict { missing, tally, .. } = again.verdict();
    assert_eq!(
        (missing.as_slice(), tally.tokens_accepted),
        (&["the leader never changed".to_owned()][..], 2)
    );
}

#[test]
fn two_leaders_of_one_term_are_seen() {
    let mut story = Story::new();
    let said = |token| Said::Elected { term: Term(7), token: FencingToken(token), until: 1_100 * MS };
    story.says(1_000, "a", said(1)).says(2_000, "b", said(2));
    assert_eq!(story.broken(), ["I1"]);
}

#[test]
fn a_token_that_goes_down_is_seen() {
    let mut story = Story::new();
    story.elected(1_000, "a", 5, 1_500).elected(2_000, "b", 4, 2_500);
    assert_eq!(story.broken(), ["I2"], "given");
    let mut story = good();
    story.writes(2_440, "b", 2);
    assert!(story.broken().contains(&"I2".to_owned()), "accepted");
    assert_eq!(story.verdict().tally.stale_tried, 1);
}

#[test]
fn beliefs_that_overlap_are_seen() {
    let mut story = Story::new();
    story.elected(1_000, "a", 1, 2_000).elected(1_999, "b", 2, 3_000);
    assert_eq!(story.broken(), ["I3"]);
    let mut story = Story::new();
    story.elected(1_000, "a", 1, 2_000).elected(2_000, "b", 2, 3_000);
    assert_eq!(story.broken(), [""; 0], "the end of one may be the beginning of the other");
    let mut story = Story::new();
    story.elected(1_000, "a", 1, 1_500).renewed(1_400, "a", 2_500).elected(2_000, "b", 2, 3_000);
    assert_eq!(story.broken(), ["I3"], "it was made longer");
}

#[test]
fn a_killed_leader_is_over_when_its_job_is() {
    let mut story = good();
    // The grandchild of the killed b goes on while c already leads.
    story.job(2_425, "b", 2, JobReport::Refused { highest: 3 });
    assert_eq!(story.broken(), ["I3"]);
}

#[test]
fn what_is_released_before_it_has_drained_is_seen() {
    let mut story = Story::new();
    story.elected(1_000, "a", 1, 2_000).says(1_200, "a", Said::Deposed(Reason::Resigned));
    assert_eq!(story.broken(), ["I8", "contract"], "nothing has drained");
    // Asked to resign before its supervisor had begun the leadership.
    let mut story = Story::new();
    story.only_elected(1_000, "a", 1, 2_000).says(1_001, "a", Said::Deposed(Reason::Resigned));
    story.elected(1_002, "b", 2, 2_000);
    assert_eq!(story.broken(), [""; 0]);
    story.job(1_500, "a", 1, JobReport::Began);
    assert_eq!(story.broken(), ["I3", "I8", "contract"], "but it has worked");
    let mut story = Story::new();
    story.elected(1_000, "a", 1, 2_000).resigns(1_200, "a", 1).writes(1_300, "a", 1);
    assert_eq!(story.broken(), ["I8", "contract"], "it says so, and its job says otherwise");
}

#[test]
fn a_life_that_breaks_the_contract_is_seen() {
    let mut story = Story::new();
    story.elected(1_000, "a", 1, 2_000).renewed(2_500, "a", 3_000);
    assert_eq!(story.broken(), ["contract"]);
    let mut story = Story::new();
    story.elected(1_000, "a", 1, 2_000).elected(1_500, "a", 2, 2_500);
    assert_eq!(story.broken(), ["contract"]);
    let mut story = Story::new();
    story.says(1_000, "a", Said::Violation("two leaders".into()));
    assert_eq!(story.broken(), ["violation"]);
}

#[test]
fn a_write_of_a_leadership_that_nobody_told_of_is_seen() {
    let mut story = Story::new();
    story.writes(1_000, "a", 1);
    assert_eq!(story.broken(), ["trace"]);
    // A killed node could not report its leadership; it counts while the node wrote.
    story.signal(1_001, "a", NodeProcess::Supervisor, Sent::Kill).ended(1_010, "a", 137);
    assert_eq!(story.broken(), [""; 0]);
    story.elected(999, "b", 2, 2_000);
    assert_eq!(story.broken(), ["I2", "I3"]);
}

#[test]
fn only_a_kill_before_it_spoke_again_keeps_a_node_from_telling() {
    let story = |more: &dyn Fn(&mut Story)| {
        let mut story = Story::new();
        story.writes(1_000, "a", 1);
        more(&mut story);
        story.broken()
    };
    let killed = |story: &mut Story| {
        story.signal(1_400, "a", NodeProcess::Supervisor, Sent::Kill);
    };
    assert_eq!(story(&killed), [""; 0]);
    assert_eq!(
        story(&|story| {
            killed(story);
            story.says(1_200, "a", Said::Guardian);
        }),
        ["trace"],
        "it could tell that before it was killed"
    );
    let other = |part, node| {
        move |story: &mut Story| {
            story.signal(1_400, node, part, Sent::Kill);
        }
    };
    assert_eq!(story(&other(NodeProcess::Supervisor, "b")), ["trace"], "another node");
    assert_eq!(story(&other(NodeProcess::Guardian, "a")), ["trace"], "another process");
    let later = |story: &mut Story| {
        let signal =
            RunEvent::Signal { node: "a".into(), life: 2, part: NodeProcess::Supervisor, signal: Sent::Kill };
        story.ended(1_300, "a", 143).signal(1_200, "a", NodeProcess::Supervisor, Sent::Terminate);
        story.life(1_500, "a", 2).log(1_600, signal);
    };
    assert_eq!(story(&later), ["trace"], "a later life of it");
    let acts_on = |at| {
        move |story: &mut Story| {
            killed(story);
            story.writes(at, "a", 1);
        }
    };
    assert_eq!(story(&acts_on(1_999)), [""; 0]);
    assert_eq!(story(&acts_on(2_000)), ["acts past its lease"], "it has a lease all the same");
}

#[test]
fn an_act_past_the_lease_is_seen_unless_nobody_could_prevent_it() {
    let mut late = Story::new();
    late.elected(1_000, "a", 1, 2_000).writes(2_001, "a", 1);
    assert_eq!(late.broken(), ["acts past its lease"]);
    late.signal(1_500, "a", NodeProcess::Guardian, Sent::Stop);
    assert_eq!(late.broken(), ["acts past its lease"], "its supervisor was there");
    late.signal(1_600, "a", NodeProcess::Supervisor, Sent::Stop).signal(
        1_980,
        "a",
        NodeProcess::Supervisor,
        Sent::Continue,
    );
    assert_eq!(late.broken(), ["acts past its lease"], "its supervisor was there for 21 ms of the margin");
    late.signal(1_981, "a", NodeProcess::Supervisor, Sent::Stop).signal(
        1_982,
        "a",
        NodeProcess::Supervisor,
        Sent::Continue,
    );
    assert_eq!(late.broken(), [""; 0]);
    assert_eq!(late.verdict().tally.acts_unguarded, excused(1, 1));
    late.writes(9_000, "a", 1);
    assert_eq!(late.broken(), ["acts past its lease"], "the exemption has an end");

    let mut killed = Story::new();
    killed.elected(1_000, "a", 1, 2_000).job(2_100, "a", 1, JobReport::Refused { highest: 2 });
    killed
        .signal(1_100, "a", NodeProcess::Supervisor, Sent::Kill)
        .ended(1_101, "a", 137)
        .elected(2_050, "b", 2, 3_050);
    assert_eq!(killed.broken(), ["acts past its lease"], "its guardian was there");
    killed.signal(1_100, "a", NodeProcess::Guardian, Sent::Kill);
    assert_eq!(killed.broken(), [""; 0]);

    let mut lost = Story::new();
    lost.elected(1_000, "a", 1, 5_200).says(5_000, "a", Said::GuardianLost).writes(5_500, "a", 1);
    let of_its_own = "a guardian ended without a reason";
    assert_eq!(lost.broken(), [of_its_own, "acts past its lease"], "its supervisor was there");
    lost.signal(4_000, "a", NodeProcess::Guardian, Sent::Stop);
    assert_eq!(lost.broken(), ["acts past its lease"], "it did not answer");
    lost.signal(5_020, "a", NodeProcess::Supervisor, Sent::Stop);
    assert_eq!(lost.broken(), [""; 0]);
    lost.says(5_050, "a", Said::Guardian);
    assert_eq!(lost.broken(), ["acts past its lease"], "a new guardian was there");
}

#[test]
fn a_guardian_that_is_lost_for_no_reason_is_seen() {
    let of = |add: &dyn Fn(&mut Story)| {
        let mut story = Story::new();
        add(story.says(5_000, "a", Said::GuardianLost));
        story.broken()
    };
    assert_eq!(of(&|_| {}), ["a guardian ended without a reason"]);
    assert_eq!(
        of(&|story| {
            story.signal(4_990, "a", NodeProcess::Guardian, Sent::Kill);
        }),
        [""; 0]
    );
    assert_eq!(
        of(&|story| {
            story.signal(4_990, "b", NodeProcess::Guardian, Sent::Kill);
        })
        .len(),
        1,
        "another's"
    );
    assert_eq!(
        of(&|story| {
            story.signal(4_990, "a", NodeProcess::Job, Sent::Kill);
        })
        .len(),
        1,
        "another process"
    );
    let went_on_at = |at| {
        of(&|story| {
            story.signal(2_000, "a", NodeProcess::Guardian, Sent::Stop).signal(
                at,
                "a",
                NodeProcess::Guardian,
                Sent::Continue,
            );
        })
    };
    assert_eq!((went_on_at(4_500).len(), went_on_at(2_500).len()), (0, 1));
    let stalled_at = |at| {
        let stall = Stall { of: Machine::Processor, boot_ns: at * MS, stall_ns: 20 * MS };
        of(&|story| story.stalls.push(stall)).len()
    };
    assert_eq!((stalled_at(4_900), stalled_at(2_500)), (0, 1));
    assert_eq!((stalled_at(5_020), stalled_at(5_021)), (0, 1), "it went on for a while; it began later");
}

fn excused(count: usize, millis: u64) -> Exempted {
    Exempted { count, total_ns: millis * MS, longest_ns: millis * MS }
}

/// A history in which a writes `late` past its lease, and a processor stalled for `stall` until shortly before.
fn late_under_a_stall(late: u64, stall: u64) -> Story {
    let mut story = Story::new();
    story.elected(1_000, "a", 1, 2_000).writes(2_000 + late, "a", 1);
    story.stalls.push(Stall { of: Machine::Processor, boot_ns: (2_000 + late) * MS, stall_ns: stall * MS });
    story
}

#[test]
fn a_stall_excuses_as_much_as_it_took_and_no_more() {
    // The job had to be killed 240 ms before; 20 ms of that may be a stall that is too short to be recorded.
    let story = late_under_a_stall(40, 220);
    assert_eq!((story.broken(), story.verdict().tally.acts_stalled), (vec![], excused(1, 40)));
    let Stalled { count, total_ns, ppm, longest_ns } = story.verdict().tally.stalls;
    assert_eq!((count, total_ns, longest_ns), (1, 220 * MS, 220 * MS));
    assert_eq!(ppm, 3_666, "of a minute");
    let story = late_under_a_stall(40, 219);
    assert_eq!(story.broken(), ["acts past its lease"]);
    assert_eq!(story.verdict().tally.acts_stalled, Exempted::default());
    let story = late_under_a_stall(20, 20);
    assert_eq!(story.broken(), ["acts past its lease"], "the margin before the end is not explained");

    let mut story = late_under_a_stall(80, 200);
    story.stalls.push(Stall { of: Machine::Processor, boot_ns: 2_070 * MS, stall_ns: 200 * MS });
    assert_eq!(story.broken(), ["acts past its lease"], "two processors at a time count once");
    story.stalls.push(Stall { of: Machine::Processor, boot_ns: 1_860 * MS, stall_ns: 50 * MS });
    assert_eq!(story.broken(), [""; 0], "the sum is enough");
    let mut story = late_under_a_stall(80, 200);
    story.stalls.push(Stall { of: Machine::Processor, boot_ns: 1_800 * MS, stall_ns: 500 * MS });
    assert_eq!(story.broken(), ["acts past its lease"], "before it was to be killed");
    story.stalls.push(Stall { of: Machine::Processor, boot_ns: 2_500 * MS, stall_ns: 419 * MS });
    assert_eq!(story.broken(), ["acts past its lease"], "after it");

    assert_eq!(late_under_a_stall(0, 1).broken(), ["acts past its lease"], "at the very end");
    let mut story = late_under_a_stall(0, 180);
    assert_eq!(story.broken(), [""; 0]);
    story.stalls[0].boot_ns = 1_500 * MS;
    assert_eq!(story.broken(), ["acts past its lease"], "long before");

    // The run's own stops count in addition to the machine's stalls.
    let mut story = late_under_a_stall(80, 130);
    for part in [NodeProcess::Supervisor, NodeProcess::Guardian] {
        story.signal(1_820, "a", part, Sent::Stop).signal(1_950, "a", part, Sent::Continue);
    }
    assert_eq!((story.broken(), story.verdict().tally.acts_stalled), (vec![], excused(1, 80)));
}

#[test]
fn a_stall_of_the_disk_excuses_a_supervisor_that_stands_in_for_its_guardian() {
    let mut story = late_under_a_stall(40, 220);
    story.stalls[0].of = Machine::Disk;
    assert_eq!(story.broken(), ["acts past its lease"], "its guardian needs no disk");
    story.signal(1_500, "a", NodeProcess::Guardian, Sent::Stop);
    let tally = story.verdict().tally;
    assert_eq!((story.broken(), tally.acts_disk_stalled), (vec![], excused(1, 40)));
    assert_eq!((tally.acts_stalled, tally.stalls), (Exempted::default(), Stalled::default()));
    story.stalls[0].stall_ns -= 1;
    assert_eq!(story.broken(), ["acts past its lease"]);

    // A processor stalls for 120 ms, and the disk for 129, both together for 29 of them: in all 220.
    let both = |disk: u64| {
        let mut story = late_under_a_stall(40, 120);
        story.stalls.push(Stall { of: Machine::Disk, boot_ns: 1_949 * MS, stall_ns: disk });
        story.signal(1_500, "a", NodeProcess::Guardian, Sent::Kill);
        story
    };
    assert_eq!(both(129 * MS).broken(), [""; 0]);
    assert_eq!(
        both(129 * MS).verdict().tally.acts_disk_stalled,
        excused(1, 40),
        "the processor was not enough"
    );
    assert_eq!(both(129 * MS - 1).broken(), ["acts past its lease"]);

    let mut story = waits(400);
    story.stalls.push(Stall { of: Machine::Disk, boot_ns: 3_200 * MS, stall_ns: 149 * MS });
    assert_eq!(story.broken(), ["the lock is taken"]);
    story.stalls.push(Stall { of: Machine::Processor, boot_ns: 3_201 * MS, stall_ns: 60 * MS });
    assert_eq!((story.broken(), story.verdict().tally.locks_disk_stalled), (vec![], excused(1, 150)));
}

#[test]
fn a_disk_that_nobody_watched_is_not_one_that_never_stalled() {
    let mut record = good().record();
    assert_eq!(verdict(&record).tally.disk_stalls, None);
    assert!(verdict(&record).disk_not_watched.is_some());
    record.disk = DiskWatch::Watched;
    assert_eq!(verdict(&record).tally.disk_stalls, Some(Stalled::default()));
    assert_eq!(verdict(&record).disk_not_watched, None);
}

#[test]
fn what_a_dead_node_has_left_is_excused_until_its_next_life_speaks() {
    let of = |speaks: Option<u64>, acts: u64| {
        let mut story = Story::new();
        story.elected(1_000, "a", 1, 2_000).writes(acts, "a", 1);
        story.signal(1_500, "a", NodeProcess::Guardian, Sent::Kill).signal(
            1_500,
            "a",
            NodeProcess::Supervisor,
            Sent::Kill,
        );
        story.ended(1_501, "a", 137).life(4_000, "a", 2);
        let mut record = story.record();
        record.lives.iter_mut().find(|life| life.begun == 4_000 * MS).unwrap().words =
            speaks.into_iter().map(|at| at * MS).collect();
        verdict(&record).findings.len()
    };
    assert_eq!((of(Some(4_100), 4_120), of(Some(4_100), 4_121)), (0, 1));
    assert_eq!((of(None, 6_020), of(None, 6_021)), (0, 1), "it has a time for that");

    let mut stopped = Story::new();
    stopped.elected(1_000, "a", 1, 2_000).writes(8_000, "a", 1);
    for part in [NodeProcess::Guardian, NodeProcess::Supervisor] {
        stopped.signal(1_500, "a", part, Sent::Kill);
    }
    stopped.ended(1_501, "a", 137).life(4_000, "a", 2).says(9_000, "a", Said::Guardian);
    assert_eq!(stopped.broken(), ["acts past its lease"], "it has had its time");
    stopped.signal(4_100, "a", NodeProcess::Supervisor, Sent::Stop);
    stopped.signal(8_500, "a", NodeProcess::Supervisor, Sent::Continue);
    assert_eq!(stopped.broken(), [""; 0]);
}

/// Node b leads and finds the lock taken by a job of a, for this long.
#[test]
fn a_node_that_took_anothers_place_is_excused_by_its_own_name_until_it_is_gone() {
    let mut story = Story::over("metadata");
    story.life(500, "b2", 1).elected(1_000, "b2", 1, 2_000).writes(2_001, "b2", 1);
    assert_eq!(story.broken(), ["acts past its lease"]);
    for part in [NodeProcess::Supervisor, NodeProcess::Guardian] {
        story.signal(1_100, "b2", part, Sent::Kill);
    }
    story.ended(1_101, "b2", 137);
    assert_eq!(story.broken(), [""; 0]);
    story.log(1_900, RunEvent::Left { node: "b2".into() });
    assert_eq!(story.broken(), ["acts past its lease"], "whoever looked for what is left has ended it");
}

fn waits(millis: u64) -> Story {
    waits_over("peers-3", millis)
}

fn waits_over(arm: &str, millis: u64) -> Story {
    let mut story = Story::over(arm);
    story.elected(1_000, "a", 1, 2_000).elected(3_000, "b", 2, 4_000);
    story.job(3_010, "b", 2, JobReport::Waits { holder: Some(writer("a", 1)) }).writes(3_010, "b", 2);
    story.job(3_010 + millis, "b", 2, JobReport::Waits { holder: Some(writer("a", 1)) });
    // Its disk is slow: the job retries much later.
    story.job(3_500 + millis, "b", 2, JobReport::Locked);
    story
}

#[test]
fn a_lock_that_is_refused_to_a_leader_for_long_is_seen() {
    let mut story = waits(400);
    story.signal(1_500, "a", NodeProcess::Supervisor, Sent::Stop).signal(
        1_500,
        "a",
        NodeProcess::Guardian,
        Sent::Stop,
    );
    if let JobReport::Waits { holder } = &mut story.journal[0].report {
        *holder = None;
    }
    assert_eq!(story.broken(), [""; 0], "its holder was writing its name when it was first asked");
    assert_eq!(waits(250).broken(), [""; 0]);
    assert_eq!(waits(251).broken(), ["the lock is taken"]);
    let mut story = waits(400);
    story.signal(1_500, "a", NodeProcess::Supervisor, Sent::Stop);
    assert_eq!(story.broken(), ["the lock is taken"], "its guardian was there");
    story.signal(1_500, "a", NodeProcess::Guardian, Sent::Stop);
    assert_eq!((story.broken(), story.verdict().tally.locks_unguarded), (vec![], excused(1, 150)));
    for (arm, is_excused) in [("peers-3", false), ("crowd", true)] {
        let mut story = waits_over(arm, 600);
        for part in [NodeProcess::Supervisor, NodeProcess::Guardian] {
            story.signal(1_500, "a", part, Sent::Stop).signal(3_100, "a", part, Sent::Continue);
        }
        let locked = story.broken().contains(&"the lock is taken".to_owned());
        assert_eq!(locked, !is_excused, "{arm}: five hundred processes have to be killed then");
    }
    let mut story = waits(400);
    story.signal(3_100, "b", NodeProcess::Job, Sent::Stop);
    assert_eq!((story.broken(), story.verdict().tally.locks_stopped), (vec![], excused(1, 150)));
    let mut story = waits(400);
    story.stalls.push(Stall { of: Machine::Processor, boot_ns: 3_200 * MS, stall_ns: 149 * MS });
    assert_eq!(story.broken(), ["the lock is taken"], "not for so long");
    story.stalls.push(Stall { of: Machine::Processor, boot_ns: 3_201 * MS, stall_ns: 60 * MS });
    assert_eq!((story.broken(), story.verdict().tally.locks_stalled), (vec![], excused(1, 150)));
    let mut story = waits(400);
    story.journal.pop();
    assert_eq!(story.broken(), ["the lock is taken"], "it never got it");
    story.journal.pop();
    assert_eq!(story.broken(), [""; 0], "it was no more");
    let mut story = Story::new();
    story.elected(1_000, "a", 1, 2_000).elected(3_000, "b", 2, 3_200);
    for at in [3_010, 3_700] {
        story.job(at, "b", 2, JobReport::Waits { holder: Some(writer("a", 1)) });
    }
    assert_eq!(story.broken(), ["acts past its lease"], "it led no more");
}

#[test]
fn a_refusal_of_what_is_not_stale_is_seen() {
    let mut story = good();
    story.job(2_450, "c", 3, JobReport::Refused { highest: 3 });
    assert_eq!(story.broken(), ["a write was refused and not stale"]);
    let mut story = Story::new();
    story.elected(1_000, "a", 1, 2_000).elected(2_000, "b", 2, 3_000);
    story.job(1_500, "a", 1, JobReport::Refused { highest: 2 });
    assert_eq!(story.broken(), ["a write was refused and not stale"], "it was the highest then");
    let mut story = good();
    story.job(2_450, "c", 3, JobReport::Refused { highest: 9 });
    assert_eq!(story.broken(), ["a write was refused and not stale"], "by a token that nobody was given");
    let mut story = good();
    story.job(2_450, "c", 3, JobReport::Failed { error: "no room".into() });
    assert_eq!(story.broken(), ["the ledger failed"]);
}

#[test]
fn an_end_without_a_reason_is_seen() {
    for code in [0, 1, 74, 137, 143] {
        assert_eq!(Story::new().ended(500, "a", code).broken(), ["an end without a reason"], "{code}");
    }
    let mut story = Story::new();
    story.signal(400, "a", NodeProcess::Supervisor, Sent::Terminate).ended(500, "a", 143);
    assert_eq!(story.broken(), [""; 0]);
    let mut story = Story::new();
    let disk = |full| RunEvent::Disk { full };
    story.log(400, disk(true)).ended(500, "a", 74).log(600, disk(false));
    assert_eq!(story.broken(), [""; 0]);
    story.ended(5_000, "b", 74);
    assert_eq!(story.broken(), ["an end without a reason"]);
    let mut story = Story::new();
    story.log(500, RunEvent::Stuck { step: 3, what: "no leader".into() });
    assert_eq!(story.broken(), ["stuck"]);
    let mut story = Story::new();
    story.log(500, RunEvent::Failed { step: 3, what: "`primacy resign` failed: 70".into() });
    assert_eq!(story.broken(), ["a command failed"]);
}

#[test]
fn a_clock_that_is_not_the_one_that_was_given_is_seen() {
    assert!(good().record().check_times().is_ok());
    let mut story = Story::new();
    story.elected(61_000, "a", 1, 62_000);
    assert!(story.record().check_times().is_err());
    let speaks_before = |early: u64| {
        let mut story = Story::new();
        story.log(2_000, RunEvent::Incarnation { node: "d".into(), life: 1, pid: 1 });
        story.elected(2_000 - early, "d", 1, 3_000).record().check_times()
    };
    assert!(speaks_before(1_000).is_ok(), "the event was late");
    assert!(speaks_before(1_001).is_err());
}

fn row(planned: usize, took: usize, millis: u64) -> FaultResult {
    FaultResult::Made { planned, took, median_ns: millis * MS, longest_ns: millis * MS }
}

#[test]
fn a_fault_counts_when_it_took_effect() {
    let mut story = good();
    let fault = |step, kind| RunEvent::Fault { step, kind, what: "a".into() };
    story.log(500, fault(1, Kind::Isolate)).log(510, RunEvent::Healed { step: 1, dropped: 0 });
    story.log(600, fault(2, Kind::Isolate)).log(610, RunEvent::Took { step: 2, kind: Kind::Isolate });
    story.log(611, RunEvent::Healed { step: 2, dropped: 9 });
    story.log(700, fault(3, Kind::KillJob)).log(710, RunEvent::Healed { step: 3, dropped: 0 });
    let verdict = story.verdict();
    assert!(matches!(verdict.faults[&Kind::Isolate], FaultResult::Made { planned: 2, took: 1, .. }));
    assert_eq!((&verdict.faults[&Kind::KillJob], verdict.tally.packets_dropped), (&row(1, 0, 0), 9));

    let mut story = Story::over("sqlite");
    story.log(500, fault(1, Kind::FullDisk)).log(3_000, RunEvent::Healed { step: 1, dropped: 0 });
    story.says(3_001, "a", Said::NoRoom);
    assert_eq!(story.verdict().faults[&Kind::FullDisk], row(1, 0, 0), "it was met too late");
    story.says(2_999, "a", Said::NoRoom);
    assert!(matches!(story.verdict().faults[&Kind::FullDisk], FaultResult::Made { took: 1, .. }));
    assert_eq!(good().verdict().faults[&Kind::FullDisk], FaultResult::NotApplicable, "among peers");
}

#[test]
fn the_time_without_a_leader_belongs_to_what_was_done_before_it() {
    let mut story = good();
    story.log(1_950, RunEvent::Fault { step: 1, kind: Kind::Resign, what: "a".into() });
    story.log(2_405, RunEvent::Fault { step: 2, kind: Kind::KillSupervisor, what: "b".into() });
    story.log(1_951, RunEvent::Took { step: 1, kind: Kind::Resign });
    story.log(2_406, RunEvent::Took { step: 2, kind: Kind::KillSupervisor });
    let made = by_kind(&story.record());
    assert_eq!(made[&Kind::Resign].gaps, [380 * MS], "from the write at 2020 to that at 2400");
    assert_eq!(made[&Kind::KillSupervisor].gaps, [30 * MS]);
    let rows = story.verdict().faults;
    assert_eq!(rows[&Kind::Resign], row(1, 1, 380));
    assert_eq!(rows[&Kind::QuorumLoss], FaultResult::NotApplicable);
    assert_eq!((median(&[]), median(&[5]), median(&[9, 1, 5])), (0, 5, 5));
}

#[test]
fn what_nodes_print_is_read_as_it_is_printed() {
    let read = |line| node_report(&line, &NodeClock::True).unwrap().map(|report| (report.at, report.said));
    let log = |message: &str, more: serde_json::Value| {
        let mut line = json!({"event": "log", "target": "primacy::machine", "message": message, "at_ns": 5, "boot_ns": 9});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line
    };
    let elected = Said::Elected { term: Term(2), token: FencingToken(3), until: 8 };
    assert_eq!(read(log("elected", json!({"term": 2, "token": 3, "until_ns": 8}))), Some((5, elected)));
    assert_eq!(read(log("renewed", json!({"until_ns": 9}))), Some((5, Said::Renewed { until: 9 })));
    let reasons = [
        ("Resigned", Reason::Resigned),
        ("Transferred(b)", Reason::Transferred("b".parse().unwrap())),
        ("Unhealthy", Reason::Unhealthy),
        ("Expired", Reason::Expired),
        ("Undecided", Reason::Undecided),
        ("HigherTerm(Term(41))", Reason::HigherTerm(Term(41))),
        ("Overwritten", Reason::Overwritten),
        ("Removed", Reason::Removed),
        ("SessionEnded", Reason::SessionEnded),
        ("DiskLost", Reason::DiskLost),
        ("Violation", Reason::Violation),
        ("Halted", Reason::Halted),
    ];
    for (text, reason) in reasons {
        assert_eq!(format!("{reason:?}"), text, "as the node writes it");
        assert_eq!(read(log("deposed", json!({"reason": text}))), Some((5, Said::Deposed(reason))));
        assert_eq!(read(log("resigning", json!({"reason": text}))), Some((5, Said::Resigning(reason))));
    }
    let drained = json!({"event": "drained", "token": 3, "boot_ns": 9});
    assert_eq!(read(drained), Some((9, Said::Drained { token: FencingToken(3) })));
    let taken = json!({"event": "elected", "token": 3, "term": 3, "boot_ns": 9});
    assert_eq!(read(taken), Some((9, Said::Taken { token: FencingToken(3) })));
    let full = json!({"event": "log", "message": "x", "error": "database or disk is full", "boot_ns": 9});
    assert_eq!(read(full), Some((9, Said::NoRoom)));
    assert_eq!(read(json!({"event": "campaigning", "boot_ns": 9})), None);
    for bad in [log("elected", json!({"term": 2, "token": 3})), log("deposed", json!({"reason": "?"}))] {
        assert!(node_report(&bad, &NodeClock::True).is_err(), "{bad}");
    }
}
