//! The password, where the URL has none: `PGPASSWORD`, or the file that PostgreSQL's own programs read.

use std::path::{Path, PathBuf};

use crate::ownership;
use crate::secrets;

/// The longest file of passwords that is read, in bytes.
const FILE_LENGTH_MAX: u64 = 1024 * 1024;

/// A user, and the server and database to log in to.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: Option<String>,
    pub(super) user: Option<String>,
}

/// The password of a login, if there is one: from `PGPASSWORD`, or else from the file `PGPASSFILE`, or `.pgpass` at home. As in
/// PostgreSQL's own programs, a file is ignored if other users may read it or own it.
pub(super) fn find(login: &Login) -> Option<String> {
    find_anywhere(login).inspect(|password| secrets::remember(password))
}

fn find_anywhere(login: &Login) -> Option<String> {
    if let Some(password) = std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty()) {
        return Some(password);
    }
    let file = std::env::var_os("PGPASSFILE").filter(|file| !file.is_empty()).map(PathBuf::from);
    let file = file.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pgpass")))?;
    find_in(&file, login)
}

fn find_in(file: &Path, login: &Login) -> Option<String> {
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() > FILE_LENGTH_MAX {
        return None;
    }
    search(&ownership::read_trusted(file, 0o077).ok()?, login)
}

/// Returns the password of the first line that matches the login: `HOST:PORT:DATABASE:USER:PASSWORD`, where `*` matches any value, and a
/// backslash escapes the next letter.
fn search(text: &str, login: &Login) -> Option<String> {
    let port = login.port.to_string();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    for fields in lines.map(fields) {
        let [host, at, database, user, password] = fields.as_slice() else { continue };
        let fits = |field: &str, value: Option<&str>| field == "*" || Some(field) == value;
        if fits(host, Some(&login.host))
            && fits(at, Some(&port))
            && fits(database, login.database.as_deref())
            && fits(user, login.user.as_deref())
        {
            return Some(password.clone());
        }
    }
    None
}

fn fields(line: &str) -> Vec<String> {
    let (mut fields, mut letters) = (vec![String::new()], line.chars());
    while let Some(letter) = letters.next() {
        let field = fields.last_mut().expect("there is one from the beginning");
        match letter {
            ':' => fields.push(String::new()),
            '\\' => field.extend(letters.next()),
            letter => field.push(letter),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        let text = "# host:port\nother:*:*:*:no\nshort:line\n\
                    db:5432:app:us\\:er:p\\\\w\\:d\n*:*:*:*:any\n";
        let login = |host: &str, user: Option<&str>| {
            let (host, user) = (host.to_owned(), user.map(str::to_owned));
            Login { host, port: 5432, database: Some("app".to_owned()), user }
        };
        assert_eq!(search(text, &login("db", Some("us:er"))).as_deref(), Some("p\\w:d"));
        assert_eq!(search(text, &login("db", None)).as_deref(), Some("any"));
        assert_eq!(search("db:1:app:u:p", &login("db", Some("u"))), None);
    }

    /// The password is looked up for each connection, so a new one takes effect without a restart.
    #[test]
    fn the_password_is_what_the_file_has_then_and_others_may_not_read_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("primacy-pgpass-{}", std::process::id()));
        let login = Login { host: "db".to_owned(), port: 5432, database: None, user: None };
        assert_eq!(find_in(&path, &login), None);
        std::fs::write(&path, "").unwrap();
        let set_mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        set_mode(0o600);
        for password in ["first", "other"] {
            std::fs::write(&path, format!("db:5432:*:*:{password}\n")).unwrap();
            assert_eq!(find_in(&path, &login).as_deref(), Some(password));
        }
        set_mode(0o640);
        assert_eq!(find_in(&path, &login), None);
        std::fs::remove_file(path).unwrap();
    }
}
