//! Programs that are to take the place of another one.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{SHUNT, run};

/// A copy of a program, which nobody else can change.
pub(crate) fn copy(program: &Path, to: &Path) -> PathBuf {
    // By another process: one that a parallel test starts meanwhile would inherit our descriptor for writing.
    run(Command::new("cp").arg(program).arg(to)).ok();
    fs::set_permissions(to, Permissions::from_mode(0o755)).expect("is ours");
    to.to_owned()
}

/// The example that says that it can go on, and does not, in the way that its name says.
pub(crate) fn impostor(folder: &Path, way: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("is known");
    let examples = tests.parent().and_then(Path::parent).expect("is in a folder").join("examples");
    let folder = folder.join("impostors");
    fs::create_dir_all(&folder).expect("makes");
    copy(&examples.join("impostor"), &folder.join(way))
}

/// The command that has a mount or an export continue with a program.
pub(crate) fn upgrading(place: &Path, program: &Path) -> Command {
    let mut command = Command::new(SHUNT);
    command.arg("upgrade").arg(place).arg("--binary").arg(program);
    command
}

/// The program that a process runs.
pub(crate) fn program_of(pid: u32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/exe")).expect("is there")
}
