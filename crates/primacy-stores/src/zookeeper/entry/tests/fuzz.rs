//! Whatever an entry holds: ours is read as it was written, and everything else is a stranger. And whatever the election's znode
//! holds: a request to resign is written where nothing or one of ours is, and is read then.

use super::*;

#[test]
fn zookeeper_entry() {
    primacy_fuzz::hold("zookeeper_entry", |bytes| {
        let name = String::from_utf8_lossy(bytes);
        let shown = holder(&name, bytes, -1);
        match Data::decode(bytes) {
            None => assert_eq!(shown.identity.incarnation, Incarnation { count: 0, nonce: u64::MAX }),
            Some(data) => {
                assert_eq!(data.holder, shown);
                // What is too long is a stranger's, and was nearly so before.
                if let Some(again) = Data::decode(&data.encode()) {
                    assert_eq!(again.holder, shown);
                }
            }
        }
        let Some(request) = Request::decode(bytes) else { return };
        if let Some(again) = Request::decode(&request.asked(FencingToken(u64::MAX), &name).encode()) {
            assert_eq!(again.token, Some(FencingToken(u64::MAX)));
        }
    });
}
