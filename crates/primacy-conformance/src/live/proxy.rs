//! A proxy in front of a server that can lose what a network can lose.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// The size of the read buffer.
const CHUNK: usize = 16 * 1024;

/// The time to wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(60);

/// The mode of forwarding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pass,
    /// Nothing is forwarded, in either direction.
    Stall,
    /// The server's replies are discarded; requests are forwarded.
    DropReplies,
}

#[derive(Clone, Copy, Debug)]
struct Orders {
    mode: Mode,
    /// The number of the period; connections of an earlier period are closed.
    time: u64,
    /// True if new connections are closed at once.
    refuses: bool,
}

/// A TCP proxy on a thread of its own. It forwards everything by default, and ends on drop.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    orders: watch::Sender<Orders>,
    counts: Arc<Counts>,
    _end: oneshot::Sender<()>,
}

/// The counts of hindered traffic.
#[derive(Debug, Default)]
struct Counts {
    /// The number of discarded bytes of replies.
    dropped: AtomicU64,
    /// The number of connections that were closed or refused, and of reads that were stalled or discarded.
    hindered: AtomicU64,
}

impl Counts {
    fn hinder(&self) {
        self.hindered.fetch_add(1, Ordering::SeqCst);
    }
}

impl Proxy {
    /// Listens on a free port of the loopback interface, for connections to `server`.
    ///
    /// # Panics
    /// If there is no free port, or no thread.
    #[must_use]
    pub fn start(server: SocketAddr) -> Self {
        let listener =
            std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port of the loopback interface");
        listener.set_nonblocking(true).expect("a socket like any other");
        let address = listener.local_addr().expect("it is bound");
        let (orders, given) = watch::channel(Orders { mode: Mode::Pass, time: 0, refuses: false });
        let (end, ended) = oneshot::channel();
        let counts = Arc::<Counts>::default();
        let counted = Arc::clone(&counts);
        let serve = move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    () = accept(listener, server, given, counted) => {}
                    _ = ended => {}
                }
            });
        };
        std::thread::Builder::new().name("proxy".to_owned()).spawn(serve).expect("a thread");
        Self { address, orders, counts, _end: end }
    }

    /// The address to connect to instead of the server's.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Forwards everything, and accepts connections.
    pub fn pass(&self) {
        self.orders.send_modify(|orders| *orders = Orders { mode: Mode::Pass, refuses: false, ..*orders });
    }

    /// Forwards nothing, in either direction. Connections stay open, and new ones are accepted.
    pub fn stall(&self) {
        self.orders.send_modify(|orders| orders.mode = Mode::Stall);
    }

    /// Discards the server's replies; requests are forwarded.
    pub fn drop_replies(&self) {
        self.orders.send_modify(|orders| orders.mode = Mode::DropReplies);
    }

    /// Closes the present connections. New ones are accepted.
    pub fn cut(&self) {
        self.orders.send_modify(|orders| orders.time += 1);
    }

    /// Closes the present connections and all new ones, until [`pass`](Self::pass).
    pub fn refuse(&self) {
        self.orders
            .send_modify(|orders| *orders = Orders { time: orders.time + 1, refuses: true, ..*orders });
    }

    /// The number of discarded bytes of replies.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::SeqCst)
    }

    /// The number of times that it has closed, refused, stalled or discarded anything, which shows whether a fault had an
    /// effect.
    #[must_use]
    pub fn hindered(&self) -> u64 {
        self.counts.hindered.load(Ordering::SeqCst)
    }

    /// Waits until more than `count` bytes of replies were discarded: then the server has answered.
    ///
    /// # Panics
    /// If that does not happen.
    pub async fn until_dropped(&self, count: u64) {
        let waiting = async {
            while self.dropped() <= count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "the server has not answered");
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    orders: watch::Receiver<Orders>,
    counts: Arc<Counts>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let given = *orders.borrow();
        if given.refuses {
            counts.hinder();
        } else {
            tokio::spawn(connect(client, server, given.time, orders.clone(), Arc::clone(&counts)));
        }
    }
}

async fn connect(
    client: TcpStream,
    server: SocketAddr,
    time: u64,
    mut orders: watch::Receiver<Orders>,
    counts: Arc<Counts>,
) {
    // If the server is down, the connection is closed, as its client would see without a proxy.
    let Ok(server) = TcpStream::connect(server).await else { return };
    // Disables Nagle's algorithm, so that requests are not delayed.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let requests = forward(from_client, to_server, orders.clone(), false, &counts);
    let replies = forward(from_server, to_client, orders.clone(), true, &counts);
    // When one direction ends, so does the other, and both sockets are closed.
    tokio::select! {
        () = requests => {}
        () = replies => {}
        _ = orders.wait_for(|orders| orders.time != time) => counts.hinder(),
    }
}

/// Forwards one direction.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut orders: watch::Receiver<Orders>,
    are_replies: bool,
    counts: &Counts,
) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        if orders.borrow().mode == Mode::Stall {
            counts.hinder();
        }
        let Ok(mode) = orders.wait_for(|orders| orders.mode != Mode::Stall).await.map(|orders| orders.mode)
        else {
            return;
        };
        if are_replies && mode == Mode::DropReplies {
            counts.dropped.fetch_add(length as u64, Ordering::SeqCst);
            counts.hinder();
        } else if to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts an echo server.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn ask(stream: &mut TcpStream, byte: u8) -> Option<u8> {
        stream.write_all(&[byte]).await.ok()?;
        stream.read_u8().await.ok()
    }

    #[tokio::test]
    async fn it_passes_stalls_drops_and_cuts_as_it_is_told() {
        let proxy = Proxy::start(echo().await);
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut stream, 1).await, Some(1));
        assert_eq!(proxy.hindered(), 0);
        proxy.stall();
        let stalled = tokio::time::timeout(Duration::from_millis(50), ask(&mut stream, 2)).await;
        assert!(stalled.is_err(), "nothing moves");
        assert_eq!(proxy.hindered(), 1);
        proxy.pass();
        assert_eq!(stream.read_u8().await.unwrap(), 2, "it was only late");
        proxy.drop_replies();
        stream.write_all(&[3]).await.unwrap();
        proxy.until_dropped(0).await;
        proxy.pass();
        assert_eq!(ask(&mut stream, 4).await, Some(4), "the answer before it is lost");
        proxy.cut();
        assert_eq!(ask(&mut stream, 5).await, None);
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut stream, 6).await, Some(6));
        proxy.refuse();
        assert_eq!(ask(&mut stream, 7).await, None);
        let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut refused, 8).await, None);
        assert_eq!(proxy.hindered(), 5, "late, lost, cut, cut, refused");
        proxy.pass();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(ask(&mut stream, 9).await, Some(9));
    }
}
