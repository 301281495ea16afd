//! The fuzz target for a short while, without libFuzzer: the examples of the documentation with mistakes put in.
//! How long, and which seeds: `shuntfs_testkit::seeded`.

#[path = "../../../fuzz/fuzz_targets/entry/rules.rs"]
mod rules;

use shuntfs_rules::Rules;
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

/// What a part of a condition must be.
#[derive(Clone, Copy)]
enum Kind {
    Truth,
    Number,
    Text,
    Numbers,
    Texts,
}

const KINDS: [Kind; 5] = [Kind::Truth, Kind::Number, Kind::Text, Kind::Numbers, Kind::Texts];

/// A part of a condition; now and then of another type than it should be.
fn part(random: &mut Random, kind: Kind, depth: usize) -> String {
    const SLIPS: &[&str] =
        &["null", "b'a'", "{'a': 1}", "[1, 'a']", "usr", "1u", "path.x", "'text/plain'", "'['"];
    let kind = if random.below(40) == 0 { KINDS[random.below(KINDS.len())] } else { kind };
    if random.below(60) == 0 {
        return SLIPS[random.below(SLIPS.len())].to_owned();
    }
    if depth == 0 {
        let leaves: &[&str] = match kind {
            Kind::Truth => {
                &["true", "uid == 'nora'", "'read' in open", "mode == '0644'", "size > '1K'", "uid in [4]"]
            }
            Kind::Number => &["uid", "gid", "owner", "group", "mode", "size", "0", "5", "-1", "0x1A4"],
            Kind::Text => &["path", "basename", "type", "'a'", "'.jpg'", "''", "'5'"],
            Kind::Numbers => &["groups", "[]", "[1, 2]", "[uid, gid]"],
            Kind::Texts => &["open", "['read']", "[path, basename]"],
        };
        return leaves[random.below(leaves.len())].to_owned();
    }
    let choice = random.below(8);
    let mut of = |kind| part(random, kind, depth - 1);
    match kind {
        Kind::Truth => match choice {
            0 => format!("({} && {})", of(kind), of(kind)),
            1 => format!("({} || !{})", of(kind), of(kind)),
            2 => format!("({} == {})", of(Kind::Number), of(Kind::Number)),
            3 => format!("({} <= {})", of(Kind::Text), of(Kind::Text)),
            4 => format!("({} in {})", of(Kind::Number), of(Kind::Numbers)),
            5 => format!("{}.exists(g, g != {})", of(Kind::Numbers), of(Kind::Number)),
            6 => format!("{}.startsWith({})", of(Kind::Text), of(Kind::Text)),
            _ => format!("{}.matches('^[a-f]+$')", of(Kind::Text)),
        },
        Kind::Number => match choice {
            0 => format!("({} + {})", of(kind), of(kind)),
            1 => format!("({} - {})", of(kind), of(kind)),
            2 => format!("({} / {})", of(kind), of(kind)),
            3 => format!("({} % {})", of(kind), of(kind)),
            4 => format!("-({})", of(kind)),
            5 => format!("size({})", of(Kind::Text)),
            6 => format!("int({})", of(Kind::Text)),
            _ => format!("{}[{}]", of(Kind::Numbers), of(kind)),
        },
        Kind::Text => match choice {
            0..3 => format!("({} + {})", of(kind), of(kind)),
            3..6 => format!("string({})", of(Kind::Number)),
            _ => format!("({} ? {} : {})", of(Kind::Truth), of(kind), of(kind)),
        },
        Kind::Numbers => match choice {
            0..3 => format!("[{}, {}]", of(Kind::Number), of(Kind::Number)),
            3..5 => format!("{}.filter(g, g > {})", of(kind), of(Kind::Number)),
            5 => format!("({} + {})", of(kind), of(kind)),
            _ => format!("{}.map(g, {} + 1)", of(kind), of(Kind::Number)),
        },
        Kind::Texts => format!("[{}, {}]", of(Kind::Text), of(Kind::Text)),
    }
}

fn rule_with_condition(random: &mut Random) -> Vec<u8> {
    let depth = 1 + random.below(3);
    let condition = part(random, Kind::Truth, depth);
    format!("[[rule]]\nwhen = \"\"\"{condition}\"\"\"\nread_only = true\n").into_bytes()
}

#[test]
fn conditions_of_any_types() {
    fuzz(rules::run, rule_with_condition);
}

/// The generator is worth something only where much of what it makes is taken, and much is not.
#[test]
fn conditions_are_right_often_enough() {
    let mut random = Random::new(7);
    let taken = (0..300).filter(|_| {
        let text = String::from_utf8(rule_with_condition(&mut random)).unwrap();
        Rules::parse(&text, "f", None, &rules::Anybody).is_ok()
    });
    let taken = taken.count();
    assert!((90..285).contains(&taken), "{taken} of 300");
}
