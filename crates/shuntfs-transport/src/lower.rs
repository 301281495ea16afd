//! A file that bytes are moved from or to.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shuntfs_runtime::RingFile;

/// How many bytes were moved from and to the files of something, by whoever serves them.
#[derive(Debug, Default)]
pub struct Traffic {
    read: AtomicU64,
    written: AtomicU64,
}

impl Traffic {
    /// How many were read.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// How many were written.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }
}

/// A file on a branch, open.
#[derive(Debug)]
pub struct LowerFile {
    fd: OwnedFd,
    can_block: bool,
    ignores_nowait: bool,
    traffic: Option<Arc<Traffic>>,
}

impl LowerFile {
    /// Takes over an open descriptor. `O_PATH` suffices to register it as backing file.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, can_block: false, ignores_nowait: false, traffic: None }
    }

    /// The same on a file system where even a write into the page cache may wait for long (a network's): a queue then
    /// does not wait for it, where its transport can do otherwise.
    #[must_use]
    pub fn that_can_block(self) -> Self {
        Self { can_block: true, ..self }
    }

    /// The same on a file system that waits though it is told not to, as FUSE does: a ring then leaves reads and writes to threads of the
    /// kernel. Otherwise its queue would stand still for as long as the lower server does not answer, and with it whoever aborts the
    /// connection. Cost: two changes of threads, also where the bytes are cached.
    #[must_use]
    pub fn that_ignores_nowait(self) -> Self {
        Self { ignores_nowait: true, ..self }
    }

    /// The same, where what is moved from and to it is counted. What the kernel moves is not.
    #[must_use]
    pub fn counted_by(self, traffic: Arc<Traffic>) -> Self {
        Self { traffic: Some(traffic), ..self }
    }

    /// Whether even a write into the page cache may wait for long.
    #[must_use]
    pub fn can_block(&self) -> bool {
        self.can_block
    }

    /// Counts bytes that were read from it.
    pub fn count_read(&self, bytes: u64) {
        if let Some(traffic) = &self.traffic {
            traffic.read.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts bytes that were written to it.
    pub fn count_written(&self, bytes: u64) {
        if let Some(traffic) = &self.traffic {
            traffic.written.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

impl RingFile for LowerFile {
    fn waits(&self) -> bool {
        self.ignores_nowait
    }
}

impl AsFd for LowerFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
