//! Mounts whose program is no longer the one on the disk, as after an upgrade of the package.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How procfs ends the path of a file that has no name any more.
const DELETED: &[u8] = b" (deleted)";

/// Whether the file of a process's program was replaced or removed since the process began; `None` where that cannot be seen.
pub(crate) fn is_outdated(pid: u32) -> Option<bool> {
    let link = format!("/proc/{pid}/exe");
    let path = fs::read_link(&link).ok()?;
    if is_deleted(&path) {
        return Some(true);
    }
    // In another mount namespace its path may lead elsewhere from here, and says nothing.
    fs::symlink_metadata(path).ok()?;
    Some(false)
}

/// Whether a process runs the program at `path`.
pub(crate) fn runs(pid: u32, path: &Path) -> bool {
    let identity = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let running = identity(Path::new(&format!("/proc/{pid}/exe")));
    running.is_some() && running == identity(path)
}

/// This program's path, where it has one.
pub(crate) fn this_program() -> Option<PathBuf> {
    std::env::current_exe().ok().filter(|path| !is_deleted(path))
}

fn is_deleted(path: &Path) -> bool {
    // A file may be called so.
    path.as_os_str().as_bytes().ends_with(DELETED) && fs::symlink_metadata(path).is_err()
}

#[cfg(test)]
mod test {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_program_that_was_removed_is_outdated() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("sleep");
        assert!(Command::new("cp").arg("/bin/sleep").arg(&program).status().expect("starts").success());
        let mut child = Command::new(&program).arg("60").stdin(Stdio::null()).spawn().expect("starts");
        let found =
            (is_outdated(child.id()), runs(child.id(), &program), runs(child.id(), Path::new("/bin/sh")));
        fs::remove_file(&program).expect("is ours");
        let after = (is_outdated(child.id()), runs(child.id(), &program));
        child.kill().expect("is a child");
        child.wait().expect("is a child");
        assert_eq!(found, (Some(false), true, false));
        assert_eq!(after, (Some(true), false));
        assert_eq!(is_outdated(0), None);
        assert!(this_program().is_some_and(|path| path.exists()));
    }
}
