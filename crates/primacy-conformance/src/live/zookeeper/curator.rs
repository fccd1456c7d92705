//! A foreign client in the election: Curator's `LeaderLatch`, from Debian's packages.

use std::process::Command;

use super::{CLASSES, class_path, program};

/// The Java libraries that it needs in addition to those of a server.
const CURATOR: [&str; 4] =
    ["curator-recipes.jar", "curator-framework.jar", "curator-client.jar", "guava.jar"];

/// Returns the command that starts a latch. Its arguments: the servers, the path, its id, the timeout of its session,
/// how often it leads, and for how long.
///
/// # Errors
/// The program or library that is missing.
pub fn latch() -> Result<Command, String> {
    let java = program("java")?;
    let classes = class_path(CURATOR.into_iter().chain(CLASSES))?;
    let mut command = Command::new(java);
    command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
    command.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", &classes]);
    // Java compiles and runs a single source file.
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/strangers/CuratorLatch.java"));
    Ok(command)
}
