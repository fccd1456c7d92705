//! Disks that are really full or cannot be written: file systems of a few pages, each in a mount namespace of its own. That
//! needs no privileges on systems that permit user namespaces.

use std::process::Command;

use super::*;

/// The environment variable that names the mounted directory inside the namespace.
const MOUNTED: &str = "PRIMACY_LOG_MOUNTED";

/// Returns the mounted file system inside the namespace; outside, runs the test inside, and checks that it has
/// finished.
fn mounted(test: &str) -> Option<Dir> {
    if let Some(dir) = std::env::var_os(MOUNTED) {
        return Some(Dir(PathBuf::from(dir)));
    }
    let dir = Dir::new();
    let script = format!("mount -t tmpfs -o size=64k none {0} && exec \"$0\" \"$@\"", dir.0.display());
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "--nocapture"]);
    command.arg(format!("log_file::tests::full::{test}")).env(MOUNTED, &dir.0);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{told}\n{complaint}");
    None
}

#[test]
fn on_a_full_disk_nothing_is_acknowledged_and_what_was_is_still_there() {
    let Some(dir) = mounted("on_a_full_disk_nothing_is_acknowledged_and_what_was_is_still_there") else {
        return;
    };
    let filler = dir.0.join("filler");
    fs::write(&filler, [1; 16 * 1024]).unwrap();
    let (mut log, ..) = dir.open_small().unwrap();
    let mut twin = Twin::default();
    let mut next = begin(2, LeaderSequence::NONE);
    let error = loop {
        let write = Write::Append(vec![next.clone()]);
        match log.write(&write) {
            Ok(()) => twin.write(&write),
            Err(error) => break error,
        }
        next = payload(2, next.number.counter + 1, &[3; 100]);
    };
    assert!(matches!(error, LogError::Full { .. }) && error.to_string().contains("make room"), "{error}");
    assert!(matches!(log.write(&Write::Append(vec![next])), Err(LogError::FailedBefore { .. })));
    drop(log);
    // The disk is still full, and all acknowledged records are read, with or without the rest.
    let (mut log, stored, _) = dir.open_small().unwrap();
    assert_eq!(stored, twin.0);
    assert!(stored.records.len() > 15, "{}", stored.records.len());
    // There is no room for a snapshot either. Its incomplete file is removed, and everything else is unchanged.
    let before = dir.files();
    let install = Write::Snapshot(snapshot(number(2, 10), &[4; 9_000]));
    let error = log.write(&install).unwrap_err();
    assert!(matches!(error, LogError::Full { .. }), "{error}");
    assert!(dir.files() == before);
    fs::remove_file(filler).unwrap();
    let last = stored.records.last().unwrap().number;
    for write in [install, Write::Append(vec![payload(2, last.counter + 1, &[5; 300])])] {
        log.write(&write).unwrap();
        twin.write(&write);
    }
    drop(log);
    assert_eq!(dir.open_small().unwrap().1, twin.0);
}

#[test]
fn a_file_system_that_cannot_be_written_is_refused() {
    let Some(dir) = mounted("a_file_system_that_cannot_be_written_is_refused") else { return };
    let (mut log, ..) = dir.open_small().unwrap();
    let records = written(&mut log, 3);
    drop(log);
    let remount = |how: &str| {
        let done =
            Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&dir.0).status().unwrap();
        assert!(done.success());
    };
    remount("ro");
    let error = dir.refused();
    assert!(matches!(error, LogError::Forbidden { .. }), "{error}");
    remount("rw");
    assert_eq!(dir.open_small().unwrap().1.records, records);
}
