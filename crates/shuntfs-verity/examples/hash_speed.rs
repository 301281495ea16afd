//! How fast blocks are hashed: each kernel that the processor has, one thread, data in the second-level cache.
//!
//! `cargo run --release -p shuntfs-verity --example hash_speed [BLOCKS ...]`: blocks hashed in one call (64 unless told).

use std::hint::black_box;
use std::time::{Duration, Instant};

use shuntfs_verity::{Algorithm, BlockHasher, BlockSize, Kernel, Params, Salt};

/// Of each measurement, the best counts: what disturbs makes it slower only.
const ROUNDS: usize = 200;
const ROUND: Duration = Duration::from_millis(1);

fn main() {
    let counts: Vec<usize> =
        std::env::args().skip(1).map(|count| count.parse().expect("a number of blocks")).collect();
    let counts = if counts.is_empty() { vec![64] } else { counts };
    println!("{:8} {:8} {:>10} {:>7} {:>8}", "hash", "kernel", "block", "blocks", "MB/s");
    for algorithm in Algorithm::ALL {
        for block_size in [1024, 4096, 65536] {
            for &count in &counts {
                for &kernel in Kernel::ALL {
                    let size = BlockSize::new(block_size).expect("a size of the list");
                    let params = Params::new(algorithm, size, Salt::NONE).expect("a size of the list");
                    let Some(hasher) = BlockHasher::with_kernel(&params, kernel) else { continue };
                    let speed =
                        measure(&hasher, count.min((512 << 10) / size.len()).max(count.min(16)), size.len());
                    println!("{algorithm:8} {kernel:8} {block_size:>10} {count:>7} {speed:>8.0}");
                }
            }
        }
    }
}

/// Megabytes (10^6) in a second.
fn measure(hasher: &BlockHasher, blocks: usize, block_len: usize) -> f64 {
    let room: Vec<u8> =
        (0..(blocks + 1) * block_len + 4096).map(|at| at.to_le_bytes()[0].wrapping_mul(167)).collect();
    // As a request's payload and the chunks of a tree are.
    let start = room.as_ptr().align_offset(4096);
    let data = &room[start..start + blocks * block_len];
    let mut out = Vec::with_capacity(blocks * 64);
    let mut best = 0.0_f64;
    for _ in 0..ROUNDS {
        let (start, mut bytes) = (Instant::now(), 0_u64);
        while start.elapsed() < ROUND {
            out.clear();
            hasher.hash_blocks(black_box(data), &mut out);
            black_box(&out);
            bytes += data.len() as u64;
        }
        #[expect(clippy::cast_precision_loss, reason = "a speed needs no 53 bits")]
        let speed = bytes as f64 / start.elapsed().as_secs_f64() / 1e6;
        best = best.max(speed);
    }
    best
}
