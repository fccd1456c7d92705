//! TLS towards a store: the settings `ca`, `cert` and `key` of its URL, which name PEM files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::open_error::OpenError;
use crate::ownership;
use crate::passing;
use crate::replaced_files::{FromFiles, Sources};
use crate::store_url::StoreUrl;

/// The files that protect a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Files {
    /// The authorities that may sign the server's certificate; those of the system if none is given.
    pub(crate) ca: Option<PathBuf>,
    /// This client's certificate and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl Files {
    /// Takes the settings `ca`, `cert` and `key` from a URL.
    ///
    /// # Errors
    /// [`OpenError::Malformed`] for a certificate without its key, or the other way round.
    pub(crate) fn take(url: &mut StoreUrl) -> Result<Self, OpenError> {
        let ca = url.take("ca").map(PathBuf::from);
        let identity = match (url.take("cert"), url.take("key")) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            (Some(_), None) => return Err(url.malformed("`cert` needs `key`, the file of its key")),
            (None, Some(_)) => {
                return Err(url.malformed("`key` needs `cert`, the file of its certificate"));
            }
        };
        Ok(Self { ca, identity })
    }

    /// Takes the setting `tls` from a URL, `on` or `off`; returns whether TLS is used.
    ///
    /// # Errors
    /// [`OpenError::Malformed`] for another value, and for files that would not be used.
    pub(crate) fn take_tls(&self, url: &mut StoreUrl, default: bool) -> Result<bool, OpenError> {
        match url.take("tls").as_deref() {
            None => Ok(default),
            Some("on") => Ok(true),
            Some("off") if !self.is_given() => Ok(false),
            Some("off") => Err(url.malformed("`tls=off` leaves `ca`, `cert` and `key` unused")),
            Some(_) => Err(url.malformed("`tls` is `on` or `off`")),
        }
    }

    /// Returns whether any file was named.
    pub(crate) const fn is_given(&self) -> bool {
        self.ca.is_some() || self.identity.is_some()
    }

    /// Returns the client's TLS configuration. It always uses ring, whichever provider the program has installed. The files are read again
    /// when they have changed: each handshake uses their present content, and none resumes an earlier session, which was verified with an
    /// earlier content.
    ///
    /// # Errors
    /// [`OpenError::Refused`] for a file that cannot be read or holds no certificate, no key, or one that does not fit.
    pub(crate) fn client(&self) -> Result<ClientConfig, OpenError> {
        let files = self.clone();
        let load = move |sources: &mut Sources| Credentials::load(&files, sources).map(Arc::new);
        let credentials = Arc::new(Reread(FromFiles::open("the certificates of a store", load)?));
        let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| OpenError::Refused { why: error.to_string() })?;
        // The verifier is the library's; only its trusted authorities are looked up for each handshake.
        let builder = builder.dangerous().with_custom_certificate_verifier(Arc::clone(&credentials) as _);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(_) => builder.with_client_cert_resolver(credentials),
        };
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The content of the files.
#[derive(Debug)]
struct Credentials {
    /// `None` where there is no authority at all, as on a system without certificates.
    verifier: Option<Arc<WebPkiServerVerifier>>,
    identity: Option<Arc<CertifiedKey>>,
}

impl Credentials {
    fn load(files: &Files, sources: &mut Sources) -> Result<Self, OpenError> {
        let refused = |why: String| OpenError::Refused { why };
        let mut roots = RootCertStore::empty();
        match &files.ca {
            Some(path) => {
                sources.add(path);
                for certificate in certificates(path)? {
                    let added = roots.add(certificate);
                    added.map_err(|error| refused(format!("{}: {error}", path.display())))?;
                }
            }
            None => {
                for path in system_authorities() {
                    sources.add(&path);
                }
                // Some of a system's certificates are often invalid; without any, the handshake fails.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build().ok();
        let Some((cert, key)) = &files.identity else { return Ok(Self { verifier, identity: None }) };
        sources.add(cert);
        sources.add(key);
        let chain = certificates(cert)?;
        let named =
            |error: pem::Error| of_pem(format!("{} holds no private key: {error}", key.display()), &error);
        let private = read(key).and_then(|bytes| PrivateKeyDer::from_pem_slice(&bytes)).map_err(named)?;
        let fits = CertifiedKey::from_der(chain, private, &provider());
        let fits =
            fits.map_err(|error| refused(format!("{} and {}: {error}", cert.display(), key.display())))?;
        Ok(Self { verifier, identity: Some(Arc::new(fits)) })
    }
}

/// The files and directories in which systems keep the authorities that they trust, as rustls-native-certs looks for them.
pub(crate) fn system_authorities() -> impl Iterator<Item = PathBuf> {
    const USUAL: [&str; 7] = [
        "/etc/ssl/certs/ca-certificates.crt",
        "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem",
        "/etc/pki/tls/cacert.pem",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
        "/etc/ssl/cert.pem",
        "/etc/ssl/certs",
    ];
    let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    named.chain(USUAL.map(PathBuf::from))
}

/// The credentials as they are at each handshake.
#[derive(Debug)]
struct Reread(FromFiles<Arc<Credentials>>);

impl Reread {
    fn verifier(&self) -> Result<Arc<WebPkiServerVerifier>, rustls::Error> {
        self.0.current().verifier.clone().ok_or_else(|| CertificateError::UnknownIssuer.into())
    }
}

impl ServerCertVerifier for Reread {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier()?.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
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

impl ResolvesClientCert for Reread {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.current().identity.clone()
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn of_pem(why: String, error: &pem::Error) -> OpenError {
    if let pem::Error::Io(error) = error { passing::of_file(why, error) } else { OpenError::Refused { why } }
}

/// Reads a file of certificates. Other users may read it where a service manager or Kubernetes has put it, but not change it: a user who
/// can add an authority can answer as the store.
fn read(path: &Path) -> Result<Vec<u8>, pem::Error> {
    ownership::read_trusted_bytes(path, 0o022).map_err(pem::Error::Io)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let refused = |why: String| OpenError::Refused { why: format!("{} {why}", path.display()) };
    let found =
        read(path).and_then(|bytes| CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>());
    let cannot = |error: pem::Error| {
        of_pem(format!("{} cannot be read as certificates: {error}", path.display()), &error)
    };
    let found = found.map_err(cannot)?;
    if found.is_empty() {
        return Err(refused("holds no certificate".to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const FORM: &str = "x://HOST";

    #[test]
    fn settings_come_in_pairs_and_files_are_named_in_errors() {
        let take = |rest: &str| Files::take(&mut StoreUrl::parse(rest, FORM).unwrap());
        assert!(take("//h?cert=a").unwrap_err().to_string().contains("`key`"));
        assert!(take("//h?key=a").unwrap_err().to_string().contains("`cert`"));
        let none = take("//h").unwrap();
        assert!(!none.is_given() && none.client().is_ok());
        let files = take("//h?ca=/no/such/ca.pem&cert=/no/c&key=/no/k").unwrap();
        assert!(files.is_given());
        assert!(files.client().unwrap_err().to_string().contains("/no/such/ca.pem"));
    }

    #[test]
    fn a_file_without_an_end_is_given_up() {
        // It belongs to root, so the check of owners accepts it.
        let endless = || Some(PathBuf::from("/dev/zero"));
        let ca = Files { ca: endless(), identity: None };
        let cert = Files { ca: None, identity: endless().zip(endless()) };
        for files in [ca, cert] {
            let error = files.client().unwrap_err().to_string();
            assert!(error.contains("longer than 1048576 bytes"), "{error}");
        }
    }

    /// A user who can add an authority can answer as the store.
    #[test]
    fn authorities_and_certificates_that_others_can_change_are_not_used() {
        let path = std::env::temp_dir().join(format!("primacy-tls-{}.pem", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let ca = Files { ca: Some(path.clone()), identity: None };
        let cert = Files { ca: None, identity: Some((path.clone(), PathBuf::from("/no/key"))) };
        let refused = |files: &Files| files.client().unwrap_err().to_string();
        let set_mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for files in [&ca, &cert] {
            for mode in [0o622, 0o664] {
                set_mode(mode);
                assert!(refused(files).contains("others may change it"), "{mode:o}: {}", refused(files));
            }
            set_mode(0o644);
            assert!(refused(files).contains("holds no certificate"), "{}", refused(files));
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            for files in [&ca, &cert] {
                assert!(refused(files).contains("belongs to the user nobody (65534)"), "{}", refused(files));
            }
        } else {
            // Not by a macro: what a test prints is not shown when it passes.
            let _ = std::io::stderr().write_all(b"NOT RUN: files of another user, which take root\n");
        }
        std::fs::remove_file(path).unwrap();
    }
}
