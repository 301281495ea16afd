//! Rust source without what is not code.

/// Returns the text with comments and the insides of literals blanked out, line by line as it was.
pub(crate) fn code(text: &str) -> String {
    scanned(text).out
}

/// Returns what is between the quotes of each string, as it is written; of raw strings with their marks.
pub(crate) fn literals(text: &str) -> Vec<&str> {
    scanned(text).literals
}

fn scanned(text: &str) -> Scanner<'_> {
    let mut scanner = Scanner { rest: text, out: String::with_capacity(text.len()), literals: Vec::new() };
    while !scanner.rest.is_empty() {
        scanner.step();
    }
    scanner
}

struct Scanner<'a> {
    rest: &'a str,
    out: String,
    literals: Vec<&'a str>,
}

impl Scanner<'_> {
    fn step(&mut self) {
        if self.rest.starts_with("//") {
            let len = self.rest.find('\n').unwrap_or(self.rest.len());
            self.blank(len);
        } else if self.rest.starts_with("/*") {
            self.blank(block_comment_len(self.rest));
        } else if let Some(len) = raw_string_len(self.rest, self.out.chars().last()) {
            self.literals.push(&self.rest[..len]);
            self.blank(len);
        } else if self.rest.starts_with('"') {
            let len = string_len(self.rest);
            self.literals.push(self.rest[1..len].trim_end_matches('"'));
            self.blank(len);
        } else if let Some(len) = char_len(self.rest) {
            self.blank(len);
        } else {
            let len = self.rest.chars().next().map_or(0, char::len_utf8);
            self.out.push_str(&self.rest[..len]);
            self.rest = &self.rest[len..];
        }
    }

    fn blank(&mut self, len: usize) {
        let (gone, rest) = self.rest.split_at(len);
        self.out.extend(gone.chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }));
        self.rest = rest;
    }
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

fn raw_string_len(text: &str, before: Option<char>) -> Option<usize> {
    if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_') {
        return None;
    }
    let start = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let after = &text[start.len()..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let open = start.len() + hashes + 1;
    Some(body.find(&end).map_or(text.len(), |at| open + at + end.len()))
}

fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, letter) in text.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a character literal; a lifetime is none.
fn char_len(text: &str) -> Option<usize> {
    let body = text.strip_prefix('\'')?;
    let first = body.chars().next()?;
    if first == '\\' {
        let end = body.char_indices().skip(2).find(|&(_, letter)| letter == '\'')?;
        return Some(end.0 + 2);
    }
    body[first.len_utf8()..].starts_with('\'').then_some(first.len_utf8() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank() {
        for (text, left) in [
            ("a // b\nc", "a\nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("a\"b")"#, "f(      )"),
            ("r#\"a\"b\"# c", "         c"),
            ("'x' 'a", "    'a"),
            (r"'\'' b", "     b"),
            (r"'\u{1f}' b", "         b"),
            ("\"a\nb\" c", " \n   c"),
        ] {
            let trimmed: Vec<_> = code(text).lines().map(|line| line.trim_end().to_owned()).collect();
            let wanted: Vec<_> = left.lines().map(|line| line.trim_end().to_owned()).collect();
            assert_eq!(trimmed, wanted, "{text}");
        }
    }

    #[test]
    fn literals_are_found_outside_of_comments() {
        let text = "f(\"a \\\" b\"); // \"c\"\nr#\"d\"# '\"' \"e\"";
        assert_eq!(literals(text), ["a \\\" b", "r#\"d\"#", "e"]);
    }

    #[test]
    fn lines_stay_where_they_are() {
        let text = "a\n/* b\nc */\nd \"e\nf\"\n";
        assert_eq!(code(text).lines().count(), text.lines().count());
    }
}
