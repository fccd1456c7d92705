use super::*;

#[test]
fn every_target_has_a_folder_of_kept_inputs_and_every_folder_a_target() {
    let corpus = crate::root().join("crates/primacy-fuzz/corpus");
    let folders =
        fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut folders: Vec<String> = folders.collect();
    folders.sort();
    let mut names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    names.sort_unstable();
    assert_eq!(folders, names);
}

#[test]
fn the_kept_inputs_are_small() {
    const BYTES_MAX: u64 = 512 * 1024;
    let corpus = crate::root().join("crates/primacy-fuzz/corpus");
    let mut bytes = 0;
    for folder in fs::read_dir(corpus).unwrap() {
        for input in fs::read_dir(folder.unwrap().path()).unwrap() {
            bytes += input.unwrap().metadata().unwrap().len();
        }
    }
    assert!(
        bytes <= BYTES_MAX,
        "{bytes} bytes are kept, and {BYTES_MAX} are a corpus; see cargo xtask fuzz --keep"
    );
}

#[test]
fn every_target_names_a_test() {
    let sources = ["primacy", "primacy-stores", "primacy-etcd-server", "primacy-cli"];
    for target in TARGETS {
        let module = target.test.rsplit_once("::").unwrap().0.replace("::", "/");
        let held = format!("primacy_fuzz::hold(\"{}\"", target.name);
        let text = |package: &&str| {
            fs::read_to_string(
                crate::root().join("crates").join(package).join("src").join(&module).with_extension("rs"),
            )
        };
        let found = sources.iter().filter_map(|package| text(package).ok()).any(|text| text.contains(&held));
        assert!(found, "{}: there is no {module}.rs with {held}", target.name);
    }
}

#[test]
fn the_command_line_is_read() {
    let asked = |arguments: &[&str]| Asked::parse(arguments);
    let all = Asked { seconds: SECONDS, keep: false, targets: Vec::new() };
    assert_eq!(asked(&[]), Ok(all));
    let some = Asked { seconds: 5, keep: false, targets: vec!["frames".to_owned()] };
    assert_eq!(asked(&["--seconds", "5", "frames"]), Ok(some));
    assert!(asked(&["--keep"]).is_ok_and(|asked| asked.keep));
    for wrong in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "x"], &["--fast"]] {
        assert!(asked(wrong).is_err(), "{wrong:?}");
    }
    assert!(chosen(&["nothing".to_owned()]).is_err_and(|error| error.contains("frames")));
}

#[test]
fn what_libfuzzer_says_is_read() {
    let output = "#23\tINITED cov: 981 ft: 1021 corp: 23/1Kb exec/s: 0 rss: 38Mb\n\
                  #4096\tpulse  cov: 1585 ft: 7340 corp: 838/52Kb lim: 4096 exec/s: 35217 rss: 39Mb\n";
    let ended = format!("{output}Done 5000 runs in 1 second(s)\nstat::number_of_executed_units: 5000\n");
    let run = Run::read("frames", &ended, Duration::from_secs(1));
    assert_eq!((run.executions, run.edges, run.features), (5_000, 1_585, 7_340));
    assert_eq!(Run::read("frames", output, Duration::ZERO).executions, 4_096);
    assert_eq!(Run::read("frames", "running 0 tests\n", Duration::ZERO).executions, 0);
}

#[test]
fn test_binaries_are_told_apart() {
    let line = |kind: &str, file: &str| {
        format!(
            r#"{{"reason":"compiler-artifact","target":{{"kind":["{kind}"]}},"executable":"/t/{file}","fresh":true}}"#
        )
    };
    let none = r#"{"reason":"compiler-artifact","executable":null}"#;
    let messages =
        [line("lib", "primacy-01"), line("bin", "primacy-02"), line("lib", "primacy_stores-03"), none.into()];
    let binaries = binaries(&messages.join("\n"));
    assert_eq!(binaries["primacy"], Path::new("/t/primacy-01"));
    assert_eq!(binaries["primacy_cli"], Path::new("/t/primacy-02"));
    assert_eq!(binaries["primacy_stores"], Path::new("/t/primacy_stores-03"));
    assert_eq!(binaries.len(), 3);
}

#[test]
fn the_table_shows_what_failed() {
    let run =
        |target, failure| Run { target, executions: 7, edges: 2, features: 3, took: Duration::ZERO, failure };
    let table = table(&[run("frames", None), run("settings", Some("it broke".to_owned()))]);
    assert!(table.contains("| frames | 7 | 2 | 3 | 0 s | ok |"), "{table}");
    assert!(
        table.contains("| settings | 7 | 2 | 3 | 0 s | FAILED |") && table.ends_with("settings: it broke\n")
    );
}
