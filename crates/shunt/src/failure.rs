//! How a command fails: one line that says what is wrong and what to do, and an exit code.

use std::fmt;

use shuntfs_seal::Shown;

/// Whose fault it is, which decides the exit code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// The command line is wrong.
    Usage,
    /// The command line is fine and the thing cannot be done.
    Failed,
}

/// Why a command failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
    /// Lines below the message.
    details: Vec<String>,
}

impl Failure {
    /// A failure of the thing itself: exit code 1.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, message: message.into(), hint: None, details: Vec::new() }
    }

    /// A wrong command line: exit code 2.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, message: message.into(), hint: None, details: Vec::new() }
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds lines below the message.
    #[must_use]
    pub fn details(mut self, lines: impl IntoIterator<Item = String>) -> Self {
        self.details.extend(lines);
        self
    }

    /// Whose fault it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The exit code of the commands.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Usage => 2,
            Kind::Failed => 1,
        }
    }

    /// The exit code that mount(8) expects of a mount helper: 1 is a wrong call, 32 a failed mount.
    #[must_use]
    pub fn helper_exit_code(&self) -> u8 {
        match self.kind {
            Kind::Usage => 1,
            Kind::Failed => 32,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The message must stay one line, and each detail, whatever file names they quote.
        match &self.hint {
            None => write!(out, "{}", one_line(&self.message))?,
            Some(hint) => write!(out, "{} ({})", one_line(&self.message), one_line(hint))?,
        }
        self.details.iter().try_for_each(|line| write!(out, "\n{}", one_line(line)))
    }
}

impl std::error::Error for Failure {}

/// A text as one line for a terminal.
pub(crate) fn one_line(text: &str) -> String {
    without_numbers(&without_controls(text))
}

/// Names that are quoted must not move the cursor of a terminal.
fn without_controls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => shown.push(' '),
            letter if letter.is_control() => {
                shown.push_str(&Shown::bytes(letter.encode_utf8(&mut [0; 4]).as_bytes()).to_string())
            }
            letter => shown.push(letter),
        }
    }
    shown
}

/// std writes the number behind the words of a system error, which helps no user.
pub(crate) fn without_numbers(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(" (os error ") {
        words.push_str(before);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    words + rest
}

#[cfg(test)]
mod test {
    use super::*;

    /// `complain` says so what a server of another user says.
    #[test]
    fn a_text_for_a_terminal_is_one_line_that_obeys_nothing() {
        let said = one_line("/a: its server says: \x1b]0;x\x07\x1b[2J\nshunt: all is well\r\u{9b}1m\u{7f}");
        assert!(!said.chars().any(char::is_control), "{said:?}");
        assert!(
            said.starts_with(r"/a: its server says: \x1b]0;x") && said.contains(" shunt: all is well"),
            "{said}"
        );
    }

    #[test]
    fn a_failure_is_one_line_and_has_its_exit_codes() {
        let failed = Failure::new("no folder a\nb").hint("make it");
        assert_eq!(failed.to_string(), "no folder a b (make it)");
        assert_eq!((failed.exit_code(), failed.helper_exit_code()), (1, 32));
        assert_eq!(Failure::new("a\x1b[2Jb\u{9b}").to_string(), r"a\x1b[2Jb\u{9b}");
        let more = Failure::new("two").details(["1:1: a\nb".to_owned(), "2:1: c".to_owned()]);
        assert_eq!(more.to_string(), "two\n1:1: a b\n2:1: c");
        let os = Failure::new(format!("it: {}, so no", std::io::Error::from_raw_os_error(2)));
        assert_eq!(os.to_string(), "it: No such file or directory, so no");
        let usage = Failure::usage("what?");
        assert_eq!((usage.exit_code(), usage.helper_exit_code()), (2, 1));
    }
}
