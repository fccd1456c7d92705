//! A stand-in for the library.
use primacy_core::fence::FencingToken;
use primacy_core::term::Term;
use primacy_core::time::Instant;
use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Elector {
    path: std::path::PathBuf,
    lease: Duration,
}
#[derive(Debug)]
pub(crate) struct Leadership {
    _file: Arc<std::fs::File>,
    token: u64,
    asked: Cell<Instant>,
    lease: Duration,
}
#[derive(Debug)]
pub(crate) struct WorkGuard(#[allow(dead_code)] Arc<std::fs::File>);
#[derive(Debug)]
pub(crate) struct Lost;
impl Elector {
    pub(crate) fn connect(path: &str, lease: Duration) -> Self {
        Self { path: path.into(), lease }
    }
    pub(crate) async fn campaign(&self) -> Result<Leadership, String> {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.path)
            .map_err(|e| e.to_string())?;
        loop {
            if rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let p = self.path.with_extension("token");
        let token = std::fs::read_to_string(&p).ok().and_then(|t| t.parse::<u64>().ok()).unwrap_or(0) + 1;
        std::fs::write(&p, token.to_string()).map_err(|e| e.to_string())?;
        Ok(Leadership {
            _file: Arc::new(file),
            token,
            asked: Cell::new(crate::boot_clock::now()),
            lease: self.lease,
        })
    }
    pub(crate) async fn close(self) {}
}
impl Leadership {
    pub(crate) fn token(&self) -> FencingToken {
        FencingToken(self.token)
    }
    pub(crate) fn term(&self) -> Term {
        Term(self.token)
    }
    pub(crate) fn valid_until(&self) -> Instant {
        self.asked.get().after(self.lease.into())
    }
    pub(crate) async fn ended(&self) -> &'static str {
        std::future::pending().await
    }
    pub(crate) async fn renewed(&self) -> Instant {
        tokio::time::sleep(self.lease / 4).await;
        self.asked.set(crate::boot_clock::now());
        self.valid_until()
    }
    pub(crate) fn guard(&self) -> Result<WorkGuard, Lost> {
        Ok(WorkGuard(self._file.clone()))
    }
    pub(crate) async fn resign(self) {}
}
#[allow(dead_code)]
pub(crate) fn unused(_: Mutex<()>) {}
