//! Blocks to hashes.

use std::sync::Arc;

use super::{Kernel, plain};
use crate::{Algorithm, Digest, Params};

/// Hashes the blocks of one file or tree, several at once where the processor can. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BlockHasher {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    params: Params,
    kernel: Kernel,
}

impl BlockHasher {
    /// Hashes as `params` say, by the best kernel there is.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        Self { inner: Arc::new(Inner { params: *params, kernel: Kernel::Plain }) }
    }

    /// The kernel in use.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.inner.kernel
    }

    /// What the blocks are hashed with.
    #[must_use]
    pub fn params(&self) -> &Params {
        &self.inner.params
    }

    /// Appends the hash of each block of `data` to `out`. The last block may be short: it is hashed as if zeroes followed.
    pub fn hash_blocks(&self, data: &[u8], out: &mut Vec<u8>) {
        for block in data.chunks(self.inner.params.block_size().len()) {
            plain::hash_block(&self.inner.params, block, out);
        }
    }
}

/// The unsalted hash of any bytes.
pub(crate) fn hash(algorithm: Algorithm, bytes: &[u8]) -> Digest {
    plain::hash(algorithm, bytes)
}
