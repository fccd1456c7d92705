//! An HTTP service.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use primacy::fence::http::{FENCING_TOKEN, FENCING_TOKEN_HIGHEST};
use primacy::stores::{Check, Verdict};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::{REFUSES, WHY};

/// The time that the service may take, including the connection setup.
const PATIENCE: Duration = Duration::from_secs(10);

/// The token of the request. Every leader's token is higher, so this one is stale as soon as one leader has used the
/// service.
const STALE: &str = "0";

/// The address of a service, and the request to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    is_encrypted: bool,
    host: String,
    port: u16,
    /// The host and port for the `Host` header, without the login.
    authority: String,
    /// The value of `Authorization`, which is never printed.
    login: Option<HeaderValue>,
    path: String,
    method: Method,
}

/// The service's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: StatusCode,
    /// The highest token that it has seen, if it reports one.
    highest: Option<String>,
}

impl Service {
    /// Parses the URL of a service. A login in it is accepted: one on the command line was refused before.
    pub(super) fn parse(url: &str, method: &Method) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error| format!("this is no URL ({error})"))?;
        let authority = uri.authority().ok_or("it names no host")?;
        let (login, place) = match authority.as_str().rsplit_once('@') {
            Some((login, place)) => (Some(basic(login)?), place.to_owned()),
            None => (None, authority.to_string()),
        };
        let is_encrypted = uri.scheme_str() == Some("https");
        // Removes the brackets that a URL has around an IPv6 address.
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { is_encrypted, host, port, authority: place, login, path, method: method.clone() })
    }

    /// Sends one request without a body, with a token that is lower than every leader's.
    pub(super) async fn try_out(&self) -> Check {
        let answer = match tokio::time::timeout(PATIENCE, self.ask()).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {PATIENCE:?}")),
        };
        self.judge(answer)
    }

    async fn ask(&self) -> io::Result<Answer> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        if !self.is_encrypted {
            return self.exchange(stream).await;
        }
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::new(client()?));
        self.exchange(connector.connect(name, stream).await?).await
    }

    async fn exchange<S>(&self, stream: S) -> io::Result<Answer>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let request = Request::builder().method(&self.method).uri(&self.path);
        let mut request = request.header(HOST, &self.authority).header(FENCING_TOKEN, STALE);
        if let Some(login) = &self.login {
            request = request.header(AUTHORIZATION, login);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(io::Error::other)?;
        // An error of the connection is returned to the sender of the request.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(io::Error::other)?;
        let highest = response.headers().get(FENCING_TOKEN_HIGHEST).and_then(|highest| highest.to_str().ok());
        Ok(Answer { status: response.status(), highest: highest.map(str::to_owned) })
    }

    fn judge(&self, answer: Result<Answer, String>) -> Check {
        let not = |verdict, found: String, fix: &str| Check::not(verdict, REFUSES, found, WHY, fix);
        // The text after it may contain a secret.
        let path = self.path.split(['?', ';']).next().unwrap_or_default();
        let asked = format!("{} {path} with {FENCING_TOKEN}: {STALE}", self.method);
        let guard = "put `primacy fence proxy` in front of it, or the layer primacy::fence::http into it: docs/fencing.md";
        let answer = match answer {
            Ok(answer) => answer,
            Err(why) => {
                return not(
                    Verdict::Unknown,
                    format!("{asked}: {why}"),
                    "see that the service can be reached",
                );
            }
        };
        let status = answer.status.as_u16();
        match (answer.status, &answer.highest) {
            (StatusCode::CONFLICT, Some(highest)) => Check::pass(
                REFUSES,
                format!("{asked} was refused with 409; the highest token there is {highest}"),
            ),
            (status_code, _) if !status_code.is_success() => not(
                Verdict::Unknown,
                format!("{asked} was answered {status}, which does not say that the token is stale"),
                "name a path that is served, and see that a leader has shown its token there once",
            ),
            (_, _) if self.method.is_safe() => not(
                Verdict::Unknown,
                format!("{asked} was answered {status}; whether it would have refused a write is not known"),
                "name a path and a method that write and do no harm without a body: --resource-method PUT",
            ),
            (_, _) => not(Verdict::Fail, format!("{asked} was let in, and answered {status}"), guard),
        }
    }
}

/// Converts the login of a URL to `Basic` credentials (RFC 7617), which are never printed.
///
/// # Errors
/// If it is not encoded as in a URL.
fn basic(login: &str) -> Result<HeaderValue, String> {
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let decoded =
        |text| percent_decode_str(text).decode_utf8().map_err(|_| "its login is no UTF-8".to_owned());
    let credentials = BASE64_STANDARD.encode(format!("{}:{}", decoded(user)?, decoded(password)?));
    let mut value = HeaderValue::try_from(format!("Basic {credentials}")).expect("it is base64");
    value.set_sensitive(true);
    Ok(value)
}

/// Returns a TLS client configuration that trusts the roots of the system. Always uses ring, even if the program has
/// another provider.
fn client() -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    // Some of a system's certificates are often unusable. Without any usable one, the handshake fails with a clear
    // error.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(method: Method, status: u16, highest: Option<&str>) -> Verdict {
        let service = Service::parse("http://h/orders", &method).unwrap();
        let status = StatusCode::from_u16(status).unwrap();
        service.judge(Ok(Answer { status, highest: highest.map(str::to_owned) })).verdict
    }

    #[test]
    fn only_a_refusal_for_the_token_passes() {
        assert_eq!(judge(Method::GET, 409, Some("7")), Verdict::Pass);
        assert_eq!(judge(Method::PUT, 409, None), Verdict::Unknown);
        assert_eq!(judge(Method::PUT, 404, None), Verdict::Unknown);
        assert_eq!(judge(Method::GET, 200, None), Verdict::Unknown);
        assert_eq!(judge(Method::PUT, 204, None), Verdict::Fail);
        let service = Service::parse("http://h/orders", &Method::PUT).unwrap();
        assert_eq!(service.judge(Err("refused".to_owned())).verdict, Verdict::Unknown);
    }

    #[test]
    fn what_is_said_of_a_service_leaves_out_its_login_and_query() {
        let url = "http://u:p4ss@h/orders;jsessionid=p4ss?api_key=p4ss";
        let service = Service::parse(url, &Method::PUT).unwrap();
        assert_eq!(service.login.as_ref().unwrap(), "Basic dTpwNHNz");
        let shown = format!("{service:?}").replace("orders;jsessionid=p4ss?api_key=p4ss", "");
        assert!(!shown.contains("p4ss") && !shown.contains("dTpw"), "{shown}");
        let answers = [(200, None), (409, Some("7".to_owned())), (404, None)]
            .map(|(status, highest)| Ok(Answer { status: StatusCode::from_u16(status).unwrap(), highest }));
        for answer in answers.into_iter().chain([Err("refused".to_owned())]) {
            let said = format!("{:?}", service.judge(answer));
            assert!(said.contains("PUT /orders with") && !said.contains("p4ss"), "{said}");
        }
    }

    #[test]
    fn a_url_is_taken_apart() {
        let parse = |url: &str| Service::parse(url, &Method::GET);
        let service = parse("https://[::1]/a?b=c").unwrap();
        assert_eq!((service.host.as_str(), service.port, service.path.as_str()), ("::1", 443, "/a?b=c"));
        let plain = parse("http://h:8080").unwrap();
        assert_eq!((plain.port, plain.path.as_str(), plain.authority.as_str()), (8080, "/", "h:8080"));
        let login = parse("http://u%40x:p%3a%C3%A9@h:8080/").unwrap();
        assert_eq!((login.host.as_str(), login.port, login.authority.as_str()), ("h", 8080, "h:8080"));
        assert_eq!(login.login.unwrap(), "Basic dUB4OnA6w6k=");
        assert!(parse("http://u:%ff@h/").is_err() && parse("http://").is_err());
    }
}
