//! The settings of an object store in the environment and in its file of credentials, except the file of gcloud below the home directory.
//! They are checked before the client library reads them: it panics at values that cannot be sent, and reads files without a limit.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::login;
use crate::open_error::OpenError;
use crate::ownership::read_trusted;
use crate::passing;
use crate::replaced_files::Sources;
use crate::secrets;

/// The section of a file of credentials that is read, besides the lines before the first section.
const SECTION: &str = "[default]";

/// The names of the settings of one kind of store.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    /// The beginning of the variables of the environment that are settings.
    pub(crate) prefix: &'static str,
    /// Variables without that beginning that the client library reads.
    pub(crate) others: &'static [&'static str],
    /// Returns whether the client library has a setting of this name, in lower case.
    pub(crate) is_setting: fn(&str) -> bool,
}

/// The names, in lower case, and values of the file of credentials.
pub(super) struct Credentials(Vec<(String, String)>);

impl Credentials {
    /// Reads the file, if there is one, and checks its lines and the variables of the environment.
    pub(super) fn read(file: Option<&Path>, names: &Names, sources: &mut Sources) -> Result<Self, OpenError> {
        let lines = file.map_or(Ok(Vec::new()), |path| read_lines(path, sources))?;
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| {
                names.others.contains(&&**name)
                    || name.starts_with(names.prefix) && (names.is_setting)(&name.to_ascii_lowercase())
            });
        for (name, value) in variables.chain(lines.iter().cloned()).filter(|(_, value)| !value.is_empty()) {
            check(&name, &value, sources)?;
        }
        Ok(Self(lines))
    }

    /// The settings, as the client library names them.
    pub(super) fn settings<K: FromStr>(&self) -> Result<Vec<(K, String)>, OpenError> {
        let named = |(name, value): &(String, String)| match name.parse() {
            Ok(key) => Ok((key, value.clone())),
            Err(_) => Err(OpenError::Refused {
                why: format!("the file of credentials has a line `{name}`, which this store does not know"),
            }),
        };
        self.0.iter().map(named).collect()
    }
}

/// Checks a setting, and the file that it names, and notes the secrets in them.
fn check(name: &str, value: &str, sources: &mut Sources) -> Result<(), OpenError> {
    let key = name.to_ascii_lowercase();
    if login::is_secret_name(&key) {
        secrets::remember(value);
    }
    if names_file(&key) {
        return check_file(name, &key, &PathBuf::from(value), sources);
    }
    // These have lines, and are not sent as they are.
    if ["service_account_key", "proxy_ca_certificate"].iter().any(|end| key.ends_with(end)) {
        return Ok(());
    }
    let refused = |why: &str| Err(OpenError::Refused { why: format!("{name} {why}") });
    if !is_sendable(value) {
        return refused(
            "has a character other than the printable ones of ASCII, so that no request can carry it",
        );
    }
    if is_address(&key) && !is_url(value) {
        return refused("is not the address of a server, https://HOST:PORT/PATH or http://…");
    }
    Ok(())
}

/// Checks a file before the client library reads it, and notes the token in it.
fn check_file(name: &str, key: &str, path: &Path, sources: &mut Sources) -> Result<(), OpenError> {
    sources.add_read_whole(path).map_err(|error| {
        passing::of_file(format!("the credentials {} are not used: {error}", path.display()), &error)
    })?;
    // A file that is not there yet, or is no text, is an error of the requests.
    let Some(token) = read_trusted(path, 0o022).ok().filter(|_| key.ends_with("_token_file")) else {
        return Ok(());
    };
    secrets::remember(&token);
    // The other tokens are sent as the value of a form or query, where any character is escaped.
    if key.ends_with("authorization_token_file") && !is_sendable(&token) {
        return Err(OpenError::Refused {
            why: format!(
                "the token in {}, which {name} names, has a line end, or another character that no header can have; write it without",
                path.display()
            ),
        });
    }
    Ok(())
}

fn names_file(key: &str) -> bool {
    ["_token_file", "service_account", "service_account_path", "application_credentials"]
        .iter()
        .any(|end| key.ends_with(end))
}

fn is_address(key: &str) -> bool {
    key.contains("endpoint") && !key.ends_with("use_fabric_endpoint")
        || ["authority_host", "full_uri", "base_url"].iter().any(|end| key.ends_with(end))
}

fn is_url(value: &str) -> bool {
    let scheme = value.parse::<http::Uri>().ok().and_then(|uri| uri.scheme_str().map(str::to_owned));
    matches!(scheme.as_deref(), Some("http" | "https"))
}

/// Returns whether a header of a request can have this value.
pub(super) fn is_sendable(value: &str) -> bool {
    value.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// Reads the `NAME = VALUE` lines of the default section, and those before the first section. The tools of AWS write such files.
fn read_lines(path: &Path, sources: &mut Sources) -> Result<Vec<(String, String)>, OpenError> {
    let text = sources.read_to_string(path).map_err(|error| {
        passing::of_file(format!("the credentials {} cannot be read: {error}", path.display()), &error)
    })?;
    parse(&text).map_err(|number| OpenError::Refused {
        why: format!("line {number} of the credentials {} is no NAME = VALUE", path.display()),
    })
}

/// Parses the lines; the error is the number of an invalid line.
fn parse(text: &str) -> Result<Vec<(String, String)>, u32> {
    let mut found = Vec::new();
    let mut is_ours = true;
    for (number, line) in (1u32..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with('[') {
            is_ours = line == SECTION;
        } else if is_ours {
            let (name, value) = line.split_once('=').ok_or(number)?;
            found.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_file_of_credentials_is_read_as_the_tools_of_aws_write_it() {
        let text = "# ours\n[default]\naws_access_key_id = A=B\nAWS_SECRET_ACCESS_KEY=s\n\n[other]\nx\n";
        let expected = [("aws_access_key_id", "A=B"), ("aws_secret_access_key", "s")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parse(text), Ok(expected.to_vec()));
        assert_eq!(parse("a = b\nc\n"), Err(2));
        assert_eq!(parse("[other]\na=b"), Ok(Vec::new()));
    }

    #[test]
    fn a_value_that_no_request_can_carry_is_refused_and_not_shown() {
        let check = |name: &str, value: &str| check(name, value, &mut Sources::default());
        for (name, value) in [
            ("aws_session_token", "tok\u{1}QXZ"),
            ("aws_access_key_id", "AK\u{1}QXZ"),
            ("AWS_REGION", "\u{1}QXZ"),
            ("azure_storage_token", "tok\r\nQXZ"),
            ("AZURE_CLIENT_ID", "é QXZ"),
            ("azure_msi_endpoint", ":::QXZ"),
            ("AZURE_AUTHORITY_HOST", ":::QXZ"),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "/QXZ"),
            ("AWS_ENDPOINT_URL_STS", "ftp://QXZ"),
            ("IDENTITY_HEADER", "a\nQXZ"),
            ("GCE_METADATA_HOST", "h\tQXZ"),
        ] {
            let why = check(name, value).unwrap_err().to_string();
            assert!(why.contains(name) && !why.contains("QXZ"), "{why}");
        }
        for (name, value) in [
            ("google_service_account_key", "{\n\"client_email\": \"é\"\n}"),
            ("azure_use_fabric_endpoint", "true"),
            ("AWS_METADATA_ENDPOINT", "http://[::1]:80"),
            ("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com/"),
            ("GCE_METADATA_HOST", "127.0.0.1:80"),
        ] {
            check(name, value).unwrap();
        }
    }

    #[test]
    fn a_file_of_a_token_is_a_regular_one_of_this_user_and_its_token_is_not_shown() {
        let at =
            |name: &str| std::env::temp_dir().join(format!("primacy-token-{name}-{}", std::process::id()));
        let (path, link) = (at("file"), at("link"));
        let check = |name: &str, path: &Path| check(name, path.to_str().unwrap(), &mut Sources::default());
        let names = [
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            "AWS_WEB_IDENTITY_TOKEN_FILE",
            "AZURE_FEDERATED_TOKEN_FILE",
        ];
        symlink("/dev/zero", &link).unwrap();
        for name in names {
            fs::write(&path, format!("token-1-of-{name}")).unwrap();
            check(name, &path).unwrap();
            assert_eq!(secrets::without(&format!("got token-1-of-{name}")), "got ***");
            fs::write(&path, format!("token-2-of-{name}\n")).unwrap();
            assert_eq!(check(name, &path).is_err(), name == names[0], "a header has no line end");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o622)).unwrap();
            assert!(check(name, &path).unwrap_err().to_string().contains("others may change it"));
            fs::remove_file(&path).unwrap();
            check(name, &path).unwrap();
            assert!(check(name, &link).unwrap_err().to_string().contains("no regular file"));
        }
        fs::remove_file(&link).unwrap();
    }
}
