//! Whatever an entry holds: ours is read as it was written, also with a request to resign in it, and everything else is a
//! stranger.

use super::*;

#[test]
fn zookeeper_entry() {
    primacy_fuzz::hold("zookeeper_entry", |bytes| {
        let name = String::from_utf8_lossy(bytes);
        let shown = holder(&name, bytes, -1);
        let Some(data) = Data::decode(bytes) else {
            return assert_eq!(shown.identity.incarnation, Incarnation { count: 0, nonce: u64::MAX });
        };
        assert_eq!(data.holder, shown);
        let asked = data.asked(FencingToken(u64::MAX), &name);
        // What is too long is a stranger's, and was nearly so before.
        if let Some(again) = Data::decode(&asked.encode()) {
            assert_eq!((again.holder, again.resign_request), (shown, Some(FencingToken(u64::MAX))));
        }
    });
}
