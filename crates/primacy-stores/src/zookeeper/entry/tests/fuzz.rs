//! Fuzz tests. An entry's own data is decoded unchanged, and all other data is treated as another program's. A request to resign is written
//! over empty data and earlier requests only, and is read back.

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
                // Data that is too long is another program's, and was nearly so before.
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
