//! Properties of any bytes in a register, and of any record that is written into one.

use std::collections::BTreeMap;

use primacy_fuzz::Draw;

use super::*;

#[test]
fn lease_record() {
    primacy_fuzz::hold("lease_record", |bytes| {
        any_bytes(bytes);
        drawn_record(&mut Draw::new(bytes));
    });
}

/// Checks that bytes which decode are encoded as the same record, in bytes that stay the same from then on, and that
/// other bytes are refused with a printable text.
fn any_bytes(bytes: &[u8]) {
    let record = match decode(bytes) {
        Ok(record) => record,
        Err(error) => {
            let told = error.to_string();
            assert!(!told.contains(char::is_control), "{told:?}");
            return;
        }
    };
    let ours = encode(&record).unwrap();
    assert_eq!(decode(&ours).as_ref(), Ok(&record));
    assert_eq!(encode(&decode(&ours).unwrap()).unwrap(), ours);
    // Other readers of the store find JSON there, in which each field occurs once.
    let json: BTreeMap<String, &RawValue> = serde_json::from_slice(&ours).unwrap();
    assert_eq!(json["primacy"].get(), FORMAT.to_string());
    assert_eq!(json["token"].get(), record.token.0.to_string());
    assert_eq!(json["holder"].get() == "null", record.holder.is_none());
}

/// Checks that every record that a candidate writes is read back unchanged, and fits into every store.
fn drawn_record(draw: &mut Draw<'_>) {
    let holder = (draw.byte() % 2 == 1).then(|| {
        let node = NodeId::new(draw.one_of(&["a", "b", "node-1.example:7401"])).unwrap();
        let incarnation = Incarnation { count: draw.number(), nonce: draw.number() };
        Holder { identity: Identity { node, incarnation }, address: draw.text() }
    });
    let resign_request =
        (draw.byte() % 2 == 1).then(|| ResignRequest { token: FencingToken(draw.number()), by: draw.text() });
    let record = Record {
        holder,
        token: FencingToken(draw.number() / 4),
        duration: Duration::from_nanos(draw.number()),
        renewal: draw.number(),
        nonce: draw.number(),
        resign_request,
        young: draw.byte() % 2 == 1,
        unknown: Box::default(),
    };
    let bytes = encode(&record).unwrap();
    assert_eq!(decode(&bytes).as_ref(), Ok(&record));
}
