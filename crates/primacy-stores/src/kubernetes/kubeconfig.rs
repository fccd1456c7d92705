//! Kubeconfigs, as client-go reads them: several files are merged, of entries with the same name the first counts, and relative paths in a
//! file start from its directory. <https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/>

use std::collections::BTreeMap;
use std::env;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::yaml;
use crate::open_error::OpenError;
use crate::passing;
use crate::replaced_files::Sources;

/// The extension of a cluster for the program that fetches a token.
const FOR_PROGRAM: &str = "client.authentication.k8s.io/exec";

/// The content of the files.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Kubeconfig {
    current_context: String,
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
    contexts: Vec<NamedContext>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedContext {
    name: String,
    context: Context,
}

/// A cluster: the address of its API server, and the settings of the connection.
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) server: String,
    pub(super) insecure_skip_tls_verify: bool,
    pub(super) certificate_authority: String,
    pub(super) certificate_authority_data: String,
    pub(super) proxy_url: String,
    pub(super) tls_server_name: String,
    extensions: Vec<Extension>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Extension {
    name: String,
    extension: Value,
}

/// A user, and the credentials.
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct User {
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) token: Option<String>,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: Option<String>,
    pub(super) client_certificate: String,
    pub(super) client_certificate_data: String,
    pub(super) client_key: String,
    pub(super) client_key_data: String,
    #[serde(rename = "as")]
    pub(super) act_as: Option<String>,
    pub(super) as_uid: Option<String>,
    pub(super) as_groups: Vec<String>,
    pub(super) as_user_extra: BTreeMap<String, Vec<String>>,
    pub(super) auth_provider: Option<AuthProvider>,
    pub(super) exec: Option<Exec>,
}

/// An auth provider, which client-go formerly had built in.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct AuthProvider {
    pub(super) name: String,
    pub(super) config: BTreeMap<String, String>,
}

/// A program that fetches a token.
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Exec {
    pub(super) api_version: Option<String>,
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<Setting>,
    pub(super) install_hint: Option<String>,
    pub(super) interactive_mode: String,
    pub(super) provide_cluster_info: bool,
}

/// A variable of the program's environment.
#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

/// The cluster, user and namespace of a context.
pub(super) struct Selected {
    pub(super) cluster: Cluster,
    pub(super) user: User,
    pub(super) namespace: String,
}

/// Returns the default paths of kubeconfigs.
pub(super) fn usual_paths() -> Vec<PathBuf> {
    let named = env::var_os("KUBECONFIG").unwrap_or_default();
    let named: Vec<PathBuf> = env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
    if named.is_empty() {
        return env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect();
    }
    named
}

/// Reads a kubeconfig, or a file that it names.
///
/// # Errors
/// [`OpenError::Refused`], or [`OpenError::Shortage`] if the error may pass.
pub(super) fn read(path: &Path, sources: &mut Sources) -> Result<String, OpenError> {
    sources.read_to_string(path).map_err(|error| {
        let fault =
            if error.kind() == io::ErrorKind::PermissionDenied { "is not used" } else { "cannot be read" };
        passing::of_file(format!("{} {fault}: {error}", path.display()), &error)
    })
}

impl Kubeconfig {
    /// Reads one from some files.
    ///
    /// # Errors
    /// Those of [`read`].
    pub(super) fn read(paths: &[PathBuf], sources: &mut Sources) -> Result<Self, OpenError> {
        let mut all = Self::default();
        for path in paths {
            let text = read(path, sources)?;
            let cannot = |why: String| OpenError::Refused {
                why: format!("the kubeconfig {} cannot be used: {why}", path.display()),
            };
            for mut one in Self::parse(&text).map_err(cannot)? {
                one.resolve(path.parent().unwrap_or(Path::new("")));
                all.merge(one);
            }
        }
        Ok(all)
    }

    fn parse(text: &str) -> Result<Vec<Self>, String> {
        let documents = yaml::documents(text.strip_prefix('\u{feff}').unwrap_or(text))?;
        let documents = documents.into_iter().filter(|document| !document.is_null());
        // Only the kind of the error is shown: its text may contain a secret.
        documents.map(|document| serde_json::from_value(document).map_err(|error| kind_of(&error))).collect()
    }

    /// Adds the entries of another file whose names are not known yet.
    fn merge(&mut self, next: Self) {
        fn add<T>(all: &mut Vec<T>, next: Vec<T>, name: impl Fn(&T) -> &String) {
            for one in next {
                if all.iter().all(|known| name(known) != name(&one)) {
                    all.push(one);
                }
            }
        }
        add(&mut self.clusters, next.clusters, |named| &named.name);
        add(&mut self.users, next.users, |named| &named.name);
        add(&mut self.contexts, next.contexts, |named| &named.name);
        if self.current_context.is_empty() {
            self.current_context = next.current_context;
        }
    }

    /// Resolves relative paths against the directory of the kubeconfig.
    fn resolve(&mut self, directory: &Path) {
        let resolve = |path: &mut String| {
            if !path.is_empty()
                && let Some(absolute) = directory.join(&*path).to_str()
            {
                *path = absolute.to_owned();
            }
        };
        self.clusters.iter_mut().for_each(|named| resolve(&mut named.cluster.certificate_authority));
        for NamedUser { user, .. } in &mut self.users {
            [&mut user.client_certificate, &mut user.client_key].into_iter().for_each(resolve);
            user.token_file.as_mut().map(resolve);
            // A command without a slash is searched in PATH.
            user.exec
                .as_mut()
                .map(|exec| &mut exec.command)
                .filter(|command| command.contains('/'))
                .map(resolve);
        }
    }

    /// Returns the cluster, user and namespace of a context, of the current one if none is named.
    ///
    /// # Errors
    /// [`OpenError::Refused`] if a part is missing.
    pub(super) fn select(self, context: Option<&str>) -> Result<Selected, OpenError> {
        let refused =
            |why: String| OpenError::Refused { why: format!("the kubeconfig cannot be used: {why}") };
        let name = context.unwrap_or(&self.current_context);
        if name.is_empty() {
            return Err(refused("it names no current-context; add `context=NAME` to the URL".to_owned()));
        }
        let missing = |what: &str, name: &str| refused(format!("it has no {what} {name:?}"));
        let context =
            self.contexts.iter().find(|named| named.name == name).map(|named| named.context.clone());
        let context = context.ok_or_else(|| missing("context", name))?;
        let cluster = self.clusters.into_iter().find(|named| named.name == context.cluster);
        let cluster = cluster.ok_or_else(|| missing("cluster", &context.cluster))?.cluster;
        // client-go treats a missing user as a user without credentials.
        let user = self.users.into_iter().find(|named| named.name == context.user);
        let user = user.map(|named| named.user).unwrap_or_default();
        Ok(Selected { cluster, user, namespace: context.namespace.unwrap_or_else(|| "default".to_owned()) })
    }
}

impl Cluster {
    pub(super) fn at(server: String) -> Self {
        Self { server, ..Self::default() }
    }

    /// Returns the description of the cluster for a program; `authority` is the content of the CA file, if one is named.
    pub(super) fn for_program(&self, authority: Option<&str>) -> Value {
        let mut told = json!({ "server": self.server });
        let mut tell = |name: &str, value: Value| told[name] = value;
        if self.insecure_skip_tls_verify {
            tell("insecure-skip-tls-verify", true.into());
        }
        if let Some(authority) = authority {
            tell("certificate-authority-data", authority.into());
        }
        for (name, value) in [("proxy-url", &self.proxy_url), ("tls-server-name", &self.tls_server_name)] {
            if !value.is_empty() {
                tell(name, value.as_str().into());
            }
        }
        if let Some(found) = self.extensions.iter().find(|extension| extension.name == FOR_PROGRAM) {
            tell("config", found.extension.clone());
        }
        told
    }
}

fn kind_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let expected = text.rsplit_once("expected ").map_or("something else", |(_, expected)| expected);
    format!("a value is of the wrong type, where {expected} is expected")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Kubeconfig {
        Kubeconfig::parse(text).unwrap().into_iter().fold(Kubeconfig::default(), |mut all, one| {
            all.merge(one);
            all
        })
    }

    const FIRST: &str = "
apiVersion: v1
kind: Config
preferences: {}
clusters:
- cluster:
    certificate-authority: ca.crt
    extensions:
    - extension:
        audience: a
        version: 2
      name: client.authentication.k8s.io/exec
    server: https://192.168.49.2:8443
  name: minikube
contexts:
- context: {cluster: minikube, user: minikube, namespace: jobs}
  name: first
- context: {cluster: none, user: minikube}
  name: broken
- context: {cluster: minikube, user: none}
  name: nobody
current-context: first
users:
- name: minikube
  user:
    client-certificate: /abs/client.crt
    client-key: client.key
    token: 0123
    as: admin
    as-groups: [a, b]
    as-user-extra: {scopes: [read]}
    exec: {command: ./login, args: null, env: [{name: A, value: b}], provideClusterInfo: true}
";

    #[test]
    fn a_kubeconfig_is_read_as_client_go_reads_it() {
        let mut config =
            parse(&format!("{FIRST}---\ncurrent-context: x\nusers: [{{name: minikube}}]\nclusters: null\n"));
        config.resolve(Path::new("the/directory"));
        let Selected { cluster, user, namespace } = config.select(None).unwrap();
        assert_eq!(
            (namespace.as_str(), cluster.certificate_authority.as_str()),
            ("jobs", "the/directory/ca.crt")
        );
        assert_eq!(
            [&user.client_certificate, &user.client_key],
            ["/abs/client.crt", "the/directory/client.key"]
        );
        assert_eq!(user.token.as_deref(), Some("0123"), "digits are a text");
        assert_eq!((user.act_as.as_deref(), user.as_groups.len()), (Some("admin"), 2));
        let exec = user.exec.unwrap();
        assert_eq!((exec.command.as_str(), exec.env[0].name.as_str()), ("the/directory/./login", "A"));
        let told = cluster.for_program(Some("Y2E="));
        let config = json!({"audience": "a", "version": 2});
        let server = "https://192.168.49.2:8443";
        assert_eq!(told, json!({"server": server, "certificate-authority-data": "Y2E=", "config": config}));
    }

    #[test]
    fn what_is_missing_is_named_and_no_secret_is_shown() {
        let refused = |context| parse(FIRST).select(Some(context)).err().unwrap().to_string();
        assert!(refused("absent").contains(r#"no context "absent""#));
        assert!(refused("broken").contains(r#"no cluster "none""#));
        assert!(parse(FIRST).select(Some("nobody")).unwrap().user.exec.is_none());
        assert!(parse("").select(None).err().unwrap().to_string().contains("context=NAME"));
        for text in [
            "s3cret",
            "users: s3cret",
            "users: [{user: {token: [s3cret]}}]",
            "users: [{user: {exec: s3cret}}]",
        ] {
            let why = Kubeconfig::parse(text).err().unwrap();
            assert!(why.contains("expected") && !why.contains("s3cret"), "{text}: {why}");
        }
    }
}
