//! Bytes that need not be of a server of NATS.

use super::decode;
use crate::nats::link::framing::{ServerOp, header};

#[test]
fn nats_server_ops() {
    primacy_fuzz::hold("nats_server_ops", |bytes| {
        let whole = decode(bytes, bytes.len().max(1));
        if let Ok(found) = &whole {
            assert_eq!(whole, decode(bytes, 1), "where the bytes are cut makes no difference");
            for op in found {
                if let ServerOp::Message(message) = op {
                    let _ = (message.status(), header(&message.headers, "KV-Operation"));
                }
            }
        }
    });
}
