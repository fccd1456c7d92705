#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod fence;

use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt as _;
pub use kube;
use kube::Client;
use primacy::stores::kubernetes::{Body, KubernetesRegister, Transport, TransportError};
use primacy::stores::{OpenError, Pending};

/// Opens `election` in a Lease of `namespace`, for `Elector::builder().register(…)`.
///
/// The client's connections belong to the runtime in which it was made, which must outlive the register. kube's clients repeat a request by
/// themselves unless `Config::default_retry` is off: so a failed write is always `SetError::Unknown` here, because the failure may be that
/// of a repetition of a write that was done.
///
/// # Errors
/// [`OpenError::Refused`] if the server does not accept the credentials or the role allows too little,
/// [`OpenError::Unavailable`] if it was not reached.
pub async fn register(
    client: Client,
    namespace: &str,
    election: &str,
) -> Result<KubernetesRegister, OpenError> {
    KubernetesRegister::with_transport(Arc::new(KubeTransport(client)), namespace, election).await
}

struct KubeTransport(Client);

impl Transport for KubeTransport {
    fn send(&self, request: Request<Vec<u8>>) -> Pending<'static, Result<Response<Body>, TransportError>> {
        let client = self.0.clone();
        Box::pin(async move {
            let response = client.send(request.map(kube::client::Body::from)).await;
            let response = response.map_err(|error| {
                if let kube::Error::Auth(error) = &error {
                    return TransportError::NotSent { why: error.to_string() };
                }
                TransportError::of(&error)
            })?;
            Ok(response.map(|body| body.map_err(|error| TransportError::of(&error)).boxed_unsync()))
        })
    }
}
