//! Supervised test programs: their output, their exit, and the processes that they leave behind; and test binaries, two at a time.

use std::io::{self, BufRead as _, BufReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;

/// The number of test binaries that run concurrently. Many spend most of their time waiting for leases and processes;
/// `cargo test` runs one at a time.
const LANES: usize = 2;

/// The end of a program.
pub(crate) struct Ended {
    pub(crate) status: io::Result<ExitStatus>,
    /// The processes that it left behind with its output open.
    pub(crate) left: Vec<String>,
}

/// A test binary that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    pub(crate) executable: PathBuf,
    /// The folder of its package, which is its working directory.
    package: PathBuf,
}

/// Runs a program to its end, and passes on each line of its output.
///
/// The output may be closed early, or held open by a leftover process; the result depends on how the program itself
/// ended.
pub(crate) fn watch(command: &mut Command, mut tell: impl FnMut(&str)) -> Ended {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Ended { status: Err(error), left: Vec::new() },
    };
    let stdout = child.stdout.take().expect("it is piped");
    let pipe = name_of(&stdout);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let status = child.wait();
            Ended { status, left: pipe.as_deref().map(end_who_writes_to).unwrap_or_default() }
        });
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            tell(&String::from_utf8_lossy(&line));
        }
        waiting.join().expect("it only waits")
    })
}

/// Returns the test binaries in cargo's output of `--message-format json`, which has a line for each artifact.
pub(crate) fn binaries(told: &str) -> Vec<Binary> {
    let value = |line: &str, key: &str| {
        let (_, rest) = line.split_once(&format!("\"{key}\":\""))?;
        rest.split('"').next().map(PathBuf::from)
    };
    let of_line = |line: &str| {
        // The target has a `test` field too, with another meaning: whether it can be tested.
        let (_, profile) = line.split_once("\"profile\":{")?;
        let is_test = profile.split('}').next()?.contains("\"test\":true");
        let package = value(line, "manifest_path")?.parent()?.to_path_buf();
        Some(Binary { executable: value(line, "executable").filter(|_| is_test)?, package })
    };
    told.lines().filter_map(of_line).collect()
}

/// Runs the binaries as `prepare` configures them, and calls `tell` with the whole output of each at its end.
pub(crate) fn run(
    binaries: &[Binary],
    prepare: impl Fn(&mut Command) + Sync,
    tell: impl FnMut(&Binary, &[String], Ended) + Send,
) {
    let (next, tell) = (Mutex::new(binaries.iter()), Mutex::new(tell));
    let run_next = || {
        let binary = next.lock().expect("it only counts").next()?;
        // Printed before the run, so that the name of a binary that hangs is shown too.
        println!("     Running {}", binary.executable.display());
        let mut command = Command::new(&binary.executable);
        command.current_dir(&binary.package).env("CARGO_MANIFEST_DIR", &binary.package);
        prepare(&mut command);
        let mut printed = Vec::new();
        let ended = watch(&mut command, |line| printed.push(line.to_owned()));
        tell.lock().expect("it only tells")(binary, &printed, ended);
        Some(())
    };
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| while run_next().is_some() {});
        }
    });
}

/// Returns the kernel's name of a pipe, by which the processes that write to it are found.
fn name_of(pipe: &impl AsRawFd) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", pipe.as_raw_fd())).ok()
}

/// Kills the processes that write to this pipe, and returns their command lines. While one of them is alive, no reader
/// sees the end of the pipe.
fn end_who_writes_to(pipe: &Path) -> Vec<String> {
    let mut ended = Vec::new();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let writes = |path: &PathBuf| {
        let is_it = |output: &str| path.join(output).read_link().is_ok_and(|output| output == pipe);
        is_it("fd/1") || is_it("fd/2")
    };
    for process in processes.filter(writes) {
        let (Some(pid), Ok(words)) = (process.file_name(), std::fs::read(process.join("cmdline"))) else {
            continue;
        };
        let killed = Command::new("kill").arg("-KILL").arg(pid).status();
        if killed.is_ok_and(|status| status.success()) {
            ended.push(String::from_utf8_lossy(&words).replace('\0', " ").trim_end().to_owned());
        }
    }
    ended
}

#[cfg(test)]
mod self_tests {
    use super::*;

    #[test]
    fn what_holds_the_output_open_is_ended_and_named() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 3600 2>/dev/null & echo done"]);
        let mut printed = Vec::new();
        let ended = watch(&mut shell, |line| printed.push(line.to_owned()));
        assert!(ended.status.is_ok_and(|status| status.success()));
        // The process may not have executed its program yet, and then still has the shell's command line, or none for
        // a moment.
        assert_eq!((ended.left.len(), printed), (1, vec!["done".to_owned()]));
    }

    #[test]
    fn test_binaries_are_found_with_their_packages() {
        let of = |package: &str, test: bool, executable: &str| {
            let target = r#""target":{"kind":["bin"],"name":"a","doctest":false,"test":true}"#;
            let profile = format!(r#""profile":{{"opt_level":"0","debuginfo":2,"test":{test}}}"#);
            let package = format!(r#""manifest_path":"/p/{package}/Cargo.toml""#);
            format!(
                r#"{{"reason":"compiler-artifact",{package},{target},{profile},"executable":{executable}}}"#
            )
        };
        let told = [
            of("a", true, r#""/t/a-1""#),
            of("a", false, r#""/t/a""#),
            of("b", true, "null"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ]
        .join("\n");
        let found = Binary { executable: "/t/a-1".into(), package: "/p/a".into() };
        assert_eq!(binaries(&told), [found]);
    }

    #[test]
    fn each_binary_is_run_in_its_package_and_told_of() {
        let of = |executable: &str| Binary { executable: executable.into(), package: "/".into() };
        let all = [of("/bin/pwd"), of("/bin/false"), of("/no/such/program")];
        let mut told = Vec::new();
        run(
            &all,
            |_| {},
            |binary, printed, ended| {
                let is_fine = ended.status.is_ok_and(|status| status.success());
                told.push((binary.executable.display().to_string(), printed.join("|"), is_fine));
            },
        );
        told.sort();
        let expected = [("/bin/false", "", false), ("/bin/pwd", "/", true), ("/no/such/program", "", false)];
        assert_eq!(told, expected.map(|(name, printed, fine)| (name.to_owned(), printed.to_owned(), fine)));
    }
}
