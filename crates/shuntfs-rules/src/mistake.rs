//! What is wrong with a file of rules, and where.

use std::fmt;
use std::ops::Range;

/// One mistake.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Mistake {
    /// The line, from 1 on.
    pub line: usize,
    /// The column in characters, from 1 on.
    pub column: usize,
    /// What is wrong, and, where that is clear, what would be right.
    pub text: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.text)
    }
}

/// Every mistake of one file, in the order of their places; never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistakes {
    /// The file's name, as it is shown.
    pub file: String,
    /// The mistakes.
    pub all: Vec<Mistake>,
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, mistake) in self.all.iter().enumerate() {
            let newline = if place == 0 { "" } else { "\n" };
            write!(f, "{newline}{}:{mistake}", self.file)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// Mistakes on their way together.
#[derive(Debug)]
pub(crate) struct Findings<'s> {
    source: &'s str,
    /// Where the lines start.
    lines: Vec<usize>,
    found: Vec<Mistake>,
}

impl<'s> Findings<'s> {
    pub(crate) fn new(source: &'s str) -> Self {
        let newlines = source.match_indices('\n').map(|(newline, _)| newline + 1);
        Self { source, lines: std::iter::once(0).chain(newlines).collect(), found: Vec::new() }
    }

    pub(crate) fn source(&self) -> &'s str {
        self.source
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Notes a mistake at a place of the source.
    pub(crate) fn add(&mut self, at: &Range<usize>, text: impl Into<String>) {
        let (line, column) = self.place(at.start);
        self.found.push(Mistake { line, column, text: text.into() });
    }

    /// Notes a mistake with the word that was probably meant.
    pub(crate) fn add_unknown<'k>(
        &mut self,
        at: &Range<usize>,
        what: &str,
        word: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) {
        let known: Vec<&str> = known.into_iter().collect();
        self.add(at, unknown_word(what, word, &known));
    }

    /// Line and column of a byte.
    pub(crate) fn place(&self, offset: usize) -> (usize, usize) {
        let mut end = offset.min(self.source.len());
        while !self.source.is_char_boundary(end) {
            end -= 1;
        }
        let line = self.lines.partition_point(|start| *start <= end);
        let line_start = self.lines[line - 1];
        (line, self.source[line_start..end].chars().count() + 1)
    }

    /// All of them, in the order of their places.
    pub(crate) fn sorted(mut self) -> Vec<Mistake> {
        self.found.sort();
        self.found.dedup();
        self.found
    }
}

/// What is said of a word that is not known: the one that was probably meant, or all that there are.
pub(crate) fn unknown_word(what: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known) {
        Some(near) => format!("unknown {what} `{word}`; did you mean `{near}`?"),
        None => format!("unknown {what} `{word}`; there are: {}", known.join(", ")),
    }
}

/// How alike two words must be, from 0 to 1, for the one to have been meant by the other.
const ALIKE: f64 = 0.75;

/// The known word that is most alike; short ones with two letters exchanged, too, which the measure thinks little of.
fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let score = |candidate: &str| {
        let is_slip = word.len() > 2 && strsim::damerau_levenshtein(word, candidate) == 1;
        strsim::jaro_winkler(word, candidate).max(if is_slip { ALIKE } else { 0.0 })
    };
    let scored = known.iter().map(|candidate| (score(candidate), *candidate));
    scored.filter(|(score, _)| *score >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, name)| name)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn places_are_counted_in_characters_from_one() {
        let findings = Findings::new("a\nöx\n");
        for (offset, place) in
            [(0, (1, 1)), (1, (1, 2)), (2, (2, 1)), (3, (2, 1)), (4, (2, 2)), (6, (3, 1)), (99, (3, 1))]
        {
            assert_eq!(findings.place(offset), place, "{offset}");
        }
    }

    #[test]
    fn the_nearest_word_is_named_or_all_are() {
        let mut findings = Findings::new("x");
        findings.add_unknown(&(0..1), "key", "raed_only", ["read_only", "hide"]);
        findings.add_unknown(&(0..1), "key", "zzz", ["read_only", "hide"]);
        let texts: Vec<String> = findings.sorted().into_iter().map(|mistake| mistake.text).collect();
        assert_eq!(
            texts,
            [
                "unknown key `raed_only`; did you mean `read_only`?",
                "unknown key `zzz`; there are: read_only, hide"
            ]
        );
    }
}
