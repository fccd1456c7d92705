//! What the tests need beside Rust, and how it is installed.

use std::process::{Command, Stdio};

/// Something that must be there before a step can run.
struct Need {
    /// Succeeds where it is there.
    probe: &'static [&'static str],
    why: &'static str,
    /// Installs it, where this machine has the program to do so.
    install: &'static [&'static [&'static str]],
}

/// The table: a row for each need. Servers that live tests want will be rows of it too.
const NEEDS: &[Need] = &[
    Need {
        // Rust links with it too, unless another linker is configured.
        probe: &["cc", "--version"],
        why: "SQLite is compiled from C",
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "gcc", "libc6-dev"],
        ],
    },
    Need {
        probe: &["curl", "--version"],
        why: "the example of a fenced service is tried with it",
        install: &[
            &["apt-get", "update"],
            &["apt-get", "install", "--yes", "--no-install-recommends", "curl"],
        ],
    },
    Need {
        probe: &["cargo", "fmt", "--version"],
        why: "the format is checked",
        install: &[&["rustup", "component", "add", "rustfmt"]],
    },
    Need {
        probe: &["cargo", "clippy", "--version"],
        why: "the lints are checked",
        install: &[&["rustup", "component", "add", "clippy"]],
    },
];

/// Installs what is missing; tells what could not be.
pub(crate) fn meet() -> Result<String, String> {
    let mut installed = Vec::new();
    let mut missing = Vec::new();
    for need in NEEDS.iter().filter(|need| !succeeds(need.probe)) {
        let name = need.probe[..need.probe.len() - 1].join(" ");
        let runs = need.install.iter().all(|command| {
            println!("  {name} is missing ({}): {}", need.why, command.join(" "));
            let status = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        });
        if runs && succeeds(need.probe) {
            installed.push(name);
        } else {
            let by_hand: Vec<String> = need.install.iter().map(|command| command.join(" ")).collect();
            missing.push(format!(
                "{name} is missing ({}); install it, for example: {}",
                need.why,
                by_hand.join(" && ")
            ));
        }
    }
    match (missing.is_empty(), installed.is_empty()) {
        (false, _) => Err(missing.join("\n")),
        (true, true) => Ok("all there".to_owned()),
        (true, false) => Ok(format!("installed {}", installed.join(", "))),
    }
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
    fn a_missing_program_is_noticed() {
        assert!(succeeds(&["cargo", "--version"]));
        assert!(!succeeds(&["cargo", "no-such-command"]));
        assert!(!succeeds(&["a-program-that-nobody-has", "--version"]));
    }
}
