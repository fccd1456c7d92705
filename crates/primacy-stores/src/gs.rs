//! Google Cloud Storage: `gs://BUCKET/PREFIX`. Its promises are those of [`object`](crate::object).

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};

use crate::diagnostics::Examination;
use crate::object::connect::{self, ObjectStoreKind, Settings, send_once};
use crate::object::credentials::Names;
use crate::open_error::OpenError;
use crate::opening::{Address, Opening};

pub(crate) const KIND: ObjectStoreKind = ObjectStoreKind {
    form: "gs://BUCKET/PREFIX",
    names: Names {
        prefix: "GOOGLE_",
        others: &["SERVICE_ACCOUNT", "GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"],
        is_setting: |name| name.parse::<GoogleConfigKey>().is_ok(),
    },
    build,
};

/// Opens `gs://BUCKET/PREFIX?SETTINGS`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(connect::open(address, KIND))
}

/// Sends no request: an object store does not report how it keeps objects.
pub(crate) fn examine(address: Address) -> Examination {
    connect::examine(&address, KIND)
}

fn build(settings: &mut Settings) -> Result<Arc<dyn ObjectStore>, OpenError> {
    let mut builder = GoogleCloudStorageBuilder::from_env();
    for (key, value) in settings.credentials()? {
        builder = builder.with_config(key, value);
    }
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_config(GoogleConfigKey::BaseUrl, endpoint);
    }
    let options = object_store::ClientOptions::new().with_allow_http(settings.allows_http());
    let store = builder
        .with_bucket_name(&settings.bucket)
        .with_client_options(options)
        .with_retry(send_once())
        .with_http_connector(settings.connector())
        .build();
    Ok(Arc::new(store.map_err(|error| Settings::wrong(&error))?))
}
