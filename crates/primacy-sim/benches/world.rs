//! Benchmark of the world: simulated time against real time, and inputs handled by machines per second.
//!
//! `cargo bench -p primacy-sim --bench world`
//!
//! Five nodes of the quorum election with heartbeats of 100 ms; packets are lost, doubled and delayed by chance, and
//! every ten seconds the leader crashes, is cut off or is paused, in turn.

use std::time::Instant;

use primacy_core::{Duration, NodeId};
use primacy_sim::disk::MetByCrash;
use primacy_sim::elections::quorum::Quorum;
use primacy_sim::network::Chance;
use primacy_sim::trace::Trace;
use primacy_sim::world::faults::Crash;
use primacy_sim::world::{Conditions, World};

/// The length of each run in simulated seconds, and the number of runs.
const SECONDS: u64 = 20_000;
const RUNS: usize = 9;

fn main() {
    let mut rates: Vec<(f64, f64)> = (0..RUNS).map(|run| measure(run as u64)).collect();
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, middle, last) = (rates[0], rates[RUNS / 2], rates[RUNS - 1]);
    println!(
        "simulated time against real time   min {:>7.0}   median {:>7.0}   max {:>7.0}",
        first.0, middle.0, last.0
    );
    println!(
        "inputs handled in a second         min {:>7.0}   median {:>7.0}   max {:>7.0}",
        first.1, middle.1, last.1
    );
}

fn measure(seed: u64) -> (f64, f64) {
    let names: Vec<NodeId> =
        ["a", "b", "c", "d", "e"].iter().map(|name| NodeId::new(name).expect("a name")).collect();
    let mut world = World::<Quorum>::new(&names, Conditions::default(), Trace::keeping(&[]), seed);
    world.network.chance =
        Chance { lost: 10_000, doubled: 10_000, delayed: 10_000, delay_max: Duration::from_millis(200) };
    for slot in world.slots() {
        let settings = &mut world.node_mut(slot).settings;
        settings.heartbeat_interval = Duration::from_millis(100);
        settings.promise_duration = Duration::from_millis(500);
        world.start(slot);
    }
    let started = Instant::now();
    for second in (0..SECONDS).step_by(10) {
        let end = world.now().after(Duration::from_secs(8));
        world.run_until(end);
        let Some(leader) = world.leaders().next() else { continue };
        match second / 10 % 3 {
            0 => world.crash(leader, Crash::Process, MetByCrash::Kept),
            1 => world.pause(leader),
            _ => {
                let alone = world.host(leader);
                for other in world.slots().filter(|&other| other != leader) {
                    let other = world.host(other);
                    world.network.set_cut(alone, other, true);
                    world.network.set_cut(other, alone, true);
                }
            }
        }
        let end = world.now().after(Duration::from_secs(2));
        world.run_until(end);
        world.network.heal();
        world.resume(leader);
        world.restart(leader, false);
        world.connect_all();
    }
    let real = started.elapsed().as_secs_f64();
    assert!(world.breaches().is_empty(), "{:?}", world.breaches());
    assert!(world.leaderships.count > SECONDS / 20, "{} leaderships", world.leaderships.count);
    #[allow(clippy::cast_precision_loss)]
    (SECONDS as f64 / real, world.handled() as f64 / real)
}
