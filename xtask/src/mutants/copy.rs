//! The copy of the repository in which mutants are built.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::patch::Patch;

/// A copy of the files of a repository that git tracks or would track, as of the beginning of the run.
pub(super) struct Copy<'a> {
    root: &'a Path,
    tree: PathBuf,
}

/// The files that a patch has changed, with their original contents.
pub(super) struct Before(Vec<(PathBuf, String)>);

impl<'a> Copy<'a> {
    /// Creates the copy. Unchanged files are not rewritten, because cargo rebuilds files with a newer date.
    pub(super) fn make(root: &'a Path, tree: &Path) -> Result<Self, String> {
        let copy = Self { root, tree: tree.to_owned() };
        let files = copy.tracked()?;
        for path in &files {
            copy.copy(path).map_err(|error| format!("{path} cannot be copied: {error}"))?;
        }
        copy.clear(tree, &files).map_err(|error| format!("{}: {error}", tree.display()))?;
        Ok(copy)
    }

    /// Applies a patch, completely or not at all.
    pub(super) fn apply(&self, patch: &Patch) -> Result<Before, String> {
        let mut files = Vec::new();
        for file in &patch.files {
            let path = self.tree.join(&file.path);
            let before = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", file.path))?;
            files.push((path, file.apply(&before)?, before));
        }
        let mut before = Vec::new();
        for (path, text, old) in files {
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            before.push((path, old));
        }
        Ok(Before(before))
    }

    /// Undoes a patch.
    pub(super) fn undo(&self, before: Before) -> Result<(), String> {
        for (path, text) in before.0 {
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
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
        // The list includes files whose deletion is not committed yet.
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

    /// Removes the files that the repository does not have.
    fn clear(&self, folder: &Path, files: &BTreeSet<String>) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                self.clear(&path, files)?;
                // This fails for a folder with files; an empty one would count as a workspace member without a
                // manifest.
                let _ = fs::remove_dir(&path);
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
