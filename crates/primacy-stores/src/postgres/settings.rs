//! The servers and the login: from a URL, or from a configuration of the application's.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, SslNegotiation, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::password::{self, Login};
use crate::open_error::OpenError;
use crate::secrets;
use crate::store_url::StoreUrl;
use crate::tls::Files;

/// The form of a URL.
pub(super) const FORM: &str = "postgres://USER:PASSWORD@HOST/DATABASE";

const DEFAULT_PORT: u16 = 5432;

/// The name of the application, for the server; `pg_stat_activity` shows it.
const APPLICATION: &str = "primacy";

/// The time for which bytes may stay unacknowledged before the connection counts as broken: many times a round trip, and a
/// fraction of a lease.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(2);

/// The recipe of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipe {
    /// A record that is renewed.
    Lease,
    /// A lock that goes with its session.
    Advisory,
}

/// The servers, which are tried in turn, and their common settings.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) servers: Vec<Server>,
    pub(super) schema: Option<String>,
    /// A role that is trusted with the table, in addition to the default ones.
    pub(super) owner: Option<String>,
    pub(super) recipe: Recipe,
    /// The TLS of connections, if any of them may use it.
    pub(super) tls: Option<MakeRustlsConnect>,
}

/// One of the servers.
#[derive(Clone)]
pub(super) struct Server {
    /// The host and port, for messages.
    pub(super) name: String,
    config: Config,
    /// The login whose password is looked up for each connection if the URL has none: password files may be replaced.
    login: Option<Login>,
}

impl Settings {
    /// Parses a URL, without its scheme.
    ///
    /// # Errors
    /// [`OpenError::Malformed`], or [`OpenError::Refused`] for files that cannot be used.
    pub(super) fn of_url(rest: &str) -> Result<Self, OpenError> {
        let mut url = StoreUrl::parse(rest, FORM)?;
        let files = Files::take(&mut url)?;
        let wanted = url.take("sslmode");
        let (directory, port) = (url.take("host"), url.take("port"));
        let schema = url.take("schema").filter(|schema| !schema.is_empty());
        let owner = url.take("owner").filter(|owner| !owner.is_empty());
        let recipe = match url.take("recipe").as_deref() {
            None | Some("lease") => Recipe::Lease,
            Some("advisory") => Recipe::Advisory,
            Some(_) => return Err(url.malformed("`recipe` is lease or advisory")),
        };
        let application = url.take("application_name").unwrap_or_else(|| APPLICATION.to_owned());
        url.finish()?;
        let mut common = Config::new();
        common.application_name(application);
        let user = url.user.clone().or_else(|| std::env::var("PGUSER").ok());
        if let Some(user) = &user {
            common.user(user);
        }
        if !url.path.is_empty() {
            common.dbname(&url.path);
        }
        let mut hosts: Vec<(Host, u16)> = url
            .hosts
            .iter()
            .map(|host| (Host::Tcp(host.name.clone()), host.port.unwrap_or(DEFAULT_PORT)))
            .collect();
        match (directory, port) {
            (Some(directory), port) if directory.starts_with('/') && hosts.is_empty() => {
                // The port is a part of the socket's name.
                let port = port.map_or(Ok(DEFAULT_PORT), |port| port.parse());
                let port = port.map_err(|_| url.malformed("`port` is a number from 1 to 65535"))?;
                hosts = vec![(Host::Unix(directory.into()), port)];
            }
            (None, None) => {}
            (Some(_), _) | (None, Some(_)) => {
                let why =
                    "`host` and `port` are for a unix socket: postgres:///DATABASE?host=/DIRECTORY&port=5432";
                return Err(url.malformed(why));
            }
        }
        if hosts.is_empty() {
            return Err(
                url.malformed("it names no host (for a unix socket: postgres:///DATABASE?host=/DIRECTORY)")
            );
        }
        let mode = ssl_mode(wanted.as_deref(), &hosts, &files).map_err(|why| url.malformed(why))?;
        common.ssl_mode(mode);
        if let Some(password) = &url.password {
            common.password(password);
        }
        let server = |(host, port): (Host, u16)| {
            let login = url.password.is_none().then(|| login(&url, &host, port, user.as_deref()));
            Server { login, ..Server::new(common.clone(), host, port) }
        };
        let servers = hosts.into_iter().map(server).collect();
        Ok(Self { recipe, owner, ..Self::new(servers, schema, &files)? })
    }

    /// The servers of a configuration.
    ///
    /// # Errors
    /// [`OpenError::Malformed`] if it names none, [`OpenError::Refused`] for files that cannot be used.
    pub(super) fn of_config(config: &Config, files: &Files) -> Result<Self, OpenError> {
        let password = config.get_password().and_then(|password| str::from_utf8(password).ok());
        password.into_iter().for_each(secrets::remember);
        let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
        let malformed = |why: &str| OpenError::Malformed { form: FORM, why: why.to_owned() };
        if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
            return Err(malformed("the configuration has another number of hosts than of addresses"));
        }
        let mut servers = Vec::new();
        for index in 0..hosts.len().max(addresses.len()) {
            let port = config.get_ports().get(index).or(config.get_ports().first());
            let port = port.copied().unwrap_or(DEFAULT_PORT);
            let address = addresses.get(index);
            let host = hosts.get(index).cloned();
            let mut one = without_hosts(config);
            if let Some(address) = address {
                one.hostaddr(*address);
            }
            match (host, address) {
                (Some(host), _) => servers.push(Server::new(one, host, port)),
                (None, Some(address)) => {
                    one.port(port);
                    servers.push(Server { name: format!("{address}:{port}"), config: one, login: None });
                }
                (None, None) => {}
            }
        }
        if servers.is_empty() {
            return Err(malformed("the configuration names no host"));
        }
        Self::new(servers, None, files)
    }

    fn new(mut servers: Vec<Server>, schema: Option<String>, files: &Files) -> Result<Self, OpenError> {
        for Server { config, .. } in &mut servers {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
            config.tcp_user_timeout(UNACKNOWLEDGED_MAX);
        }
        let is_wanted = servers.iter().any(|server| server.config.get_ssl_mode() != SslMode::Disable);
        let tls = is_wanted.then(|| files.client().map(MakeRustlsConnect::new)).transpose()?;
        Ok(Self { servers, schema, owner: None, recipe: Recipe::Lease, tls })
    }

    /// Returns the same settings, but a connection counts as broken only after bytes stayed unacknowledged for this long.
    pub(super) fn with_patience(&self, unacknowledged_max: Duration) -> Self {
        let mut settings = self.clone();
        for Server { config, .. } in &mut settings.servers {
            config.tcp_user_timeout(unacknowledged_max);
        }
        settings
    }
}

impl Server {
    fn new(mut config: Config, host: Host, port: u16) -> Self {
        config.port(port);
        let name = match host {
            Host::Tcp(name) => {
                config.host(&name);
                format!("{name}:{port}")
            }
            Host::Unix(directory) => {
                config.host_path(&directory);
                format!("{}/.s.PGSQL.{port}", directory.display())
            }
        };
        Self { name, config, login: None }
    }

    /// Returns the configuration to connect with now.
    pub(super) fn config(&self) -> Config {
        let mut config = self.config.clone();
        if let Some(password) = self.login.as_ref().and_then(password::find) {
            config.password(password);
        }
        if config.get_ssl_mode() == SslMode::Disable && matches!(config.get_hosts(), [Host::Tcp(_)]) {
            // The unencrypted connector replaces TLS, without a negotiation before it.
            config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
        }
        config
    }
}

/// Returns the login at a host, for which a password is looked up.
fn login(url: &StoreUrl, host: &Host, port: u16, user: Option<&str>) -> Login {
    let host = match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(_) => "localhost".to_owned(),
    };
    let database = if url.path.is_empty() { user } else { Some(&*url.path) };
    Login { host, port, database: database.map(str::to_owned), user: user.map(str::to_owned) }
}

/// Returns the mode of TLS. Unlike in libpq, a certificate is always verified, and over a network TLS is required by default.
fn ssl_mode(wanted: Option<&str>, hosts: &[(Host, u16)], files: &Files) -> Result<SslMode, String> {
    match wanted {
        Some("disable") if files.is_given() => Err("with `sslmode=disable` there is nothing to use `ca`, `cert` and `key` for".to_owned()),
        Some("disable") => Ok(SslMode::Disable),
        Some("prefer") => Ok(SslMode::Prefer),
        Some("require" | "verify-full") => Ok(SslMode::Require),
        Some(_) => Err("`sslmode` is `disable`, `prefer`, `require` or `verify-full`; a certificate is always verified in full".to_owned()),
        None if !files.is_given() && hosts.iter().all(|(host, _)| is_of_this_machine(host)) => Ok(SslMode::Disable),
        None => Ok(SslMode::Require),
    }
}

fn is_of_this_machine(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        }
        Host::Unix(_) => true,
    }
}

/// Returns the configuration without its hosts: each host gets its own configuration, and so its own time limit.
fn without_hosts(config: &Config) -> Config {
    let mut rest = Config::new();
    rest.application_name(config.get_application_name().unwrap_or(APPLICATION))
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle());
    if let Some(user) = config.get_user() {
        rest.user(user);
    }
    if let Some(password) = config.get_password() {
        rest.password(password);
    }
    if let Some(database) = config.get_dbname() {
        rest.dbname(database);
    }
    if let Some(options) = config.get_options() {
        rest.options(options);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        rest.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        rest.keepalives_retries(retries);
    }
    rest
}

/// Leaves out all parts that could be secret.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
        f.debug_struct("Settings")
            .field("servers", &names)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_servers_and_how_they_are_protected() {
        let two = Settings::of_url("//u:p@127.0.0.1:1,[::1]/db?schema=s&owner=dba").unwrap();
        let names: Vec<&str> = two.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["127.0.0.1:1", "::1:5432"]);
        assert!(two.servers.iter().all(|server| server.config.get_user() == Some("u")
            && server.config.get_password() == Some(b"p")
            && server.config.get_dbname() == Some("db")
            && server.config.get_hosts().len() == 1
            && server.config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite));
        assert_eq!((two.schema.as_deref(), two.owner.as_deref()), (Some("s"), Some("dba")));
        let mode = |rest: &str| Settings::of_url(rest).unwrap().servers[0].config.get_ssl_mode();
        assert_eq!(mode("//u@localhost"), SslMode::Disable);
        assert_eq!(mode("//u@db.example"), SslMode::Require, "nobody reads what goes over a network");
        assert_eq!(mode("//u@localhost,db.example"), SslMode::Require);
        assert_eq!(mode("//u@db.example?sslmode=disable"), SslMode::Disable);
        assert_eq!(mode("//u@localhost?sslmode=prefer"), SslMode::Prefer);
        let socket = Settings::of_url("//u@/db?host=/run/postgresql").unwrap();
        assert_eq!(socket.servers[0].name, "/run/postgresql/.s.PGSQL.5432");
        let secret = Settings::of_url("//u:secret@localhost/db").unwrap();
        assert!(!format!("{secret:?}").contains("secret"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (rest, part) in [
            ("//u:secret@h/db?sslmode=verify-ca", "always verified"),
            ("//u:secret@h/db?sslmode=disable&ca=/x", "nothing to use"),
            ("//u:secret@/db", "names no host"),
            ("//u:secret@h/db?host=/there", "for a unix socket"),
            ("//u:secret@h/db?timeout=3", "none of this store's"),
            ("//u:secret@h/db?recipe=lock", "`recipe`"),
            ("//u:secret@h/db?ca=/no/such/file", "/no/such/file"),
        ] {
            let error = Settings::of_url(rest).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_configuration_of_several_hosts_is_one_for_each() {
        let config: Config =
            "host=a,b port=1,2 user=u password=QXZ-of-a-config dbname=d sslmode=disable".parse().unwrap();
        let settings = Settings::of_config(&config, &Files::default()).unwrap();
        let names: Vec<&str> = settings.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["a:1", "b:2"]);
        assert_eq!(secrets::without("bad QXZ-of-a-config"), "bad ***");
        let config = &settings.servers[1].config;
        assert_eq!((config.get_ports(), config.get_user()), (&[2][..], Some("u")));
        let none = Settings::of_config(&Config::new(), &Files::default());
        assert!(none.unwrap_err().to_string().contains("names no host"));
        let address: Config = "hostaddr=127.0.0.1 user=u sslmode=disable".parse().unwrap();
        let settings = Settings::of_config(&address, &Files::default()).unwrap();
        assert_eq!(settings.servers[0].name, "127.0.0.1:5432");
    }
}
