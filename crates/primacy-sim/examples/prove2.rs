//! x
use primacy_sim::model::lease::{Contenders, Space};
use primacy_sim::model::search::search;
use primacy_sim::model::mark::Marks;
fn main() {
    let arg = |i: usize, d: u8| std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(d);
    let space = Space { candidates: arg(1, 2), writes: arg(2, 4), unknowns: arg(3, 0), crashes: arg(4, 0), resignations: arg(5,0), deletions: arg(6,0), rate_max: arg(7,1), drift_percent: u32::from(arg(8,0)), duration: arg(9,2), guardians: arg(10,0)==1, guardian_deaths: arg(11,0), initialised: arg(12,1)==1, ..Space::CALM };
    let mut model = Contenders::new(space);
    let t = std::time::Instant::now();
    let found = search(&mut model, 200_000_000);
    let s = t.elapsed().as_secs_f64();
    println!("{} states {} steps {} cut depth {} complete {} in {s:.1}s = {:.0}/s", found.states, found.steps, found.cut, found.depth, found.complete, found.states as f64 / s);
    println!("reached {:?}", Marks::NAMES.iter().filter(|(b,_)| found.reached & b != 0).map(|x| x.1).collect::<Vec<_>>());
    if let Some(b) = found.broken { println!("BROKEN {}", b.invariant); for s in b.story { println!("{}", s.join("\n      ")); } }
}
