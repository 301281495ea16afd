//! A mount that goes from one program to another while it is in use: what the next one is told, and how it begins.
//!
//! The keeper becomes the other program (execveat(2)), and so stays the process that it was. Descriptors stay open under their
//! numbers: the device, its clones, the state, what the program itself asked for, and everything that the dead server had open, which the
//! state names by these numbers. A note in memory says which is which; everything that it does not name is a dead server's.
//!
//! The program that was before is held by a descriptor, too. Where no server of the next one becomes ready, that becomes the one before again,
//! with the same note, at the end of which is written why. A note is read by those alone who know its version. Once one is ready, the program
//! before is held for a while yet (`probation.rs`).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shuntfs::takeover::{Handover, KeptMount, STATE_VERSIONS, Surviving, TakeoverError, rehearse};
use shuntfs::{FuseDevice, SessionOptions};
use shuntfs_sys::program::{Program, pass_on};
use shuntfs_sys::spawn::{Inherited, inherited_fd, take_inherited};
use shuntfs_sys::{OsError, memory};
use thiserror::Error;

use crate::probation::Probation;
use crate::seat::Told;

/// The layout of notes that this release writes, and the only one that it reads.
const VERSION: u32 = 1;
/// More is no note of ours.
const LEN_MAX: usize = 1 << 20;

/// The word that tells a program that it goes on with a mount, with the number of the note: `--takeover-note=N`.
pub const NOTE_WORD: &str = "--takeover-note";
/// The word that tells it to try, and to do nothing: beside the other.
pub const TRIAL_WORD: &str = "--takeover-trial";
/// What a program prints, and nothing else, that could go on.
pub const SUITS: &str = "suits\n";

/// Which layouts a program reads of what is handed over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Layouts {
    /// Of notes from keeper to keeper.
    pub notes: Vec<u32>,
    /// Of what was agreed on with the kernel.
    pub handovers: Vec<u32>,
    /// Of the state that survives.
    pub states: Vec<u32>,
}

impl Layouts {
    /// Those of this program.
    #[must_use]
    pub fn here() -> Self {
        Self {
            notes: vec![VERSION],
            handovers: vec![Handover::VERSION],
            states: STATE_VERSIONS.map(u32::from).into(),
        }
    }

    /// What a program that reads these could not read of any mount that this one keeps. A trial tells whether it reads the state of a certain one.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let here = Self::here();
        let parts = [
            ("notes", &self.notes, here.notes),
            ("handovers", &self.handovers, here.handovers),
            ("states", &self.states, here.states),
        ];
        let missing =
            parts.into_iter().find(|(_, reads, here)| !here.iter().any(|version| reads.contains(version)));
        missing.map(|(what, reads, here)| {
            format!("it reads {what} of the layouts {reads:?}, and this program writes {here:?}")
        })
    }
}

/// How a program goes on instead of this one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Relay {
    /// The words that it is started with, its own name first.
    pub words: Vec<OsString>,
    /// Before which of them the words of the keeper are put ([`NOTE_WORD`], [`TRIAL_WORD`]).
    pub at: usize,
    /// Descriptors that it needs besides, by names.
    pub kept: Vec<(String, RawFd)>,
}

impl Relay {
    /// Without descriptors.
    #[must_use]
    pub fn new(words: Vec<OsString>, at: usize) -> Self {
        Self { words, at, kept: Vec::new() }
    }
}

/// Why nobody can go on with what was handed over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PassedError {
    /// The note is not one, or of another layout.
    #[error("the note of the program before cannot be read: {0}")]
    Note(#[source] io::Error),
    /// It is of another layout.
    #[error("the note of the program before has layout {found}, and {VERSION} is read")]
    Version {
        /// Its layout.
        found: u32,
    },
    /// A descriptor that it names is not open.
    #[error("{0} was not handed over")]
    Missing(String),
    /// The device cannot be used.
    #[error("what was handed over is no device ({0})")]
    Device(#[source] OsError),
    /// It cannot be gone on with.
    #[error(transparent)]
    Takeover(#[from] TakeoverError),
}

/// What a note says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Text {
    version: u32,
    /// Where it is mounted; `None` where somebody else did that.
    path: Option<Vec<u8>>,
    pub(crate) device: RawFd,
    pub(crate) clones: Vec<RawFd>,
    pub(crate) state: Option<RawFd>,
    pub(crate) handover: Handover,
    pub(crate) predecessors: u64,
    /// The note that a service manager has.
    pub(crate) stored: Option<RawFd>,
    /// Who asked for another program.
    pub(crate) asker: RawFd,
    pub(crate) kept: BTreeMap<String, RawFd>,
    /// The program before.
    pub(crate) former: RawFd,
    /// The last program that has proved itself, where that is another one. Releases that do not know it let it go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proven: Option<RawFd>,
    words: Vec<Vec<u8>>,
    at: usize,
}

impl Text {
    pub(crate) fn new(
        mount: &KeptMount,
        told: &Told,
        relay: &Relay,
        (asker, former, stored): (RawFd, RawFd, Option<RawFd>),
    ) -> Self {
        let path = Some(mount.path()).filter(|path| !path.starts_with("/dev/fd"));
        Self {
            version: VERSION,
            path: path.map(|path| path.as_os_str().as_bytes().to_vec()),
            device: mount.device().as_raw_fd(),
            clones: told.clones.iter().map(AsRawFd::as_raw_fd).collect(),
            state: told.state.as_ref().map(AsRawFd::as_raw_fd),
            handover: told.handover.clone(),
            predecessors: 0,
            stored,
            asker,
            kept: relay.kept.iter().cloned().collect(),
            former,
            proven: None,
            words: relay.words.iter().map(|word| word.as_bytes().to_vec()).collect(),
            at: relay.at,
        }
    }

    /// Every descriptor that it names.
    pub(crate) fn named(&self) -> Vec<RawFd> {
        let more = [self.state, self.stored, self.proven].into_iter().flatten();
        let all = [self.device, self.asker, self.former].into_iter().chain(more);
        all.chain(self.clones.iter().copied()).chain(self.kept.values().copied()).collect()
    }

    /// The command line of a program that is told of the note `number`.
    pub(crate) fn words(&self, number: RawFd, is_trial: bool) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.words.iter().cloned().map(OsString::from_vec).collect();
        let at = self.at.min(words.len());
        let own = [Some(format!("{NOTE_WORD}={number}")), is_trial.then(|| TRIAL_WORD.to_owned())];
        words.splice(at..at, own.into_iter().flatten().map(OsString::from));
        words
    }

    /// What a program gets of it that tries whether it could go on, with the note `number`.
    pub(crate) fn of_trial(&self, number: RawFd) -> Vec<RawFd> {
        self.kept.values().copied().chain(self.state).chain([number]).collect()
    }

    /// How the program was started that was told it.
    pub(crate) fn relay(&self) -> Relay {
        Relay {
            words: self.words.iter().cloned().map(OsString::from_vec).collect(),
            at: self.at,
            kept: self.kept.clone().into_iter().collect(),
        }
    }

    pub(crate) fn path(&self) -> Option<PathBuf> {
        self.path.as_ref().map(|path| OsStr::from_bytes(path).into())
    }
}

/// A note, in a file in memory: one line of text, and after it why the next program did not go on.
#[derive(Debug)]
pub(crate) struct PassedNote(File);

impl PassedNote {
    pub(crate) fn new() -> Result<Self, OsError> {
        memory::file_in_memory(c"shuntfs-passed").map(Self)
    }

    /// Writes it anew.
    pub(crate) fn write(&self, text: &Text) -> io::Result<()> {
        let mut line = serde_json::to_vec(text)?;
        line.push(b'\n');
        if line.len() > LEN_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.0.set_len(0)?;
        self.0.write_all_at(&line, 0)
    }

    /// Writes down why the next program does not go on.
    pub(crate) fn fails(&self, why: &str) -> io::Result<()> {
        let end = self.0.metadata()?.len();
        self.0.write_all_at(why.as_bytes(), end)
    }

    /// What it says, and why the next program did not go on, where that was written down.
    fn read(&self) -> Result<(Text, Option<String>), PassedError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let bytes = self.bytes().map_err(PassedError::Note)?;
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| PassedError::Note(io::ErrorKind::UnexpectedEof.into()))?;
        let unreadable = |error: serde_json::Error| PassedError::Note(error.into());
        let Version { version: found } = serde_json::from_slice(&bytes[..end]).map_err(unreadable)?;
        if found != VERSION {
            return Err(PassedError::Version { found });
        }
        let why = String::from_utf8_lossy(&bytes[end + 1..]).into_owned();
        let text = serde_json::from_slice(&bytes[..end]).map_err(unreadable)?;
        Ok((text, Some(why).filter(|why| !why.is_empty())))
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.0.metadata()?.len()).ok().filter(|len| *len <= LEN_MAX * 2);
        let mut bytes = vec![0; len.ok_or(io::ErrorKind::InvalidData)?];
        self.0.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

impl AsFd for PassedNote {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What leads back to the program before.
#[derive(Debug)]
pub(crate) struct Former {
    program: Program,
    note: PassedNote,
    text: Text,
}

impl Former {
    /// Becomes the program before again, which is told why. Whatever was opened since and is to stay open is in `more`. Returns only where that
    /// fails.
    pub(crate) fn returns(&self, why: &str, more: &[RawFd]) -> OsError {
        tracing::error!("goes back to the program before: {why}");
        if let Err(error) = self.note.fails(why) {
            tracing::warn!(%error, "the program before is not told why");
        }
        become_other(&self.program, &self.text, &self.note, more)
    }

    /// The numbers of what is closed with it.
    pub(crate) fn numbers(&self) -> [RawFd; 2] {
        [self.text.former, self.note.as_fd().as_raw_fd()]
    }

    /// A server is ready: what is left of it, as long as this program has not proved itself.
    pub(crate) fn settle(self) -> (Program, Text) {
        (self.program, self.text)
    }
}

/// Becomes another program, in which all that the note names stays open, and `more`. Returns only where that fails; nothing has happened then.
pub(crate) fn become_other(program: &Program, text: &Text, note: &PassedNote, more: &[RawFd]) -> OsError {
    let number = note.as_fd().as_raw_fd();
    let mut all = text.named();
    all.push(number);
    all.extend(more);
    let passed = all.iter().try_for_each(|number| pass_on(*number, true));
    let error = passed.err().unwrap_or_else(|| program.replace_this(text.words(number, false)));
    for number in all {
        // What is not open cannot be passed on either.
        let _not_open = pass_on(number, false);
    }
    error
}

/// Descriptors that were handed over and that nobody has taken yet.
struct Open(Vec<RawFd>);

impl Open {
    fn take(&mut self, number: RawFd, what: &str) -> Result<OwnedFd, PassedError> {
        let missing = || PassedError::Missing(what.to_owned());
        let place = self.0.iter().position(|open| *open == number).ok_or_else(missing)?;
        self.0.swap_remove(place);
        // It was marked to be closed on exec, and is taken as one that is not.
        pass_on(number, true).ok().and_then(|()| take_inherited(number)).ok_or_else(missing)
    }
}

/// A mount that another program kept until now, in this very process. Requests that were not answered wait.
///
/// As long as no server is ready, that program can be gone back to: [`keep_passed`](crate::keep_passed) does so where a server of this one fails,
/// and [`Passed::returns`] where this one cannot begin. Afterwards [`keep_passed`](crate::keep_passed) goes back where servers of this one die too
/// often, until one has served for [`Limits::within`](crate::Limits).
#[derive(Debug)]
pub struct Passed {
    pub(crate) mount: KeptMount,
    pub(crate) told: Told,
    pub(crate) stored: Option<OwnedFd>,
    pub(crate) predecessors: u64,
    /// What dead servers left open.
    pub(crate) left: Vec<RawFd>,
    pub(crate) asker: OwnedFd,
    /// `None` where this is the program before.
    pub(crate) former: Option<Former>,
    /// The last program that has proved itself, where that is neither this one nor the one before, and what this one was told.
    pub(crate) proven: Option<Probation>,
    /// Why the other program did not go on.
    pub(crate) failed: Option<String>,
    kept: BTreeMap<String, OwnedFd>,
}

impl Passed {
    /// Takes what was handed over, of which the note `number` tells ([`NOTE_WORD`]). To be called before this program opens anything, in a process
    /// with one thread.
    ///
    /// # Errors
    /// [`PassedError`].
    pub fn take(number: RawFd) -> Result<Self, PassedError> {
        // All that are open were handed over. From here on none goes to a program that is started.
        let open = Inherited::look().into_numbers().map_err(|error| PassedError::Note(error.into()))?;
        let mut open = Open(open);
        let note = PassedNote(File::from(open.take(number, "the note")?));
        let (text, failed) = note.read()?;
        let clones = text.clones.iter().map(|number| open.take(*number, "a clone of the device"));
        let clones = clones.collect::<Result<Vec<_>, _>>()?;
        let state = text.state.map(|number| open.take(number, "the state")).transpose()?;
        let stored =
            text.stored.map(|number| open.take(number, "the note of the service manager")).transpose()?;
        let kept = text.kept.iter().map(|(name, number)| Ok((name.clone(), open.take(*number, name)?)));
        let kept = kept.collect::<Result<BTreeMap<_, _>, PassedError>>()?;
        let asker = open.take(text.asker, "the connection of whoever asked")?;
        let program = Program::of(open.take(text.former, "the program before")?);
        // A release in between that did not know it may have closed it.
        let proven =
            text.proven.and_then(|number| open.take(number, "the program that has proved itself").ok());
        let proven = proven.map(|proven| Probation::new(Program::of(proven), text.clone()));
        let device =
            FuseDevice::from_fd(open.take(text.device, "the device")?).map_err(PassedError::Device)?;
        let mount = match text.path() {
            Some(path) => KeptMount::left_on(device, &path),
            None => KeptMount::of_device(device),
        };
        Ok(Self {
            mount,
            told: Told { handover: text.handover.clone(), clones, state },
            stored,
            predecessors: text.predecessors,
            left: open.0,
            asker,
            former: failed.is_none().then_some(Former { program, note, text }),
            proven,
            failed,
            kept,
        })
    }

    /// A descriptor that the program before had handed over by this name ([`Relay::kept`]), once.
    #[must_use]
    pub fn take_kept(&mut self, name: &str) -> Option<OwnedFd> {
        self.kept.remove(name)
    }

    /// The descriptors that the program before had handed over ([`Relay::kept`]), by their names. A program that cannot begin must leave them here,
    /// or hold them open until it has called [`Passed::returns`].
    pub fn kept(&mut self) -> &mut BTreeMap<String, OwnedFd> {
        &mut self.kept
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// The connection's number, as in `/sys/fs/fuse/connections`; `None` where it is not known.
    #[must_use]
    pub fn connection(&self) -> Option<u32> {
        self.mount.connection()
    }

    /// Goes back to the program before, because this one cannot begin: `why` is told to whoever asked for it. Descriptors that were taken
    /// ([`Passed::take_kept`]) must be open yet. Returns only where there is none, or that fails; the mount ends then, when this is dropped.
    #[must_use]
    pub fn returns(&self, why: &str) -> Option<OsError> {
        self.former.as_ref().map(|former| former.returns(why, &self.left))
    }
}

/// What a program is shown that is to try whether it could go on.
#[derive(Debug)]
pub struct Trial {
    text: Text,
}

impl Trial {
    /// Reads the note `number`.
    ///
    /// # Errors
    /// [`PassedError`].
    pub fn take(number: RawFd) -> Result<Self, PassedError> {
        let note = take_inherited(number).ok_or_else(|| PassedError::Missing("the note".to_owned()))?;
        PassedNote(File::from(note)).read().map(|(text, _)| Self { text })
    }

    /// A duplicate of a descriptor that would be handed over by this name.
    ///
    /// # Errors
    /// [`PassedError::Missing`].
    pub fn kept(&self, name: &str) -> Result<OwnedFd, PassedError> {
        let number = self.text.kept.get(name).copied();
        number
            .and_then(|number| inherited_fd(number).ok())
            .ok_or_else(|| PassedError::Missing(name.to_owned()))
    }

    /// Duplicates of all descriptors that would be handed over, by their names.
    ///
    /// # Errors
    /// [`PassedError::Missing`].
    pub fn all_kept(&self) -> Result<BTreeMap<String, OwnedFd>, PassedError> {
        self.text.kept.keys().map(|name| Ok((name.clone(), self.kept(name)?))).collect()
    }

    /// Where it is mounted; `None` where somebody else did that.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        self.text.path()
    }

    /// Whether `fs` could go on with what the server has, as far as that can be told while it serves. The program then prints [`SUITS`] and
    /// ends well.
    ///
    /// # Errors
    /// [`PassedError::Takeover`]: why it could not.
    pub fn check<F: Surviving>(&self, fs: &F, options: &SessionOptions) -> Result<(), PassedError> {
        let missing = || PassedError::Missing("the state".to_owned());
        let state = self.text.state.and_then(|number| inherited_fd(number).ok()).ok_or_else(missing)?;
        Ok(rehearse(fs, state, &self.text.handover, options)?)
    }
}

#[cfg(test)]
pub(crate) mod test {
    use super::*;

    /// What an earlier release writes, which knows of no program but the one before.
    const EARLIER: &str = r#"{"version":1,"path":[47,109],"device":5,"clones":[7],"state":8,"handover":{"version":1,
        "offered":{"minor":45,"max_readahead":131072,"flags":1},"agreed":{"minor":45,"flags":1,"max_write":4096,
        "max_pages":1,"max_readahead":131072,"max_background":12,"congestion_threshold":9,"time_gran":1,
        "max_stack_depth":0,"ops":3,"passthrough_off":null},"descriptors":2},"predecessors":3,"stored":null,"asker":9,
        "kept":{"root":10},"former":11,"words":[[97],[98]],"at":1}"#;

    pub(crate) fn note_of_an_earlier_release() -> Text {
        serde_json::from_str(EARLIER).expect("a note")
    }

    /// Programs of both releases go on with each other's notes.
    #[test]
    fn a_note_names_the_program_that_has_proved_itself_only_where_there_is_one() {
        let mut text = note_of_an_earlier_release();
        assert_eq!((text.proven, text.named()), (None, vec![5, 9, 11, 8, 7, 10]));
        let earlier: serde_json::Value = serde_json::from_str(EARLIER).expect("JSON");
        assert_eq!(serde_json::to_value(&text).expect("JSON"), earlier);
        text.proven = Some(12);
        assert!(text.named().contains(&12), "it stays open in the next program");
        assert_eq!(text.of_trial(20), [10, 8, 20], "a program that is tried does not get it");
        let note = PassedNote::new().expect("memory");
        note.write(&text).expect("writes");
        assert_eq!(note.read().expect("a note").0.proven, Some(12));
        let relay = text.relay();
        assert_eq!(
            (relay.words, relay.at, relay.kept),
            (vec!["a".into(), "b".into()], 1, vec![("root".into(), 10)])
        );
    }

    #[test]
    fn layouts_that_are_not_read_are_named() {
        assert_eq!(Layouts::here().missing(), None);
        let here = Layouts::here;
        for states in [vec![1], vec![2], vec![7, 1]] {
            assert_eq!(Layouts { states, ..here() }.missing(), None);
        }
        let newer = Layouts { states: vec![77], ..here() };
        assert_eq!(
            newer.missing().as_deref(),
            Some("it reads states of the layouts [77], and this program writes [1, 2]")
        );
        assert!(Layouts { notes: Vec::new(), ..here() }.missing().is_some_and(|why| why.contains("notes")));
        assert!(
            Layouts { handovers: vec![0], ..here() }.missing().is_some_and(|why| why.contains("handovers"))
        );
    }

    #[test]
    fn a_note_that_is_none_is_refused() {
        let note = || PassedNote::new().expect("memory");
        assert!(matches!(note().read(), Err(PassedError::Note(_))), "it is empty");
        let with = |text: &[u8]| {
            let note = note();
            note.0.write_all_at(text, 0).expect("writes");
            note.read().map(drop)
        };
        assert!(matches!(with(b"{\"version\":1}"), Err(PassedError::Note(_))), "it has no end");
        assert!(matches!(with(b"{\"version\":1}\n"), Err(PassedError::Note(_))), "it has no more");
        assert!(matches!(with(b"{\"version\":7,\"more\":1}\n"), Err(PassedError::Version { found: 7 })));
        let long = note();
        long.0.set_len(1 << 30).expect("it is sparse");
        assert!(matches!(long.read(), Err(PassedError::Note(_))));
        assert!(matches!(Passed::take(999_999), Err(PassedError::Missing(_))));
        assert!(matches!(Trial::take(999_999), Err(PassedError::Missing(_))));
    }
}
