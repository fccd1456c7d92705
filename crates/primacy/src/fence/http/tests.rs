use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::Notify;

use super::*;

/// A service that counts its calls, and returns the request's body; `wait` waits for a signal, or for ever.
#[derive(Clone, Default)]
struct Handler {
    called: Arc<AtomicU32>,
    go: Arc<Notify>,
}

impl Service<Request<&'static str>> for Handler {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<&'static str>) -> Self::Future {
        self.called.fetch_add(1, Ordering::SeqCst);
        let go = Arc::clone(&self.go);
        Box::pin(async move {
            if *request.body() == "wait" {
                go.notified().await;
            }
            let admitted = request.extensions().get::<Admitted>();
            Ok(Response::new(admitted.map_or_else(String::new, |admitted| admitted.token().to_string())))
        })
    }
}

struct Fenced {
    dir: PathBuf,
    handler: Handler,
    layer: FenceLayer,
}

impl Fenced {
    fn new(limits: Limits) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let dir = std::env::temp_dir().join(format!("primacy-layer-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let fence = HeldFence::open(&dir.join("e.fence"), "e").unwrap();
        Self { dir, handler: Handler::default(), layer: FenceLayer::on(Gate::new(fence, limits).unwrap()) }
    }

    fn send(
        &self,
        method: &str,
        tokens: &[&str],
        body: &'static str,
    ) -> impl Future<Output = Response<String>> + Send + 'static {
        let mut request = Request::builder().method(method).uri("/");
        for &token in tokens {
            request = request.header("Fencing-Token", token);
        }
        let call = self.layer.layer(self.handler.clone()).call(request.body(body).unwrap());
        async move { call.await.unwrap() }
    }

    fn called(&self) -> u32 {
        self.handler.called.load(Ordering::SeqCst)
    }
}

impl Drop for Fenced {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_time().build().unwrap().block_on(test)
}

#[test]
fn what_is_no_token_is_refused_with_what_to_send() {
    let fenced = Fenced::new(Limits::default());
    run(async {
        let overflow = "18446744073709551616";
        let malformed: [&[&str]; 10] = [
            &[""],
            &["x"],
            &["-1"],
            &["+1"],
            &["1.0"],
            &["0x1"],
            &["1, 2"],
            &["1", "2"],
            &["1", "1"],
            &[overflow],
        ];
        for tokens in malformed {
            let response = fenced.send("PUT", tokens, "").await;
            assert_eq!(response.status(), 400, "{tokens:?}");
            assert!(response.body().contains("\"malformed_fencing_token\""), "{}", response.body());
        }
        for method in ["PUT", "GET"] {
            let response = fenced.send(method, &[], "").await;
            assert_eq!(response.status(), 400);
            assert_eq!(response.headers()["content-type"], "application/json");
            assert!(response.body().contains("Fencing-Token: 42"), "{}", response.body());
        }
        assert_eq!(fenced.called(), 0);
        assert_eq!(fenced.send("PUT", &["18446744073709551615"], "").await.body(), "18446744073709551615");
    });
}

#[test]
fn a_stale_token_is_refused_and_told_the_highest_one() {
    let fenced = Fenced::new(Limits::default());
    run(async {
        assert_eq!(fenced.send("PUT", &["9"], "").await.body(), "9");
        let response = fenced.send("GET", &["7"], "").await;
        assert_eq!(response.status(), 409);
        assert_eq!(response.headers()["fencing-token-highest"], "9");
        let start = "{\"error\":\"stale_fencing_token\",\"presented\":7,\"highest\":9,\"message\":\"";
        assert!(response.body().starts_with(start), "{}", response.body());
        let parsed: serde_json::Value = serde_json::from_str(response.body()).unwrap();
        assert_eq!(parsed["highest"], 9);
        assert_eq!(fenced.called(), 1);
    });
}

#[test]
fn reads_may_be_let_in_without_a_token_and_writes_may_not() {
    let mut fenced = Fenced::new(Limits::default());
    fenced.layer = fenced.layer.clone().without_token(Without::ReadsAdmitted);
    run(async {
        for (method, tokens, status) in [
            ("PUT", vec!["9"], 200),
            ("GET", vec![], 200),
            ("HEAD", vec![], 200),
            ("OPTIONS", vec![], 200),
            ("POST", vec![], 400),
            ("DELETE", vec![], 400),
            ("TRACE", vec![], 400),
            ("GET", vec!["8"], 409),
            ("GET", vec!["x"], 400),
        ] {
            assert_eq!(fenced.send(method, &tokens, "").await.status(), status, "{method} {tokens:?}");
        }
    });
}

#[test]
fn a_handler_under_an_old_token_has_ended_before_a_new_one_is_called() {
    let long = Duration::from_secs(60);
    let fenced = Fenced::new(Limits { patience: long, grace: long });
    run(async {
        let old = tokio::spawn(fenced.send("PUT", &["7"], "wait"));
        while fenced.called() < 1 {
            tokio::task::yield_now().await;
        }
        let new = tokio::spawn(fenced.send("PUT", &["8"], ""));
        while fenced.layer.gate().highest() < FencingToken(8) {
            tokio::task::yield_now().await;
        }
        assert_eq!(fenced.send("PUT", &["7"], "").await.status(), 409);
        assert_eq!(fenced.called(), 1, "8 is not called beside 7");
        fenced.handler.go.notify_one();
        assert_eq!(old.await.unwrap().body(), "7");
        assert_eq!(new.await.unwrap().body(), "8");
    });
}

#[test]
fn a_handler_that_does_not_end_is_dropped_and_its_caller_told_so() {
    let fenced = Fenced::new(Limits { patience: Duration::ZERO, grace: Duration::from_secs(60) });
    run(async {
        let old = tokio::spawn(fenced.send("PUT", &["7"], "wait"));
        while fenced.called() < 1 {
            tokio::task::yield_now().await;
        }
        assert_eq!(fenced.send("PUT", &["8"], "").await.body(), "8");
        let old = old.await.unwrap();
        assert_eq!(old.status(), 409);
        assert!(
            old.body().contains("\"overtaken_fencing_token\",\"presented\":7,\"highest\":8"),
            "{}",
            old.body()
        );
    });
}

#[test]
fn nothing_reaches_the_service_while_the_disk_fails() {
    let fenced = Fenced::new(Limits::default());
    std::fs::remove_file(fenced.dir.join("e.fence")).unwrap();
    run(async {
        let response = fenced.send("PUT", &["7"], "").await;
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "1");
        assert!(!response.body().contains("e.fence"), "{}", response.body());
        assert_eq!(fenced.called(), 0);
    });
}
