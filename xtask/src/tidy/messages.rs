//! The messages that the page on troubleshooting quotes are those of the program.

use std::fs;
use std::path::Path;

use super::source;

/// The page.
const PAGE: &str = "docs/errors.md";

/// What the system says, which no source has.
const OF_THE_SYSTEM: &[&str] = &["No such file or directory", "Permission denied"];

/// Words that stand for what varies, besides single capital letters.
const VARIES: &[&str] = &["UID", "ADDR", "NAME"];

/// A shorter piece of a message is anywhere.
const PIECE_MIN: usize = 5;

/// Checks the page against the sources of all crates.
pub(crate) fn check(root: &Path, sources: &[String]) -> Vec<String> {
    let page = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    compare(&page, &literals(sources))
}

/// The text of all literals, one a line, with a line for each part around what is filled in.
fn literals(sources: &[String]) -> String {
    let mut all = String::new();
    for source in sources {
        // What tests expect proves nothing.
        let source = source.split("#[cfg(test)]\nmod").next().unwrap_or_default();
        for literal in source::literals(source) {
            all.push('\n');
            let mut depth = 0_usize;
            for word in unescaped(literal).split_inclusive(['{', '}']) {
                let text = word.trim_end_matches(['{', '}']);
                all.extend((depth == 0).then_some(text));
                match word.chars().next_back() {
                    Some('{') => depth += 1,
                    Some('}') => depth = depth.saturating_sub(1),
                    _ => {}
                }
                all.extend((text.len() < word.len()).then_some('\n'));
            }
        }
    }
    all
}

/// A literal as it is printed: a line that continues on the next one, quotes; and without marks of code.
fn unescaped(literal: &str) -> String {
    let mut out = String::with_capacity(literal.len());
    let mut lines = literal.split("\\\n");
    out.push_str(lines.next().unwrap_or_default());
    lines.for_each(|line| out.push_str(line.trim_start()));
    out.replace("\\\"", "\"").replace('`', "")
}

/// Names the messages of which the literals lack a piece.
fn compare(page: &str, literals: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut in_table = false;
    for (index, line) in page.lines().enumerate() {
        in_table = line.starts_with('|') && (in_table || line.starts_with("| message"));
        if !in_table || line.starts_with("| message") || line.starts_with("|---") {
            continue;
        }
        let cell = line.split('|').nth(1).unwrap_or_default();
        for message in cell.split('`').skip(1).step_by(2) {
            let pieces: Vec<&str> = pieces(message);
            let said = |piece: &&str| literals.contains(*piece) || OF_THE_SYSTEM.contains(piece);
            if pieces.is_empty() || !pieces.iter().all(said) {
                faults.push(format!("{PAGE}:{}: nothing says `{message}`", index + 1));
            }
        }
    }
    faults
}

/// The parts of a message between what varies: capital letters, [`VARIES`], `...`, and what follows a colon, which another part of
/// the program may say.
fn pieces(message: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    for part in message.split("...").flat_map(|part| part.split(": ")) {
        let mut start = 0;
        let words = part.split(' ').scan(0, |at, word| {
            let from = *at;
            *at += word.len() + 1;
            Some((from, word))
        });
        for (from, word) in words {
            let bare = word.trim_matches(|letter: char| !letter.is_alphanumeric());
            let is_letter = bare.len() == 1 && bare.starts_with(|letter: char| letter.is_ascii_uppercase());
            if is_letter || VARIES.contains(&bare) {
                pieces.push(&part[start..from]);
                start = (from + word.len()).min(part.len());
            }
        }
        pieces.push(&part[start..]);
    }
    let trimmed = pieces.iter().map(|piece| piece.trim_matches(|letter: char| " ,:;()?".contains(letter)));
    trimmed.filter(|piece| piece.len() >= PIECE_MIN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#[error(\"SRC {path} cannot be used: {error}\")]\nf(\"it is \\\n   `long`, {a}\");\n\
                          // nothing says \"a comment\"\n#[cfg(test)]\nmod tests { \"only a test\" }";

    fn faults(messages: &str) -> usize {
        let page = format!("| message | why |\n|---|---|\n| {messages} | x |\n");
        compare(&page, &literals(&[SOURCE.to_owned()])).len()
    }

    #[test]
    fn messages_of_the_source_pass() {
        for message in [
            "`SRC X cannot be used: ...`",
            "`SRC X cannot be used: No such file or directory`, `it is long, N`",
            "no message",
        ] {
            assert_eq!(faults(message), 0, "{message}");
        }
        assert_eq!(compare("| error | when |\n|---|---|\n| `unknown` | x |\n", "").len(), 0);
    }

    #[test]
    fn a_message_that_nothing_says_is_named() {
        for message in [
            "`X cannot be found: ...`",
            "`a comment`",
            "`only a test`",
            "`X ...`",
            "`SRC X cannot be used: No luck`",
        ] {
            assert_eq!(faults(message), 1, "{message}");
        }
    }
}
