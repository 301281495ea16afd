//! The two forms in which mergerfs is asked for a mount: a line of fstab, and a call of the program.

use std::fmt;
use std::ops::Range;

use super::translate::{Asked, Word};
use crate::failure::Failure;

/// A line of fstab that asks for mergerfs.
#[derive(Debug)]
pub(super) struct FstabLine<'a> {
    line: &'a str,
    /// Where its fields are: source, mount point, type, options, dump, pass.
    fields: Vec<Range<usize>>,
}

impl<'a> FstabLine<'a> {
    /// `None` where it asks for something else, or for nothing.
    pub(super) fn of(line: &'a str) -> Option<Self> {
        let mut fields = Vec::new();
        let is_blank = |letter: char| letter == ' ' || letter == '\t';
        let mut at = 0;
        for part in line.trim_end_matches(['\n', '\r']).split(is_blank) {
            if !part.is_empty() {
                fields.push(at..at + part.len());
            }
            at += part.len() + 1;
        }
        let text = |place: usize| fields.get(place).map_or("", |range| &line[range.clone()]);
        let is_ours = match text(2) {
            "mergerfs" | "fuse.mergerfs" => true,
            "fuse" => text(0).starts_with("mergerfs#"),
            _ => false,
        };
        let is_call = text(1).starts_with('-');
        (is_ours && !is_call && !text(0).starts_with('#')).then_some(Self { line, fields })
    }

    fn text(&self, place: usize) -> Result<String, Failure> {
        let field = self.fields.get(place).map_or("", |range| &self.line[range.clone()]);
        decode(field).ok_or_else(|| Failure::usage(format!("{field} is no text (UTF-8)")))
    }

    /// What it asks for.
    ///
    /// # Errors
    /// Where its escapes stand for something that is no text.
    pub(super) fn asked(&self) -> Result<Asked, Failure> {
        let source = self.text(0)?;
        let source = source.strip_prefix("mergerfs#").unwrap_or(&source).to_owned();
        let (mountpoint, options) = (Some(self.text(1)?), split(&self.text(3)?));
        Ok(Asked { branches: vec![source], mountpoint, options, flags: Vec::new() })
    }

    /// The same line with these in place of its own; blanks between fields, and what follows them, stay.
    pub(super) fn with(&self, source: &str, mountpoint: &str, options: &str) -> String {
        let news = [encode(source), encode(mountpoint), "fuse.shunt".to_owned(), encode(options)];
        let mut text = String::new();
        let mut end = 0;
        for (field, new) in self.fields.iter().zip(&news) {
            text.push_str(&self.line[end..field.start]);
            text.push_str(new);
            end = field.end;
        }
        if self.fields.len() == 3 {
            text = format!("{text} {}", news[3]);
        }
        text + self.line[end..].trim_end_matches(['\n', '\r'])
    }
}

impl fmt::Display for FstabLine<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.line.trim())
    }
}

/// Takes the escapes of fstab for their bytes: a backslash and three octal digits.
fn decode(field: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        let number = digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        match number.filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

fn encode(field: &str) -> String {
    // One at the start would make a comment of the line.
    let escaped = field.char_indices().map(|(place, letter)| match letter {
        '#' if place == 0 => "\\043".to_owned(),
        ' ' | '\t' | '\n' | '\\' => format!("\\{:03o}", u32::from(letter)),
        other => other.to_string(),
    });
    escaped.collect()
}

/// The options of a list; quotes protect commas, as for mount(8), and so does a backslash.
fn split(list: &str) -> Vec<Word> {
    let mut words = vec![String::new()];
    let (mut is_quoted, mut is_escaped) = (false, false);
    for letter in list.chars() {
        if letter == ',' && !is_quoted && !is_escaped {
            words.push(String::new());
            continue;
        }
        is_quoted ^= letter == '"' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        if let Some(word) = words.last_mut() {
            word.push(letter);
        }
    }
    words.iter().filter(|word| !word.trim().is_empty()).map(|word| Word::escaped(word)).collect()
}

/// What a call of mergerfs asks for. The name of the program may stand before its arguments, and so may `mount -t mergerfs`.
pub(super) fn of_call(words: &[String]) -> Asked {
    let start = program(words).map_or(0, |place| place + 1);
    let mut asked = Asked::default();
    let mut rest = words[start..].iter();
    while let Some(word) = rest.next() {
        match word.as_str() {
            "-o" => asked.options.extend(rest.next().into_iter().flat_map(|list| split(list))),
            "-t" => drop(rest.next()),
            flag if flag.starts_with("-o") => asked.options.extend(split(&flag[2..])),
            flag if flag.len() > 1 && flag.starts_with('-') => asked.flags.push(word.clone()),
            _ => asked.branches.push(word.clone()),
        }
    }
    let has_mountpoint = asked.options.iter().any(|word| ["mountpoint", "mount"].contains(&word.name()));
    if !has_mountpoint {
        asked.mountpoint = asked.branches.pop();
    }
    asked
}

/// Whether the name of the program stands before its arguments.
pub(super) fn has_program(words: &[String]) -> bool {
    program(words).is_some()
}

/// Where the name of the program is, maybe behind `sudo`. A branch, or the mount point, may be called so, too.
fn program(words: &[String]) -> Option<usize> {
    let is_program = |word: &String| {
        let (folder, name) = word.rsplit_once('/').unwrap_or(("bin", word));
        folder.ends_with("bin")
            && ["mergerfs", "mount.mergerfs", "mount.fuse.mergerfs", "mount"].contains(&name)
    };
    words.iter().take(2).position(is_program)
}

/// The words of a line as a shell has them.
pub(super) fn words_of(line: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(letters.next()),
            (None, ' ' | '\t' | '\n') => words.extend(word.take()),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// A word as a shell takes it for one.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=+:,./@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn fields_of_fstab_have_their_escapes() {
        for (field, text) in [
            (r"/mnt/my\040disk", "/mnt/my disk"),
            (r"a\134b\011c", "a\\b\tc"),
            (r"\04", r"\04"),
            (r"\,", r"\,"),
            (r"/\303\244", "/\u{e4}"),
            ("\\", "\\"),
            (r"\043a#b", "#a#b"),
        ] {
            assert_eq!(decode(field).as_deref(), Some(text));
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
        assert_eq!(decode(r"/\377"), None);
    }

    #[test]
    fn lines_of_others_are_left_alone() {
        for line in [
            "",
            "# /a:/b /pool fuse.mergerfs defaults 0 0",
            "#/a:/b /pool fuse.mergerfs defaults 0 0",
            "/dev/sda1 / ext4 defaults 0 1",
            "/a /b fuse.bindfs x 0 0",
            "mergerfs /pool",
            "sshfs#a /b fuse x 0 0",
        ] {
            assert!(FstabLine::of(line).is_none(), "{line}");
        }
        let line = FstabLine::of("\t/a:/b   /p\\040l\tmergerfs\r\n").expect("is one");
        assert_eq!(line.with("/a", "/p l", "ro"), "\t/a   /p\\040l\tfuse.shunt ro");
    }

    #[test]
    fn words_are_a_shells() {
        let words = words_of(r#"mergerfs -o 'a=b c',d "/x y":/z\ w '' /p"#);
        assert_eq!(words, ["mergerfs", "-o", "a=b c,d", "/x y:/z w", "", "/p"]);
        for word in ["/a:/b=RW,10G", "a b", "it's", "/mnt/*", "", "$x"] {
            assert_eq!(words_of(&quoted(word)), [word]);
        }
    }

    #[test]
    fn quotes_and_backslashes_protect_commas() {
        let words = split(r#"a,fsname=x\,y,,x-y="p,q",c="#);
        let shown: Vec<(&str, Option<&str>)> = words.iter().map(|word| (word.name(), word.value())).collect();
        let expected = [("a", None), ("fsname", Some("x,y")), ("x-y", Some("\"p,q\"")), ("c", Some(""))];
        assert_eq!(shown, expected);
    }
}
