//! Who clients talk to, and who they are: TLS at the door.

use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

use super::PREFACE_LENGTH;

/// What gRPC is called within TLS.
const GRPC: &[u8] = b"h2";

/// The files of TLS.
#[derive(Clone, Debug)]
pub(crate) struct DoorTls {
    /// The certificate with which the node shows itself, with those that lead to its authority.
    pub(crate) certificate: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
    /// The authorities whose certificates clients must show; `None` if they need show none.
    pub(crate) ca: Option<PathBuf>,
}

/// What accepts clients with these files.
///
/// # Errors
/// Which file cannot be used, and why.
pub(crate) fn acceptor(files: &DoorTls) -> Result<TlsAcceptor, String> {
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &files.ca {
        None => builder.with_no_client_auth(),
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates(ca)? {
                roots.add(certificate).map_err(|error| format!("{}: {error}", ca.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = verifier.build().map_err(|error| format!("{}: {error}", ca.display()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| format!("{}: {error}", files.key.display()))?;
    let mut config = builder
        .with_single_cert(certificates(&files.certificate)?, key)
        .map_err(|error| format!("{}: {error}", files.certificate.display()))?;
    config.alpn_protocols = vec![GRPC.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Waits until a client has shown itself, and has said what a connection begins with. That is read again by whoever reads.
///
/// # Errors
/// Why it is no client, or that it is gone.
pub(super) async fn accept<S>(
    tls: &TlsAcceptor,
    stream: S,
) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut stream = tls.accept(stream).await?;
    let mut first = [0; PREFACE_LENGTH];
    stream.read_exact(&mut first).await?;
    let (reader, writer) = tokio::io::split(stream);
    Ok(tokio::io::join(Cursor::new(first).chain(reader), writer))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| format!("{}: {error}", path.display()))?;
    if read.is_empty() {
        return Err(format!("{}: there is no certificate in it", path.display()));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use primacy_conformance::live::Ground;
    use primacy_conformance::live::etcd::Tls;
    use tokio::io::{AsyncWriteExt, DuplexStream};
    use tokio_rustls::rustls::ClientConfig;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::{TlsConnector, client};

    use super::super::HANDSHAKE_MAX;
    use super::*;

    /// A client that has shown itself and said nothing else, and the end at which it is answered.
    async fn client(ground: &Ground) -> (TlsAcceptor, DuplexStream, impl Future<Output = Client>) {
        let files = Tls::issue(ground, "door");
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates(&files.ca).unwrap());
        let tls = DoorTls { certificate: files.cert, key: files.key, ca: None };
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connected = TlsConnector::from(Arc::new(config)).connect(name, theirs);
        (acceptor(&tls).unwrap(), ours, async { connected.await.unwrap() })
    }

    type Client = client::TlsStream<DuplexStream>;

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_after_it_has_shown_itself_is_not_waited_for() {
        let ground = Ground::new("door-silent");
        let (tls, ours, connected) = client(&ground).await;
        let accepted = tokio::time::timeout(HANDSHAKE_MAX, accept(&tls, ours));
        let (accepted, _client) = tokio::join!(accepted, connected);
        assert!(accepted.is_err(), "it is given up");
    }

    #[tokio::test]
    async fn what_a_connection_begins_with_is_read_by_who_answers_it() {
        let ground = Ground::new("door-says");
        let (tls, ours, connected) = client(&ground).await;
        let said: Vec<u8> = (0..100).collect();
        let says = async {
            let mut client = connected.await;
            client.write_all(&said).await.unwrap();
            let mut answer = [0; 3];
            client.read_exact(&mut answer).await.unwrap();
            answer
        };
        let answers = async {
            let mut stream = accept(&tls, ours).await.unwrap();
            let mut heard = [0; 100];
            stream.read_exact(&mut heard).await.unwrap();
            assert_eq!(heard[..], said);
            stream.write_all(b"yes").await.unwrap();
            stream.flush().await.unwrap();
        };
        assert_eq!(tokio::join!(says, answers).0, *b"yes");
    }
}
