//! The fuzz target of the guard for a short while, without libFuzzer: rules with mistakes put in, and operations of any bytes.
//! How long, and which seeds: `shuntfs_testkit::seeded`.

#[path = "../../../fuzz/fuzz_targets/entry/guard.rs"]
mod guard;

use shuntfs_testkit::seeded::{Random, fuzz};

const KEYS: &[&str] = &["a", "two", "*", "**/*.jpg", "private", "private/**", "secret.*", "/?", "new*"];
const MATCHERS: &[&str] = &[
    "uid = 4",
    "groups = 5",
    "open = \"read\"",
    "open = [\"write\", \"append\"]",
    "open = \"create\"",
    "exe = \"/bin/*\"",
    "size = { min = 1 }",
    "mode = \"0644\"",
    "type = \"image/jpeg\"",
    "when = 'path.startsWith(\"p\")'",
    "when = 'uid == 5 && size < 9'",
    "when = 'owner == uid'",
];
const ACTIONS: &[&str] = &[
    "hide = true",
    "deny = \"EACCES\"",
    "deny = \"EPERM\"",
    "read_only = true",
    "append_only = true",
    "allow = true",
    "redact = \"whole\"",
    "redact = \"exif-gps\"",
];

/// A few rules, a NUL, and operations: as a rule on names that are there.
fn make(random: &mut Random) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..=random.below(3) {
        text.push_str("[[rule]]\n");
        if random.below(5) > 0 {
            text.push_str(&format!("path = \"{}\"\n", KEYS[random.below(KEYS.len())]));
        }
        if random.below(2) == 0 {
            text.push_str(&format!("{}\n", MATCHERS[random.below(MATCHERS.len())]));
        }
        text.push_str(&format!("{}\n", ACTIONS[random.below(ACTIONS.len())]));
    }
    let mut bytes = text.into_bytes();
    if random.below(8) == 0 {
        let at = random.below(bytes.len());
        bytes[at] = random.byte();
    }
    bytes.push(0);
    for _ in 0..random.below(12) {
        bytes.extend([random.byte(), random.byte(), random.byte()]);
        for _ in 0..2 {
            let choice = u8::try_from(random.below(8)).unwrap_or_default();
            bytes.push(choice);
            (5..=choice).for_each(|_| bytes.push(random.byte()));
        }
    }
    bytes
}

#[test]
fn operations_under_rules_of_any_bytes() {
    fuzz(guard::run, make);
}
