//! Who clients talk to, and who they are: TLS at the door.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

/// What gRPC is called within TLS.
const GRPC: &[u8] = b"h2";

/// The files of TLS.
#[derive(Clone, Debug)]
pub(crate) struct DoorTls {
    /// The certificate with which the node shows itself, with those that lead to its authority.
    pub(crate) certificate: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
    /// The authorities whose certificates clients must show; `None` if they need show none.
    pub(crate) ca: Option<PathBuf>,
}

/// What accepts clients with these files.
///
/// # Errors
/// Which file cannot be used, and why.
pub(crate) fn acceptor(files: &DoorTls) -> Result<TlsAcceptor, String> {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &files.ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(ca)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", ca.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.build().map_err(|error| format!("{}: {error}", ca.display()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("{}: {error}", files.key.display()))?;
    let mut config = builder
        .with_single_cert(certificates(&files.certificate)?, key)
        .map_err(|error| format!("{}: {error}", files.certificate.display()))?;
    config.alpn_protocols = vec![GRPC.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| format!("{}: {error}", path.display()))?;
    if read.is_empty() {
        return Err(format!("{}: there is no certificate in it", path.display()));
    }
    Ok(read)
}
