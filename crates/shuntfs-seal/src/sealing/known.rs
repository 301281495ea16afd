//! Which files were hashed in which state: what makes a second run short, and an interrupted one go on.
//!
//! Two files of the store, of one form: a head, then records of one length, each with a checksum, so that a torn end is no
//! harm. `unchanged` is written when a seal is in place. `progress` grows while a run hashes; it is believed only under
//! the boot that wrote it, because the trees that it speaks of are made durable at a run's end.
//!
//! Nobody but `shunt seal` believes either: whoever can write them can make it seal a wrong hash, but could as well
//! have changed the data.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shuntfs_sys::{Device, Time};
use shuntfs_verity::{Digest, Params};

use crate::walk::State;

const MAGIC: &[u8; 8] = b"shuntkn1";
const STATE_LEN: usize = 56;
/// How long what was hashed may stay in memory alone.
const FLUSH_EVERY: Duration = Duration::from_millis(200);

/// What was hashed, by the state that it had.
#[derive(Debug)]
pub(crate) struct Known {
    head: Vec<u8>,
    params: Params,
    /// The device that the tree's top is on, which is written as none: its number may change when it is mounted anew.
    top: Device,
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
    path: PathBuf,
    file: File,
    batch: Vec<u8>,
    flushed: Instant,
}

fn unchanged_path(store: &Path) -> PathBuf {
    store.join("unchanged")
}

fn progress_path(store: &Path) -> PathBuf {
    store.join("progress")
}

impl Known {
    /// Reads both files; what cannot be read is not known.
    pub(crate) fn load(store: &Path, params: &Params, top: Device) -> Self {
        let (head, params) = (head(params), *params);
        let mut known = Self { head, params, top, unchanged: HashMap::new(), resumed: HashMap::new() };
        known.unchanged = known.read(&unchanged_path(store), b"");
        known.resumed = known.read(&progress_path(store), &boot_id());
        known
    }

    /// The root hash of a file in this state.
    pub(crate) fn find(&self, state: &State) -> Option<(Digest, Source)> {
        let from = |map: &HashMap<State, Digest>, source| map.get(state).map(|digest| (*digest, source));
        from(&self.unchanged, Source::Unchanged).or_else(|| from(&self.resumed, Source::Resumed))
    }

    /// Starts or goes on with `progress`.
    pub(crate) fn progress(&self, store: &Path) -> io::Result<Progressing> {
        let path = progress_path(store);
        // Written anew from what of it was good, so that what is added does not stand behind a torn record.
        let mut bytes = self.bytes(&boot_id());
        self.resumed.iter().for_each(|(state, hash)| self.push(&mut bytes, state, hash));
        fs::write(&path, bytes)?;
        let file = File::options().append(true).open(&path)?;
        Ok(Progressing { path, file, batch: Vec::new(), flushed: Instant::now() })
    }

    /// What `unchanged` is to be.
    pub(crate) fn unchanged<'a>(&self, files: impl Iterator<Item = (&'a State, &'a Digest)>) -> Vec<u8> {
        let mut bytes = self.bytes(b"");
        files.for_each(|(state, hash)| self.push(&mut bytes, state, hash));
        bytes
    }

    fn bytes(&self, boot: &[u8]) -> Vec<u8> {
        [&self.head[..], &boot_field(boot)].concat()
    }

    fn push(&self, to: &mut Vec<u8>, state: &State, hash: &Digest) {
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
        let sum = checksum(to.split_at(start).1);
        to.extend_from_slice(&sum.to_le_bytes());
    }

    fn read(&self, path: &Path, boot: &[u8]) -> HashMap<State, Digest> {
        let bytes = fs::read(path).unwrap_or_default();
        let Some(records) = bytes.strip_prefix(&self.bytes(boot)[..]) else { return HashMap::new() };
        let len = STATE_LEN + self.params.algorithm().digest_len() + 8;
        records.chunks_exact(len).filter_map(|record| self.parse(record)).collect()
    }

    fn parse(&self, record: &[u8]) -> Option<(State, Digest)> {
        let (body, sum) = record.split_last_chunk::<8>()?;
        if checksum(body) != u64::from_le_bytes(*sum) {
            return None;
        }
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

impl Progressing {
    /// Adds a file whose tree is in its place.
    pub(crate) fn add(&mut self, known: &Known, state: &State, hash: &Digest) -> io::Result<()> {
        known.push(&mut self.batch, state, hash);
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
    pub(crate) fn remove(self) -> io::Result<()> {
        fs::remove_file(self.path)
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

/// FNV-1a: finds torn records, and is not meant for more.
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod test {
    use super::*;
    use shuntfs_verity::Algorithm;

    fn state(ino: u64) -> State {
        let time = Time { secs: -5, nanos: 7 };
        State { dev: Device { major: 8, minor: 1 }, ino, size: 100, mtime: time, ctime: time }
    }

    fn hash(byte: u8) -> Digest {
        Digest::new(Algorithm::Sha256, &[byte; 32]).unwrap()
    }

    #[test]
    fn what_was_written_is_known_even_if_the_device_has_another_number() {
        let dir = tempfile::tempdir().unwrap();
        let params = Params::default();
        let known = Known::load(dir.path(), &params, state(1).dev);
        assert_eq!(known.find(&state(1)), None);
        let other_disk = State { dev: Device { major: 9, minor: 9 }, ..state(2) };
        let files = [(state(1), hash(1)), (other_disk, hash(2))];
        fs::write(dir.path().join("unchanged"), known.unchanged(files.iter().map(|(s, h)| (s, h)))).unwrap();
        let moved = Device { major: 8, minor: 17 };
        let known = Known::load(dir.path(), &params, moved);
        let unchanged = |byte| Some((hash(byte), Source::Unchanged));
        assert_eq!(known.find(&State { dev: moved, ..state(1) }), unchanged(1));
        assert_eq!(known.find(&other_disk), unchanged(2));
        assert_eq!(known.find(&state(1)), None);
        let touched = State { ctime: Time { secs: 1, nanos: 0 }, dev: moved, ..state(1) };
        assert_eq!(known.find(&touched), None);
        // Other parameters make other hashes.
        let salted =
            Params::new(params.algorithm(), params.block_size(), shuntfs_verity::Salt::new(&[1]).unwrap());
        assert_eq!(
            Known::load(dir.path(), &salted.unwrap(), moved).find(&State { dev: moved, ..state(1) }),
            None
        );
    }

    #[test]
    fn a_run_goes_on_behind_a_torn_record() {
        let dir = tempfile::tempdir().unwrap();
        let params = Params::default();
        let load = || Known::load(dir.path(), &params, Device::default());
        let known = load();
        let mut progress = known.progress(dir.path()).unwrap();
        progress.add(&known, &state(1), &hash(1)).unwrap();
        progress.add(&known, &state(2), &hash(2)).unwrap();
        progress.flush().unwrap();
        let path = dir.path().join("progress");
        let len = fs::metadata(&path).unwrap().len();
        File::options().write(true).open(&path).unwrap().set_len(len - 3).unwrap();
        let known = load();
        assert_eq!(known.find(&state(1)), Some((hash(1), Source::Resumed)));
        assert_eq!(known.find(&state(2)), None);
        let mut progress = known.progress(dir.path()).unwrap();
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
