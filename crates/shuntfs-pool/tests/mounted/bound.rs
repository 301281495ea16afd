//! A folder that is shown at a second place.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use shuntfs_testkit::program::call;

/// It is shown there as long as this lives.
pub(crate) struct Bound(PathBuf);

impl Bound {
    /// At a folder that is there.
    pub(crate) fn new(folder: &Path, at: PathBuf) -> Self {
        call("mount", &[&"--bind", &folder, &at], Duration::from_secs(60)).unwrap();
        Self(at)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Lazily, because the server may have it open.
        let ended = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(ended.is_ok_and(|ended| ended.success()), "{} is left", self.0.display());
    }
}
