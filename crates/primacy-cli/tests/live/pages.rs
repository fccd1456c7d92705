//! The documentation pages of the stores: every command on them is run as printed, in a shell, and prints the output
//! that the page shows.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use primacy_conformance::live::etcd::Etcd;
use primacy_conformance::live::kubernetes::ApiServer;
use primacy_conformance::live::moto::Moto;
use primacy_conformance::live::mysql::MariaDb;
use primacy_conformance::live::postgres::{self, Postgres, SUPERUSER};
use primacy_conformance::live::program;

use primacy_testbed::started;
use primacy_testbed::{PATIENCE, Place, ProcessOutput, primacy};

/// The fences of what is run: commands, and statements of an administrator.
const RUN: &[&str] = &["sh", "sql"];

/// The other fences, and why nothing of them is run here. Any other one is an error, so that no command is left out in silence.
const NOT_RUN: &[(&str, &str)] = &[
    ("text", "what a command prints, which is compared; or a layout"),
    ("rust", "a part of a program; the examples are whole ones, and are run"),
    ("yaml", "a manifest: `a_pod_does_what_its_manifest_allows_and_asks_for_no_less` runs its pods"),
];

/// The mark for arbitrary text in the expected output of a command.
const ANYTHING: char = '…';

/// Reads the names of files with commands, and runs each in this one shell, as a terminal would: with job control, and with
/// everything that is printed in one stream. What ends it gets nothing to read, and neither do the commands.
const TERMINAL: &str = r#"set -m; exec 9<&0 </dev/null 2>&1
while read -r commands <&9; do . "$commands"; echo "$commands: exit code $?"; done"#;

/// The interval at which the output is read.
const POLL: Duration = Duration::from_millis(5);

/// A block of code on a page.
struct Block {
    section: String,
    fence: String,
    text: String,
}

/// A page of `docs/stores`.
pub(crate) struct Page {
    name: &'static str,
    text: String,
    blocks: Vec<Block>,
    taken: RefCell<BTreeSet<usize>>,
}

impl Page {
    pub(crate) fn read(name: &'static str) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/stores/{name}.md"));
        let text = std::fs::read_to_string(path).unwrap();
        let blocks = blocks(&text);
        for Block { section, fence, .. } in &blocks {
            let known = RUN.contains(&fence.as_str()) || NOT_RUN.iter().any(|(other, _)| other == fence);
            assert!(known, "{name}.md, {section}: a block `{fence}` is neither run nor said to be none");
        }
        Self { name, text, blocks, taken: RefCell::default() }
    }

    /// Returns the blocks of a section with this fence; each with its output, as the next block has it.
    pub(crate) fn take(&self, section: &str, fence: &str) -> Vec<(&str, Vec<&str>)> {
        let mut taken = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            if block.section != section || block.fence != fence {
                continue;
            }
            self.taken.borrow_mut().insert(index);
            let next = self.blocks.get(index + 1);
            let prints = next.filter(|next| next.section == section && next.fence == "text");
            let lines = prints.map(|prints| prints.text.lines().collect()).unwrap_or_default();
            taken.push((block.text.as_str(), lines));
        }
        assert!(!taken.is_empty(), "{}.md has no block `{fence}` in the section `{section}`", self.name);
        taken
    }

    /// Every command was run.
    fn is_done(&self) {
        for (index, block) in self.blocks.iter().enumerate() {
            let is_left = RUN.contains(&block.fence.as_str()) && !self.taken.borrow().contains(&index);
            assert!(!is_left, "{}.md, {}: this is not run:\n{}", self.name, block.section, block.text);
        }
    }
}

fn blocks(text: &str) -> Vec<Block> {
    let (mut section, mut blocks) = (String::new(), Vec::new());
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(fence)) => {
                open = Some(Block { section: section.clone(), fence: fence.to_owned(), text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, None) => {
                if let Some(heading) = line.strip_prefix("## ").or_else(|| line.strip_prefix("# ")) {
                    heading.clone_into(&mut section);
                }
            }
        }
    }
    assert!(open.is_none(), "a block has no end");
    blocks
}

/// A terminal of a reader.
struct Reader {
    page: Page,
    told: ProcessOutput,
    input: ChildStdin,
    shell: Child,
    blocks: usize,
    // Ends all that was started, last.
    place: Place,
}

impl Reader {
    /// Starts a shell that has set these variables, as the page says.
    fn start(page: Page, variables: &[(&str, &str)]) -> Self {
        let mut place = Place::new(&format!("page-{}", page.name));
        for (name, value) in variables {
            let told = format!("`${name}`, such as `");
            assert!(page.text.contains(&told), "{}.md does not say that ${name} is to be set", page.name);
            place.set(name, value);
        }
        place.set("HOME", &place.text("home"));
        let own = Path::new(primacy()).parent().unwrap().to_str().unwrap();
        place.set("PATH", &format!("{own}:{}", std::env::var("PATH").unwrap()));
        let mut command = Command::new(program("bash").unwrap());
        command.args(["-c", TERMINAL]).stdin(Stdio::piped()).stdout(Stdio::piped());
        place.prepare(&mut command);
        let mut shell = command.spawn().unwrap();
        let told = ProcessOutput::default();
        told.listen(shell.stdout.take().unwrap());
        let input = shell.stdin.take().unwrap();
        Self { page, told, input, shell, blocks: 0, place }
    }

    /// Returns the commands of a section, block by block, with the output of each.
    fn commands(&self, section: &str) -> Vec<(String, Vec<String>)> {
        let blocks = self.page.take(section, "sh").into_iter();
        let owned = |lines: Vec<&str>| lines.into_iter().map(str::to_owned).collect();
        blocks.map(|(commands, prints)| (commands.to_owned(), owned(prints))).collect()
    }

    /// Runs all commands of a section.
    fn follow(&mut self, section: &str) {
        for (commands, prints) in self.commands(section) {
            self.run(&commands, &prints);
        }
    }

    /// Runs the commands of a block. They succeed, and print what the page says, among other things; commands
    /// that the page shows without output print nothing.
    fn run(&mut self, commands: &str, prints: &[String]) {
        self.blocks += 1;
        let path = self.place.text(&format!("block-{}.sh", self.blocks));
        std::fs::write(&path, commands).unwrap();
        let before = self.told.all().len();
        writeln!(self.input, "{path}").unwrap();
        let end = format!("{path}: exit code ");
        let until = Instant::now() + PATIENCE;
        loop {
            let printed = self.told.all().split_off(before);
            let context = || format!("{}.md:\n{commands}prints:\n{}", self.page.name, printed.join("\n"));
            let code = printed.iter().find_map(|line| line.strip_prefix(&end));
            assert!(code.is_none_or(|code| code == "0"), "it ends otherwise than well: {}", context());
            let missing = unmatched(prints, &printed);
            if missing.is_empty() && code.is_some() {
                println!("{}", context());
                assert!(
                    !prints.is_empty() || printed.len() == 1,
                    "it says more than the page: {}",
                    context()
                );
                return;
            }
            assert!(Instant::now() < until, "{}\nand not within {PATIENCE:?}: {missing:#?}", context());
            std::thread::sleep(POLL);
        }
    }

    /// The tokens with which the page's jobs have led, in order: each is higher than the one before.
    fn tokens(&self) -> Vec<u64> {
        let all = self.told.all();
        let tokens = all.iter().filter_map(|line| line.split_once("leads with token ")?.1.parse().ok());
        let tokens: Vec<u64> = tokens.collect();
        assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
        tokens
    }

    /// Checks that nothing is left when all commands of the page were run.
    fn finish(mut self) {
        self.page.is_done();
        drop(self.input);
        assert!(self.shell.wait().unwrap().success());
        self.place.wait_until_empty();
    }
}

/// Returns the expected lines that are not among the printed ones, each for itself and in any order: several
/// processes print at once.
fn unmatched(expected: &[String], printed: &[String]) -> Vec<String> {
    let mut left: Vec<&String> = printed.iter().collect();
    let mut missing = Vec::new();
    for pattern in expected {
        match left.iter().position(|line| is_as_told(pattern, line)) {
            Some(found) => drop(left.remove(found)),
            None => missing.push(pattern.clone()),
        }
    }
    missing
}

/// Returns whether a line matches the page's line: the same words, with any text where the page has `…`.
fn is_as_told(pattern: &str, line: &str) -> bool {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (pattern, line) = (words(pattern), words(line));
    let mut parts = pattern.split(ANYTHING);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn a_line_is_compared_word_by_word_but_for_what_may_be_anything() {
    for (pattern, line) in [
        ("a leads with token …", "a leads with token 17"),
        ("e|…|{\"token\":…", "e|17|{\"token\":17}"),
        ("key: …", "   key:  'x'"),
        ("… leads", "b leads"),
        ("same", "same"),
    ] {
        assert!(is_as_told(pattern, line), "{pattern}");
    }
    for (pattern, line) in [
        ("a leads with token …", "b leads with token 17"),
        ("same", "same and more"),
        ("… leads", "b leads no more"),
        ("x…y…z", "x z"),
        ("exit code 75", "exit code 0"),
    ] {
        assert!(!is_as_told(pattern, line), "{pattern}");
    }
    let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
    assert_eq!(unmatched(&lines(&["… leads", "… leads"]), &lines(&["a leads"])), ["… leads"]);
}

/// An administrator makes the table and gives the rights of the page, after all others were taken away; a
/// user with these rights and no more follows the rest.
#[test]
fn the_page_of_postgres_can_be_followed() {
    let Some((runtime, server)) = started("postgres", Postgres::start(&[])) else { return };
    let page = Page::read("postgres");
    runtime.block_on(async {
        for statement in ["CREATE ROLE app LOGIN PASSWORD 'secret'", "CREATE DATABASE app"] {
            server.run_sql(statement).await;
        }
        let mut config = server.config(SUPERUSER);
        let administrator = postgres::connect(config.dbname("app")).await.unwrap();
        let nothing = "REVOKE ALL ON DATABASE app FROM PUBLIC; REVOKE ALL ON SCHEMA public FROM PUBLIC";
        administrator.batch_execute(nothing).await.unwrap();
        for section in ["PostgreSQL", "Rights"] {
            for (statements, _) in page.take(section, "sql") {
                administrator.batch_execute(statements).await.unwrap();
            }
        }
    });
    let url = format!("postgres://app:secret@{}/app", server.address());
    let mut reader = Reader::start(page, &[("DATABASE_URL", &url)]);
    reader.follow("Try it");
    assert_eq!(reader.tokens().len(), 2);
    reader.finish();
}

/// An administrator makes the table and gives the rights of the page; a user with these rights and no more follows the rest.
#[test]
fn the_page_of_mysql_can_be_followed() {
    let Some((_runtime, server)) = started("mysql", MariaDb::start_empty(&[])) else { return };
    let page = Page::read("mysql");
    server.run_sql("CREATE DATABASE app; CREATE USER app IDENTIFIED BY 'secret'");
    for section in ["MySQL and MariaDB", "Rights"] {
        for (statements, _) in page.take(section, "sql") {
            server.run_sql(&format!("USE app; {statements}"));
        }
    }
    let url = format!("mysql://app:secret@{}/app", server.address());
    let port = server.port().to_string();
    let mut reader = Reader::start(page, &[("DATABASE_URL", &url), ("PORT", &port)]);
    reader.follow("Try it");
    assert_eq!(reader.tokens().len(), 2);
    reader.finish();
}

#[test]
fn the_page_of_etcd_can_be_followed() {
    let Some((_runtime, etcd)) = started("etcd", Etcd::start(None)) else { return };
    let (host, port) = etcd.address(0);
    let mut reader = Reader::start(Page::read("etcd"), &[("ETCD", &format!("{host}:{port}"))]);
    reader.follow("Try it");
    assert_eq!(reader.tokens().len(), 2);
    // The role is made, and then authentication is enabled.
    let [(roles, made), (login, leads)] = reader.commands("Least rights").try_into().unwrap();
    reader.run(&roles, &made);
    let root =
        [&["user", "add", "root:root"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]];
    for step in root {
        let _ = etcd.told(step);
    }
    reader.run(&login, &leads);
    assert_eq!(reader.tokens().len(), 3);
    reader.finish();
}

#[test]
fn the_page_of_kubernetes_can_be_followed() {
    let Some((_runtime, server)) = started("kubernetes (stand-in)", ApiServer::start()) else { return };
    let url = server.url();
    let (_, kubeconfig) = url.split_once("kubeconfig=").unwrap();
    let mut reader = Reader::start(Page::read("kubernetes"), &[("KUBECONFIG", kubeconfig)]);
    reader.follow("Try it");
    assert!(reader.tokens().len() >= 3, "{:?}", reader.tokens());
    reader.finish();
}

#[test]
fn the_page_of_s3_can_be_followed() {
    let Some((_runtime, moto)) = started("s3", Moto::start()) else { return };
    moto.make_bucket("elections");
    let endpoint = format!("http://127.0.0.1:{}", moto.port());
    let mut reader = Reader::start(Page::read("s3"), &[("S3_ENDPOINT", &endpoint)]);
    reader.follow("Try it");
    assert_eq!(reader.tokens().len(), 2);
    reader.finish();
}
