//! Loads the credentials for handshakes from three files.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "what can go wrong in the library is an open list, of which a few have a text of their own"
)]

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use primacy_core::NodeId;
use rustix::fs::{Mode, OFlags, open};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, ServerConfig};

use super::certificate_names::{CertificateNames, Verifier};
use super::failure::{self, utc};
use super::{Credentials, OfFiles, Presenter, Sides, TlsError, TlsFiles};
use crate::handshake::TlsProblem;

/// Longer than any chain or list of authorities. A path to an endless file must not fill the memory.
const FILE_LENGTH_MAX: u64 = 1024 * 1024;

/// The permission bits by which users other than the owner and the group can read the key, or users other than the
/// owner can change it. A group may read it, so that several services can share one key.
const MODE_EXPOSED: u32 = 0o027;

/// The permission bits by which other users can add authorities. Certificates need no such check: one without its key and an
/// accepted authority is of no use.
const MODE_WRITABLE: u32 = 0o022;

pub(super) const CERTIFICATE: &str = "certificate";
const KEY: &str = "key";
pub(super) const AUTHORITIES: &str = "certificate of an authority";

/// Reads the files, and checks that they belong together and to this node.
pub(super) fn load(
    files: &TlsFiles,
    me: NodeId,
    cluster: &str,
    sides: Sides,
    serial: u64,
) -> Result<Credentials, TlsError> {
    let chain = chain(&files.certificate)?;
    let leaf = chain.first().ok_or_else(|| content(CERTIFICATE, &files.certificate, "it is empty"))?;
    let names = CertificateNames::of(leaf, me, cluster).map_err(|error| match error {
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) => {
            TlsError::OtherName {
                path: files.certificate.clone(),
                node: me,
                names: failure::names(&presented),
            }
        }
        error => content(CERTIFICATE, &files.certificate, error),
    })?;
    if let Some(cluster) = names.ambiguous_cluster() {
        let (path, cluster) = (files.certificate.clone(), cluster.to_owned());
        return Err(TlsError::ClusterName { path, cluster, node: me });
    }
    let unfit = |error| unfit(&files.certificate, &files.key, error);
    let provider = Arc::new(ring::default_provider());
    let roots = Arc::new(authorities(&files.ca)?);
    let unusable = |error| content(AUTHORITIES, &files.ca, error);
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
        .build()
        .map_err(unusable)?;
    let judge_of_acceptors = Arc::new(Verifier { inner, names: names.clone() });
    let judge_of_diallers = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
        // Unauthenticated clients need not know the accepted authorities; peers have only one certificate, so they need no
        // hint.
        .clear_root_hint_subjects()
        .build()
        .map_err(unusable)?;
    let key = private_key(&files.key)?;
    let acceptor = match sides {
        Sides::Both => {
            let (judge, chain, key) = (Arc::clone(&judge_of_diallers), chain.clone(), key.clone_key());
            Some(Arc::new(acceptor(&provider, judge, chain, key).map_err(unfit)?))
        }
        Sides::Dialler => None,
    };
    let judge = Arc::clone(&judge_of_acceptors);
    let dialler = dialler(&provider, judge, chain.clone(), key).map_err(unfit)?;
    let mut credentials = Credentials {
        serial,
        files: files.clone(),
        dialler: Arc::new(dialler),
        acceptor,
        judge_of_acceptors,
        judge_of_diallers,
        names,
        valid: (0, u64::MAX),
        me,
        chain,
    };
    credentials.valid = credentials.validity();
    Ok(credentials)
}

impl Credentials {
    /// The validity of this node's own certificate, from the verifier's errors at the beginning and at the end of time.
    fn validity(&self) -> (u64, u64) {
        let asked =
            |at| self.judge(Presenter::Acceptor, &self.chain, self.me, UnixTime::since_unix_epoch(at));
        let from = match asked(std::time::Duration::ZERO) {
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) => {
                not_before.as_secs()
            }
            Ok(()) | Err(_) => 0,
        };
        let until = match asked(std::time::Duration::MAX) {
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
                not_after.as_secs()
            }
            Ok(()) | Err(_) => u64::MAX,
        };
        (from, until)
    }
}

impl OfFiles for Credentials {
    fn valid(&self) -> (u64, u64) {
        self.valid
    }

    /// Checks the certificate for both sides of a connection.
    fn doubt(&self, now: UnixTime) -> Option<String> {
        let judged = self
            .judge(Presenter::Acceptor, &self.chain, self.me, now)
            .and_then(|()| self.judge(Presenter::Dialler, &self.chain, self.me, now));
        let Err(Error::InvalidCertificate(error)) = judged else { return None };
        let (certificate, ca) = (self.files.certificate.display(), self.files.ca.display());
        let path = &self.files.certificate;
        Some(match failure::problem_of(&error) {
            TlsProblem::Expired => expired(path, self.valid.1, now),
            TlsProblem::NotYetValid => too_new(path, self.valid.0, now),
            TlsProblem::UnknownIssuer => {
                format!("{certificate} was not issued by an authority of {ca}; replace one of the two")
            }
            TlsProblem::Purpose
            | TlsProblem::OtherName
            | TlsProblem::BadCertificate
            | TlsProblem::Cleartext
            | TlsProblem::NotCleartext
            | TlsProblem::NoCertificate
            | TlsProblem::OutOfDate
            | TlsProblem::Incompatible
            | TlsProblem::Garbled => {
                format!("{certificate} is not accepted by this node itself: {error}; replace it")
            }
        })
    }
}

/// The error of a certificate that has expired.
pub(super) fn expired(certificate: &Path, until: u64, now: UnixTime) -> String {
    let (until, now) = (utc(until), utc(now.as_secs()));
    format!("{} expired at {until}, and it is {now}; replace it", certificate.display())
}

/// The error of a certificate that is not valid yet.
pub(super) fn too_new(certificate: &Path, from: u64, now: UnixTime) -> String {
    let (certificate, from, now) = (certificate.display(), utc(from), utc(now.as_secs()));
    format!("{certificate} is valid only from {from} on, and it is {now}; replace it, or correct the clock")
}

fn acceptor(
    provider: &Arc<CryptoProvider>,
    judge: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, Error> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider));
    let builder = builder.with_protocol_versions(&[&TLS13])?;
    let mut config = builder.with_client_cert_verifier(judge).with_single_cert(chain, key)?;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

fn dialler(
    provider: &Arc<CryptoProvider>,
    judge: Arc<Verifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider));
    let builder = builder.with_protocol_versions(&[&TLS13])?;
    // The library's own verifier, given the accepted names of the node.
    let mut config =
        builder.dangerous().with_custom_certificate_verifier(judge).with_client_auth_cert(chain, key)?;
    config.resumption = Resumption::disabled();
    // SNI would send the name of the dialled node in cleartext.
    config.enable_sni = false;
    Ok(config)
}

/// The error of a certificate and a key that rustls refuses.
pub(super) fn unfit(certificate: &Path, key: &Path, error: Error) -> TlsError {
    match error {
        Error::InconsistentKeys(_) => {
            TlsError::Mismatch { certificate: certificate.to_owned(), key: key.to_owned() }
        }
        Error::InvalidCertificate(error) => content(CERTIFICATE, certificate, error),
        Error::General(why) => content(KEY, key, why),
        error => TlsError::Setup(error.to_string()),
    }
}

/// The certificate in this file, with its chain.
pub(super) fn chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    certificates(CERTIFICATE, path, &read(CERTIFICATE, path)?.0)
}

/// The authorities in this file.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let (bytes, metadata) = read(AUTHORITIES, path)?;
    let mode = metadata.mode() & 0o7777;
    if mode & MODE_WRITABLE != 0 {
        return Err(TlsError::AuthoritiesExposed { path: path.to_owned(), mode });
    }
    check_owner(AUTHORITIES, path, metadata.uid(), rustix::process::geteuid().as_raw())?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates(AUTHORITIES, path, &bytes)? {
        roots.add(certificate).map_err(|error| content(AUTHORITIES, path, error))?;
    }
    Ok(roots)
}

/// The certificates in the bytes of the file at `path`.
pub(super) fn certificates(
    what: &'static str,
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let certificates = certificates.map_err(|error| content(what, path, error))?;
    if certificates.is_empty() {
        return Err(content(what, path, "there is no section CERTIFICATE"));
    }
    Ok(certificates)
}

/// The key in this file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let (bytes, metadata) = read(KEY, path)?;
    let mode = metadata.mode() & 0o7777;
    if mode & MODE_EXPOSED != 0 {
        return Err(TlsError::KeyExposed { path: path.to_owned(), mode });
    }
    check_owner(KEY, path, metadata.uid(), rustix::process::geteuid().as_raw())?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| content(KEY, path, error))
}

/// Checks the owner of a file, who can change it whatever its mode. Root can change any file.
pub(super) fn check_owner(what: &'static str, path: &Path, owner: u32, me: u32) -> Result<(), TlsError> {
    match owner == me || owner == 0 {
        true => Ok(()),
        false => Err(TlsError::Owner { what, path: path.to_owned(), owner, me }),
    }
}

/// Reads a file's content, and the metadata of the same open file, even if the path leads to another one by now.
fn read(what: &'static str, path: &Path) -> Result<(Vec<u8>, Metadata), TlsError> {
    let failed = |error: std::io::Error| unread(what, path, &error);
    // Otherwise opening a pipe would wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?);
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(content(what, path, "it is no file"));
    }
    let mut bytes = Vec::new();
    file.by_ref().take(FILE_LENGTH_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_LENGTH_MAX {
        return Err(content(what, path, format!("it has more than {FILE_LENGTH_MAX} bytes")));
    }
    Ok((bytes, metadata))
}

fn unread(what: &'static str, path: &Path, error: &std::io::Error) -> TlsError {
    TlsError::Read { what, path: path.to_owned(), why: error.to_string() }
}

/// The error of a file with unexpected content.
pub(super) fn content(what: &'static str, path: &Path, why: impl ToString) -> TlsError {
    TlsError::Content { what, path: path.to_owned(), why: why.to_string() }
}
