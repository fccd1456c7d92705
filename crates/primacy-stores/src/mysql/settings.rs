//! The parts of a URL: `mysql://USER:PASSWORD@HOST:PORT,HOST:PORT/DATABASE?password-file=FILE&tls=on&ca=FILE&cert=FILE&key=FILE`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;

use crate::open_error::OpenError;
use crate::ownership;
use crate::passing;
use crate::secrets;
use crate::store_url::{Host, StoreUrl};
use crate::tls::Files;

/// The form of a URL of this store.
const FORM: &str = "mysql://USER:PASSWORD@HOST/DATABASE";

const DEFAULT_PORT: u16 = 3306;

/// The environment variable that MySQL's own programs take a password from.
const PASSWORD_VARIABLE: &str = "MYSQL_PWD";

/// The servers, which are tried in turn, and their common settings.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) hosts: Vec<Host>,
    pub(super) user: String,
    password: Option<String>,
    password_file: Option<PathBuf>,
    pub(super) database: String,
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl Settings {
    /// Parses a URL, without its scheme.
    ///
    /// # Errors
    /// [`OpenError::Malformed`], or [`OpenError::Refused`] for files that cannot be used.
    pub(super) fn parse(rest: &str) -> Result<Self, OpenError> {
        let mut url = StoreUrl::parse(rest, FORM)?;
        let files = Files::take(&mut url)?;
        let password_file = url.take("password-file").map(PathBuf::from);
        let is_local = url.hosts.iter().all(is_of_this_machine);
        let is_tls = files.take_tls(&mut url, files.is_given() || !is_local)?;
        url.finish()?;
        if url.hosts.is_empty() {
            return Err(url.malformed("it names no host"));
        }
        if url.path.is_empty() || url.path.contains(char::is_control) {
            return Err(url.malformed("behind the host comes the name of a database"));
        }
        if url.password.is_some() && password_file.is_some() {
            return Err(url.malformed("it has a password and `password-file`; leave one of them out"));
        }
        let Some(user) = url.user.clone() else {
            return Err(url.malformed("it names no user; write USER@ before the host"));
        };
        Ok(Self {
            hosts: url.hosts.clone(),
            user,
            password: url.password.clone(),
            password_file,
            database: url.path.clone(),
            tls: is_tls.then(|| files.client()).transpose()?.map(Arc::new),
        })
    }

    /// Returns the present password: from the URL, from the file, which is read for each connection, or from the environment.
    ///
    /// # Errors
    /// [`OpenError`] for a file that cannot be read, or that other users may read.
    pub(super) fn password(&self) -> Result<String, OpenError> {
        if let Some(password) = &self.password {
            return Ok(password.clone());
        }
        let password = match &self.password_file {
            None => std::env::var(PASSWORD_VARIABLE).unwrap_or_default(),
            Some(file) => {
                let text = ownership::read_trusted(file, 0o077);
                let text =
                    text.map_err(|error| passing::of_file(format!("{}: {error}", file.display()), &error))?;
                text.trim_end_matches(['\r', '\n']).to_owned()
            }
        };
        secrets::remember(&password);
        Ok(password)
    }

    /// Returns the names of the servers, for messages.
    pub(super) fn names(&self) -> Vec<String> {
        self.hosts.iter().map(authority).collect()
    }
}

/// The address of a server.
pub(super) fn authority(host: &Host) -> String {
    host.authority(DEFAULT_PORT)
}

fn is_of_this_machine(host: &Host) -> bool {
    host.name == "localhost" || host.name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// Leaves out all parts that could be secret.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("servers", &self.names())
            .field("database", &self.database)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_servers_and_how_they_are_protected() {
        let two = Settings::parse("//u:secret@127.0.0.1:1,[::1]/db").unwrap();
        assert_eq!(two.names(), ["127.0.0.1:1", "[::1]:3306"]);
        assert_eq!((two.user.as_str(), two.database.as_str()), ("u", "db"));
        assert!(two.tls.is_none() && two.password() == Ok("secret".to_owned()));
        assert!(!format!("{two:?}").contains("secret"));
        let is_tls = |rest: &str| Settings::parse(rest).unwrap().tls.is_some();
        assert!(!is_tls("//u@localhost/db") && is_tls("//u@localhost/db?tls=on"));
        assert!(is_tls("//u@db.example/db") && !is_tls("//u@db.example/db?tls=off"));
        assert!(is_tls("//u@localhost,db.example/db"));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (wrong, said) in [
            ("//u:secret@/db", "no host"),
            ("//u:secret@h", "name of a database"),
            ("//h/db", "no user"),
            ("//u:secret@h/db?tls=maybe", "`tls`"),
            ("//u:secret@h/db?tls=off&ca=/x", "unused"),
            ("//u:secret@h/db?password-file=/x", "leave one"),
            ("//u:secret@h/db?timeout=3", "none of this store's"),
        ] {
            let error = Settings::parse(wrong).unwrap_err().to_string();
            assert!(error.contains(said) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_file_of_a_password_is_read_at_each_connection_and_others_may_not_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("primacy-mysql-password-{}", std::process::id()));
        let settings =
            Settings::parse(&format!("//u@localhost/db?password-file={}", path.display())).unwrap();
        assert!(settings.password().is_err());
        std::fs::write(&path, "").unwrap();
        let set_mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0o600);
        for password in ["first", "other"] {
            std::fs::write(&path, format!("{password}\n")).unwrap();
            assert_eq!(settings.password().as_deref(), Ok(password));
        }
        set_mode(0o640);
        assert!(matches!(settings.password(), Err(OpenError::Refused { .. })));
        std::fs::remove_file(path).unwrap();
    }
}
