//! Failover over every store, on real servers, and the times of a store's own tool beside it in the same run.
//!
//! `cargo xtask failover [--only STORE]... [--rounds N] [--write]` installs what it needs, builds the command and runs this.
//! The measurement is that of `primacy-lab bench failover --store URL`.

mod peer;
mod server;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use primacy_conformance::live::Ground;
use serde_json::Value;

use crate::server::Server;
use crate::table::Row;

/// The default number of trials of a case that takes milliseconds.
const ROUNDS: u32 = 20;

/// The number of trials of a case that takes as long as a lease, or a session.
const LONG_ROUNDS: u32 = 3;

/// The variable with the URL of the store, which may have a password.
const URL_VARIABLE: &str = "FAILOVER_STORE";

const USAGE: &str = "failover LAB [--only STORE]... [--rounds N] [--write]";

/// The stores, in the order of the table.
const STORES: &[&str] = &[
    "sqlite",
    "postgres",
    "postgres, `recipe=advisory`",
    "etcd",
    "etcd, `recipe=lease`",
    "zookeeper",
    "consul (stand-in)",
    "kubernetes (stand-in)",
    "s3 (moto)",
    "az (Azurite)",
    "nats",
    "redis",
];

/// One way in which a leader goes.
struct Case {
    /// The event, for people.
    what: &'static str,
    args: &'static [&'static str],
    is_long: bool,
    /// The store's own leader is killed.
    strikes_the_store: bool,
}

/// The cases that are measured over each store.
const CASES: &[Case] = &[
    Case {
        what: "the holder resigns",
        args: &["--class", "resign"],
        is_long: false,
        strikes_the_store: false,
    },
    Case {
        what: "`kill -9` of the holder",
        args: &["--class", "crash"],
        is_long: false,
        strikes_the_store: false,
    },
    Case {
        what: "`kill -9` of the holder and its guardian",
        args: &["--class", "crash", "--without-guardian"],
        is_long: true,
        strikes_the_store: false,
    },
    Case {
        what: "`kill -9` of the store's leader: until the store answers",
        args: &["--class", "store"],
        is_long: true,
        strikes_the_store: true,
    },
    Case {
        what: "`kill -9` of the store's leader, and of the holder",
        args: &["--class", "crash"],
        is_long: true,
        strikes_the_store: true,
    },
];

/// The command line, parsed.
struct FailoverOptions {
    /// The command, with the profile that users build it with.
    program: PathBuf,
    only: Vec<String>,
    rounds: u32,
    write: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let told = match FailoverOptions::parse(std::env::args().skip(1)) {
        Some(options) => run(&options).await,
        None => Err(USAGE.to_owned()),
    };
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

impl FailoverOptions {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let program = arguments.next()?.into();
        let mut options = Self { program, only: Vec::new(), rounds: ROUNDS, write: false };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--only" => options.only.extend(arguments.next()?.split(',').map(str::to_owned)),
                "--rounds" => options.rounds = arguments.next()?.parse().ok().filter(|&rounds| rounds > 0)?,
                "--write" => options.write = true,
                _ => return None,
            }
        }
        let known = |name: &String| STORES.iter().any(|store| is_of(store, name));
        options.only.iter().all(known).then_some(options)
    }

    fn wants(&self, store: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| is_of(store, name))
    }
}

/// True if the store is called `name`; `store` is its name in the table.
fn is_of(store: &str, name: &str) -> bool {
    store.split(|c: char| !c.is_alphanumeric()).next() == Some(name)
}

async fn run(options: &FailoverOptions) -> Result<(), String> {
    let mut rows = Vec::new();
    for &store in STORES.iter().filter(|store| options.wants(store)) {
        let mut server = Server::start(store).await?;
        let has_leader = server.members().is_some();
        for case in CASES.iter().filter(|case| !case.strikes_the_store || has_leader) {
            let row = measured(&options.program, &mut server, store, case, options.rounds).await?;
            println!("{row}");
            rows.push(row);
        }
        for row in peer::measure(store, &server, options.rounds).await? {
            println!("{row}");
            rows.push(row);
        }
        if options.write {
            // At once: later stores may fail.
            table::write(STORES, &rows)?;
        }
    }
    Ok(())
}

async fn measured(
    program: &Path,
    server: &mut Server,
    store: &'static str,
    case: &Case,
    rounds: u32,
) -> Result<Row, String> {
    let ground = Ground::new("failover");
    let mut command = Command::new(program);
    let trials = if case.is_long { rounds.min(LONG_ROUNDS) } else { rounds };
    command.env(URL_VARIABLE, server.url()).args(["bench", "failover", "--json", "--store"]);
    command.arg(format!("env:{URL_VARIABLE}")).args(case.args);
    command.args(["--trials", &trials.to_string(), "--state-dir"]).arg(ground.path());
    let members = server.members().filter(|_| case.strikes_the_store);
    if members.is_some() {
        command.args(["--fault-command", &server::fault_command(&ground)]);
        command.args(["--mend-command", &server::mend_command(&ground)]);
    }
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let bench = tokio::task::spawn_blocking(move || command.output());
    let output = match members {
        Some(mut members) => tokio::select! {
            output = bench => output,
            never = members.keep(&ground) => match never {},
        },
        None => bench.await,
    };
    let output = output.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{store}: {}: the bench failed", case.what));
    }
    let told: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    Row::of(store, case.what, &told).ok_or_else(|| format!("the bench printed {told}"))
}
