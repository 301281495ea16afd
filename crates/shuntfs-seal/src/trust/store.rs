//! The trust store: a folder that the administrator keeps, anywhere.
//!
//! | name | what |
//! |---|---|
//! | `*.pub` | the public keys that are trusted, each in a file of its own, with the day until which it is (`expires = ..`) |
//! | `config` | `threshold = N`: how many of the keys must have signed; 1 where the file does not exist |
//! | `seen` | the highest serial seen of each tree and key ([`super::seen`]) |
//! | `seen.new`, `config.new` | the same while they are written |
//! | `lock` | held by the one that writes |
//!
//! Whoever can write here decides what is trusted, so folder and files must be root's or the user's own, and nobody else's to write.
//! Files are opened by a descriptor of the folder, through no symlink. `seen` is only ever replaced by a whole file that is on disk,
//! under the lock, after it was read again; what was noted there never falls but by [`TrustStore::forget`].

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use shuntfs_sys::{
    DirReader, FlockOp, OsError, Stat, data, flock, open_at, open_folder, regular, rename_at, reopen, stat_of,
};
use shuntfs_verity::Digest;
use shuntfs_verity::sign::{KeyId, PublicKey};

use super::TreeName;
use super::key_file::{Day, split_key_file};
use super::seen::{Seen, SeenSerial};
use crate::{Issue, StoreError, shown};

const CONFIG: &str = "config";
const CONFIG_NEW: &str = "config.new";
const SEEN: &str = "seen";
const SEEN_NEW: &str = "seen.new";
const LOCK: &str = "lock";
/// The longest file that can be a key, or the configuration.
const KEY_LEN_MAX: u64 = 64 << 10;
/// The longest list of serials: some 25 000 trees.
const SEEN_LEN_MAX: u64 = 4 << 20;
/// Keys that a store holds at most.
const KEYS_MAX: usize = 256;
/// How long somebody else may take who writes to the store.
const PATIENCE: Duration = Duration::from_secs(10);

/// Flags of open(2).
const WRONLY: u32 = 0o1;
const RDWR: u32 = 0o2;
const CREAT: u32 = 0o100;
const EXCL: u32 = 0o200;
const TRUNC: u32 = 0o1000;
const NONBLOCK: u32 = 0o4000;
const DIRECTORY: u32 = 0o200_000;

/// A folder of trusted keys and seen serials.
#[derive(Clone, Debug)]
pub struct TrustStore {
    path: PathBuf,
    folder: Arc<OwnedFd>,
    keys: Vec<StoredKey>,
    threshold: NonZeroUsize,
}

/// A key of a trust store.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StoredKey {
    /// The file's name.
    pub name: String,
    /// The key.
    pub key: PublicKey,
    /// The last day on which it is trusted.
    pub expires: Option<Day>,
}

impl StoredKey {
    /// A key to add, in a file of this name (`release.pub`).
    #[must_use]
    pub fn new(name: String, key: PublicKey, expires: Option<Day>) -> Self {
        Self { name, key, expires }
    }
}

impl TrustStore {
    /// Opens a trust store, and reads its keys and its configuration.
    ///
    /// # Errors
    /// [`StoreError::NoTrustStore`] where the folder does not exist; it, or a file of it, is somebody else's to write, or not what it
    /// must be.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let folder = open_folder(path).map_err(|error| match error {
            OsError::NOENT => StoreError::NoTrustStore(path.to_owned()),
            error => StoreError::io(path, error),
        })?;
        Self::held(path, Arc::new(folder))
    }

    /// Reads keys and configuration again from the folder that is held, whatever its path leads to by now.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn read_again(&self) -> Result<Self, StoreError> {
        Self::held(&self.path, Arc::clone(&self.folder))
    }

    /// The one in a folder that is held already; the path is for what is said of it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_folder(path: &Path, folder: OwnedFd) -> Result<Self, StoreError> {
        Self::held(path, Arc::new(folder))
    }

    fn held(path: &Path, folder: Arc<OwnedFd>) -> Result<Self, StoreError> {
        let mut store =
            Self { path: path.to_owned(), folder, keys: Vec::new(), threshold: NonZeroUsize::MIN };
        store.check_owner(&stat_of(&store.folder).map_err(|error| StoreError::io(path, error))?, path)?;
        if let Some(text) = store.read(CONFIG, KEY_LEN_MAX)? {
            store.threshold = parse_config(&text).map_err(|why| store.broken_file(CONFIG, why))?;
        }
        for name in store.names_of_keys()? {
            let text = store.read(&name, KEY_LEN_MAX)?.unwrap_or_default();
            let key = parse_key(&name, &text).map_err(|why| store.broken_file(&name, why))?;
            store.keys.push(key);
        }
        // What was seen is examined before anything is trusted.
        store.seen()?;
        Ok(store)
    }

    /// Opens a trust store, and makes it first where there is none.
    ///
    /// # Errors
    /// As [`open`](Self::open); the folder cannot be made.
    pub fn create(path: &Path) -> Result<Self, StoreError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
        made.map_err(|error| StoreError::io(path, error))?;
        Self::open(path)
    }

    /// Trusts further keys, and asks for signatures by `threshold` of all of them from now on, where that is said. No key counts before
    /// the threshold that comes with it does.
    ///
    /// # Errors
    /// A name is taken, or begins with a dot; a key is there already; the keys are fewer than `threshold`: nothing is changed then. A file
    /// cannot be written.
    pub fn add(&mut self, keys: Vec<StoredKey>, threshold: Option<NonZeroUsize>) -> Result<(), StoreError> {
        let _lock = self.lock()?;
        // Another one may have changed it meanwhile.
        let mut store = self.read_again()?;
        let there = store.keys.len();
        for key in keys {
            store.check_new(&key)?;
            store.keys.push(key);
        }
        let count = store.keys.len();
        if count > KEYS_MAX {
            return Err(self.broken(format!("it would hold more than {KEYS_MAX} keys")));
        }
        if let Some(threshold) = threshold.filter(|threshold| threshold.get() > count) {
            return Err(self.broken(format!("{threshold} of {count} keys cannot be asked for")));
        }
        // More are asked for before there are more that count, and fewer only afterwards.
        let raised = threshold.filter(|threshold| *threshold > store.threshold);
        raised.map_or(Ok(()), |threshold| store.write_threshold(threshold))?;
        store.keys.iter().skip(there).try_for_each(|key| self.write_key(key))?;
        let lowered = threshold.filter(|threshold| *threshold < store.threshold);
        lowered.map_or(Ok(()), |threshold| store.write_threshold(threshold))?;
        store.threshold = threshold.unwrap_or(store.threshold);
        *self = store;
        Ok(())
    }

    /// Whether a key can be added.
    fn check_new(&self, key: &StoredKey) -> Result<(), StoreError> {
        if let Some(one) = self.keys.iter().find(|one| one.key == key.key) {
            return Err(self.broken(format!(
                "the key {} is there already: {}",
                key.key.id(),
                shown(&one.name)
            )));
        }
        if self.keys.iter().any(|one| one.name == key.name) {
            return Err(self.broken(format!("there is a key {} already", shown(&key.name))));
        }
        if !is_name_of_key(key.name.as_bytes()) {
            let name = shown(&key.name);
            return Err(self.broken(format!("{name} would not be read: name the key without a dot in front")));
        }
        Ok(())
    }

    /// Writes the file of a key; the caller holds the lock.
    fn write_key(&self, key: &StoredKey) -> Result<(), StoreError> {
        let lines = key.expires.map(|day| format!("expires = {day}\n")).unwrap_or_default();
        let failed = |error: std::io::Error| StoreError::io(self.path.join(&key.name), error);
        let mut made = self.create_file(&key.name, WRONLY | EXCL, 0o644)?;
        let text = lines + &key.key.to_pem();
        made.write_all(text.as_bytes()).and_then(|()| made.sync_all()).map_err(failed)?;
        self.sync()
    }

    /// Writes how many must sign; the caller holds the lock.
    fn write_threshold(&self, threshold: NonZeroUsize) -> Result<(), StoreError> {
        self.replace(CONFIG, CONFIG_NEW, &format!("threshold = {threshold}\n"))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The keys, by the names of their files.
    #[must_use]
    pub fn keys(&self) -> &[StoredKey] {
        &self.keys
    }

    /// How many of them must have signed.
    #[must_use]
    pub fn threshold(&self) -> NonZeroUsize {
        self.threshold
    }

    /// The keys that have not expired.
    #[must_use]
    pub fn keys_at(&self, now: SystemTime) -> Vec<PublicKey> {
        let valid = self.keys.iter().filter(|one| one.expires.is_none_or(|day| !day.is_over(now)));
        valid.map(|one| one.key).collect()
    }

    /// The highest serials that were seen.
    ///
    /// # Errors
    /// The list cannot be read, or has a mistake, which is named with its line.
    pub fn serials(&self) -> Result<Vec<SeenSerial>, StoreError> {
        self.seen().map(|seen| seen.serials)
    }

    /// Forgets what was seen of a tree; returns how many serials that were.
    ///
    /// # Errors
    /// The list cannot be read or written.
    pub fn forget(&self, tree: &TreeName) -> Result<usize, StoreError> {
        let _lock = self.lock()?;
        let mut seen = self.seen()?;
        let before = seen.serials.len();
        seen.serials.retain(|one| one.tree != *tree);
        let gone = before - seen.serials.len();
        if gone > 0 {
            self.write(&seen)?;
        }
        Ok(gone)
    }

    pub(crate) fn broken(&self, why: impl Into<String>) -> StoreError {
        StoreError::TrustStore { path: self.path.clone(), why: why.into() }
    }

    /// Whether a seal is as new as what was seen of its tree; `path` is the seal's.
    pub(crate) fn judge(&self, issue: &Issue, digest: &Digest, path: &Path) -> Result<(), StoreError> {
        self.judged(&self.seen()?, issue, digest, path)
    }

    /// Takes note of a seal that was found good. Returns why it could not where the store is not to be written by who asks.
    pub(crate) fn record(
        &self,
        issue: &Issue,
        digest: &Digest,
        signers: &[KeyId],
        path: &Path,
    ) -> Result<Option<String>, StoreError> {
        let mut seen = self.seen()?;
        self.judged(&seen, issue, digest, path)?;
        if !seen.note(issue, digest, signers) {
            return Ok(None);
        }
        let write = || {
            let _lock = self.lock()?;
            // Another one may have seen a newer one meanwhile.
            let mut seen = self.seen()?;
            self.judged(&seen, issue, digest, path)?;
            if seen.note(issue, digest, signers) { self.write(&seen) } else { Ok(()) }
        };
        match write() {
            Ok(()) => Ok(None),
            Err(StoreError::Io { path, source }) if is_not_to_be_written(&source) => Ok(Some(format!(
                "{}: {source}: that serial {} of tree `{}` was seen is not recorded, and an older seal that is newer than \
                 what was recorded before will be taken",
                shown(&path),
                issue.serial,
                issue.tree
            ))),
            Err(error) => Err(error),
        }
    }

    /// Expired keys count here: what they have signed was good then, and is still not to be gone back behind.
    fn judged(&self, seen: &Seen, issue: &Issue, digest: &Digest, path: &Path) -> Result<(), StoreError> {
        let keys: Vec<KeyId> = self.keys.iter().map(|one| one.key.id()).collect();
        seen.judge(issue, digest, &keys).map_err(|stale| stale.into_error(path, issue))
    }

    fn seen(&self) -> Result<Seen, StoreError> {
        let Some(text) = self.read(SEEN, SEEN_LEN_MAX)? else { return Ok(Seen::default()) };
        Seen::parse(&text).map_err(|why| self.broken_file(SEEN, why))
    }

    /// Replaces the list of serials by a whole one; the caller holds the lock.
    fn write(&self, seen: &Seen) -> Result<(), StoreError> {
        let text = seen.to_text();
        if text.len() as u64 > SEEN_LEN_MAX {
            return Err(self.broken_file(SEEN, format!("it would have more than {SEEN_LEN_MAX} bytes")));
        }
        self.replace(SEEN, SEEN_NEW, &text)
    }

    /// Puts a whole file, on disk, instead of another one; the caller holds the lock.
    fn replace(&self, place: &str, beside: &str, text: &str) -> Result<(), StoreError> {
        let failed = |name: &str, error: std::io::Error| StoreError::io(self.path.join(name), error);
        let mut file = self.create_file(beside, WRONLY | TRUNC, 0o644)?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|error| failed(beside, error))?;
        rename_at(&*self.folder, &name(beside)?, &*self.folder, &name(place)?, 0)
            .map_err(|error| failed(place, error.into()))?;
        self.sync()
    }

    fn sync(&self) -> Result<(), StoreError> {
        let folder = reopen(&*self.folder, DIRECTORY).and_then(data::sync_all);
        folder.map_err(|error| StoreError::io(&self.path, error))
    }

    fn lock(&self) -> Result<File, StoreError> {
        let file = self.create_file(LOCK, RDWR, 0o600)?;
        let start = Instant::now();
        loop {
            match flock(&file, FlockOp::Exclusive, false) {
                Ok(()) => return Ok(file),
                Err(OsError::AGAIN) if start.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(20)),
                Err(OsError::AGAIN) => {
                    return Err(self.broken_file(LOCK, "somebody else has been writing to it for long"));
                }
                Err(error) => return Err(StoreError::io(self.path.join(LOCK), error)),
            }
        }
    }

    /// Opens a file for writing that may not be there yet.
    fn create_file(&self, file: &str, flags: u32, mode: u32) -> Result<File, StoreError> {
        let failed = |error: OsError| StoreError::io(self.path.join(file), error);
        let fd = open_at(&*self.folder, &name(file)?, flags | CREAT | NONBLOCK, mode).map_err(failed)?;
        regular::check(&stat_of(&fd).map_err(failed)?)
            .map_err(|error| self.broken_file(file, error.to_string()))?;
        Ok(fd.into())
    }

    /// Reads a small file; `None` where it does not exist.
    fn read(&self, file: &str, len_max: u64) -> Result<Option<String>, StoreError> {
        let opened = match regular::open_at(&*self.folder, &name(file)?) {
            Ok(opened) => opened,
            Err(error) if error.errno() == OsError::NOENT => return Ok(None),
            Err(error) => return Err(self.broken_file(file, error.to_string())),
        };
        let stat = stat_of(&opened).map_err(|error| StoreError::io(self.path.join(file), error))?;
        self.check_owner(&stat, &self.path.join(file))?;
        let mut text = String::new();
        let mut bounded = (&opened).take(len_max + 1);
        bounded.read_to_string(&mut text).map_err(|error| StoreError::io(self.path.join(file), error))?;
        if text.len() as u64 > len_max {
            return Err(self.broken_file(file, format!("it has more than {len_max} bytes")));
        }
        Ok(Some(text))
    }

    fn names_of_keys(&self) -> Result<Vec<String>, StoreError> {
        let failed = |error: OsError| StoreError::io(&self.path, error);
        let mut reader = DirReader::new(reopen(&*self.folder, DIRECTORY).map_err(failed)?);
        let mut names = Vec::new();
        while reader.fill().map_err(failed)? {
            while let Some(record) = reader.peek().map_err(failed)? {
                let bytes = record.name.to_bytes();
                if is_name_of_key(bytes) {
                    let name =
                        std::str::from_utf8(bytes).map_err(|_| self.broken("a key's name is no text"))?;
                    names.push(name.to_owned());
                }
                reader.advance().map_err(failed)?;
            }
            if names.len() > KEYS_MAX {
                return Err(self.broken(format!("it holds more than {KEYS_MAX} keys")));
            }
        }
        names.sort();
        Ok(names)
    }

    fn broken_file(&self, file: &str, why: impl Into<String>) -> StoreError {
        StoreError::TrustStore { path: self.path.join(file), why: why.into() }
    }

    fn check_owner(&self, stat: &Stat, path: &Path) -> Result<(), StoreError> {
        let ours = shuntfs_sys::spawn::effective_uid();
        let refuse = |why: String| Err(StoreError::TrustStore { path: path.to_owned(), why });
        if stat.uid != 0 && stat.uid != ours {
            return refuse(format!("it is of user {}, who could change what is trusted", stat.uid));
        }
        if stat.mode & 0o022 != 0 {
            let mode = stat.mode & 0o7777;
            return refuse(format!("others can write it (mode {mode:o}), and so change what is trusted"));
        }
        Ok(())
    }
}

impl AsFd for TrustStore {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

/// Whether a file of this name is read as a key. One with a dot in front is what editors and copies leave for a while.
fn is_name_of_key(name: &[u8]) -> bool {
    name.ends_with(b".pub") && !name.starts_with(b".")
}

/// Whether an error says that the store is not this user's to write, or nobody's; all others must be mended.
fn is_not_to_be_written(error: &std::io::Error) -> bool {
    let error = OsError::from_io_error(error);
    matches!(error, Some(OsError::ROFS | OsError::ACCESS | OsError::PERM))
}

fn name(file: &str) -> Result<CString, StoreError> {
    CString::new(file).map_err(|error| StoreError::io(file, error))
}

fn parse_key(name: &str, text: &str) -> Result<StoredKey, String> {
    let (block, expires) = split_key_file(text)?;
    let key = PublicKey::from_pem(&block).map_err(|error| error.to_string())?;
    Ok(StoredKey { name: name.to_owned(), key, expires })
}

/// One line, `threshold = N`, beside comments.
fn parse_config(text: &str) -> Result<NonZeroUsize, String> {
    let mut threshold = None;
    for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let value = line.split_once('=').filter(|(name, _)| name.trim() == "threshold");
        let number = value.and_then(|(_, value)| value.trim().parse().ok());
        let number =
            number.ok_or_else(|| format!("line {at}: only `threshold = N` is known, N from 1 on"))?;
        if threshold.replace(number).is_some() {
            return Err(format!("line {at}: it says twice how many must sign"));
        }
    }
    Ok(threshold.unwrap_or(NonZeroUsize::MIN))
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_configuration_is_one_line() {
        let threshold = |text: &str| parse_config(text).map(NonZeroUsize::get);
        assert_eq!(threshold(""), Ok(1));
        assert_eq!(threshold("# two of three\n\n threshold=2 \n"), Ok(2));
        for wrong in ["threshold = 0", "treshold = 2", "threshold", "2", "threshold = 2\nthreshold = 2"] {
            assert!(threshold(wrong).unwrap_err().starts_with("line "), "{wrong}");
        }
    }
}
