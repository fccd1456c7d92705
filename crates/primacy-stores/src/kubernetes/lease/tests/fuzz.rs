//! Fuzz test of the API server's answers: a record that replaces the present one is read back unchanged.

use super::*;

#[test]
fn kubernetes_lease() {
    primacy_fuzz::hold("kubernetes_lease", |bytes| {
        let Ok(lease) = Lease::parse(bytes) else { return };
        let Ok(old) = lease.record() else { return };
        let nonce = old.nonce.wrapping_add(1);
        let token = FencingToken(old.token.0.saturating_add(1));
        for record in [held(token.0, nonce), Record { nonce, ..Record::released(token, Duration::ZERO) }] {
            // A Lease whose fields are of other kinds is refused, and not overwritten.
            let Ok(written) = lease.replaced(&record, at(0)) else { continue };
            let again =
                Lease::parse(&written).and_then(|lease| lease.record().map_err(|error| error.to_string()));
            assert_eq!(again, Ok(record));
        }
    });
}
