//! The fuzz target for a short while, without libFuzzer: the examples of the documentation with mistakes put in.
//! How long, and which seeds: `shuntfs_testkit::seeded`.

#[path = "../../../fuzz/fuzz_targets/entry/rules.rs"]
mod rules;

use shuntfs_testkit::seeded::{Random, fuzz};

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
    let examples: Vec<&str> =
        TEXTS.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    fuzz(rules::run, |random| make(random, &examples));
}
