//! The verbs that change partitions, on nodes that replicate metadata.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::process::Output;

use primacy_testbed::{Node, Place, peers, stderr, stdout, strings};
use serde_json::Value;

#[test]
fn groups_are_created_shown_changed_and_dropped() {
    let place = Place::new("partitions-verbs");
    let (peers, state) = (peers(&["a"]), place.text("a"));
    let args = ["node", "--json", "--election", "e", "--node", "a", "--peers", &peers, "--metadata", "fsync"];
    let node = Node::start(&place, "a", &strings(&[&args[..], &["--state-dir", &state]].concat()));
    node.told.wait_for_event("elected");
    let ask = |args: &[&str]| -> Output {
        place.output(&[&["partitions"], args, &["--election", "e", "--state-dir", &state, "--json"]].concat())
    };
    let done = |args: &[&str]| -> Value {
        let output = ask(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    done(&["create", "g", "3"]);
    let shown = done(&["show", "g"]);
    assert_eq!(
        (&shown["groups"][0]["count"], &shown["groups"][0]["free"]),
        (&3.into(), &3.into()),
        "{shown}"
    );
    done(&["drain", "b"]);
    let drained =
        |shown: &Value| shown["nodes"].as_array().unwrap().iter().any(|node| node["drained"] == true);
    assert!(drained(&done(&["show"])));
    done(&["undrain", "b"]);
    assert!(!drained(&done(&["show"])));
    let refused = ask(&["move", "g", "9", "a"]);
    assert_eq!(refused.status.code(), Some(75), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("the group has 3"), "{}", stderr(&refused));
    for (args, code) in [
        (&["create", "g", "1"][..], 75),
        (&["create", "g/h", "1"], 64),
        (&["create", "h", "0"], 64),
        (&["show", "h"], 75),
    ] {
        assert_eq!(ask(args).status.code(), Some(code), "{args:?}");
    }
    done(&["drop", "g"]);
    assert!(done(&["show"])["groups"].as_array().unwrap().is_empty());
}
