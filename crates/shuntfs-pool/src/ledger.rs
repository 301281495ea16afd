//! What of a pool under rules survives its server besides nodes and open files: the names of nodes, the views, and the rules in force.
//!
//! It is a file in memory, which the keeper holds. Records are appended, and the last one of a node holds. A record is a head of 24 bytes (length
//! and kind; a check of these; a check of all) and its bytes; the checks cover its place in the file as well. The first 16 bytes of the file say where the first record is: when
//! many records are out of date, those that hold are written once more behind them, and then that place is moved there in one step.
//!
//! Only processes die, and not the machine: what was written stays written. A server that is killed while it appends leaves a part of
//! its last record, which it had told nobody of; the next server goes on before it. Any other record that is damaged makes
//! the whole useless: what rules protect must not be shown because a name is missing.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use parking_lot::Mutex;
use shuntfs_sys::data::fallocate;
use shuntfs_sys::memory::file_in_memory;

use crate::node::mix;

/// Before the first record.
const HEADER: u64 = 16;
/// Before the bytes of each record.
const HEAD: usize = 24;
/// No record is longer: rules are 8 MiB at most, written with the accounts that they name.
const LEN_MAX: usize = 32 << 20;
/// Records that are out of date may take so many bytes in any case, and so many times what the others take.
const WASTE_MIN: u64 = 1 << 20;
const WASTE_TIMES: u64 = 3;
/// What a broken file says of its first record.
const BROKEN: u64 = u64::MAX;

/// `FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE`.
const PUNCH: u32 = 3;

/// What a record tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The rules in force, in the words of whoever reads them.
    Rules = 1,
    /// A view. They are numbered in the order in which they were made.
    View = 2,
    /// The names of a node.
    Names = 3,
    /// Rules judge what is done on several branches.
    Judges = 4,
}

/// What an earlier server did by the rules in force.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub enum Earlier {
    /// There was none.
    #[default]
    None,
    /// It placed what is new, on several branches, or judged in one folder.
    Placed,
    /// It judged what is done on several branches, and knows the names of nodes.
    Judged,
}

impl Kind {
    fn of(number: u32) -> Option<Self> {
        [Self::Rules, Self::View, Self::Names, Self::Judges].into_iter().find(|kind| *kind as u32 == number)
    }
}

/// The records of a mount, for one server after the other.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Where the next record goes.
    end: u64,
    /// How many bytes of records there may be until those that hold are written once more.
    due: u64,
    start: u64,
    /// Behind the end is a part of a record that a server left.
    has_rest: bool,
    rules: Vec<u8>,
    judges: bool,
    views: Vec<Vec<u8>>,
}

impl Ledger {
    /// An empty one.
    ///
    /// # Errors
    /// EMFILE at the descriptor limit, ENOMEM.
    pub fn new() -> io::Result<Self> {
        let ledger = Self { file: file_in_memory(c"shuntfs-ledger")?, state: Mutex::default() };
        ledger.begins_at(HEADER)?;
        *ledger.state.lock() = State { end: HEADER, start: HEADER, due: WASTE_MIN, ..State::default() };
        Ok(ledger)
    }

    /// The one that another process writes, or has written, in this file.
    ///
    /// # Errors
    /// EINVAL where it is none, or was damaged.
    pub fn of(file: File) -> io::Result<Self> {
        let ledger = Self { file, state: Mutex::default() };
        ledger.read(|_, _| Ok(()))?;
        Ok(ledger)
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The rules in force, as they were given to [`Ledger::takes_rules`]; empty where they never were.
    #[must_use]
    pub fn rules(&self) -> Vec<u8> {
        self.state.lock().rules.clone()
    }

    /// What the servers before this one did by them.
    #[must_use]
    pub fn earlier(&self) -> Earlier {
        let state = self.state.lock();
        match (state.rules.is_empty(), state.judges) {
            (true, _) => Earlier::None,
            (false, false) => Earlier::Placed,
            (false, true) => Earlier::Judged,
        }
    }

    /// Has the next server go on with these rules. To be called before they hold: callers must not see what they deny from a server that does not
    /// know of them.
    ///
    /// # Errors
    /// ENOMEM; the earlier ones hold then.
    pub fn takes_rules(&self, rules: &[u8]) -> io::Result<()> {
        self.append(Kind::Rules, rules)
    }

    /// Reads all records. Of what this process had read before nothing is kept.
    pub(crate) fn read(
        &self,
        mut hear: impl FnMut(Kind, &[u8]) -> Result<(), &'static str>,
    ) -> io::Result<()> {
        let mut header = [0; 16];
        self.file.read_exact_at(&mut header, 0)?;
        let [start, check] = [0, 8].map(|at| word(&header[at..]));
        if start == BROKEN || check != check_of(0, start, &[]) {
            return Err(damaged("its header"));
        }
        let size = self.file.metadata()?.len();
        let mut state = State { start, end: start, ..State::default() };
        let (mut head, mut bytes) = ([0; HEAD], Vec::new());
        while state.end < size {
            let left = usize::try_from(size - state.end).map_err(|_| damaged("its length"))?;
            if left < HEAD {
                break;
            }
            self.file.read_exact_at(&mut head, state.end)?;
            let [len, of_head, check] = [0, 8, 16].map(|at| word(&head[at..]));
            if of_head != check_of(state.end, len, &[]) {
                return Err(damaged("the head of a record"));
            }
            let kind = u32::try_from(len >> 32).ok().and_then(Kind::of);
            let len_of = usize::try_from(len & u64::from(u32::MAX)).unwrap_or(usize::MAX);
            let is_whole = kind.is_some() && len_of <= LEN_MAX && len_of <= left - HEAD;
            if is_whole {
                bytes.resize(len_of, 0);
                self.file.read_exact_at(&mut bytes, state.end + HEAD as u64)?;
            }
            let Some(kind) = kind.filter(|_| is_whole && check == check_of(state.end, len, &bytes)) else {
                // What a server was writing when it was killed is at the end.
                let is_last = kind.is_some() && len_of <= LEN_MAX && len_of > left - HEAD;
                if is_last {
                    break;
                }
                return Err(damaged("a record"));
            };
            hear(kind, &bytes).map_err(damaged)?;
            state.keep(kind, &bytes);
            state.end += (HEAD + len_of) as u64;
        }
        state.due = (state.end - state.start).saturating_mul(WASTE_TIMES) + WASTE_MIN;
        state.has_rest = state.end < size;
        *self.state.lock() = state;
        Ok(())
    }

    /// Appends a record. Where that fails, no server follows this one: it would not know what was to be written.
    pub(crate) fn note(&self, kind: Kind, bytes: &[u8]) {
        if let Err(error) = self.append(kind, bytes) {
            tracing::error!(%error, "what rules protect cannot be written down: no other server follows this one");
            self.breaks();
        }
    }

    fn append(&self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.has_rest) {
            // A shorter record would leave some of it to be read after it.
            self.file.set_len(state.end)?;
        }
        let mut framed = Vec::with_capacity(HEAD + bytes.len());
        frame(&mut framed, state.end, kind, bytes)?;
        self.file.write_all_at(&framed, state.end)?;
        state.end += framed.len() as u64;
        state.keep(kind, bytes);
        Ok(())
    }

    /// Whether most records are out of date.
    pub(crate) fn is_due(&self) -> bool {
        let state = self.state.lock();
        state.end - state.start > state.due
    }

    /// Writes what holds once more, and forgets the rest; `names` gives the names of all nodes, which do not change meanwhile.
    pub(crate) fn rewrite(&self, names: impl Iterator<Item = Vec<u8>>) {
        let mut state = self.state.lock();
        let rewritten = self.rewrite_in(&mut state, names);
        drop(state);
        if let Err(error) = rewritten {
            tracing::error!(%error, "what rules protect cannot be written down: no other server follows this one");
            self.breaks();
        }
    }

    #[expect(clippy::disallowed_methods, reason = "the file is its own, and nothing below")]
    fn rewrite_in(&self, state: &mut State, names: impl Iterator<Item = Vec<u8>>) -> io::Result<()> {
        let begin = state.end;
        // A part of a record that a server left is not to be read again.
        self.file.set_len(begin)?;
        let judges = state.judges.then(|| (Kind::Judges, Vec::new()));
        let fixed = std::iter::once((Kind::Rules, state.rules.clone())).chain(judges);
        let views = state.views.iter().map(|view| (Kind::View, view.clone()));
        let names = names.map(|names| (Kind::Names, names));
        let mut framed = Vec::new();
        let mut end = begin;
        for (kind, bytes) in fixed.chain(views).chain(names) {
            let place = end + framed.len() as u64;
            frame(&mut framed, place, kind, &bytes)?;
            if framed.len() > 1 << 16 {
                self.file.write_all_at(&framed, end)?;
                end += framed.len() as u64;
                framed.clear();
            }
        }
        self.file.write_all_at(&framed, end)?;
        end += framed.len() as u64;
        self.begins_at(begin)?;
        (state.start, state.end) = (begin, end);
        state.due = (end - begin).saturating_mul(WASTE_TIMES) + WASTE_MIN;
        // The page of the header stays. Where the rest does, memory is lost and nothing else.
        let rest = 4096..begin.max(4096);
        if let Err(error) = fallocate(&self.file, PUNCH, rest.start, rest.end - rest.start) {
            tracing::debug!(%error, "memory of the ledger is not given back");
        }
        Ok(())
    }

    fn begins_at(&self, start: u64) -> io::Result<()> {
        let mut header = [0; 16];
        header[..8].copy_from_slice(&start.to_le_bytes());
        header[8..].copy_from_slice(&check_of(0, start, &[]).to_le_bytes());
        // Within one page, which is there: a kill comes before or after.
        self.file.write_all_at(&header, 0)
    }

    fn breaks(&self) {
        if let Err(error) = self.begins_at(BROKEN) {
            tracing::error!(%error, "the ledger cannot be marked as broken");
        }
    }
}

impl State {
    fn keep(&mut self, kind: Kind, bytes: &[u8]) {
        match kind {
            Kind::Rules => bytes.clone_into(&mut self.rules),
            Kind::View => self.views.push(bytes.to_vec()),
            Kind::Judges => self.judges = true,
            Kind::Names => {}
        }
    }
}

fn frame(framed: &mut Vec<u8>, place: u64, kind: Kind, bytes: &[u8]) -> io::Result<()> {
    let len = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= LEN_MAX);
    let len = u64::from(len.ok_or(io::ErrorKind::InvalidInput)?) | (kind as u64) << 32;
    framed.extend_from_slice(&len.to_le_bytes());
    framed.extend_from_slice(&check_of(place, len, &[]).to_le_bytes());
    framed.extend_from_slice(&check_of(place, len, bytes).to_le_bytes());
    framed.extend_from_slice(bytes);
    Ok(())
}

fn check_of(place: u64, len: u64, bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(mix(place ^ mix(len)), |sum, bytes| mix(sum.rotate_left(7) ^ word(bytes)))
}

/// Up to eight bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("what rules go by is damaged ({what})"))
}

/// Puts the content of a record together.
#[derive(Debug, Default)]
pub(crate) struct Writing(pub(crate) Vec<u8>);

impl Writing {
    pub(crate) fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

/// Takes it apart. Every step is `None` where nothing fits.
#[derive(Debug)]
pub(crate) struct Reading<'b>(pub(crate) &'b [u8]);

impl<'b> Reading<'b> {
    pub(crate) fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    pub(crate) fn bytes(&mut self) -> Option<&'b [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn records(ledger: &Ledger) -> io::Result<Vec<(Kind, Vec<u8>)>> {
        let again = Ledger { file: ledger.file.try_clone()?, state: Mutex::default() };
        let mut all = Vec::new();
        again.read(|kind, bytes| {
            all.push((kind, bytes.to_vec()));
            Ok(())
        })?;
        Ok(all)
    }

    fn three() -> Ledger {
        let ledger = Ledger::new().expect("memory");
        ledger.takes_rules(b"deny all").expect("memory");
        ledger.note(Kind::View, b"one");
        ledger.note(Kind::Names, b"a name, and more than eight bytes");
        ledger
    }

    #[test]
    fn what_was_written_is_read_before_and_after_it_was_written_once_more() {
        let ledger = three();
        let before = records(&ledger).expect("is whole");
        assert_eq!(before[1], (Kind::View, b"one".to_vec()));
        ledger.takes_rules(b"deny more").expect("memory");
        ledger.rewrite([b"names".to_vec()].into_iter());
        let after = records(&ledger).expect("is whole");
        let kinds: Vec<_> = after.iter().map(|(kind, bytes)| (*kind, bytes.as_slice())).collect();
        assert_eq!(kinds, [(Kind::Rules, &b"deny more"[..]), (Kind::View, b"one"), (Kind::Names, b"names")]);
        let again = Ledger::of(ledger.file.try_clone().expect("a descriptor")).expect("is whole");
        assert_eq!(again.rules(), b"deny more");
    }

    #[test]
    fn what_holds_is_written_once_more_when_much_does_not() {
        let ledger = three();
        let mut rewrites = 0;
        for _ in 0..100_000 {
            ledger.note(Kind::Names, &[7; 100]);
            if ledger.is_due() {
                ledger.rewrite([vec![7; 100]].into_iter());
                rewrites += 1;
            }
        }
        assert!((5..20).contains(&rewrites), "{rewrites}");
        let blocks = std::os::unix::fs::MetadataExt::blocks(&ledger.file.metadata().expect("is open"));
        assert!(blocks * 512 < 4 << 20, "{blocks}");
    }

    /// A server can be killed after any byte of its last record.
    #[test]
    fn a_part_of_the_last_record_is_left_out() {
        let ledger = three();
        let all = records(&ledger).expect("is whole");
        let size = ledger.file.metadata().expect("is open").len();
        let last = (HEAD + all[2].1.len()) as u64;
        for cut in 1..=last {
            ledger.file.set_len(size - cut).expect("is memory");
            let left = records(&ledger).unwrap_or_else(|error| panic!("{cut}: {error}"));
            assert_eq!(left, all[..2], "{cut}");
        }
        // What follows it is read, and nothing of the part.
        let again = Ledger::of(ledger.file.try_clone().expect("a descriptor")).expect("is whole");
        again.rewrite([b"next".to_vec()].into_iter());
        assert_eq!(records(&again).expect("is whole")[2], (Kind::Names, b"next".to_vec()));
    }

    /// A regression: the end of the part was taken for a record that is damaged.
    #[test]
    fn a_shorter_record_takes_the_place_of_a_part() {
        let ledger = three();
        let size = ledger.file.metadata().expect("is open").len();
        ledger.file.set_len(size - 1).expect("is memory");
        let next = Ledger::of(ledger.file.try_clone().expect("a descriptor")).expect("is whole");
        next.note(Kind::Names, b"x");
        let names = records(&next).expect("is whole").split_off(2);
        assert_eq!(names, [(Kind::Names, b"x".to_vec())]);
    }

    #[test]
    fn any_word_that_is_wrong_is_noticed() {
        let size = three().file.metadata().expect("is open").len();
        for at in 0..size {
            let ledger = three();
            let mut byte = [0];
            ledger.file.read_exact_at(&mut byte, at).expect("is there");
            ledger.file.write_all_at(&[byte[0] ^ 0x10], at).expect("is memory");
            assert!(records(&ledger).is_err(), "{at}");
        }
        let ledger = three();
        ledger.breaks();
        assert!(records(&ledger).is_err());
    }
}
