//! A proxy between a client and a ZooKeeper server that parses their messages: it can lose an answer, block traffic
//! for a while, or make the server treat a reconnecting client as a new one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The code of the request that creates a znode and returns its stat.
const CREATE2: i32 = 15;

/// The longest message that is forwarded, in bytes; ZooKeeper's own limit.
const MESSAGE_MAX: usize = 1 << 20;

/// The byte ranges of the session's id and password in the first message of a connection.
const SESSION_NUMBER: std::ops::Range<usize> = 16..24;
const SESSION_PASSWORD: std::ops::Range<usize> = 28..44;

/// A proxy, which ends on drop.
#[derive(Debug)]
pub struct Middle {
    address: String,
    orders: Arc<Orders>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Orders {
    server: Mutex<String>,
    silent: watch::Sender<bool>,
    cuts: watch::Sender<u32>,
    loses_create: AtomicBool,
    lost: watch::Sender<u32>,
    forgets: AtomicBool,
}

impl Middle {
    /// Starts a proxy in front of `server`.
    ///
    /// # Panics
    /// If the loopback interface has no port.
    pub async fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port of the loopback interface");
        let address = listener.local_addr().expect("it is bound").to_string();
        let orders = Arc::new(Orders {
            server: Mutex::new(server.to_owned()),
            silent: watch::Sender::new(false),
            cuts: watch::Sender::new(0),
            loses_create: AtomicBool::new(false),
            lost: watch::Sender::new(0),
            forgets: AtomicBool::new(false),
        });
        let told = Arc::clone(&orders);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass_on(client, Arc::clone(&told)));
            }
        });
        Self { address, orders, task }
    }

    /// The address at which it listens: `HOST:PORT`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Forwards nothing in either direction, until [`speak`](Self::speak); nothing is discarded.
    pub fn be_silent(&self) {
        self.orders.silent.send_replace(true);
    }

    /// Forwards everything again.
    pub fn speak(&self) {
        self.orders.silent.send_replace(false);
    }

    /// Closes the present connections.
    pub fn cut(&self) {
        self.orders.cuts.send_modify(|count| *count += 1);
    }

    /// Loses the next answer to the creation of a znode, with the connection; the znode is created.
    pub fn lose_next_create(&self) {
        self.orders.loses_create.store(true, Ordering::SeqCst);
    }

    /// Waits until an answer was lost.
    ///
    /// # Panics
    /// Never: the proxy itself owns the sender of the count.
    pub async fn has_lost(&self) {
        self.orders.lost.subscribe().wait_for(|count| *count > 0).await.expect("the sender is there");
    }

    /// From now on, connections begin new sessions, even if the client asks for an old one.
    pub fn forget_sessions(&self) {
        self.orders.forgets.store(true, Ordering::SeqCst);
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

/// Forwards both directions of a connection; both end with the first one that does.
async fn pass_on(client: TcpStream, orders: Arc<Orders>) {
    let mut cuts = orders.cuts.subscribe();
    let server = orders.server.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let swallowed = Arc::new(Mutex::new(None));
    tokio::select! {
        _ = requests(from_client, to_server, &orders, &swallowed) => {}
        _ = answers(from_server, to_client, &orders, &swallowed) => {}
        _ = cuts.changed() => {}
    }
}

type Swallowed = Mutex<Option<i32>>;

async fn requests(
    mut client: OwnedReadHalf,
    mut server: OwnedWriteHalf,
    orders: &Orders,
    swallowed: &Swallowed,
) -> Option<()> {
    let mut first = message(&mut client).await?;
    if orders.forgets.load(Ordering::SeqCst) {
        first.get_mut(SESSION_NUMBER)?.fill(0);
        first.get_mut(SESSION_PASSWORD)?.fill(0);
    }
    send(&mut server, &first).await?;
    loop {
        let request = message(&mut client).await?;
        orders.silent.subscribe().wait_for(|silent| !silent).await.ok()?;
        if number(&request, 4) == Some(CREATE2) && orders.loses_create.swap(false, Ordering::SeqCst) {
            *swallowed.lock().unwrap_or_else(PoisonError::into_inner) = number(&request, 0);
        }
        send(&mut server, &request).await?;
    }
}

async fn answers(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    orders: &Orders,
    swallowed: &Swallowed,
) -> Option<()> {
    let first = message(&mut server).await?;
    send(&mut client, &first).await?;
    loop {
        let answer = message(&mut server).await?;
        orders.silent.subscribe().wait_for(|silent| !silent).await.ok()?;
        let is_lost = {
            let swallowed = swallowed.lock().unwrap_or_else(PoisonError::into_inner);
            swallowed.is_some() && *swallowed == number(&answer, 0)
        };
        if is_lost {
            orders.lost.send_modify(|count| *count += 1);
            return None;
        }
        send(&mut client, &answer).await?;
    }
}

/// Reads a message, which is preceded by its length.
async fn message(from: &mut OwnedReadHalf) -> Option<Vec<u8>> {
    let length = usize::try_from(from.read_u32().await.ok()?).ok().filter(|length| *length <= MESSAGE_MAX)?;
    let mut message = vec![0; length];
    from.read_exact(&mut message).await.ok()?;
    Some(message)
}

async fn send(to: &mut OwnedWriteHalf, message: &[u8]) -> Option<()> {
    to.write_u32(u32::try_from(message.len()).ok()?).await.ok()?;
    to.write_all(message).await.ok()
}

fn number(message: &[u8], at: usize) -> Option<i32> {
    let bytes = message.get(at..at + 4)?;
    Some(i32::from_be_bytes(bytes.try_into().ok()?))
}
