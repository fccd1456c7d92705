//! Faults that no request may cause in an etcd API.

mod fuzz;

use std::sync::Arc;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use primacy_kv::state::State;

use super::client::READ_PATIENCE;
use super::hub::Hub;
use super::in_memory::InMemory;
use super::server::answer;
use super::services::Services;

/// The client answers every probe, which alone must not keep a connection open.
#[tokio::test(start_paused = true)]
async fn the_connection_of_a_client_that_does_not_read_is_closed() {
    let hub = Arc::new(Hub::new(Arc::new(InMemory::new(State::new(), 0))));
    let services = Services::on_loopback(hub);
    let _unread = services.client.wait_for_reader();
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let client = hyper::client::conn::http2::handshake::<_, _, Empty<Bytes>>;
    let (_requests, connection) = client(TokioExecutor::new(), TokioIo::new(theirs)).await.unwrap();
    tokio::spawn(connection);
    let ended = tokio::time::timeout(10 * READ_PATIENCE, answer(ours, services)).await;
    let error = ended.expect("its connection is kept").unwrap_err();
    assert!(error.to_string().contains("does not read"), "{error}");
}
