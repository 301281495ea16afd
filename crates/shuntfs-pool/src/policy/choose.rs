//! One or all of the branches that come into question: what the policies differ in.

use std::cmp::Reverse;

use super::candidate::Candidate;

/// Which of those that come into question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Choice {
    All,
    /// The one at this place among them.
    One(usize),
}

/// Chooses among branches, of which there is at least one, in their order; the number is random.
pub(super) type Choose = fn(&[&Candidate], u64) -> Choice;

pub(super) fn first(_: &[&Candidate], _: u64) -> Choice {
    Choice::One(0)
}

pub(super) fn all(_: &[&Candidate], _: u64) -> Choice {
    Choice::All
}

pub(super) fn most_free(among: &[&Candidate], _: u64) -> Choice {
    last_with_most(among, |branch| branch.space.available)
}

pub(super) fn least_free(among: &[&Candidate], _: u64) -> Choice {
    last_with_most(among, |branch| Reverse(branch.space.available))
}

pub(super) fn newest(among: &[&Candidate], _: u64) -> Choice {
    last_with_most(among, |branch| branch.mtime.map(|time| (time.secs, time.nanos)))
}

pub(super) fn least_used(among: &[&Candidate], _: u64) -> Choice {
    first_with_least(among, |branch| branch.space.used())
}

/// By the share that is used: in parts of 2^64, so that large file systems that differ little do differ. What has no space at
/// all is full.
pub(super) fn least_used_percent(among: &[&Candidate], _: u64) -> Choice {
    first_with_least(among, |branch| {
        let used = u128::from(branch.space.used()) << 64;
        used.checked_div(u128::from(branch.space.total)).unwrap_or(u128::MAX)
    })
}

pub(super) fn random(among: &[&Candidate], seed: u64) -> Choice {
    // A slice has fewer places than there are numbers of 64 bits.
    let place = share(seed, u64::try_from(among.len()).unwrap_or(u64::MAX));
    Choice::One(usize::try_from(place).unwrap_or(0))
}

/// At random, each as likely as its share of what is available on all of them.
pub(super) fn random_by_free(among: &[&Candidate], seed: u64) -> Choice {
    let free = |branch: &&Candidate| branch.space.available;
    let mut rest = share(seed, among.iter().map(free).fold(0, u64::saturating_add));
    for (place, branch) in among.iter().enumerate() {
        match rest.checked_sub(free(branch)) {
            Some(less) => rest = less,
            None => return Choice::One(place),
        }
    }
    // Nothing is available anywhere.
    random(among, seed)
}

/// A number below `end`, as far up as the seed is among all seeds.
fn share(seed: u64, end: u64) -> u64 {
    let product = u128::from(seed) * u128::from(end);
    u64::try_from(product >> u64::BITS).expect("the upper half of 128 bits")
}

fn last_with_most<K: Ord>(among: &[&Candidate], key: impl Fn(&Candidate) -> K) -> Choice {
    let last = among.iter().enumerate().max_by_key(|(_, branch)| key(branch));
    Choice::One(last.map_or(0, |(place, _)| place))
}

fn first_with_least<K: Ord>(among: &[&Candidate], key: impl Fn(&Candidate) -> K) -> Choice {
    let first = among.iter().enumerate().min_by_key(|(_, branch)| key(branch));
    Choice::One(first.map_or(0, |(place, _)| place))
}
