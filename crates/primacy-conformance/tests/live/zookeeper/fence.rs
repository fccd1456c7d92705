//! The guard for znodes, with a leader and its zombie.

use primacy_conformance::live::zookeeper::ZooKeeper;
use primacy_core::FencingToken;
use primacy_core::fence::FenceError;
use primacy_fence_zookeeper::{GuardError, fenced, highest, install_open};
use zookeeper_client::{Acls, Client, CreateMode, Error, MultiWriteResult};

use super::{Kept, become_first, begin, catch_up, holder, open};

const FENCE: &str = "/guarded/fence";

pub(crate) async fn a_stale_token_is_refused_and_nothing_is_written(ensemble: &ZooKeeper) {
    let (a, b) = (open(ensemble, "guarded").await, open(ensemble, "guarded").await);
    let of_a = begin(&*a).await;
    let of_b = begin(&*b).await;
    let _kept = [(&a, &of_a), (&b, &of_b)].map(|(sessions, session)| Kept::new(sessions, session));
    let zombie = become_first(&*a, &of_a, &holder("a")).await.expect("it is first");
    drop(b.campaign(&of_b, &holder("b")).await.expect("a place"));
    a.leave(&of_a).await.expect("it leaves");
    let leader = become_first(&*b, &of_b, &holder("b")).await.expect("it is first");

    let client = Client::connect(&ensemble.addresses()).await.expect("a server");
    let slow = Client::connect(&ensemble.addresses()).await.expect("a server");
    let missing = fenced(&client, FENCE, leader, |_| Ok(())).await;
    assert!(matches!(missing, Err(GuardError::NotInstalled { .. })), "{missing:?}");
    install_open(&client, FENCE).await.expect("it is made");
    let write = async |client: &Client, token, data: &'static [u8]| {
        fenced(client, FENCE, token, |writer| writer.add_set_data("/guarded/state", data, None)).await
    };
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create("/guarded/state", b"nothing", &options).await.expect("it is made");
    let written =
        write(&client, zombie, b"by a").await.expect("it leads still, as far as the resource knows");
    assert!(matches!(written.as_slice(), [MultiWriteResult::SetData { .. }]), "{written:?}");
    assert_eq!(
        fenced(&client, FENCE, leader, |_| Ok(())).await,
        Ok(vec![]),
        "nothing but the token is shown"
    );
    install_open(&client, FENCE).await.expect("again, and it forgets nothing");
    catch_up(&slow, FENCE).await;
    let refused = write(&slow, zombie, b"by a zombie").await;
    let expected = FenceError::Stale { presented: zombie, highest: leader };
    assert_eq!(refused, Err(GuardError::Stale(expected)));
    write(&client, leader, b"by b").await.expect("it leads");
    assert_eq!(highest(&client, FENCE).await, Ok(leader));
    assert_eq!(client.get_data("/guarded/state").await.expect("it is there").0, b"by b");

    // It has read the fence before it was raised, and writes after that.
    let later = FencingToken(leader.0 + 1);
    let mut transaction = slow.new_multi_writer();
    let (_, stat) = slow.get_data(FENCE).await.expect("it is there");
    fenced(&client, FENCE, later, |_| Ok(())).await.expect("a later leader");
    transaction.add_check_version(FENCE, stat.version).expect("a path");
    transaction.add_set_data("/guarded/state", b"by a zombie", None).expect("a path");
    assert!(transaction.commit().await.is_err());
    // The application's own request may be refused as well, and then the token was not shown either.
    let missing = fenced(&client, FENCE, FencingToken(later.0 + 1), |writer| {
        writer.add_set_data("/guarded/missing", b"", None)
    });
    assert_eq!(missing.await, Err(GuardError::Operation { index: 0, error: Error::NoNode }));
    assert_eq!(highest(&client, FENCE).await, Ok(later));
    assert_eq!(client.get_data("/guarded/state").await.expect("it is there").0, b"by b");
    client
        .set_data("/guarded/state", b"what is no number", None)
        .await
        .expect("nobody guards it without the guard");
    let foreign = fenced(&client, "/guarded/state", later, |_| Ok(())).await;
    assert!(matches!(foreign, Err(GuardError::Foreign { .. })), "{foreign:?}");
}
