//! A fake of the API server of Kubernetes: `stand-ins/kube_apiserver.py`. No package registry has a real one.

use std::path::{Path, PathBuf};
use std::process::Command;

use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use primacy_stores::kubernetes::Bytes;
use serde_json::{Value, json};

use super::{Ground, Server, free_port, program};

/// The fake, and the tests' own requests to it.
#[derive(Debug)]
pub struct ApiServer {
    server: Server,
    port: u16,
    options: Vec<String>,
    scheme: &'static str,
    ground: Ground,
}

/// The path of a program in `stand-ins/`.
#[must_use]
pub fn stand_in(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("stand-ins").join(name)
}

impl ApiServer {
    /// Starts one without access control or TLS.
    ///
    /// # Errors
    /// The program that is missing.
    pub async fn start() -> Result<Self, String> {
        Self::start_with(Ground::new("kubernetes"), &[], "http").await
    }

    /// Starts one with these further options, whose files are in `ground`.
    ///
    /// # Errors
    /// The program that is missing.
    pub async fn start_with(ground: Ground, options: &[&str], scheme: &'static str) -> Result<Self, String> {
        let python = program("python3")?;
        let port = free_port();
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let server = Server::start("kubernetes", command(&python, port, &options, &ground), &ground);
        let mut started = Self { server, port, options, scheme, ground };
        started.ready().await;
        Ok(started)
    }

    async fn ready(&mut self) {
        let port = self.port;
        self.server.until(async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()).await;
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}://localhost:{}", self.scheme, self.port)
    }

    /// Its port.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the store in it, for a user without credentials.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_as("nobody", &json!({}), &json!({}))
    }

    /// The same URL through a proxy on this port.
    #[must_use]
    pub fn url_through(&self, port: u16) -> String {
        let server = format!("{}://localhost:{port}", self.scheme);
        self.url_as(&format!("through-{port}"), &json!({}), &json!({ "server": server }))
    }

    /// The URL of the store in it, with a kubeconfig whose entries for the user and the cluster have these fields.
    ///
    /// # Panics
    /// If the temporary directory cannot be written.
    #[must_use]
    pub fn url_as(&self, name: &str, user: &Value, cluster: &Value) -> String {
        let mut cluster = cluster.clone();
        if cluster["server"].is_null() {
            cluster["server"] = self.address().into();
        }
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        let path = self.ground.at(&format!("{name}.kubeconfig"));
        // Processes may be reading the present file. JSON is valid YAML.
        let new = path.with_extension("new");
        std::fs::write(&new, kubeconfig.to_string()).expect("the temporary directory can be written");
        std::fs::rename(&new, &path).expect("the temporary directory can be written");
        format!("kubernetes://default?kubeconfig={}", path.display())
    }

    /// Sends it a request as any client could. Returns the status and the answer.
    ///
    /// # Panics
    /// If there is no answer.
    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let uri = format!("{}{path}", self.address());
        let request = http::Request::builder().method(method).uri(uri).body(Full::<Bytes>::from(body));
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request.expect("a request")).await.expect("an answer");
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.expect("a whole answer").to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }

    /// The Lease of this name, as other clients see it.
    ///
    /// # Panics
    /// If there is no answer.
    pub async fn lease(&self, name: &str) -> Option<Value> {
        let (code, lease) = self.ask("GET", &lease_path(name), &Value::Null).await;
        (code == 200).then_some(lease)
    }

    /// Changes the Lease as another program could: reads it, changes it, and writes it back.
    ///
    /// # Panics
    /// If it cannot be changed.
    pub async fn change(&self, name: &str, change: impl Fn(&mut Value)) {
        loop {
            let mut lease = self.lease(name).await.expect("a Lease");
            change(&mut lease);
            let (code, answer) = self.ask("PUT", &lease_path(name), &lease).await;
            if code == 200 {
                return;
            }
            assert_eq!(code, 409, "{answer}");
        }
    }

    /// Makes it misbehave next; see the program.
    ///
    /// # Panics
    /// If it does not accept the order.
    pub async fn order(&self, order: &str, details: &Value) {
        let (code, answer) = self.ask("POST", &format!("/stand-in/{order}"), details).await;
        assert_eq!(code, 200, "{answer}");
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Restarts it, with its data.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&mut self) {
        let python = program("python3").expect("it was there before");
        let command = command(&python, self.port, &self.options, &self.ground);
        self.server = Server::start("kubernetes", command, &self.ground);
        self.ready().await;
    }

    /// Its process.
    #[must_use]
    pub const fn server(&self) -> &Server {
        &self.server
    }

    /// Its directory.
    #[must_use]
    pub const fn ground(&self) -> &Ground {
        &self.ground
    }
}

fn command(python: &Path, port: u16, options: &[String], ground: &Ground) -> Command {
    let mut command = Command::new(python);
    command.arg(stand_in("kube_apiserver.py")).args(["--port", &port.to_string(), "--state"]);
    command.arg(ground.at("state.json")).args(options);
    command
}

/// The path of a Lease.
#[must_use]
pub fn lease_path(name: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/default/leases/{name}")
}
