//! Texts for failed TLS handshakes: the defect, the side that has it, and what to do.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "what can go wrong in the library is an open list, of which a few have a text of their own"
)]

use primacy_core::NodeId;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use super::{Credentials, wall_time};
use crate::handshake::TlsProblem;

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// The report of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsFailure {
    pub(crate) problem: TlsProblem,
    /// True if the other side has refused, and not this one.
    pub(crate) by_peer: bool,
    pub(crate) text: String,
}

/// Explains a TLS error. `peer` describes the other side, as far as it is known: a name, or an address.
pub(crate) fn explain(error: &Error, me: NodeId, peer: &str, mine: &Credentials) -> TlsFailure {
    let (problem, by_peer, text) = match error {
        Error::AlertReceived(alert) => {
            let (problem, text) = heard(*alert, me, peer, mine);
            (problem, true, format!("{peer} refuses {me}: {text}"))
        }
        Error::InvalidCertificate(error) => {
            let text = faulty(error, me, peer, mine);
            (problem_of(error), false, format!("{me} refuses {peer}: {text}"))
        }
        Error::NoCertificatesPresented => {
            let text =
                "it presents no certificate; give it one with --tls-certificate, --tls-key and --tls-ca";
            (TlsProblem::NoCertificate, false, format!("{me} refuses {peer}: {text}"))
        }
        Error::PeerIncompatible(what) => {
            let text = "they have no TLS 1.3 in common; is it a node, and of this version?";
            (TlsProblem::Incompatible, false, format!("{me} refuses {peer}: {text} ({what:?})"))
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            (TlsProblem::Cleartext, false, cleartext(me, peer))
        }
        // No node sends these, and an operator can only find the sender.
        other => {
            (TlsProblem::Garbled, false, format!("{me} refuses {peer}: what it says is not TLS: {other}"))
        }
    };
    TlsFailure { problem, by_peer, text }
}

/// One side speaks cleartext to a node that expects TLS.
pub(crate) fn cleartext(me: NodeId, peer: &str) -> String {
    format!(
        "{me} refuses {peer}: it speaks cleartext where TLS is expected; give it --tls-certificate, --tls-key and \
         --tls-ca, as {me} has them"
    )
}

/// One side speaks TLS to a node that expects cleartext.
pub(crate) fn not_cleartext(me: NodeId, peer: &str) -> String {
    format!(
        "{me} refuses {peer}: it speaks TLS where cleartext is expected; give {me} --tls-certificate, --tls-key and \
         --tls-ca, too"
    )
}

/// The certificate is valid, but is not that of the node that the other side claims to be.
pub(crate) fn other_name(me: NodeId, claimed: NodeId, error: &Error, mine: &Credentials) -> String {
    let presented = match error {
        Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) => {
            names(presented)
        }
        other => other.to_string(),
    };
    let wanted = mine.names.wanted(claimed.as_str());
    format!(
        "{me} refuses {claimed}: its certificate is for {presented}; give it one with subjectAltName = {wanted}"
    )
}

/// Classifies the defect that this side finds in a certificate.
pub(super) fn problem_of(error: &CertificateError) -> TlsProblem {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => TlsProblem::Expired,
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            TlsProblem::NotYetValid
        }
        // Two authorities may have the same name; then only the signature tells them apart.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => TlsProblem::UnknownIssuer,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            TlsProblem::OtherName
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            TlsProblem::Purpose
        }
        // Encoding, signatures and extensions; the list is open, and grows with rustls.
        _ => TlsProblem::BadCertificate,
    }
}

fn faulty(error: &CertificateError, me: NodeId, peer: &str, mine: &Credentials) -> String {
    let now = utc(wall_time().as_secs());
    match error {
        CertificateError::ExpiredContext { not_after, .. } => format!(
            "its certificate expired at {}, and it is {now} at {me}; replace its certificate, or correct the clock",
            utc(not_after.as_secs())
        ),
        CertificateError::NotValidYetContext { not_before, .. } => format!(
            "its certificate is valid only from {} on, and it is {now} at {me}; replace its certificate, or correct \
             the clock",
            utc(not_before.as_secs())
        ),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => format!(
            "its certificate was issued by none of the authorities in {me}'s {}; give {peer} a certificate of one of \
             them, or add its authority to that file",
            mine.files.ca.display()
        ),
        CertificateError::NotValidForNameContext { presented, .. } => format!(
            "its certificate is for {}; give it one with subjectAltName = {}, or correct the addresses of the peers",
            names(presented),
            mine.names.wanted(peer)
        ),
        CertificateError::InvalidPurposeContext { .. } => format!(
            "its certificate may not be used for this ({error}); issue it with extendedKeyUsage = serverAuth, \
             clientAuth"
        ),
        // The other errors have no values beyond the library's text.
        other => format!("its certificate cannot be used ({other}); replace it"),
    }
}

/// Explains an alert: the defect that the other side finds in this one, of which it says only a word.
fn heard(alert: AlertDescription, me: NodeId, peer: &str, mine: &Credentials) -> (TlsProblem, String) {
    let certificate = mine.files.certificate.display();
    match alert {
        AlertDescription::CertificateExpired => {
            let (now, (from, until)) = (wall_time().as_secs(), mine.valid);
            let problem = match (now < from, now > until) {
                (true, _) => TlsProblem::NotYetValid,
                (_, true) => TlsProblem::Expired,
                (false, false) => TlsProblem::OutOfDate,
            };
            let (from, until, now) = (utc(from), utc(until), utc(now));
            let text = format!(
                "{me}'s certificate {certificate} is valid from {from} until {until}, and that is over or to come by \
                 the clock of {peer}; it is {now} by {me}'s; replace it, or correct the clocks"
            );
            (problem, text)
        }
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            let text = format!(
                "{me}'s certificate {certificate} was issued by none of the authorities of {peer}; give {me} a \
                 certificate of one of them, or add its authority to the --tls-ca of {peer}"
            );
            (TlsProblem::UnknownIssuer, text)
        }
        AlertDescription::BadCertificate | AlertDescription::CertificateUnknown => {
            let text = format!(
                "{me}'s certificate {certificate} does not carry the name under which it looks for this node, or is \
                 damaged; are the addresses of the peers right at {peer}?"
            );
            (TlsProblem::OtherName, text)
        }
        AlertDescription::UnsupportedCertificate => {
            let text = format!(
                "{me}'s certificate {certificate} may not be used for this; issue it with extendedKeyUsage = \
                 serverAuth, clientAuth"
            );
            (TlsProblem::Purpose, text)
        }
        AlertDescription::CertificateRequired => (
            TlsProblem::NoCertificate,
            format!("{me} presents no certificate; that is no way to reach a node"),
        ),
        AlertDescription::CertificateRevoked => {
            (TlsProblem::BadCertificate, format!("{me}'s certificate {certificate} is revoked; replace it"))
        }
        AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => {
            (TlsProblem::Incompatible, format!("they have no TLS 1.3 in common ({alert:?})"))
        }
        // The list is open; the other alerts have nothing to do with certificates.
        other => (TlsProblem::Garbled, format!("it could not go on with what {me} said ({other:?})")),
    }
}

/// The names in a certificate as text. rustls formats them as `DnsName("a")`.
pub(super) fn names(presented: &[String]) -> String {
    if presented.is_empty() {
        return "nobody (it has no subjectAltName)".to_owned();
    }
    presented.iter().map(|name| bare(name)).collect::<Vec<_>>().join(", ")
}

/// A name as in the certificate, without the `DnsName("…")` around it.
pub(super) fn bare(presented: &str) -> &str {
    let inside = presented.split_once("(\"").and_then(|(_, rest)| rest.strip_suffix("\")"));
    inside.unwrap_or(presented)
}

/// Formats seconds since 1970: `2026-11-21T14:35:59Z`.
pub(super) fn utc(seconds: u64) -> String {
    let (days, of_day) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
    // Years are counted from March here, so that the leap day is the last one; 719,468 days lie between the first of
    // March of the year 0 and 1970, and 146,097 in four hundred years.
    let days = days.saturating_add(719_468);
    let (cycle, of_cycle) = (days / 146_097, days % 146_097);
    let year_of_cycle = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
    let of_year = of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = cycle * 400 + year_of_cycle + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
