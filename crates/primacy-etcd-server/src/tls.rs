//! TLS of the etcd API, on the server's side.

use std::io::{self, Cursor};

use primacy::transport::ServerTls;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio_rustls::TlsAcceptor;

/// The length of HTTP/2's preface, which is fixed.
pub(super) const PREFACE_LENGTH: usize = 24;

/// The name of HTTP/2, which gRPC uses, in TLS (ALPN).
pub const GRPC: &[u8] = b"h2";

/// Waits for the TLS handshake of a client, and for the preface of its connection, which the next reader reads again.
/// Uses the certificate that is in its file at that moment.
///
/// # Errors
/// The reason why the handshake failed, or that the client is gone.
pub(super) async fn accept<S>(
    tls: &ServerTls,
    stream: S,
) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut stream = TlsAcceptor::from(tls.current()).accept(stream).await?;
    let mut first = [0; PREFACE_LENGTH];
    stream.read_exact(&mut first).await?;
    let (reader, writer) = tokio::io::split(stream);
    Ok(tokio::io::join(Cursor::new(first).chain(reader), writer))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use primacy::transport::ServerFiles;
    use primacy_conformance::live::Ground;
    use primacy_conformance::live::etcd::Tls;
    use tokio::io::{AsyncWriteExt, DuplexStream};
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
    use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
    use tokio_rustls::{TlsConnector, client};

    use super::*;
    use crate::server::HANDSHAKE_MAX;

    /// A client that has completed its handshake and sent nothing else, and the server's end of its connection.
    async fn client(ground: &Ground) -> (ServerTls, DuplexStream, impl Future<Output = Client>) {
        let files = Tls::issue(ground, "server");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&files.ca).unwrap()).unwrap();
        let tls = ServerFiles { certificate: files.cert, key: files.key, ca: None };
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = builder.unwrap().with_root_certificates(roots).with_no_client_auth();
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connected = TlsConnector::from(Arc::new(config)).connect(name, theirs);
        (ServerTls::open(tls, &[GRPC]).unwrap(), ours, async { connected.await.unwrap() })
    }

    type Client = client::TlsStream<DuplexStream>;

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_after_it_has_shown_itself_is_not_waited_for() {
        let ground = Ground::new("etcd-api-silent");
        let (tls, ours, connected) = client(&ground).await;
        let accepted = tokio::time::timeout(HANDSHAKE_MAX, accept(&tls, ours));
        let (accepted, _client) = tokio::join!(accepted, connected);
        assert!(accepted.is_err(), "it is given up");
    }

    #[tokio::test]
    async fn what_a_connection_begins_with_is_read_by_who_answers_it() {
        let ground = Ground::new("etcd-api-says");
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
