//! Objects of other users where the table should be, and missing rights.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::mpsc;

use primacy_stores::{OpenError, ReadError, error_text, open, open_existing};

use super::server;
use crate::registers::{PATIENCE, refusal, set};

/// More than is read for one request, and less than is on the way when the connection is closed.
const TAKEN_MAX: usize = 16 * 1024 * 1024;

/// The statement of the page.
const CREATE: &str = "CREATE TABLE app.primacy_record(election VARBINARY(200) NOT NULL PRIMARY KEY, version BIGINT NOT NULL, \
                      confirmations BIGINT NOT NULL, record MEDIUMBLOB NOT NULL)";

#[tokio::test]
async fn a_table_of_another_shape_is_refused_and_left_as_it_is() {
    let Some(server) = server(&[]).await else { return };
    let ours = format!("{CREATE} ENGINE = InnoDB");
    let others = [
        ("CREATE TABLE app.primacy_record(id INT PRIMARY KEY)".to_owned(), "other columns"),
        (format!("{CREATE} ENGINE = MyISAM"), "InnoDB"),
        (ours.replace("VARBINARY(200)", "VARCHAR(200)"), "other columns"),
        (format!("{ours}; ALTER TABLE app.primacy_record ADD UNIQUE KEY one (version)"), "other columns"),
        (
            ours.replace("NOT NULL PRIMARY KEY", "NOT NULL")
                .replace("MEDIUMBLOB NOT NULL)", "MEDIUMBLOB NOT NULL, PRIMARY KEY (election(3)))"),
            "whole name",
        ),
        (format!("{ours}; ALTER TABLE app.primacy_record ADD CHECK (version > 7)"), "constraints"),
        (
            format!(
                "{}; CREATE VIEW app.primacy_record AS SELECT * FROM app.real_record",
                ours.replace("primacy_record", "real_record")
            ),
            "no ordinary table",
        ),
    ];
    for (made, said) in others {
        server.run_sql(&made);
        let error = refusal(&server.url()).await;
        assert!(matches!(&error, OpenError::Refused { why } if why.contains(said)), "{made}: {error:?}");
        server.run_sql("DROP VIEW IF EXISTS app.primacy_record; DROP TABLE IF EXISTS app.primacy_record");
    }
    // A trigger is seen by a user who may.
    server.run_sql(&format!(
        "{ours}; GRANT TRIGGER ON app.primacy_record TO app; CREATE TRIGGER app.steal BEFORE UPDATE ON app.primacy_record \
         FOR EACH ROW SET NEW.version = OLD.version"
    ));
    let error = refusal(&server.url()).await;
    assert!(matches!(&error, OpenError::Refused { why } if why.contains("steal")), "{error:?}");
    server.run_sql("DROP TRIGGER app.steal");
    set(&open(&server.url(), "refused").await.unwrap(), None, 1).await.unwrap();
}

#[tokio::test]
async fn the_rights_of_the_page_are_enough_and_a_reader_needs_one() {
    let Some(server) = server(&[]).await else { return };
    server.run_sql(
        "REVOKE ALL ON app.* FROM app; CREATE TABLE app.other(id INT); GRANT SELECT ON app.other TO app; \
         CREATE USER reader IDENTIFIED BY 'pass-of-a-test'",
    );
    let error = refusal(&server.url()).await;
    let has_statement =
        matches!(&error, OpenError::Refused { why } if why.contains("CREATE TABLE") && why.contains("GRANT"));
    assert!(has_statement, "{error:?}");
    server.run_sql(&format!(
        "{CREATE} ENGINE = InnoDB; GRANT SELECT, INSERT, UPDATE ON app.primacy_record TO app; \
         GRANT SELECT ON app.primacy_record TO reader"
    ));
    let register = open(&server.url(), "rights").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    let second = set(&register, Some(&first), 2).await.unwrap();
    assert_eq!(register.read().await.unwrap().unwrap().1, second);
    let reader = open_existing(&server.url().replace("//app:", "//reader:"), "rights").await.unwrap();
    assert_eq!(reader.read().await.unwrap().unwrap().1, second);
    // One that may not write says so.
    let failed = set(&reader, Some(&second), 3).await;
    assert!(failed.is_err_and(|error| error.to_string().contains("grants")));
}

#[tokio::test]
async fn a_table_that_is_dropped_is_made_again_and_no_version_comes_back() {
    let Some(server) = server(&[]).await else { return };
    let register = open(&server.url(), "dropped").await.unwrap();
    let first = set(&register, None, 1).await.unwrap();
    server.run_sql("DROP TABLE app.primacy_record");
    assert_eq!(register.read().await, Ok(None));
    assert!(set(&register, Some(&first), 2).await.is_err());
    let again = set(&register, None, 1).await.unwrap();
    assert_ne!(again, first);
    // What is longer than a record may be is refused, and not read as a whole.
    server.run_sql("UPDATE app.primacy_record SET record = REPEAT('x', 1000000)");
    assert!(matches!(register.read().await, Err(ReadError::Malformed { .. })));
}

/// A server's first packet, by which it proposes `mysql_native_password`.
const GREETING: &[u8] = b"\x49\0\0\0\x0a5.5.5\0\x01\0\0\0abcdefgh\0\xfe\xf7\x2d\x02\0\xff\x81\x15\0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0mysql_native_password\0";

#[tokio::test]
async fn no_answer_of_a_server_is_read_without_a_bound() {
    let table: [(&[u8], &[u8]); 5] = [
        (b"\xff\xff\xff\0", b"x"),
        (b"\xff\xff\x03\0\xff\x15\x04#28000", b"x"),
        // An answer to the login, over and over: there is more to come.
        (GREETING, b"\x02\0\0\x02\x01\x03"),
        // The login is done; then columns without an end, and rows without an end.
        (&[GREETING, b"\x07\0\0\x02\0\0\0\x02\0\0\0\x01\0\0\x01\x01"].concat(), b"\x03\0\0\x02\x02ab"),
        (
            &[GREETING, b"\x07\0\0\x02\0\0\0\x02\0\0\0\x01\0\0\x01\x01\x05\0\0\x02\xfe\0\0\0\0"].concat(),
            b"\x03\0\0\x03\x02ab",
        ),
    ];
    for (beginning, piece) in table {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (counted, count) = mpsc::channel();
        let beginning_is_error = beginning.contains(&b'#');
        let (beginning, piece) = (beginning.to_vec(), piece.repeat((1 << 16) / piece.len()));
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut taken = 0;
                if stream.write_all(&beginning).is_ok() {
                    while taken < 8 * TAKEN_MAX && stream.write_all(&piece).is_ok() {
                        taken += piece.len();
                    }
                }
                let _ = counted.send(taken);
            }
        });
        let opening =
            tokio::time::timeout(PATIENCE, open(&format!("mysql://u:p@127.0.0.1:{port}/d"), "e")).await;
        let error = opening.expect("an open has a bound").expect_err("nothing was answered");
        assert!(error.to_string().chars().count() <= error_text::LENGTH_MAX, "{error}");
        assert!(beginning_is_error || error.to_string().contains("sends more than"), "{error}");
        let taken = count.recv_timeout(PATIENCE).expect("the connection is given up");
        assert!(taken <= TAKEN_MAX, "{taken} {error}");
    }
}
