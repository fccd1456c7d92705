use super::super::on_a_ring::tests::{counted, orders, shuffled};
use super::ChangRoberts;
use crate::rng::Rng;

/// Chang and Roberts 1979: with all starting, 2n − 1 at best, n(n + 1)/2 at worst, and n·Hₙ on the average.
#[test]
fn every_ring_of_seven_or_fewer_takes_as_many_probes_as_the_formula_says() {
    for n in 2..=7_usize {
        let (mut sum, mut rings, mut best, mut worst) = (0, 0_u64, u64::MAX, 0);
        orders(&mut (0..n).collect::<Vec<usize>>(), n, &mut |ring| {
            let (probes, announcements) = counted::<ChangRoberts>(ring, |_| true);
            assert_eq!(announcements, n as u64);
            (sum, rings) = (sum + probes, rings + 1);
            (best, worst) = (best.min(probes), worst.max(probes));
        });
        let n = n as u64;
        assert_eq!((best, worst), (2 * n - 1, n * (n + 1) / 2), "{n}");
        // n! · n · Hₙ is a whole number.
        let expected: u64 = (1..=n).map(|k| rings / k * n).sum();
        assert_eq!(sum, expected, "{n}");
    }
}

/// The probe of each name goes as far as the next higher one, and that of the highest once around.
#[test]
fn a_ring_of_many_takes_as_many_probes_as_its_order_says() {
    let mut rng = Rng::new(1);
    for n in [10, 33, 100] {
        let ring = shuffled(n, &mut rng);
        let way = |from: usize| {
            (1..=n).find(|step| *step == n || ring[(from + step) % n] > ring[from]).unwrap() as u64
        };
        assert_eq!(counted::<ChangRoberts>(&ring, |_| true), ((0..n).map(way).sum(), n as u64));
        let sorted: Vec<usize> = (0..n).collect();
        assert_eq!(counted::<ChangRoberts>(&sorted, |_| true).0, 2 * n as u64 - 1);
        let reversed: Vec<usize> = (0..n).rev().collect();
        assert_eq!(counted::<ChangRoberts>(&reversed, |_| true).0, (n * (n + 1) / 2) as u64);
    }
}

/// If the highest alone starts, its probe goes once around; if another does, it goes to the highest first.
#[test]
fn one_that_starts_alone_wakes_the_others() {
    let ring = [3, 0, 4, 1, 2];
    assert_eq!(counted::<ChangRoberts>(&ring, |place| place == 4), (5, 5));
    // That of 0 goes one hop, to 4.
    assert_eq!(counted::<ChangRoberts>(&ring, |place| place == 0), (6, 5));
    // That of 1 goes to 2, that of 2 to 3, that of 3 to 4.
    assert_eq!(counted::<ChangRoberts>(&ring, |place| place == 1), (1 + 1 + 2 + 5, 5));
}
