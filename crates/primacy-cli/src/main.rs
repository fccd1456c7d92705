//! The command `primacy`.

mod async_fd;
mod boot_timer;
mod cgroup;
mod cmd;
mod control;
mod delegated_work;
mod descriptors;
mod duration;
mod entry;
mod exit;
mod fair_pace;
mod guardian;
mod health;
mod leftovers;
mod line_writer;
mod log;
mod memory;
mod metrics_http;
mod node_main;
mod notify;
mod orphans;
mod panic;
mod printable;
mod proc_reader;
mod process_tree;
mod program;
mod quota;
mod report;
mod scheduling_delay;
#[cfg(feature = "etcd")]
mod serving;

mod signals;
mod size;
mod slow_hook;
mod start_error;
mod stdout;
mod stop_record;
mod supervisor;
mod variables;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use primacy::stores::login::without_logins;

use crate::entry::layers::{self, Sources, Stop};
use crate::exit::{Exit, Failure};

/// Elects one leader, and makes sure nobody else can act as one.
#[derive(Debug, Parser)]
#[command(name = "primacy", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Run(Box<cmd::run::Run>),
    Node(Box<cmd::node::Node>),
    Init(cmd::init::Init),
    Status(cmd::status::Status),
    Watch(cmd::watch::Watch),
    Resign(cmd::resign::Resign),
    Transfer(cmd::transfer::Transfer),
    Uncordon(cmd::cordon::Uncordon),
    Cordon(cmd::cordon::Cordon),
    Publish(cmd::publish::Publish),
    Partitions(cmd::partitions::Partitions),
    Member(cmd::member::Member),
    Log(cmd::log::Log),
    Config(cmd::config::Config),
    Doctor(cmd::doctor::Doctor),
    Fence(cmd::fence::Fence),
    #[cfg(feature = "sqlite")]
    Demo(cmd::demo::Demo),
    #[cfg(feature = "sqlite")]
    #[command(hide = true)]
    DemoJob(cmd::demo::job::DemoJob),
    #[cfg(feature = "sqlite")]
    #[command(hide = true)]
    DemoEmbedded(cmd::demo::embedded::DemoEmbedded),
    Completions(cmd::completions::Completions),
}

fn main() -> ExitCode {
    signals::unblock_all();
    signals::take_file_limit_as_error();
    let mut args = std::env::args_os().skip(1);
    let verb = args.next();
    if verb.as_ref().is_some_and(|verb| verb == "guardian") {
        // Only a supervisor starts it, so it needs no command line parser, and it should stay small.
        return guardian::main(args);
    }
    if verb.as_ref().is_some_and(|verb| verb == "health-check") {
        return health::keeper::main();
    }
    let args: Vec<OsString> = std::env::args_os().collect();
    let result = match layers::parse::<Cli>(&args) {
        Ok((cli, sources)) => act(&cli.verb, &sources),
        Err(Stop::Clap(error)) if error.use_stderr() && wants_json(&args) => {
            let said = error.to_string();
            Err(Failure::new(Exit::Usage, said.trim().trim_start_matches("error: ")))
        }
        Err(Stop::Clap(error)) => {
            // Help and version are not errors. If they cannot be printed, only the exit code reports it.
            let said = error.to_string();
            let shown = without_logins(&said);
            let shown = printable::printable(&shown);
            if error.use_stderr() && shown != said {
                line_writer::write_last_words(shown.trim_end());
                return Exit::Usage.into();
            }
            let printed = stdout::written(error.print());
            if error.use_stderr() { Ok(Exit::Usage) } else { printed.map(|()| Exit::Success) }
        }
        Err(Stop::Failure(failure)) => Err(failure),
    };
    match result {
        Ok(exit) => exit.into(),
        Err(Failure { exit, message }) if message.is_empty() => exit.into(),
        Err(Failure { exit, message }) => {
            // Standard error may be full or closed; the exit code is right all the same.
            line_writer::write_last_words(&last_words(&args, exit, &message));
            exit.into()
        }
    }
}

/// Formats the reason why the verb has failed: as a JSON object if the verb was to write JSON, even if it had not begun
/// to.
fn last_words(args: &[OsString], exit: Exit, message: &str) -> String {
    if wants_json(args) {
        let line = serde_json::json!({ "event": "failed", "exit_code": exit.code(), "reason": message });
        return printable::printable_json(&line.to_string()).into_owned();
    }
    format!("primacy: {}", printable::indented(&without_logins(message)))
}

/// Returns whether the verb was to write JSON. The command line may be wrong, so this reads as much of it as it can.
fn wants_json(args: &[OsString]) -> bool {
    let own = args.iter().take_while(|argument| *argument != "--");
    let last = own.filter_map(|argument| argument.to_str()?.strip_prefix("--json")).last();
    let is_node = args.get(1).is_some_and(|verb| verb == "run" || verb == "node");
    match last {
        Some(value) => ["", "=true"].contains(&value),
        None => is_node && std::env::var_os("PRIMACY_JSON").is_some_and(|value| value == "true"),
    }
}

fn act(verb: &Verb, sources: &Sources) -> Result<Exit, Failure> {
    panic::handle(std::panic::take_hook());
    // Each of these verbs opens one file at most.
    let opens_little = matches!(verb, Verb::Config(_) | Verb::Completions(_));
    if !opens_little {
        descriptors::check()?;
    }
    match verb {
        Verb::Run(args) => cmd::run::run(args, sources),
        Verb::Node(args) => cmd::node::node(args, sources),
        Verb::Config(args) => cmd::config::config(args, sources),
        Verb::Doctor(args) => cmd::doctor::doctor(args),
        Verb::Fence(args) => cmd::fence::fence(args),
        Verb::Init(args) => cmd::init::init(args),
        Verb::Status(args) => cmd::status::status(args),
        Verb::Watch(args) => cmd::watch::watch(args),
        Verb::Resign(args) => cmd::resign::resign(args),
        Verb::Transfer(args) => cmd::transfer::transfer(args),
        Verb::Uncordon(args) => cmd::cordon::uncordon(args),
        Verb::Cordon(args) => cmd::cordon::cordon(args),
        Verb::Publish(args) => cmd::publish::publish(args),
        Verb::Partitions(args) => cmd::partitions::partitions(args),
        Verb::Member(args) => cmd::member::member(args),
        Verb::Log(args) => cmd::log::log(args),
        #[cfg(feature = "sqlite")]
        Verb::Demo(args) => cmd::demo::demo(args),
        #[cfg(feature = "sqlite")]
        Verb::DemoJob(args) => cmd::demo::job::demo_job(args),
        #[cfg(feature = "sqlite")]
        Verb::DemoEmbedded(args) => cmd::demo::embedded::demo_embedded(args),
        Verb::Completions(args) => cmd::completions::completions::<Cli>(args),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::Cli;

    /// Returns the verbs whose help, long or short, does not list their exit codes.
    fn untold(command: &Command, name: &str) -> Vec<String> {
        let verbs: Vec<&Command> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
        let below = verbs.iter().flat_map(|verb| untold(verb, &format!("{name} {}", verb.get_name())));
        let mut untold: Vec<String> = below.collect();
        let helps = [command.clone().render_help(), command.clone().render_long_help()];
        if verbs.is_empty() && !helps.iter().all(|help| help.to_string().contains("Exit codes:")) {
            untold.push(name.to_owned());
        }
        untold
    }

    #[test]
    fn the_help_of_each_verb_and_of_each_below_it_tells_its_exit_codes() {
        assert_eq!(untold(&Cli::command(), "primacy"), Vec::<String>::new());
    }
}
