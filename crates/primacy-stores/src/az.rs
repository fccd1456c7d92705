//! Azure Blob Storage: `az://CONTAINER/PREFIX`. Its promises are those of [`object`](crate::object).

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};

use crate::diagnostics::Examination;
use crate::object::connect::{self, ObjectStoreKind, Settings, send_once};
use crate::object::credentials::Names;
use crate::open_error::OpenError;
use crate::opening::{Address, Opening};

pub(crate) const KIND: ObjectStoreKind = ObjectStoreKind {
    form: "az://CONTAINER/PREFIX",
    names: Names {
        prefix: "AZURE_",
        others: &["IDENTITY_ENDPOINT", "IDENTITY_HEADER"],
        is_setting: |name| name.parse::<AzureConfigKey>().is_ok(),
    },
    build,
};

/// Opens `az://CONTAINER/PREFIX?SETTINGS`.
pub(crate) fn open_url(address: Address) -> Opening {
    Box::pin(connect::open(address, KIND))
}

/// Sends no request: an object store does not report how it keeps objects.
pub(crate) fn examine(address: Address) -> Examination {
    connect::examine(&address, KIND)
}

fn build(settings: &mut Settings) -> Result<Arc<dyn ObjectStore>, OpenError> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    for (key, value) in settings.credentials()? {
        builder = builder.with_config(key, value);
    }
    if let Some(account) = settings.take("account")? {
        builder = builder.with_account(account);
    }
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint.clone()).with_allow_http(settings.allows_http());
    }
    let store = builder
        .with_container_name(&settings.bucket)
        .with_retry(send_once())
        .with_http_connector(settings.connector())
        .build();
    Ok(Arc::new(store.map_err(|error| Settings::wrong(&error))?))
}
