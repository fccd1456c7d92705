//! An HTTP service that refuses leaders that have been replaced.
//!
//! Start it, and act as two leaders with curl:
//!
//! ```text
//! $ cargo run -p primacy --features tower --example fenced_http &
//! $ curl -X PUT -H 'Fencing-Token: 7' -d 'by the first'  http://127.0.0.1:7480/note
//! $ curl -X PUT -H 'Fencing-Token: 8' -d 'by the second' http://127.0.0.1:7480/note
//! $ curl -X PUT -H 'Fencing-Token: 7' -d 'too late'      http://127.0.0.1:7480/note
//! {"error":"stale_fencing_token","presented":7,"highest":8,"message":"…"}
//! $ curl http://127.0.0.1:7480/note
//! by the second
//! ```
//!
//! Stop it and start it again: token 7 is still refused, because the highest token is in a file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use primacy::fence::HeldFence;
use primacy::fence::http::{FenceLayer, Without};
use tokio::net::TcpListener;

type Note = Arc<Mutex<String>>;

/// The handler need not know tokens: every request that reaches it is admitted, and no request with an older token is
/// in progress.
async fn write(State(note): State<Note>, body: String) {
    *note.lock().unwrap_or_else(PoisonError::into_inner) = body;
}

async fn read(State(note): State<Note>) -> String {
    note.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Creates the service, with its fence in this file.
///
/// # Errors
/// If the fence is damaged, belongs to another election, or is held by another process.
pub fn service(fence: &Path) -> Result<Router, Box<dyn std::error::Error>> {
    let fence = FenceLayer::new(HeldFence::open(fence, "example")?)?.without_token(Without::ReadsAdmitted);
    Ok(Router::new().route("/note", get(read).put(write)).with_state(Note::default()).layer(fence))
}

/// Runs the example.
///
/// # Errors
/// If the port is in use, or the fence cannot be opened.
pub fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fence: PathBuf = std::env::temp_dir().join("primacy-example.fence");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:7480").await?;
        println!("listening on http://{}/note, with the fence {}", listener.local_addr()?, fence.display());
        Ok(axum::serve(listener, service(&fence)?).await?)
    })
}
