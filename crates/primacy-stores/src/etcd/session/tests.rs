//! Tests of sessions with a fake member of etcd.

use std::net::Ipv4Addr;

use h2::RecvStream;
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use primacy_core::election::session::SessionId;
use prost::Message;
use prost::bytes::Bytes;
use tokio::net::TcpListener;

use super::*;
use crate::etcd::connect::Member;
use crate::etcd::url::FORM;
use crate::store_url::StoreUrl;

/// The code of gRPC for a missing right.
const PERMISSION_DENIED: u32 = 7;

/// The length of the prefix of each message of gRPC: whether it is compressed, and its length.
const PREFIX_LENGTH: usize = 5;

/// The only session of such a member.
const LEASE: Lease = Lease(0xab);

/// Its time to live.
const TTL: Duration = Duration::from_secs(10);

/// A message, or a code of gRPC and a text.
type MemberAnswer = Result<Vec<u8>, (u32, &'static str)>;

/// The answer to a request, by its method and its message.
type Answers = Arc<dyn Fn(&str, &[u8]) -> MemberAnswer + Send + Sync>;

/// Returns a client of a member with these answers.
async fn client(answers: Answers) -> Arc<Client> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answers = Arc::clone(&answers);
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(answer(request, respond, Arc::clone(&answers)));
                }
            });
        }
    });
    let url = StoreUrl::parse(&format!("//127.0.0.1:{port}"), FORM).unwrap();
    let members = url.hosts.into_iter().map(|host| Member::new(host, None)).collect();
    Arc::new(Client::new(members, None))
}

async fn answer(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, answers: Answers) {
    let method = request.uri().path().to_owned();
    let mut body = request.into_body();
    let mut asked = Vec::new();
    while let Some(part) = body.data().await {
        asked.extend_from_slice(&part.unwrap());
    }
    let told = answers(&method, &asked[PREFIX_LENGTH..]);
    let response = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
    let mut stream = respond.send_response(response, false).unwrap();
    let (code, text) = match told {
        Ok(message) => {
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            let frame = [&[0][..], &length, &message].concat();
            stream.send_data(frame.into(), false).unwrap();
            (0, "")
        }
        Err(error) => error,
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(code));
    trailers.insert("grpc-message", HeaderValue::from_static(text));
    stream.send_trailers(trailers).unwrap();
}

fn granted_to_all() -> Vec<u8> {
    let ttl = i64::try_from(TTL.as_secs()).unwrap();
    api::LeaseGrantResponse { id: LEASE.0, ttl, ..Default::default() }.encode_to_vec()
}

fn kept_alive(ttl: i64) -> Vec<u8> {
    api::LeaseKeepAliveResponse { id: LEASE.0, ttl, ..Default::default() }.encode_to_vec()
}

fn user(election: &str) -> User {
    User { election: election.to_owned(), handle: 1, key: format!("{election}/").into_bytes() }
}

#[tokio::test]
async fn whoever_lacks_a_right_loses_the_session_for_nobody_else() {
    let answers = |method: &str, asked: &[u8]| match method {
        method::LEASE_GRANT => Ok(granted_to_all()),
        method::LEASE_KEEP_ALIVE => Ok(kept_alive(i64::try_from(TTL.as_secs()).unwrap())),
        method::RANGE if api::RangeRequest::decode(asked).unwrap().key.starts_with(b"closed/") => {
            Err((PERMISSION_DENIED, "etcdserver: permission denied"))
        }
        method::RANGE => Ok(api::RangeResponse::default().encode_to_vec()),
        other => panic!("{other}"),
    };
    let (client, pool) = (client(Arc::new(answers)).await, Pool::default());
    let (closed, open, other) = (user("closed"), user("open"), user("other"));
    for user in [&closed, &open, &other] {
        // Only the sharing matters here.
        drop(pool.begin(&client, user, TTL).await);
    }
    // The keep-alive of the first election serves all.
    let (refused, kept, also_kept) = tokio::join!(
        pool.keep_alive(&client, LEASE, &closed),
        pool.keep_alive(&client, LEASE, &open),
        pool.keep_alive(&client, LEASE, &other),
    );
    assert!(matches!(refused, Err(SessionError::Refused { .. })), "{refused:?}");
    assert_eq!((kept, also_kept), (Ok(TTL), Ok(TTL)));
}

#[tokio::test]
async fn a_member_that_does_not_know_a_session_ends_none_whose_entry_is_there() {
    let is_there = Arc::new(AtomicBool::new(true));
    let shown = Arc::clone(&is_there);
    let answers = move |method: &str, asked: &[u8]| match method {
        method::LEASE_GRANT => Ok(granted_to_all()),
        method::LEASE_KEEP_ALIVE => Ok(kept_alive(0)),
        method::RANGE => {
            let key = api::RangeRequest::decode(asked).unwrap().key;
            let entry = api::KeyValue { key: key.clone(), lease: LEASE.0, ..Default::default() };
            let is_found = key == b"e/ab" && shown.load(Ordering::SeqCst);
            let kvs = if is_found { vec![entry] } else { vec![] };
            Ok(api::RangeResponse { kvs, ..Default::default() }.encode_to_vec())
        }
        other => panic!("{other}"),
    };
    let (client, pool) = (client(Arc::new(answers)).await, Pool::default());
    pool.begin(&client, &user("e"), TTL).await.unwrap();
    let doubted = pool.keep_alive(&client, LEASE, &user("e")).await;
    assert!(matches!(doubted, Err(SessionError::NoAnswer { .. })), "{doubted:?}");
    assert!(pool.find(LEASE).is_some());
    is_there.store(false, Ordering::SeqCst);
    let ended = pool.keep_alive(&client, LEASE, &user("e")).await;
    assert!(matches!(ended, Err(SessionError::Ended { .. })), "{ended:?}");
    assert!(pool.find(LEASE).is_none());
}

#[test]
fn etcd_counts_whole_seconds_and_is_asked_for_no_less() {
    let ms = Duration::from_millis;
    assert_eq!([ms(0), ms(1), ms(1000), ms(1001), ms(9999)].map(seconds), [1, 1, 1, 2, 10]);
    assert_eq!([-1, 0, 1].map(granted), [None, None, Some(Duration::from_secs(1))]);
}

#[test]
fn a_session_is_named_as_etcdctl_shows_it() {
    let lease = Lease(0x694d_81d2);
    assert_eq!(lease.id().as_str(), "694d81d2");
    assert_eq!(Lease::parse(&lease.id()), Some(lease));
    for other in ["", "0", "-1", "+1", "x", "00ff", "FF", "8000000000000000"] {
        assert_eq!(Lease::parse(&SessionId::new(other)), None, "{other}");
    }
}
