//! Input that an operator may write, however wrong it is: the URL of a store, the list of peers, times, and
//! the file of settings.

use std::path::Path;

use primacy_fuzz::Draw;

use super::layers::{Source, keys};
use super::location::resolve_url;
use super::*;

#[test]
fn settings() {
    let command = Entry::augment_args(clap::Command::new("entry"));
    primacy_fuzz::hold("settings", move |bytes| {
        let mut draw = Draw::new(bytes);
        let kind = draw.byte();
        let text = String::from_utf8_lossy(draw.rest());
        match kind % 4 {
            0 => url(&text, &mut draw),
            1 => peers(&text),
            2 => time(&text),
            _ => settings_file(&text, &command),
        }
    });
}

/// A URL is taken as it is. One with a password is not taken from the command line, and the password is not
/// shown.
fn url(text: &str, draw: &mut Draw<'_>) {
    let sources = Sources::default();
    if !text.starts_with("env:")
        && let Ok(url) = resolve_url("store", text, &sources)
    {
        assert_eq!(url, text);
    }
    let part = |draw: &mut Draw<'_>| draw.text().replace(['/', '?', '#', '@', ':', '='], "-");
    let (scheme, user, secret, host, path) = (part(draw), part(draw), part(draw), part(draw), part(draw));
    let with_secret = [
        format!("s{scheme}://{user}:{secret}@{host}/{path}"),
        format!("s{scheme}://{user}:{secret}@{host}"),
        format!("s{scheme}://{host}/{path}?password={secret}"),
        format!("s{scheme}://{user}@{host}?{path}&PassWord={secret}"),
    ];
    for url in with_secret {
        let refused = resolve_url("store", &url, &sources).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        // Whatever the secret is, the text is the same.
        let other = resolve_url("store", "s://user:other@host", &sources).unwrap_err();
        assert_eq!(refused.message, other.message);
    }
}

/// A list that is taken has the names and addresses that were given, and is written as it is read.
fn peers(text: &str) {
    let Ok(peers) = text.parse::<Peers>() else { return };
    let entries: Vec<&str> = text.split(',').map(str::trim).collect();
    assert_eq!(peers.len(), entries.len());
    for (node, address) in peers.iter() {
        assert!(entries.contains(&format!("{node}={address}").as_str()));
        let (host, port) = address.rsplit_once(':').unwrap();
        assert!(!host.is_empty() && port.parse::<u16>().unwrap() != 0);
    }
    assert_eq!(peers.to_string().parse(), Ok(peers));
}

/// A time that is taken is written as it is read, to the nanosecond.
fn time(text: &str) {
    let Ok(time) = duration::parse(text) else { return };
    let written = effective::written(time);
    assert_eq!(duration::parse(&written), Ok(time), "{text:?} is written as {written}");
}

/// Every setting read from a file is a known key, with a value that the command line would take, at the
/// position where the file has it; and each problem has its position.
fn settings_file(text: &str, command: &clap::Command) {
    let keys = keys(command);
    let path = Path::new("node.toml");
    let (found, problems) = file::parse(path, text, &keys);
    let lines = text.matches('\n').count() + 1;
    for (name, given) in &found {
        let key = keys.iter().find(|key| key.name == name).unwrap();
        assert_ne!(name, "config");
        assert_eq!(key.check(&given.text), Ok(()));
        let Source::File { path: told, line, column } = &given.source else { panic!("{:?}", given.source) };
        assert!(told == path && (1..=lines).contains(line) && *column >= 1);
    }
    let mut names: Vec<&String> = found.iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), found.len(), "a setting was found twice");
    assert!(problems.iter().all(|problem| problem.starts_with("node.toml:")), "{problems:?}");
}
