//! Network links that can be cut without root: the messages between some nodes go through this process.
//!
//! A link that is cut is silent, like a broken network: not even the closing of a connection gets through. As with TCP,
//! bytes that were sent meanwhile arrive when the link is restored.

use std::net::TcpListener as StdListener;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::exit::Failure;

/// Links that are cut and restored together. They end when this is dropped.
#[derive(Debug)]
pub(super) struct Relays {
    whole: watch::Sender<bool>,
    links: mpsc::UnboundedSender<(StdListener, String)>,
}

/// The most bytes read at a time.
const BUFFER_BYTES: usize = 16 << 10;

impl Relays {
    /// Starts the thread of the links, which are not cut at first.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(super) fn start() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (links, mut made) = mpsc::unbounded_channel();
        let (whole, is_whole) = watch::channel(true);
        std::thread::Builder::new().name("relays".into()).spawn(move || {
            runtime.block_on(async {
                while let Some((listener, to)) = made.recv().await {
                    tokio::spawn(accept(listener, to, is_whole.clone()));
                }
            });
        })?;
        Ok(Self { whole, links })
    }

    /// Creates a link to an address, and returns the address to connect to instead.
    ///
    /// # Errors
    /// If the system has no port left.
    pub(super) fn link(&self, to: &str) -> Result<String, Failure> {
        let listener = StdListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        // The receiver is gone only if the thread has panicked. Then no node can connect, and the demo reports it.
        let _ = self.links.send((listener, to.to_owned()));
        Ok(address)
    }

    /// Cuts all links.
    pub(super) fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// Restores all links.
    pub(super) fn heal(&self) {
        self.whole.send_replace(true);
    }
}

async fn accept(listener: StdListener, to: String, whole: watch::Receiver<bool>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    while let Ok((from, _)) = listener.accept().await {
        tokio::spawn(carry(from, to.clone(), whole.clone()));
    }
}

/// Passes on the bytes of both directions, until both have ended. A peer that cannot be reached shows as a closed
/// connection.
async fn carry(from: TcpStream, to: String, mut whole: watch::Receiver<bool>) {
    if whole.wait_for(|whole| *whole).await.is_err() {
        return;
    }
    let Ok(to) = TcpStream::connect(to).await else { return };
    // Without `TCP_NODELAY`, small messages are delayed; if it is refused, they are.
    let _ = (from.set_nodelay(true), to.set_nodelay(true));
    let ((from, back), (answers, to)) = (from.into_split(), to.into_split());
    tokio::join!(pass_on(from, to, whole.clone()), pass_on(answers, back, whole));
}

async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut whole: watch::Receiver<bool>) {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = from.read(&mut buffer).await;
        if whole.wait_for(|whole| *whole).await.is_err() {
            return;
        }
        let Ok(count @ 1..) = read else {
            // The end or failure of one direction is passed on as its end.
            let _ = to.shutdown().await;
            return;
        };
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    /// The bound of a wait, and the time for which a cut link must be silent.
    const PATIENCE: Duration = Duration::from_secs(30);
    const SILENCE: Duration = Duration::from_millis(50);

    #[test]
    fn a_cut_link_is_silent_and_loses_nothing() {
        let relays = Relays::start().unwrap();
        let node = StdListener::bind("127.0.0.1:0").unwrap();
        let mut says =
            TcpStream::connect(relays.link(&node.local_addr().unwrap().to_string()).unwrap()).unwrap();
        let (mut hears, _) = node.accept().unwrap();
        let mut heard = [0; 3];
        says.write_all(b"one").unwrap();
        hears.set_read_timeout(Some(PATIENCE)).unwrap();
        hears.read_exact(&mut heard).unwrap();
        relays.cut();
        says.write_all(b"two").unwrap();
        drop(says);
        hears.set_read_timeout(Some(SILENCE)).unwrap();
        assert_eq!(hears.read(&mut heard).unwrap_err().kind(), ErrorKind::WouldBlock, "not even its end");
        relays.heal();
        hears.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        hears.read_to_end(&mut rest).unwrap();
        assert_eq!((&heard, rest.as_slice()), (b"one", &b"two"[..]));
    }
}
