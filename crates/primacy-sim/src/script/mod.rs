//! The commands of scripts, which drive the world.
//!
//! A node is given by its name, `all` means all nodes, `store` is the store's end of a link, and `any` is any end.
//!
//! | setup | |
//! |---|---|
//! | `seed 7` | before `nodes`: the seed of the world (1 if not given) |
//! | `nodes a b c` | the nodes, none of them started |
//! | `profile article` | the settings that a source states |
//! | `set pre_vote=false`, `set a priority=2` | settings, which take effect when a node starts |
//! | `voters d = a b d`, `voters all = a b c` | the voters in the configuration of `d`, or of all |
//! | `latency a b 20ms`, `latency all 3ms`, `disk a takes 5ms`, `disk all takes 5ms` | delays of packets and writes |
//! | `drain 100ms`, `guardian takes 5ms`, `reconnect after 100ms` | |
//! | `deadlines first` | a process that wakes late handles its deadline before its pending inputs |
//! | `work writes within 20ms` | the work of a leader writes to the resource at its beginning and at each renewal |
//! | `start a b`, `start all` | starts processes that campaign; `boot a` starts a process that does not |
//! | `elect a` | starts all, with `a` as the only candidate; waits until all voters follow it, then lets all campaign |
//!
//! | time | |
//! |---|---|
//! | `advance 5s` | lets time pass |
//! | `run until leader`, `run until leader b`, `run until no leader` | … until a node leads, or none does |
//! | `run until b follows a`, `run until b follows nobody` | … until a node names another one as the leader, or none |
//! | `run until breach` | … until an invariant is broken |
//!
//! | faults of nodes | |
//! |---|---|
//! | `crash a`, `crash a and guardian`, `crash guardian a`, `crash host a` | see [`Crash`](crate::world::faults::Crash) |
//! | `crash a at its next write`, `… kept` | before the write is on disk, or just after |
//! | `crash a … kept` | a write that is under way survives |
//! | `restart a`, `restart a without disk`, `restart a with disk 1` | with an empty disk, or with the first disk that it had |
//! | `restart a without log` | its log is lost, but not its vote |
//! | `rot a` | its disk loses the last write |
//! | `readmit a at b`, `readmit a at b in vain` | `b` readmits it; `in vain`: `b` must refuse |
//! | `pause a`, `resume a`, `freeze a`, `thaw a` | one process, or a whole machine and its clock |
//! | `clock a +2%`, `jump a 5s` | |
//! | `disk a fails`, `disk a works` | |
//!
//! | faults of messages | |
//! |---|---|
//! | `cut a b`, `cut a -> b`, `isolate a`, `links a-b b-c` (and no others), `join a b`, `heal` | a cut closes no connection |
//! | `chance lost 2%`, `chance doubled 1%`, `chance delayed 500ppm up to 2s`, `chance none` | faults of any packet |
//! | `close a b` | their connection closes; the nodes reconnect a little later |
//! | `drop next a -> b Vote`, `drop all any -> a` | `next`, a number or `all`; of one kind or any |
//! | `double next a -> b`, `delay next a -> b 300ms Heartbeat` | |
//! | `store down`, `store silent`, `store up`, `store lies` | `lies`: it accepts every write, whatever its expected version |
//! | `lose next reply a`, `unknown next write a`, `unknown next write a undone` | the write is done; `undone`: it is not |
//! | `repeat next write a` | the write is done twice, as by a client library that retries it |
//!
//! | phases | |
//! |---|---|
//! | `heal all` | ends every fault, by [`World::heal_all`] |
//! | `settle` | waits until all name one leader; if that exceeds the election's bound, I6 is broken |
//! | `settle without a` | the same without `a`, which may be cut off in either direction |
//! | `calm`, `calm over` | between the two, a change of leader breaks I5 |
//!
//! | commands for machines and their surroundings | |
//! |---|---|
//! | `campaign a`, `withdraw a`, `resign a`, `transfer a b`, `health a bad`, `health a good` | |
//! | `down a b`, `request a` | an operator declares at `a` that `b` is gone; `a` gets a request that needs a minimum number of members |
//! | `busy a`, `idle a`, `drained a` | its work does not end when told to drain; it does again; it has ended now |
//! | `write a`, `write a late 3s` | its work writes to the resource, with its latest token |
//! | `store init`, `store init 41`, `store delete`, `store rewind 2`, `store tells changes` | |
//! | `request-resign ops` | leaves a request to resign in the record |
//!
//! | requests of clients, where nodes keep replicated state | |
//! |---|---|
//! | `client a put x 1`, `client a put x 1 in 7` | `in 7`: attached to session 7 |
//! | `client a swap x 1 2`, `client a delete x`, `client a get x` | `swap` writes 2 if the value is 1 |
//! | `client a begin 7 2s`, `client a end 7`, `client a keep 7`, `client a look 7` | a session |
//! | `client a keeps 7 2s`, `clients let 7 go` | the session is kept alive from now on, at `a` or another node; and no longer |
//! | `clients ask 3` | this many random requests, at random nodes |
//! | `state a` | the end of the log of `a`, and the contents of its map |
//! | `client a joins 7 2s`, `client a leaves 7` | `a` becomes a possible primary, by a session that its process keeps alive; and leaves |
//! | `client a gives back 7`, `client a gives back all 7` | the partitions taken back from it, as far as it knows; or all its partitions |
//! | `client a creates orders 4`, `client a drops orders` | a group of partitions |
//! | `client a drains b`, `client a undrains b`, `client a moves orders 0 to b` | |
//! | `write a orders 0`, `write a orders 0 late 3s` | the work of a primary writes to its partition, with the token that its node knows |
//! | `partitions a` | the primary of each partition, as far as `a` knows |
//! | `operator a adds d`, `operator a removes d` | asks `a` once to add or remove the voter `d`; to be repeated until it is done |
//! | `operator a accepts the loss` | `a` accepts its lost log as complete |
//! | `voters a` | the voters that `a` counts, and the number of the record that states them |
//!
//! | output and checks | |
//! |---|---|
//! | `show heartbeats`, `hide messages`, `show disk` | choose the levels of the shown lines |
//! | `store removes first`, `store ends session a` | faults of a store with sessions |
//! | `store ends sessions late 1s`, `store gives sessions 5s` | |
//! | `queue` | the entries of the queue |
//! | `status`, `record` | the belief of each node, and the record of the store |
//! | `members a` | the members of the cluster, as `a` knows them, with all their attributes |
//! | `expect leader a`, `expect leader a term 5`, `expect no leader`, `expect elections 1` | checks of the present state |
//! | `expect I3` | this script breaks that invariant, and fails otherwise |
//! | `expect panic`, `expect alarm` | the same for a panic of a machine, or for its alarm |

mod clients;
mod commands;
mod faults;
mod looks;
mod primaries;

use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use primacy_core::{Command, Duration, Input, NodeId};

use crate::algorithm::{Algorithm, Settings as _, duration};
use crate::clock::Moment;
use crate::golden_file::ScriptHandler;
use crate::process_slot::ProcessSlot;
use crate::trace::{Entry, Level, Levels, Party, Trace, lines};
use crate::world::phases::Settled;
use crate::world::{Conditions, World};

/// The maximum time for which `run until` waits.
const PATIENCE: Duration = Duration::from_secs(120);

/// The name of a breach by a panic of a machine, or of the world.
pub const PANIC: &str = "panic";

/// The name of a failure that only a machine itself has detected.
pub const ALARM: &str = "alarm";

/// A script that can be drawn.
pub trait Recorded: ScriptHandler {
    /// Records the entries of these levels from the beginning on; if none are given, those of the levels that the
    /// script shows, and the scene. Must be called before the first command.
    fn record(&mut self, levels: Option<Levels>);

    /// Returns the entries recorded so far.
    fn recorded(&mut self) -> Vec<Entry>;

    /// Returns the first breach of an invariant that the script does not expect to break, as text.
    fn unexpected(&self) -> Option<String>;
}

/// A script about one election.
#[derive(Debug)]
pub struct Script<A: Algorithm> {
    seed: u64,
    /// The trace for the world that will be created; `None` once the world exists.
    trace: Option<Trace>,
    pub(crate) world: Option<World<A>>,
    /// The invariants that the script expects to break.
    expected: BTreeSet<String>,
    said: Vec<String>,
    /// The last measured time from the healing until all nodes named one leader.
    pub settled: Option<Settled>,
    record: Option<Option<Levels>>,
}

impl<A: Algorithm> Script<A> {
    /// A script whose world shows the lines that this trace keeps.
    #[must_use]
    pub const fn new(trace: Trace) -> Self {
        Self {
            seed: 1,
            trace: Some(trace),
            world: None,
            expected: BTreeSet::new(),
            said: Vec::new(),
            settled: None,
            record: None,
        }
    }

    /// Returns the world, which exists once the nodes are named.
    ///
    /// # Errors
    /// If it does not exist yet.
    pub fn world(&mut self) -> Result<&mut World<A>, String> {
        self.world.as_mut().ok_or_else(|| "a story begins with its nodes".to_owned())
    }

    fn slot(&mut self, name: &str) -> Result<ProcessSlot, String> {
        self.world()?.find(name)
    }

    /// Returns the named nodes, or all.
    fn slots(&mut self, names: &[&str]) -> Result<Vec<ProcessSlot>, String> {
        if names == ["all"] {
            return Ok(self.world()?.slots().collect());
        }
        names.iter().map(|name| self.slot(name)).collect()
    }

    /// Moves the entries of the world's trace into the output, so that the script's own lines follow in order.
    fn gather(&mut self) {
        if let Some(world) = &mut self.world {
            self.said.extend(lines(&world.trace.take()));
        }
    }

    fn say(&mut self, line: String) {
        self.gather();
        self.said.push(line);
    }

    fn begin(&mut self, words: &[&str]) -> Result<bool, String> {
        match *words {
            ["seed", seed] => self.seed = seed.parse().map_err(|_| "a seed is a number".to_owned())?,
            ["nodes", ref names @ ..] => {
                let ids: Result<Vec<NodeId>, _> = names.iter().map(|name| NodeId::new(name)).collect();
                let ids = ids.map_err(|error| error.to_string())?;
                let mut trace = self.trace.take().ok_or("the nodes are named once")?;
                if let Some(levels) = self.record {
                    trace.record(levels);
                }
                self.world = Some(World::new(&ids, Conditions::default(), trace, self.seed));
            }
            ["profile", name] => {
                for slot in self.slots(&["all"])? {
                    self.world()?.node_mut(slot).settings.profile(name)?;
                }
                self.judge()?;
            }
            ["set", ref settings @ ..] => self.set(settings)?,
            ["voters", node, "=", ref names @ ..] => {
                let voters: Result<BTreeSet<NodeId>, _> =
                    names.iter().map(|name| NodeId::new(name)).collect();
                let voters = voters.map_err(|error| error.to_string())?;
                for slot in self.slots(&[node])? {
                    self.world()?.node_mut(slot).voters.clone_from(&voters);
                }
            }
            ["latency", "all", delay] => {
                let delay = duration(delay)?;
                self.world()?.network.set_all_delays(delay);
                self.world()?.conditions.delay = delay;
            }
            ["latency", a, b, delay] => {
                let (a, b, delay) = (self.host(a)?, self.host(b)?, duration(delay)?);
                let world = self.world()?;
                world.network.set_delay(a, b, delay);
                world.network.set_delay(b, a, delay);
            }
            ["disk", node, "takes", time] => {
                let latency = duration(time)?;
                for slot in self.slots(&[node])? {
                    self.world()?.node_mut(slot).disk.latency = latency;
                }
            }
            ["start", ref names @ ..] => self.start(names, true)?,
            ["boot", ref names @ ..] => self.start(names, false)?,
            ["elect", node] => self.elect(node)?,
            _ => return self.conditions(words),
        }
        Ok(true)
    }

    fn conditions(&mut self, words: &[&str]) -> Result<bool, String> {
        let Some(World { conditions, .. }) = &mut self.world else { return Ok(false) };
        match *words {
            ["drain", time] => conditions.drain = duration(time)?,
            ["guardian", "takes", time] => conditions.kill = duration(time)?,
            ["reconnect", "after", time] => conditions.reconnect = duration(time)?,
            ["deadlines", "first"] => conditions.deadline_first = true,
            ["work", "writes", "within", time] => conditions.work_writes = Some(duration(time)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn phases(&mut self, words: &[&str]) -> Result<bool, String> {
        match *words {
            ["heal", "all"] => self.world()?.heal_all(),
            ["settle"] => self.settled = self.world()?.wait_for_agreement(None),
            ["settle", "without", node] => {
                let slot = self.slot(node)?;
                self.world()?.wait_for_agreement(Some(slot));
            }
            ["calm"] => self.world()?.calm(true),
            ["calm", "over"] => self.world()?.calm(false),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set(&mut self, words: &[&str]) -> Result<(), String> {
        let (slots, settings) = match words {
            [node, settings @ ..] if !node.contains('=') => (vec![self.slot(node)?], settings),
            settings => (self.slots(&["all"])?, settings),
        };
        for setting in settings {
            let (key, value) = setting.split_once('=').ok_or("a setting is key=value")?;
            for &slot in &slots {
                self.world()?.node_mut(slot).settings.set(key, value)?;
            }
        }
        self.judge()
    }

    /// Makes the invariants of the present settings the only ones that are checked.
    fn judge(&mut self) -> Result<(), String> {
        let world = self.world()?;
        let settings = world.node(ProcessSlot(0)).settings.clone();
        world.judge_by(&settings);
        Ok(())
    }

    fn start(&mut self, names: &[&str], campaigns: bool) -> Result<(), String> {
        for slot in self.slots(names)? {
            let world = self.world()?;
            if world.process(slot).is_some() {
                return Err("it runs already".to_owned());
            }
            world.node_mut(slot).campaigns = campaigns;
            world.start(slot);
        }
        Ok(())
    }

    /// Runs the usual beginning of a script, without showing its messages.
    fn elect(&mut self, node: &str) -> Result<(), String> {
        let leader = self.slot(node)?;
        let shown = self.world()?.trace.kept();
        self.world()?.trace.set_kept(Levels::down_to(Level::Event));
        for slot in self.slots(&["all"])? {
            let world = self.world()?;
            if world.process(slot).is_none() {
                world.node_mut(slot).campaigns = slot == leader;
                world.start(slot);
            }
        }
        self.run_until(|world| {
            let name = world.node(leader).name;
            let running = world.slots().filter(|&slot| world.process(slot).is_some() && world.votes(slot));
            let named = |slot: ProcessSlot| world.node(slot).leader.map(|named| named.identity.node);
            running.map(named).all(|named| named == Some(name))
        })?;
        for slot in self.slots(&["all"])? {
            self.world()?.node_mut(slot).campaigns = true;
            self.world()?.give(slot, Input::Command(Command::Campaign));
        }
        self.gather();
        self.world()?.trace.set_kept(shown);
        Ok(())
    }

    fn pass_time(&mut self, words: &[&str]) -> Result<bool, String> {
        match *words {
            ["advance", time] => {
                let until = self.world()?.now().after(duration(time)?);
                self.world()?.run_until(until);
            }
            ["run", "until", "leader"] => self.run_until(|world| world.leaders().next().is_some())?,
            ["run", "until", "leader", node] => {
                let slot = self.slot(node)?;
                self.run_until(|world| world.leaders().any(|leader| leader == slot))?;
            }
            ["run", "until", "no", "leader"] => self.run_until(|world| world.leaders().next().is_none())?,
            ["run", "until", node, "follows", leader] => {
                let slot = self.slot(node)?;
                let leader = if leader == "nobody" { None } else { Some(self.slot(leader)?) };
                self.run_until(|world| {
                    let named = world.node(slot).leader.map(|named| named.identity.node);
                    named == leader.map(|leader| world.node(leader).name)
                })?;
            }
            ["run", "until", "breach"] => self.run_until(|world| !world.breaches().is_empty())?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Records a command as a deed, by its text, unless the world records it itself.
    fn trace_deed(&mut self, words: &[&str]) {
        let told = match *words {
            ["crash", .., "at", "its", "next", "write"] | ["crash", .., "write", "kept"] => false,
            ["crash" | "restart" | "readmit" | "pause" | "resume" | "heal" | "drained" | "write", ..] => true,
            ["request-resign", ..] | ["store", "delete" | "rewind" | "removes", ..] => true,
            ["store", "ends", "session", ..] | ["client" | "clients" | "operator", ..] => true,
            _ => false,
        };
        let Some(world) = self.world.as_mut().filter(|_| !told) else { return };
        let party = |&word: &&str| match word {
            "store" => Some(Party::Store),
            name => world.find(name).ok().map(|slot| Party::Node(world.node(slot).name)),
        };
        let to: Vec<Party> = words.iter().filter_map(party).collect();
        world.trace_deed(&to, || words.join(" "));
    }

    fn run_until(&mut self, come: impl Fn(&World<A>) -> bool) -> Result<(), String> {
        let world = self.world()?;
        let latest = world.now().after(PATIENCE);
        while !come(world) {
            // A leadership can end between two steps, by the leader's clock.
            let ends = world
                .leaderships
                .in_force(world.now())
                .map(crate::leadership_intervals::LeadershipInterval::until);
            let next = ends.chain(world.next_at()).min().unwrap_or(Moment::NEVER);
            if next > latest {
                return Err(format!("that does not come within {PATIENCE}"));
            }
            if world.next_at() == Some(next) {
                world.step();
            } else {
                world.run_until(next);
            }
        }
        Ok(())
    }
}

impl<A: Algorithm> Script<A> {
    fn carry_out(&mut self, words: &[&str]) -> Result<(), String> {
        let quiet =
            self.begin(words)? || self.pass_time(words)? || self.looks(words)? || self.expect(words)?;
        if quiet {
            return Ok(());
        }
        self.trace_deed(words);
        let known = self.phases(words)?
            || self.node_faults(words)?
            || self.message_faults(words)?
            || self.node_commands(words)?
            || self.client_commands(words)?
            || self.partition_commands(words)?
            || self.store_commands(words)?;
        if known { Ok(()) } else { Err("there is no such command".to_owned()) }
    }
}

impl<A: Algorithm> ScriptHandler for Script<A> {
    /// Carries out a command. A panic counts as a breach, so that both are handled alike. The world stays as the
    /// panic has left it; later events in it prove nothing.
    fn command(&mut self, words: &[&str]) -> Result<(), String> {
        let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(words)));
        done.unwrap_or_else(|panic| {
            let Some(world) = &mut self.world else { resume_unwind(panic) };
            world.breach(PANIC, said(panic.as_ref()));
            Ok(())
        })
    }

    fn output(&mut self) -> Vec<String> {
        self.gather();
        std::mem::take(&mut self.said)
    }

    fn end(&mut self) -> Result<(), String> {
        let breaches = self.world.as_ref().map_or(&[][..], World::breaches);
        let mut broken: BTreeSet<String> =
            breaches.iter().map(|breach| breach.invariant.to_owned()).collect();
        // Many scripts give a machine a valid reason to raise an alarm, and show it in their output.
        if self.expected.contains(ALARM) && self.world.as_ref().is_some_and(|world| world.alarms() > 0) {
            broken.insert(ALARM.to_owned());
        }
        if broken == self.expected {
            return Ok(());
        }
        Err(format!("expected to break {:?}, and {broken:?} broke: {breaches:?}", self.expected))
    }
}

impl<A: Algorithm> Recorded for Script<A> {
    fn record(&mut self, levels: Option<Levels>) {
        self.record = Some(levels);
    }

    fn recorded(&mut self) -> Vec<Entry> {
        self.world.as_mut().map(|world| world.trace.take_recorded()).unwrap_or_default()
    }

    fn unexpected(&self) -> Option<String> {
        let breaches = self.world.as_ref().map_or(&[][..], World::breaches);
        let breach = breaches.iter().find(|breach| !self.expected.contains(breach.invariant))?;
        Some(format!("{} {}: {}", breach.at, breach.invariant, breach.what))
    }
}

/// Returns the message of a panic.
fn said(panic: &(dyn Any + Send)) -> String {
    let said = panic.downcast_ref::<String>().cloned();
    let said = said.or_else(|| panic.downcast_ref::<&str>().map(|said| (*said).to_owned()));
    said.unwrap_or_else(|| "without a word".to_owned())
}
