//! A relay between a client and a member that on order loses messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A relay; it ends with the runtime.
pub(super) struct Relay {
    pub(super) port: u16,
    loses_answers: Arc<AtomicBool>,
}

impl Relay {
    pub(super) async fn start(member: (&'static str, u16)) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let loses_answers = Arc::new(AtomicBool::new(false));
        let loses = Arc::clone(&loses_answers);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.expect("a connection");
                let server = TcpStream::connect(member).await.expect("the member is there");
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
                let loses = Arc::clone(&loses);
                tokio::spawn(async move {
                    let mut bytes = vec![0; 16 * 1024];
                    while let Ok(length @ 1..) = from_server.read(&mut bytes).await {
                        // Lost bytes of a connection cannot be made up for: it is cut.
                        if loses.load(Ordering::SeqCst)
                            || to_client.write_all(&bytes[..length]).await.is_err()
                        {
                            return;
                        }
                    }
                });
            }
        });
        Self { port, loses_answers }
    }

    /// From now on the member's answers are lost.
    pub(super) fn lose_answers(&self, loses: bool) {
        self.loses_answers.store(loses, Ordering::SeqCst);
    }
}
