//! The names by which a certificate identifies a node: the node's own name, which is accepted in every cluster of the authority, or the
//! name of the node in its cluster, `NODE.primacy.CLUSTER`, which is accepted in no other.
//!
//! A node accepts from others the kinds of names that its own certificate has. So a cluster whose certificates name it accepts no plain
//! ones, and certificates with both names allow a migration from one kind to the other.

use std::sync::Arc;

use primacy_core::NodeId;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, DnsName, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::failure;

/// The label between the node's name and the cluster's. Neither name may contain it; otherwise one name could stand for two nodes.
const BETWEEN: &str = "primacy";

/// The kinds of names that are accepted.
#[derive(Clone, Debug)]
pub(crate) struct CertificateNames {
    /// The name of the cluster, if certificates that name it are accepted.
    cluster: Option<Arc<str>>,
    /// True if certificates with the plain name are accepted.
    is_plain_accepted: bool,
}

impl CertificateNames {
    /// Reads the kinds of names from this node's own certificate.
    ///
    /// # Errors
    /// The library's error for the plain name, if the certificate has neither.
    pub(super) fn of(leaf: &CertificateDer<'_>, me: NodeId, cluster: &str) -> Result<Self, Error> {
        let named = in_cluster(me.as_str(), cluster).filter(|name| carries(leaf, name).is_ok());
        let cluster = named.map(|_| cluster.into());
        match dns(me.as_str()).ok_or(Error::UnsupportedNameType).and_then(|name| carries(leaf, &name)) {
            Err(error) if cluster.is_none() => Err(error),
            plain => Ok(Self { cluster, is_plain_accepted: plain.is_ok() }),
        }
    }

    /// The names of which a certificate must have one to identify this node.
    fn accepted(&self, node: &str) -> impl Iterator<Item = ServerName<'static>> + use<> {
        let named = self.cluster.as_ref().and_then(|cluster| in_cluster(node, cluster));
        let plain = if self.is_plain_accepted { dns(node) } else { None };
        named.into_iter().chain(plain)
    }

    /// The cluster's name, if certificates cannot distinguish it from another one: DNS names ignore case and a final dot.
    pub(super) fn ambiguous_cluster(&self) -> Option<&str> {
        let is_ambiguous =
            |cluster: &str| cluster.ends_with('.') || cluster.bytes().any(|byte| byte.is_ascii_uppercase());
        self.cluster.as_deref().filter(|cluster| is_ambiguous(cluster))
    }

    /// The name that the certificate of a node should have.
    pub(super) fn wanted(&self, node: &str) -> String {
        match &self.cluster {
            Some(cluster) if !self.is_plain_accepted => format!("DNS:{node}.{BETWEEN}.{cluster}"),
            Some(_) | None => format!("DNS:{node}"),
        }
    }

    /// Checks that a certificate identifies this node.
    ///
    /// # Errors
    /// The library's error for the last name that was tried.
    pub(crate) fn check(&self, leaf: &CertificateDer<'_>, node: NodeId) -> Result<(), Error> {
        self.check_capitals(leaf)?;
        first_good(self.accepted(node.as_str()), |name| carries(leaf, name))
    }

    /// Checks that a certificate does not name a cluster that differs from this one only in case, which DNS names ignore.
    fn check_capitals(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        let Some(cluster) = self.cluster.as_deref() else { return Ok(()) };
        let end = format!(".{BETWEEN}.{cluster}");
        let is_other = |name: &String| {
            let name = failure::bare(name);
            let shown = name.len().checked_sub(end.len()).and_then(|at| name.get(at..));
            shown.is_some_and(|shown| shown.eq_ignore_ascii_case(&end) && !shown.ends_with(cluster))
        };
        if presented(leaf)?.iter().any(is_other) {
            return Err(CertificateError::NotValidForName.into());
        }
        Ok(())
    }
}

/// The first result that is not a name error; the last name error if there is none.
fn first_good<T>(
    names: impl Iterator<Item = ServerName<'static>>,
    mut verify: impl FnMut(&ServerName<'static>) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut failed = Error::UnsupportedNameType;
    for name in names {
        match verify(&name) {
            Err(
                error @ Error::InvalidCertificate(
                    CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
                ),
            ) => failed = error,
            verified => return verified,
        }
    }
    Err(failed)
}

fn carries(leaf: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    rustls::client::verify_server_name(&ParsedCertificate::try_from(leaf)?, name)
}

/// The names in a certificate, as the library writes them.
fn presented(leaf: &CertificateDer<'_>) -> Result<Vec<String>, Error> {
    // The library's error for an absent name lists the names. No node has the name `primacy` if certificates name
    // clusters.
    let absent = dns(BETWEEN).ok_or(Error::UnsupportedNameType)?;
    match carries(leaf, &absent) {
        Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. })) => {
            Ok(presented)
        }
        Err(error) => Err(error),
        Ok(()) => Err(CertificateError::NotValidForName.into()),
    }
}

fn dns(name: &str) -> Option<ServerName<'static>> {
    DnsName::try_from(name).ok().map(|name| ServerName::DnsName(name.to_owned()))
}

/// The name of a node in its cluster, if a certificate can contain it.
fn in_cluster(node: &str, cluster: &str) -> Option<ServerName<'static>> {
    let has_label = |name: &str| name.split('.').any(|label| label.eq_ignore_ascii_case(BETWEEN));
    let is_plain = !has_label(node) && !has_label(cluster);
    dns(&format!("{node}.{BETWEEN}.{cluster}")).filter(|_| is_plain)
}

/// The library's verifier for the answering side; the dialled name represents all names that are accepted for that node.
#[derive(Debug)]
pub(crate) struct Verifier {
    pub(super) inner: Arc<WebPkiServerVerifier>,
    pub(super) names: CertificateNames,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.names.check_capitals(end_entity)?;
        first_good(self.names.accepted(&server_name.to_str()), |name| {
            self.inner.verify_server_cert(end_entity, intermediates, name, ocsp_response, now)
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
