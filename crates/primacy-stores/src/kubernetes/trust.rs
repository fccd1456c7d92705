//! TLS towards the API server, from the content of a kubeconfig or of the files that it names.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::tls::provider;

/// The authorities to trust and the identity to show, in PEM.
#[derive(Default)]
pub(super) struct Trust {
    /// The trusted authorities; those of the system if none are named.
    pub(super) authorities: Option<Vec<u8>>,
    /// The certificate of this client, and its key.
    pub(super) identity: Option<(Vec<u8>, Vec<u8>)>,
    /// True if every server is accepted (`insecure-skip-tls-verify`).
    pub(super) is_blind: bool,
}

impl Trust {
    /// Returns the TLS configuration. It always uses ring, whichever provider the program has installed.
    ///
    /// # Errors
    /// The part of the content that is invalid.
    pub(super) fn client(&self) -> Result<ClientConfig, String> {
        let mut roots = RootCertStore::empty();
        match &self.authorities {
            Some(pem) => {
                for certificate in certificates(pem, "the certificate authority")? {
                    let added = roots.add(certificate);
                    added.map_err(|error| format!("the certificate authority is of no use: {error}"))?;
                }
            }
            // Some of a system's certificates are often invalid; without any, the handshake fails.
            None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        }
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| error.to_string())?.with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate, "the client certificate")?;
                let key = PrivateKeyDer::from_pem_slice(key);
                let key = key.map_err(|error| format!("the client key holds no private key: {error}"))?;
                let config = builder.with_client_auth_cert(chain, key);
                config
                    .map_err(|error| format!("the client certificate and its key are of no use: {error}"))?
            }
        };
        if self.is_blind {
            config.dangerous().set_certificate_verifier(Arc::new(Anybody));
        }
        Ok(config)
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| format!("{what} cannot be read as certificates: {error}"))?;
    if found.is_empty() { Err(format!("{what} holds no certificate")) } else { Ok(found) }
}

/// Accepts every certificate, if the server has its key.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
