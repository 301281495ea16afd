//! What of a merge may be changed while it is mounted, other than its branches.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use shuntfs::{Errno, Result};
use shuntfs_rules::units;

use super::options::{MergeOptions, MoveOnFull};
use crate::policy::{Category, Function, POLICIES, Policy};

/// Units of sizes, from the largest: a letter, and by how many bits it shifts.
const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// Stands for no policy.
const OFF: usize = usize::MAX;

/// The settings of the moment. Each stands for itself, so whoever reads one takes no lock.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Places in the table of policies, one for each function.
    policies: [AtomicUsize; Function::ALL.len()],
    /// Follows from the policy of lookups, and is asked for at each.
    shows_first: AtomicBool,
    min_free: AtomicU64,
    /// The place of the policy by which files are moved, and [`OFF`].
    moves: AtomicUsize,
}

impl Settings {
    /// What is asked for at the start.
    pub(super) fn of(options: &MergeOptions) -> Self {
        Self {
            policies: Function::ALL.map(|function| AtomicUsize::new(options.policy(function).index())),
            shows_first: AtomicBool::new(shows_first(options.policy(Function::GetAttr))),
            min_free: AtomicU64::new(options.min_free),
            moves: AtomicUsize::new(options.move_on_full.policy().map_or(OFF, Policy::index)),
        }
    }

    /// The policy of a function.
    pub(crate) fn policy(&self, function: Function) -> &'static Policy {
        &POLICIES[self.policies[function.index()].load(Ordering::Relaxed)]
    }

    pub(super) fn set_policy(&self, function: Function, policy: &Policy) {
        self.policies[function.index()].store(policy.index(), Ordering::Relaxed);
        if function == Function::GetAttr {
            self.shows_first.store(shows_first(policy), Ordering::Relaxed);
        }
    }

    /// The policies that the functions of a category have, each once, with a comma between two.
    pub(super) fn policies_of(&self, category: Category) -> String {
        let functions = Function::ALL.into_iter().filter(|function| function.category() == category);
        let names: BTreeSet<&str> = functions.map(|function| self.policy(function).name()).collect();
        names.into_iter().collect::<Vec<_>>().join(",")
    }

    /// Whether what is found first is shown.
    pub(super) fn shows_first(&self) -> bool {
        self.shows_first.load(Ordering::Relaxed)
    }

    /// How many bytes something new must leave free on branches that say nothing of it.
    pub(crate) fn min_free(&self) -> u64 {
        self.min_free.load(Ordering::Relaxed)
    }

    pub(super) fn set_min_free(&self, bytes: u64) {
        self.min_free.store(bytes, Ordering::Relaxed);
    }

    /// By which policy a file is moved whose branch is full; `None` where it is not.
    pub(crate) fn moves(&self) -> Option<&'static Policy> {
        POLICIES.get(self.moves.load(Ordering::Relaxed))
    }

    pub(super) fn set_moves(&self, moves: MoveOnFull) {
        self.moves.store(moves.policy().map_or(OFF, Policy::index), Ordering::Relaxed);
    }

    /// All of them, in words.
    pub(super) fn words(&self) -> Vec<String> {
        let policies = Function::ALL.into_iter().map(|function| self.policy(function).name().to_owned());
        let moves = self.moves().map_or("false", Policy::name).to_owned();
        policies.chain([self.min_free().to_string(), moves]).collect()
    }

    /// Takes them over. `None` where they are none.
    pub(super) fn set_words(&self, words: &[String]) -> Option<()> {
        let (policies, rest) = words.split_at_checked(Function::ALL.len())?;
        let [min_free, moves] = rest else { return None };
        for (function, name) in Function::ALL.into_iter().zip(policies) {
            self.set_policy(function, Policy::of(name)?);
        }
        self.set_min_free(min_free.parse().ok()?);
        self.set_moves(MoveOnFull::of(moves)?);
        Some(())
    }
}

fn shows_first(search: &Policy) -> bool {
    ["ff", "epff", "all", "epall"].contains(&search.name())
}

/// A size as mergerfs writes it: whole units where there are such, else bytes.
pub(super) fn size_text(bytes: u64) -> String {
    let unit = UNITS.iter().find(|(_, bits)| bytes >> bits > 0 && bytes.trailing_zeros() >= *bits);
    unit.map_or_else(|| bytes.to_string(), |(letter, bits)| format!("{}{letter}", bytes >> bits))
}

/// Reads a size.
///
/// # Errors
/// EINVAL for what is none, and beyond 64 bits.
pub(super) fn size(text: &str) -> Result<u64> {
    units::size(text).ok_or(Errno::INVAL)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in
            [("0", 0), ("4G", 4 << 30), ("1023", 1023), ("3K", 3072), ("2T", 2 << 40), ("4097M", 4097 << 20)]
        {
            assert_eq!((size(text), size_text(bytes)), (Ok(bytes), text.to_owned()));
        }
        assert_eq!((size("7b"), size("1k"), size("18446744073709551615")), (Ok(7), Ok(1024), Ok(u64::MAX)));
        for wrong in
            ["", "G", "-1", "+1", "1.5G", "1 G", "4GB", "\u{e9}", "1\n", "18446744073709551616", "16777216T"]
        {
            assert_eq!(size(wrong), Err(Errno::INVAL), "{wrong:?}");
        }
        assert_eq!(size_text(u64::MAX), u64::MAX.to_string());
    }

    #[test]
    fn what_is_set_holds() {
        let mut options = MergeOptions::new(Vec::new());
        let settings = Settings::of(&options);
        for function in Function::ALL {
            assert_eq!(settings.policy(function).name(), function.category().default_policy());
            for policy in &POLICIES {
                settings.set_policy(function, policy);
                assert_eq!(settings.policy(function), policy);
                let first = shows_first(settings.policy(Function::GetAttr));
                assert_eq!(settings.shows_first(), first);
            }
        }
        for (function, name) in
            [(Function::Mkdir, "mfs"), (Function::Mkdir, "epff"), (Function::GetAttr, "newest")]
        {
            options.functions.push((function, Policy::of(name).unwrap()));
        }
        let settings = Settings::of(&options);
        let names = Function::ALL.map(|function| settings.policy(function).name());
        assert_eq!(names, ["pfrd", "newest", "epff", "pfrd", "epall", "pfrd", "epall"]);
        assert!(!settings.shows_first());
        let of_categories = Category::ALL.map(|category| settings.policies_of(category));
        assert_eq!(of_categories, ["epall", "epff,pfrd", "newest"]);
        settings.set_min_free(7);
        assert_eq!(settings.min_free(), 7);
        assert_eq!(settings.moves().map(Policy::name), Some("pfrd"));
        settings.set_moves(MoveOnFull::OFF);
        assert_eq!(settings.moves(), None);
        settings.set_moves(MoveOnFull::of("lus").unwrap());
        assert_eq!(settings.moves().map(Policy::name), Some("lus"));
    }
}
