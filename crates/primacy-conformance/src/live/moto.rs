//! An S3 server with conditional writes: moto, a Python package; and a fake of a server that compares and writes in
//! two separate steps.
//!
//! Moto runs with one request at a time. Its comparison and its write are two steps, between which another thread
//! could come; the real S3 does both atomically. The two steps are close together, so that most races between threads
//! still have one winner; the fake pauses between them.

use std::process::Command;

use super::{Ground, Server, free_port, program, run_python};

/// The bucket that exists.
pub const BUCKET: &str = "primacy";

/// Serves moto's application, one request at a time, each after it was received: a client that is paused before it has
/// sent its request must not keep the others waiting. Requests for objects whose name contains the text of the second
/// argument, if there is one, are served concurrently, with a pause between comparison and write, as in a server that
/// consults its disk or another server in between.
const SERVE: &str = "
import io, sys, threading, time
from moto.s3.models import S3Backend
from werkzeug.serving import run_simple
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
is_in_two_steps = lambda name: any(part in name for part in sys.argv[2:])
write = S3Backend.put_object
def pause_and_write(self, bucket, key, *args, **more):
    if is_in_two_steps(key):
        time.sleep(0.05)
    return write(self, bucket, key, *args, **more)
S3Backend.put_object = pause_and_write
whole = DomainDispatcherApplication(create_backend_app)
alone = threading.Lock()
def serve(environ, start_response):
    length = int(environ.get('CONTENT_LENGTH') or 0)
    environ['wsgi.input'] = io.BytesIO(environ['wsgi.input'].read(length))
    if is_in_two_steps(environ['PATH_INFO']):
        return whole(environ, start_response)
    with alone:
        return whole(environ, start_response)
run_simple('127.0.0.1', int(sys.argv[1]), serve, threaded=True)
";

/// Creates the bucket, by the client library.
const MAKE_BUCKET: &str = "
import sys, boto3
s3 = boto3.client('s3', endpoint_url=sys.argv[1], region_name='us-east-1',
                  aws_access_key_id='test', aws_secret_access_key='test')
s3.create_bucket(Bucket=sys.argv[2])
";

/// An S3 server, and its directory with a credential file.
#[derive(Debug)]
pub struct Moto {
    ground: Ground,
    port: u16,
    server: Server,
    /// The text in the names of objects that it compares and writes in two steps.
    two_steps: Option<&'static str>,
}

impl Moto {
    /// Starts it, with a bucket.
    ///
    /// # Errors
    /// The program that is missing, for the report.
    pub async fn start() -> Result<Self, String> {
        Self::start_with(None).await
    }

    /// Starts the fake of a server that compares and writes in two steps, for objects whose name contains `part`.
    ///
    /// # Errors
    /// The program that is missing, for the report.
    pub async fn start_in_two_steps(part: &'static str) -> Result<Self, String> {
        Self::start_with(Some(part)).await
    }

    async fn start_with(two_steps: Option<&'static str>) -> Result<Self, String> {
        program("moto_server")?;
        let ground = Ground::new("moto");
        let text = "[default]\naws_access_key_id = test\naws_secret_access_key = test\n";
        std::fs::write(ground.at("credentials"), text).map_err(|error| error.to_string())?;
        let port = free_port();
        let server = Self::serve(&ground, port, two_steps).await;
        let moto = Self { ground, port, server, two_steps };
        moto.make_bucket(BUCKET);
        Ok(moto)
    }

    async fn serve(ground: &Ground, port: u16, two_steps: Option<&str>) -> Server {
        let mut command = Command::new(python());
        command.args(["-c", SERVE, &port.to_string()]).args(two_steps);
        let mut server = Server::start("moto", command, ground);
        server.until(async || tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()).await;
        server
    }

    /// Creates a bucket.
    ///
    /// # Panics
    /// If it cannot be created.
    pub fn make_bucket(&self, bucket: &str) {
        run_python(&python(), MAKE_BUCKET, &[&format!("http://127.0.0.1:{}", self.port), bucket]);
    }

    /// The port on which it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a bucket through a proxy on `port`, or directly.
    #[must_use]
    pub fn url_through(&self, bucket: &str, port: u16) -> String {
        let credentials = self.ground.at("credentials");
        format!("s3://{bucket}/laws?endpoint=http://127.0.0.1:{port}&credentials={}", credentials.display())
    }

    /// The URL of its bucket.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_through(BUCKET, self.port)
    }

    /// Kills it. Its data, all in memory, is lost.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Restarts it at the same port, without a bucket.
    pub async fn restart(&mut self) {
        self.server = Self::serve(&self.ground, self.port, self.two_steps).await;
    }

    /// Its process, for signals.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }
}

/// The Python interpreter in the directory of moto's program.
fn python() -> std::path::PathBuf {
    let moto = program("moto_server").expect("it was there at the start");
    moto.with_file_name("python3")
}
