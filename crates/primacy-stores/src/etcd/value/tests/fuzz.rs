//! Fuzz test of a key's values: our own are decoded unchanged, and all others are treated as another program's.

use super::*;

#[test]
fn etcd_value() {
    primacy_fuzz::hold("etcd_value", |bytes| match decode(bytes) {
        Some(value) => assert_eq!(decode(&encode(&value)), Some(value)),
        None => assert_eq!(stranger(bytes, -1).identity.incarnation.count, 0),
    });
}
