//! The name of the Lease of an election.
//!
//! A valid name of a Lease is used as it is, so that other programs in the election find it. Any other name is escaped:
//! after `primacy-escaped.x` come its bytes, lower-case letters and digits as they are and the others as `-` and two
//! hexadecimal digits. No two elections share a Lease.

use std::fmt::Write;

use crate::open_error::OpenError;

/// The longest name of an object.
const LENGTH_MAX: usize = 253;

/// The prefix of escaped names.
const ESCAPED: &str = "primacy-escaped.x";

/// Returns the name of the Lease of `election`.
pub(super) fn lease_name(election: &str) -> Result<String, OpenError> {
    if is_subdomain(election) && !election.starts_with(ESCAPED) {
        return Ok(election.to_owned());
    }
    let mut name = ESCAPED.to_owned();
    for byte in election.bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() {
            name.push(char::from(byte));
        } else {
            write!(name, "-{byte:02x}").expect("a text takes everything");
        }
    }
    if name.len() > LENGTH_MAX {
        let why = format!(
            "the name of an election over Kubernetes has at most {LENGTH_MAX} letters, where each that is neither a \
             lower-case letter nor a digit counts three; choose a shorter one"
        );
        return Err(OpenError::Election { why });
    }
    Ok(name)
}

/// Returns whether an object can have this name (RFC 1123, as Kubernetes reads it).
fn is_subdomain(name: &str) -> bool {
    name.len() <= LENGTH_MAX && name.split('.').all(is_label)
}

/// Returns whether a text is a valid label of such a name, and so, with at most 63 characters, a valid namespace.
pub(super) fn is_label(label: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = label.as_bytes();
    bytes.iter().all(|&byte| plain(byte) || byte == b'-')
        && bytes.first().copied().is_some_and(plain)
        && bytes.last().copied().is_some_and(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_lease_can_be_called_is_its_name_and_nothing_else_gets_it() {
        for same in ["orders", "53822513.example.com", "a", "a-1.b-2"] {
            assert_eq!(lease_name(same).unwrap(), same);
        }
        let elections = [
            "orders",
            "Orders",
            "orders ",
            "orders-",
            "-orders",
            "or.ders.",
            "a..b",
            "primacy/store",
            "é",
            "%",
            "primacy-escaped.xa-2fb",
            "a/b",
            "a_b",
        ];
        let names: Vec<String> = elections.iter().map(|election| lease_name(election).unwrap()).collect();
        for (position, name) in names.iter().enumerate() {
            assert!(is_subdomain(name), "{name}");
            assert!(!names[..position].contains(name), "{name} is there twice");
        }
        assert_eq!(lease_name("primacy/store").unwrap(), "primacy-escaped.xprimacy-2fstore");
        let error = lease_name(&"é".repeat(100)).unwrap_err().to_string();
        assert!(error.contains("shorter"), "{error}");
        assert_eq!(lease_name(&"e".repeat(200)).unwrap(), "e".repeat(200));
    }
}
