//! A service that ignores tokens and records the requests that reach it; and clients of the proxy in front of it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

/// The longest time that a write takes.
const WORK_MAX_MS: usize = 7;

/// The requests and connections that have reached the service.
#[derive(Debug, Default)]
pub struct Seen {
    /// The token of each request, in the order of arrival.
    pub tokens: Mutex<Vec<u64>>,
    /// The token of each write, in the order in which the writes took effect, some time after their arrival.
    pub effects: Mutex<Vec<u64>>,
    /// `began 7`, `ended 7` or `dropped 7`, for the requests that wait.
    pub waits: Mutex<Vec<String>>,
    pub connections: AtomicU64,
    pub go: Notify,
}

/// The service, on its own port, in the runtime of the test.
#[derive(Debug)]
pub struct Upstream {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Upstream {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let noted = Arc::clone(&seen);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                noted.connections.fetch_add(1, Ordering::SeqCst);
                let seen = Arc::clone(&noted);
                let service = service_fn(move |request| answer(Arc::clone(&seen), request));
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move {
                    let _ = connection.await;
                });
            }
        });
        Self { address, seen, accepting }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn tokens(&self) -> Vec<u64> {
        self.seen.tokens.lock().unwrap().clone()
    }

    pub fn waits(&self) -> Vec<String> {
        self.seen.waits.lock().unwrap().clone()
    }
}

/// Records the end of a waiting request, however it ends.
struct Wait {
    seen: Arc<Seen>,
    token: u64,
    end: &'static str,
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.seen.waits.lock().unwrap().push(format!("{} {}", self.end, self.token));
    }
}

type Answer = Response<Pin<Box<dyn Body<Data = Bytes, Error = hyper::Error> + Send>>>;

async fn answer(seen: Arc<Seen>, request: Request<Incoming>) -> Result<Answer, Infallible> {
    let shown = request.headers().get("fencing-token");
    let token = shown.map_or(0, |token| token.to_str().unwrap().parse().unwrap());
    seen.tokens.lock().unwrap().push(token);
    let text = |text: String| -> Pin<Box<dyn Body<Data = Bytes, Error = hyper::Error> + Send>> {
        Box::pin(Full::from(text).map_err(|never| match never {}))
    };
    let mut response: Answer = Response::new(text(String::new()));
    match request.uri().path() {
        "/echo" => *response.body_mut() = Box::pin(request.into_body()),
        "/size" => {
            let mut body = request.into_body();
            let mut size = 0;
            while let Some(Ok(frame)) = body.frame().await {
                size += frame.into_data().map_or(0, |data| data.len());
            }
            *response.body_mut() = text(size.to_string());
        }
        "/write" => {
            // The duration varies, so that overlapping writes end in another order than they began.
            let length = seen.tokens.lock().unwrap().len() % WORK_MAX_MS;
            tokio::time::sleep(Duration::from_millis(length as u64)).await;
            seen.effects.lock().unwrap().push(token);
        }
        "/wait" => {
            seen.waits.lock().unwrap().push(format!("began {token}"));
            let mut wait = Wait { seen: Arc::clone(&seen), token, end: "dropped" };
            seen.go.notified().await;
            wait.end = "ended";
            *response.body_mut() = text("waited".to_owned());
        }
        "/cut" => {
            // Announces a thousand bytes, and sends ten; the test decides when the body ends.
            response.headers_mut().insert("content-length", "1000".parse().unwrap());
            let (parts, body) = mpsc::channel(1);
            tokio::spawn(async move {
                parts.send(Bytes::from("ten bytes.")).await.unwrap();
                seen.go.notified().await;
            });
            *response.body_mut() = Box::pin(Parts(body).map_err(|never| match never {}));
        }
        "/upgrade" => {
            *response.status_mut() = hyper::StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert("upgrade", "other".parse().unwrap());
            response.headers_mut().insert("connection", "upgrade".parse().unwrap());
        }
        "/coded" => {
            response.headers_mut().insert("transfer-encoding", "gzip, chunked".parse().unwrap());
            *response.body_mut() = text("not gzip".to_owned());
        }
        "/headers" => *response.body_mut() = text(format!("{:?}", request.headers())),
        path => *response.body_mut() = text(format!("{path} {:?}", request.headers().get("host").unwrap())),
    }
    Ok(response)
}

/// A body that a test sends in parts.
#[derive(Debug)]
pub struct Parts(pub mpsc::Receiver<Bytes>);

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|part| part.map(|part| Ok(Frame::data(part))))
    }
}

/// A connection to the proxy, which is closed on drop.
#[derive(Debug)]
pub struct Client<B = Full<Bytes>> {
    sender: SendRequest<B>,
    driver: tokio::task::JoinHandle<()>,
}

impl<B> Drop for Client<B> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl<B: Body<Data = Bytes, Error = Infallible> + Send + 'static> Client<B> {
    pub async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(async move {
            let _ = connection.await;
        });
        Self { sender, driver }
    }

    pub async fn send(
        &mut self,
        path: &str,
        token: Option<u64>,
        body: B,
    ) -> Result<Response<Incoming>, hyper::Error> {
        self.sender.ready().await?;
        let mut request = Request::put(path).header("host", "service.example");
        if let Some(token) = token {
            request = request.header("fencing-token", token.to_string());
        }
        self.sender.send_request(request.body(body).unwrap()).await
    }
}

impl Client {
    /// Sends a request with a small body. Returns the status and the whole answer.
    pub async fn put(&mut self, path: &str, token: u64) -> (u16, String) {
        let response = self.send(path, Some(token), Full::from("body")).await.unwrap();
        text(response).await
    }
}

pub async fn text(response: Response<Incoming>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}
