//! Formulas for the number of messages: those of the algorithms' authors, and exact counts from the order of a ring.

/// Bully, with the highest of `nodes` names dead, if the node at this rank starts: it and all above it ask the higher
/// nodes; all of these but the dead one answer; and the winner announces itself to all below it.
#[must_use]
pub const fn bully(nodes: usize, starts: usize) -> u64 {
    let asking = (nodes - 1 - starts) as u64;
    asking * (asking + 1) / 2 + asking * (asking - 1) / 2 + nodes as u64 - 2
}

/// Garcia-Molina 1982, in the textbooks' worst case: the lowest starts, the highest is dead.
#[must_use]
pub fn bully_most(nodes: u64) -> f64 {
    let n = nodes as f64;
    n * n - n - 1.0
}

/// Chang and Roberts 1979, if all start: the probe of each name travels to the next higher one, and the probe of the
/// highest once around.
#[must_use]
pub fn ring(ring: &[usize]) -> u64 {
    next_higher(ring, true).map(|way| way.unwrap_or(ring.len()) as u64).sum()
}

/// The mean of [`ring`] over all rings.
#[must_use]
pub fn ring_mean(nodes: u64) -> f64 {
    nodes as f64 * (1..=nodes).map(|k| 1.0 / k as f64).sum::<f64>()
}

/// Hirschberg and Sinclair 1980, if all start. A node that enters a phase has probed all nodes within the previous
/// phase's reach, and found no higher name. A probe travels to the next higher name on its side, or to the phase's
/// reach and then back. The highest needs no answer in the phase whose probes return to it from the other side.
#[must_use]
pub fn ring_bidirectional(ring: &[usize]) -> u64 {
    let n = ring.len();
    let sides = next_higher(ring, true).zip(next_higher(ring, false));
    let of_one = |sides: [Option<usize>; 2]| {
        let mut count = 0;
        for phase in 0..usize::BITS {
            let reach = 1_usize << phase;
            count += sides.map(|higher| way(higher, reach, n)).iter().sum::<usize>();
            if reach >= n || sides.iter().flatten().any(|&step| step <= reach) {
                break;
            }
        }
        count as u64
    };
    sides.map(|(onward, back)| of_one([onward, back])).sum()
}

/// The number of messages of a probe and its answer.
const fn way(higher: Option<usize>, reach: usize, nodes: usize) -> usize {
    match higher {
        Some(step) if step <= reach => step,
        None if reach >= nodes => nodes,
        Some(_) | None => 2 * reach,
    }
}

/// The authors' bound for [`ring_bidirectional`].
#[must_use]
pub fn both_ways_most(nodes: u64) -> f64 {
    8.0 * nodes as f64 * (1.0 + f64::from(phases(nodes)))
}

/// The count if only the highest starts: all its probes are answered, over 1, 2, 4 … nodes and back on both sides,
/// except those of the last phase, which go once around.
#[must_use]
pub fn ring_bidirectional_alone(nodes: usize) -> u64 {
    let reaches = (0..usize::BITS).map(|phase| 1_usize << phase);
    let answered = reaches.take_while(|&reach| reach < nodes).map(|reach| 4 * reach as u64);
    answered.sum::<u64>() + 2 * nodes as u64
}

/// [`ring_bidirectional_alone`] in closed form.
#[must_use]
pub fn both_ways_alone(nodes: u64) -> f64 {
    4.0 * f64::from(1_u32 << phases(nodes)) - 4.0 + 2.0 * nodes as f64
}

/// The count if all start and the names ascend around the ring: each but the highest probes its neighbours and is
/// answered by the lower one, and the highest needs as many messages as if it started alone.
#[must_use]
pub fn both_ways_ascending(nodes: u64) -> f64 {
    both_ways_alone(nodes) + 3.0 * nodes as f64 - 4.0
}

const fn phases(nodes: u64) -> u32 {
    nodes.next_power_of_two().ilog2()
}

/// Returns the distance from each place to the next higher name; `None` for the highest. Linear in the size of the
/// ring, because rings may be long.
fn next_higher(ring: &[usize], onward: bool) -> impl Iterator<Item = Option<usize>> {
    let n = ring.len();
    let at = |place: usize| if onward { ring[place % n] } else { ring[n - 1 - place % n] };
    let mut found = vec![None; n];
    // The places without a higher name so far; the loop goes around twice, so that all find theirs.
    let mut waiting: Vec<usize> = Vec::new();
    for place in 0..2 * n {
        while let Some(&lower) = waiting.last().filter(|&&lower| at(lower) < at(place)) {
            if lower < n {
                found[lower] = Some(place - lower);
            }
            waiting.pop();
        }
        waiting.push(place);
    }
    if !onward {
        found.reverse();
    }
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_higher_name_is_found_on_both_sides() {
        let ring = [3, 0, 4, 1, 2];
        let onward: Vec<_> = next_higher(&ring, true).collect();
        assert_eq!(onward, [Some(2), Some(1), None, Some(1), Some(1)]);
        let back: Vec<_> = next_higher(&ring, false).collect();
        assert_eq!(back, [Some(3), Some(1), None, Some(1), Some(2)]);
    }

    #[test]
    fn the_formulas_are_those_of_the_papers() {
        assert_eq!([bully(5, 0), bully(5, 3)], [19, 4]);
        assert_eq!(ring(&[0, 1, 2, 3]), 7);
        assert_eq!(ring(&[3, 2, 1, 0]), 10);
        assert!((ring_mean(4) - 25.0 / 3.0).abs() < 1e-9);
        assert!((both_ways_most(5) - 160.0).abs() < 1e-9);
        // Phase 0 costs 4, phase 1 costs 8, phase 2 goes around in both directions.
        assert!((both_ways_alone(4) - 20.0).abs() < 1e-9);
        assert_eq!(ring_bidirectional_alone(4), 20);
    }
}
