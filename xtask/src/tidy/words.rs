//! Words that say that something is not done, and tests that are switched off.

/// In code, with what to do instead; in two parts, as below, so that a search for them finds only faults.
const IN_CODE: &[(&str, &str)] = &[
    (concat!("to", "do!"), "write it"),
    (concat!("unimple", "mented!"), "write it"),
    ("dbg!", "use tracing"),
    (concat!("#[ig", "nore"), "a test runs, or says `SKIPPED: why`"),
];

/// Anywhere, comments too; written in two parts so that this file passes.
const ANYWHERE: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Checks one Rust file, given as it is and without comments and literals.
pub(crate) fn check(name: &str, text: &str, code: &str) -> Vec<String> {
    let mut faults = unfinished(name, text);
    for (number, line) in code.lines().enumerate() {
        for (word, instead) in IN_CODE {
            if has_word(line, word) {
                faults.push(format!("{name}:{}: `{word}`: {instead}", number + 1));
            }
        }
    }
    faults
}

/// Checks any text for words that promise work.
pub(crate) fn unfinished(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in ANYWHERE {
            if has_word(line, word) {
                faults.push(format!("{name}:{}: `{word}`: do it, or open an issue", number + 1));
            }
        }
    }
    faults
}

/// Returns whether a line has a word that is no part of another.
fn has_word(line: &str, word: &str) -> bool {
    let part = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(part);
        let after = line[at + word.len()..].chars().next().is_some_and(part);
        let longer = before || (after && word.ends_with(part));
        !longer
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source;

    fn faults(text: &str) -> usize {
        check("a.rs", text, &source::code(text)).len()
    }

    #[test]
    fn each_word_is_found() {
        for word in ANYWHERE {
            assert_eq!(faults(&format!("// {word}: later\n")), 1, "{word}");
        }
        for (word, _) in IN_CODE {
            assert_eq!(faults(&format!("{word}(x)\n")), 1, "{word}");
        }
    }

    #[test]
    fn words_inside_others_and_in_literals_pass() {
        assert_eq!(faults("let x = \"dbg!()\"; my_dbg!(1); // mktempXXXXXX\n"), 0);
    }
}
