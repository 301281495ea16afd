//! Handles of files, as an NFS server has them.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;
use std::time::Duration;

use shuntfs_sys::{FileHandle, Result, handle_of, open_by_handle};
use shuntfs_testkit::limit::wait_until;

use super::Mounted;

pub(crate) const O_PATH: u32 = 0o10_000_000;
pub(crate) const O_DIRECTORY: u32 = 0o200_000;

impl Mounted {
    pub(crate) fn handle(&self, name: &str) -> FileHandle {
        handle_of(File::open(self.at(name)).unwrap()).unwrap().0
    }

    pub(crate) fn by_handle(&self, handle: &FileHandle, flags: u32) -> Result<File> {
        let root = File::open(self.top.path()).unwrap();
        open_by_handle(&root, handle, flags).map(File::from)
    }

    pub(crate) fn text(&self, handle: &FileHandle) -> Result<String> {
        let mut text = String::new();
        self.by_handle(handle, 0)?.read_to_string(&mut text).unwrap();
        Ok(text)
    }

    /// Has the kernel forget every node but the root.
    pub(crate) fn forget_all(&self) {
        let forgotten = wait_until(Duration::from_secs(20), || {
            fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
            self.observer.facts().nodes == 0
        });
        assert!(forgotten, "{} nodes are left", self.observer.facts().nodes);
    }
}

pub(crate) fn fd_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
