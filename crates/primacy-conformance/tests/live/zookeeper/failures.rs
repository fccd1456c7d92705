//! The failures between a candidate and three servers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use primacy_conformance::live::zookeeper::{Middle, ZooKeeper};
use primacy_core::election::session::{QueuePosition, SessionId};
use primacy_stores::{SessionError, Sessions};
use zookeeper_client::Client;

use super::{Kept, POLL, TIMEOUT, become_first, begin, begin_with, catch_up, holder, open, open_at, soon};

/// A session that outlives a change of the servers' leader on a machine that is busy.
const LONG: Duration = Duration::from_secs(20);

pub(crate) async fn a_lost_answer_leaves_one_entry(ensemble: &ZooKeeper) {
    let middle = Middle::before(&ensemble.address(0)).await;
    let a = open_at(middle.address(), "lost").await;
    let of_a = begin(&*a).await;
    // Made by a request before, so that the next one makes the entry.
    drop(a.campaign(&of_a, &holder("a")).await.expect("a place"));
    a.leave(&of_a).await.expect("it leaves");
    middle.lose_next_create();
    let lost = a.campaign(&of_a, &holder("a")).await;
    assert!(matches!(lost, Err(SessionError::NoAnswer { .. })), "{lost:?}");
    soon(middle.has_lost()).await;
    let token = become_first(&*a, &of_a, &holder("a")).await.expect("it finds its own");
    let client = Client::connect(&ensemble.addresses()).await.expect("a server");
    catch_up(&client, "/live/lost").await;
    let names = client.list_children("/live/lost").await.expect("the election's znode");
    let [name] = names.as_slice() else { panic!("{names:?}") };
    let stat =
        client.check_stat(&format!("/live/lost/{name}")).await.expect("an answer").expect("it is there");
    assert_eq!(stat.czxid.cast_unsigned(), token.0);
    // And an entry that is not wanted any more, though it is unknown whether it is there.
    a.leave(&of_a).await.expect("it leaves");
    middle.lose_next_create();
    assert!(a.campaign(&of_a, &holder("a")).await.is_err());
    let left = async {
        while a.leave(&of_a).await.is_err() {
            tokio::time::sleep(POLL).await;
        }
    };
    soon(left).await;
    catch_up(&client, "/live/lost").await;
    assert_eq!(client.list_children("/live/lost").await.expect("the election's znode"), [""; 0]);
}

pub(crate) async fn a_session_that_the_servers_have_ended_is_told_as_ended(ensemble: &ZooKeeper) {
    let middle = Middle::before(&ensemble.address(0)).await;
    let a = open_at(middle.address(), "expired").await;
    let b = open(ensemble, "expired").await;
    let (of_a, of_b) = (begin(&*a).await, begin(&*b).await);
    let _kept = Kept::new(&b, &of_b);
    let earlier = become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
    assert!(matches!(b.campaign(&of_b, &holder("b")).await, Ok(QueuePosition::Behind { .. })));
    let called_at = Instant::now();
    let kept = a.keep_alive(&of_a).await.expect("its session lives");
    middle.be_silent();
    let later =
        become_first(&*b, &of_b, &holder("b")).await.expect("the servers have ended the other session");
    assert!(called_at.elapsed() >= kept, "before the time that the servers had promised");
    assert!(later > earlier);
    middle.speak();
    let ended = async {
        loop {
            match a.keep_alive(&of_a).await {
                Err(SessionError::Ended { .. }) => return,
                Err(SessionError::NoAnswer { .. }) => tokio::time::sleep(POLL).await,
                Err(SessionError::Refused { .. }) | Ok(_) => panic!("another one leads"),
            }
        }
    };
    soon(ended).await;
    assert!(matches!(a.campaign(&of_a, &holder("a")).await, Err(SessionError::Ended { .. })));
    soon(a.changed()).await;
    let again = begin(&*a).await;
    assert_ne!(again, of_a);
    assert!(matches!(a.campaign(&again, &holder("a")).await, Ok(QueuePosition::Behind { .. })));
}

pub(crate) async fn a_cut_session_is_counted_on_no_longer(mut ensemble: ZooKeeper) {
    let a = open_at(&ensemble.address(0), "cut").await;
    let of_a = begin_with(&*a, LONG).await;
    ensemble.kill(0);
    ensemble.session_max = u32::try_from(TIMEOUT.as_millis()).expect("some seconds");
    ensemble.restart(0);
    ensemble.serves().await;
    let kept = async {
        loop {
            match a.keep_alive(&of_a).await {
                Ok(kept) => return kept,
                Err(SessionError::NoAnswer { .. }) => tokio::time::sleep(POLL).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let kept = soon(kept).await;
    assert!(kept <= TIMEOUT, "{kept:?}");
}

/// ClickHouse Keeper does that: it answers a client whose session has expired with a new one.
pub(crate) async fn another_session_under_the_same_connection_is_noticed(ensemble: &ZooKeeper) {
    let middle = Middle::before(&ensemble.address(0)).await;
    let a = open_at(middle.address(), "replaced").await;
    let of_a = begin(&*a).await;
    become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
    middle.forget_sessions();
    middle.cut();
    let mut answers = 0;
    let noticed = async {
        loop {
            match a.keep_alive(&of_a).await {
                Err(SessionError::Ended { why }) => return why,
                Err(SessionError::NoAnswer { .. }) => tokio::time::sleep(POLL).await,
                Err(SessionError::Refused { why }) => panic!("{why}"),
                Ok(_) => answers += 1,
            }
        }
    };
    let why = soon(noticed).await;
    assert!(why.contains("another session"), "{why}");
    // One may have been answered before the connection was cut.
    assert!(answers <= 1, "{answers} keep-alives of another session were taken for its own");
    assert!(matches!(a.campaign(&of_a, &holder("a")).await, Err(SessionError::Ended { .. })));
}

/// Even where the server that has answered dies at once, and with it what it has not passed on to the others.
pub(crate) async fn the_servers_wait_as_long_as_was_promised(ensemble: &mut ZooKeeper) {
    for which in 0..3 {
        let a = open_at(&ensemble.address(which), "promised").await;
        let others = open(ensemble, "promised").await;
        let (of_a, of_others) = (begin(&*a).await, begin_with(&*others, LONG).await);
        become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
        assert!(matches!(others.campaign(&of_others, &holder("b")).await, Ok(QueuePosition::Behind { .. })));
        // Long enough after the beginning that what follows does not depend on that.
        let mut promised_until = Instant::now();
        while promised_until <= Instant::now() + TIMEOUT / 2 {
            let called_at = Instant::now();
            promised_until = called_at + a.keep_alive(&of_a).await.expect("its session lives");
            tokio::time::sleep(POLL).await;
        }
        let called_at = Instant::now();
        let promised_until = called_at + a.keep_alive(&of_a).await.expect("its session lives");
        ensemble.kill(which);
        become_first(&*others, &of_others, &holder("b")).await.expect("it is first");
        assert!(Instant::now() >= promised_until, "too early");
        ensemble.restart(which);
        ensemble.serves().await;
        others.end(&of_others).await.expect("it ends");
    }
}

pub(crate) async fn a_paused_follower_ends_no_session(ensemble: &ZooKeeper) {
    let leader = ensemble.leader().expect("the ensemble has a leader");
    let a = open(ensemble, "paused").await;
    let of_a = begin_with(&*a, LONG).await;
    let token = become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
    for which in (0..3).filter(|which| *which != leader) {
        ensemble.pause(which);
        keeps_living(&a, &of_a).await;
        ensemble.resume(which);
        assert_eq!(become_first(&*a, &of_a, &holder("a")).await, Ok(token));
    }
}

pub(crate) async fn a_session_outlives_each_server(ensemble: &mut ZooKeeper) {
    let a = open(ensemble, "outlived").await;
    let of_a = begin_with(&*a, LONG).await;
    let token = become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
    for which in 0..3 {
        ensemble.kill(which);
        keeps_living(&a, &of_a).await;
        assert_eq!(become_first(&*a, &of_a, &holder("a")).await, Ok(token));
        ensemble.restart(which);
        ensemble.serves().await;
        keeps_living(&a, &of_a).await;
    }
}

/// Keeps the session alive until that was answered twice.
async fn keeps_living(sessions: &Arc<dyn Sessions>, session: &SessionId) {
    let mut answers = 0;
    let keep = async {
        while answers < 2 {
            match sessions.keep_alive(session).await {
                Ok(_) => answers += 1,
                Err(SessionError::NoAnswer { .. }) => tokio::time::sleep(POLL).await,
                Err(SessionError::Ended { why } | SessionError::Refused { why }) => panic!("{why}"),
            }
        }
    };
    soon(keep).await;
}

pub(crate) async fn after_a_long_outage_the_same_process_leads_again(ensemble: &mut ZooKeeper) {
    let a = open(ensemble, "outage").await;
    let of_a = begin(&*a).await;
    let earlier = become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
    for which in 0..3 {
        ensemble.kill(which);
    }
    let went_at = Instant::now();
    let ended = async {
        loop {
            match a.keep_alive(&of_a).await {
                Err(SessionError::Ended { .. }) => return,
                Err(SessionError::NoAnswer { .. }) => tokio::time::sleep(POLL).await,
                other => panic!("no server is there: {other:?}"),
            }
        }
    };
    soon(ended).await;
    assert!(went_at.elapsed() >= TIMEOUT / 2, "nobody can know so early");
    let unreachable = a.first().await;
    assert!(matches!(unreachable, Err(SessionError::NoAnswer { .. })), "{unreachable:?}");
    for which in 0..3 {
        ensemble.restart(which);
    }
    ensemble.serves().await;
    let begun = async {
        loop {
            match a.begin(TIMEOUT).await {
                Ok(begun) => return begun.session,
                Err(SessionError::NoAnswer { .. }) => tokio::time::sleep(POLL).await,
                Err(other) => panic!("{other}"),
            }
        }
    };
    let again = soon(begun).await;
    // Its old entry may still be there, until the servers have waited for the old session.
    let later = become_first(&*a, &again, &holder("a")).await.expect("it is first");
    assert!(later > earlier);
}
