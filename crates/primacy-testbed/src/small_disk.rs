//! A small disk that can be filled.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::{Place, strings};

/// A small disk in memory, mounted in its own mount namespace, which needs no privileges where users may create namespaces.
#[derive(Debug)]
pub struct SmallDisk {
    /// A process that keeps the namespaces alive, as long as its input is open.
    holder: Child,
    dir: String,
}

impl SmallDisk {
    /// Mounts a disk of this many KiB here, with a filler file on it.
    pub fn mount(place: &Place, name: &str, size: u32, filler: u32) -> Self {
        let dir = place.text(name);
        std::fs::create_dir(&dir).unwrap();
        let script = format!(
            "mount -t tmpfs -o size={size}k,mode=0700 none {dir} && dd if=/dev/zero of={dir}/filler bs=1024 count={filler} \
             2>/dev/null && echo mounted && exec cat"
        );
        let mut command = Command::new("unshare");
        place.prepare(&mut command);
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "mounted\n");
        Self { holder, dir }
    }

    /// The command prefix that runs a command in the namespaces of this disk.
    pub fn within(&self) -> Vec<String> {
        let holder = self.holder.id().to_string();
        strings(&["nsenter", "--target", &holder, "--user", "--mount", "--preserve-credentials"])
    }

    /// Fills the disk.
    pub fn fill(&self) {
        let within = self.within();
        let script = format!("cat /dev/zero >> {}/filler", self.dir);
        let mut command = Command::new(&within[0]);
        let status = command.args(&within[1..]).args(["sh", "-c", &script]).stderr(Stdio::null()).status();
        assert!(!status.unwrap().success(), "it is full some time");
    }

    pub fn make_room(&self) {
        let within = self.within();
        let mut command = Command::new(&within[0]);
        let status = command.args(&within[1..]).arg("rm").arg(format!("{}/filler", self.dir)).status();
        assert!(status.unwrap().success());
    }
}
