//! Opening a store by its URL: the common part of the three kinds. TLS always uses rustls with ring, and the library repeats no request.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http_body_util::BodyExt as _;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody,
    HttpService,
};
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use percent_encoding::percent_decode_str;
use rustls::ClientConfig;

use super::ObjectRegister;
use super::bucket::{Bucket, REQUEST_PATIENCE};
#[cfg(any(feature = "s3", feature = "az"))]
use super::credentials::is_sendable;
use super::credentials::{Credentials, Names};
use super::reread::Reread;
use crate::contained::contain;
use crate::diagnostics::{Check, Examination, ONE_COPY, SURVIVES, Verdict};
use crate::document::LENGTH_MAX;
use crate::login;
use crate::open_error::OpenError;
use crate::opening::{Address, Opened};
use crate::replaced_files::{FromFiles, Sources};
use crate::secrets;
use crate::shared_connections::SharedConnections;
use crate::store_url::StoreUrl;
use crate::tls::Files;

/// The time for a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);

/// The maximum length of an answer without an object's content, such as an error or credentials, in bytes.
const ANSWER_MAX: usize = 256 * 1024;

/// The type of the bodies of requests for tokens.
const FORM_TYPE: &str = "application/x-www-form-urlencoded";

/// A kind of object store.
#[derive(Clone, Copy)]
pub(crate) struct ObjectStoreKind {
    /// The form of its URL.
    pub(crate) form: &'static str,
    /// The names of its settings, in the environment and in its file of credentials.
    pub(crate) names: Names,
    /// Builds a store from the settings of its URL.
    pub(crate) build: fn(&mut Settings) -> Result<Arc<dyn ObjectStore>, OpenError>,
}

/// The connections that the elections of this process share.
static BUCKETS: SharedConnections<Arc<Bucket>> = SharedConnections::new();

/// The settings of a URL that all kinds of stores understand.
pub(crate) struct Settings {
    pub(crate) bucket: String,
    pub(crate) url: StoreUrl,
    /// The address of the store, if it is not the provider's.
    pub(crate) endpoint: Option<String>,
    credentials: Credentials,
    tls: ClientConfig,
}

/// Opens `SCHEME://BUCKET/PREFIX?SETTINGS`.
pub(crate) async fn open(address: Address, kind: ObjectStoreKind) -> Result<Opened, OpenError> {
    let share = BUCKETS.join(&format!("{} {}", kind.form, address.rest), &address.election, || {
        let (store, prefix) = build_store(&address.rest, kind)?;
        Bucket::new(store, &prefix).map(Arc::new)
    })?;
    let register = ObjectRegister::open_shared(share, &address.election, address.create).await?;
    Ok(Opened::Register(Arc::new(register)))
}

/// Reports as unknown the properties that object stores do not report to their clients.
pub(crate) fn examine(address: &Address, kind: ObjectStoreKind) -> Examination {
    let built = build_store(&address.rest, kind);
    Box::pin(async move {
        let (store, _) = built?;
        let copies = Check::not(
            Verdict::Unknown,
            SURVIVES,
            format!("{store} does not tell how many copies it keeps, and where"),
            ONE_COPY,
            "the providers' own stores keep several, in several zones, but for classes of one zone; of a server of your own, look \
             how many disks and machines keep an object",
        );
        let others = Check::not(
            Verdict::Unknown,
            "nothing but the election writes its object",
            "rules for versions, life cycles and replication may not be seen by whoever reads and writes objects",
            "a rule that deletes the object or puts an older version back, or a replica that is written to as well, gives a token \
             a second time",
            "see that no such rule covers the prefix; replicate from this bucket, and not to it",
        );
        Ok(vec![copies, others])
    })
}

/// The store, and the prefix.
pub(crate) fn build_store(
    rest: &str,
    kind: ObjectStoreKind,
) -> Result<(Arc<dyn ObjectStore>, String), OpenError> {
    let rest = rest.to_owned();
    let load = move |sources: &mut Sources| {
        let mut settings = Settings::parse(&rest, kind, sources)?;
        let store = contain(|| (kind.build)(&mut settings)).map_err(|why| OpenError::Refused { why })??;
        settings.url.finish()?;
        Ok::<_, OpenError>((store, settings.url.path))
    };
    let built = FromFiles::open("the credentials of an object store", load)?;
    let (_, prefix) = built.current();
    Ok((Arc::new(Reread(built)), prefix))
}

impl Settings {
    fn parse(rest: &str, kind: ObjectStoreKind, sources: &mut Sources) -> Result<Self, OpenError> {
        let mut url = StoreUrl::parse(rest, kind.form)?;
        if url.user.is_some() || url.password.is_some() {
            let why =
                "credentials stand in the environment or in the file of `credentials=FILE`, not in the URL";
            return Err(url.malformed(why));
        }
        let bucket = match url.hosts.as_slice() {
            [host] if host.port.is_none() => host.name.clone(),
            _ => return Err(url.malformed("behind the slashes comes the name of one bucket")),
        };
        let tls = Files::take(&mut url)?.client()?;
        let file = url.take("credentials").map(PathBuf::from);
        let credentials = Credentials::read(file.as_deref(), &kind.names, sources)?;
        let endpoint = url.take("endpoint");
        if !endpoint.as_deref().is_none_or(is_endpoint) {
            return Err(url.malformed(
                "`endpoint` is https://HOST:PORT/PATH or http://…, without a login and a query: what signs requests stands in the \
                 environment or in the file of `credentials=FILE`",
            ));
        }
        Ok(Self { bucket, url, endpoint, credentials, tls })
    }

    /// The settings of the file of credentials, as this kind of store names them.
    pub(crate) fn credentials<K: FromStr>(&self) -> Result<Vec<(K, String)>, OpenError> {
        self.credentials.settings()
    }

    /// Takes a setting of the URL that becomes a part of requests.
    #[cfg(any(feature = "s3", feature = "az"))]
    pub(crate) fn take(&mut self, name: &'static str) -> Result<Option<String>, OpenError> {
        let value = self.url.take(name);
        if !value.as_deref().is_none_or(is_sendable) {
            return Err(self.url.malformed(format!("`{name}` has only printable characters of ASCII")));
        }
        Ok(value)
    }

    /// Returns the connector for the store.
    pub(crate) fn connector(&self) -> Connector {
        Connector { tls: self.tls.clone() }
    }

    /// Returns whether requests may go unencrypted: only where the endpoint is `http:`.
    pub(crate) fn allows_http(&self) -> bool {
        self.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"))
    }

    /// An error of the settings, which the builder of the store has found.
    pub(crate) fn wrong(error: &object_store::Error) -> OpenError {
        OpenError::Refused { why: super::bucket::shown(error) }
    }
}

/// Turns off the library's retries: a conditional write that is sent again conflicts with itself, as if a rival had written.
pub(crate) fn send_once() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Makes HTTP clients with this crate's TLS: reqwest's own needs a provider for the whole process.
#[derive(Debug)]
pub(crate) struct Connector {
    tls: ClientConfig,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        // The only option that is used. The services that issue credentials on the machine itself speak HTTP.
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(self.tls.clone())
            .https_only(!allows_http)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .http1_only()
            .connect_timeout(CONNECT_PATIENCE)
            .timeout(REQUEST_PATIENCE)
            .build();
        let client = client.map_err(|error| object_store::Error::Generic {
            store: "HTTP client",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(Limited(client)))
    }
}

/// A client that limits the length of answers: the library reads errors without a limit.
#[derive(Debug)]
struct Limited(reqwest::Client);

#[async_trait]
impl HttpService for Limited {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        remember_login(&request);
        let is_read = request.method() == Method::GET;
        let (head, body) = self.0.call(request).await?.into_parts();
        let limit = if is_read && head.status.is_success() { LENGTH_MAX } else { ANSWER_MAX };
        let body = http_body_util::Limited::new(body, limit).map_err(|error| {
            let of_network = error.downcast::<HttpError>();
            of_network.map_or_else(
                |error| HttpError::new(HttpErrorKind::Decode, std::io::Error::other(error)),
                |error| *error,
            )
        });
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}

/// Notes the secrets of a request, which a server may repeat in its answer: tokens, and the assertions, signed with a key of the client,
/// that are exchanged for them. A signature in `Authorization` is of one request only.
fn remember_login(request: &HttpRequest) {
    for (name, value) in request.headers() {
        let Ok(value) = value.to_str() else { continue };
        let is_secret = login::is_secret_name(name.as_str()) || name == "x-identity-header";
        let secret = match value.split_once(' ') {
            Some(("Bearer", token)) if name == AUTHORIZATION => Some(token),
            None if name == AUTHORIZATION => Some(value),
            Some(_) | None => Some(value).filter(|_| is_secret),
        };
        secret.into_iter().for_each(secrets::remember);
    }
    let is_form = request.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == FORM_TYPE);
    let form = request.body().as_bytes().filter(|_| is_form).and_then(|form| str::from_utf8(form).ok());
    for (name, value) in
        form.into_iter().flat_map(|form| form.split('&')).filter_map(|part| part.split_once('='))
    {
        if login::is_secret_name(name) || name.ends_with("assertion") {
            secrets::remember(&percent_decode_str(value).decode_utf8_lossy());
        }
    }
}

/// Returns whether a text is the address of a server, with nothing that could be a secret.
fn is_endpoint(text: &str) -> bool {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    rest.is_some_and(|rest| rest.chars().all(login::is_address_letter))
}

#[cfg(test)]
#[cfg(feature = "s3")]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_repeats_the_secrets_of_a_request_is_shown_without_them() {
        let request = |name: &str, value: &str, body: &str| {
            let request = http::Request::builder().header(name, value);
            remember_login(&request.body(body.to_owned().into()).unwrap());
        };
        let assertion = "grant_type=urn:jwt-bearer-1&assertion=eyJ0.QXZ-jwt.s1";
        request("content-type", FORM_TYPE, &format!("{assertion}&client_secret=QXZ%2Fsecret~1"));
        request("authorization", "Bearer ya29.QXZ-token", "");
        request("authorization", "QXZ-container-1", "");
        request("authorization", "SharedKey account:of-one-request-1", "");
        request("x-amz-security-token", "QXZ-session-1", "");
        request("x-identity-header", "QXZ-identity-1", "");
        let repeated = format!(
            "bad {assertion} QXZ/secret~1 ya29.QXZ-token QXZ-container-1 QXZ-session-1 QXZ-identity-1 of-one-request-1"
        );
        let shown = secrets::without(&repeated);
        assert_eq!(
            shown,
            "bad grant_type=urn:jwt-bearer-1&assertion=*** *** *** *** *** *** of-one-request-1"
        );
    }

    #[test]
    fn what_is_wrong_is_said_without_a_secret() {
        let parse = |rest: &str| {
            let parsed = Settings::parse(rest, crate::s3::KIND, &mut Sources::default());
            parsed.err().unwrap().to_string()
        };
        assert!(parse("//key:secret@bucket/prefix").contains("environment"));
        assert!(!parse("//key:secret@bucket/prefix").contains("secret@"));
        assert!(parse("//a,b/prefix").contains("one bucket"));
        assert!(parse("//bucket/p?endpoint=localhost:1").contains("https://"));
        for secret in ["/a?sig=QXZ", "/a%3Fsig=QXZ", "/a;sig=QXZ", "/%23QXZ", "/a%20QXZ"] {
            let refused = parse(&format!("//bucket/p?endpoint=https://h:1{secret}"));
            assert!(refused.contains("without a login") && !refused.contains("QXZ"), "{refused}");
        }
        assert!(parse("//bucket/p?credentials=/no/such/file").contains("/no/such/file"));
    }
}
