//! What a target is.

use std::path::Path;

use super::template::BRANCHES;
use crate::process;
use crate::report::Kind;

/// One way to reach the lower folder.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// The column's name.
    pub(crate) name: String,
    /// Whose it is.
    pub(crate) kind: Kind,
    /// How it is mounted.
    pub(crate) mounting: Mounting,
    /// How it is mounted where files are to go by passthrough, should that be another command.
    pub(crate) passing: Option<Mounting>,
    /// Why it cannot be measured here, if so.
    pub(crate) missing: Option<String>,
    /// Which of our flows has to have moved what is read through it, where that is not certain.
    pub(crate) flow: Option<&'static str>,
}

/// How a target is mounted.
#[derive(Debug, Clone)]
pub(crate) enum Mounting {
    /// Not at all: the lower folder itself.
    Bare,
    /// By the kernel alone.
    Bind,
    /// Not at all: a program reads the file in the lower folder, at `{FILE}`.
    Program(Vec<String>),
    /// No file system at all: what a round trip costs between two threads.
    Pipe,
    /// By a program that stays in the foreground: its words, with places such as `{SRC}` and `{MNT}` to be replaced.
    Server(Vec<String>),
    /// By a program that shows the large file alone, on a file.
    FileServer(Vec<String>),
    /// By a program that shows a file whose contents are none of ours, on a file.
    OwnFileServer(Vec<String>),
}

impl Mounting {
    /// Returns the words of the server, if there is one.
    pub(crate) fn words(&self) -> Option<&[String]> {
        match self {
            Self::Bare | Self::Bind | Self::Pipe | Self::Program(_) => None,
            Self::Server(words) | Self::FileServer(words) | Self::OwnFileServer(words) => Some(words),
        }
    }
}

impl Target {
    pub(super) fn new(name: &str, kind: Kind, mounting: Mounting) -> Self {
        Self { name: name.to_owned(), kind, mounting, passing: None, missing: None, flow: None }
    }

    /// The lower folder itself.
    pub(crate) fn bare() -> Self {
        Self::floor("bare", Mounting::Bare)
    }

    /// The kernel's own way to show a folder elsewhere; for root alone.
    pub(crate) fn bind() -> Option<Self> {
        rustix::process::geteuid().is_root().then(|| Self::floor("bind", Mounting::Bind))
    }

    /// Two threads and two pipes.
    pub(crate) fn pipe() -> Self {
        Self::floor("pipe", Mounting::Pipe)
    }

    /// A program that hashes the file in the lower folder, where it is on the PATH.
    pub(crate) fn hashing() -> Option<Self> {
        let words = ["openssl", "dgst", "-sha256", "{FILE}"].map(str::to_owned);
        let mounting = Mounting::Program(words.to_vec());
        process::on_path(&words[0]).then(|| Self::new("openssl", Kind::Peer, mounting))
    }

    fn floor(name: &str, mounting: Mounting) -> Self {
        Self::new(name, Kind::Floor, mounting)
    }

    pub(super) fn peer(name: &str, words: &[&str]) -> Self {
        let mounting = Mounting::Server(words.iter().map(|&word| word.to_owned()).collect());
        Self::new(name, Kind::Peer, mounting)
    }

    /// Returns what is run, for the report.
    pub(crate) fn about(&self) -> String {
        match &self.mounting {
            Mounting::Bare => "the lower folder itself".to_owned(),
            Mounting::Program(words) => words.join(" "),
            Mounting::Bind => "mount --bind {SRC} {MNT}".to_owned(),
            Mounting::Pipe => {
                "a byte there and back between two threads on one CPU, through two pipes".to_owned()
            }
            server => command_line(server.words().unwrap_or_default()),
        }
    }

    /// Returns the target as it is where files are to go by passthrough.
    pub(crate) fn passing(mut self) -> Self {
        if let Some(mounting) = self.passing.take() {
            self.mounting = mounting;
        }
        self
    }

    /// Returns whether the target makes a copy of the large file, which must find room.
    pub(crate) fn copies_the_large_file(&self) -> bool {
        matches!(&self.mounting, Mounting::OwnFileServer(words) if words.iter().any(|word| word.contains("{SRC}")))
    }

    /// Returns whether the target shows several folders as one, where a case has several.
    pub(crate) fn shows_branches(&self) -> bool {
        self.mounting.words().is_some_and(|words| words.iter().any(|word| word.contains(BRANCHES)))
    }

    /// Returns whether the target shows the bytes of the lower folder, so that they can be compared.
    pub(crate) fn shows_lower_bytes(&self) -> bool {
        matches!(self.mounting, Mounting::Bind | Mounting::Server(_) | Mounting::FileServer(_))
    }
}

/// Returns a command as one would type it: where the program is on this machine is nobody's business.
fn command_line(words: &[String]) -> String {
    let Some((program, rest)) = words.split_first() else { return String::new() };
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    std::iter::once(name).chain(rest.iter().cloned()).collect::<Vec<_>>().join(" ")
}
