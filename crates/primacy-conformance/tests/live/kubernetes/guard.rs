//! The guarded writer: the late write of an earlier leader is refused.

use primacy::FencingToken;
use primacy_conformance::live::kubernetes::ApiServer;
use primacy_core::fence::FenceError;
use primacy_kube::fence::{GuardError, create, fenced, highest};
use primacy_kube::kube::Api;
use primacy_kube::kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use super::{kube_client, server};

const OLD: FencingToken = FencingToken(1_800_000_000_007);
const NEW: FencingToken = FencingToken(1_800_000_000_008);

fn config_maps(server: &ApiServer) -> (Api<DynamicObject>, ApiResource) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
    (Api::default_namespaced_with(kube_client(server, false), &kind), kind)
}

fn put(value: &str) -> impl FnMut(&mut DynamicObject) -> Result<(), GuardError> {
    move |object| {
        object.data["data"]["value"] = value.into();
        Ok(())
    }
}

fn is_stale(result: &Result<DynamicObject, GuardError>) -> bool {
    let stale = FenceError::Stale { presented: OLD, highest: NEW };
    matches!(result, Err(GuardError::Stale(told)) if *told == stale)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_write_is_refused_and_so_is_one_that_had_begun() {
    let Some(server) = server().await else { return };
    let (api, kind) = config_maps(&server);
    let object = DynamicObject::new("state", &kind).data(json!({"data": {"value": "none"}}));
    create(&api, "orders", OLD, object.clone()).await.unwrap();
    let again = create(&api, "orders", OLD, object).await.unwrap_err();
    assert!(matches!(again, GuardError::Kube(_)), "{again:?}");
    fenced(&api, "state", "orders", OLD, put("by the old one")).await.unwrap();

    // The old one has read, and is paused; the new one shows its token.
    let (go, gone) = (tokio::sync::Notify::new(), tokio::sync::Notify::new());
    let runtime = tokio::runtime::Handle::current();
    let mut is_first = true;
    let late = fenced(&api, "state", "orders", OLD, |object| {
        if std::mem::take(&mut is_first) {
            go.notify_one();
            tokio::task::block_in_place(|| runtime.block_on(gone.notified()));
        }
        put("too late")(object)
    });
    let new = async {
        go.notified().await;
        fenced(&api, "state", "orders", NEW, |_| Ok(())).await.unwrap();
        gone.notify_one();
    };
    // On threads of their own, for one of them waits.
    let (late, ()) = std::thread::scope(|scope| {
        let new = scope.spawn(|| runtime.block_on(new));
        (runtime_block(&runtime, late), new.join().unwrap())
    });
    assert!(is_stale(&late), "{late:?}");
    assert!(is_stale(&fenced(&api, "state", "orders", OLD, put("too late")).await));
    let object = api.get("state").await.unwrap();
    assert_eq!(object.data["data"]["value"], "by the old one");
    assert_eq!(highest(&object, "orders").unwrap(), NEW);
    assert_eq!(highest(&object, "another").unwrap(), FencingToken(0), "each election has its own");
}

fn runtime_block<T>(runtime: &tokio::runtime::Handle, work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| runtime.block_on(work))
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_of_one_leader_do_not_write_over_each_other() {
    const WRITERS: u64 = 8;
    let Some(server) = server().await else { return };
    let (api, kind) = config_maps(&server);
    let object = DynamicObject::new("sum", &kind).data(json!({"data": {}}));
    create(&api, "orders", OLD, object).await.unwrap();
    let mut writing = Vec::new();
    for writer in 0..WRITERS {
        let api = api.clone();
        writing.push(tokio::spawn(async move {
            let mark = |object: &mut DynamicObject| {
                object.data["data"][format!("writer-{writer}")] = "done".into();
                Ok(())
            };
            fenced(&api, "sum", "orders", OLD, mark).await
        }));
    }
    for writer in writing {
        writer.await.unwrap().unwrap();
    }
    let object = api.get("sum").await.unwrap();
    assert_eq!(object.data["data"].as_object().map(serde_json::Map::len), Some(8));
    let told = fenced(&api, "sum", "orders", OLD, |_| Err(GuardError::Application("no".into()))).await;
    assert!(matches!(told, Err(GuardError::Application(_))));
    let (code, _) = server.ask("GET", "/api/v1/namespaces/default/configmaps/none", &Value::Null).await;
    assert_eq!(code, 404);
    assert!(matches!(fenced(&api, "none", "orders", OLD, |_| Ok(())).await, Err(GuardError::Kube(_))));
}
