//! How the server tells whoever started it that the mount answers, or why there is none.
//!
//! A server in the background writes lines to a pipe at its standard output: `note TEXT` and `doing TEXT` any number of
//! times, then `ready`, or `fail CODE TEXT`. One that stays in the foreground prints its notes.

use std::io::{self, BufRead, Write};

use shuntfs_sys::spawn;

use crate::failure::{Failure, Kind};
use crate::run::complain;

/// Where the news go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Announce {
    /// To the terminal: this process stays in the foreground.
    Terminal,
    /// To the parent, which waits for them.
    Parent,
    /// To the log: whoever started the mount has heard long since that it answers.
    Log,
}

/// Stands for a line break inside of a text (the record separator of ASCII).
const LINE_BREAK: char = '\u{1e}';

/// What is heard before that.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum News<'a> {
    /// Something that the user should know.
    Note(&'a str),
    /// What takes its time now.
    Doing(&'a str),
}

/// How a start went.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The mount answers.
    Ready,
    /// There is none.
    Failed(Failure),
    /// The server ended without a word.
    Silence,
}

impl Announce {
    pub(crate) fn to_terminal() -> Self {
        Self::Terminal
    }

    pub(crate) fn to_parent() -> Self {
        // Until the mount answers nobody knows of this server but its parent: where that is ended, so is this.
        let _lives_on = spawn::end_with_parent(true);
        Self::Parent
    }

    /// Whether a parent waits.
    pub(crate) fn has_parent(self) -> bool {
        self == Self::Parent
    }

    /// Something that the user should know.
    pub(crate) fn note(self, text: &str) {
        match self {
            Self::Terminal => complain(&format!("shunt: note: {text}")),
            Self::Parent => {
                let _parent_gone = say(&format!("note {text}"));
            }
            Self::Log => tracing::info!("{text}"),
        }
    }

    /// What takes its time now, for a parent that shows it.
    pub(crate) fn doing(self, what: &str) {
        if self == Self::Parent {
            let _parent_gone = say(&format!("doing {what}"));
        }
    }

    /// The mount answers.
    ///
    /// # Errors
    /// Where the parent is gone: then nobody knows of this mount.
    pub(crate) fn ready(self) -> io::Result<()> {
        if self == Self::Parent { say("ready") } else { Ok(()) }
    }

    /// There is no mount. In the foreground, the caller prints it.
    pub(crate) fn failed(self, failure: &Failure) {
        if self == Self::Parent {
            let word = match failure.kind() {
                Kind::Usage => "usage",
                Kind::Failed => "failed",
            };
            let _parent_gone = say(&format!("fail {word} {failure}"));
        }
    }
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", line.replace('\n', &LINE_BREAK.to_string()))?;
    out.flush()
}

/// Listens to a server until it is known how its start went; what comes before is passed on.
pub(crate) fn listen(news: impl BufRead, mut hear: impl FnMut(News<'_>)) -> Outcome {
    for line in news.lines() {
        let Ok(line) = line else { return Outcome::Silence };
        match line.split_once(' ') {
            None if line == "ready" => return Outcome::Ready,
            Some(("note", text)) => hear(News::Note(text)),
            Some(("doing", text)) => hear(News::Doing(text)),
            Some(("fail", text)) => {
                return Outcome::Failed(match text.split_once(' ') {
                    Some(("usage", text)) => lines(text, Failure::usage),
                    Some((_, text)) => lines(text, Failure::new),
                    None => lines(text, Failure::new),
                });
            }
            _ => {}
        }
    }
    Outcome::Silence
}

/// A failure of these words: the first line, and the details below it.
fn lines(text: &str, make: fn(String) -> Failure) -> Failure {
    let mut lines = text.split(LINE_BREAK).map(str::to_owned);
    make(lines.next().unwrap_or_default()).details(lines)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_news_of_a_server_are_understood() {
        let mut notes = Vec::new();
        let mut hear = |news: &str| listen(news.as_bytes(), |news| notes.push(format!("{news:?}")));
        assert_eq!(hear("note careful now\ndoing much\nready\n"), Outcome::Ready);
        assert_eq!(
            hear("fail failed no such folder (make it)\n"),
            Outcome::Failed(Failure::new("no such folder (make it)"))
        );
        assert_eq!(
            hear("fail failed one\u{1e}two\n"),
            Outcome::Failed(Failure::new("one").details(["two".to_owned()]))
        );
        assert_eq!(hear("fail usage what?\n"), Outcome::Failed(Failure::usage("what?")));
        assert_eq!(hear("nonsense\n"), Outcome::Silence);
        assert_eq!(hear(""), Outcome::Silence);
        assert_eq!(notes, ["Note(\"careful now\")", "Doing(\"much\")"]);
    }
}
