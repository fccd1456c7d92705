//! `cargo xtask live`: the laws of every networked store, on real servers.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::needs::{self, Step};

/// The variable for the folder of programs that are not from the system's packages; the tests read it.
const DIRECTORY_VARIABLE: &str = "PRIMACY_LIVE_DIR";
/// The variable that makes a missing server a failure.
const REQUIRE_VARIABLE: &str = "PRIMACY_REQUIRE_LIVE";
/// The variable that limits the stores to be tried.
const ONLY_VARIABLE: &str = "PRIMACY_LIVE_ONLY";

/// The packages from PyPI: servers, and foreign clients that campaign in the same elections.
const PYTHON: &[&str] = &[
    "moto[server]==5.2.5",
    "azure-storage-blob==12.31.1",
    "kubernetes==37.0.1",
    "kazoo==2.11.0",
    "python-consul2==0.1.5",
    "etcd3==0.12.0",
    // Its generated messages need this version or an earlier one.
    "protobuf==3.20.3",
    // Its locks need this version or an earlier one.
    "tenacity==6.3.1",
];

/// The packages from npm.
const NPM: &[&str] = &["azurite@3.37.0"];

/// Installs the servers, and runs the laws on each.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> ExitCode {
    let mut command =
        crate::cargo(root, &["test", "--package", "primacy-conformance", "--test", "live", "--locked"]);
    let mut rest = arguments.iter();
    let mut only = Vec::new();
    while let Some(&argument) = rest.next() {
        match (argument, rest.as_slice().first()) {
            ("--require-live", _) => drop(command.env(REQUIRE_VARIABLE, "1")),
            ("--only", Some(name)) => {
                only.push(*name);
                rest.next();
            }
            _ => {
                eprintln!("cargo xtask live [--require-live] [--only STORE]...");
                return ExitCode::from(2);
            }
        }
    }
    if !only.is_empty() {
        command.env(ONLY_VARIABLE, only.join(","));
    }
    match install(root) {
        Ok(told) => println!("{told}"),
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    }
    command.env(DIRECTORY_VARIABLE, directory(root)).args(["--", "--nocapture"]);
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo cannot be run: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the variables by which the tests of `cargo xtask test` find what was installed.
pub(crate) fn environment(root: &Path) -> [(&'static str, PathBuf); 1] {
    [(DIRECTORY_VARIABLE, directory(root))]
}

/// Installs the missing servers and foreign clients. Returns a description of that.
///
/// # Errors
/// The package that could not be installed, with the reason.
pub(crate) fn install(root: &Path) -> Result<String, String> {
    let told = needs::meet(Step::Live)?;
    let live = directory(root);
    std::fs::create_dir_all(&live).map_err(|error| format!("{}: {error}", live.display()))?;
    let python = live.join("python");
    if !PYTHON.is_empty() {
        if !python.join("bin/pip").exists() {
            succeeds(Command::new("python3").args(["-m", "venv"]).arg(&python))?;
        }
        install_once(&live.join("python.installed"), PYTHON, || {
            let mut pip = Command::new(python.join("bin/pip"));
            pip.args(["install", "--quiet", "--disable-pip-version-check"]).args(PYTHON);
            pip
        })?;
    }
    if !NPM.is_empty() {
        install_once(&live.join("npm.installed"), NPM, || {
            let mut npm = Command::new("npm");
            npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(live.join("npm")).args(NPM);
            npm
        })?;
    }
    Ok(told)
}

/// Runs the installation, unless a file states that exactly these packages were installed before.
fn install_once(
    noted: &Path,
    packages: &[&str],
    installation: impl FnOnce() -> Command,
) -> Result<(), String> {
    let wanted = packages.join("\n");
    if std::fs::read_to_string(noted).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    succeeds(&mut installation())?;
    std::fs::write(noted, wanted).map_err(|error| format!("{}: {error}", noted.display()))
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}");
    println!("  {shown}");
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{shown}: {status}")),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

fn directory(root: &Path) -> PathBuf {
    crate::target(root).join("live")
}
