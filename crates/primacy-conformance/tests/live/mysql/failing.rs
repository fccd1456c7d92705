//! Faults of a server, and what its elections report then.

use std::sync::Arc;

use primacy_conformance::live::mysql::{PASSWORD, url_at};
use primacy_conformance::live::proxy::Proxy;
use primacy_stores::{OpenError, ReadError, SetError, Verdict, examine, open};
use rustix::process::Signal;

use super::server;
use crate::registers::{PATIENCE, read_in_the_end, record, refusal, set};

#[tokio::test]
async fn a_server_that_was_killed_has_what_it_acknowledged_and_is_found_again() {
    let Some(mut server) = server(&[]).await else { return };
    let register = open(&server.url(), "killed").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    server.kill();
    let failed = set(&register, Some(&first), 2).await;
    assert!(matches!(failed, Err(SetError::Unavailable { .. } | SetError::Unknown { .. })), "{failed:?}");
    // Now it is known that nobody listens.
    let failed = set(&register, Some(&first), 2).await;
    assert!(matches!(failed, Err(SetError::Unavailable { .. })), "{failed:?}");
    assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
    assert!(matches!(refusal(&server.url()).await, OpenError::Unavailable { .. }));
    server.restart().await;
    assert_eq!(read_in_the_end(&register).await, Some((record(1), first.clone())));
    let second = set(&register, Some(&first), 2).await.unwrap();
    // A handle that waits for a change learns it again.
    let other = open(&server.url(), "killed").await.unwrap();
    assert_eq!(other.read().await.unwrap().unwrap().1, second);
    let third = set(&register, Some(&second), 3).await.unwrap();
    tokio::time::timeout(PATIENCE, other.changed()).await.expect("it is noticed");
    assert_eq!(other.read().await.unwrap().unwrap().1, third);
}

/// A server that is killed at any moment of a write keeps what it acknowledged, and nothing comes back that was replaced.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_server_that_is_killed_again_and_again_no_acknowledged_write_is_lost() {
    let Some(mut server) = server(&[]).await else { return };
    let register = open(&server.url(), "again").await.unwrap();
    let mut version = set(&register, None, 1).await.unwrap();
    let mut token = 1;
    for round in 0..5 {
        let writing = tokio::spawn({
            let (register, mut version) = (Arc::clone(&register), version.clone());
            async move {
                let mut acknowledged = token;
                loop {
                    match set(&register, Some(&version), acknowledged + 1).await {
                        Ok(written) => (version, acknowledged) = (written, acknowledged + 1),
                        Err(error) => return (acknowledged, error),
                    }
                }
            }
        });
        tokio::time::sleep(std::time::Duration::from_millis(150 + 37 * round)).await;
        server.kill();
        let (acknowledged, error) = writing.await.unwrap();
        assert!(!matches!(error, SetError::Conflict), "nobody else writes");
        server.restart().await;
        let (found, now) = read_in_the_end(&register).await.unwrap();
        let may_be = |token| found == record(token);
        let is_unknown = matches!(error, SetError::Unknown { .. });
        assert!(
            may_be(acknowledged) || is_unknown && may_be(acknowledged + 1),
            "{found:?}: {acknowledged}, {error}"
        );
        assert!(acknowledged > token, "it has written");
        (token, version) = (found.token.0, now);
    }
}

#[tokio::test]
async fn of_a_server_that_stands_still_a_write_is_unknown_and_lands_once_or_never() {
    let Some(server) = server(&[]).await else { return };
    let register = open(&server.url(), "paused").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    server.server().signal(Signal::STOP);
    let failed = set(&register, Some(&first), 2).await;
    assert!(matches!(failed, Err(SetError::Unknown { .. })), "it was sent: {failed:?}");
    // The kernel takes the connection; no server answers on it.
    let failed = set(&register, Some(&first), 3).await;
    assert!(matches!(failed, Err(SetError::Unavailable { .. })), "nothing was sent: {failed:?}");
    assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
    server.server().signal(Signal::CONT);
    let (found, version) = read_in_the_end(&register).await.unwrap();
    let is_new = found == record(2) && version != first;
    assert!(is_new || (found == record(1) && version == first), "{found:?}");
    set(&register, Some(&version), 4).await.unwrap();
    assert_eq!(register.read().await.unwrap().unwrap().0, record(4));
}

#[tokio::test]
async fn a_write_whose_reply_is_lost_is_unknown_and_the_next_read_is_durable() {
    let Some(server) = server(&[]).await else { return };
    let proxy = Proxy::start(server.address());
    let register = open(&url_at(proxy.address()), "cut").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    let dropped = proxy.dropped();
    proxy.drop_replies();
    let writing = tokio::spawn({
        let (register, first) = (Arc::clone(&register), first.clone());
        async move { set(&register, Some(&first), 2).await }
    });
    proxy.until_dropped(dropped).await;
    proxy.refuse();
    let failed = writing.await.unwrap();
    assert!(matches!(failed, Err(SetError::Unknown { .. })), "{failed:?}");
    let failed = set(&register, Some(&first), 3).await;
    assert!(matches!(failed, Err(SetError::Unavailable { .. })), "no connection: {failed:?}");
    let confirmations =
        || server.run_sql("SELECT confirmations FROM app.primacy_record WHERE election = 'cut'").remove(0);
    assert_eq!(confirmations(), "0");
    proxy.pass();
    let (found, version) = read_in_the_end(&register).await.unwrap();
    assert_eq!(found, record(2), "the server had done it");
    assert_eq!(confirmations(), "1", "the read wrote, and so it was on disk with what it found");
    assert_ne!(version, first);
    register.read().await.unwrap();
    assert_eq!(confirmations(), "1", "once is enough");
    assert_eq!(set(&register, Some(&first), 2).await, Err(SetError::Conflict), "a repetition is refused");
}

#[tokio::test]
async fn a_connection_that_is_cut_or_killed_while_it_is_idle_costs_no_request() {
    let Some(server) = server(&[]).await else { return };
    let proxy = Proxy::start(server.address());
    let register = open(&url_at(proxy.address()), "idle").await.unwrap();
    let mut version = set(&register, None, 1).await.unwrap();
    for token in 2..5 {
        if token % 2 == 0 {
            proxy.cut();
        } else {
            let ids = server.run_sql("SELECT id FROM information_schema.processlist WHERE user = 'app'");
            ids.iter().for_each(|id| drop(server.run_sql(&format!("KILL CONNECTION {id}"))));
        }
        // Until the end of the connection has arrived here.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        version = set(&register, Some(&version), token).await.unwrap();
    }
}

#[tokio::test]
async fn a_silent_server_in_front_keeps_no_request_from_the_one_behind_it() {
    let Some(server) = server(&[]).await else { return };
    // The kernel accepts connections for it, and no process answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mysql://app:{PASSWORD}@{},{}/app", silent.local_addr().unwrap(), server.address());
    let register = open(&url, "silent").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    let ids = server.run_sql("SELECT id FROM information_schema.processlist WHERE user = 'app'");
    ids.iter().for_each(|id| drop(server.run_sql(&format!("KILL CONNECTION {id}"))));
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    set(&register, Some(&first), 2).await.unwrap();
}

#[tokio::test]
async fn a_row_that_another_session_keeps_locked_is_not_written_and_others_are() {
    let Some(server) = server(&[]).await else { return };
    let register = open(&server.url(), "locked").await.unwrap();
    let other = open(&server.url(), "free").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    let mut session = server.session(
        "START TRANSACTION; SELECT version FROM app.primacy_record WHERE election = 'locked' FOR UPDATE;",
    );
    let locks = "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_rows_locked > 0";
    // InnoDB renews this table only when it was not read for 100 ms.
    while server.run_sql(locks) == ["0"] {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    let (failed, written) = tokio::join!(set(&register, Some(&first), 2), set(&other, None, 1));
    assert!(matches!(&failed, Err(SetError::Unavailable { why }) if why.contains("locked")), "{failed:?}");
    assert!(written.is_ok(), "{written:?}");
    assert_eq!(register.read().await, Ok(Some((record(1), first.clone()))), "a read does not wait");
    drop(session.stdin.take());
    session.wait().unwrap();
    set(&register, Some(&first), 2).await.unwrap();
}

#[tokio::test]
async fn a_server_that_becomes_read_only_is_neither_read_nor_written() {
    let Some(server) = server(&[]).await else { return };
    let register = open(&server.url(), "demoted").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    // A user with every right, whose writes such a server takes.
    let root = open(&format!("mysql://root@{}/app", server.address()), "demoted").await.unwrap();
    let absent = open(&format!("mysql://root@{}/app", server.address()), "absent").await.unwrap();
    root.read().await.unwrap();
    server.run_sql("SET GLOBAL read_only = 1");
    for (register, expect) in [(&root, Some(&first)), (&absent, None)] {
        let failed = set(register, expect, 2).await;
        assert!(matches!(failed, Err(SetError::Unavailable { .. })), "{failed:?}");
        assert!(matches!(register.read().await, Err(ReadError::Unavailable { .. })));
    }
    let failed = register.read().await;
    assert!(
        matches!(&failed, Err(ReadError::Unavailable { why }) if why.contains("read-only")),
        "{failed:?}"
    );
    let failed = set(&register, Some(&first), 2).await;
    assert!(matches!(failed, Err(SetError::Unavailable { .. })), "{failed:?}");
    let error = refusal(&server.url()).await;
    assert!(matches!(&error, OpenError::Unavailable { why } if why.contains("read_only")), "{error:?}");
    server.run_sql("SET GLOBAL read_only = 0");
    assert_eq!(read_in_the_end(&register).await, Some((record(1), first)));
}

#[tokio::test]
async fn the_defaults_of_a_server_do_not_change_what_is_promised() {
    let settings = [
        "--autocommit=0",
        "--transaction-isolation=READ-UNCOMMITTED",
        "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES",
        "--completion-type=CHAIN",
        "--init-connect=SET sql_mode = ''",
        "--character-set-server=ucs2",
    ];
    let Some(server) = server(&settings).await else { return };
    let register = open(&server.url(), "é 'quoted' \"name\"\\").await.unwrap();
    let other = open(&server.url(), "é 'quoted' \"name\"\\").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    assert_eq!(other.read().await, Ok(Some((record(1), first.clone()))));
    assert_eq!(set(&other, None, 2).await, Err(SetError::Conflict));
    let second = set(&other, Some(&first), 2).await.unwrap();
    assert_eq!(set(&register, Some(&first), 3).await, Err(SetError::Conflict));
    assert_eq!(register.read().await, Ok(Some((record(2), second))));
    // A collation would take these for the same.
    for alike in ["name", "Name", "name ", "nâme"] {
        assert_eq!(open(&server.url(), alike).await.unwrap().read().await, Ok(None), "{alike:?}");
        set(&open(&server.url(), alike).await.unwrap(), None, 1).await.unwrap();
    }
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_shown() {
    let Some(server) = server(&[]).await else { return };
    let address = server.address();
    for login in ["app:wrong-secret", "app", "nobody:wrong-secret"] {
        let error = refusal(&format!("mysql://{login}@{address}/app")).await;
        assert!(matches!(error, OpenError::Refused { .. }), "{error:?}");
        let told = error.to_string();
        assert!(told.contains("MYSQL_PWD") && !told.contains("wrong-secret"), "{told}");
    }
    let error = refusal(&format!("mysql://app:{PASSWORD}@{address}/other")).await;
    assert!(matches!(error, OpenError::Refused { .. }) && !error.to_string().contains(PASSWORD), "{error}");
    let file = server.ground().at("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    // The directory is the server's; the file is trusted where it cannot be replaced.
    let kept = std::env::temp_dir().join(format!("primacy-mysql-live-password-{}", std::process::id()));
    std::fs::rename(&file, &kept).unwrap();
    let opened = open(&format!("mysql://app@{address}/app?password-file={}", kept.display()), "file").await;
    std::fs::remove_file(&kept).unwrap();
    opened.unwrap();
}

#[tokio::test]
async fn with_tls_the_certificate_is_verified() {
    let files = primacy_conformance::live::Ground::new("mysql-tls");
    let signed =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (cert, key, other) = (files.at("cert.pem"), files.at("key.pem"), files.at("other.pem"));
    std::fs::write(&cert, signed.cert.pem()).unwrap();
    std::fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(&other, stranger.cert.pem()).unwrap();
    let [cert_setting, key_setting] =
        [("ssl-cert", &cert), ("ssl-key", &key)].map(|(name, file)| format!("--{name}={}", file.display()));
    let Some(server) = server(&[&cert_setting, &key_setting, "--require-secure-transport=ON"]).await else {
        return;
    };
    let with = |setting: String| format!("{}?{setting}", server.url());
    let register = open(&with(format!("ca={}", cert.display())), "tls").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    assert_eq!(register.read().await, Ok(Some((record(1), first))));
    let error = refusal(&with(format!("ca={}", other.display()))).await;
    assert!(matches!(&error, OpenError::Refused { why } if why.contains("TLS")), "{error:?}");
    // Without TLS, this server takes no login.
    let error = refusal(&server.url()).await;
    assert!(!error.to_string().contains(PASSWORD), "{error}");
    let Some(plain) = super::server(&[]).await else { return };
    let error = refusal(&format!("{}?tls=on", plain.url())).await;
    assert!(matches!(&error, OpenError::Refused { why } if why.contains("no TLS")), "{error:?}");
}

#[tokio::test]
async fn the_doctor_finds_a_server_that_does_not_flush() {
    let Some(server) = server(&[]).await else { return };
    let verdict = async || {
        let checks = examine(&server.url()).await.unwrap();
        let flushes = checks.iter().find(|check| check.name.contains("survives a crash")).unwrap();
        (flushes.verdict, flushes.found.clone())
    };
    assert_eq!(verdict().await.0, Verdict::Pass);
    server.run_sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    let (found, why) = verdict().await;
    assert!(found == Verdict::Fail && why.contains("innodb_flush_log_at_trx_commit is 2"), "{why}");
    // It has written nothing, and made no table.
    assert!(server.run_sql("SHOW TABLES FROM app").is_empty());
}
