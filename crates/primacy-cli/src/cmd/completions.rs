//! `primacy completions SHELL`

use clap::{CommandFactory, Parser};
use clap_complete::Shell;

use crate::exit::{self, Exit, Failure};

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
    let written = std::io::Write::write_all(&mut std::io::stdout(), &script);
    written
        .map_err(|error| Failure::new(Exit::Failed, format!("the script could not be written: {error}")))?;
    Ok(Exit::Success)
}
