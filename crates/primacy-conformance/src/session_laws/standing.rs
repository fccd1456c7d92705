//! The laws of the queue: which candidates have entries, which is the first, and with which token.

use super::*;

/// The number of rivals that enter concurrently.
const RIVALS: u64 = 8;

/// An election that no candidate ever entered has no first.
pub async fn where_nobody_stands_nobody_is_first(harness: &dyn SessionsHarness) {
    let store = harness.open("where_nobody_stands_nobody_is_first").await;
    assert_eq!(first(&store).await, None);
    let begun = store.begin(harness.long_timeout()).await.expect("the store is there");
    assert_eq!(first(&store).await, None, "a session is no entry");
    store.end(&begun.session).await.expect("it lives");
}

/// Entering again returns the existing entry, and creates no other.
pub async fn a_session_has_one_entry_however_often_it_stands(harness: &dyn SessionsHarness) {
    let election = "a_session_has_one_entry_however_often_it_stands";
    let (one, two) =
        (Candidate::new(harness, election, "a").await, Candidate::new(harness, election, "b").await);
    let token = one.lead().await;
    for _ in 0..5 {
        assert_eq!(one.lead().await, token, "the same entry");
    }
    two.wait_behind().await;
    two.wait_behind().await;
    one.leave().await;
    let later =
        within(harness, "the other one to be first, for one entry has left", two.become_first()).await;
    assert!(later > token, "{later} after {token}");
    two.leave().await;
    assert_eq!(first(&two.store).await, None, "all entries have left");
}

/// A candidate that abandoned a request and campaigns again still has one entry.
pub async fn an_entry_whose_answer_was_lost_is_found_again(harness: &dyn SessionsHarness) {
    let election = "an_entry_whose_answer_was_lost_is_found_again";
    let candidate = Candidate::new(harness, election, "a").await;
    for micros in [0, 0, 200, 1_000, 5_000] {
        let wait = Duration::from_micros(micros);
        drop(
            tokio::time::timeout(wait, candidate.store.campaign(&candidate.session, &candidate.holder)).await,
        );
    }
    let token = candidate.lead().await;
    assert_eq!(candidate.lead().await, token);
    candidate.leave().await;
    assert_eq!(first(&candidate.store).await, None, "there was one entry");
}

/// The first stays the first, with the same token, however many candidates enter.
pub async fn the_first_stays_the_first_while_others_stand(harness: &dyn SessionsHarness) {
    let election = "the_first_stays_the_first_while_others_stand";
    let leader = Candidate::new(harness, election, "z").await;
    let token = leader.lead().await;
    let expected = Some((leader.holder.identity, token));
    for name in ["a", "m", "zz"] {
        let other = Candidate::new(harness, election, name).await;
        let first = other.wait_behind().await;
        assert_eq!(Some((first.holder.identity, first.token)), expected);
        assert_eq!(first_of(&other.store).await, expected);
        assert_eq!(leader.lead().await, token);
        // Waiting candidates come and go.
        other.leave().await;
    }
}

/// Of the waiting candidates, the oldest is the next.
pub async fn the_oldest_is_the_first(harness: &dyn SessionsHarness) {
    let election = "the_oldest_is_the_first";
    let mut queue = Vec::new();
    for name in ["c", "a", "d", "b"] {
        let candidate = Candidate::new(harness, election, name).await;
        candidate.campaign().await;
        queue.push(candidate);
    }
    let onlooker = harness.open(election).await;
    let mut last = FencingToken(0);
    for candidate in &queue {
        let token = within(harness, "the next to be first", candidate.become_first()).await;
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(first_of(&onlooker).await, Some((candidate.holder.identity, token)));
        candidate.leave().await;
    }
    assert_eq!(first(&onlooker).await, None);
}

/// Other handles see the whole holder: its name, its incarnation, and its address.
pub async fn a_holder_is_shown_whole(harness: &dyn SessionsHarness) {
    let election = "a_holder_is_shown_whole";
    let mut one = Candidate::new(harness, election, "a").await;
    let incarnation = Incarnation { count: u64::MAX, nonce: u64::MAX - 1 };
    let node: NodeId = "x".repeat(NodeId::LENGTH_MAX).parse().expect("a name");
    let address = "[fe80::1%eth0]:7400/ü \"'\\,{}".to_owned();
    one.holder = Holder { identity: Identity::new(node, incarnation), address };
    let token = one.lead().await;
    let two = Candidate::new(harness, election, "b").await;
    let expected = Entry { holder: one.holder.clone(), token };
    assert_eq!(two.wait_behind().await, expected);
    assert_eq!(first(&two.store).await, Some(expected));
}

/// After an answer to one caller, all others see the same state or a later one.
pub async fn a_reader_never_sees_who_was_first_before(harness: &dyn SessionsHarness) {
    let election = "a_reader_never_sees_who_was_first_before";
    let onlookers = [harness.open(election).await, harness.open(election).await];
    let candidate = Candidate::new(harness, election, "a").await;
    for _ in 0..20 {
        let token = candidate.lead().await;
        for onlooker in &onlookers {
            assert_eq!(first_of(onlooker).await, Some((candidate.holder.identity, token)));
        }
        candidate.leave().await;
        for onlooker in &onlookers {
            assert_eq!(first_of(onlooker).await, None, "it has left");
        }
    }
}

/// Of rivals that enter concurrently, exactly one is told that it is the first, and each of them is told so once.
pub async fn of_many_rivals_exactly_one_is_first(harness: &dyn SessionsHarness) {
    let election = "of_many_rivals_exactly_one_is_first";
    let mut rivals = Vec::new();
    for number in 0..RIVALS {
        rivals.push(Arc::new(Candidate::new(harness, election, &format!("rival-{number}")).await));
    }
    let mut last = FencingToken(0);
    while !rivals.is_empty() {
        let standing: Vec<_> =
            rivals.iter().cloned().map(|rival| tokio::spawn(async move { rival.campaign().await })).collect();
        let mut leaders = Vec::new();
        let mut told = Vec::new();
        for (rival, place) in rivals.iter().zip(standing) {
            match place.await.expect("no panic") {
                QueuePosition::First { token, .. } => leaders.push((rival.holder.identity, token)),
                QueuePosition::Behind { first } => told.push((first.holder.identity, first.token)),
            }
        }
        // A store that hands over only at a read may be between two of them.
        let leader = match leaders.as_slice() {
            [leader] => *leader,
            [] => first_of(&rivals[0].store).await.expect("somebody is first"),
            _ => panic!("several are first: {leaders:?}"),
        };
        assert!(told.iter().all(|first| *first == leader), "{told:?}, and {leader:?} is first");
        assert!(leader.1 > last, "{} after {last}", leader.1);
        last = leader.1;
        let place = rivals.iter().position(|rival| rival.holder.identity == leader.0);
        let rival = rivals.remove(place.expect("one of the rivals"));
        rival.leave().await;
        // If waiting candidates are in no queue, there is no next one before all ask again.
        if let Some(rival) = rivals.first().filter(|_| harness.capabilities().ordered) {
            // There is a next one, before all ask again.
            let next = async {
                while first_of(&rival.store).await.is_none_or(|first| first == leader) {
                    tokio::task::yield_now().await;
                }
            };
            within(harness, "somebody to be first", next).await;
        }
    }
}

/// When the first leaves, the next becomes the first, with a higher token; and the former first may campaign again,
/// behind it.
pub async fn leaving_hands_over_to_the_next(harness: &dyn SessionsHarness) {
    let election = "leaving_hands_over_to_the_next";
    let (one, two) =
        (Candidate::new(harness, election, "a").await, Candidate::new(harness, election, "b").await);
    let earlier = one.lead().await;
    two.wait_behind().await;
    one.leave().await;
    let token = within(harness, "the next to be first", two.become_first()).await;
    assert!(token > earlier, "{token} after {earlier}");
    let first = one.wait_behind().await;
    assert_eq!((first.holder.identity, first.token), (two.holder.identity, token));
    two.leave().await;
    assert!(within(harness, "the other one to be first", one.become_first()).await > token);
}

/// Leaving without an entry is no error, and removes no other candidate's entry.
pub async fn leaving_twice_is_leaving_once(harness: &dyn SessionsHarness) {
    let election = "leaving_twice_is_leaving_once";
    let (one, two) =
        (Candidate::new(harness, election, "a").await, Candidate::new(harness, election, "b").await);
    one.leave().await;
    let token = one.lead().await;
    two.leave().await;
    assert_eq!(first_of(&two.store).await, Some((one.holder.identity, token)));
    one.leave().await;
    let token = two.lead().await;
    one.leave().await;
    assert_eq!(two.lead().await, token);
}

/// After the end of a session its entry is gone.
pub async fn ending_a_session_takes_its_entry_along(harness: &dyn SessionsHarness) {
    let election = "ending_a_session_takes_its_entry_along";
    let (one, two) =
        (Candidate::new(harness, election, "a").await, Candidate::new(harness, election, "b").await);
    let earlier = one.lead().await;
    two.wait_behind().await;
    one.store.end(&one.session).await.expect("it lives");
    let token = within(harness, "the next to be first", two.become_first()).await;
    assert!(token > earlier, "{token} after {earlier}");
}

/// The same if the session goes on, because another election of the process shares it; a candidate that begins anew
/// does so at the end of the queue.
pub async fn ending_takes_the_entry_along_also_where_others_share_the_session(harness: &dyn SessionsHarness) {
    let (election, other) = ("ending_takes_the_entry_along_shared", "ending_takes_the_entry_along_other");
    let mut one = Candidate::new(harness, election, "a").await;
    let sharing = Candidate::new(harness, other, "a").await;
    let (earlier, kept) = (one.lead().await, sharing.lead().await);
    one.store.end(&one.session).await.expect("it lives");
    let onlooker = harness.open(election).await;
    assert_eq!(first(&onlooker).await, None, "its entry has gone with it");
    sharing.store.keep_alive(&sharing.session).await.expect("the other election's session lives");
    assert_eq!(sharing.lead().await, kept, "nothing has happened to the other election");
    one.session = one.store.begin(harness.long_timeout()).await.expect("the store is there").session;
    let token = one.lead().await;
    assert!(token > earlier, "{token} after {earlier}");
}

/// Every request of an ended session is answered as such, and none revives it.
pub async fn an_ended_session_is_told_as_ended(harness: &dyn SessionsHarness) {
    let election = "an_ended_session_is_told_as_ended";
    let one = Candidate::new(harness, election, "a").await;
    one.lead().await;
    one.store.end(&one.session).await.expect("it lives");
    for _ in 0..2 {
        is_ended(one.store.keep_alive(&one.session).await);
        is_ended(one.store.campaign(&one.session, &one.holder).await);
        is_ended(one.store.leave(&one.session).await);
    }
    // Both answers are correct: the session has ended.
    match one.store.end(&one.session).await {
        Ok(()) | Err(SessionError::Ended { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(first(&one.store).await, None, "nothing has made an entry");
}

/// A request of an ended session does not affect a later session of the same handle.
pub async fn an_ended_session_touches_no_later_one(harness: &dyn SessionsHarness) {
    let election = "an_ended_session_touches_no_later_one";
    let mut one = Candidate::new(harness, election, "a").await;
    let earlier = one.lead().await;
    one.store.end(&one.session).await.expect("it lives");
    let begun = one.store.begin(harness.long_timeout()).await.expect("the store is there");
    let ended = std::mem::replace(&mut one.session, begun.session);
    assert_ne!(ended, one.session);
    let token = one.lead().await;
    assert!(token > earlier, "{token} after {earlier}");
    is_ended(one.store.leave(&ended).await);
    is_ended(one.store.keep_alive(&ended).await);
    drop(one.store.end(&ended).await);
    assert_eq!(one.lead().await, token, "its entry is untouched");
    one.store.keep_alive(&one.session).await.expect("its session is untouched");
}

/// Every new entry has a higher token, even if the queue was empty in between.
pub async fn tokens_grow_across_leaving_and_ending(harness: &dyn SessionsHarness) {
    let election = "tokens_grow_across_leaving_and_ending";
    let mut last = FencingToken(0);
    for round in 0..6 {
        let candidate = Candidate::new(harness, election, &format!("n{round}")).await;
        for _ in 0..2 {
            let token = candidate.lead().await;
            assert!(token > last, "{token} after {last}");
            last = token;
            candidate.leave().await;
        }
        let token = candidate.lead().await;
        assert!(token > last, "{token} after {last}");
        last = token;
        candidate.store.end(&candidate.session).await.expect("it lives");
        assert_eq!(first(&candidate.store).await, None, "nobody is left");
    }
}

/// No restart brings an old token back.
pub async fn tokens_grow_across_restart_of_everything(harness: &dyn SessionsHarness) {
    let election = "tokens_grow_across_restart_of_everything";
    let mut last = FencingToken(0);
    for round in 0..2 {
        let candidate = Candidate::new(harness, election, &format!("n{round}")).await;
        let token = within(harness, "it to be the first", candidate.become_first()).await;
        assert!(token > last, "{token} after {last}");
        last = token;
        candidate.store.end(&candidate.session).await.expect("it lives");
        drop(candidate);
        harness.restart().await;
    }
}

/// An entry is removed when its session was not kept alive for its timeout, and no sooner; and its holder learns of
/// it.
pub async fn a_session_that_is_not_kept_alive_ends_in_time_and_not_before(harness: &dyn SessionsHarness) {
    let election = "a_session_that_is_not_kept_alive_ends_in_time_and_not_before";
    let onlooker = harness.open(election).await;
    let one = Candidate::with(harness, election, "a", harness.short_timeout()).await;
    let token = one.lead().await;
    let stalls = Stalls::watch();
    let asked_at = Instant::now();
    let timeout = one.store.keep_alive(&one.session).await.expect("it lives");
    assert!(!timeout.is_zero(), "a session lasts");
    // An upper bound: the store may count from the moment at which it has answered.
    let answered_at = Instant::now();
    let seen = Some((one.holder.identity, token));
    let mut seen_at = Instant::now();
    let gone = async {
        loop {
            let look_at = Instant::now();
            if first_of(&onlooker).await != seen {
                return Instant::now();
            }
            seen_at = look_at;
            tokio::time::sleep(timeout / 100).await;
        }
    };
    let patience = harness.patience() + timeout;
    let gone_at = tokio::time::timeout(patience, gone).await.expect("an entry without a life goes");
    let lasted = gone_at.saturating_duration_since(asked_at);
    assert!(lasted >= timeout, "it was promised {timeout:?}, and gone after {lasted:?}");
    // At the last read that returned it, it existed; the read that found it gone may have been delayed.
    let bound = harness.expiry_bound();
    assert_within(&stalls, timeout + bound, (answered_at, seen_at));
    is_ended(one.store.keep_alive(&one.session).await);
    is_ended(one.store.campaign(&one.session, &one.holder).await);
}

/// A session with a keep-alive each third of its timeout goes on, and so does its entry.
pub async fn a_session_that_is_kept_alive_lasts(harness: &dyn SessionsHarness) {
    let election = "a_session_that_is_kept_alive_lasts";
    let stalls = Stalls::watch();
    let one = Candidate::with(harness, election, "a", harness.short_timeout()).await;
    let token = one.lead().await;
    let began = Instant::now();
    let mut timeout = one.store.keep_alive(&one.session).await.expect("it lives");
    while began.elapsed() < timeout * 3 {
        tokio::time::sleep(timeout / 3).await;
        let stalled = stalls.in_the_latest(timeout);
        match one.store.keep_alive(&one.session).await {
            Ok(next) => timeout = next,
            Err(error) if stalled > timeout / 3 => {
                return println!("this machine stood still for {stalled:?}, so nothing is known: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(one.lead().await, token);
}

/// A guardian evicts the dead incarnation, and no other incarnation of the same node.
pub async fn evicting_takes_that_life_and_no_other(harness: &dyn SessionsHarness) {
    let election = "evicting_takes_that_life_and_no_other";
    let (one, two) =
        (Candidate::new(harness, election, "a").await, Candidate::new(harness, election, "b").await);
    let guardian = harness.open(election).await;
    let evict = async |dead: &Holder| guardian.evict(&dead.identity).await.expect("the store is there");
    assert!(!evict(&one.holder).await, "nobody stands");
    let earlier = one.lead().await;
    two.wait_behind().await;
    assert!(!evict(&holder("a", 2)).await, "another life");
    assert!(!evict(&holder("c", 1)).await, "another node");
    assert_eq!(one.lead().await, earlier);
    assert!(evict(&one.holder).await);
    let token = within(harness, "the next to be first", two.become_first()).await;
    assert!(token > earlier, "{token} after {earlier}");
    assert!(!evict(&one.holder).await, "it is gone");
    assert_eq!(two.lead().await, token);
    if !harness.capabilities().ordered {
        return; // One that waits has nothing in the store.
    }
    // The entry of a waiting candidate is evicted too.
    let three = Candidate::new(harness, election, "c").await;
    three.wait_behind().await;
    assert!(evict(&three.holder).await);
    two.leave().await;
    assert_eq!(first(&guardian).await, None);
}

/// Two handles on one election are two candidates, even within one process.
pub async fn two_handles_have_two_sessions(harness: &dyn SessionsHarness) {
    let election = "two_handles_have_two_sessions";
    let (one, two) =
        (Candidate::new(harness, election, "a").await, Candidate::new(harness, election, "a").await);
    assert_ne!(one.session, two.session);
    let token = one.lead().await;
    assert_eq!(two.wait_behind().await.token, token);
    two.store.end(&two.session).await.expect("it lives");
    assert_eq!(one.lead().await, token);
    one.store.keep_alive(&one.session).await.expect("its session is its own");
}

/// An event in one election is not visible in another one, however similar its name.
pub async fn queues_of_elections_do_not_touch_each_other(harness: &dyn SessionsHarness) {
    let names =
        ["Queue", "queue", "queue ", "queue/a", "queue%2Fa", "queue.a", "queue_a", "q", "é", "e\u{301}"];
    let mut candidates = Vec::new();
    for name in names {
        let candidate = Candidate::new(harness, name, "a").await;
        assert_eq!(first(&candidate.store).await, None, "{name:?}");
        let token = candidate.lead().await;
        candidates.push((name, candidate, token));
    }
    for (name, candidate, token) in &candidates {
        assert_eq!(candidate.lead().await, *token, "{name:?}");
        candidate.leave().await;
        assert_eq!(first(&candidate.store).await, None, "{name:?}");
    }
}

/// The first learns that it was asked to resign; no other candidate does, and no later leadership.
pub async fn a_request_to_resign_reaches_the_first_and_nobody_else(harness: &dyn SessionsHarness) {
    let election = "a_request_to_resign_reaches_the_first_and_nobody_else";
    let (one, two) =
        (Candidate::new(harness, election, "a").await, Candidate::new(harness, election, "b").await);
    let operator = harness.open(election).await;
    let ask = async |token| operator.ask_to_resign(token, "ops").await.expect("the store is there");
    assert!(!ask(FencingToken(1)).await, "nobody stands");
    let earlier = one.lead().await;
    two.wait_behind().await;
    assert!(!ask(FencingToken(earlier.0 + 1)).await, "another leadership");
    assert_eq!(one.campaign().await, QueuePosition::First { token: earlier, asked_to_resign: false });
    assert!(ask(earlier).await);
    assert!(ask(earlier).await, "it may be repeated");
    assert_eq!(one.campaign().await, QueuePosition::First { token: earlier, asked_to_resign: true });
    one.leave().await;
    let token = within(harness, "the next to be first", two.become_first()).await;
    assert_eq!(two.campaign().await, QueuePosition::First { token, asked_to_resign: false });
    assert!(!ask(earlier).await, "that leadership is over");
    assert_eq!(two.campaign().await, QueuePosition::First { token, asked_to_resign: false });
}

/// An entry that an operator has removed does not come back: campaigning again makes another one, with a higher token.
pub async fn an_entry_that_was_removed_is_made_anew_with_a_higher_token(harness: &dyn SessionsHarness) {
    let election = "an_entry_that_was_removed_is_made_anew_with_a_higher_token";
    let one = Candidate::new(harness, election, "a").await;
    let earlier = one.lead().await;
    harness.remove_first(election).await;
    let onlooker = harness.open(election).await;
    assert_eq!(first(&onlooker).await, None);
    let token = within(harness, "it to be first again", one.become_first()).await;
    assert!(token > earlier, "{token} after {earlier}");
}
