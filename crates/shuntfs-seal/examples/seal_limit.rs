//! What sealing can reach on this machine, and what it does: `cargo run --release -p shuntfs-seal --example seal_limit FOLDER
//! [THREADS]`. A file of 512 MiB is made in the folder, sealed while it is in the page cache, and removed.
//!
//! For one thread and for all at once, in MB/s, the best of some rounds: hashing blocks in the second-level cache (the
//! multi-block limit), hashing blocks that lie in memory, as those of the page cache do, copying the file out of the page
//! cache without a look at it, and the hashing of `shunt seal`, from the first byte to the last file that is done.

use std::fs::File;
use std::hint::black_box;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Instant;

use shuntfs_seal::{Progress, SealOptions, seal_tree};
use shuntfs_verity::{BlockHasher, Params};

/// Of each measurement, the best counts: what disturbs makes it slower only.
const ROUNDS: usize = 7;
/// What one thread takes at a time.
const CHUNK: usize = 256 << 10;
/// The file.
const LEN: usize = 512 << 20;
/// What each thread has in memory: far more than any cache holds.
const MEMORY: usize = 256 << 20;
/// How much each thread hashes out of its cache in a round.
const CACHED: usize = 1 << 30;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("a folder");
    let all = arguments.next().map(|count| count.parse().expect("a number of threads"));
    let all = all.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let folder = tempfile::tempdir_in(folder).expect("a folder that can be written");
    let path = folder.path().join("file");
    std::fs::write(&path, content(LEN)).expect("room for the file");
    let file = File::open(&path).expect("the file");
    let params = Params::default();
    println!(
        "{:>8} {:>8} {:>8} {:>8} {:>8} {:>12}",
        "threads", "cached", "memory", "copy", "seal", "seal/cached"
    );
    for threads in [NonZeroUsize::MIN, all] {
        let count = threads.get();
        let cached = best(|| at_once(count, CHUNK, |data| hash(&params, data, CACHED)));
        let memory = best(|| at_once(count, MEMORY, |data| hash(&params, data, data.len())));
        let copied = best(|| at_once(count, CHUNK, |room| copy(&file, room)));
        let sealed = best(|| seal(folder.path(), threads));
        println!(
            "{count:>8} {cached:>8.0} {memory:>8.0} {copied:>8.0} {sealed:>8.0} {:>12.2}",
            sealed / cached
        );
        if threads == all {
            break;
        }
    }
}

/// When the hashing began and ended.
#[derive(Default)]
struct Times(Mutex<(Option<Instant>, f64)>);

impl Progress for Times {
    fn found(&self, _: u64) {}

    fn to_hash(&self, _: u64, _: u64) {
        self.0.lock().expect("no panic").0 = Some(Instant::now());
    }

    fn hashed(&self, _: u64) {}

    fn file_done(&self) {
        let mut times = self.0.lock().expect("no panic");
        times.1 = speed(LEN, times.0.expect("it began"));
    }
}

/// Seals the folder anew, and returns how fast it was hashed.
fn seal(folder: &Path, jobs: NonZeroUsize) -> f64 {
    let store = tempfile::tempdir().expect("room for the store");
    let options = SealOptions { store: Some(store.path().join("store")), ..SealOptions::new(jobs) };
    let times = Times::default();
    let report = seal_tree(folder, &options, &times).expect("a seal");
    assert_eq!(report.hashed_bytes, LEN as u64);
    let times = times.0.into_inner().expect("no panic");
    times.1
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| at.to_le_bytes()[0].wrapping_mul(167)).collect()
}

fn best(measure: impl Fn() -> f64) -> f64 {
    (0..ROUNDS).map(|_| measure()).fold(0.0, f64::max)
}

/// The speed of all threads together, each with memory of its own, of which `work` tells how much it went through.
fn at_once(threads: usize, len: usize, work: impl Fn(&mut [u8]) -> usize + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let one = || {
        let mut room = content(len + 4096);
        let from = room.as_ptr().align_offset(4096);
        barrier.wait();
        let start = Instant::now();
        let done = work(&mut room[from..from + len]);
        speed(done, start)
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
        one() + others.into_iter().map(|other| other.join().expect("no panic")).sum::<f64>()
    })
}

fn hash(params: &Params, data: &[u8], wanted: usize) -> usize {
    let hasher = BlockHasher::new(params);
    let (mut done, mut out) = (0, Vec::new());
    while done < wanted {
        for chunk in data.chunks(CHUNK) {
            out.clear();
            hasher.hash_blocks(black_box(chunk), &mut out);
            black_box(&out);
            done += chunk.len();
        }
    }
    done
}

fn copy(file: &File, room: &mut [u8]) -> usize {
    let mut done = 0;
    while done < LEN {
        let read = file.read_at(room, done as u64).expect("a read");
        assert!(read > 0, "the file was cut");
        black_box(&room);
        done += read;
    }
    done
}

fn speed(bytes: usize, start: Instant) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a speed needs no 53 bits")]
    let bytes = bytes as f64;
    bytes / start.elapsed().as_secs_f64() / 1e6
}
