//! Every election under the laws, on its simulated and its live arms.

use primacy_conformance::Outcome;
use primacy_conformance::elections::{ElectionHarness, LAWS, check, simulated};

#[tokio::test]
async fn simulated_elections_keep_the_laws() {
    for seed in 1..=20 {
        let arms: [Box<dyn ElectionHarness>; 2] =
            [Box::new(simulated::quorum(seed)), Box::new(simulated::lease(seed))];
        for mut arm in arms {
            let outcomes = check(&mut *arm).await;
            assert_eq!(outcomes, LAWS.map(|law| (law.name, Outcome::Passed)), "{} {seed}", arm.name());
        }
    }
}
