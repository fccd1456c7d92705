//! Commands, known by name, whose work is done by another daemon or machine. The processes of such work are not
//! descendants of this node, so the work goes on when the command is killed.

use std::ffi::OsString;
use std::path::Path;

/// The commands, each with the program that does its work, and a command that ends that work and succeeds only when it
/// has ended.
const DELEGATING: &[(&str, &str, &str)] = &[
    ("docker", "the Docker daemon", "docker rm --force NAME"),
    ("docker-compose", "the Docker daemon", "docker-compose down"),
    ("nerdctl", "containerd", "nerdctl rm --force NAME"),
    ("ctr", "containerd", "ctr task kill --signal 9 NAME"),
    ("crictl", "the container runtime", "crictl stop --timeout 1 ID"),
    ("podman-remote", "another Podman", "podman-remote rm --force --ignore NAME"),
    ("systemd-run", "systemd", "systemctl stop NAME || ! systemctl is-active --quiet NAME"),
    ("systemctl", "systemd", "systemctl stop NAME || ! systemctl is-active --quiet NAME"),
    ("machinectl", "systemd-machined", "machinectl terminate NAME"),
    ("ssh", "another machine", "ssh HOST 'pkill -KILL -f NAME; ! pgrep -f NAME'"),
    ("kubectl", "Kubernetes", "kubectl delete pod NAME --now --ignore-not-found"),
    ("oc", "OpenShift", "oc delete pod NAME --now --ignore-not-found"),
    ("tmux", "the tmux server", "tmux kill-session -t NAME || ! tmux has-session -t NAME"),
    ("at", "atd", "atrm NUMBER"),
    ("batch", "atd", "atrm NUMBER"),
];

/// Podman does its work itself, unless `--remote` is given.
const PODMAN_REMOTE: (&str, &str, &str) =
    ("podman", "another Podman", "podman --remote rm --force --ignore NAME");

/// Commands that run the command given after their options, each with its options that take a separate word.
const PREFIXES: &[(&str, &[&str])] = &[
    ("env", &["-u", "--unset", "-C", "--chdir"]),
    ("sudo", &["-u", "--user", "-g", "--group", "-C", "-D", "-h", "-p", "-r", "-t", "-T"]),
    ("doas", &["-u", "-C"]),
    ("nice", &["-n", "--adjustment"]),
    ("ionice", &["-c", "--class", "-n", "--classdata"]),
    ("nohup", &[]),
    ("setsid", &[]),
    ("stdbuf", &["-i", "-o", "-e"]),
    ("time", &["-f", "-o"]),
    ("exec", &[]),
];
/// A prefix with one more word before the command.
const PREFIX_WITH_WORD: (&str, &[&str]) = ("timeout", &["-k", "--kill-after", "-s", "--signal"]);

const SHELLS: &[&str] = &["sh", "bash", "dash", "ash", "zsh", "ksh"];

/// Returns a warning for `primacy run`, if the command is known to delegate its work.
pub(crate) fn warning(command: &[OsString]) -> Option<String> {
    let (name, who, stop) = known(command)?;
    Some(format!(
        "{name} has its work done by {who}, which goes on with it when {name} is killed: give a --stop-command that ends the \
         work and fails unless it has ended, as in {stop:?}; without one, another node may start while it goes on"
    ))
}

/// Returns a warning for `primacy fence exec`, which has no stop command.
pub(crate) fn fence_warning(command: &[OsString]) -> Option<String> {
    let (name, who, stop) = known(command)?;
    Some(format!(
        "{name} has its work done by {who}, which goes on with it when {name} is killed, and the lock is let go then: run a script \
         instead that ends what is left of such work before it begins, as in {stop:?}; without that, the next command may run while \
         it goes on"
    ))
}

fn known(command: &[OsString]) -> Option<(&'static str, &'static str, &'static str)> {
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    delegating(&words)
}

fn delegating(words: &[&str]) -> Option<(&'static str, &'static str, &'static str)> {
    let (first, rest) = words.split_first()?;
    let name = Path::new(first).file_name()?.to_str()?;
    if let Some(found) = DELEGATING.iter().find(|(delegating, ..)| *delegating == name) {
        return Some(*found);
    }
    if name == "podman" {
        let is_remote = rest.iter().any(|word| matches!(*word, "--remote" | "-r" | "--remote=true"));
        return is_remote.then_some(PODMAN_REMOTE);
    }
    if SHELLS.contains(&name) {
        // The first command of the shell's script, if it is written plainly.
        let script = rest.iter().skip_while(|word| **word != "-c").nth(1)?;
        return delegating(&script.split_ascii_whitespace().collect::<Vec<_>>());
    }
    let (takes_word, own) = match PREFIXES.iter().find(|(prefix, _)| *prefix == name) {
        Some((_, takes_word)) => (takes_word, 0),
        None if name == PREFIX_WITH_WORD.0 => (&PREFIX_WITH_WORD.1, 1),
        None => return None,
    };
    let mut rest = rest;
    while let Some((word, after)) = rest.split_first() {
        rest = match after {
            [_, after @ ..] if takes_word.contains(word) => after,
            _ if word.starts_with('-') || word.contains('=') => after,
            _ => break,
        };
    }
    delegating(rest.get(own..)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_commands_are_found_behind_plain_prefixes() {
        let found = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            delegating(&words).map(|(name, ..)| name)
        };
        for (line, name) in [
            ("docker run --rm image", "docker"),
            ("/usr/bin/docker compose up", "docker"),
            ("env A=b -u C docker run image", "docker"),
            ("sudo -u app -E nice -n 5 ssh host work", "ssh"),
            ("timeout -k 5 1h kubectl exec pod -- work", "kubectl"),
            ("podman --remote run image", "podman"),
            ("systemd-run --wait work", "systemd-run"),
        ] {
            assert_eq!(found(line), Some(name), "{line}");
        }
        for line in
            ["podman run image", "./work", "env", "sudo -u docker work", "sh work.sh", "", "timeout 5"]
        {
            assert_eq!(found(line), None, "{line}");
        }
        assert_eq!(delegating(&["sh", "-c", "exec docker run image"]).map(|(name, ..)| name), Some("docker"));
        assert_eq!(delegating(&["bash", "-ec", "docker run image"]), None, "not plain");
    }
}
