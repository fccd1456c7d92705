use primacy_sim::model::quorum::{Peers, Space};
use primacy_sim::model::search::search;
use primacy_sim::model::mark::Marks;
fn main() {
    let arg = |i: usize, d: u8| std::env::args().nth(i).and_then(|a| a.parse().ok()).unwrap_or(d);
    let space = Space { candidates: arg(1, 3), terms: arg(2, 2), rounds: arg(3, 2), safety: if arg(4,0)==1 { primacy_core::election::quorum::Safety::Lease} else {primacy_core::election::quorum::Safety::Fenced}, crashes: arg(5, 0), rate_max: arg(6, 1),drift_percent: (u32::from(arg(6,1))-1)*100,refusals: arg(11,0)==1, pre_vote: arg(10,0)==1, timers: primacy_sim::model::quorum::Timers { heartbeat: arg(7, 1), misses: 1, promise: arg(9,1), round: arg(8, 1) }, ..Space::CALM };
    let mut model = Peers::new(space);
    let t = std::time::Instant::now();
    let found = search(&mut model, 200_000_000);
    let s = t.elapsed().as_secs_f64();
    println!("{} states {} steps {} cut depth {} complete {} in {s:.1}s = {:.0}/s; {:?}", found.states, found.steps, found.cut, found.depth, found.complete, found.states as f64 / s, model.counts());
    println!("reached {:?}", Marks::NAMES.iter().filter(|(b,_)| found.reached & b != 0).map(|x| x.1).collect::<Vec<_>>());
    if let Some(b) = found.broken { println!("BROKEN {}", b.invariant); for s in b.story { println!("{}", s.join("\n      ")); } }
}
