//! Blocks to hashes.

use std::sync::Arc;

use super::Kernel;
use super::sha256::Blocks256;
use super::sha512::Blocks512;
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
    blocks: Blocks,
}

#[derive(Debug)]
enum Blocks {
    Sha256(Blocks256),
    Sha512(Blocks512),
}

impl BlockHasher {
    /// Hashes as `params` say, by the best kernel that the processor has.
    #[must_use]
    pub fn new(params: &Params) -> Self {
        Self::of(params, Kernel::best(params.algorithm()))
    }

    /// Hashes by one kernel, for tests and measurements; `None` where the processor does not have it.
    #[must_use]
    pub fn with_kernel(params: &Params, kernel: Kernel) -> Option<Self> {
        kernel.is_available(params.algorithm()).then(|| Self::of(params, kernel))
    }

    fn of(params: &Params, kernel: Kernel) -> Self {
        let blocks = match params.algorithm() {
            Algorithm::Sha256 => Blocks::Sha256(Blocks256::new(params, kernel)),
            Algorithm::Sha512 => Blocks::Sha512(Blocks512::new(params, kernel)),
        };
        Self { inner: Arc::new(Inner { params: *params, kernel, blocks }) }
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
        match &self.inner.blocks {
            Blocks::Sha256(blocks) => blocks.hash(data, out),
            Blocks::Sha512(blocks) => blocks.hash(data, out),
        }
    }
}

/// The unsalted hash of any bytes.
pub(crate) fn hash(algorithm: Algorithm, bytes: &[u8]) -> Digest {
    use sha2::Digest as _;
    let digest = match algorithm {
        Algorithm::Sha256 => Digest::new(algorithm, &sha2::Sha256::digest(bytes)),
        Algorithm::Sha512 => Digest::new(algorithm, &sha2::Sha512::digest(bytes)),
    };
    digest.expect("the algorithm's length")
}
