//! The door for clients of etcd, beside etcd: the same is asked of both, and the answers must be the same.

mod questions;
mod script;
mod strangers;

use std::path::Path;
use std::process::Command;

use primacy_conformance::live::etcd::Etcd;
use primacy_conformance::live::{Ground, Server, free_port};
use primacy_stores::etcd::EtcdClient;

/// A door before a map of one process.
struct Door {
    address: String,
    /// Ended with this.
    _server: Server,
}

impl Door {
    async fn open(ground: &Ground, arguments: &[&str]) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new(env!("CARGO_BIN_EXE_primacy"));
        command.args(["serve-local", "--serve", &address]).args(arguments);
        let mut server = Server::start("door", command, ground);
        server.until(async || tokio::net::TcpStream::connect(&address).await.is_ok()).await;
        Self { address, _server: server }
    }
}

/// An etcd of one member, and where it is.
async fn etcd() -> Result<(Etcd, String), String> {
    let etcd = Etcd::start_of(1, None).await?;
    let (host, port) = etcd.address(0);
    Ok((etcd, format!("{host}:{port}")))
}

/// A file with these contents.
fn file(ground: &Ground, name: &str, contents: &str) -> std::path::PathBuf {
    let path = ground.at(name);
    std::fs::write(&path, contents).unwrap();
    path
}

fn as_text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn client(address: &str) -> EtcdClient {
    EtcdClient::new(&format!("etcd://{address}")).unwrap()
}
