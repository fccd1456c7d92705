//! The laws of waiting: which handles a change wakes, and within which time.

use super::*;

/// The number of measurements.
const ROUNDS: u32 = 10;
/// The minimum duration of a wait without a wake-up.
const REST: Duration = Duration::from_millis(50);
/// The number of allowed spurious wake-ups.
const VAIN_MAX: u32 = 20;

/// The candidate behind the first is woken when the first leaves, within the documented bound.
pub async fn changed_wakes_the_next_when_the_first_goes(harness: &dyn SessionsHarness) {
    let election = "changed_wakes_the_next_when_the_first_goes";
    let stalls = Stalls::watch();
    let mut leader = Candidate::new(harness, election, "a").await;
    leader.lead().await;
    for round in 0..ROUNDS {
        let next = Candidate::new(harness, election, &format!("n{round}")).await;
        next.wait_behind().await;
        if round % 3 == 0 {
            // Polled, dropped, and polled again later.
            drop(tokio::time::timeout(Duration::ZERO, next.store.changed()).await);
        }
        let waiting = tokio::spawn(async move {
            next.become_first().await;
            (Instant::now(), next)
        });
        tokio::task::yield_now().await;
        match round % 2 {
            0 => leader.leave().await,
            _ => leader.store.end(&leader.session).await.expect("it lives"),
        }
        let left_at = Instant::now();
        let (woken_at, next) = within(harness, "the next to be woken", waiting).await.expect("no panic");
        assert_within(&stalls, harness.change_bound(), (left_at, woken_at));
        leader = next;
    }
}

/// An observer is woken when another candidate becomes the first.
pub async fn changed_wakes_an_onlooker(harness: &dyn SessionsHarness) {
    let election = "changed_wakes_an_onlooker";
    let stalls = Stalls::watch();
    let onlooker = harness.open(election).await;
    let mut known = first_of(&onlooker).await;
    let one = Candidate::new(harness, election, "a").await;
    for round in 0..ROUNDS {
        let (store, before) = (Arc::clone(&onlooker), known);
        let waiting = tokio::spawn(async move {
            loop {
                let seen = first_of(&store).await;
                if seen != before {
                    return (Instant::now(), seen);
                }
                store.changed().await;
            }
        });
        tokio::task::yield_now().await;
        match round % 2 {
            0 => drop(one.lead().await),
            _ => one.leave().await,
        }
        let changed_at = Instant::now();
        let (woken_at, seen) = within(harness, "the onlooker to be woken", waiting).await.expect("no panic");
        assert_within(&stalls, harness.change_bound(), (changed_at, woken_at));
        known = seen;
    }
}

/// The first learns that its entry was removed, even if no other candidate is in the queue.
pub async fn changed_wakes_the_first_whose_entry_is_removed(harness: &dyn SessionsHarness) {
    let election = "changed_wakes_the_first_whose_entry_is_removed";
    let stalls = Stalls::watch();
    let one = Candidate::new(harness, election, "a").await;
    let earlier = one.lead().await;
    let waiting = tokio::spawn(async move {
        loop {
            one.store.changed().await;
            let token = one.lead().await;
            if token != earlier {
                return (Instant::now(), token);
            }
        }
    });
    tokio::task::yield_now().await;
    harness.remove_first(election).await;
    let removed_at = Instant::now();
    let (woken_at, token) = within(harness, "the first to be woken", waiting).await.expect("no panic");
    assert_within(&stalls, harness.change_bound(), (removed_at, woken_at));
    assert!(token > earlier, "{token} after {earlier}");
}

/// The first learns that it was asked to resign.
pub async fn changed_wakes_the_first_that_is_asked_to_resign(harness: &dyn SessionsHarness) {
    let election = "changed_wakes_the_first_that_is_asked_to_resign";
    let stalls = Stalls::watch();
    let one = Candidate::new(harness, election, "a").await;
    let token = one.lead().await;
    let waiting = tokio::spawn(async move {
        while one.campaign().await != (QueuePosition::First { token, asked_to_resign: true }) {
            one.store.changed().await;
        }
        Instant::now()
    });
    tokio::task::yield_now().await;
    let operator = harness.open(election).await;
    assert!(operator.ask_to_resign(token, "ops").await.expect("the store is there"));
    let asked_at = Instant::now();
    let woken_at = within(harness, "the first to be woken", waiting).await.expect("no panic");
    assert_within(&stalls, harness.change_bound(), (asked_at, woken_at));
}

/// After a read, a wait does not end at once: a caller that reads after every wake-up does not spin. Keep-alives wake
/// no waiter, and neither do candidates that enter behind it.
pub async fn changed_rests_while_nothing_changes(harness: &dyn SessionsHarness) {
    let election = "changed_rests_while_nothing_changes";
    let (one, two) =
        (Candidate::new(harness, election, "a").await, Candidate::new(harness, election, "b").await);
    let onlooker = harness.open(election).await;
    drop(first(&onlooker).await);
    let look = || {
        let store = Arc::clone(&onlooker);
        Box::pin(async move { drop(first(&store).await) }) as Pending<'static, ()>
    };
    assert!(rests(&onlooker, &look).await, "where nobody stands");
    one.lead().await;
    two.wait_behind().await;
    let campaign = |candidate: &Candidate| {
        let (store, session, holder) =
            (Arc::clone(&candidate.store), candidate.session.clone(), candidate.holder.clone());
        Box::pin(async move { drop(store.campaign(&session, &holder).await) }) as Pending<'static, ()>
    };
    for candidate in [&one, &two] {
        candidate.store.keep_alive(&candidate.session).await.expect("it lives");
        assert!(rests(&candidate.store, &|| campaign(candidate)).await, "{}", candidate.holder.identity);
    }
    drop(first(&onlooker).await);
    assert!(rests(&onlooker, &look).await, "where somebody is first");
}

/// The same for a former first that is now an observer, because its entry was removed and its session may have ended.
pub async fn changed_rests_for_whoever_has_lost_its_entry(harness: &dyn SessionsHarness) {
    let election = "changed_rests_for_whoever_has_lost_its_entry";
    let one = Candidate::new(harness, election, "a").await;
    one.lead().await;
    let guardian = harness.open(election).await;
    assert!(guardian.evict(&one.holder.identity).await.expect("the store is there"), "it had an entry");
    within(harness, "the first to be woken", one.store.changed()).await;
    let look = || {
        let store = Arc::clone(&one.store);
        Box::pin(async move { drop(first(&store).await) }) as Pending<'static, ()>
    };
    assert!(rests(&one.store, &look).await, "where nobody stands");
    let two = Candidate::new(harness, election, "b").await;
    two.lead().await;
    look().await;
    assert!(rests(&one.store, &look).await, "where another one is first");
}

async fn rests(store: &Arc<dyn Sessions>, look: &(dyn Fn() -> Pending<'static, ()> + Sync)) -> bool {
    for _ in 0..VAIN_MAX {
        if tokio::time::timeout(REST, store.changed()).await.is_err() {
            return true;
        }
        look().await;
    }
    false
}
