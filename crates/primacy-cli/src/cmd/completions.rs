//! `primacy completions SHELL`

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use crate::exit::{self, Exit, Failure};
use crate::stdout;

/// Print a completion script for a shell.
///
/// For bash, for example:
///
///   primacy completions bash > ~/.local/share/bash-completion/completions/primacy
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment, after_help = exit::COMPLETIONS_HELP)]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

/// Writes the script to standard output.
pub(crate) fn completions<C: CommandFactory>(args: &Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut C::command(), "primacy", &mut script);
    stdout::write(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
