use super::super::on_a_ring::tests::{counted, orders, shuffled};
use super::HirschbergSinclair;
use crate::rng::Rng;

/// The number of probes and answers, from the order of the ring alone: a node that gets into a phase has asked all
/// names within the reach of the one before, and found none that is higher. A question goes as far as the next higher
/// name on its side, or as far as the reach of the phase, and then comes back. The highest name needs no answer in the
/// phase whose questions come back to it from the other side.
fn expected(ring: &[usize]) -> u64 {
    let n = ring.len();
    let next_higher = |from: usize, onward: bool| {
        let place = |step| if onward { (from + step) % n } else { (from + n - step) % n };
        (1..n).find(|&step| ring[place(step)] > ring[from])
    };
    let mut count = 0;
    for from in 0..n {
        let sides = [next_higher(from, true), next_higher(from, false)];
        for phase in 0.. {
            let reach = 1_usize << phase;
            count += sides
                .iter()
                .map(|higher| match higher {
                    Some(step) if *step <= reach => *step,
                    None if reach >= n => n,
                    Some(_) | None => 2 * reach,
                })
                .sum::<usize>();
            if reach >= n || sides.iter().flatten().any(|step| *step <= reach) {
                break;
            }
        }
    }
    count as u64
}

/// Hirschberg and Sinclair 1980: at most 8n(1 + ⌈log₂ n⌉).
fn bound(n: usize) -> u64 {
    8 * n as u64 * u64::from(1 + n.next_power_of_two().ilog2())
}

#[test]
fn every_ring_of_seven_or_fewer_takes_as_many_probes_as_its_order_says() {
    for n in 2..=7 {
        orders(&mut (0..n).collect::<Vec<usize>>(), n, &mut |ring| {
            let (probes, announcements) = counted::<HirschbergSinclair>(ring, |_| true);
            assert_eq!((probes, announcements), (expected(ring), n as u64), "{ring:?}");
            assert!(probes <= bound(n), "{ring:?} takes {probes}");
        });
    }
}

#[test]
fn a_ring_of_many_takes_as_many_probes_as_its_order_says() {
    let mut rng = Rng::new(1);
    for n in [8, 9, 31, 32, 33, 100, 257] {
        for _ in 0..5 {
            let ring = shuffled(n, &mut rng);
            let (probes, announcements) = counted::<HirschbergSinclair>(&ring, |_| true);
            assert_eq!((probes, announcements), (expected(&ring), n as u64), "{ring:?}");
            assert!(probes <= bound(n), "{n} take {probes}");
        }
    }
}

/// In phase k > 0 there are at most ⌊n / (2ᵏ⁻¹ + 1)⌋ candidates, for each is the highest within 2ᵏ⁻¹ on both sides;
/// each of them takes at most 4 · 2ᵏ messages. The sum over the phases is below the bound of the authors.
#[test]
fn the_phases_add_up_to_less_than_the_bound() {
    for n in 2..=20_000_usize {
        let phases = n.next_power_of_two().ilog2();
        let later: usize = (1..=phases).map(|phase| n / ((1 << (phase - 1)) + 1) * 4 * (1 << phase)).sum();
        assert!((4 * n + later) as u64 <= bound(n), "{n}");
    }
}

/// Whichever node starts, the highest leads, and the bound holds.
#[test]
fn one_that_starts_alone_wakes_the_others() {
    for n in 2..=5 {
        orders(&mut (0..n).collect::<Vec<usize>>(), n, &mut |ring| {
            for starts in 0..n {
                let (probes, announcements) = counted::<HirschbergSinclair>(ring, |place| place == starts);
                assert_eq!(announcements, n as u64, "{ring:?}, {starts}");
                assert!(probes <= bound(n), "{ring:?} takes {probes}");
            }
        });
    }
}
