//! File systems without async that answer what is not asked for every day: by paths, and by numbers.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shuntfs::{
    Attr, AttrReply, Birth, BlockingFilesystem, ByteRange, Caller, CopyFileRange, DirEntry, Entry, Errno,
    Fallocate, FileType, Generation, Ioctl, LockOwner, LockRange, LockRequest, LockType, New, NodeId, OpSet,
    OpenFlags, Opened, PathFilesystem, Place, Poll, PollEvents, Result, SetAttr, Timestamp, Tmpfile, Whence,
};

/// A folder, shown by paths, with every operation that paths have.
#[derive(Debug)]
pub(crate) struct Desk {
    source: PathBuf,
    pub(crate) seen: Arc<Seen>,
}

/// What the test looks at.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    locks: Mutex<Vec<Held>>,
    /// How often somebody did not get a lock.
    pub(crate) refusals: AtomicU32,
    pub(crate) folders_synced: AtomicU32,
    /// Whether files have something to be read.
    pub(crate) ready: AtomicBool,
    number: AtomicU32,
}

#[derive(Debug)]
struct Held {
    ino: u64,
    owner: LockOwner,
    flock: bool,
    range: LockRange,
}

impl Held {
    fn is_in_the_way(&self, ino: u64, lock: &LockRequest) -> bool {
        let wanted = &lock.range;
        let excludes = self.range.kind == LockType::Write || wanted.kind == LockType::Write;
        excludes
            && self.ino == ino
            && self.flock == lock.flock
            && self.owner != lock.owner
            && self.meets(wanted)
    }

    fn meets(&self, range: &LockRange) -> bool {
        self.range.start <= range.end && range.start <= self.range.end
    }
}

/// The command that reads a number, and the one that writes it.
pub(crate) const GET: u32 = 0x8004_4401;
pub(crate) const SET: u32 = 0x4004_4402;
/// The birth that is shown of everything.
pub(crate) const BIRTH: i64 = 1_000_000_007;

impl Desk {
    pub(crate) fn new(source: &Path) -> Self {
        Self { source: source.to_owned(), seen: Arc::default() }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.source.join(path)
    }
}

fn lower(error: shuntfs_sys::OsError) -> Errno {
    Errno::from_lower(error.raw_os_error())
}

impl PathFilesystem for Desk {
    type File = File;

    const OPS: OpSet = OpSet::all();

    fn getattr(&self, _: &Caller, place: Place<'_, File>) -> Result<Attr> {
        Ok(match place {
            Place::Path(path) => fs::symlink_metadata(self.at(path))?.into(),
            Place::Open(file) => file.metadata()?.into(),
        })
    }

    fn statx(&self, caller: &Caller, place: Place<'_, File>) -> Result<(Attr, Birth)> {
        let btime = Some(Timestamp { secs: BIRTH, nanos: 7 });
        Ok((self.getattr(caller, place)?, Birth { btime, ..Birth::default() }))
    }

    fn setattr(&self, _: &Caller, place: Place<'_, File>, set: SetAttr) -> Result<()> {
        if let Some(size) = set.size {
            File::options().write(true).open(self.at(place.path()?))?.set_len(size)?;
        }
        Ok(())
    }

    fn mkdir(&self, _: &Caller, new: &New<PathBuf>) -> Result<()> {
        Ok(fs::create_dir(self.at(&new.place))?)
    }

    fn open(&self, _: &Caller, path: &Path, flags: OpenFlags) -> Result<Opened<File>> {
        let file = File::options().read(true).write(flags.may_write()).open(self.at(path))?;
        Ok(Opened::served(file).with_flush())
    }

    fn create(&self, _: &Caller, new: &New<PathBuf>, _: OpenFlags) -> Result<Opened<File>> {
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(self.at(&new.place))?;
        Ok(Opened::served(file).with_flush())
    }

    fn read(&self, _: &Caller, file: &File, at: ByteRange) -> Result<Vec<u8>> {
        let mut bytes = vec![0; at.len as usize];
        let count = file.read_at(&mut bytes, at.offset)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    fn write(&self, _: &Caller, file: &File, at: u64, data: &[u8]) -> Result<usize> {
        file.write_all_at(data, at)?;
        Ok(data.len())
    }

    fn flush(&self, _: &Caller, _: &File, owner: LockOwner) -> Result<()> {
        self.seen.locks.lock().retain(|held| held.flock || held.owner != owner);
        Ok(())
    }

    fn release(&self, _: &Caller, file: &File, flock_owner: Option<LockOwner>) {
        let Ok(ino) = file.metadata().map(|found| found.ino()) else { return };
        let goes = |held: &Held| held.flock && held.ino == ino && Some(held.owner) == flock_owner;
        self.seen.locks.lock().retain(|held| !goes(held));
    }

    fn fallocate(&self, _: &Caller, file: &File, op: Fallocate) -> Result<()> {
        shuntfs_sys::data::fallocate(file, op.mode, op.offset, op.len).map_err(lower)
    }

    fn lseek(&self, _: &Caller, file: &File, offset: u64, whence: Whence) -> Result<u64> {
        match whence {
            Whence::Data => shuntfs_sys::data::seek_data(file, offset),
            _ => shuntfs_sys::data::seek_hole(file, offset),
        }
        .map_err(lower)
    }

    fn copy_file_range(&self, _: &Caller, op: CopyFileRange<'_, File>) -> Result<u64> {
        let mut bytes = vec![0; usize::try_from(op.len).map_err(|_| Errno::FBIG)?];
        let count = op.from.read_at(&mut bytes, op.from_offset)?;
        op.to.write_all_at(&bytes[..count], op.to_offset)?;
        Ok(count as u64)
    }

    fn ioctl(&self, _: &Caller, place: Place<'_, File>, op: Ioctl<'_>) -> Result<(i32, Vec<u8>)> {
        // A folder has twice the number.
        let factor = if place.path().is_ok() { 2 } else { 1 };
        match op.command {
            GET => Ok((0, (self.seen.number.load(Ordering::SeqCst) * factor).to_ne_bytes().to_vec())),
            SET => {
                let number = op.input.first_chunk().ok_or(Errno::INVAL)?;
                self.seen.number.store(u32::from_ne_bytes(*number), Ordering::SeqCst);
                Ok((0, Vec::new()))
            }
            _ => Err(Errno::NOTTY),
        }
    }

    fn getlk(&self, _: &Caller, file: &File, lock: LockRequest) -> Result<LockRange> {
        let ino = file.metadata()?.ino();
        let locks = self.seen.locks.lock();
        let found = locks.iter().find(|held| held.is_in_the_way(ino, &lock));
        Ok(found.map_or(LockRange { kind: LockType::Unlock, ..lock.range }, |held| held.range))
    }

    fn setlk(&self, _: &Caller, file: &File, lock: LockRequest) -> Result<()> {
        assert!(!lock.wait, "the adapter waits");
        let ino = file.metadata()?.ino();
        let mut locks = self.seen.locks.lock();
        if lock.range.kind != LockType::Unlock && locks.iter().any(|held| held.is_in_the_way(ino, &lock)) {
            self.seen.refusals.fetch_add(1, Ordering::SeqCst);
            return Err(Errno::AGAIN);
        }
        let is_own = |held: &Held| held.ino == ino && held.owner == lock.owner && held.flock == lock.flock;
        locks.retain(|held| !is_own(held) || !held.meets(&lock.range));
        if lock.range.kind != LockType::Unlock {
            locks.push(Held { ino, owner: lock.owner, flock: lock.flock, range: lock.range });
        }
        Ok(())
    }

    fn poll(&self, _: &Caller, _: &File, _: Poll) -> Result<PollEvents> {
        let ready = self.seen.ready.load(Ordering::SeqCst);
        Ok(if ready { PollEvents::IN | PollEvents::READ_NORMAL } else { PollEvents::empty() })
    }

    fn fsyncdir(&self, _: &Caller, path: &Path, _: bool) -> Result<()> {
        self.seen.folders_synced.fetch_add(1, Ordering::SeqCst);
        Ok(File::open(self.at(path))?.sync_all()?)
    }

    fn access(&self, _: &Caller, path: &Path, mask: u32) -> Result<()> {
        const WRITE: u32 = 2;
        let is_closed = path.to_string_lossy().contains("closed");
        if is_closed && mask & WRITE != 0 { Err(Errno::ACCES) } else { Ok(()) }
    }

    fn list(&self, _: &Caller, path: &Path) -> Result<Vec<DirEntry>> {
        let record = |entry: std::io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok(DirEntry { ino: 0, kind: None, name: entry.file_name() })
        };
        fs::read_dir(self.at(path))?.map(record).collect()
    }
}

/// One file in a folder, with numbers that last, and files without a name.
#[derive(Debug)]
pub(crate) struct Numbered;

pub(crate) const FOLDER: NodeId = NodeId::new(10).unwrap();
pub(crate) const FILE: NodeId = NodeId::new(11).unwrap();
const NAMELESS: NodeId = NodeId::new(12).unwrap();
const TEXT: &[u8] = b"by its number";

impl Numbered {
    fn attr(node: NodeId) -> AttrReply {
        let attr = match node {
            FILE => Attr::new(11, FileType::Regular, 0o444).with_size(TEXT.len() as u64),
            NAMELESS => Attr::new(12, FileType::Regular, 0o600),
            node => Attr::new(node.get(), FileType::Directory, 0o755),
        };
        attr.valid_for(Duration::MAX)
    }

    fn entry(node: NodeId) -> Entry {
        Entry::new(node, Self::attr(node)).with_generation(Generation(if node == NodeId::ROOT {
            0
        } else {
            7
        }))
    }
}

impl BlockingFilesystem for Numbered {
    type File = NodeId;

    const OPS: OpSet = OpSet::OPEN.union(OpSet::EXPORT).union(OpSet::TMPFILE);

    fn lookup(&self, _: &Caller, parent: NodeId, name: &OsStr) -> Result<Entry> {
        match (parent, name.as_encoded_bytes()) {
            (NodeId::ROOT, b"folder") => Ok(Self::entry(FOLDER)),
            (FOLDER, b"file") => Ok(Self::entry(FILE)),
            _ => Err(Errno::NOENT),
        }
    }

    fn lookup_node(&self, _: &Caller, node: NodeId) -> Result<Entry> {
        if [FOLDER, FILE].contains(&node) { Ok(Self::entry(node)) } else { Err(Errno::STALE) }
    }

    fn lookup_parent(&self, _: &Caller, node: NodeId) -> Result<Entry> {
        if node == FOLDER { Ok(Self::entry(NodeId::ROOT)) } else { Err(Errno::STALE) }
    }

    fn getattr(&self, _: &Caller, node: NodeId, _: Option<&NodeId>) -> Result<AttrReply> {
        Ok(Self::attr(node))
    }

    fn open(&self, _: &Caller, node: NodeId, _: OpenFlags) -> Result<Opened<NodeId>> {
        Ok(Opened::served(node))
    }

    fn tmpfile(&self, _: &Caller, op: Tmpfile) -> Result<(Entry, Opened<NodeId>)> {
        assert_eq!(op.parent, FOLDER);
        Ok((Self::entry(NAMELESS), Opened::served(NAMELESS)))
    }

    fn read(&self, _: &Caller, file: &NodeId, at: ByteRange) -> Result<Vec<u8>> {
        Ok(at.of(if *file == FILE { TEXT } else { b"" }).to_vec())
    }

    fn list(&self, _: &Caller, node: NodeId) -> Result<Vec<DirEntry>> {
        let (ino, name) = if node == FOLDER { (FILE, "file") } else { (FOLDER, "folder") };
        Ok(vec![DirEntry { ino: ino.get(), kind: None, name: name.into() }])
    }
}
