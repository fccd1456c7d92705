//! A growing file of lines.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use serde_json::Value;

/// A file to which another process appends.
#[derive(Debug)]
pub(crate) struct Tail {
    path: PathBuf,
    file: Option<File>,
    rest: Vec<u8>,
}

impl Tail {
    /// Follows a file, which may not exist yet.
    pub(crate) const fn new(path: PathBuf) -> Self {
        Self { path, file: None, rest: Vec::new() }
    }

    /// Returns the new lines that are JSON; a node's other output is for people.
    pub(crate) fn lines(&mut self) -> Vec<Value> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        if let Some(file) = &mut self.file {
            // Bytes that could not be read now are read next time.
            let _ = file.read_to_end(&mut self.rest);
        }
        let whole = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        lines.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }
}
