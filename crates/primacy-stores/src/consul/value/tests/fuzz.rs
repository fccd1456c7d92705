//! Fuzz test of the key's values: our own are decoded unchanged, and all others are treated as another program's.

use super::*;

#[test]
fn consul_value() {
    primacy_fuzz::hold("consul_value", |bytes| match Value::decode(bytes) {
        Some(value) => assert_eq!(Value::decode(&value.encode()), Some(value)),
        None => {
            let text = String::from_utf8_lossy(bytes);
            for (texts, session) in [(&[&*text][..], "s"), (&[], &text)] {
                assert_eq!(stranger(texts, session).identity.incarnation.count, 0);
            }
        }
    });
}
