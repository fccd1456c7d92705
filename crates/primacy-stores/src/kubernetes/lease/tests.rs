mod fuzz;

use std::time::Duration as StdDuration;

use primacy_core::election::lease::ResignRequest;
use serde_json::json;

use super::*;

/// The time at which the API server made the Lease, by its answer.
const CREATED: &str = "2025-01-01T00:00:00Z";
const CREATED_MILLIS: u64 = 1_735_689_600_000;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + StdDuration::from_secs(1_800_000_000 + seconds)
}

fn held(token: u64, nonce: u64) -> Record {
    let identity = Identity::new(NodeId::new("a").unwrap(), Incarnation { count: 7, nonce: 0xcd });
    let holder = Some(Holder { identity, address: "10.0.0.7:4000".to_owned() });
    Record { holder, nonce, ..Record::released(FencingToken(token), Duration::from_millis(10_500)) }
}

/// Returns the object that the server stores for a request.
fn kept(body: &[u8], version: u64) -> Value {
    let mut object: Value = serde_json::from_slice(body).unwrap();
    object["metadata"]["resourceVersion"] = version.to_string().into();
    object["metadata"]["creationTimestamp"] = CREATED.into();
    object
}

fn lease(object: &Value) -> Lease {
    Lease::parse(&serde_json::to_vec(object).unwrap()).unwrap()
}

fn first(record: &Record) -> Value {
    kept(&Lease::first("e", record, at(0)).unwrap(), 1)
}

fn token(object: &Value) -> u64 {
    lease(object).record().unwrap().token.0
}

/// Returns the object as client-go writes it when it takes the Lease.
fn taken_by_client_go(object: &Value, holder: &str, second: u64) -> Value {
    let mut object = object.clone();
    let transitions = object["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
    let now = micro_time(at(second));
    object["spec"] = json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now,
        "leaseTransitions": transitions + 1});
    object
}

fn released_by_client_go(object: &Value, second: u64) -> Value {
    let mut object = object.clone();
    let now = micro_time(at(second));
    object["spec"]["holderIdentity"] = "".into();
    object["spec"]["leaseDurationSeconds"] = 1.into();
    object["spec"]["renewTime"] = now.into();
    object
}

#[test]
fn a_record_comes_back_as_it_was_and_others_can_read_the_rest() {
    let record = held(1_800_000_000_000, 1);
    let object = first(&record);
    assert_eq!(lease(&object).record().unwrap(), record);
    let spec = &object["spec"];
    assert_eq!(spec["holderIdentity"], "a_7-00000000000000cd");
    assert_eq!(spec["leaseDurationSeconds"], 12, "rounded up, and a second more");
    assert_eq!(spec["leaseTransitions"], 0);
    assert_eq!(spec["acquireTime"], "2027-01-15T08:00:00.000000Z");
    // The server may spell times otherwise, and an operator may put a label there.
    let mut other = object.clone();
    other["spec"]["renewTime"] = "2027-01-15T08:00:00Z".into();
    other["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(lease(&other).record().unwrap(), record);

    let renewed = Record { renewal: 1, nonce: 2, ..record };
    let object = kept(&lease(&other).replaced(&renewed, at(3)).unwrap(), 2);
    assert_eq!(lease(&object).record().unwrap(), renewed);
    assert_eq!(object["metadata"]["labels"]["a"], "b", "what is not ours is kept");
    assert_eq!(object["spec"]["acquireTime"], "2027-01-15T08:00:00.000000Z");
    assert_eq!(object["spec"]["renewTime"], "2027-01-15T08:00:03.000000Z");
    assert_eq!(object["spec"]["leaseTransitions"], 0);

    let released = Record { holder: None, nonce: 3, ..renewed };
    let object = kept(&lease(&object).replaced(&released, at(4)).unwrap(), 3);
    assert_eq!(lease(&object).record().unwrap(), released);
    assert_eq!(
        (&object["spec"]["holderIdentity"], &object["spec"]["leaseDurationSeconds"]),
        (&"".into(), &1.into())
    );
}

#[test]
fn a_duration_that_somebody_patches_takes_the_lease_from_nobody_and_binds_nobody() {
    let record = held(1_800_000_000_000, 1);
    let mut patched = first(&record);
    patched["spec"]["leaseDurationSeconds"] = 3600.into();
    assert_eq!(
        lease(&patched).record().unwrap(),
        record,
        "its holder holds it, for as long as it has said itself"
    );
    // The next renewal writes it again, for other programs.
    let renewed = kept(&lease(&patched).replaced(&Record { nonce: 2, ..record.clone() }, at(3)).unwrap(), 2);
    assert_eq!(renewed["spec"]["leaseDurationSeconds"], 12);
    // The duration that another program claims for its own lead counts: nothing else limits it.
    let mut go = taken_by_client_go(&renewed, "go-1", 20);
    go["spec"]["leaseDurationSeconds"] = 3600.into();
    assert_eq!(lease(&go).record().unwrap().duration, Duration::from_secs(3600));
}

#[test]
fn tokens_grow_with_every_change_of_hands() {
    let ours = first(&held(1_800_000_000_000, 1));
    let go = taken_by_client_go(&ours, "go-1", 20);
    let record = lease(&go).record().unwrap();
    assert_eq!(record.holder.as_ref().unwrap().identity.node.as_str(), "go-1");
    assert_eq!((record.token.0, record.duration), (1_800_000_000_001, Duration::from_secs(15)));
    // A renewal changes the nonce, and not the holder.
    let mut renewed = go.clone();
    renewed["spec"]["renewTime"] = micro_time(at(22)).into();
    let seen = lease(&renewed).record().unwrap();
    assert_eq!((seen.token, &seen.holder), (record.token, &record.holder));
    assert_ne!(seen.nonce, record.nonce);
    let released = released_by_client_go(&renewed, 23);
    assert_eq!(lease(&released).record().unwrap().holder, None);
    assert_eq!(token(&released), 1_800_000_000_001);
    let again = taken_by_client_go(&released, "go-1", 24);
    assert_eq!(token(&again), 1_800_000_000_002, "the same holder, after a release");

    let back = held(1_800_000_000_003, 9);
    let back = kept(&lease(&again).replaced(&back, at(60)).unwrap(), 9);
    assert_eq!(token(&back), 1_800_000_000_003);
    assert_eq!(back["spec"]["leaseTransitions"], 3, "as client-go would count");
    assert_eq!(token(&taken_by_client_go(&back, "go-2", 80)), 1_800_000_000_004);
    // A client that does not count transitions, such as Python's.
    let mut uncounted = taken_by_client_go(&back, "python", 80);
    uncounted["spec"]["leaseTransitions"] = 3.into();
    assert_eq!(token(&uncounted), 1_800_000_000_004);
    uncounted["spec"]["holderIdentity"] = "".into();
    assert_eq!(token(&uncounted), 1_800_000_000_004, "released by hand: it does not go down");
    uncounted["spec"]["leaseTransitions"] = 0.into();
    assert_eq!(token(&uncounted), 1_800_000_000_004, "counted from the beginning again");
}

#[test]
fn a_lease_of_others_begins_with_its_creation() {
    let mut go = json!({"metadata": {"name": "e", "resourceVersion": "1", "creationTimestamp": CREATED},
        "spec": {"holderIdentity": "go/1 é", "leaseTransitions": 0}});
    assert_eq!(token(&go), CREATED_MILLIS + 1);
    let record = lease(&go).record().unwrap();
    assert_eq!(record.holder.unwrap().identity.node.as_str(), "go-1--");
    assert_eq!(record.duration, UNSAID);
    go["spec"]["leaseTransitions"] = 7.into();
    assert_eq!(token(&go), CREATED_MILLIS + 8);
    let ours = held(CREATED_MILLIS + 9, 1);
    let ours = kept(&lease(&go).replaced(&ours, at(0)).unwrap(), 2);
    assert_eq!(token(&ours), CREATED_MILLIS + 9);
    let mut bare = taken_by_client_go(&ours, "go-2", 20);
    assert_eq!(token(&bare), CREATED_MILLIS + 10);
    bare["metadata"]["annotations"] = json!({});
    assert_eq!(
        token(&bare),
        CREATED_MILLIS + 10,
        "the same without our annotations, where nothing was lost before"
    );
    for empty in [
        json!({"metadata": {"resourceVersion": "1"}}),
        json!({"metadata": {"resourceVersion": "1"}, "spec": null}),
    ] {
        let record = lease(&empty).record().unwrap();
        assert_eq!((record.holder, record.token.0), (None, 1));
    }
}

#[test]
fn a_request_to_resign_is_no_sign_of_life_and_is_for_our_own() {
    let record = held(5, 1);
    let object = first(&record);
    let request = Some(ResignRequest { token: FencingToken(5), by: "ops".to_owned() });
    let asked = Record { resign_request: request.clone(), ..record };
    let body = lease(&object).replaced(&asked, at(5)).unwrap();
    let after = kept(&body, 2);
    assert_eq!(after["spec"], object["spec"]);
    assert_ne!(after["metadata"]["annotations"][WRITTEN], object["metadata"]["annotations"][WRITTEN]);
    assert_eq!(lease(&after).record().unwrap(), asked);
    let go = lease(&taken_by_client_go(&after, "go-1", 20));
    let asked = Record { resign_request: request, ..go.record().unwrap() };
    let refused = go.replaced(&asked, at(21)).unwrap_err();
    assert!(matches!(&refused, SetError::Unavailable { why } if why.contains("go-1")), "{refused:?}");
    let released = Record { holder: None, ..go.record().unwrap() };
    assert!(go.replaced(&released, at(21)).is_ok(), "an operator may take it away");
}

#[test]
fn what_is_no_record_is_left_alone_whoever_holds_the_lease() {
    let ours = first(&held(5, 1));
    for wrong in ["", "[]", r#"{"primacy":2}"#] {
        for mut object in [ours.clone(), taken_by_client_go(&ours, "go", 1)] {
            object["metadata"]["annotations"][RECORD] = wrong.into();
            let lease = lease(&object);
            assert!(lease.record().is_err());
            assert!(lease.replaced(&held(6, 2), at(2)).is_err());
        }
    }
    // An invalid annotation counts as written by another program.
    let mut object = ours;
    object["metadata"]["annotations"][WRITTEN] = "{".into();
    assert_eq!(token(&object), CREATED_MILLIS + 1);
    for wrong in
        ["", "[]", "{}", r#"{"metadata":{"resourceVersion":7}}"#, r#"{"metadata":{"resourceVersion":""}}"#]
    {
        assert!(Lease::parse(wrong.as_bytes()).is_err(), "{wrong}");
    }
    let odd = json!({"metadata": {"resourceVersion": "1", "annotations": [], "name": 7}, "spec": {"leaseTransitions": "x"}});
    assert!(Lease::parse(&serde_json::to_vec(&odd).unwrap()).is_err());
    let odd = lease(
        &json!({"metadata": {"resourceVersion": "1", "annotations": []}, "spec": {"leaseDurationSeconds": -3}}),
    );
    assert!(odd.replaced(&held(5, 1), at(0)).is_err());
}

#[test]
fn numbers_at_the_ends_of_their_ranges_are_kept() {
    for number in [0, 1, 1 << 53, u64::MAX] {
        // A token must leave room for later ones.
        let token_of_ours = number / 4;
        let record = Record { duration: Duration::from_nanos(number), ..held(token_of_ours, number) };
        let object = first(&record);
        let seconds = object["spec"]["leaseDurationSeconds"].as_i64().unwrap();
        assert!((1..=i64::from(i32::MAX)).contains(&seconds));
        assert_eq!(lease(&object).record().unwrap(), record);
        let go = taken_by_client_go(&object, "go", 1);
        assert!(token(&go) >= token_of_ours);
    }
}
