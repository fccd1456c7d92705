//! Values of a key: one of ours comes back as it was, and all others are another program's.

use super::*;

#[test]
fn etcd_value() {
    primacy_fuzz::hold("etcd_value", |bytes| match decode(bytes) {
        Some(value) => assert_eq!(decode(&encode(&value)), Some(value)),
        None => assert_eq!(stranger(bytes, -1).identity.incarnation.count, 0),
    });
}
