//! The examples do what they say: each asserts it, and is run here.
#![allow(unreachable_pub, reason = "an example's main is public, so that it can be called from here")]

#[path = "../../../examples/campaign.rs"]
mod campaign;
#[path = "../../../examples/custom_algorithm.rs"]
mod custom_algorithm;
#[path = "../../../examples/custom_store.rs"]
mod custom_store;
#[cfg(feature = "tower")]
#[allow(dead_code, reason = "the test has a port of its own, and so does without the example's main")]
#[path = "../../../examples/fenced_http.rs"]
mod fenced_http;
#[path = "../../../examples/partitions.rs"]
mod partitions;
#[path = "../../../examples/replicated_map.rs"]
mod replicated_map;
#[path = "../../../examples/sans_io_loop.rs"]
mod sans_io_loop;

#[test]
fn campaign_runs() {
    campaign::main().unwrap();
}

#[test]
fn custom_algorithm_runs() {
    custom_algorithm::main();
}

#[test]
fn custom_store_runs() {
    custom_store::main().unwrap();
}

#[test]
fn partitions_runs() {
    partitions::main().unwrap();
}

#[test]
fn replicated_map_runs() {
    replicated_map::main().unwrap();
}

#[test]
fn sans_io_loop_runs() {
    sans_io_loop::main();
}

/// A service on a port that no other process uses, and curl as its leaders.
#[cfg(feature = "tower")]
#[test]
fn fenced_http_runs_and_refuses_what_curl_sends_too_late() {
    let fence = std::env::temp_dir().join(format!("primacy-fenced-http-{}.fence", std::process::id()));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}/note", listener.local_addr().unwrap());
    let service = fenced_http::service(&fence).unwrap();
    runtime.spawn(async move { axum::serve(listener, service).await });
    let curl = |args: &[&str]| {
        let mut command = std::process::Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "30", "--write-out", " %{http_code}"]);
        let output = command.args(args).arg(&url).output().expect("curl is installed by `cargo xtask test`");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let put = |token: &str, body: &str| curl(&["-X", "PUT", "-H", token, "-d", body]);
    assert_eq!(put("Fencing-Token: 7", "by the first"), " 200");
    assert_eq!(put("Fencing-Token: 8", "by the second"), " 200");
    let late = put("Fencing-Token: 7", "too late");
    assert!(late.starts_with("{\"error\":\"stale_fencing_token\",\"presented\":7,\"highest\":8,"), "{late}");
    assert!(late.ends_with(" 409"), "{late}");
    let without = put("X-Other: 1", "without");
    assert!(without.contains("Fencing-Token: 42") && without.ends_with(" 400"), "{without}");
    assert_eq!(curl(&[]), "by the second 200");
    drop(runtime);
    std::fs::remove_file(&fence).unwrap();
}
