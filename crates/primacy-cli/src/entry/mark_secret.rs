//! The random secret of a state directory, from which the mark in the environment of the node's processes is made.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use primacy::stores::ownership::{check_state_dir, close_to_others, open_in_state_dir};

/// The file's name. Only its owner may read the file.
pub(super) const FILE: &str = "mark-secret";

/// The length of the secret in bytes.
const LENGTH: usize = 32;

type Secret = [u8; LENGTH];

/// Draws a secret that no other node has.
pub(super) fn draw() -> Secret {
    let mut secret = [0; LENGTH];
    getrandom::fill(&mut secret).expect("the system has random numbers");
    secret
}

/// Returns the secret of a directory. Creates the directory and the secret if they do not exist.
///
/// # Errors
/// The error of the system; also for a directory that others may change, and for a file of this name without a secret.
pub(super) fn of_directory(dir: &Path) -> io::Result<Secret> {
    check_state_dir(dir).map_err(|why| io::Error::new(io::ErrorKind::PermissionDenied, why))?;
    let path = dir.join(FILE);
    match read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let secret = draw();
    let new = dir.join(format!("{FILE}.{}", std::process::id()));
    // A process with the same number may have left this file. If the name is a link, the link is removed, not followed.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let made =
        file.write_all(&secret).and_then(|()| file.sync_all()).and_then(|()| fs::hard_link(&new, &path));
    let _ = fs::remove_file(&new);
    match made {
        // Another process of this user was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(&path),
        made => made.map(|()| secret),
    }
}

fn read(path: &Path) -> io::Result<Secret> {
    let mut file = open_in_state_dir(path, OpenOptions::new().read(true))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    let secret = bytes.try_into();
    let secret = secret.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it has another length"))?;
    close_to_others(&file)?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_secret_stays_and_each_directory_has_its_own() {
        let dirs = ["a", "b"]
            .map(|name| std::env::temp_dir().join(format!("primacy-mark-{}-{name}", std::process::id())));
        let [first, second] = dirs.each_ref().map(|dir| of_directory(dir).unwrap());
        let file = dirs[0].join(FILE);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(of_directory(&dirs[0]).unwrap(), first);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "one of a copy");
        assert_ne!(first, second);
        assert_eq!(fs::read_dir(&dirs[0]).unwrap().count(), 1, "nothing else is left");
        dirs.iter().for_each(|dir| fs::remove_dir_all(dir).unwrap());
    }
}
