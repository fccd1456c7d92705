//! The copy of the repository in which mutants are made.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::patch::Patch;

/// A folder that has what git tracks of a repository, and what it would track.
pub(super) struct Copy<'a> {
    root: &'a Path,
    tree: PathBuf,
}

impl<'a> Copy<'a> {
    pub(super) fn new(root: &'a Path, tree: &Path) -> Self {
        Self { root, tree: tree.to_owned() }
    }

    /// Makes it like the repository. A file that is the same is left alone, for cargo builds anew what is younger.
    pub(super) fn restore(&self) -> Result<(), String> {
        let files = self.tracked()?;
        let mut last = String::new();
        for path in &files {
            last.clone_from(path);
            self.copy(path).map_err(|error| format!("{path} cannot be copied: {error}"))?;
        }
        self.clear(&self.tree, &files).map_err(|error| format!("{}: {error}", self.tree.display()))
    }

    /// Changes it as a patch says.
    pub(super) fn apply(&self, patch: &Patch) -> Result<(), String> {
        for file in &patch.files {
            let path = self.tree.join(&file.path);
            let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", file.path))?;
            fs::write(&path, file.apply(&text)?).map_err(|error| format!("{}: {error}", file.path))?;
        }
        Ok(())
    }

    fn tracked(&self) -> Result<BTreeSet<String>, String> {
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(self.root);
        let output = git.output().map_err(|error| format!("git is needed to know what to copy: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let files = String::from_utf8_lossy(&output.stdout).into_owned();
        // What was deleted and not yet committed is listed too.
        let there = |path: &&str| !path.is_empty() && self.root.join(path).is_file();
        Ok(files.split('\0').filter(there).map(str::to_owned).collect())
    }

    fn copy(&self, path: &str) -> io::Result<()> {
        let (from, to) = (self.root.join(path), self.tree.join(path));
        let wanted = fs::read(&from)?;
        if fs::read(&to).is_ok_and(|found| found == wanted) {
            return Ok(());
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&to, wanted)?;
        fs::set_permissions(&to, fs::metadata(&from)?.permissions())
    }

    /// Removes what the repository does not have.
    fn clear(&self, folder: &Path, files: &BTreeSet<String>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                self.clear(&path, files)?;
                continue;
            }
            let name = path.strip_prefix(&self.tree).map(|path| path.to_string_lossy().into_owned());
            if name.is_ok_and(|name| !files.contains(&name)) {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }
}
