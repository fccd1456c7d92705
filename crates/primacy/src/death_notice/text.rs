//! The parts of a [`DeathNoticeSpec`] that name peers, as text.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use primacy_core::NodeId;

use crate::connections::{Security, TlsFiles};
use crate::handshake::Hello;

use super::{DeathNoticeSpec, HelloText, PathText, SecuritySpec};
use crate::codec::{DecodeError, Frame, decode, encode_bare};

impl DeathNoticeSpec {
    /// Makes the specification for the guardian of the node with the hello `me`.
    #[must_use]
    pub fn peers(me: &Hello, peers: Vec<(NodeId, String)>, security: &Security) -> Self {
        let hello = HelloText::new(&me.of_guardian());
        let peers = peers.into_iter().map(|(node, at)| (node.to_string(), at)).collect();
        Self::Peers { hello, peers, security: SecuritySpec::new(security), store: None }
    }
}

impl SecuritySpec {
    fn new(security: &Security) -> Self {
        match security {
            Security::Loopback => Self::Loopback,
            Security::InsecureCleartext => Self::InsecureCleartext,
            Security::Tls(TlsFiles { certificate, key, ca }) => {
                let [certificate, key, ca] = [certificate, key, ca].map(|path| PathText::new(path));
                Self::Tls { certificate, key, ca }
            }
        }
    }

    pub(crate) fn parse(&self) -> Result<Security, DecodeError> {
        Ok(match self {
            Self::Loopback => Security::Loopback,
            Self::InsecureCleartext => Security::InsecureCleartext,
            Self::Tls { certificate, key, ca } => Security::Tls(TlsFiles {
                certificate: certificate.parse()?,
                key: key.parse()?,
                ca: ca.parse()?,
            }),
        })
    }
}

impl PathText {
    fn new(path: &Path) -> Self {
        // Only an empty path has no absolute form; the guardian refuses it.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self(hexadecimal(path.as_os_str().as_bytes()))
    }

    fn parse(&self) -> Result<PathBuf, DecodeError> {
        let bytes = from_hexadecimal(&self.0).ok_or(DecodeError::Invalid("path"))?;
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string grows as needed");
    }
    text
}

fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

impl HelloText {
    fn new(hello: &Hello) -> Self {
        Self(hexadecimal(&encode_bare(&hello.election, &Frame::Hello(hello.clone()))))
    }

    pub(crate) fn parse(&self) -> Result<Hello, DecodeError> {
        match decode(&from_hexadecimal(&self.0).ok_or(DecodeError::Invalid("hello"))?)? {
            (_, Frame::Hello(hello)) => Ok(hello),
            (_, _) => Err(DecodeError::Unknown("the frame")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::tests::{hello, node};

    #[test]
    fn a_spec_survives_its_way_and_a_broken_one_is_noticed() {
        let me = hello("a", &["a", "b"]);
        let spec = DeathNoticeSpec::peers(&me, vec![(node("b"), "localhost:7".into())], &Security::Loopback);
        let text = serde_json::to_string(&spec).unwrap();
        assert!(text.starts_with(r#"{"peers":{"hello":"0a046d61696e12"#), "{text}");
        assert_eq!(serde_json::from_str::<DeathNoticeSpec>(&text).unwrap(), spec);
        let DeathNoticeSpec::Peers { hello, peers, security, store: None } = spec else {
            panic!("it names peers")
        };
        assert_eq!(hello.parse().unwrap(), me.of_guardian());
        assert_eq!(peers, [("b".to_owned(), "localhost:7".to_owned())]);
        assert_eq!(security.parse().unwrap(), Security::Loopback);
        let file = |name: &[u8]| PathBuf::from(OsString::from_vec(name.to_vec()));
        let (certificate, key, ca) = (file(b"/c"), file(b"/not\xffutf8"), file(b"/a b"));
        let tls = Security::Tls(TlsFiles { certificate, key, ca });
        let text = serde_json::to_string(&SecuritySpec::new(&tls)).unwrap();
        assert_eq!(serde_json::from_str::<SecuritySpec>(&text).unwrap().parse().unwrap(), tls);
        for wrong in ["", "0", "zz", "2a00", &hello.0[..hello.0.len() - 2]] {
            assert!(HelloText(wrong.to_owned()).parse().is_err(), "{wrong}");
        }
    }
}
