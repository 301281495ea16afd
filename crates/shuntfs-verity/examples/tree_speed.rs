//! How fast the tree of a file is made: `cargo run --release -p shuntfs-verity --example tree_speed FILE [THREADS ...]`, the best of
//! five, with the file in the page cache. The digest is printed, so that it can be compared with `fsverity digest FILE`.

use std::fs::File;
use std::num::NonZeroUsize;
use std::time::Instant;

use shuntfs_verity::{Algorithm, BlockSize, Discard, Params, Salt, build_at};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("a file");
    let mut threads: Vec<usize> =
        arguments.map(|count| count.parse().expect("a number of threads")).collect();
    if threads.is_empty() {
        threads = vec![1, 2];
    }
    let file = File::open(&path).expect("a file that can be read");
    let size = file.metadata().expect("a size").len();
    for algorithm in Algorithm::ALL {
        let params = Params::new(algorithm, BlockSize::DEFAULT, Salt::NONE).expect("the default size");
        for &count in &threads {
            let count = NonZeroUsize::new(count).expect("at least one thread");
            let mut best = 0.0_f64;
            let mut digest = None;
            for _ in 0..5 {
                let start = Instant::now();
                let built = build_at(&params, size, &file, Discard, count).expect("a tree");
                digest = Some(built.digest());
                #[expect(clippy::cast_precision_loss, reason = "a speed needs no 53 bits")]
                let speed = size as f64 / start.elapsed().as_secs_f64() / 1e6;
                best = best.max(speed);
            }
            println!("{count} threads {best:6.0} MB/s {}", digest.expect("five of them"));
        }
    }
}
