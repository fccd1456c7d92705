//! A foreign client in another language: `etcd3` for Python, from PyPI.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use primacy_conformance::live::program;

use primacy_testbed::etcd_api;
use primacy_testbed::started;

/// The program of the client.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/live/serve/etcd3_client.py");

pub(super) fn python_with_etcd3() -> Result<PathBuf, String> {
    let python = program("python3")?;
    match Command::new(&python).args(["-c", "import etcd3"]).output() {
        Ok(output) if output.status.success() => Ok(python),
        Ok(_) | Err(_) => Err("python3 has no etcd3; `cargo xtask live` installs it".to_owned()),
    }
}

#[test]
fn a_client_in_python_has_its_locks_leases_and_watches() {
    let Some((runtime, python)) = started("etcd3", async { python_with_etcd3() }) else { return };
    let cluster = runtime.block_on(etcd_api::open(&[]));
    let output =
        Command::new(python).args([PROGRAM, &cluster.endpoint(0)]).stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all held\n", "{errors}");
}
