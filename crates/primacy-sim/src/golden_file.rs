//! Golden files: a script of commands, with the output below them.
//!
//! A file is a sequence of blocks. A block consists of commands and comments, a line `---`, and the output of these
//! commands up to an empty line. The first word of a line is the command; `#` begins a comment. The file's name
//! states its subject, and its folder the election. With `UPDATE_GOLDENFILES=1` in the environment the tests rewrite
//! the outputs; review the difference before you keep it.

use core::fmt::Write as _;

/// The line between commands and output.
const SEPARATOR: &str = "---";

/// The number of output lines shown with a failure.
const SHOWN_BEFORE_FAILURE: usize = 20;

/// The interpreter of the commands of one file.
pub trait ScriptHandler {
    /// Carries out one command.
    ///
    /// # Errors
    /// If the command cannot be carried out, or an expectation fails.
    fn command(&mut self, words: &[&str]) -> Result<(), String>;

    /// Returns the output since the last call.
    fn output(&mut self) -> Vec<String>;

    /// Checks the state at the end of the file.
    ///
    /// # Errors
    /// If an expectation is still open.
    fn end(&mut self) -> Result<(), String>;
}

/// Carries out the commands of a file, and returns the file with the present outputs.
///
/// # Errors
/// The line of the command that failed, and why.
pub fn replay(text: &str, handler: &mut dyn ScriptHandler) -> Result<String, String> {
    let mut told = String::new();
    let mut in_output = false;
    for (index, line) in text.lines().enumerate() {
        if in_output {
            in_output = !line.is_empty();
            if !in_output {
                told.push('\n');
            }
            continue;
        }
        told.push_str(line);
        told.push('\n');
        if line == SEPARATOR {
            in_output = true;
            let output = handler.output();
            for line in output {
                told.push_str(&line);
                told.push('\n');
            }
            continue;
        }
        let command = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = command.split_whitespace().collect();
        if !words.is_empty() {
            let done = handler.command(&words);
            done.map_err(|why| format!("line {}: {command}: {why}{}", index + 1, so_far(handler)))?;
        }
    }
    handler.end().map_err(|why| format!("{why}{}", so_far(handler)))?;
    Ok(told)
}

/// Returns the last output lines before a failure.
fn so_far(handler: &mut dyn ScriptHandler) -> String {
    let lines = handler.output();
    let last = lines.iter().skip(lines.len().saturating_sub(SHOWN_BEFORE_FAILURE));
    last.map(|line| format!("\n{line}")).collect()
}

/// Returns the first difference of two files, with its context; `None` if they are equal.
#[must_use]
pub fn difference(expected: &str, found: &str) -> Option<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    if old == new {
        return None;
    }
    let first = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let mut shown = format!("they differ from line {} on:\n", first + 1);
    let around = |lines: &[&str], mark: char, shown: &mut String| {
        for line in lines.iter().skip(first).take(8) {
            let _ = writeln!(shown, "{mark} {line}");
        }
    };
    for line in old.iter().take(first).skip(first.saturating_sub(3)) {
        let _ = writeln!(shown, "  {line}");
    }
    around(&old, '-', &mut shown);
    around(&new, '+', &mut shown);
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo(Vec<String>);

    impl ScriptHandler for Echo {
        fn command(&mut self, words: &[&str]) -> Result<(), String> {
            if words == ["fail"] {
                return Err("as it was told".to_owned());
            }
            self.0.push(words.join("+"));
            Ok(())
        }

        fn output(&mut self) -> Vec<String> {
            std::mem::take(&mut self.0)
        }

        fn end(&mut self) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn outputs_are_made_anew_and_all_else_is_kept() {
        let text = "# A story.\n\nsay a  # aside\nsay b\n---\nold\nolder\n\nsay c\n---\n";
        let told = replay(text, &mut Echo(Vec::new())).unwrap();
        assert_eq!(told, "# A story.\n\nsay a  # aside\nsay b\n---\nsay+a\nsay+b\n\nsay c\n---\nsay+c\n");
        assert_eq!(replay(&told, &mut Echo(Vec::new())).unwrap(), told);
        assert_eq!(difference(&told, &told), None);
        assert!(difference(text, &told).unwrap().contains("- old\n"));
    }

    #[test]
    fn a_failing_command_is_named() {
        let error = replay("say a\nfail\n", &mut Echo(Vec::new())).unwrap_err();
        assert_eq!(error, "line 2: fail: as it was told\nsay+a", "what came before it is shown");
    }
}
