//! The document of a test's queue, as a client without a broker reads it.

use std::path::PathBuf;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{ClientOptions, ObjectStoreExt};
use primacy_conformance::live::Ground;
use primacy_conformance::live::moto::BUCKET;
use serde_json::Value;

use crate::bucket::Bucket;

/// The name of the prefix and of the directory.
const NAME: &str = "queue";

/// A directory or a bucket.
pub(crate) enum Store {
    Directory(PathBuf),
    Bucket(Bucket),
}

impl Store {
    pub(crate) fn directory(ground: &Ground) -> Self {
        Self::Directory(ground.at(NAME))
    }

    /// The value of `--store`.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Directory(path) => format!("file:{}", path.display()),
            Self::Bucket(bucket) => bucket.url(NAME),
        }
    }

    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        match self {
            Self::Directory(_) => Vec::new(),
            Self::Bucket(bucket) => bucket.variables(),
        }
    }

    /// The present document, read as README.md describes; `None` if there is none yet.
    pub(crate) fn queue(&self) -> Option<Value> {
        match self {
            Self::Directory(path) => {
                let text = std::fs::read_to_string(path.join("queue%2ejson.election/record")).ok()?;
                // The first line is the directory store's.
                let (_, document) = text.split_once('\n')?;
                serde_json::from_str(document).ok()
            }
            Self::Bucket(bucket) => serde_json::from_slice(&object(bucket)?).ok(),
        }
    }

    /// The address of the leader in the document.
    pub(crate) fn leader(&self) -> Option<String> {
        Some(self.queue()?["broker"].as_str()?.to_owned())
    }
}

/// The object's bytes, read as an ordinary S3 client.
fn object(bucket: &Bucket) -> Option<Vec<u8>> {
    // The library leaves the choice of a crypto provider to the application, and may have one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = AmazonS3Builder::new()
        .with_bucket_name(BUCKET)
        .with_client_options(ClientOptions::new().with_allow_http(true));
    let builder = bucket.variables().into_iter().fold(builder, |builder, (name, value)| {
        let key: AmazonS3ConfigKey = name.to_lowercase().parse().unwrap();
        builder.with_config(key, value)
    });
    let store = builder.build().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let found = store.get(&format!("{NAME}/queue.json").into()).await.ok()?;
        Some(found.bytes().await.ok()?.to_vec())
    })
}
