//! Clients of an API server: the application's own, or one that is made from a kubeconfig and the files that it names, and made again when
//! one of them has changed. The module `exec` fetches tokens from a program that it names.

use std::env;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName};
use http::{HeaderValue, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::pki_types::ServerName;

use super::Source;
use super::exec::Program;
use super::kubeconfig::{self, AuthProvider, Cluster, Kubeconfig, Selected, User};
use super::transport::{Http, Transport};
use super::trust::Trust;
use crate::open_error::OpenError;
use crate::passing;
use crate::replaced_files::{FromFiles, Sources};
use crate::secrets;
use crate::tls;

/// The directory with a pod's service account.
const OF_POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The maximum length of a file in that directory, in bytes.
const OF_POD_MAX: u64 = 1 << 20;

/// The set of characters that are escaped in the name of a header.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// The client that sends a request.
#[derive(Clone)]
pub(super) enum Clients {
    /// The application's client.
    Given(Arc<dyn Transport>),
    FromFiles(Arc<FromFiles<Access>>),
}

/// A client, and the program that fetches its token, if the kubeconfig names one.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) transport: Arc<dyn Transport>,
    /// The namespace where a URL names none.
    pub(super) namespace: String,
    pub(super) program: Option<Arc<Program>>,
}

impl Clients {
    /// Returns the present client; to be called on the stores' thread, to which its connections belong.
    pub(super) fn current(&self) -> Access {
        match self {
            Self::Given(transport) => {
                Access { transport: Arc::clone(transport), namespace: String::new(), program: None }
            }
            Self::FromFiles(access) => access.current(),
        }
    }
}

impl Source {
    /// Makes a client that sends no request twice. To be called on the stores' thread.
    pub(super) fn clients(self) -> Result<Clients, OpenError> {
        let made =
            FromFiles::open("the kubeconfig, or a file that it names,", move |sources| self.access(sources))?;
        Ok(Clients::FromFiles(Arc::new(made)))
    }

    fn access(&self, sources: &mut Sources) -> Result<Access, OpenError> {
        let paths = self.kubeconfig.clone().map_or_else(kubeconfig::usual_paths, |path| vec![path]);
        for path in &paths {
            let cannot = |error| passing::of_file(format!("{} is not used: {error}", path.display()), &error);
            sources.add_trusted(path).map_err(cannot)?;
        }
        let found = Kubeconfig::read(&paths, sources).and_then(|read| read.select(self.context.as_deref()));
        let is_named = self.kubeconfig.is_some() || self.context.is_some();
        match found {
            Ok(selected) => of_kubeconfig(selected, sources),
            Err(error) if is_named || error.is_passing() => Err(error),
            Err(error) => of_pod(sources).map_err(|of_pod| {
                let why = format!(
                    "there is neither a kubeconfig nor the configuration that a pod has: {error}; {of_pod}"
                );
                if of_pod.is_passing() { OpenError::Shortage { why } } else { refused(why) }
            }),
        }
    }
}

fn of_kubeconfig(selected: Selected, sources: &mut Sources) -> Result<Access, OpenError> {
    let Selected { cluster, mut user, namespace } = selected;
    let proxy = Some(cluster.proxy_url.clone()).filter(|proxy| !proxy.is_empty()).or_else(usual_proxy);
    if let Some(proxy) = proxy {
        let proxy = proxy.rsplit_once('@').map_or(proxy.as_str(), |(_, host)| host);
        return Err(refused(format!(
            "the API server is to be reached through the proxy {proxy} (proxy-url of the kubeconfig, or HTTPS_PROXY), which this store \
             does not use; name a server that is reached without one"
        )));
    }
    let mut trust = Trust { is_blind: cluster.insecure_skip_tls_verify, ..Trust::default() };
    let mut load = |data: &str, path: &str| of_data_or_file(data, path, sources);
    trust.authorities = load(&cluster.certificate_authority_data, &cluster.certificate_authority)?;
    let certificate = load(&user.client_certificate_data, &user.client_certificate)?;
    let key = load(&user.client_key_data, &user.client_key)?;
    trust.identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => return Err(refused("client-certificate of the kubeconfig needs client-key")),
        (None, Some(_)) => return Err(refused("client-key of the kubeconfig needs client-certificate")),
    };
    let authority = trust.authorities.as_ref().map(|pem| BASE64.encode(pem));
    let program = Program::take(&mut user, || cluster.for_program(authority.as_deref()), sources)?;
    let headers = headers(&user, sources)?;
    Ok(Access {
        transport: transport(&cluster, &trust, headers, sources)?,
        namespace,
        program: program.map(Arc::new),
    })
}

/// Returns the client of a pod. The owners of its files, which the kubelet writes, are not checked.
fn of_pod(sources: &mut Sources) -> Result<Access, OpenError> {
    let variable =
        |name: &str| env::var(name).map_err(|_| refused(format!("{name} is not in the environment")));
    let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let mut load = |name: &str| {
        let path = Path::new(OF_POD).join(name);
        sources.add(&path);
        let mut text = String::new();
        let read = File::open(&path).and_then(|file| file.take(OF_POD_MAX).read_to_string(&mut text));
        let read = read.map_err(|error| passing::of_file(format!("{}: {error}", path.display()), &error));
        read.map(|_| text)
    };
    let (namespace, authorities, token) = (load("namespace")?, load("ca.crt")?, load("token")?);
    let cluster = Cluster::at(format!("https://{host}:{port}"));
    let trust = Trust { authorities: Some(authorities.into_bytes()), ..Trust::default() };
    bearer(&format!("{OF_POD}/token"), &token)?;
    let headers = headers(&User { token: Some(token), ..User::default() }, sources)?;
    let transport = transport(&cluster, &trust, headers, sources)?;
    Ok(Access { transport, namespace: namespace.trim().to_owned(), program: None })
}

fn transport(
    cluster: &Cluster,
    trust: &Trust,
    headers: HeaderMap,
    sources: &mut Sources,
) -> Result<Arc<dyn Transport>, OpenError> {
    let unusable = |why: String| refused(format!("the configuration cannot be used: {why}"));
    let server = server(&cluster.server).map_err(unusable)?;
    if trust.authorities.is_none() {
        tls::system_authorities().for_each(|path| sources.add(&path));
    }
    let tls = trust.client().map_err(unusable)?;
    let name =
        Some(cluster.tls_server_name.clone()).filter(|name| !name.is_empty()).map(ServerName::try_from);
    let name = name.transpose().map_err(|error| unusable(format!("tls-server-name: {error}")))?;
    Ok(Arc::new(Http::new(server, tls, name, headers)))
}

fn server(text: &str) -> Result<Uri, String> {
    let fault = |why: &str| format!("server {text:?} is no address such as https://HOST:PORT: {why}");
    let server = text.parse::<Uri>().map_err(|error| fault(&error.to_string()))?;
    if server.authority().is_none() || !matches!(server.scheme_str(), Some("https" | "http")) {
        return Err(fault("it begins with https:// or http://"));
    }
    Ok(server)
}

/// Returns the inline content of a kubeconfig, or else that of the file that it names.
fn of_data_or_file(data: &str, path: &str, sources: &mut Sources) -> Result<Option<Vec<u8>>, OpenError> {
    match (data, path) {
        ("", "") => Ok(None),
        ("", path) => kubeconfig::read(Path::new(path), sources).map(|text| Some(text.into_bytes())),
        (data, _) => match BASE64.decode(data) {
            Ok(content) => Ok(Some(content)),
            Err(error) => Err(refused(format!("a field …-data of the kubeconfig is not in Base64: {error}"))),
        },
    }
}

/// Returns the headers with fixed credentials, and with the account to impersonate.
fn headers(user: &User, sources: &mut Sources) -> Result<HeaderMap, OpenError> {
    let mut headers = HeaderMap::new();
    let value = |name: &str, text: &str| {
        let value = HeaderValue::from_str(text);
        value.map_err(|_| refused(format!("{name} of the kubeconfig has letters that a header cannot have")))
    };
    let token = user.token.as_ref().filter(|token| !token.is_empty());
    let shown = match (&user.auth_provider, &user.username, &user.password, token, &user.token_file) {
        (Some(provider), ..) => Some(format!("Bearer {}", of_provider(provider)?)),
        (_, Some(name), Some(password), ..) => {
            secrets::remember(password);
            Some(format!("Basic {}", BASE64.encode(format!("{name}:{password}"))))
        }
        (.., Some(token), _) => Some(bearer("the token", token)?),
        (.., Some(path)) => Some(bearer(path, &kubeconfig::read(Path::new(path), sources)?)?),
        (_, _, _, None, None) => None,
    };
    if let Some(shown) = shown {
        secrets::remember(shown.split_once(' ').map_or(&*shown, |(_, token)| token));
        let mut shown = value("the token", &shown)?;
        shown.set_sensitive(true);
        headers.insert(AUTHORIZATION, shown);
    }
    let acts = [("impersonate-user", "as", &user.act_as), ("impersonate-uid", "as-uid", &user.as_uid)];
    for (header, name, text) in acts {
        if let Some(text) = text {
            headers.insert(header, value(name, text)?);
        }
    }
    for group in &user.as_groups {
        headers.append("impersonate-group", value("as-groups", group)?);
    }
    for (key, values) in &user.as_user_extra {
        let name =
            format!("impersonate-extra-{}", utf8_percent_encode(&key.to_lowercase(), KEPT)).to_lowercase();
        let name =
            HeaderName::try_from(name).map_err(|_| refused("as-user-extra of the kubeconfig has no name"))?;
        for text in values {
            headers.append(name.clone(), value("as-user-extra", text)?);
        }
    }
    Ok(headers)
}

/// Returns the value of `Authorization` for a token from `source`. With an empty token, a server would treat each request as anonymous.
fn bearer(source: &str, token: &str) -> Result<String, OpenError> {
    match token.trim() {
        "" => Err(refused(format!("{source} is empty, and should hold a token"))),
        token => Ok(format!("Bearer {token}")),
    }
}

/// Returns the token that a kubeconfig contains for an auth provider. It is not renewed.
fn of_provider(AuthProvider { name, config }: &AuthProvider) -> Result<&str, OpenError> {
    match (name.as_str(), config.get("id-token")) {
        ("oidc" | "gcp", Some(token)) => Ok(token),
        _ => Err(refused(format!(
            "auth-provider {name:?} of the kubeconfig holds no id-token that could be shown; name a program in exec instead"
        ))),
    }
}

fn usual_proxy() -> Option<String> {
    ["HTTPS_PROXY", "https_proxy"]
        .into_iter()
        .find_map(|name| env::var(name).ok().filter(|proxy| !proxy.is_empty()))
}

fn refused(why: impl Into<String>) -> OpenError {
    OpenError::Refused { why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_line_and_not_empty() {
        let path = env::temp_dir().join(format!("primacy-kubernetes-token-{}", std::process::id()));
        let shown = |token: &str| {
            std::fs::write(&path, token).unwrap();
            let user = User { token_file: path.to_str().map(str::to_owned), ..User::default() };
            headers(&user, &mut Sources::default()).map(|headers| headers[AUTHORIZATION].clone())
        };
        assert_eq!(shown("good\n").unwrap(), "Bearer good");
        for (token, why) in
            [("", "is empty"), ("\n", "is empty"), ("s3cret\nother", "letters"), ("s3cret\u{1}", "letters")]
        {
            let refused = shown(token).expect_err(token).to_string();
            assert!(refused.contains(why) && !refused.contains("s3cret"), "{token:?}: {refused}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
