//! A relay between a client and a server that states a newer version than the server's.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The version that Debian's server states, and the one that the relay makes of it.
const OLD: &str = r#""version":"2.9.10""#;
const NEW: &str = r#""version":"2.11.0""#;

/// A relay before a server that states its version as 2.11, until it is ordered to tell the truth.
pub(super) async fn relay_that_lies(server: SocketAddr, lies: Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) =
                TcpStream::connect(server).await.expect("the server is there").into_split();
            let lied = lies.load(Ordering::SeqCst);
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let lies = Arc::clone(&lies);
            tokio::spawn(async move {
                let mut bytes = vec![0; 64 * 1024];
                loop {
                    let length = tokio::select! {
                        read = from_server.read(&mut bytes) => read.unwrap_or(0),
                        // From the order on, it keeps no connection on which it has lied.
                        () = until_false(&lies), if lied => 0,
                    };
                    let told = String::from_utf8_lossy(&bytes[..length]);
                    let shown = if lied { told.replace(OLD, NEW) } else { told.into_owned() };
                    if length == 0 || to_client.write_all(shown.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

async fn until_false(lies: &AtomicBool) {
    while lies.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
