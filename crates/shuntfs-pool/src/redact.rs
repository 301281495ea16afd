//! What an open file of a partial view shows.
//!
//! Where what is hidden depends on what the file holds, nobody must change the file between our looking and our
//! reading. So both are one: at the open the bytes are read into memory under a read lease, which is had only while
//! nobody has the lower file open for writing, by whatever way, and keeps whoever wants to waiting; what must be hidden
//! is looked for in that copy; and READ is answered from the copy alone. It does not matter what happens to the file
//! later: the next open sees it. A file that is being written has no state that could be looked at, and the open is
//! told EBUSY. Where there are no leases, the file is hidden whole.
//!
//! Where only given ranges are hidden, the lower file is read as it is at each READ, and the ranges blanked. By zero copy, what lies outside
//! of them goes to the caller unseen, as does what lies behind a copy of a file's first bytes ([`Untouched`]).

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use shuntfs::{
    ByteRange, CacheHint, Cx, Delegation, Errno, Filled, LowerFile, NodeId, RangeMap, RangeSource, ReadReply,
    Result,
};
use shuntfs_redact::{LOOK_MAX, Look, Ranges, Redaction};
use shuntfs_sys::data::read_at;
use shuntfs_sys::memory::file_in_memory;
use shuntfs_sys::{OsError, Stat, Time, give_back_lease, is_undisturbed, stat_of, take_read_lease};

use crate::error::errno;
use crate::file::PoolFile;
use crate::gate::Gates;
use crate::lowers::Lowers;
use crate::mode;
use crate::node::Node;
use crate::pool::Pool;
use crate::rules::Engine;
use crate::shared::Shared;

/// Copies take no more memory than this, all together; an open that would is refused with ENOMEM.
const COPIES_MAX: u64 = 256 << 20;

/// Copies that no open file uses are kept up to one in this many of that.
const KEPT_SHARE: u64 = 4;

/// How often a file is examined anew that somebody wanted to write meanwhile.
const TRIES: usize = 3;

/// What is shown of an open file.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    /// The lower file as it is, but for these bytes.
    Live(Arc<Ranges>),
    /// A copy, redacted.
    Copy(Arc<Copied>),
}

/// A file's bytes as they were at one moment, redacted.
#[derive(Debug)]
pub(crate) struct Copied {
    stamp: Stamp,
    bytes: Bytes,
    /// The lower file goes on behind the copy, and these bytes of it are hidden.
    rest: Option<Ranges>,
    _room: Room,
}

/// The bytes of a copy.
#[derive(Debug)]
enum Bytes {
    Own(Vec<u8>),
    /// In memory that outlives the server, so many of them.
    Kept(File, usize),
}

impl Bytes {
    fn len(&self) -> usize {
        match self {
            Self::Own(bytes) => bytes.len(),
            Self::Kept(_, len) => *len,
        }
    }

    /// Copies from a place on; all of `room` is there.
    fn read(&self, room: &mut [u8], from: usize) -> Result<()> {
        match self {
            Self::Own(bytes) => room.copy_from_slice(&bytes[from..from + room.len()]),
            Self::Kept(file, _) => file.read_exact_at(room, from as u64).map_err(|_| Errno::IO)?,
        }
        Ok(())
    }
}

impl Shown {
    /// Whether the lower file goes on behind a copy.
    pub(crate) fn goes_on(&self) -> bool {
        matches!(self, Self::Copy(copy) if copy.rest.is_some())
    }

    /// Which bytes of the lower file must not go to the caller unseen.
    fn seen(&self) -> Ranges {
        match self {
            Self::Live(hidden) => (**hidden).clone(),
            Self::Copy(copy) => match &copy.rest {
                Some(rest) => rest.union(&std::iter::once(0..copy.bytes.len() as u64).collect()),
                None => Ranges::whole(),
            },
        }
    }

    /// A descriptor of the copy, by which the next server shows it.
    ///
    /// # Errors
    /// EMFILE at the descriptor limit.
    pub(crate) fn kept(&self) -> Result<Option<OwnedFd>> {
        let Self::Copy(copy) = self else { return Ok(None) };
        let Bytes::Kept(file, _) = &copy.bytes else { return Ok(None) };
        file.try_clone().map(|file| Some(file.into())).map_err(|_| Errno::MFILE)
    }
}

/// What an open file showed under a server that is dead, with the descriptor for the next one; `goes_on` where the lower file went on behind
/// the copy. `None` where it showed a copy that does not exist.
pub(crate) fn left(
    shared: &Shared,
    node: &Node,
    copy: Option<OwnedFd>,
    goes_on: bool,
) -> Option<(Shown, Option<OwnedFd>)> {
    let redaction = shared.views.redaction(node.view)?;
    let Some(copy) = copy else {
        // Without a copy it showed given ranges, or nothing.
        let hidden = match redaction.look() {
            Look::Nothing => redaction.find(&[]),
            _ => Ranges::whole(),
        };
        return Some((Shown::Live(Arc::new(hidden)), None));
    };
    let file = File::from(copy);
    let len = file.metadata().ok().filter(|found| found.len() <= LOOK_MAX)?.len();
    let Some(room) = shared.copies.room(len) else {
        return Some((Shown::Live(Arc::new(Ranges::whole())), None));
    };
    let len = usize::try_from(len).ok()?;
    let rest = if goes_on {
        // What is hidden of the copy is hidden: of the rest it is what was given, wherever the file holds what.
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Some(redaction.find(&bytes))
    } else {
        None
    };
    let kept = file.try_clone().ok()?.into();
    let none = Time { secs: 0, nanos: 0 };
    let stamp = Stamp { size: u64::MAX, mtime: none, ctime: none };
    let copy = Copied { stamp, bytes: Bytes::Kept(file, len), rest, _room: room };
    Some((Shown::Copy(Arc::new(copy)), Some(kept)))
}

/// The bytes in memory that outlives the server.
fn outlive(bytes: &[u8]) -> Result<Bytes> {
    let file = file_in_memory(c"shuntfs-copy").map_err(errno)?;
    file.write_all_at(bytes, 0).map_err(|_| Errno::NOMEM)?;
    Ok(Bytes::Kept(file, bytes.len()))
}

/// Tells whether a file may have changed. Nothing that must stay hidden relies on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stamp {
    size: u64,
    mtime: Time,
    ctime: Time,
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        Self { size: stat.size, mtime: stat.mtime, ctime: stat.ctime }
    }
}

/// The copies that there are, each in use or used a moment ago.
#[derive(Debug)]
pub(crate) struct Copies {
    by_node: Mutex<HashMap<NodeId, Arc<Slot>>>,
    recent: Mutex<VecDeque<(NodeId, Arc<Copied>)>>,
    taken: Arc<AtomicU64>,
    taken_max: u64,
    pub(crate) gates: Arc<Gates>,
    has_warned: AtomicBool,
}

/// One node's copy; the lock makes opens of one file wait for each other, so that it is copied once.
type Slot = Mutex<Weak<Copied>>;

/// Memory that a copy counts as.
#[derive(Debug)]
struct Room {
    taken: Arc<AtomicU64>,
    len: u64,
}

impl Room {
    fn none() -> Self {
        Self { taken: Arc::default(), len: 0 }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.len, Ordering::Relaxed);
    }
}

/// What an open of a node of a partial view shows, and what happens to the pages that the kernel has.
pub(crate) fn show(shared: &Shared, node: &Arc<Node>) -> Result<(Shown, CacheHint)> {
    let redaction = shared.views.redaction(node.view).ok_or(Errno::IO)?;
    match redaction.look() {
        Look::Nothing => Ok((Shown::Live(Arc::new(redaction.find(&[]))), CacheHint::Drop)),
        look => copy_of(shared, node, &redaction, look),
    }
}

fn copy_of(
    shared: &Shared,
    node: &Arc<Node>,
    redaction: &Redaction,
    look: Look,
) -> Result<(Shown, CacheHint)> {
    let slot = Arc::clone(shared.copies.by_node.lock().entry(node.id).or_default());
    let mut held = slot.lock();
    let file = shared.open_node(node, mode::O_RDONLY)?;
    let stamp = Stamp::of(&stat_of(&file).map_err(errno)?);
    if let Some(copy) = held.upgrade().filter(|copy| copy.stamp == stamp) {
        // The pages that the kernel has are of this copy, or of one that an earlier open still shows.
        shared.copies.use_again(node.id, &copy);
        return Ok((Shown::Copy(copy), CacheHint::Keep));
    }
    let Some(copy) = take(shared, node, &file, redaction, look)? else {
        return Ok((Shown::Live(Arc::new(Ranges::whole())), CacheHint::Drop));
    };
    let copy = Arc::new(copy);
    *held = Arc::downgrade(&copy);
    shared.copies.use_again(node.id, &copy);
    Ok((Shown::Copy(copy), CacheHint::Drop))
}

/// Copies a file while nobody writes it; `None` where that cannot be known, or the file is too long to be looked at.
fn take(
    shared: &Shared,
    node: &Node,
    file: &LowerFile,
    redaction: &Redaction,
    look: Look,
) -> Result<Option<Copied>> {
    for _ in 0..TRIES {
        let lease = match Lease::take(&shared.copies.gates, node, file) {
            Ok(lease) => lease,
            Err(OsError::AGAIN) => return Err(Errno::BUSY),
            Err(error) => {
                // Once: it is a matter of the lower file system, or of our rights.
                if !shared.copies.has_warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "no lease to look at a file under; such files are hidden whole");
                }
                return Ok(None);
            }
        };
        let stat = stat_of(file).map_err(errno)?;
        let len = match look {
            Look::First(first) => stat.size.min(first),
            _ if stat.size > LOOK_MAX => return Ok(None),
            _ => stat.size,
        };
        let room = shared.copies.room(len).ok_or(Errno::NOMEM)?;
        // What is left of a photo is read once more, from a copy without what must be hidden.
        let second =
            if look == Look::All { shared.copies.room(len).ok_or(Errno::NOMEM)? } else { Room::none() };
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| Errno::NOMEM)?];
        let read = read_whole(file, &mut bytes, 0)?;
        bytes.truncate(read);
        if !lease.is_undisturbed() {
            continue;
        }
        drop(lease);
        let hidden = redaction.find(&bytes);
        drop(second);
        hidden.blank(0, &mut bytes);
        // What a shorter file grows by was not looked at, and shows with the next open.
        let rest = (look == Look::First(read as u64)).then_some(hidden);
        let bytes = if shared.table.is_kept() { outlive(&bytes)? } else { Bytes::Own(bytes) };
        return Ok(Some(Copied { stamp: Stamp::of(&stat), bytes, rest, _room: room }));
    }
    Err(Errno::BUSY)
}

/// A lease, and the gate closed to those who would meet it.
struct Lease<'l> {
    gates: &'l Gates,
    node: &'l Node,
    file: &'l LowerFile,
}

impl<'l> Lease<'l> {
    fn take(gates: &'l Gates, node: &'l Node, file: &'l LowerFile) -> shuntfs_sys::Result<Self> {
        if !gates.look(node) {
            return Err(OsError::AGAIN);
        }
        let lease = Self { gates, node, file };
        take_read_lease(file)?;
        Ok(lease)
    }

    fn is_undisturbed(&self) -> bool {
        is_undisturbed(self.file) == Ok(true)
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        // Where it was not available there is none to give back.
        if let Err(error) = give_back_lease(self.file) {
            tracing::debug!(%error, "no lease to give back");
        }
        self.gates.looked(self.node);
    }
}

impl Default for Copies {
    fn default() -> Self {
        Self::new(COPIES_MAX)
    }
}

impl Copies {
    /// No copies, and room for so many bytes of them.
    fn new(taken_max: u64) -> Self {
        Self {
            by_node: Mutex::default(),
            recent: Mutex::default(),
            taken: Arc::default(),
            taken_max,
            gates: Arc::default(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Whether a lease of ours may be what an open for writing met.
    pub(crate) fn may_be_in_the_way(&self) -> bool {
        self.gates.is_anything_looked_at()
    }

    /// Forgets a node that the kernel forgot.
    pub(crate) fn forget(&self, node: NodeId) {
        self.by_node.lock().remove(&node);
        self.recent.lock().retain(|(id, _)| *id != node);
    }

    /// How many bytes copies take.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    fn room(&self, len: u64) -> Option<Room> {
        loop {
            let fits = |taken: u64| taken.checked_add(len).filter(|sum| *sum <= self.taken_max);
            if self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok() {
                return Some(Room { taken: Arc::clone(&self.taken), len });
            }
            // What nobody uses makes room.
            self.recent.lock().pop_front()?;
        }
    }

    /// Keeps a copy for a while, the ones used last.
    fn use_again(&self, node: NodeId, copy: &Arc<Copied>) {
        let mut recent = self.recent.lock();
        recent.retain(|(id, _)| *id != node);
        recent.push_back((node, Arc::clone(copy)));
        let mut kept: u64 = recent.iter().map(|(_, copy)| copy.bytes.len() as u64).sum();
        while kept > self.taken_max / KEPT_SHARE {
            let Some((_, oldest)) = recent.pop_front() else { return };
            kept -= oldest.bytes.len() as u64;
        }
    }
}

/// READ.
pub(crate) async fn read<'q>(
    pool: &Pool,
    cx: &Cx<'_>,
    file: &PoolFile,
    shown: &Shown,
    at: ByteRange,
    reply: ReadReply<'q>,
) -> Result<Filled<'q>> {
    let lower = match shown {
        Shown::Copy(copy) if copy.rest.is_none() => None,
        _ => Some(file.reader(&pool.shared)?),
    };
    let (shown, offset) = (shown.clone(), at.offset);
    pool.fill(cx, reply, move |_, bytes| fill(&shown, lower.as_deref(), offset, bytes)).await
}

/// How the bytes of an open file of a partial view flow. It is served; but where there is zero copy, what need not be seen is moved.
pub(crate) fn delegation(shared: &Shared, file: &PoolFile) -> Delegation {
    let home = shared.rules.as_ref().and_then(Engine::home);
    let (Some(shown), Some(home)) = (&file.shown, home) else { return Delegation::Served };
    let seen = shown.seen();
    if !shared.kernel.zero_copy.load(Ordering::Relaxed) || seen.is_whole() {
        return Delegation::Served;
    }
    let (home, node, lowers) = (Weak::clone(home), Arc::clone(&file.node), Arc::clone(&file.lowers));
    Delegation::PerRange(Arc::new(Untouched { home, node, lowers, seen }))
}

/// The lower file, but for the bytes that must be seen, which are served.
#[derive(Debug)]
struct Untouched {
    home: Weak<Shared>,
    node: Arc<Node>,
    lowers: Arc<Lowers>,
    seen: Ranges,
}

impl Untouched {
    /// The lower file, if it can be read; what is wrong with it is told where the bytes are served.
    fn lower(&self) -> Option<Arc<LowerFile>> {
        let shared = self.home.upgrade()?;
        shared.reaches(self.node.mount()).ok()?;
        let open = || shared.open_node(&self.node, mode::O_RDONLY | mode::O_NONBLOCK);
        shared.under_way(|| self.lowers.reader.held_or(&self.node, open)).ok()
    }
}

impl RangeMap for Untouched {
    fn source(&self, offset: u64) -> (RangeSource, u64) {
        let (is_seen, len) = self.seen.run(offset);
        match if is_seen { None } else { self.lower() } {
            Some(lower) => (RangeSource::Lower(lower, offset), len),
            None => (RangeSource::Served, len),
        }
    }
}

/// Puts what is shown from `offset` on into `bytes`; how much.
fn fill(shown: &Shown, lower: Option<&LowerFile>, offset: u64, bytes: &mut [u8]) -> Result<usize> {
    let (copied, hidden) = match shown {
        Shown::Live(hidden) => (0, Some(&**hidden)),
        Shown::Copy(copy) => {
            let from =
                usize::try_from(offset).map_or(copy.bytes.len(), |offset| offset.min(copy.bytes.len()));
            let len = bytes.len().min(copy.bytes.len() - from);
            copy.bytes.read(&mut bytes[..len], from)?;
            (len, copy.rest.as_ref())
        }
    };
    let (Some(hidden), Some(lower)) = (hidden, lower) else { return Ok(copied) };
    let rest = &mut bytes[copied..];
    let start = offset + copied as u64;
    let read = read_whole(lower, rest, start)?;
    hidden.blank(start, &mut rest[..read]);
    Ok(copied + read)
}

/// Reads until `bytes` are full or the file ends.
fn read_whole(file: &LowerFile, bytes: &mut [u8], offset: u64) -> Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match read_at(file, &mut bytes[len..], offset + len as u64).map_err(errno)? {
            0 => break,
            read => len += read,
        }
    }
    Ok(len)
}

#[cfg(test)]
mod test {
    use std::fs::{self, File};
    use std::path::Path;

    use super::*;
    use crate::find;
    use crate::name_buf::NameBuf;
    use crate::op::{attr, make, open, remove};
    use crate::options::PoolOptions;
    use crate::view::Seen;
    use crate::who::Who;
    use shuntfs::{Delegation, Name, NodeId, OpenFlags, SetAttr};
    use shuntfs_rules::{ByteSpan, Redact, RegexRedaction};
    use shuntfs_testkit::identity::Identity;

    fn pool() -> (tempfile::TempDir, Shared) {
        let folder = tempfile::tempdir().unwrap();
        let shared = Shared::open(&PoolOptions::new(folder.path())).unwrap();
        (folder, shared)
    }

    /// The node of a file for somebody from whom `redact` is hidden.
    fn node(shared: &Shared, name: &str, redact: &[Redact]) -> Arc<Node> {
        let name = std::ffi::CString::new(name).unwrap();
        let name = NameBuf::new(Name::new(&name).unwrap()).unwrap();
        let root = shared.folder(NodeId::ROOT).unwrap();
        let found = find::find(shared, root.spot(&name)).unwrap();
        find::obtain(shared, found, Seen { view: shared.views.of(redact), varies: true }).0
    }

    fn regex(pattern: &str, within: u64) -> Redact {
        Redact::Regex(RegexRedaction { pattern: pattern.into(), within, group: 0 })
    }

    /// What is shown of a file when it is opened now.
    fn bytes(shared: &Shared, node: &Arc<Node>) -> Result<Vec<u8>> {
        let (shown, _) = show(shared, node)?;
        Ok(read_all(shared, node, &shown))
    }

    /// By reads of seven bytes, which meet every edge.
    fn read_all(shared: &Shared, node: &Arc<Node>, shown: &Shown) -> Vec<u8> {
        let lower = shared.open_node(node, mode::O_RDONLY).unwrap();
        let mut all = Vec::new();
        loop {
            let mut some = [0xee; 7];
            match fill(shown, Some(&lower), all.len() as u64, &mut some).unwrap() {
                0 => return all,
                len => all.extend_from_slice(&some[..len]),
            }
        }
    }

    fn write(at: &Path, bytes: &[u8]) {
        fs::write(at, bytes).unwrap();
    }

    #[test]
    fn given_ranges_are_blank_whatever_the_file_holds() {
        let (folder, shared) = pool();
        let path = folder.path().join("f");
        write(&path, b"0123456789");
        let spans = vec![ByteSpan { start: 2, end: Some(4) }, ByteSpan { start: 8, end: None }];
        let node = node(&shared, "f", &[Redact::Ranges(spans)]);
        let (shown, _) = show(&shared, &node).unwrap();
        assert_eq!(read_all(&shared, &node, &shown), b"01\x00\x004567\x00\x00");
        let _writer = File::options().write(true).open(&path).unwrap();
        write(&path, b"abcdefghijklmnop");
        assert_eq!(read_all(&shared, &node, &shown), b"ab\0\0efgh\0\0\0\0\0\0\0\0");
        assert!(bytes(&shared, &node).is_ok(), "it does not matter who writes");
    }

    #[test]
    fn what_an_open_shows_is_of_its_moment() {
        let (folder, shared) = pool();
        let path = folder.path().join("f");
        write(&path, b"name=ann key=1234 more");
        let node = node(&shared, "f", &[regex("key=[0-9]+", 1000)]);
        let (shown, cache) = show(&shared, &node).unwrap();
        assert_eq!(cache, CacheHint::Drop);
        assert_eq!(show(&shared, &node).unwrap().1, CacheHint::Keep, "the same copy");
        // The secret moves to where none was.
        write(&path, b"key=1234 name=ann, and key=99 more");
        assert_eq!(read_all(&shared, &node, &shown), b"name=ann \0\0\0\0\0\0\0\0 more");
        let again = show(&shared, &node).unwrap();
        assert_eq!(again.1, CacheHint::Drop);
        assert_eq!(read_all(&shared, &node, &again.0), b"\0\0\0\0\0\0\0\0 name=ann, and \0\0\0\0\0\0 more");
    }

    #[test]
    fn what_is_not_looked_at_is_shown_only_behind_the_first_bytes() {
        let (folder, shared) = pool();
        let path = folder.path().join("f");
        write(&path, b"key=1 key=2 key=3");
        let node = node(&shared, "f", &[regex("key=[0-9]", 12)]);
        assert_eq!(bytes(&shared, &node).unwrap(), b"\0\0\0\0\0 \0\0\0\0\0 key=3");
        write(&path, b"key=1 key");
        let (shown, _) = show(&shared, &node).unwrap();
        write(&path, b"key=1 key=2 key=3");
        assert_eq!(read_all(&shared, &node, &shown), b"\0\0\0\0\0 key", "what it grew by was not looked at");
    }

    #[test]
    fn a_file_that_is_being_written_is_busy() {
        let (folder, shared) = pool();
        let path = folder.path().join("f");
        write(&path, b"key=1");
        let node = node(&shared, "f", &[regex("key=[0-9]", 12)]);
        let writer = File::options().write(true).open(&path).unwrap();
        assert_eq!(bytes(&shared, &node).err(), Some(Errno::BUSY));
        drop(writer);
        assert_eq!(bytes(&shared, &node).unwrap(), [0; 5]);
        assert!(!shared.copies.may_be_in_the_way());
    }

    #[test]
    fn what_cannot_be_looked_at_is_hidden_whole() {
        let (folder, shared) = pool();
        let path = folder.path().join("f");
        File::create_new(&path).unwrap().set_len(LOOK_MAX + 1).unwrap();
        write(&folder.path().join("g"), b"no photo");
        let (long, other) = (node(&shared, "f", &[Redact::ExifGps]), node(&shared, "g", &[Redact::ExifGps]));
        assert!(matches!(show(&shared, &long).unwrap().0, Shown::Live(ranges) if ranges.is_whole()));
        assert_eq!(bytes(&shared, &other).unwrap(), [0; 8]);
        let open = |flags| open::open(&shared, Who::root(), other.id, OpenFlags(flags)).map(drop);
        assert_eq!(open(mode::O_RDWR), Err(Errno::ACCES));
        assert_eq!(open(mode::O_TRUNC), Err(Errno::ACCES));
        assert_eq!(open(mode::O_RDONLY), Ok(()));
    }

    #[test]
    fn without_a_right_to_leases_the_file_is_hidden_whole() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: there is no right to give up");
            return;
        }
        let (folder, shared) = pool();
        write(&folder.path().join("f"), b"key=1 name=ann");
        let node = node(&shared, "f", &[regex("key=[0-9]", 12)]);
        // By handle only root could reach it.
        let _held = shared.descriptor(&node).unwrap();
        let seen = Identity::nobody().run(|| bytes(&shared, &node)).unwrap();
        assert_eq!(seen, [0; 14]);
        assert_eq!(bytes(&shared, &node).unwrap(), b"\0\0\0\0\0 name=ann");
    }

    #[test]
    fn copies_take_bounded_memory_and_give_it_back() {
        let (folder, mut shared) = pool();
        shared.copies = Copies::new(250_000);
        let len = 60_000;
        let node_of = |name: &str| {
            File::create_new(folder.path().join(name)).unwrap().set_len(len).unwrap();
            node(&shared, name, &[regex("x", LOOK_MAX)])
        };
        let mut held: Vec<_> = ["a", "b", "c", "d"].map(|name| show(&shared, &node_of(name)).unwrap()).into();
        assert_eq!(shared.copies.taken(), 4 * len);
        let more = node_of("e");
        assert_eq!(show(&shared, &more).err(), Some(Errno::NOMEM));
        held.truncate(2);
        let more = show(&shared, &more).unwrap();
        drop((held, more));
        assert!(shared.copies.taken() <= 250_000 / KEPT_SHARE);
        shared.copies.recent.lock().clear();
        assert_eq!(shared.copies.taken(), 0);
    }

    #[test]
    fn the_second_look_at_a_photo_takes_room_as_well() {
        let (folder, mut shared) = pool();
        write(&folder.path().join("f"), &[0xff; 100_000]);
        let node = node(&shared, "f", &[Redact::ExifGps]);
        shared.copies = Copies::new(150_000);
        assert_eq!(show(&shared, &node).err(), Some(Errno::NOMEM));
        assert_eq!(shared.copies.taken(), 0);
        shared.copies = Copies::new(200_000);
        let shown = show(&shared, &node).unwrap();
        assert_eq!(shared.copies.taken(), 100_000);
        drop(shown);
    }

    #[test]
    fn an_open_for_writing_through_the_mount_keeps_looks_out_to_its_close() {
        let (folder, shared) = pool();
        write(&folder.path().join("f"), b"key=1");
        let (whole, partial) = (node(&shared, "f", &[]), node(&shared, "f", &[regex("key=[0-9]", 12)]));
        let open = |flags| open::open(&shared, Who::root(), whole.id, OpenFlags(flags)).unwrap();
        let (reader, writer) = (open(mode::O_RDONLY), open(mode::O_RDWR));
        assert_eq!(bytes(&shared, &partial).err(), Some(Errno::BUSY));
        drop(writer);
        assert_eq!(bytes(&shared, &partial).unwrap(), [0; 5]);
        drop(reader);
    }

    #[test]
    fn a_partial_view_neither_cuts_nor_links() {
        let (folder, shared) = pool();
        write(&folder.path().join("f"), b"0123456789");
        let node = node(&shared, "f", &[Redact::Whole]);
        let cut = SetAttr { size: Some(1), ..SetAttr::default() };
        assert_eq!(attr::setattr(&shared, Who::root(), node.id, (None, None), cut).err(), Some(Errno::ACCES));
        let name = NameBuf::new(Name::new(c"g").unwrap()).unwrap();
        let linked = make::link(&shared, Who::root(), node.id, NodeId::ROOT, &name);
        assert_eq!(linked.err(), Some(Errno::ACCES));
        let opened = open::open(&shared, Who::root(), node.id, OpenFlags(mode::O_RDONLY)).unwrap();
        assert!(opened.file.shown.is_some() && matches!(opened.delegation, Delegation::Served));
    }

    #[test]
    fn every_view_that_is_open_lives_on_without_a_name() {
        let (folder, shared) = pool();
        write(&folder.path().join("f"), b"0123456789");
        let (whole, partial) = (node(&shared, "f", &[]), node(&shared, "f", &[Redact::Whole]));
        assert_ne!(whole.id, partial.id);
        let open =
            |node: &Node| open::open(&shared, Who::root(), node.id, OpenFlags(mode::O_RDONLY)).unwrap();
        let opened = [open(&whole), open(&partial)];
        let name = NameBuf::new(Name::new(c"f").unwrap()).unwrap();
        remove::unlink(&shared, Who::root(), NodeId::ROOT, &name).unwrap();
        for node in [&whole, &partial] {
            let stat = attr::getattr(&shared, node.id).unwrap();
            assert_eq!((stat.attr.nlink, stat.attr.size, stat.ttl), (0, 10, std::time::Duration::ZERO));
        }
        drop(opened);
    }

    /// An open for writing waits for who looks, and a cut for the lease that comes with it. That used to hold the queue, and
    /// with it every other request of the mount's only one.
    #[test]
    fn whoever_waits_for_a_look_holds_up_nobody_else() {
        use shuntfs::{MountOptions, Session, SessionOptions, Transport, TransportKind};
        struct Nobody;
        impl shuntfs_rules::Known for Nobody {
            fn user(&self, _: &str) -> Option<u32> {
                None
            }
            fn group(&self, _: &str) -> Option<u32> {
                None
            }
            fn policies(&self) -> &[&str] {
                &[]
            }
        }
        let (below, top) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["photo", "other"] {
            write(&below.path().join(name), b"what is in it");
        }
        let text = "[[rule]]\npath = 'photo'\nuid = 71001\nredact = 'whole'\n";
        let rules = shuntfs_rules::Rules::parse(text, "r", None, &Nobody).unwrap();
        let pool = crate::Pool::open_with_rules(&PoolOptions::new(below.path()), rules).unwrap();
        let shared = Arc::clone(&pool.shared);
        let one = SessionOptions {
            transport: Transport::Only(TransportKind::Device),
            queues: Some(1),
            ..SessionOptions::default()
        };
        let session = match Session::mount(Arc::new(pool), top.path(), &MountOptions::default(), &one) {
            Ok(session) => session,
            Err(error) => {
                eprintln!("SKIPPED: cannot mount here: {error}");
                return;
            }
        };
        let (photo, other) = (top.path().join("photo"), top.path().join("other"));
        assert!(photo.metadata().is_ok() && other.metadata().is_ok());
        let root = shared.folder(NodeId::ROOT).unwrap();
        let name = NameBuf::new(Name::new(c"photo").unwrap()).unwrap();
        let node = Arc::clone(&find::known(&shared, root.spot(&name)).unwrap()[0]);
        let lower = shared.open_node(&node, mode::O_RDONLY).unwrap();
        let lease = Lease::take(&shared.copies.gates, &node, &lower).unwrap();
        let cut = "truncate($ARGV[0], 1) or die $!";
        let mut waiting = std::process::Command::new("perl").args(["-e", cut]).arg(&photo).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(150));
        assert!(waiting.try_wait().unwrap().is_none(), "it waits for the lease");
        let begun = std::time::Instant::now();
        std::fs::read(&other).unwrap();
        let took = begun.elapsed();
        drop(lease);
        assert!(took < std::time::Duration::from_millis(300), "another file took {took:?}");
        assert!(waiting.wait().unwrap().success());
        assert_eq!(photo.metadata().unwrap().len(), 1);
        session.unmount_lazily().unwrap();
    }
}
