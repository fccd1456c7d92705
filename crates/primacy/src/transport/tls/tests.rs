//! Certificate files, good and bad, and authorities to issue them.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration as StdDuration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};

use super::replaceable::{OfFiles, Replaceable, Words};
use super::*;
use crate::handshake::TlsProblem;
use crate::handshake::tests::node;

/// The validity of a certificate: seconds before and after now.
#[derive(Clone, Copy)]
pub(crate) struct Valid(pub(crate) i64, pub(crate) i64);

pub(crate) const NOW: Valid = Valid(-3600, 3600);
pub(crate) const PAST: Valid = Valid(-7200, -3600);
pub(crate) const FUTURE: Valid = Valid(3600, 7200);

/// An authority with a directory for its certificates.
pub(crate) struct Authority {
    pub(crate) dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("test")
    }

    pub(crate) fn named(name: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("primacy-tls-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        replace(&dir.join("ca.pem"), &pem);
        Self { dir, issuer: Issuer::new(params, key), pem }
    }

    /// Issues the files of a node, or replaces them.
    pub(crate) fn issue(&self, name: &str, valid: Valid) -> TlsFiles {
        let files = TlsFiles {
            certificate: self.dir.join(format!("{name}.pem")),
            key: self.dir.join(format!("{name}.key")),
            ca: self.dir.join("ca.pem"),
        };
        self.issue_into(&files, name, valid);
        files
    }

    pub(crate) fn issue_into(&self, files: &TlsFiles, name: &str, Valid(from, until): Valid) {
        let (certificate, key) = self.make(name, from, until);
        replace(&files.certificate, &certificate);
        replace(&files.key, &key);
    }

    /// Issues the files of a node that may accept and not dial.
    pub(crate) fn issue_for_one_side(&self, name: &str) -> TlsFiles {
        let files = self.issue(name, NOW);
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::from_pem(&fs::read_to_string(&files.key).unwrap()).unwrap();
        replace(&files.certificate, &params.signed_by(&key, &self.issuer).unwrap().pem());
        files
    }

    /// Issues a certificate and its key.
    fn make(&self, names: &str, from: i64, until: i64) -> (String, String) {
        let names: Vec<String> = names.split(',').map(str::to_owned).collect();
        let mut params = CertificateParams::new(names).unwrap();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let at = |offset: i64| {
            let since = now.as_secs().checked_add_signed(offset).unwrap();
            date_time_ymd(1970, 1, 1) + StdDuration::from_secs(since)
        };
        (params.not_before, params.not_after) = (at(from), at(until));
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The credentials of a client without a certificate.
pub(crate) fn anonymous(files: &TlsFiles, name: &str) -> Credentials {
    let mut credentials = load::load(files, node(name), "e", Sides::Both, 0).unwrap();
    let builder =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap();
    let judge = Arc::clone(&credentials.judge_of_acceptors);
    credentials.dialler =
        Arc::new(builder.dangerous().with_custom_certificate_verifier(judge).with_no_client_auth());
    credentials
}

/// Replaces a file as an operator should: atomically, and not readable for others.
pub(crate) fn replace(path: &Path, content: &str) {
    let fresh = path.with_extension("new");
    fs::write(&fresh, content).unwrap();
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&fresh, path).unwrap();
}

pub(crate) fn credentials(files: &TlsFiles, name: &str) -> Arc<Credentials> {
    Tls::open(files, node(name), "e", [], Sides::Both).unwrap().current()
}

/// The status after a check of the files.
fn looked_at(tls: &Tls) -> CertificateStatus {
    tls.current();
    tls.status()
}

fn refused(files: &TlsFiles) -> String {
    Tls::open(files, node("a"), "e", [node("b")], Sides::Both).unwrap_err().to_string()
}

#[test]
fn files_that_cannot_be_used_are_refused_with_what_to_do() {
    let authority = Authority::new();
    let good = authority.issue("a", NOW);
    Tls::open(&good, node("a"), "e", [node("b")], Sides::Both).unwrap();
    let write = |name: &str, content: &str| {
        let path = authority.dir.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let missing = TlsFiles { ca: authority.dir.join("none.pem"), ..good.clone() };
    let text = refused(&missing);
    assert!(text.contains("none.pem: No such file"), "{text}");
    let text = refused(&TlsFiles { certificate: write("empty.pem", ""), ..good.clone() });
    assert!(text.contains("no section CERTIFICATE"), "{text}");
    let half = fs::read_to_string(&good.certificate).unwrap();
    let text = refused(&TlsFiles { certificate: write("half.pem", &half[..half.len() / 2]), ..good.clone() });
    assert!(text.contains("half.pem holds no usable certificate"), "{text}");
    let text = refused(&TlsFiles { certificate: authority.dir.clone(), ..good.clone() });
    assert!(text.contains("it is no file"), "{text}");
    let text = refused(&TlsFiles { key: good.certificate.clone(), ..good.clone() });
    assert!(text.contains("holds no usable key"), "{text}");
    let other = authority.issue("b", NOW);
    let text = refused(&TlsFiles { key: other.key.clone(), ..good.clone() });
    assert!(text.contains("b.key does not belong to the certificate"), "{text}");
    let text = refused(&other);
    assert!(text.contains("is for b, and this node is a") && text.contains("DNS:a"), "{text}");
    for (mode, exposed) in [(0o644, true), (0o660, true), (0o604, true), (0o640, false), (0o400, false)] {
        fs::set_permissions(&good.key, fs::Permissions::from_mode(mode)).unwrap();
        let opened = Tls::open(&good, node("a"), "e", [], Sides::Both);
        let command = format!("chmod 600 {}", good.key.display());
        assert_eq!(opened.is_err_and(|error| error.to_string().contains(&command)), exposed, "{mode:o}");
    }
}

#[test]
fn files_that_others_can_change_are_refused() {
    let authority = Authority::new();
    let files = authority.issue("a", NOW);
    for (mode, exposed) in [(0o664, true), (0o646, true), (0o644, false), (0o444, false)] {
        fs::set_permissions(&files.ca, fs::Permissions::from_mode(mode)).unwrap();
        let opened = Tls::open(&files, node("a"), "e", [], Sides::Both);
        let command = format!("chmod go-w {}", files.ca.display());
        assert_eq!(opened.is_err_and(|error| error.to_string().contains(&command)), exposed, "{mode:o}");
    }
    // Without the right to give files away, the process is not root, and it owns the files itself.
    let me = rustix::process::geteuid().as_raw();
    for (path, what) in [(&files.key, "key"), (&files.ca, "certificate of an authority")] {
        let given = std::os::unix::fs::chown(path, Some(me + 1), None).is_ok();
        let refused = match given {
            true => Tls::open(&files, node("a"), "e", [], Sides::Both).unwrap_err(),
            false => load::check_owner(what, path, me + 1, me).unwrap_err(),
        };
        assert_eq!(refused, TlsError::Owner { what, path: path.clone(), owner: me + 1, me });
        if given {
            std::os::unix::fs::chown(path, Some(me), None).unwrap();
        }
        for owner in [me, 0] {
            load::check_owner(what, path, owner, me).unwrap();
        }
    }
    Tls::open(&files, node("a"), "e", [], Sides::Both).unwrap();
}

#[test]
fn a_certificate_that_was_too_new_at_the_start_is_as_good_as_any_when_its_time_has_come() {
    let authority = Authority::new();
    let files = authority.issue("a", FUTURE);
    let tls = Tls::open(&files, node("a"), "e", [], Sides::Both).unwrap();
    assert!(tls.status().trouble.unwrap().contains("is valid only from"));
    let first = tls.current();
    let at = |seconds| UnixTime::since_unix_epoch(StdDuration::from_secs(seconds));
    let then = at(first.valid.0 + 1);
    assert_eq!(tls.status_at(then).trouble, None);
    // So it is not replaced by a certificate that is refused.
    authority.issue_into(&files, "a", PAST);
    assert_eq!(tls.current_at(then).serial, first.serial);
    let status = tls.status_at(then);
    assert!(status.trouble.unwrap().contains("a.pem expired at"));
    assert_eq!((status.replaced, status.replacements_refused, status.valid_until), (0, 1, first.valid.1));
    // A valid certificate may also expire while the node runs.
    let tls = Tls::open(&authority.issue("b", NOW), node("b"), "e", [], Sides::Both).unwrap();
    assert_eq!(tls.status().trouble, None);
    let end = tls.current().valid.1;
    assert!(tls.status_at(at(end + 1)).trouble.unwrap().contains("b.pem expired at"));
}

/// A value that is always valid.
struct Numbered(u64);

impl OfFiles for Numbered {
    fn valid(&self) -> (u64, u64) {
        (0, u64::MAX)
    }

    fn doubt(&self, _: UnixTime) -> Option<String> {
        None
    }
}

#[test]
fn files_that_could_not_be_read_once_are_read_again_though_they_have_not_changed() {
    let at = |seconds| UnixTime::since_unix_epoch(StdDuration::from_secs(seconds));
    let authority = Authority::new();
    let file = authority.issue("a", NOW).certificate;
    let words = Words { certificate: "the certificate", others: "others" };
    let numbered = Replaceable::open(words, vec![file.clone()], || Ok(Numbered(0))).unwrap();
    fs::write(&file, "anew").unwrap();
    let tried = Cell::new(0);
    let fails = |_| {
        tried.set(tried.get() + 1);
        Err(TlsError::Setup("too many open files".to_owned()))
    };
    assert_eq!(numbered.current(at(100), fails).0, 0);
    assert_eq!(numbered.current(at(101), |_| unreachable!("it is too early")).0, 0);
    assert_eq!(numbered.current(at(110), fails).0, 0);
    let status = numbered.status(at(110));
    assert_eq!((tried.get(), status.replaced, status.replacements_refused), (2, 0, 1), "it was one change");
    assert_eq!(numbered.current(at(120), |number| Ok(Numbered(number))).0, 1);
    let status = numbered.status(at(120));
    assert_eq!((status.replaced, status.replacements_refused, status.trouble), (1, 1, None));
}

#[test]
fn names_that_certificates_cannot_carry_or_tell_apart_are_refused() {
    let authority = Authority::new();
    let files = authority.issue("a", NOW);
    for name in ["1", "10.0.0.7", "a..b", "-a", "a-", "a.", "b."] {
        let opened = Tls::open(&files, node("a"), "e", [node(name)], Sides::Both);
        assert_eq!(opened.unwrap_err(), TlsError::NodeName { node: node(name) });
    }
    let opened = Tls::open(&files, node("a"), "e", [node("B"), node("b")], Sides::Both);
    assert!(matches!(opened.unwrap_err(), TlsError::NamesAlike { .. }));
    Tls::open(&files, node("a"), "e", [node("n1"), node("db-2.example.com"), node("x_y")], Sides::Dialler)
        .unwrap();
}

#[test]
fn a_replacement_is_used_when_all_of_it_is_there_and_good() {
    let authority = Authority::new();
    let files = authority.issue("a", NOW);
    let tls = Tls::open(&files, node("a"), "e", [], Sides::Both).unwrap();
    let first = tls.current();
    assert_eq!(first.serial, tls.current().serial, "nothing has changed");
    let (certificate, key) = authority.make("a", -60, 7200);
    // The certificate is replaced first, and for a while the key does not belong to it.
    replace(&files.certificate, &certificate);
    assert_eq!(tls.current().serial, first.serial);
    let status = tls.status();
    assert!(status.trouble.unwrap().contains("does not belong to the certificate"));
    assert_eq!(
        (status.replaced, status.replacements_refused),
        (0, 1),
        "it is refused once and not at each look"
    );
    assert_eq!(status.valid_until, first.valid.1);
    replace(&files.key, &key);
    let second = tls.current();
    assert!(second.serial > first.serial && second.valid.1 > first.valid.1);
    let status = tls.status();
    assert_eq!((status.replaced, status.trouble), (1, None));
    // Truncated, deleted, and of another node: none of them is used.
    fs::write(&files.certificate, &certificate[..certificate.len() / 2]).unwrap();
    assert_eq!(tls.current().serial, second.serial);
    fs::remove_file(&files.certificate).unwrap();
    assert!(looked_at(&tls).trouble.unwrap().contains("No such file"));
    authority.issue_into(&files, "b", NOW);
    assert!(looked_at(&tls).trouble.unwrap().contains("is for b"));
    assert_eq!(tls.current().serial, second.serial);
}

#[test]
fn a_good_certificate_is_not_replaced_by_one_that_others_refuse() {
    let authority = Authority::new();
    let files = authority.issue("a", NOW);
    let tls = Tls::open(&files, node("a"), "e", [], Sides::Both).unwrap();
    let first = tls.current().serial;
    authority.issue_into(&files, "a", PAST);
    assert!(looked_at(&tls).trouble.unwrap().contains("a.pem expired at"));
    authority.issue_into(&files, "a", FUTURE);
    assert!(looked_at(&tls).trouble.unwrap().contains("is valid only from"));
    Authority::named("other").issue_into(&files, "a", NOW);
    assert!(looked_at(&tls).trouble.unwrap().contains("was not issued by an authority of"));
    assert_eq!(tls.current().serial, first);
    // But a node starts with any certificate, because the clock or the authorities may be wrong.
    let late = Tls::open(&authority.issue("b", PAST), node("b"), "e", [], Sides::Both).unwrap();
    assert!(looked_at(&late).trouble.unwrap().contains("expired"));
    authority.issue("b", FUTURE);
    assert!(looked_at(&late).trouble.unwrap().contains("is valid only from"), "it is no worse");
    authority.issue("b", NOW);
    assert_eq!(looked_at(&late).trouble, None);
}

#[test]
fn a_certificate_is_judged_for_a_name_a_time_and_an_authority() {
    let authority = Authority::named("same name");
    let files = authority.issue("a", NOW);
    let credentials = credentials(&files, "a");
    let chain = |files: &TlsFiles| self::credentials(files, "a").chain.clone();
    let mine = chain(&files);
    for presenter in [Presenter::Dialler, Presenter::Acceptor] {
        let judge = |chain: &[CertificateDer<'_>], name: &str, at| {
            let judged = credentials.judge(presenter, chain, node(name), at);
            judged.map_err(|error| explain(&error, node("a"), "x", &credentials).problem)
        };
        assert_eq!(judge(&mine, "a", wall_time()), Ok(()));
        assert_eq!(judge(&mine, "b", wall_time()), Err(TlsProblem::OtherName));
        let at = |seconds| UnixTime::since_unix_epoch(StdDuration::from_secs(seconds));
        let (from, until) = credentials.valid;
        assert_eq!(judge(&mine, "a", at(until)), Ok(()));
        assert_eq!(judge(&mine, "a", at(until + 1)), Err(TlsProblem::Expired));
        assert_eq!(judge(&mine, "a", at(from - 1)), Err(TlsProblem::NotYetValid));
        for other in ["same name", "other name"] {
            let strange = chain(&Authority::named(other).issue("a", NOW));
            assert_eq!(judge(&strange, "a", wall_time()), Err(TlsProblem::UnknownIssuer), "{other}");
        }
        assert_eq!(judge(&[], "a", wall_time()), Err(TlsProblem::NoCertificate));
    }
}

#[test]
fn times_are_written_as_people_write_them() {
    let written = [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_767_225_599, "2025-12-31T23:59:59Z"),
        (1_795_271_759, "2026-11-21T14:35:59Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
    ];
    for (seconds, text) in written {
        assert_eq!(failure::utc(seconds), text);
    }
    // The greatest time must not panic.
    failure::utc(u64::MAX);
}

/// One authority, two clusters: a node whose certificate names its cluster is not admitted in the other one, in either
/// direction.
#[test]
fn a_certificate_of_one_cluster_is_not_good_in_another_under_the_same_authority() {
    let authority = Authority::new();
    let opened = |names: &str, me: &str, cluster: &str| {
        let files = authority.issue(me, NOW);
        authority.issue_into(&files, names, NOW);
        Tls::open(&files, node(me), cluster, [], Sides::Both).map(|tls| tls.current())
    };
    let chain =
        |names: &str| opened(names, "b", "e").or_else(|_| opened(names, "b", "other")).unwrap().chain.clone();
    let (plain, of_e, of_other) = (chain("b"), chain("b.primacy.e"), chain("b.primacy.other"));
    let (both, of_capital) = (chain("b,b.primacy.e"), chain("b.primacy.E"));
    for (mine, accepted) in [
        ("a", [true, false, false, true, false]),
        ("a.primacy.e", [false, true, false, true, false]),
        ("a,a.primacy.e", [true, true, false, true, false]),
    ] {
        let mine = opened(mine, "a", "e").unwrap();
        for presenter in [Presenter::Dialler, Presenter::Acceptor] {
            let judged = [&plain, &of_e, &of_other, &both, &of_capital]
                .map(|chain| mine.judge(presenter, chain, node("b"), wall_time()).is_ok());
            assert_eq!(judged, accepted, "{:?} {presenter:?}", mine.names);
        }
    }
    // DNS names ignore case: such a certificate would be valid in the cluster `e` too.
    for (names, me, cluster) in
        [("a.primacy.E", "a", "E"), ("a,a.primacy.e", "a", "E"), ("a.primacy.e", "a", "e.")]
    {
        let refused = opened(names, me, cluster).map(drop);
        assert!(matches!(refused, Err(TlsError::ClusterName { .. })), "{names} in {cluster}: {refused:?}");
    }
    assert!(opened("a", "a", "E").is_ok(), "it names no cluster");
    // The certificate names neither this node nor this node in its cluster.
    assert!(opened("a.primacy.other", "a", "e").is_err());
    // Certificates of a node and a cluster are refused if their joined name is ambiguous.
    assert!(opened("a.primacy.b.primacy.e", "a.primacy.b", "e").is_err());
}
