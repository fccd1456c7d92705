//! Clients of an API server: the application's own, or one that is made of a kubeconfig and the files that it names, and made anew when
//! one of them has changed. Tokens of a program that it names are fetched in `exec.rs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::Source;
use super::api::REQUEST_TIMEOUT;
use super::exec::Program;
use crate::open::OpenError;
use crate::passing;
use crate::replaced_files::{FromFiles, Sources};

/// The files that a pod has.
const OF_POD: [&str; 2] = [
    "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt",
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
];

/// The client that sends a request.
#[derive(Clone)]
pub(super) enum Clients {
    /// One of the application's.
    Given(Client),
    FromFiles(Arc<FromFiles<Access>>),
}

/// A client, and what fetches its token where the kubeconfig names a program for that.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) client: Client,
    pub(super) program: Option<Arc<Program>>,
}

impl Clients {
    /// Returns the client as it is now; to be called on the stores' thread, on which its connections are.
    pub(super) fn current(&self) -> Access {
        match self {
            Self::Given(client) => Access { client: client.clone(), program: None },
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
        let mut config = self.config(sources)?;
        let program = Program::take(&mut config.auth_info, sources)?.map(Arc::new);
        // A repetition of what was done would be refused, as if it had not been.
        config.default_retry = false;
        config.connect_timeout = Some(REQUEST_TIMEOUT);
        config.write_timeout = Some(REQUEST_TIMEOUT);
        let client = Client::try_from(config);
        let client = client.map_err(|error| {
            passing::of_error(format!("the configuration cannot be used: {error}"), &error)
        })?;
        Ok(Access { client, program })
    }

    fn config(&self, sources: &mut Sources) -> Result<Config, OpenError> {
        let mut add = |path: &Path| {
            let cannot = |error| passing::of_file(format!("{} is not used: {error}", path.display()), &error);
            sources.add_trusted(path).map_err(cannot)
        };
        for path in self.kubeconfig.clone().map_or_else(usual_kubeconfigs, |path| vec![path]) {
            add(&path)?;
        }
        let read = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        if let Ok(kubeconfig) = &read {
            for path in named_files(kubeconfig) {
                add(Path::new(path))?;
            }
        }
        if self.kubeconfig.is_none() && self.context.is_none() {
            for path in OF_POD {
                sources.add(Path::new(path));
            }
            return at_once(Config::infer())?.map_err(|error| {
                let why =
                    format!("there is neither a kubeconfig nor the configuration that a pod has: {error}");
                passing::of_error(why, &error)
            });
        }
        let kubeconfig = read
            .map_err(|error| passing::of_error(format!("the kubeconfig cannot be read: {error}"), &error))?;
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = at_once(Config::from_custom_kubeconfig(kubeconfig, &options))?;
        config.map_err(|error| passing::of_error(format!("the kubeconfig cannot be used: {error}"), &error))
    }
}

/// The library's functions are async, and wait for nothing.
fn at_once<T>(work: impl Future<Output = T>) -> Result<T, OpenError> {
    let waits =
        || OpenError::Refused { why: "a kubeconfig that has to be waited for is not known".to_owned() };
    work.now_or_never().ok_or_else(waits)
}

/// Returns where kubeconfigs are looked for.
fn usual_kubeconfigs() -> Vec<PathBuf> {
    match std::env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
        Some(paths) => std::env::split_paths(&paths).collect(),
        None => std::env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
    }
}

/// Returns the files that are named for any cluster or user.
fn named_files(kubeconfig: &Kubeconfig) -> impl Iterator<Item = &String> {
    let clusters = kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref());
    let users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
    let of_users = users.flat_map(|user| [&user.client_certificate, &user.client_key, &user.token_file]);
    clusters.map(|cluster| &cluster.certificate_authority).chain(of_users).flatten()
}
