//! Programs with the library and another crate that links SQLite. Cargo allows only one such link in a program, and
//! fails to resolve versions if two crates need different ones.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Outcome, Session, output};

/// A crate that links SQLite, with the version that a program would require.
struct User {
    name: &'static str,
    dependency: &'static str,
    /// True if the library is compiled for it with the oldest `rusqlite` of its version range. The workspace uses the
    /// newest.
    has_the_oldest: bool,
}

#[rustfmt::skip]
const USERS: &[User] = &[
    User { name: "sqlx-0.8",  dependency: r#"sqlx = { version = "0.8", features = ["runtime-tokio", "sqlite"] }"#,         has_the_oldest: true },
    User { name: "sqlx-0.9",  dependency: r#"sqlx = { version = "0.9", features = ["runtime-tokio", "sqlite"] }"#,         has_the_oldest: false },
    User { name: "diesel-2",  dependency: r#"diesel = { version = "2", features = ["sqlite"] }"#,                          has_the_oldest: false },
    User { name: "sea-orm-1", dependency: r#"sea-orm = { version = "1", features = ["runtime-tokio", "sqlx-sqlite"] }"#,   has_the_oldest: false },
    User { name: "sea-orm-2", dependency: r#"sea-orm = { version = "2", features = ["runtime-tokio", "sqlx-sqlite"] }"#,   has_the_oldest: false },
];

/// Resolves a program with each of these crates with today's versions, and compiles the library once with the oldest `rusqlite`.
pub(super) fn all(session: &mut Session<'_>) -> Outcome {
    for user in USERS {
        let told = match program(session.root, user) {
            Ok(folder) => resolve(&folder, user, session.root),
            Err(error) => return Outcome::Failed(format!("{}: {error}", user.name)),
        };
        match told {
            Ok(()) => println!("     {} and primacy resolve", user.name),
            Err(error) if is_out_of_reach(&error) => {
                return Outcome::NotRun(format!("the registry is out of reach: {error}"));
            }
            Err(error) => return Outcome::Failed(format!("beside {}: {error}", user.name)),
        }
    }
    Outcome::Passed(format!(
        "resolves beside {}",
        USERS.iter().map(|user| user.name).collect::<Vec<_>>().join(", ")
    ))
}

/// Writes a program that depends on the library and on the other crate.
fn program(root: &Path, user: &User) -> std::io::Result<PathBuf> {
    let folder = crate::target(root).join("sqlite-users").join(user.name);
    fs::create_dir_all(folder.join("src"))?;
    fs::write(folder.join("src/lib.rs"), "")?;
    let [library, fence] =
        ["primacy", "primacy-fence-sqlite"].map(|name| root.join("crates").join(name).display().to_string());
    let manifest = format!(
        "[package]\nname = \"user\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         primacy = {{ path = {library:?}, features = [\"sqlite\"] }}\nprimacy-fence-sqlite = {{ path = {fence:?} }}\n{}\n",
        user.dependency
    );
    fs::write(folder.join("Cargo.toml"), manifest)?;
    Ok(folder)
}

fn resolve(folder: &Path, user: &User, root: &Path) -> Result<(), String> {
    output(crate::cargo(folder, &["generate-lockfile"]))?;
    if user.has_the_oldest {
        let mut check = crate::cargo(folder, &["check", "--package", "primacy", "--locked"]);
        // This only checks types, so SQLite itself need not be compiled.
        check.env("LIBSQLITE3_SYS_USE_PKG_CONFIG", "1");
        check.env("CARGO_TARGET_DIR", crate::target(root).join("sqlite-users").join("target"));
        output(check)?;
    }
    Ok(())
}

/// True if Cargo reports a network error, rather than a conflict of the crates.
fn is_out_of_reach(error: &str) -> bool {
    const SIGNS: [&str; 4] = ["failed to download", "failed to query", "failed to fetch", "resolve host"];
    !error.contains("failed to select a version") && SIGNS.iter().any(|sign| error.contains(sign))
}

#[cfg(test)]
mod tests {
    use super::is_out_of_reach;

    #[test]
    fn only_the_network_excuses() {
        assert!(is_out_of_reach("error: failed to query replaced source registry `crates-io`"));
        let conflict = "error: failed to select a version for `libsqlite3-sys`.\n… failed to download";
        assert!(!is_out_of_reach(conflict));
        assert!(!is_out_of_reach("error[E0432]: unresolved import `rusqlite::Connection`"));
    }
}
