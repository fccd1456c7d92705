//! Files and directories of this user and of others.

use std::io::Write as _;

use super::*;

#[test]
fn a_group_has_a_name_or_a_number() {
    assert_eq!(number_of("root:x:0:\nops:x:27:a,b\n", "ops"), Some(27));
    assert_eq!(number_of("root:x:0:\nops:x:27:a,b\n", "op"), None);
    assert_eq!(Sharing::with_group("4711"), Some(Sharing { group: Some(4711) }));
    assert_eq!(Sharing::with_group("no such group"), None);
}

#[cfg(target_os = "linux")]
#[test]
fn only_a_regular_file_is_opened_in_a_state_directory_and_nothing_is_waited_for() {
    let dir = std::env::temp_dir().join(format!("primacy-state-dir-{}", std::process::id()));
    fs::create_dir_all(dir.join("directory")).unwrap();
    fs::write(dir.join("file"), "text").unwrap();
    fs::set_permissions(dir.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink("file", dir.join("symbolic link")).unwrap();
    let _listens = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    let pipe = dir.join("named pipe");
    rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert_eq!(read_in_state_dir(&dir.join("file"), 0o022).unwrap(), "text");
    let missing = read_in_state_dir(&dir.join("none"), 0o022).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    for what in ["directory", "named pipe", "socket", "symbolic link"] {
        for writes in [false, true] {
            let mut options = OpenOptions::new();
            let opened = open_in_state_dir(&dir.join(what), options.read(true).write(writes));
            let why = opened.unwrap_err().to_string();
            assert!(why.starts_with(&format!("it is a {what}, ")), "{why}");
        }
    }
    fs::remove_dir_all(&dir).unwrap();
}

/// Not by a macro: what a test prints is not shown when it passes.
fn not_run() {
    let _ = io::Write::write_all(&mut io::stderr(), b"NOT RUN: files of another user, which take root\n");
}

#[test]
fn what_is_made_is_for_this_user_and_what_is_open_is_closed() {
    let directory = std::env::temp_dir().join(format!("primacy-ownership-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("file");
    let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
    let alone = Sharing::default();
    alone.make(&path).unwrap();
    assert_eq!(mode(), 0o600);
    for (before, after) in [(0o644, 0o600), (0o666, 0o600), (0o664, 0o600), (0o660, 0o600), (0o400, 0o400)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        assert_eq!(alone.tighten(&path, &fs::metadata(&path).unwrap()).unwrap(), before != after);
        assert_eq!(mode(), after, "{before:o}");
    }
    let shared = Sharing { group: Some(fs::metadata(&path).unwrap().gid()) };
    // A file that was closed to the group is open to it again when it is named.
    for (before, is_taken) in [(0o664, true), (0o600, false)] {
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        assert_eq!(shared.tighten(&path, &fs::metadata(&path).unwrap()).unwrap(), is_taken);
        assert_eq!(mode(), 0o660);
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        assert_eq!(shared.tighten_open(&File::open(&path).unwrap()).unwrap(), is_taken);
        assert_eq!(mode(), 0o660);
    }
    // A directory that was made for a group stays so, whether it is named or not.
    for (before, after) in [(0o2770, 0o2770), (0o2775, 0o2770), (0o770, 0o700)] {
        fs::set_permissions(&directory, fs::Permissions::from_mode(before)).unwrap();
        alone.tighten(&directory, &fs::metadata(&directory).unwrap()).unwrap();
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o7777, after, "{before:o}");
    }
    alone.check(&path, &fs::metadata(&path).unwrap()).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(alone.check(&path, &fs::metadata(&path).unwrap()).unwrap_err().contains("everybody may write"));
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777)).unwrap();
    alone.check(&path, &fs::metadata(&path).unwrap()).unwrap();
    if rustix::process::geteuid().is_root() {
        // Another user's file in a directory where every user may make one.
        rustix::fs::chown(&path, Some(rustix::fs::Uid::from_raw(65534)), None).unwrap();
        let why = alone.check(&path, &fs::metadata(&path).unwrap()).unwrap_err();
        assert!(why.contains("belongs to the user nobody (65534)"), "{why}");
        // In that user's own directory, root accepts that user's file.
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        alone.check(&path, &fs::metadata(&path).unwrap()).unwrap();
    } else {
        not_run();
    }
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn root_uses_what_one_other_user_alone_could_have_put_there() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("NOT RUN: what root uses, which takes root");
    }
    let base = std::env::temp_dir().join(format!("primacy-root-uses-{}", std::process::id()));
    let make = |name: &str, mode: u32, user: u32| {
        let path = base.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&path, Some(user), None).unwrap();
    };
    for (name, mode, user) in [
        ("home", 0o755, 60001),
        ("home/st", 0o755, 60001),
        ("home/root", 0o700, 0),
        ("home/third", 0o755, 60002),
        ("home/third/root", 0o755, 0),
        ("sticky", 0o1777, 0),
        ("sticky/root", 0o700, 0),
        ("sticky/root/st", 0o700, 60001),
        ("sticky/st", 0o755, 60001),
        ("sticky/st/deep", 0o755, 60001),
        ("sticky/st/root", 0o700, 0),
        ("open", 0o777, 0),
        ("open/root", 0o700, 0),
        ("open/root/deep", 0o700, 0),
        ("all", 0o777, 0),
    ] {
        make(name, mode, user);
    }
    std::os::unix::fs::symlink("sticky/st", base.join("link")).unwrap();
    let alone = Sharing::default();
    for used in ["home", "home/st", "home/root", "sticky/root", "sticky/root/st", "none"] {
        check_state_dir(&base.join(used)).unwrap();
    }
    for (refused, why) in [
        ("home/third", "belongs to the user 60002"),
        ("home/third/root", "belongs to the user 600"),
        ("sticky/st", "belongs to the user 60001"),
        ("sticky/st/deep", "belongs to the user 60001"),
        ("sticky/st/root", "everybody may write to the directory"),
        ("link", "belongs to the user 60001"),
        ("open/root", "everybody may write to the directory"),
        ("open/root/deep", "everybody may write to the directory"),
    ] {
        let path = base.join(refused);
        for said in [
            check_state_dir(&path).unwrap_err(),
            alone.check(&path, &fs::metadata(&path).unwrap()).unwrap_err(),
        ] {
            assert!(said.contains(why), "{refused}: {said}");
        }
    }
    assert!(check_state_dir(&base.join("all")).unwrap_err().contains("chmod o-w"));
    // A file of that user which a third one could lock or write to.
    let file = base.join("home/file");
    fs::write(&file, "").unwrap();
    std::os::unix::fs::chown(&file, Some(60001), None).unwrap();
    for (mode, why) in [(0o600, None), (0o640, None), (0o644, Some("chmod o-r")), (0o666, Some("chmod o-w"))]
    {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let refused = alone.check(&file, &fs::metadata(&file).unwrap()).err();
        assert_eq!(refused.is_some(), why.is_some(), "{mode:o}: {refused:?}");
        assert!(why.is_none_or(|why| refused.unwrap().contains(why)), "{mode:o}");
    }
    fs::remove_dir_all(&base).unwrap();
}

#[test]
fn another_users_pipe_is_not_waited_for_and_one_of_this_users_is_read() {
    let (reads, mut writes) = io::pipe().unwrap();
    writes.write_all(b"text").unwrap();
    drop(writes);
    let own = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reads));
    assert_eq!(read_trusted(Path::new(&own), 0o022).unwrap(), "text");
    let why = read_trusted(Path::new("/dev/zero"), 0).unwrap_err().to_string();
    assert!(why.contains("longer than 1048576 bytes"), "a device has no end: {why}");
    if !rustix::process::geteuid().is_root() {
        return not_run();
    }
    let theirs = std::env::temp_dir().join(format!("primacy-pipe-{}", std::process::id()));
    rustix::fs::mkfifoat(CWD, &theirs, Mode::from_raw_mode(0o600)).unwrap();
    rustix::fs::chown(&theirs, Some(rustix::fs::Uid::from_raw(65534)), None).unwrap();
    let why = read_trusted(&theirs, 0o022).unwrap_err().to_string();
    assert!(why.contains("belongs to the user nobody (65534)"), "{why}");
    fs::remove_file(theirs).unwrap();
}

#[test]
fn neither_a_file_nor_a_link_of_another_user_is_relied_on() {
    let directory = std::env::temp_dir().join(format!("primacy-trusted-{}", std::process::id()));
    fs::create_dir_all(directory.join("own/deep")).unwrap();
    let (file, link) = (directory.join("own/deep/file"), directory.join("open/link"));
    fs::create_dir_all(directory.join("open")).unwrap();
    fs::write(&file, "text").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(directory.join("open"), fs::Permissions::from_mode(0o1777)).unwrap();
    let alone = Sharing::default();
    assert_eq!(read_trusted(&file, 0o022).unwrap(), "text");
    let why = read_trusted(&file, 0o077).unwrap_err().to_string();
    assert!(why.contains("others may read it (mode 644); chmod 600"), "{why}");
    // A link to a directory, in the middle of the path, which another link leads through.
    std::os::unix::fs::symlink("../own", &link).unwrap();
    std::os::unix::fs::symlink("open/link/deep", directory.join("way")).unwrap();
    let ways = [link.join("deep/file"), directory.join("way/file"), directory.join("own/../way/file")];
    for way in &ways {
        alone.check_links(way).unwrap();
        assert_eq!(read_trusted(way, 0o022).unwrap(), "text");
    }
    if rustix::process::geteuid().is_root() {
        let user = Some(rustix::fs::Uid::from_raw(65534));
        rustix::fs::chownat(CWD, &link, user, None, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
        for way in &ways {
            let why = read_trusted(way, 0).unwrap_err().to_string();
            assert!(why.contains("symbolic link of the user nobody") && why.contains("../own"), "{why}");
        }
        alone.check_links(&file).unwrap();
        // In its owner's own directory, the link is trusted.
        fs::set_permissions(directory.join("open"), fs::Permissions::from_mode(0o755)).unwrap();
        alone.check_links(&ways[0]).unwrap();
        rustix::fs::chown(&file, user, None).unwrap();
        let why = read_trusted(&file, 0).unwrap_err().to_string();
        assert!(why.contains("belongs to the user nobody (65534)"), "{why}");
    } else {
        not_run();
    }
    fs::remove_dir_all(&directory).unwrap();
}
