//! A file that bytes are moved from or to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A file on a branch, open.
#[derive(Debug)]
pub struct LowerFile {
    fd: OwnedFd,
    can_block: bool,
}

impl LowerFile {
    /// Takes over an open descriptor. `O_PATH` suffices to register it as backing file.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, can_block: false }
    }

    /// The same on a file system where even a write into the page cache may wait for long (a network's): a queue then
    /// does not wait for it, where its transport can do otherwise.
    #[must_use]
    pub fn that_can_block(self) -> Self {
        Self { can_block: true, ..self }
    }

    /// Whether even a write into the page cache may wait for long.
    #[must_use]
    pub fn can_block(&self) -> bool {
        self.can_block
    }
}

impl AsFd for LowerFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
