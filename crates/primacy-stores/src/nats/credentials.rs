//! The file of `creds=`: a user's JWT and the seed of its key, as NATS' own tools write them. At each connection, it is read again if it
//! has changed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;

use super::link::Proof;
use crate::open_error::OpenError;
use crate::passing;
use crate::replaced_files::{FromFiles, Sources};
use crate::secrets;

/// The credentials in a file.
pub(super) struct NatsCredentials {
    jwt: String,
    key: KeyPair,
}

/// Opens a file of credentials.
///
/// # Errors
/// [`OpenError`] for a file that cannot be read, or holds no credentials.
pub(super) fn open(file: PathBuf) -> Result<FromFiles<Arc<NatsCredentials>>, OpenError> {
    FromFiles::open("the credentials of NATS", move |sources: &mut Sources| {
        read(&file, sources).map(Arc::new)
    })
}

fn read(path: &Path, sources: &mut Sources) -> Result<NatsCredentials, OpenError> {
    let named = |why: &dyn fmt::Display| format!("{}: {why}", path.display());
    let text = sources.read_to_string(path).map_err(|error| passing::of_file(named(&error), &error))?;
    // No error shows a part of the file.
    parse(&text).ok_or_else(|| OpenError::Refused { why: named(&"it holds no credentials of NATS") })
}

/// Parses a file of credentials: the JWT and the seed, each on the line after its `BEGIN` line.
fn parse(text: &str) -> Option<NatsCredentials> {
    let mut lines = text.lines().map(str::trim);
    let mut next = || {
        lines.find(|line| line.starts_with("---") && line.contains("BEGIN"))?;
        lines.next().filter(|value| !value.is_empty())
    };
    let (jwt, seed) = (next()?.to_owned(), next()?);
    secrets::remember(&jwt);
    secrets::remember(seed);
    Some(NatsCredentials { jwt, key: KeyPair::from_seed(seed).ok()? })
}

impl NatsCredentials {
    /// Returns the proof for the server that has sent this nonce.
    pub(super) fn proof(&self, nonce: &str) -> Result<Proof, String> {
        let signature = self.key.sign(nonce.as_bytes()).map_err(|error| error.to_string())?;
        let sig = URL_SAFE_NO_PAD.encode(signature);
        Ok(Proof { jwt: Some(self.jwt.clone()), sig: Some(sig), ..Proof::default() })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;

    use super::super::link::Link;
    use super::super::settings::Settings;
    use super::*;

    fn write(path: &Path, jwt: &str, key: &KeyPair) {
        let seed = key.seed().unwrap();
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        std::fs::write(path, text).unwrap();
    }

    #[tokio::test]
    async fn each_connection_shows_the_credentials_that_are_in_the_file_then() {
        let path = std::env::temp_dir().join(format!("primacy-nats-creds-{}", std::process::id()));
        write(&path, "first", &KeyPair::new_user());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("//{}/b?creds={}", listener.local_addr().unwrap(), path.display());
        let link = Link::new(Settings::parse(&url).unwrap());
        for jwt in ["first", "second"] {
            write(&path, jwt, &KeyPair::new_user());
            let serving = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"INFO {\"version\":\"2.11.0\",\"nonce\":\"n\"}\r\n").await.unwrap();
                let mut line = String::new();
                BufReader::new(&mut stream).read_line(&mut line).await.unwrap();
                assert!(line.contains(&format!("\"jwt\":\"{jwt}\"")) && line.contains("\"sig\":"), "{line}");
                // The server closes the connection, as it does when credentials are revoked.
            };
            let (opened, ()) = tokio::join!(link.open(false), serving);
            assert!(matches!(opened, Err(OpenError::Unavailable { .. })), "{opened:?}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_without_credentials_is_named_and_not_shown() {
        let path = std::env::temp_dir().join(format!("primacy-nats-none-{}", std::process::id()));
        std::fs::write(&path, "-----BEGIN NATS USER JWT-----\nsecret\n-----BEGIN X-----\nsecret\n").unwrap();
        let error = open(path.clone()).err().unwrap().to_string();
        assert!(error.contains("primacy-nats-none") && !error.contains("secret"), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}
