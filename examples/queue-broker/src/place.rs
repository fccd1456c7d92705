//! The document of the queue.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use object_store::aws::AmazonS3Builder;
use object_store::{ClientOptions, RetryConfig};
use primacy::core::election::lease::Version;
use primacy::stores::file::FileDocument;
use primacy::stores::object::ObjectDocument;
use primacy::stores::{Document, Pending, ReadError, SetError};

/// The name of the object, as in osqueue.
const NAME: &str = "queue.json";

/// A document in a directory, or in a bucket.
#[derive(Debug)]
pub(crate) struct Place {
    document: Box<dyn Document>,
    /// The number of writes through this value.
    writes: Arc<AtomicU64>,
}

impl Place {
    fn new(document: impl Document + 'static) -> Self {
        Self { document: Box::new(document), writes: Arc::default() }
    }

    /// The counter of acknowledged writes, which stays valid after this value was moved.
    pub(crate) fn writes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.writes)
    }
}

/// Opens `file:DIRECTORY` or `s3://BUCKET/PREFIX`.
pub(crate) async fn open(url: &str) -> Result<Place, String> {
    if let Some(directory) = url.strip_prefix("file:") {
        let document =
            FileDocument::open(Path::new(directory), NAME).await.map_err(|error| error.to_string())?;
        return Ok(Place::new(document));
    }
    let Some(rest) = url.strip_prefix("s3://") else {
        return Err("--store: write file:DIRECTORY or s3://BUCKET/PREFIX".to_owned());
    };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let key =
        if prefix.is_empty() { NAME.to_owned() } else { format!("{}/{NAME}", prefix.trim_end_matches('/')) };
    let is_local = std::env::var("AWS_ENDPOINT_URL").is_ok_and(|url| url.starts_with("http://"));
    let store = AmazonS3Builder::from_env()
        .with_bucket_name(bucket)
        .with_client_options(ClientOptions::new().with_allow_http(is_local))
        // A repeated write may conflict with its own first attempt; the leader document resolves every doubtful answer
        // itself.
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .build()
        .map_err(|error| format!("--store: {error}"))?;
    let document = ObjectDocument::new(Arc::new(store), &key).map_err(|error| error.to_string())?;
    Ok(Place::new(document))
}

impl Document for Place {
    fn read(&self) -> Pending<'_, Result<Option<(Vec<u8>, Version)>, ReadError>> {
        self.document.read()
    }

    fn compare_and_set<'a>(
        &'a self,
        expect: Option<&'a Version>,
        bytes: &'a [u8],
    ) -> Pending<'a, Result<Version, SetError>> {
        Box::pin(async move {
            let written = self.document.compare_and_set(expect, bytes).await;
            if written.is_ok() {
                self.writes.fetch_add(1, Ordering::Relaxed);
            }
            written
        })
    }
}
