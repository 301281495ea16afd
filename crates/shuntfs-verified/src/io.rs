//! How tree blocks are read: by the queue that needs them, or by a thread that reads ahead.

use std::sync::Arc;

use shuntfs::{Cx, Errno, LowerFile, Result};
use shuntfs_sys::data::read_at;

/// Reads a file's tree.
pub(crate) trait TreeIo {
    /// Reads `len` bytes at `offset`; fewer where the file ends.
    async fn read(&self, lower: &Arc<LowerFile>, len: usize, offset: u64) -> Result<Vec<u8>>;
    /// Whether nobody waits for it yet.
    fn is_ahead(&self) -> bool;
}

/// Reads as a request's queue does.
pub(crate) struct QueueIo<'c, 'r>(pub(crate) &'c Cx<'r>);

/// Reads as a thread that may block.
pub(crate) struct ThreadIo;

impl TreeIo for QueueIo<'_, '_> {
    async fn read(&self, lower: &Arc<LowerFile>, len: usize, offset: u64) -> Result<Vec<u8>> {
        self.0.read_lower(lower, vec![0; len], offset).await
    }

    fn is_ahead(&self) -> bool {
        false
    }
}

impl TreeIo for ThreadIo {
    async fn read(&self, lower: &Arc<LowerFile>, len: usize, offset: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            let more = read_at(&**lower, &mut bytes[done..], offset + done as u64);
            match more.map_err(|error| Errno::from_lower(error.raw_os_error()))? {
                0 => break,
                more => done += more,
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn is_ahead(&self) -> bool {
        true
    }
}
