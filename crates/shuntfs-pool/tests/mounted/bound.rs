//! A folder that is shown at a second place.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::panicking;
use std::time::Duration;

use shuntfs_testkit::program::call;

const LIMIT: Duration = Duration::from_secs(60);

/// It is shown there as long as this lives.
pub(crate) struct Bound(Option<PathBuf>);

impl Bound {
    /// At a folder that is there.
    pub(crate) fn new(folder: &Path, at: impl Into<PathBuf>) -> Self {
        let at = at.into();
        call("mount", &[&"--bind", &folder, &at], LIMIT).unwrap();
        Self(Some(at))
    }

    /// Fails where somebody has it open.
    pub(crate) fn end(mut self) {
        call("umount", &[self.0.as_ref().unwrap()], LIMIT).unwrap();
        self.0 = None;
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let Some(at) = &self.0 else { return };
        // Lazily, because the server may have it open.
        let ended = Command::new("umount").arg("--lazy").arg(at).status();
        let has_ended = ended.is_ok_and(|ended| ended.success());
        // It may have gone with the disk that it was on.
        assert!(has_ended || panicking() || !at.exists(), "{} is left", at.display());
    }
}
