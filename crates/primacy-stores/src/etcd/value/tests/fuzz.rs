//! Whatever stands under a key: a value of ours comes back as it was, and everything else is a stranger.

use super::*;

#[test]
fn etcd_value() {
    primacy_fuzz::hold("etcd_value", |bytes| match decode(bytes) {
        Some(value) => assert_eq!(decode(&encode(&value)), Some(value)),
        None => assert_eq!(stranger(bytes, -1).identity.incarnation.count, 0),
    });
}
