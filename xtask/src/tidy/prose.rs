//! Documents and comments are written in plain English: a list of phrases that are not, each with a better one.

use std::path::Path;

/// Unidiomatic phrases that were found here, with what to write instead. Only whole words match, regardless of case.
const PHRASES: &[(&str, &str)] = &[
    ("to be had", "available"),
    ("on end", "sequentially"),
    ("is to be", "must be, or will be"),
    ("are to be", "must be, or will be"),
    ("is looked at", "is checked"),
    ("are looked at", "are checked"),
    ("looks whether", "checks whether"),
    ("looked whether", "checked whether"),
    ("at the begin", "at the start"),
    ("from the begin", "from the start"),
    ("for ever", "forever"),
    ("is not there", "is missing, or does not exist"),
    ("are not there", "are missing, or do not exist"),
    ("what is there", "what exists"),
    ("takes away", "removes"),
    ("take away", "remove"),
    ("taken away", "removed"),
    ("in the place of", "instead of"),
    ("wished for", "asked for, or requested"),
    ("is believed", "is trusted"),
    ("are believed", "are trusted"),
    ("what becomes of", "what happens to"),
    ("working folder", "working directory"),
    ("is mended", "is repaired"),
    ("all the same", "anyway, or still"),
    ("without end", "forever"),
    ("of no use", "useless"),
];

/// The same, in documents only: comments still have them.
const IN_DOCUMENTS: &[(&str, &str)] = &[
    ("is there to be", "if there is"),
    ("whoever", "anyone who"),
    ("for who", "for those who"),
    ("of who", "of those who"),
    ("to who", "to those who"),
    ("by who", "by those who"),
    ("who reads", "a reader, or sequential reads"),
    ("goes on on", "continues on"),
    ("there are not", "there are no, or that do not exist"),
    ("for the sake of", "because of"),
    ("it is said", "a message says"),
    ("that is said", "a message says so"),
    ("the like", "similar"),
    ("gives nobody a right", "grants no privileges"),
    ("let in", "given access"),
    ("gets in", "has access"),
    ("get in", "have access"),
    ("as said above", "as described above"),
    ("others than", "other than"),
    ("here and there", "at random"),
];

/// Documents outside of `docs` that are checked, too.
const AT_THE_TOP: &[&str] = &["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"];

/// Documents that a program writes.
const GENERATED: &[&str] = &["docs/benchmarks.md", "docs/benchmarks-full.md"];

/// Checks the comments of Rust source, a document in `docs`, or one of [`AT_THE_TOP`]; others pass.
pub(crate) fn check(name: &str, text: &str) -> Vec<String> {
    let in_docs = Path::new(name).parent() == Some(Path::new("docs")) && name.ends_with(".md");
    let is_document = (in_docs || AT_THE_TOP.contains(&name)) && !GENERATED.contains(&name);
    if name.ends_with(".rs") {
        faults(name, &comments(text), PHRASES.iter())
    } else if is_document {
        faults(name, text, PHRASES.iter().chain(IN_DOCUMENTS))
    } else {
        Vec::new()
    }
}

/// Returns the comments that have lines of their own, line by line; other lines are empty.
fn comments(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let line = line.trim_start();
        if line.starts_with("//") { line.trim_start_matches(['/', '!']) } else { "" }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn faults<'p>(name: &str, text: &str, phrases: impl Iterator<Item = &'p (&'p str, &'p str)>) -> Vec<String> {
    let words = words(text);
    let found = phrases.flat_map(|(phrase, instead)| {
        let phrase_words: Vec<&str> = phrase.split(' ').collect();
        let at = words.windows(phrase_words.len()).filter(move |window| is_phrase(window, &phrase_words));
        at.map(move |window| (window[0].line, *phrase, *instead))
    });
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    found
        .iter()
        .map(|(line, phrase, instead)| {
            format!("{name}:{line}: `{phrase}` is not plain English; write: {instead}")
        })
        .collect()
}

/// One word of prose.
struct Word {
    line: usize,
    text: String,
    /// Whether a phrase ends here: after punctuation, a table cell or code.
    is_last: bool,
}

fn is_phrase(window: &[Word], phrase: &[&str]) -> bool {
    let same = window.iter().zip(phrase).all(|(word, wanted)| word.text == *wanted);
    same && window.iter().rev().skip(1).all(|word| !word.is_last)
}

/// Splits a text into words. Fenced code is skipped; a code span counts as one word.
fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let (mut fenced, mut in_code) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fence || fenced {
            continue;
        }
        let ends = line.trim().is_empty() || line.starts_with('|');
        if let Some(last) = words.last_mut().filter(|_| ends) {
            last.is_last = true;
        }
        // A code span may go over lines, but not out of its paragraph.
        in_code &= !ends;
        for (part, span) in line.split('`').enumerate() {
            in_code ^= part > 0;
            if in_code {
                words.push(Word { line: index + 1, text: "`".to_owned(), is_last: true });
                continue;
            }
            words.extend(span.split_whitespace().filter_map(|piece| word(index + 1, piece)));
        }
    }
    words
}

fn word(line: usize, piece: &str) -> Option<Word> {
    let start = piece.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    let text = start.trim_end_matches(|letter: char| !letter.is_alphanumeric());
    let is_bar = piece == "|";
    if text.is_empty() && !is_bar {
        return None;
    }
    let is_last = is_bar || start.len() > text.len();
    Some(Word { line, text: text.to_lowercase(), is_last })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_phrase_is_found() {
        let text = "# Title\n\nIt takes the best to\nbe had. Whoever asks, *reads*.\n";
        assert_eq!(
            check("docs/a.md", text),
            [
                "docs/a.md:3: `to be had` is not plain English; write: available",
                "docs/a.md:4: `whoever` is not plain English; write: anyone who"
            ]
        );
        assert_eq!(check("README.md", text).len(), 2);
        assert_eq!(check("README.md", "Give `--a\nb` to be had\n").len(), 1);
        assert_eq!(check("README.md", "Give `--a\n\nto be had\n").len(), 1);
    }

    #[test]
    fn every_phrase_is_found_in_a_sentence() {
        for (phrase, _) in PHRASES.iter().chain(IN_DOCUMENTS) {
            let text = format!("Before {phrase} after.\n");
            assert!(!check("docs/a.md", &text).is_empty(), "{phrase}");
        }
    }

    #[test]
    fn comments_of_source_are_checked() {
        let text = "fn at() {\n    // It is not\n    // there.\n    let end = \"on end\"; // on end\n}\n/// Whoever.\n";
        assert_eq!(
            check("crates/a/src/b.rs", text),
            [
                "crates/a/src/b.rs:2: `is not there` is not plain English; write: is missing, or does not exist"
            ]
        );
    }

    #[test]
    fn code_sentences_and_other_documents_pass() {
        for text in [
            "`the transport is not to be had`\n",
            "Give `--to be had\nto be had` here\n",
            "```text\nto be had\n```\n",
            "It goes on. End of it.\n",
            "| a | on | end | of |\n",
            "To be had-like. `on` end\n",
        ] {
            assert_eq!(check("docs/a.md", text), Vec::<String>::new(), "{text}");
        }
        for name in ["CHANGELOG.md", "docs/benchmarks.md", "crates/a/docs/b.md"] {
            assert_eq!(check(name, "on end\n"), Vec::<String>::new(), "{name}");
        }
    }
}
