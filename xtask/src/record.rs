//! The results of long searches in docs/proof.md.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

const PAGE: &str = "docs/proof.md";

/// A run whose result may be recorded on the page.
pub(crate) struct Run<'a> {
    root: &'a Path,
    /// The revision of the code at the beginning of the run, because the working tree may change during an hour.
    revision: String,
    began: Instant,
}

impl<'a> Run<'a> {
    /// Begins a run.
    pub(crate) fn begin(root: &'a Path) -> Self {
        Self { root, revision: revision(root), began: Instant::now() }
    }

    /// Writes the output to its place on the page. Reports on standard error if that fails.
    pub(crate) fn write(&self, name: &str, command: &str, printed: &str) -> bool {
        let path = self.root.join(PAGE);
        let written = std::fs::read_to_string(&path)
            .map_err(|error| error.to_string())
            .and_then(|page| replaced(&page, name, &self.block(command, printed)))
            .and_then(|page| std::fs::write(&path, page).map_err(|error| error.to_string()));
        if let Err(why) = &written {
            eprintln!("{PAGE}: {why}");
        }
        written.is_ok()
    }

    fn block(&self, command: &str, printed: &str) -> String {
        let (minutes, printed) = (self.began.elapsed().as_secs().div_ceil(60), printed.trim_end());
        format!("`{command}`, at {}, about {minutes} min:\n\n```text\n{printed}\n```\n", self.revision)
    }
}

/// Returns the revision of the code: the commit, and whether any file other than the page was changed since.
fn revision(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "no commit".to_owned() };
    let others = format!(":(exclude){PAGE}");
    match git(&["status", "--porcelain", "--", ".", &others]) {
        Some(changed) if changed.is_empty() => format!("commit {commit}"),
        Some(_) | None => format!("commit {commit} with changes"),
    }
}

/// Returns the page with other text between the two marks of this name.
fn replaced(page: &str, name: &str, text: &str) -> Result<String, String> {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let missing = || format!("there is no `{}` with its end after it", begin.trim_end());
    let (before, rest) = page.split_once(&begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(&end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}{text}{end}{after}"))
}

#[cfg(test)]
mod self_tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = "a\n<!-- x: begin -->\nold\n<!-- x: end -->\nb\n";
        let found = replaced(page, "x", "new\n");
        assert_eq!(found.as_deref(), Ok("a\n<!-- x: begin -->\nnew\n<!-- x: end -->\nb\n"));
        assert!(replaced(page, "y", "new\n").is_err());
    }
}
