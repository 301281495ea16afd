//! Names as they are printed. Whoever makes a name must not be able to print a line of ours, move the cursor of a
//! terminal, or make one name look like another.

use std::ffi::OsStr;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;

/// A name that can be printed: on one line, without control characters, another for each name.
///
/// What is no text, controls, and the marks that turn the direction of writing are written as in Rust and C: `\n`,
/// `\x1b`, `\u{202e}`; the backslash is doubled.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(&'a [u8]);

/// Shows a name or a path.
#[must_use]
pub fn shown<T: AsRef<OsStr> + ?Sized>(name: &T) -> Shown<'_> {
    Shown(name.as_ref().as_bytes())
}

impl<'a> Shown<'a> {
    /// Shows a name as manifests have it.
    #[must_use]
    pub fn bytes(name: &'a [u8]) -> Self {
        Self(name)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '\\' => out.write_str("\\\\")?,
                    '\n' | '\r' | '\t' => write!(out, "{}", letter.escape_default())?,
                    '\0'..='\x1f' | '\x7f' => write!(out, "\\x{:02x}", u32::from(letter))?,
                    _ if is_hidden(letter) => write!(out, "{}", letter.escape_unicode())?,
                    _ => out.write_char(letter)?,
                }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(out, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

/// Controls beyond ASCII, marks of direction, ends of lines and what has no width.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_are_printed_on_one_line_and_none_like_another() {
        for (name, wanted) in [
            (&b"plain name.txt"[..], "plain name.txt"),
            ("gr\u{fc}\u{df}e \u{1f600}".as_bytes(), "gr\u{fc}\u{df}e \u{1f600}"),
            (b"a\nb", r"a\nb"),
            (br"a\nb", r"a\\nb"),
            (b"\x1b[31m", r"\x1b[31m"),
            (b"\x00\x7f", r"\x00\x7f"),
            ("\u{85}\u{9b}".as_bytes(), r"\u{85}\u{9b}"),
            ("\u{202e}\u{2066}\u{2028}".as_bytes(), r"\u{202e}\u{2066}\u{2028}"),
            (b"\xff\xc3(", r"\xff\xc3("),
            (br"\xff", r"\\xff"),
        ] {
            assert_eq!(Shown::bytes(name).to_string(), wanted);
        }
    }
}
