//! The document of a test's queue, and a client's look into it without a broker.

use std::path::PathBuf;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::{ClientOptions, ObjectStoreExt};
use primacy_conformance::live::Ground;
use primacy_conformance::live::moto::BUCKET;
use serde_json::Value;

use crate::bucket::Bucket;

/// The prefix, and the directory.
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

    /// As `--store` has it.
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

    /// The document as it is now, read as README.md says; `None` as long as there is none.
    pub(crate) fn queue(&self) -> Option<Value> {
        match self {
            Self::Directory(path) => {
                let text = std::fs::read_to_string(path.join("queue%2ejson.election/record")).ok()?;
                // The first line belongs to the directory.
                let (_, document) = text.split_once('\n')?;
                serde_json::from_str(document).ok()
            }
            Self::Bucket(bucket) => serde_json::from_slice(&object(bucket)?).ok(),
        }
    }

    /// The address of the leader, by the document.
    pub(crate) fn leader(&self) -> Option<String> {
        Some(self.queue()?["broker"].as_str()?.to_owned())
    }
}

/// The object's bytes, as any client of S3 gets them.
fn object(bucket: &Bucket) -> Option<Vec<u8>> {
    // The library never chooses for its users; this is one of them, and may have chosen before.
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
