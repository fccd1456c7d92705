//! The guard: a leader that has been replaced writes no more.

use primacy_core::FencingToken;
use primacy_core::fence::FenceError;
use primacy_fence_redis::{GuardError, RedisFence};
use primacy_stores::open;

use super::server;
use crate::registers::record;
use primacy_conformance::live::redis::PASSWORD;

fn set(key: &str, value: &str) -> redis::Cmd {
    let mut set = redis::cmd("SET");
    set.arg(key).arg(value);
    set
}

#[tokio::test]
async fn a_predecessor_is_refused_from_the_moment_on_at_which_the_record_was_taken() {
    let Some(server) = server(&[]).await else { return };
    let register = open(&server.url(), "orders").await.unwrap();
    let first = register.compare_and_set(None, &record(7)).await.unwrap();
    let fence = RedisFence::of_election("primacy", "orders");
    let client = redis::Client::open(format!("redis://:{PASSWORD}@{}/", server.address())).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let old = FencingToken(7);
    let mut append = redis::cmd("APPEND");
    append.arg("orders:log").arg("a");
    let replies =
        fence.run(&mut connection, old, &[set("orders:state", "by 7"), append.clone()]).await.unwrap();
    assert_eq!(replies, [redis::Value::Okay, redis::Value::Int(1)]);
    // Another leader takes over, and has not written anything yet.
    register.compare_and_set(Some(&first), &record(8)).await.unwrap();
    let refused = fence.run(&mut connection, old, &[set("orders:state", "late")]).await;
    let stale = FenceError::Stale { presented: old, highest: FencingToken(8) };
    assert!(matches!(&refused, Err(GuardError::Stale(error)) if *error == stale), "{refused:?}");
    let state: String = server.ask(redis::cmd("GET").arg("orders:state"));
    assert_eq!(state, "by 7");
    fence.run(&mut connection, FencingToken(8), &[set("orders:state", "by 8")]).await.unwrap();
    // Also by a client of another kind, and without the record's help.
    let mut blocking = server.connect();
    let reply = fence.guarded(FencingToken(9), &[append]).query(&mut blocking);
    assert_eq!(fence.outcome(FencingToken(9), reply).unwrap(), [redis::Value::Int(2)]);
    let reply = fence.guarded(FencingToken(8), &[set("orders:state", "late")]).query(&mut blocking);
    assert!(matches!(fence.outcome(FencingToken(8), reply), Err(GuardError::Stale(_))));
}

#[tokio::test]
async fn numbers_of_every_length_are_compared_and_strange_ones_refused() {
    let Some(server) = server(&[]).await else { return };
    let mut blocking = server.connect();
    let fence = RedisFence::new("fence");
    let mut show = |token| {
        let reply = fence.guarded(FencingToken(token), &[]).query(&mut blocking);
        fence.outcome(FencingToken(token), reply)
    };
    let tokens = [0, 9, 10, 99, 100, (1 << 53) + 1, (1 << 53) + 2, u64::MAX - 1, u64::MAX];
    for (position, &token) in tokens.iter().enumerate() {
        assert!(show(token).is_ok() && show(token).is_ok(), "{token}");
        for &lower in &tokens[..position] {
            assert!(matches!(show(lower), Err(GuardError::Stale(_))), "{lower} after {token}");
        }
    }
    let _: () = server.ask(&set("fence", "x"));
    assert!(matches!(show(u64::MAX), Err(GuardError::NoToken { .. })));
    let _: () = server.ask(&set("fence", "0007"));
    assert!(matches!(show(6), Err(GuardError::Stale(_))) && show(7).is_ok());
}

#[tokio::test]
async fn a_command_that_fails_ends_the_rest() {
    let Some(server) = server(&[]).await else { return };
    let mut blocking = server.connect();
    let fence = RedisFence::new("fence");
    let mut wrong = redis::cmd("HSET");
    wrong.arg("text").arg("field").arg("value");
    let commands = [set("text", "x"), wrong, set("text", "y")];
    let failed =
        fence.outcome(FencingToken(1), fence.guarded(FencingToken(1), &commands).query(&mut blocking));
    assert!(
        matches!(&failed, Err(GuardError::Redis(error)) if error.code() == Some("WRONGTYPE")),
        "{failed:?}"
    );
    let text: String = server.ask(redis::cmd("GET").arg("text"));
    assert_eq!(text, "x", "what came before it stays");
}
