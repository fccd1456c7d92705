//! TLS for a server whose clients are not nodes. Its certificate may contain any names by which clients reach it, and may be issued
//! by any authority; otherwise its files are treated like those between nodes.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, DnsName, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{CertificateError, Error, RootCertStore, ServerConfig};

use super::load::{self, AUTHORITIES, CERTIFICATE};
use super::replaceable::{OfFiles, Replaceable, Words};
use super::{CertificateStatus, TlsError, wall_time};

/// The words of log messages about such a certificate.
const FOR_CLIENTS: Words = Words { certificate: "the certificate that clients are shown", others: "clients" };

/// The TLS files of a server whose clients are not nodes, in PEM. They are read again when they have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFiles {
    /// The server's certificate, followed by any intermediate certificates up to its authority.
    pub certificate: PathBuf,
    /// Its private key; only its owner may write it, and it must not be readable for all users.
    pub key: PathBuf,
    /// The authorities of client certificates; `None` if clients need none. Only its owner may write it.
    pub ca: Option<PathBuf>,
}

/// The TLS configuration of such a server, kept up to date with its files.
pub struct ServerTls {
    files: ServerFiles,
    protocols: Vec<Vec<u8>>,
    certificates: Replaceable<Served>,
}

/// The configuration as of one reading of the files.
struct Served {
    config: Arc<ServerConfig>,
    certificate: PathBuf,
    valid: (u64, u64),
}

impl ServerTls {
    /// Reads the files of a server that speaks these protocols (ALPN).
    ///
    /// # Errors
    /// [`TlsError`], if a file cannot be used. An expired certificate is no error, because it may be replaced.
    pub fn open(files: ServerFiles, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        let paths = [&files.certificate, &files.key].into_iter().chain(&files.ca).cloned().collect();
        let certificates = Replaceable::open(FOR_CLIENTS, paths, || served(&files, &protocols))?;
        Ok(Self { files, protocols, certificates })
    }

    /// The configuration for a handshake now. Checks the files, and reads them if they have changed. Unusable files are logged,
    /// and the ones before them stay in use.
    #[must_use]
    pub fn current(&self) -> Arc<ServerConfig> {
        self.current_at(wall_time())
    }

    fn current_at(&self, now: UnixTime) -> Arc<ServerConfig> {
        let served = self.certificates.current(now, |_| served(&self.files, &self.protocols));
        Arc::clone(&served.config)
    }

    /// The state of the certificate as of the last check of the files.
    #[must_use]
    pub fn status(&self) -> CertificateStatus {
        self.certificates.status(wall_time())
    }
}

impl OfFiles for Served {
    fn valid(&self) -> (u64, u64) {
        self.valid
    }

    /// Checks only the time: the authorities that clients accept are not known here.
    fn doubt(&self, now: UnixTime) -> Option<String> {
        let (from, until) = self.valid;
        if now.as_secs() > until {
            Some(load::expired(&self.certificate, until, now))
        } else if now.as_secs() < from {
            Some(load::too_new(&self.certificate, from, now))
        } else {
            None
        }
    }
}

/// Reads the files, and checks that they belong together.
fn served(files: &ServerFiles, protocols: &[Vec<u8>]) -> Result<Served, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let chain = load::chain(&files.certificate)?;
    let valid = validity(&files.certificate, &chain, &provider)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        // Clients are other programs: those that know only TLS 1.2 are accepted if it was compiled in.
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Setup(error.to_string()))?;
    let builder = match &files.ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let roots = Arc::new(load::authorities(ca)?);
            let judge = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(judge.map_err(|error| load::content(AUTHORITIES, ca, error))?)
        }
    };
    let key = load::private_key(&files.key)?;
    let config = builder.with_single_cert(chain, key);
    let mut config = config.map_err(|error| load::unfit(&files.certificate, &files.key, error))?;
    config.alpn_protocols = protocols.to_vec();
    // Every handshake verifies anew: a client whose certificate has expired must not be admitted because it was here before.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Served { config: Arc::new(config), certificate: files.certificate.clone(), valid })
}

/// The time during which all certificates of a chain are valid.
fn validity(
    path: &Path,
    chain: &[CertificateDer<'static>],
    provider: &Arc<CryptoProvider>,
) -> Result<(u64, u64), TlsError> {
    let mut valid = (0, u64::MAX);
    for certificate in chain {
        let (from, until) = validity_of(path, certificate, provider)?;
        valid = (valid.0.max(from), valid.1.min(until));
    }
    Ok(valid)
}

/// Finds the validity of a certificate from the verifier's errors at the beginning and at the end of time. The verifier checks the
/// time before the authority, which is not known here; so the certificate itself is passed as one.
fn validity_of(
    path: &Path,
    certificate: &CertificateDer<'static>,
    provider: &Arc<CryptoProvider>,
) -> Result<(u64, u64), TlsError> {
    let unusable = |error: &dyn fmt::Display| load::content(CERTIFICATE, path, error);
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).map_err(|error| unusable(&error))?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let verifier = verifier.build().map_err(|error| unusable(&error))?;
    // Any name: names are verified last.
    let name = DnsName::try_from("any").map(ServerName::DnsName).map_err(|error| unusable(&error))?;
    let asked = |at| {
        let judged =
            verifier.verify_server_cert(certificate, &[], &name, &[], UnixTime::since_unix_epoch(at));
        match judged {
            Err(Error::InvalidCertificate(error)) => Some(error),
            Ok(_) | Err(_) => None,
        }
    };
    let from = match asked(Duration::ZERO) {
        Some(CertificateError::NotValidYetContext { not_before, .. }) => not_before.as_secs(),
        Some(_) | None => 0,
    };
    let until = match asked(Duration::MAX) {
        Some(CertificateError::ExpiredContext { not_after, .. }) => not_after.as_secs(),
        Some(_) | None => u64::MAX,
    };
    Ok((from, until))
}

// Omits the content, which contains a private key.
impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServerTls({})", self.files.certificate.display())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::transport::tls::tests::{Authority, FUTURE, NOW, PAST, replace};

    fn files_of(authority: &Authority) -> ServerFiles {
        let files = authority.issue("server", NOW);
        ServerFiles { certificate: files.certificate, key: files.key, ca: Some(files.ca) }
    }

    #[test]
    fn a_certificate_is_replaced_whole_and_by_nothing_that_is_worse() {
        let authority = Authority::new();
        let files = files_of(&authority);
        let tls = ServerTls::open(files.clone(), &[b"h2"]).unwrap();
        let first = tls.current();
        assert_eq!(first.alpn_protocols, [b"h2"]);
        assert!(first.send_tls13_tickets == 0 && !first.session_storage.can_cache(), "nothing is resumed");
        assert!(Arc::ptr_eq(&first, &tls.current()), "nothing has changed");
        let until = tls.status().valid_until;
        let now = wall_time().as_secs();
        assert!((now + 3000..now + 4000).contains(&until), "{until} is an hour after {now}");
        // Truncated, with another key's certificate, expired, not valid yet, and with wrong authorities: none of them is used.
        let whole = fs::read_to_string(&files.certificate).unwrap();
        let trouble = || {
            assert!(Arc::ptr_eq(&first, &tls.current()));
            tls.status().trouble.unwrap()
        };
        replace(&files.certificate, &whole[..whole.len() / 2]);
        assert!(trouble().contains("holds no usable certificate"));
        replace(&files.certificate, &fs::read_to_string(authority.issue("other", NOW).certificate).unwrap());
        assert!(trouble().contains("does not belong to the certificate"));
        authority.issue("server", PAST);
        assert!(trouble().contains("server.pem expired at"));
        authority.issue("server", FUTURE);
        assert!(trouble().contains("is valid only from"));
        replace(&authority.dir.join("ca.pem"), "");
        assert!(trouble().contains("holds no usable certificate of an authority"));
        replace(&authority.dir.join("ca.pem"), &authority.pem);
        authority.issue("server", NOW);
        assert!(!Arc::ptr_eq(&first, &tls.current()));
        let status = tls.status();
        assert_eq!((status.replaced, &status.trouble), (1, &None));
        assert!(status.replacements_refused >= 5, "{status:?}");
    }

    /// The issuer is not known to the server; the certificate's validity is read nevertheless.
    #[test]
    fn one_that_was_replaced_when_it_had_not_begun_is_used_when_it_has() {
        let authority = Authority::new();
        let files = ServerFiles { ca: None, ..files_of(&authority) };
        let tls = ServerTls::open(files, &[]).unwrap();
        let first = tls.current();
        authority.issue("server", FUTURE);
        assert!(Arc::ptr_eq(&first, &tls.current()));
        let then = UnixTime::since_unix_epoch(Duration::from_secs(wall_time().as_secs() + 3700));
        assert!(!Arc::ptr_eq(&first, &tls.current_at(then)));
        // An expired certificate is accepted as well, because it may be replaced.
        let expired = authority.issue("late", PAST);
        let files = ServerFiles { certificate: expired.certificate, key: expired.key, ca: None };
        assert!(ServerTls::open(files, &[]).unwrap().status().trouble.unwrap().contains("expired"));
    }
}
