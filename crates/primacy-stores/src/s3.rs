//! Amazon S3, and other servers of its protocol: `s3://BUCKET/PREFIX`. Its promises are those of
//! [`object`](crate::object).

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};

use crate::diagnostics::Examination;
use crate::object::connect::{self, ObjectStoreKind, Settings, send_once};
use crate::object::credentials::Names;
use crate::open_error::OpenError;
use crate::opening::{Address, Opening};

pub(crate) const KIND: ObjectStoreKind = ObjectStoreKind {
    form: "s3://BUCKET/PREFIX",
    names: Names {
        prefix: "AWS_",
        others: &[],
        is_setting: |name| name.parse::<AmazonS3ConfigKey>().is_ok(),
    },
    build,
};

/// The default region. It is the one that servers accept that have no regions.
const REGION: &str = "us-east-1";

/// Opens `s3://BUCKET/PREFIX?SETTINGS`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(connect::open(address, KIND))
}

/// Sends no request: an object store does not report how it keeps objects.
pub(crate) fn examine(address: Address) -> Examination {
    connect::examine(&address, KIND)
}

fn build(settings: &mut Settings) -> Result<Arc<dyn ObjectStore>, OpenError> {
    // Credentials, and other settings in the environment for all programs that use S3.
    let mut builder = AmazonS3Builder::from_env();
    if std::env::var_os("AWS_REGION").is_none() && std::env::var_os("AWS_DEFAULT_REGION").is_none() {
        builder = builder.with_region(REGION);
    }
    for (key, value) in settings.credentials()? {
        builder = builder.with_config(key, value);
    }
    if let Some(region) = settings.take("region")? {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint).with_allow_http(settings.allows_http());
    }
    builder = match settings.url.take("style").as_deref() {
        None => builder,
        Some("path") => builder.with_virtual_hosted_style_request(false),
        Some("host") => builder.with_virtual_hosted_style_request(true),
        Some(_) => return Err(settings.url.malformed("`style` is `path` or `host`")),
    };
    let store = builder
        .with_bucket_name(&settings.bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(send_once())
        .with_http_connector(settings.connector())
        .build();
    Ok(Arc::new(store.map_err(|error| Settings::wrong(&error))?))
}
