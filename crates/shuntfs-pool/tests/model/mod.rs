//! A model of several branches as one, and calls from a seed that are made on it and on a mount of such branches.
//!
//! The model follows docs/pool.md and what mergerfs documents. It has no kernel, no cache, no time and no two callers at once: what
//! it says of a call is what a caller sees who is alone.

mod compare;
pub(crate) mod disk;
pub(crate) mod generate;
mod moves;
pub(crate) mod numbers;
pub(crate) mod op;
pub(crate) mod policy;
pub(crate) mod pool;
pub(crate) mod run;
pub(crate) mod step;
pub(crate) mod tree;

use std::path::PathBuf;

use shuntfs_pool::policy::{BranchMode, Policy};
use shuntfs_pool::{BranchOptions, Cache, MergeOptions, PoolOptions};

use pool::Pool;
use run::Case;

/// A number that a variable of the environment says, otherwise `default`.
fn asked(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().map_or(default, |text| text.parse().unwrap())
}

/// What came of a case: how many calls succeeded, or after how many there was which difference.
pub(crate) type Outcome = Result<usize, (usize, String)>;

/// Runs cases from one seed on until so many calls are made.
///
/// # Panics
/// Where any differed, with what is left of it.
pub(crate) fn compare_all(
    calls: usize,
    calls_each: usize,
    case: impl Fn(u64) -> Case,
    run: impl Fn(&Case, u64) -> Outcome,
) {
    let first = asked("SHUNTFS_MODEL_SEED", 0) as u64;
    let count = asked("SHUNTFS_MODEL_CALLS", calls).div_ceil(calls_each);
    let (mut differences, mut succeeded) = (0, 0);
    for seed in first..first + count as u64 {
        let case = case(seed);
        match run(&case, seed) {
            Ok(done) => succeeded += done,
            Err((at, difference)) => {
                differences += 1;
                let shrunk = case.shrunk(at, |case| run(case, seed).err().map(|(at, _)| at));
                let last = run(&shrunk, seed).unwrap_err().1;
                eprintln!("seed {seed}, {:?}, after {at} calls: {difference}", cache(seed));
                eprintln!("shrunk: {last}\n{}", shrunk.told());
            }
        }
    }
    assert_eq!(differences, 0, "of {count} cases");
    assert!(succeeded > count * calls_each / 5, "only {succeeded} calls succeeded");
    println!("{succeeded} of {} calls succeeded, from seed {first} on", count * calls_each);
}

/// With and without caches, in turns.
pub(crate) fn cache(seed: u64) -> Cache {
    match seed % 3 {
        0 => Cache::Default,
        1 => Cache::Second,
        _ => Cache::None,
    }
}

/// What a mount is opened with.
pub(crate) fn options(pool: &Pool, paths: &[PathBuf], cache: Cache) -> PoolOptions {
    let branch = |(branch, path): (&tree::Branch, &PathBuf)| BranchOptions {
        mode: match branch.mode {
            tree::Mode::ReadWrite => BranchMode::ReadWrite,
            tree::Mode::ReadOnly => BranchMode::ReadOnly,
            tree::Mode::NoCreate => BranchMode::NoCreate,
        },
        min_free: Some(if branch.is_full { u64::MAX } else { 0 }),
        ..BranchOptions::new(path)
    };
    let mut merge = MergeOptions::new(pool.branches.iter().zip(paths).map(branch).collect());
    merge.create = Policy::of(pool.create.name).unwrap();
    merge.action = Policy::of(pool.action.name()).unwrap();
    PoolOptions { merge: Some(merge), cache, ..PoolOptions::new("model") }
}
