//! The programs that the tests need besides Rust, and their installation.

use std::path::Path;
use std::process::{Command, Stdio};

/// A task that needs programs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// `cargo xtask test`
    Test,
    /// `cargo xtask chaos`
    Chaos,
    /// `cargo xtask live`; also a part of `cargo xtask test`.
    Live,
}

/// A program or file that must be there before a step can run.
struct Need {
    /// The steps that need it.
    wanted_by: &'static [Step],
    /// A command that succeeds if it is installed.
    probe: &'static [&'static str],
    why: &'static str,
    /// A file without which it is useless.
    only_with: Option<&'static str>,
    /// The commands that install it, for machines with these package managers.
    install: &'static [&'static [&'static str]],
}

/// The FUSE device of the kernel; without it, no FUSE file system can be mounted.
const FUSE: &str = "/dev/fuse";

/// The table of all needs.
const NEEDS: &[Need] = &[
    Need {
        wanted_by: &[Step::Test, Step::Chaos],
        // Rust also links with it, unless another linker is configured.
        probe: &["cc", "--version"],
        why: "SQLite is compiled from C",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "gcc", "libc6-dev"],
        ],
    },
    Need {
        wanted_by: &[Step::Test, Step::Live],
        probe: &["curl", "--version"],
        why: "the example of a fenced service is tried with it, and the commands of the page of S3",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "curl"],
        ],
    },
    Need {
        wanted_by: &[Step::Test],
        probe: &["bindfs", "--version"],
        why: "the store `file` is to refuse what is behind FUSE",
        only_with: Some(FUSE),
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "bindfs"],
        ],
    },
    Need {
        wanted_by: &[Step::Test],
        probe: &["cargo", "fmt", "--version"],
        why: "the format is checked",
        only_with: None,
        install: &[&["rustup", "component", "add", "rustfmt"]],
    },
    Need {
        wanted_by: &[Step::Test],
        probe: &["cargo", "clippy", "--version"],
        why: "the lints are checked",
        only_with: None,
        install: &[&["rustup", "component", "add", "clippy"]],
    },
    Need {
        wanted_by: &[Step::Test, Step::Chaos],
        probe: &["ip", "-Version"],
        why: "every node among peers has a network namespace of its own",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "iproute2"],
        ],
    },
    Need {
        wanted_by: &[Step::Test, Step::Chaos],
        probe: &["nft", "--version"],
        why: "links between nodes are cut with it",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "nftables"],
        ],
    },
    Need {
        wanted_by: &[Step::Live],
        probe: &["python3", "-m", "venv", "--help"],
        why: "some servers, and strangers' clients that stand in the same election, are Python's",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "python3-venv"],
        ],
    },
    Need {
        wanted_by: &[Step::Live],
        probe: &["npm", "--version"],
        why: "the server for `az:` is a package of npm",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "nodejs", "npm"],
        ],
    },
    Need {
        wanted_by: &[Step::Chaos],
        // It is installed together with the library, which is what the tests need.
        probe: &["faketime", "--version"],
        why: "one node lives with a clock of another rate",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "faketime"],
        ],
    },
    Need {
        wanted_by: &[Step::Live],
        probe: &["pgbouncer", "--version"],
        why: "the store `postgres` is tried behind a pooler",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "pgbouncer"],
        ],
    },
    Need {
        wanted_by: &[Step::Live],
        probe: &["etcdctl", "version"],
        why: "it stands in the same election",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "etcd-client"],
        ],
    },
    Need {
        wanted_by: &[Step::Live],
        probe: &["kubectl", "version", "--client"],
        why: "the commands of the page of Kubernetes are run",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "kubernetes-client"],
        ],
    },
    Need {
        wanted_by: &[Step::Live],
        probe: &["java", "--version"],
        why: "ZooKeeper runs in it",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "default-jre-headless"],
        ],
    },
    Need {
        wanted_by: &[Step::Live],
        // Only its library and the logging library are used, not its scripts.
        probe: &["find", "/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar", "-quit"],
        why: "an ensemble of three ZooKeeper servers holds elections",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "libzookeeper-java", "libslf4j-java"],
        ],
    },
    Need {
        wanted_by: &[Step::Live],
        probe: &["find", "/usr/share/java/curator-recipes.jar", "-quit"],
        why: "Curator's latch stands in the same election, in ZooKeeper",
        only_with: None,
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "libcurator-recipes-java"],
        ],
    },
];

impl Need {
    fn name(&self) -> String {
        self.probe[..self.probe.len() - 1].join(" ")
    }

    fn is_of_use(&self) -> bool {
        self.only_with.is_none_or(|file| Path::new(file).exists())
    }
}

/// True if this machine can use every need of `cargo xtask test`, so that no test may be skipped.
pub(crate) fn all_of_use() -> bool {
    wanted(Step::Test).all(Need::is_of_use)
}

fn wanted(step: Step) -> impl Iterator<Item = &'static Need> {
    NEEDS.iter().filter(move |need| need.wanted_by.contains(&step))
}

/// Installs the missing programs for a step; the error lists those that could not be installed.
pub(crate) fn meet(step: Step) -> Result<String, String> {
    let (mut installed, mut missing) = (Vec::new(), Vec::new());
    let mut note = |told: Result<String, String>| match told {
        Ok(name) => installed.push(name),
        Err(why) => missing.push(why),
    };
    for need in wanted(step).filter(|need| need.is_of_use() && !succeeds(need.probe)) {
        note(install(&need.name(), need.why, need.probe, need.install));
    }
    if step == Step::Live {
        for TestServer { program, package, store } in test_servers(&crate::root()) {
            // Debian does not install every server's program in the PATH.
            let found =
                format!("PATH=$PATH:/usr/sbin:$(echo /usr/lib/*/*/bin | tr ' ' :); command -v {program}");
            let probe = ["sh", "-c", &found];
            let get = ["apt-get", "install", "--yes", "--no-install-recommends", &package];
            if !succeeds(&probe) {
                let why = format!("the store `{store}` is tried on it");
                note(install(&program, &why, &probe, &[&["apt-get", "update"], &get]));
            }
        }
    }
    let of_no_use = wanted(step).filter(|need| !need.is_of_use());
    let left_out: String = of_no_use
        .map(|need| {
            let file = need.only_with.unwrap_or_default();
            format!("; NOT RUN for want of {file} and {}: {}", need.name(), need.why)
        })
        .collect();
    match (missing.is_empty(), installed.is_empty()) {
        (false, _) => Err(missing.join("\n")),
        (true, true) => Ok("all there".to_owned() + &left_out),
        (true, false) => Ok(format!("installed {}{left_out}", installed.join(", "))),
    }
}

/// Installs one need. Returns its name, or the instructions for installing it by hand.
fn install(name: &str, why: &str, probe: &[&str], commands: &[&[&str]]) -> Result<String, String> {
    let runs = commands.iter().all(|command| {
        println!("  {name} is missing ({why}): {}", command.join(" "));
        let status = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    });
    if runs && succeeds(probe) {
        return Ok(name.to_owned());
    }
    let by_hand: Vec<String> = commands.iter().map(|command| command.join(" ")).collect();
    Err(format!("{name} is missing ({why}); install it, for example: {}", by_hand.join(" && ")))
}

/// A server that the tests of a store start.
struct TestServer {
    program: String,
    package: String,
    store: String,
}

/// Returns the servers that the stores' descriptors name.
fn test_servers(root: &Path) -> Vec<TestServer> {
    let folders = std::fs::read_dir(root.join("crates/primacy-stores/src")).into_iter().flatten().flatten();
    let mut servers: Vec<TestServer> = folders
        .filter_map(|folder| {
            let text = std::fs::read_to_string(folder.path().join("descriptor.rs")).ok()?;
            test_server(&text)
        })
        .collect();
    servers.sort_by(|a, b| a.store.cmp(&b.store));
    servers
}

/// Returns the server that a descriptor names. The file is parsed as text, because this program depends on no crate
/// of the workspace.
fn test_server(descriptor: &str) -> Option<TestServer> {
    let value = |text: &str, field: &str| {
        let (_, rest) = text.split_once(&format!("{field}: \""))?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let (before, server) = descriptor.split_once("TestServer {")?;
    Some(TestServer {
        program: value(server, "program")?,
        package: value(server, "package")?,
        store: value(before, "scheme")?,
    })
}

fn succeeds(command: &[&str]) -> bool {
    let mut command_line = Command::new(command[0]);
    command_line.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command_line.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod self_tests {
    use super::*;

    #[test]
    fn what_needs_something_that_is_not_there_is_of_no_use() {
        let need = |only_with| Need {
            wanted_by: &[Step::Test],
            probe: &["a", "--version"],
            why: "",
            only_with,
            install: &[],
        };
        assert!(need(None).is_of_use() && need(Some("/")).is_of_use());
        assert!(!need(Some("/a/file/that/nobody/has")).is_of_use());
    }

    #[test]
    fn the_servers_of_the_stores_are_read_from_their_descriptors() {
        let servers = test_servers(&crate::root());
        let found = |store: &str| servers.iter().find(|server| server.store == store);
        assert!(found("postgres").is_some_and(|server| server.program == "postgres"));
        assert!(found("etcd").is_some_and(|server| server.package == "etcd-server"));
        assert!(found("sqlite").is_none());
    }

    #[test]
    fn a_missing_program_is_noticed() {
        assert!(succeeds(&["cargo", "--version"]));
        assert!(!succeeds(&["cargo", "no-such-command"]));
        assert!(!succeeds(&["a-program-that-nobody-has", "--version"]));
    }
}
