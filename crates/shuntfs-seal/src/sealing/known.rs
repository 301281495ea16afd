//! Which files were hashed in which state: what makes a second run short, and an interrupted one go on.
//!
//! Two files of the store, of one form: a head, then records of one length, each with a tag, so that a torn end is no
//! harm. `unchanged` is written when a seal is in place. `progress` grows while a run hashes; it is trusted only under
//! the boot that wrote it, because the trees that it speaks of are made durable at a run's end.
//!
//! Whoever can write the store can write down any hash. So a run that signs believes only records whose tags were made with a
//! secret that comes from its key, for these parameters and for a tree at this path. A run that does not sign trusts what
//! exists: nobody is promised anything by its seal.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, BufReader, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use shuntfs_sys::{Device, Time};
use shuntfs_verity::sign::{KeyPair, MacKey, Message};
use shuntfs_verity::{Digest, Params};

use super::stage::{Place, Stage};
use crate::walk::State;
use crate::{Store, StoreError};

const MAGIC: &[u8; 8] = b"shuntkn2";
const UNCHANGED: &CStr = c"unchanged";
const PROGRESS: &CStr = c"progress";
const STATE_LEN: usize = 56;
/// How long what was hashed may stay in memory alone.
const FLUSH_EVERY: Duration = Duration::from_millis(200);
/// Records that are examined, beside eight for each file: of trees that were larger.
const OTHERS_MAX: u64 = 1 << 17;

/// What a run believes of what earlier ones wrote down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::exhaustive_enums, reason = "the ways there are to seal again")]
pub enum Belief {
    /// A file that is as it was has the hash that it had, and its tree is whole where it has its length.
    #[default]
    Known,
    /// The same, and every tree is read and checked.
    Checked,
    /// Nothing: every file is hashed.
    Nothing,
}

/// Whose records are trusted: the secrets of one file.
#[derive(Clone, Debug)]
struct Book {
    head: Vec<u8>,
    /// Of these the first is written with.
    secrets: Vec<MacKey>,
}

/// What was hashed, by the state that it had.
#[derive(Debug)]
pub(crate) struct Known {
    params: Params,
    /// The device that the tree's top is on, which is written as none: its number may change when it is mounted anew.
    top: Device,
    unchanged_book: Book,
    progress_book: Book,
    unchanged: HashMap<State, Digest>,
    resumed: HashMap<State, Digest>,
}

/// Where a hash is known from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The last seal.
    Unchanged,
    /// A run that did not end.
    Resumed,
}

/// `progress`, open to be added to.
#[derive(Debug)]
pub(crate) struct Progressing {
    file: File,
    batch: Vec<u8>,
    flushed: Instant,
}

/// For whom records are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct For<'a> {
    pub(crate) params: &'a Params,
    pub(crate) top: Device,
    pub(crate) tree: &'a Path,
    pub(crate) keys: &'a [&'a KeyPair],
}

impl Known {
    /// Reads what both files say of files in these states; what cannot be read is not known.
    pub(crate) fn load(store: &Store, of: For<'_>, wanted: &HashSet<State>) -> Self {
        let mut known = Self {
            params: *of.params,
            top: of.top,
            unchanged_book: Book::new(of, b""),
            progress_book: Book::new(of, &boot_id()),
            unchanged: HashMap::new(),
            resumed: HashMap::new(),
        };
        known.unchanged = known.read(store, "unchanged", &known.unchanged_book, wanted);
        known.resumed = known.read(store, "progress", &known.progress_book, wanted);
        known
    }

    /// The root hash of a file in this state.
    pub(crate) fn find(&self, state: &State) -> Option<(Digest, Source)> {
        let from = |map: &HashMap<State, Digest>, source| map.get(state).map(|digest| (*digest, source));
        from(&self.unchanged, Source::Unchanged).or_else(|| from(&self.resumed, Source::Resumed))
    }

    /// Starts or goes on with `progress`.
    pub(crate) fn progress(&self, stage: &Stage) -> Result<Progressing, StoreError> {
        // Written anew from what of it was good, so that what is added does not stand behind a torn record.
        let mut bytes = self.progress_book.head.clone();
        self.resumed.iter().for_each(|(state, hash)| self.push(&self.progress_book, &mut bytes, state, hash));
        let staged = stage.start()?;
        let written = staged.file().write_all(&bytes);
        written.map_err(|error| StoreError::io(stage.path().join("progress"), error))?;
        let file = staged.keep(Place::Top(PROGRESS))?;
        Ok(Progressing { file, batch: Vec::new(), flushed: Instant::now() })
    }

    /// Writes `unchanged`.
    pub(crate) fn remember<'a>(
        &self,
        stage: &Stage,
        files: impl Iterator<Item = (&'a State, &'a Digest)>,
    ) -> Result<(), StoreError> {
        let mut bytes = self.unchanged_book.head.clone();
        files.for_each(|(state, hash)| self.push(&self.unchanged_book, &mut bytes, state, hash));
        stage.replace(UNCHANGED, &bytes)
    }

    fn push(&self, book: &Book, to: &mut Vec<u8>, state: &State, hash: &Digest) {
        let start = to.len();
        let dev = if state.dev == self.top { Device::default() } else { state.dev };
        for number in [state.ino, state.size] {
            to.extend_from_slice(&number.to_le_bytes());
        }
        for number in [dev.major, dev.minor] {
            to.extend_from_slice(&number.to_le_bytes());
        }
        for time in [state.mtime, state.ctime] {
            to.extend_from_slice(&time.secs.to_le_bytes());
            to.extend_from_slice(&u64::from(time.nanos).to_le_bytes());
        }
        debug_assert_eq!(to.len() - start, STATE_LEN);
        to.extend_from_slice(hash.as_bytes());
        let tag = book.secrets.first().expect("there is one at least").tag(to.split_at(start).1);
        to.extend_from_slice(&tag);
    }

    fn read(
        &self,
        store: &Store,
        name: &str,
        book: &Book,
        wanted: &HashSet<State>,
    ) -> HashMap<State, Digest> {
        let mut found = HashMap::new();
        // What was read before it failed is as good as all else.
        drop(self.read_into(&mut found, store, name, book, wanted));
        found
    }

    fn read_into(
        &self,
        found: &mut HashMap<State, Digest>,
        store: &Store,
        name: &str,
        book: &Book,
        wanted: &HashSet<State>,
    ) -> io::Result<()> {
        let file = store.file(name).map_err(io::Error::other)?;
        let mut record = vec![0; STATE_LEN + self.params.algorithm().digest_len() + MacKey::TAG_LEN];
        let records_max = (wanted.len() as u64).saturating_mul(8).saturating_add(OTHERS_MAX);
        let mut file = BufReader::with_capacity(1 << 16, file);
        let mut head = vec![0; book.head.len()];
        file.read_exact(&mut head)?;
        if head != book.head {
            return Ok(());
        }
        for _ in 0..records_max {
            file.read_exact(&mut record)?;
            // The state first: a tag takes longer to look at.
            let known = self.parse(&record).filter(|(state, _)| wanted.contains(state));
            found.extend(known.filter(|_| book.has_made(&record)));
        }
        Ok(())
    }

    fn parse(&self, record: &[u8]) -> Option<(State, Digest)> {
        let (body, _) = record.split_last_chunk::<{ MacKey::TAG_LEN }>()?;
        let (state, hash) = body.split_at_checked(STATE_LEN)?;
        let mut numbers = state.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let mut next = || numbers.next();
        let (ino, size, dev) = (next()?, next()?, next()?.to_le_bytes());
        let mut time = || Some(Time { secs: next()?.cast_signed(), nanos: u32::try_from(next()?).ok()? });
        let (mtime, ctime) = (time()?, time()?);
        let (major, minor) = dev.split_at(4);
        let number = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?));
        let dev = Device { major: number(major)?, minor: number(minor)? };
        let dev = if dev == Device::default() { self.top } else { dev };
        Some((State { dev, ino, size, mtime, ctime }, Digest::new(self.params.algorithm(), hash).ok()?))
    }
}

impl Book {
    fn new(of: For<'_>, boot: &[u8]) -> Self {
        let head = [head(of.params), boot_field(boot).to_vec()].concat();
        let tree = of.tree.canonicalize().unwrap_or_else(|_| of.tree.to_owned());
        let purpose = Message::new("shuntfs hashed files 2").part(&head).part(tree.as_os_str().as_bytes());
        let mut secrets: Vec<MacKey> = of.keys.iter().map(|key| MacKey::derived(key, &purpose)).collect();
        if secrets.is_empty() {
            // No secret: the tags find torn records, and are not meant for more.
            secrets.push(MacKey::new(&[0; 32]));
        }
        Self { head, secrets }
    }

    fn has_made(&self, record: &[u8]) -> bool {
        let parts = record.split_last_chunk();
        parts.is_some_and(|(body, tag)| self.secrets.iter().any(|secret| secret.is_tag_of(body, tag)))
    }
}

impl Progressing {
    /// Adds a file whose tree is in its place.
    pub(crate) fn add(&mut self, known: &Known, state: &State, hash: &Digest) -> io::Result<()> {
        known.push(&known.progress_book, &mut self.batch, state, hash);
        if self.flushed.elapsed() >= FLUSH_EVERY {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes what is in memory alone.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.flushed = Instant::now();
        self.file.write_all(&self.batch)?;
        self.batch.clear();
        Ok(())
    }

    /// Removes the file: all of it is in `unchanged`.
    pub(crate) fn remove(self, stage: &Stage) -> Result<(), StoreError> {
        stage.remove(Place::Top(PROGRESS)).map(drop)
    }
}

fn head(params: &Params) -> Vec<u8> {
    let salt = params.salt();
    let mut head = MAGIC.to_vec();
    head.extend_from_slice(&[params.algorithm().number(), params.block_size().log2()]);
    head.push(u8::try_from(salt.as_bytes().len()).expect("at most 32 bytes of salt"));
    head.extend_from_slice(salt.as_bytes());
    head
}

/// Names the time since the machine started; empty where the kernel does not tell, which then is no boot at all.
fn boot_id() -> Vec<u8> {
    let id = fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim_ascii().to_vec()
}

fn boot_field(boot: &[u8]) -> [u8; 40] {
    let mut field = [0; 40];
    field.iter_mut().zip(boot).for_each(|(to, from)| *to = *from);
    field
}

#[cfg(test)]
mod test {
    use super::super::home::{Allowed, Home};
    use super::*;
    use crate::walk::Top;
    use shuntfs_verity::Algorithm;

    fn state(ino: u64) -> State {
        let time = Time { secs: -5, nanos: 7 };
        State { dev: Device { major: 8, minor: 1 }, ino, size: 100, mtime: time, ctime: time }
    }

    fn hash(byte: u8) -> Digest {
        Digest::new(Algorithm::Sha256, &[byte; 32]).unwrap()
    }

    fn stage(dir: &Path) -> Stage {
        let tree = dir.join("tree");
        fs::create_dir_all(&tree).unwrap();
        let home =
            Home::open(&Top::open(&tree).unwrap(), &tree, Some(&dir.join("store")), Allowed::default());
        Stage::open(home.unwrap()).unwrap()
    }

    fn of<'a>(dir: &'a Path, params: &'a Params, keys: &'a [&'a KeyPair]) -> For<'a> {
        For { params, top: state(1).dev, tree: dir, keys }
    }

    #[test]
    fn what_was_written_is_known_even_if_the_device_has_another_number() {
        let dir = tempfile::tempdir().unwrap();
        let (params, stage) = (Params::default(), stage(dir.path()));
        let of = of(dir.path(), &params, &[]);
        let other_disk = State { dev: Device { major: 9, minor: 9 }, ..state(2) };
        let moved = Device { major: 8, minor: 17 };
        let touched = State { ctime: Time { secs: 1, nanos: 0 }, dev: moved, ..state(1) };
        let here = State { dev: moved, ..state(1) };
        let wanted = HashSet::from([state(1), other_disk, here, touched]);
        let known = Known::load(&stage.store(), of, &wanted);
        assert_eq!(known.find(&state(1)), None);
        let files = [(state(1), hash(1)), (other_disk, hash(2))];
        known.remember(&stage, files.iter().map(|(s, h)| (s, h))).unwrap();
        let unchanged = |byte| Some((hash(byte), Source::Unchanged));
        assert_eq!(Known::load(&stage.store(), of, &wanted).find(&state(1)), unchanged(1));
        let known = Known::load(&stage.store(), For { top: moved, ..of }, &wanted);
        assert_eq!(known.find(&here), unchanged(1));
        assert_eq!(known.find(&other_disk), unchanged(2));
        assert_eq!(known.find(&state(1)), None);
        assert_eq!(known.find(&touched), None);
        assert_eq!(Known::load(&stage.store(), of, &HashSet::from([other_disk])).find(&state(1)), None);
        // Other parameters make other hashes.
        let salted =
            Params::new(params.algorithm(), params.block_size(), shuntfs_verity::Salt::new(&[1]).unwrap())
                .unwrap();
        assert_eq!(Known::load(&stage.store(), For { params: &salted, ..of }, &wanted).find(&state(1)), None);
    }

    /// Whoever can write the store writes down another hash, takes records of an unsigned run or of another tree.
    #[test]
    fn a_run_that_signs_believes_its_own_records_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (params, stage) = (Params::default(), stage(dir.path()));
        let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let wanted = HashSet::from([state(1)]);
        let load = |tree: &Path, params: &Params, keys: &[&KeyPair]| {
            Known::load(&stage.store(), For { params, top: state(1).dev, tree, keys }, &wanted)
        };
        let tree = dir.path().join("tree");
        let knows = |known: &Known| known.find(&state(1)).is_some();
        let write = |keys: &[&KeyPair]| {
            load(&tree, &params, keys).remember(&stage, [(&state(1), &hash(1))].into_iter()).unwrap();
        };
        write(&[]);
        assert!(knows(&load(&tree, &params, &[])) && !knows(&load(&tree, &params, &[&one])));
        write(&[&one]);
        assert!(knows(&load(&tree, &params, &[&one])) && knows(&load(&tree, &params, &[&other, &one])));
        assert!(!knows(&load(&tree, &params, &[&other])) && !knows(&load(&tree, &params, &[])));
        assert!(!knows(&load(&dir.path().join("store"), &params, &[&one])), "another tree");
        let path = dir.path().join("store/unchanged");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            assert!(!knows(&load(&tree, &params, &[&one])), "byte {at}");
        }
    }

    #[test]
    fn no_more_is_read_than_a_tree_can_need() {
        let dir = tempfile::tempdir().unwrap();
        let (params, stage) = (Params::default(), stage(dir.path()));
        let of = of(dir.path(), &params, &[]);
        let known = Known::load(&stage.store(), of, &HashSet::new());
        known.remember(&stage, std::iter::empty()).unwrap();
        // A terabyte of holes behind a good head.
        let path = dir.path().join("store/unchanged");
        File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let start = Instant::now();
        assert!(Known::load(&stage.store(), of, &HashSet::from([state(1)])).unchanged.is_empty());
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }

    #[test]
    fn a_run_goes_on_behind_a_torn_record() {
        let dir = tempfile::tempdir().unwrap();
        let (params, stage) = (Params::default(), stage(dir.path()));
        let of = of(dir.path(), &params, &[]);
        let wanted = HashSet::from([state(1), state(2), state(3)]);
        let load = || Known::load(&stage.store(), of, &wanted);
        let known = load();
        let mut progress = known.progress(&stage).unwrap();
        progress.add(&known, &state(1), &hash(1)).unwrap();
        progress.add(&known, &state(2), &hash(2)).unwrap();
        progress.flush().unwrap();
        let path = dir.path().join("store/progress");
        let len = fs::metadata(&path).unwrap().len();
        File::options().write(true).open(&path).unwrap().set_len(len - 3).unwrap();
        let known = load();
        assert_eq!(known.find(&state(1)), Some((hash(1), Source::Resumed)));
        assert_eq!(known.find(&state(2)), None);
        let mut progress = known.progress(&stage).unwrap();
        progress.add(&known, &state(3), &hash(3)).unwrap();
        progress.flush().unwrap();
        let known = load();
        assert!(known.find(&state(1)).is_some() && known.find(&state(3)).is_some());
        // A flipped bit makes a record unknown, and no other.
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.len() - 50;
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!([1, 3].iter().filter(|ino| load().find(&state(**ino)).is_some()).count(), 1);
        // Another boot: the trees may not have reached the disk.
        bytes[11] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!([1, 3].iter().all(|ino| load().find(&state(*ino)).is_none()));
    }
}
