//! The example controller works as documented, in the process of a pod.
#![allow(unreachable_pub, reason = "an example's main is public")]

use std::process::Command;
use std::time::Duration;

use primacy_conformance::live::kubernetes::ApiServer;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{PATIENCE, Speaker, server};

#[allow(dead_code, reason = "the pods are told their URL otherwise, and so do without the example's main")]
#[path = "../../../../../examples/kubernetes_controller.rs"]
mod kubernetes_controller;

/// The environment variable for a pod's process: the URL.
const POD_VARIABLE: &str = "PRIMACY_TEST_KUBERNETES_POD";

/// Of the election, the Lease, and the object that is reconciled.
const NAME: &str = "orders-controller";

/// The interval at which the fake is asked again.
const POLL: Duration = Duration::from_millis(20);

/// Not a test of its own: the process of each pod.
#[test]
fn play_as_a_pod() {
    let Ok(url) = std::env::var(POD_VARIABLE) else { return };
    kubernetes_controller::run(&url).unwrap();
}

fn pod(server: &ApiServer, name: &str) -> Speaker {
    let url = server.url();
    let (_, kubeconfig) = url.split_once("kubeconfig=").expect("it names one");
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own program"));
    command.args(["--exact", "kubernetes::controller::play_as_a_pod", "--nocapture"]);
    command.env(POD_VARIABLE, &url).env("POD_NAME", name).env("KUBECONFIG", kubeconfig);
    Speaker::start(command)
}

async fn leads(pod: &mut Speaker) -> u64 {
    let line = pod.says("leads with token ", None).await;
    line.split_once("leads with token ").and_then(|(_, token)| token.parse().ok()).expect("a token")
}

/// Waits until the fake's answer to an order is as wanted.
async fn until(server: &ApiServer, method: &str, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let asking = async {
        loop {
            let (_, answer) = server.ask(method, path, &json!({})).await;
            if wanted(&answer) {
                return answer;
            }
            tokio::time::sleep(POLL).await;
        }
    };
    timeout(PATIENCE, asking).await.expect("in time")
}

fn token_of(object: &Value) -> Option<u64> {
    object["metadata"]["annotations"][format!("fence.primacy-rs.github.io/{NAME}")].as_str()?.parse().ok()
}

/// A pod is terminated in the middle of a write. It finishes the write first, then releases the Lease, and goes; the other pod leads at
/// once, under a higher token.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_works_and_hands_over_when_it_is_stopped() {
    let Some(server) = server().await else { return };
    // With a record, there is nothing to wait for.
    primacy::init(&server.url(), NAME, Duration::from_secs(10)).await.unwrap();
    let mut first = pod(&server, "pod-1");
    let old = leads(&mut first).await;
    let mut second = pod(&server, "pod-2");
    second.says("stands", None).await;
    let path = format!("/api/v1/namespaces/default/configmaps/{NAME}");
    let before = until(&server, "GET", &path, |object| token_of(object) == Some(old)).await;
    server.order("fault", &json!({"hold": true, "verbs": ["update"], "plural": "configmaps"})).await;
    until(&server, "POST", "/stand-in/held", |answer| answer["held"] == 1).await;
    kill_process(Pid::from_child(&first.process), Signal::TERM).unwrap();
    first.says("is told to end", None).await;
    server.order("go", &json!({})).await;
    first.says("has left the election", None).await;
    let ended = tokio::task::spawn_blocking(move || first.process.wait()).await.unwrap().unwrap();
    assert!(ended.success(), "{ended}");
    let new = leads(&mut second).await;
    assert!(new > old, "{new} after {old}");
    until(&server, "GET", &path, |object| token_of(object) == Some(new)).await;

    // The API server has seen all writes in one order.
    let (_, told) = server.ask("POST", "/stand-in/events", &json!({})).await;
    let events: Vec<&Value> =
        told["events"].as_array().unwrap().iter().map(|event| &event["object"]).collect();
    let is_lease = |object: &Value| object["kind"] == "Lease";
    let holder = |object: &Value| object["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
    let taken = events.iter().position(|object| is_lease(object) && holder(object).starts_with("pod-2"));
    let taken = taken.expect("pod-2 leads");
    let released = events[..taken].iter().rposition(|object| is_lease(object)).expect("pod-1 has led");
    assert_eq!(holder(events[released]), "", "it was released, and did not run out");
    let last = events.iter().rposition(|object| token_of(object) == Some(old)).expect("pod-1 has worked");
    assert!(last < released, "it worked after it had released the Lease");
    let rounds =
        |object: &Value| object["data"]["rounds"].as_str().map_or(0, |rounds| rounds.parse::<u64>().unwrap());
    assert!(rounds(events[last]) > rounds(&before), "the write that was under way was ended");
}
