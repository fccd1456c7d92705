//! Each request of the store, where nothing fails.

use std::time::{Duration, Instant};

use primacy_conformance::live::zookeeper::ZooKeeper;
use primacy_core::FencingToken;
use primacy_core::election::session::{QueuePosition, SessionId};
use primacy_stores::{OpenError, SessionError, Sessions, open_any};
use zookeeper_client::{Acls, Client, CreateMode};

use super::{Kept, POLL, TIMEOUT, become_first, begin, catch_up, holder, open, open_url, soon};

/// The names in the queue of an election below `/live`.
async fn queue(ensemble: &ZooKeeper, election: &str) -> Vec<String> {
    let client = Client::connect(&ensemble.addresses()).await.expect("a server");
    catch_up(&client, &format!("/live/{election}")).await;
    client.list_children(&format!("/live/{election}")).await.expect("the election's znode")
}

pub(crate) async fn an_entry_is_made_once_and_the_next_one_is_told_when_it_goes(ensemble: &ZooKeeper) {
    let (a, b, c) = (open(ensemble, "e").await, open(ensemble, "e").await, open(ensemble, "e").await);
    assert_eq!(a.first().await, Ok(None));
    let begun = a.begin(TIMEOUT).await.expect("a session");
    assert!(begun.timeout <= TIMEOUT && !begun.timeout.is_zero(), "{begun:?}");
    let (of_a, of_b, of_c) = (begun.session, begin(&*b).await, begin(&*c).await);
    let _kept =
        [(&a, &of_a), (&b, &of_b), (&c, &of_c)].map(|(sessions, session)| Kept::new(sessions, session));
    assert_ne!(of_a, of_b, "two handles on one election never share a session");
    let first = become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
    assert_eq!(become_first(&*a, &of_a, &holder("a")).await, Ok(first), "the same entry");
    let behind = |place: QueuePosition| match place {
        QueuePosition::Behind { first } => first,
        QueuePosition::First { .. } => panic!("another one is first"),
    };
    let seen = behind(b.campaign(&of_b, &holder("b")).await.expect("a place"));
    assert_eq!((seen.holder, seen.token), (holder("a"), first));
    assert_eq!(behind(c.campaign(&of_c, &holder("c")).await.expect("a place")).token, first);
    let names = queue(ensemble, "e").await;
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("_c_") && name.contains("-latch-")), "{names:?}");
    let kept = a.keep_alive(&of_a).await.expect("its session lives");
    assert!(kept <= begun.timeout, "{kept:?}");
    // Only the next one is woken.
    let second = {
        let mut third = c.changed();
        a.leave(&of_a).await.expect("it leaves");
        soon(b.changed()).await;
        let second = become_first(&*b, &of_b, &holder("b")).await.expect("it is first");
        let woken = tokio::time::timeout(Duration::ZERO, &mut third).await;
        assert!(woken.is_err(), "the third one was woken for nothing");
        second
    };
    assert!(second > first);
    assert_eq!(a.leave(&of_a).await, Ok(()), "again");
    assert!(
        matches!(a.campaign(&of_a, &holder("a")).await, Ok(QueuePosition::Behind { .. })),
        "it may campaign again"
    );
    b.end(&of_b).await.expect("it ends");
    assert!(matches!(b.campaign(&of_b, &holder("b")).await, Err(SessionError::Ended { .. })));
    assert!(matches!(b.keep_alive(&of_b).await, Err(SessionError::Ended { .. })));
    soon(c.changed()).await;
    let third = become_first(&*c, &of_c, &holder("c")).await.expect("it is first");
    assert!(third > second);
    assert_eq!(a.first().await.expect("an answer").map(|entry| entry.token), Some(third));
}

pub(crate) async fn an_observer_is_told_of_every_first_one(ensemble: &ZooKeeper) {
    let (a, watching) = (open(ensemble, "observed").await, open(ensemble, "observed").await);
    // Before there is a znode, while it is empty, and when the first one has gone.
    for _ in 0..2 {
        assert_eq!(watching.first().await, Ok(None));
        let of_a = begin(&*a).await;
        let token = become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
        let found = async {
            loop {
                if let Some(entry) = watching.first().await.expect("an answer") {
                    return entry;
                }
                watching.changed().await;
            }
        };
        assert_eq!(soon(found).await.token, token);
        a.leave(&of_a).await.expect("it leaves");
        soon(watching.changed()).await;
    }
}

pub(crate) async fn whoever_is_first_can_be_asked_to_resign_and_is_told(ensemble: &ZooKeeper) {
    let (a, b) = (open(ensemble, "asked").await, open(ensemble, "asked").await);
    assert_eq!(b.ask_to_resign(FencingToken(1), "somebody").await, Ok(false), "nobody is there");
    let of_a = begin(&*a).await;
    let _kept = Kept::new(&a, &of_a);
    let token = become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
    assert_eq!(b.ask_to_resign(FencingToken(token.0 - 1), "somebody").await, Ok(false), "another token");
    assert_eq!(b.ask_to_resign(token, "somebody").await, Ok(true));
    soon(a.changed()).await;
    // A handle that only looks for the first, is woken for the entry alone; a candidate, again for requests too.
    assert_eq!(a.first().await.expect("an answer").map(|entry| entry.token), Some(token));
    drop(a.campaign(&of_a, &holder("a")).await.expect("a place"));
    assert_eq!(b.ask_to_resign(token, "somebody else").await, Ok(true));
    soon(a.changed()).await;
    let place = a.campaign(&of_a, &holder("a")).await;
    assert_eq!(place, Ok(QueuePosition::First { token, asked_to_resign: true }));
    a.leave(&of_a).await.expect("it leaves");
    let again = a.campaign(&of_a, &holder("a")).await.expect("a place");
    let QueuePosition::First { token: later, asked_to_resign: false } = again else { panic!("{again:?}") };
    assert!(later > token);
    // Another program's data there stays.
    let client = Client::connect(&ensemble.addresses()).await.expect("a server");
    client.set_data("/live/asked", b"not ours", None).await.expect("it is there");
    let refused = b.ask_to_resign(later, "somebody").await;
    assert!(
        matches!(&refused, Err(SessionError::Refused { why }) if why.contains("somebody")),
        "{refused:?}"
    );
    assert_eq!(client.get_data("/live/asked").await.expect("it is there").0, b"not ours");
    let place = a.campaign(&of_a, &holder("a")).await;
    assert_eq!(place, Ok(QueuePosition::First { token: later, asked_to_resign: false }));
}

pub(crate) async fn what_a_dead_life_has_left_is_removed(ensemble: &ZooKeeper) {
    let (a, b) = (open(ensemble, "evicted").await, open(ensemble, "evicted").await);
    let (of_a, of_b) = (begin(&*a).await, begin(&*b).await);
    let _kept = [(&a, &of_a), (&b, &of_b)].map(|(sessions, session)| Kept::new(sessions, session));
    become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
    assert!(matches!(b.campaign(&of_b, &holder("b")).await, Ok(QueuePosition::Behind { .. })));
    let guardian = open(ensemble, "evicted").await;
    let mut other_life = holder("a").identity;
    other_life.incarnation.nonce += 1;
    assert_eq!(guardian.evict(&other_life).await, Ok(false));
    assert_eq!(guardian.evict(&holder("a").identity).await, Ok(true));
    assert_eq!(guardian.evict(&holder("a").identity).await, Ok(false), "again");
    soon(b.changed()).await;
    become_first(&*b, &of_b, &holder("b")).await.expect("it is first");
    soon(a.changed()).await;
}

pub(crate) async fn elections_of_a_process_share_a_session_that_ends_with_the_last(ensemble: &ZooKeeper) {
    let (a, b) = (open(ensemble, "shared-a").await, open(ensemble, "shared-b").await);
    let (of_a, of_b) = (begin(&*a).await, begin(&*b).await);
    assert_eq!(of_a, of_b);
    let other = b.begin(TIMEOUT * 2).await.expect("a session").session;
    assert_ne!(other, of_b, "another timeout");
    for sessions in [&a, &b] {
        become_first(&**sessions, &of_a, &holder("a")).await.expect("it is first");
    }
    a.end(&of_a).await.expect("it ends for this election");
    b.keep_alive(&of_b).await.expect("the other election uses it still");
    b.end(&of_b).await.expect("it ends");
    let watching = open(ensemble, "shared-b").await;
    assert_eq!(watching.first().await, Ok(None));
}

/// Though its session goes on with another election.
pub(crate) async fn what_a_dropped_handle_has_left_goes(ensemble: &ZooKeeper) {
    let (a, b) = (open(ensemble, "dropped-a").await, open(ensemble, "dropped-b").await);
    let (of_a, of_b) = (begin(&*a).await, begin(&*b).await);
    assert_eq!(of_a, of_b);
    let earlier = become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
    let kept = become_first(&*b, &of_b, &holder("a")).await.expect("it is first");
    let _kept = Kept::new(&b, &of_b);
    let next = open(ensemble, "dropped-a").await;
    let of_next = begin(&*next).await;
    assert_ne!(of_next, of_a);
    assert!(matches!(next.campaign(&of_next, &holder("c")).await, Ok(QueuePosition::Behind { .. })));
    let dropped_at = Instant::now();
    drop(a);
    let later = become_first(&*next, &of_next, &holder("c")).await.expect("it is first");
    assert!(later > earlier);
    assert!(dropped_at.elapsed() >= TIMEOUT, "whoever had led by it may have believed so long");
    assert_eq!(become_first(&*b, &of_b, &holder("a")).await, Ok(kept), "the session goes on");
}

pub(crate) async fn different_layouts_refuse_each_other(ensemble: &ZooKeeper) {
    let url = format!("zookeeper://{}/live", ensemble.addresses());
    let curator = open_url(&url, "layouts").await;
    let kazoo = open_url(&format!("{url}?layout=kazoo"), "layouts").await;
    let (of_curator, of_kazoo) = (begin(&*curator).await, begin(&*kazoo).await);
    become_first(&*curator, &of_curator, &holder("a")).await.expect("it is first");
    let refused = kazoo.campaign(&of_kazoo, &holder("b")).await;
    assert!(matches!(&refused, Err(SessionError::Refused { why }) if why.contains("layout")), "{refused:?}");
    assert_eq!(queue(ensemble, "layouts").await.len(), 1);
}

/// Foreign clients do not look for entries of another layout: each of these makes an entry as its own client does, after ours.
pub(crate) async fn a_leader_ends_when_a_stranger_of_another_layout_comes(ensemble: &ZooKeeper) {
    let url = format!("zookeeper://{}/live", ensemble.addresses());
    let client = Client::connect(&ensemble.addresses()).await.expect("the ensemble is there");
    let guid = "0123456789abcdef0011223344556677";
    for (number, prefix) in
        [format!("{guid}__lock__"), "node-".to_owned(), format!("{guid}-n_")].iter().enumerate()
    {
        let election = format!("stranger-{number}");
        let curator = open_url(&url, &election).await;
        let session = begin(&*curator).await;
        let _kept = Kept::new(&curator, &session);
        let token = become_first(&*curator, &session, &holder("a")).await.expect("it is first");
        let stays = curator.campaign(&session, &holder("a")).await;
        assert_eq!(stays, Ok(QueuePosition::First { token, asked_to_resign: false }));
        let path = format!("/live/{election}/{prefix}");
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (_, sequence) = client.create(&path, b"", &options).await.expect("a stranger stands");
        // A server may be behind.
        let unaware = Ok(QueuePosition::First { token, asked_to_resign: false });
        let ends = campaign_until(&*curator, &session, |place| *place != unaware).await;
        assert_eq!(ends, Ok(QueuePosition::First { token, asked_to_resign: true }), "{prefix}");
        curator.leave(&session).await.expect("it leaves in order");
        let refused = curator.campaign(&session, &holder("a")).await;
        assert!(
            matches!(&refused, Err(SessionError::Refused { why }) if why.contains(prefix)),
            "{prefix}: {refused:?}"
        );
        client.delete(&format!("{path}{sequence}"), None).await.expect("the stranger goes");
        let again = campaign_until(&*curator, &session, Result::is_ok).await;
        assert!(matches!(again, Ok(QueuePosition::First { asked_to_resign: false, .. })), "{again:?}");
    }
}

/// Asks for its place again and again, until the answer is one of these.
async fn campaign_until(
    sessions: &dyn Sessions,
    session: &SessionId,
    is_it: impl Fn(&Result<QueuePosition, SessionError>) -> bool,
) -> Result<QueuePosition, SessionError> {
    soon(async {
        loop {
            let place = sessions.campaign(session, &holder("a")).await;
            if is_it(&place) {
                return place;
            }
            tokio::time::sleep(POLL).await;
        }
    })
    .await
}

pub(crate) async fn entries_of_a_user_are_closed_to_others(ensemble: &ZooKeeper) {
    let with = |login: &str| format!("zookeeper://{login}{}/closed", ensemble.addresses());
    let a = open_url(&with("ann:top-secret@"), "e").await;
    let of_a = begin(&*a).await;
    let _kept = Kept::new(&a, &of_a);
    let token = become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
    a.keep_alive(&of_a).await.expect("its session lives");
    let again = open_url(&with("ann:top-secret@"), "e").await;
    assert_eq!(again.first().await.expect("an answer").map(|entry| entry.token), Some(token));
    for login in ["", "ann:wrong-secret@"] {
        let refused = open_any(&with(login), "e").await.expect_err("a right is missing");
        assert!(matches!(&refused, OpenError::Refused { why } if why.contains("right")), "{refused}");
        assert!(!refused.to_string().contains("secret"));
    }
}

pub(crate) async fn a_znode_that_others_may_change_is_refused_to_a_login(ensemble: &ZooKeeper) {
    let with = |login: &str, more: &str| format!("zookeeper://{login}{}/open{more}", ensemble.addresses());
    let stranger = open_url(&with("", ""), "e").await;
    let of_stranger = begin(&*stranger).await;
    let kept = Kept::new(&stranger, &of_stranger);
    become_first(&*stranger, &of_stranger, &holder("z")).await.expect("it is first");
    let ann = open_url(&with("ann:top-secret@", ""), "e").await;
    let of_ann = begin(&*ann).await;
    let refused = ann.campaign(&of_ann, &holder("a")).await;
    assert!(
        matches!(&refused, Err(SessionError::Refused { why }) if why.contains("gives world:anyone the right")),
        "{refused:?}"
    );
    drop(kept);
    stranger.end(&of_stranger).await.expect("it is gone");
    // It leaves no entry of its own.
    assert_eq!(ann.first().await.expect("an answer"), None);
    ann.end(&of_ann).await.expect("it is gone");
    let trusting = open_url(&with("ann:top-secret@", "?owner=world:anyone"), "e").await;
    let session = begin(&*trusting).await;
    become_first(&*trusting, &session, &holder("a")).await.expect("it is first");
    trusting.end(&session).await.expect("it is gone");
}

pub(crate) async fn an_open_does_not_hang(ensemble: &ZooKeeper) {
    let nobody = primacy_conformance::live::free_port();
    let refused = soon(open_any(&format!("zookeeper://127.0.0.1:{nobody}"), "e")).await;
    assert!(matches!(refused, Err(OpenError::Unavailable { .. })), "{refused:?}");
    // One of them is enough.
    let url = format!("zookeeper://127.0.0.1:{nobody},{}/live", ensemble.address(1));
    soon(open_url(&url, "hang")).await.first().await.expect("an answer");
}
