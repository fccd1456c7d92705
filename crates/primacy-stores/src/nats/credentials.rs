//! The file of `creds=`: a user's JWT and the seed of its key, as NATS' own tools write them. At each connection, it is read again if it
//! has changed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_nats::{Auth, AuthError, ConnectOptions};
use nkeys::KeyPair;

use crate::open_error::OpenError;
use crate::passing;
use crate::replaced_files::{FromFiles, Sources};
use crate::secrets;

/// The credentials in a file.
struct Credentials {
    jwt: String,
    key: KeyPair,
}

/// Returns options with which a client uses the present credentials of the file at each connection.
///
/// # Errors
/// [`OpenError`] for a file that cannot be read, or holds no credentials.
pub(super) fn options(file: PathBuf) -> Result<ConnectOptions, OpenError> {
    let load = move |sources: &mut Sources| read(&file, sources).map(Arc::new);
    let credentials = Arc::new(FromFiles::open("the credentials of NATS", load)?);
    Ok(ConnectOptions::with_auth_callback(move |nonce| {
        let credentials = credentials.current();
        async move { credentials.answer(&nonce) }
    }))
}

fn read(path: &Path, sources: &mut Sources) -> Result<Credentials, OpenError> {
    let named = |why: &dyn fmt::Display| format!("{}: {why}", path.display());
    let text = sources.read_to_string(path).map_err(|error| passing::of_file(named(&error), &error))?;
    // No error shows a part of the file.
    parse(&text).ok_or_else(|| OpenError::Refused { why: named(&"it holds no credentials of NATS") })
}

/// Parses a file of credentials: the JWT and the seed, each on the line after its `BEGIN` line.
fn parse(text: &str) -> Option<Credentials> {
    let mut lines = text.lines().map(str::trim);
    let mut next = || {
        lines.find(|line| line.starts_with("---") && line.contains("BEGIN"))?;
        lines.next().filter(|value| !value.is_empty())
    };
    let (jwt, seed) = (next()?.to_owned(), next()?);
    secrets::remember(&jwt);
    secrets::remember(seed);
    Some(Credentials { jwt, key: KeyPair::from_seed(seed).ok()? })
}

impl Credentials {
    /// Returns the proof for the server that has sent this nonce.
    fn answer(&self, nonce: &[u8]) -> Result<Auth, AuthError> {
        let mut auth = Auth::new();
        auth.jwt = Some(self.jwt.clone());
        auth.signature = Some(self.key.sign(nonce).map_err(AuthError::new)?);
        Ok(auth)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;

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
        let address = listener.local_addr().unwrap().to_string();
        let options = options(path.clone()).unwrap().reconnect_delay_callback(|_| Duration::ZERO);
        let client = tokio::spawn(options.retry_on_initial_connect().connect(address));
        for jwt in ["first", "second"] {
            write(&path, jwt, &KeyPair::new_user());
            let (mut stream, _) = listener.accept().await.unwrap();
            let info = "INFO {\"server_id\":\"x\",\"version\":\"2.11.0\",\"max_payload\":1048576,\"nonce\":\"n\"}\r\n";
            stream.write_all(info.as_bytes()).await.unwrap();
            let mut line = String::new();
            BufReader::new(&mut stream).read_line(&mut line).await.unwrap();
            assert!(line.contains(&format!("\"jwt\":\"{jwt}\"")) && line.contains("\"sig\":"), "{line}");
            // The server closes the connection, as it does when credentials are revoked.
        }
        client.abort();
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_without_credentials_is_named_and_not_shown() {
        let path = std::env::temp_dir().join(format!("primacy-nats-none-{}", std::process::id()));
        std::fs::write(&path, "-----BEGIN NATS USER JWT-----\nsecret\n-----BEGIN X-----\nsecret\n").unwrap();
        let error = options(path.clone()).err().unwrap().to_string();
        assert!(error.contains("primacy-nats-none") && !error.contains("secret"), "{error}");
        std::fs::remove_file(path).unwrap();
    }
}
