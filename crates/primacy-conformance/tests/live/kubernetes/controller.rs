//! The example controller does what it says.
#![allow(unreachable_pub, reason = "an example's main is public")]

use std::time::Duration;

use primacy::FencingToken;
use primacy_stores::open;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::server;

#[allow(dead_code, reason = "the test has a server of its own, and so does without the example's main")]
#[path = "../../../../../examples/kubernetes_controller.rs"]
mod kubernetes_controller;

/// Far longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn the_example_works_and_hands_over_when_it_is_stopped() {
    let Some(server) = server().await else { return };
    let url = server.url();
    // With a record, there is nothing to wait for.
    primacy::init(&url, "orders-controller", Duration::from_secs(10)).await.unwrap();
    let (stop, stopped) = watch::channel(false);
    let (client, on) = (server.client(), url.clone());
    let controller = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(kubernetes_controller::control(&on, client, stopped))
            .map_err(|error| error.to_string())
    });
    let register = open(&url, "orders-controller").await.unwrap();
    let worked = async {
        let path = "/api/v1/namespaces/default/configmaps/orders-controller";
        loop {
            let (code, object) = server.ask("GET", path, &Value::Null).await;
            if code == 200 && object["data"]["phase"] == "Ready" {
                return object;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let object = timeout(PATIENCE, worked).await.expect("it works");
    let token = &object["metadata"]["annotations"]["fence.primacy-rs.github.io/orders-controller"];
    let token = FencingToken(token.as_str().unwrap().parse().unwrap());
    let (record, _) = register.read().await.unwrap().unwrap();
    assert_eq!((record.token, record.holder.is_some()), (token, true));
    stop.send_replace(true);
    assert_eq!(tokio::task::spawn_blocking(|| controller.join().unwrap()).await.unwrap(), Ok(()));
    let (record, _) = register.read().await.unwrap().unwrap();
    assert_eq!((record.token, record.holder), (token, None), "it was released");
}
