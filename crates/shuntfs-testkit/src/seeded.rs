//! Cases made from numbers: the fuzz targets for a short while, without libFuzzer.
//!
//! `SHUNTFS_FUZZ_SECONDS` says for how long (2), `SHUNTFS_FUZZ_SEED` from which seed on (1). Each case has a seed of its
//! own, which a failure names: with it as `SHUNTFS_FUZZ_SEED` that case comes first.

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

/// SplitMix64, so that a seed means the same forever.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers that follow from a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Evenly enough from 0 up to, and without, `end`; 0 where there is nothing.
    ///
    /// # Panics
    /// Never: what is below a `usize` fits into one.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % (end.max(1) as u64)).expect("less than a usize")
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.number().to_le_bytes()[0]
    }

    /// Fewer than `len_max` bytes.
    pub fn bytes(&mut self, len_max: usize) -> Vec<u8> {
        let len = self.below(len_max);
        (0..len).map(|_| self.byte()).collect()
    }
}

/// Runs `target` on what `make` makes of each seed, until the time is over.
///
/// # Panics
/// Where `target` does, with the seed and the case; or an environment variable is no number.
pub fn fuzz(target: fn(&[u8]), make: impl Fn(&mut Random) -> Vec<u8>) {
    let number = |name, default| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    };
    let limit = Duration::from_secs(number("SHUNTFS_FUZZ_SECONDS", 2));
    let start = Instant::now();
    let first = number("SHUNTFS_FUZZ_SEED", 1);
    for seed in first.. {
        let case = make(&mut Random::new(seed));
        if catch_unwind(|| target(&case)).is_err() {
            panic!("SHUNTFS_FUZZ_SEED={seed} fails with {} bytes: {}", case.len(), case.escape_ascii());
        }
        if start.elapsed() >= limit {
            println!("{} cases from seed {first} on", seed - first + 1);
            return;
        }
    }
}

/// The shortest list of steps that can be found by leaving some out, for which `fails` still says so.
///
/// # Errors
/// Those of `fails`.
pub fn shrink<S: Clone, E>(steps: &[S], mut fails: impl FnMut(&[S]) -> Result<bool, E>) -> Result<Vec<S>, E> {
    let mut steps = steps.to_vec();
    let mut piece = steps.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + piece).min(steps.len()));
            if fails(&fewer)? { steps = fewer } else { at += piece }
        }
        piece = if piece == 1 { 0 } else { piece.div_ceil(2) };
    }
    Ok(steps)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_seed_means_the_same_for_ever() {
        // The first numbers of SplitMix64 from seed 1234567, as its author publishes them.
        let mut random = Random::new(1_234_567);
        assert_eq!(
            [random.number(), random.number()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
        assert_eq!(random.below(0), 0);
        assert!((0..100).all(|_| random.below(7) < 7 && random.bytes(5).len() < 5));
    }

    #[test]
    fn what_fails_is_made_short() {
        let steps: Vec<u32> = (0..1000).collect();
        let fails = |steps: &[u32]| Ok::<_, ()>(steps.contains(&17) && steps.contains(&900));
        assert_eq!(shrink(&steps, fails), Ok(vec![17, 900]));
        assert_eq!(shrink(&[1], |_| Ok::<_, ()>(true)), Ok(vec![]));
        assert_eq!(shrink(&[1], |_| Err::<bool, _>(5)), Err(5));
    }

    #[test]
    fn a_failing_case_is_named() {
        let failed = catch_unwind(|| fuzz(|case| assert!(case.is_empty()), |random| random.bytes(100)));
        let said = failed.unwrap_err();
        assert!(said.downcast_ref::<String>().is_some_and(|said| said.starts_with("SHUNTFS_FUZZ_SEED=")));
    }
}
