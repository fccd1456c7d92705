//! Counts the operations of an encoded transaction before it is decoded: an empty operation has two bytes, and takes a hundred times as
//! many when decoded.

use primacy::stores::etcd::api::{TxnRequest, TxnResponse};
use primacy_kv::command::OPERATIONS_IN_ALL_MAX;
use prost::DecodeError;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstCodec;

use super::errors::Known;

/// The fields of a transaction that are lists of messages, and the field of an operation that is a transaction.
const COMPARE: u32 = 1;
const SUCCESS: u32 = 2;
const FAILURE: u32 = 3;
const TXN: u32 = 4;

/// Refuses a transaction that has too many comparisons and operations, nested ones included.
///
/// # Errors
/// [`Known::TOO_MANY_OPERATIONS`].
pub(super) fn check(message: &[u8]) -> Result<(), Known> {
    // The transaction itself counts as one, as in the map.
    let mut left = OPERATIONS_IN_ALL_MAX - 1;
    match count_in_transaction(message, &mut left) {
        // The decoder stops at the same place, and reports the error.
        Ok(()) | Err(Stop::Malformed) => Ok(()),
        Err(Stop::TooMany) => Err(Known::TOO_MANY_OPERATIONS),
    }
}

enum Stop {
    Malformed,
    TooMany,
}

impl From<DecodeError> for Stop {
    fn from(_: DecodeError) -> Self {
        Self::Malformed
    }
}

fn count_in_transaction(mut bytes: &[u8], left: &mut usize) -> Result<(), Stop> {
    while let Some((field, value)) = next_field(&mut bytes)? {
        if [COMPARE, SUCCESS, FAILURE].contains(&field) {
            *left = left.checked_sub(1).ok_or(Stop::TooMany)?;
        }
        if [SUCCESS, FAILURE].contains(&field) {
            count_in_operation(value, left)?;
        }
    }
    Ok(())
}

fn count_in_operation(mut bytes: &[u8], left: &mut usize) -> Result<(), Stop> {
    while let Some((field, value)) = next_field(&mut bytes)? {
        if field == TXN {
            count_in_transaction(value, left)?;
        }
    }
    Ok(())
}

/// Returns the number and the bytes of the next length-delimited field; `None` at the end.
fn next_field<'a>(bytes: &mut &'a [u8]) -> Result<Option<(u32, &'a [u8])>, Stop> {
    while bytes.has_remaining() {
        let (field, kind) = decode_key(bytes)?;
        if kind == WireType::LengthDelimited {
            let length = usize::try_from(decode_varint(bytes)?).map_err(|_| Stop::Malformed)?;
            let (value, rest) = bytes.split_at_checked(length).ok_or(Stop::Malformed)?;
            *bytes = rest;
            return Ok(Some((field, value)));
        }
        skip_field(kind, field, bytes, DecodeContext::default())?;
    }
    Ok(None)
}

/// The codec of transactions: counts first, and then decodes.
#[derive(Debug, Default)]
pub(super) struct TxnCodec(ProstCodec<TxnResponse, TxnRequest>);

#[derive(Debug)]
pub(super) struct TxnDecoder(<ProstCodec<TxnResponse, TxnRequest> as Codec>::Decoder);

impl Codec for TxnCodec {
    type Encode = TxnResponse;
    type Decode = TxnRequest;
    type Encoder = <ProstCodec<TxnResponse, TxnRequest> as Codec>::Encoder;
    type Decoder = TxnDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        self.0.encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        TxnDecoder(self.0.decoder())
    }
}

impl Decoder for TxnDecoder {
    type Item = TxnRequest;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<TxnRequest>, Status> {
        // The message is contiguous.
        check(bytes.chunk())?;
        self.0.decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use primacy::stores::etcd::api::{Compare, Request, RequestOp};
    use prost::Message;

    use super::*;

    fn operations(count: usize) -> Vec<RequestOp> {
        vec![RequestOp::default(); count]
    }

    fn check_encoded(transaction: &TxnRequest) -> Result<(), Known> {
        check(&transaction.encode_to_vec())
    }

    #[test]
    fn comparisons_and_operations_are_counted_in_all_lists_and_depths() {
        let most = OPERATIONS_IN_ALL_MAX - 1;
        let lists = |count| TxnRequest {
            compare: vec![Compare::default(); 5],
            success: operations(7),
            failure: operations(count - 12),
        };
        assert_eq!(check_encoded(&lists(most)), Ok(()));
        assert_eq!(check_encoded(&lists(most + 1)), Err(Known::TOO_MANY_OPERATIONS));
        let mut deep = lists(12);
        for _ in 12..most {
            let within = RequestOp { request: Some(Request::RequestTxn(deep)) };
            deep = TxnRequest { success: vec![within], ..TxnRequest::default() };
        }
        assert_eq!(check_encoded(&deep), Ok(()));
        deep.failure = operations(1);
        assert_eq!(check_encoded(&deep), Err(Known::TOO_MANY_OPERATIONS));
    }

    #[test]
    fn what_the_decoder_would_refuse_is_left_to_it() {
        for malformed in [&[0x12, 5, 0][..], &[0x12, 0, 0xff], &[0x12, 2, 0x22, 9], &[0x0f]] {
            assert_eq!(check(malformed), Ok(()));
            assert!(TxnRequest::decode(malformed).is_err());
        }
        // An unknown field, and a field of another type.
        assert_eq!(check(&[0x7a, 1, 9, 0x78, 3]), Ok(()));
    }
}
