//! Blocks by SHA-256.

use sha2::block_api::compress256;

use super::Kernel;
use super::constants::START_256;
#[cfg(target_arch = "x86_64")]
use super::{sha256_avx512, sha256_ni};
use crate::Params;

/// Bytes that the function takes in at a time.
const PIECE: usize = 64;

/// From so many blocks on, 16 lanes of AVX-512 are faster than pairs by SHA-NI, even if some lanes hash for nothing: 16 blocks
/// of 4 KiB took 12.3 us, a pair 2.8 us, on the machine of the module's figures.
#[cfg(target_arch = "x86_64")]
const AVX512_MIN: usize = 9;

/// Hashes blocks of one size with one salt.
#[derive(Debug)]
pub(super) struct Blocks256 {
    /// The state after the salt: the start of every block.
    start: [u32; 8],
    block_len: usize,
    /// What ends every message: a bit, zeroes and its length in bits. Blocks are whole pieces, so it is a piece of its own.
    last: [u8; PIECE],
    #[cfg(target_arch = "x86_64")]
    wide: Wide,
}

/// What the processor has, and may be used.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
struct Wide {
    avx512: Option<sha256_avx512::Cpu>,
    ni: Option<sha256_ni::Cpu>,
}

impl Blocks256 {
    pub(super) fn new(params: &Params, kernel: Kernel) -> Self {
        let (mut start, mut prefix_len) = (START_256, 0);
        let salt = params.salt();
        if !salt.is_empty() {
            let mut prefix = [0; PIECE];
            prefix[..salt.as_bytes().len()].copy_from_slice(salt.as_bytes());
            compress256(&mut start, &[prefix]);
            prefix_len = PIECE;
        }
        let block_len = params.block_size().len();
        let mut last = [0; PIECE];
        last[0] = 0x80;
        // A block has at most 2^30 bytes.
        let bits = 8 * (prefix_len + block_len) as u64;
        last[PIECE - 8..].copy_from_slice(&bits.to_be_bytes());
        Self {
            start,
            block_len,
            last,
            #[cfg(target_arch = "x86_64")]
            wide: Wide::new(kernel),
        }
    }

    pub(super) fn hash(&self, data: &[u8], out: &mut Vec<u8>) {
        let whole = data.len() - data.len() % self.block_len;
        let (blocks, short) = data.split_at(whole);
        #[cfg(target_arch = "x86_64")]
        let blocks = self.hash_wide(blocks, out);
        for block in blocks.chunks_exact(self.block_len) {
            self.hash_one(block, out);
        }
        if !short.is_empty() {
            self.hash_one(short, out);
        }
    }

    /// One block, padded with zeroes where it is short.
    fn hash_one(&self, block: &[u8], out: &mut Vec<u8>) {
        let mut state = self.start;
        let (pieces, rest) = block.as_chunks();
        compress256(&mut state, pieces);
        let mut left = self.block_len / PIECE - pieces.len();
        if !rest.is_empty() {
            let mut padded = [0; PIECE];
            padded[..rest.len()].copy_from_slice(rest);
            compress256(&mut state, &[padded]);
            left -= 1;
        }
        for _ in 0..left {
            compress256(&mut state, &[[0; PIECE]]);
        }
        compress256(&mut state, &[self.last]);
        push(&state, out);
    }
}

fn push(state: &[u32; 8], out: &mut Vec<u8>) {
    for word in state {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

#[cfg(target_arch = "x86_64")]
impl Wide {
    fn new(kernel: Kernel) -> Self {
        Self {
            avx512: if kernel == Kernel::Avx512 { sha256_avx512::Cpu::detect() } else { None },
            ni: if kernel == Kernel::Plain { None } else { sha256_ni::Cpu::detect() },
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Blocks256 {
    /// Hashes what is worth hashing together, and returns the blocks that are left.
    fn hash_wide<'a>(&self, mut blocks: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
        if let Some(cpu) = self.wide.avx512 {
            let group_len = sha256_avx512::LANES * self.block_len;
            while blocks.len() >= 2 * group_len {
                let (now, later) = blocks.split_at(2 * group_len);
                let (one, other) = now.split_at(group_len);
                let states = cpu.hash(&self.start, &[self.lanes(one), self.lanes(other)], &self.last);
                states.as_flattened().iter().for_each(|state| push(state, out));
                blocks = later;
            }
            while blocks.len() >= AVX512_MIN * self.block_len {
                let (now, later) = blocks.split_at(blocks.len().min(group_len));
                let [states] = cpu.hash(&self.start, &[self.lanes(now)], &self.last);
                states[..now.len() / self.block_len].iter().for_each(|state| push(state, out));
                blocks = later;
            }
        }
        if let Some(cpu) = self.wide.ni {
            // A single block is no slower by `sha2`, which uses the same instructions.
            while blocks.len() >= sha256_ni::LANES * self.block_len {
                let (now, later) = blocks.split_at(sha256_ni::LANES * self.block_len);
                let states = cpu.hash(&self.start, &self.lanes(now), &self.last);
                states.iter().for_each(|state| push(state, out));
                blocks = later;
            }
        }
        blocks
    }

    /// A block for each lane; lanes for which there is none hash the last block again.
    fn lanes<'a, const LANES: usize>(&self, blocks: &'a [u8]) -> [&'a [[u8; PIECE]]; LANES] {
        let last = blocks.len() / self.block_len - 1;
        std::array::from_fn(|lane| {
            let start = lane.min(last) * self.block_len;
            blocks[start..start + self.block_len].as_chunks().0
        })
    }
}
