//! Every kernel that this processor has, compared with the crate `sha2` on seeded data.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

use sha2::Digest as _;
use shuntfs_testkit::seeded::Random;
use shuntfs_verity::{Algorithm, BlockHasher, BlockSize, Kernel, Params, Salt};

/// The hash of a block as fs-verity's documentation defines it, in the simplest words there are.
fn expected(params: &Params, block: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    if !params.salt().is_empty() {
        message.extend_from_slice(params.salt().as_bytes());
        message.resize(params.algorithm().input_len(), 0);
    }
    let salt_len = message.len();
    message.extend_from_slice(block);
    message.resize(salt_len + params.block_size().len(), 0);
    match params.algorithm() {
        Algorithm::Sha256 => sha2::Sha256::digest(&message).to_vec(),
        Algorithm::Sha512 => sha2::Sha512::digest(&message).to_vec(),
    }
}

fn params(algorithm: Algorithm, block_size: u32, salt: &[u8]) -> Params {
    let block_size = BlockSize::any(block_size, algorithm).unwrap();
    Params::new(algorithm, block_size, Salt::new(salt).unwrap()).unwrap()
}

/// Compares one call, whose output already holds something.
fn compare(hasher: &BlockHasher, data: &[u8], seed: u64) {
    let params = hasher.params();
    let mut found = vec![7; 3];
    hasher.hash_blocks(data, &mut found);
    let mut wanted = vec![7; 3];
    data.chunks(params.block_size().len()).for_each(|block| wanted.extend(expected(params, block)));
    let kernel = hasher.kernel();
    assert!(found == wanted, "seed {seed}: {kernel} differs for {} bytes, {params:?}", data.len());
}

fn each_kernel(params: &Params, check: impl Fn(&BlockHasher)) {
    assert!(Kernel::best(params.algorithm()).is_available(params.algorithm()));
    for &kernel in Kernel::ALL {
        match BlockHasher::with_kernel(params, kernel) {
            Some(hasher) => check(&hasher),
            // Nobody has this one: it is not written.
            None if kernel == Kernel::ShaNi && params.algorithm() == Algorithm::Sha512 => {}
            None => println!("SKIPPED: this processor has no {kernel} for {}", params.algorithm()),
        }
    }
}

#[test]
fn every_number_of_blocks_up_to_67_with_and_without_salt() {
    for seed in 1..=3 {
        let mut random = Random::new(seed);
        let data: Vec<u8> = (0..67 * 4096).map(|_| random.byte()).collect();
        for algorithm in Algorithm::ALL {
            for (block_size, salt_len) in [(1024, 0), (1024, 32), (4096, 0), (4096, 1), (128, 31)] {
                let salt: Vec<u8> = (0..salt_len).map(|_| random.byte()).collect();
                each_kernel(&params(algorithm, block_size, &salt), |hasher| {
                    for blocks in 0..=67 {
                        compare(hasher, &data[..blocks * block_size as usize], seed);
                    }
                });
            }
        }
    }
}

#[test]
fn a_short_last_block_is_padded_wherever_it_ends() {
    let mut random = Random::new(4);
    let data: Vec<u8> = (0..18 * 1024).map(|_| random.byte()).collect();
    for algorithm in Algorithm::ALL {
        each_kernel(&params(algorithm, 1024, &[]), |hasher| {
            for len in (0..1100).chain([17 * 1024 - 1, 17 * 1024 + 1]) {
                compare(hasher, &data[..len], 4);
            }
        });
    }
}

#[test]
fn every_block_size_and_any_alignment() {
    let mut random = Random::new(5);
    let data: Vec<u8> = (0..(17 << 16) + 64).map(|_| random.byte()).collect();
    for algorithm in Algorithm::ALL {
        for log2 in 7..=16 {
            let salt = [log2; 9];
            let block_size = 1 << log2;
            each_kernel(&params(algorithm, block_size, &salt), |hasher| {
                let from = usize::from(log2) % 13;
                compare(hasher, &data[from..from + 17 * block_size as usize], 5);
            });
        }
    }
    each_kernel(&params(Algorithm::Sha256, 64, &[1]), |hasher| compare(hasher, &data[1..64 * 37], 5));
}

/// Threads share a hasher.
#[test]
fn clones_hash_at_once() {
    let hasher = BlockHasher::new(&Params::default());
    let data: Vec<u8> = (0..40 * 4096).map(|at: usize| at.to_le_bytes()[1]).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (hasher, data) = (hasher.clone(), &data);
            scope.spawn(move || compare(&hasher, data, 6));
        }
    });
}
