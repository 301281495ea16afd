//! The fuzz target for a short while, without libFuzzer: the examples of the documentation with mistakes put in.
//!
//! `SHUNTFS_FUZZ_SECONDS` says for how long (2), `SHUNTFS_FUZZ_SEED` from which seed on (1). Each case has a seed of its
//! own, which a failure names: with it as `SHUNTFS_FUZZ_SEED` that case comes first.

#[path = "../../../fuzz/fuzz_targets/entry/rules.rs"]
mod rules;

use std::panic::catch_unwind;
use std::time::{Duration, Instant};

const TEXTS: &str = include_str!("../../../docs/rules.md");

/// What is put in: words that mean something, and signs that end or begin something.
const PIECES: &[&str] = &[
    "\"",
    "'",
    "'''",
    "[",
    "]",
    "{",
    "}",
    "=",
    "\n",
    "[[rule]]\n",
    "hide = true\n",
    "match = \"all\"\n",
    "**/",
    "*",
    "\\",
    "when = '!(uid == 0) && (size > 1 || \"read\" in open)'\n",
    "deny = \"EPERM\"\n",
    "-1",
    "18446744073709551616",
    "open = \"read\"\n",
    "view = \"web\"\n",
    "redact = \"whole\"\n",
    "{a,b}",
    "[a-",
    "\u{0}",
    "\u{fc}",
    "uid = 5\n",
    "append_only = true\n",
    "size = { min = \"1K\" }\n",
    "groups.exists(g, g == 5)",
    "? 1 : 2",
    "/ 0",
    "path = \"a/**\"\n",
];

/// SplitMix64, so that a seed means the same for ever.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).expect("less than a usize")
    }
}

/// An example with some of it replaced.
fn make(random: &mut Random, examples: &[&str]) -> Vec<u8> {
    let mut text = examples[random.below(examples.len())].as_bytes().to_vec();
    for _ in 0..random.below(5) {
        let start = random.below(text.len() + 1);
        let end = (start + random.below(12)).min(text.len());
        let piece = PIECES[random.below(PIECES.len())];
        // Half of them at a line's start, where they have a chance to be right.
        let start = match random.below(2) {
            0 => text[..start].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1),
            _ => start,
        };
        let end = if random.below(2) == 0 { start } else { end.max(start) };
        text.splice(start..end, piece.bytes());
    }
    text
}

#[test]
fn files_of_rules_with_mistakes_put_in() {
    let number = |name, default| match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    };
    let limit = Duration::from_secs(number("SHUNTFS_FUZZ_SECONDS", 2));
    let start = Instant::now();
    let first = number("SHUNTFS_FUZZ_SEED", 1);
    let examples: Vec<&str> =
        TEXTS.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    for seed in first.. {
        let case = make(&mut Random(seed), &examples);
        if catch_unwind(|| rules::run(&case)).is_err() {
            panic!("SHUNTFS_FUZZ_SEED={seed} fails with\n{}", String::from_utf8_lossy(&case));
        }
        if start.elapsed() >= limit {
            println!("{} cases from seed {first} on", seed - first + 1);
            return;
        }
    }
}
