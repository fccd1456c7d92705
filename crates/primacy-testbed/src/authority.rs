//! Certificate authorities for tests, and the certificates that they issue, in files.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, date_time_ymd,
};

use crate::{Place, strings};

/// The validity of a certificate: begin and end, in seconds from now.
#[derive(Clone, Copy, Debug)]
pub struct Valid(pub i64, pub i64);

pub const NOW: Valid = Valid(-3600, 3600);
pub const PAST: Valid = Valid(-7200, -3600);
pub const FUTURE: Valid = Valid(3600, 7200);

/// Issues certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub pem: String,
}

impl Authority {
    #[allow(clippy::new_without_default, reason = "it draws a key")]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Writes `FILE.pem` and `FILE.key`, for the node `name`.
    pub fn issue(&self, place: &Place, file: &str, name: &str, Valid(from, until): Valid) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let at = |offset: i64| {
            date_time_ymd(1970, 1, 1) + Duration::from_secs(now.checked_add_signed(offset).unwrap())
        };
        (params.not_before, params.not_after) = (at(from), at(until));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        // A process that reads between the two writes finds a key that does not match the certificate, and keeps its
        // current pair.
        replace(place, &format!("{file}.key"), &key.serialize_pem());
        replace(place, &format!("{file}.pem"), &certificate);
    }
}

/// Replaces a file atomically by one that only its owner can read.
pub fn replace(place: &Place, file: &str, text: &str) {
    let new = place.path(&format!("{file}.new"));
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(new, place.path(file)).unwrap();
}

/// The options that name `FILE.pem` and `FILE.key`, and the trusted authorities in `ca.pem`.
pub fn options(place: &Place, file: &str) -> Vec<String> {
    let file = |end: &str| place.text(&format!("{file}.{end}"));
    strings(&[
        "--tls-certificate",
        &file("pem"),
        "--tls-key",
        &file("key"),
        "--tls-ca",
        &place.text("ca.pem"),
    ])
}
