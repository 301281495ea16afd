//! Open folders and their listings.
//!
//! Cookies are the lower file system's own, so that they stay good under concurrent change exactly as far as
//! they do below. A record that found no room is left where it is: the next call goes on with it, or seeks.
//!
//! Where the kernel may keep listings anyway and nobody has to be asked whether a folder may be opened, it is told that
//! opening folders is nothing that we answer: then neither OPENDIR nor RELEASEDIR is sent, and a listing that the kernel
//! has costs no request. Its permission checks come before either, and stay. What a listing leaves for the next READDIR
//! waits in [`crate::parked`] then, not with an open folder.

use std::ffi::{CStr, CString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use shuntfs::{DirSink, Entry, Errno, FileType, LookupCount, LowerFile, Name, NodeId, Result};
use shuntfs_sys::dir::{DirReader, DirRecord};
use shuntfs_sys::open::reopen;
use shuntfs_sys::stat::{Device, stat_of};

use crate::branch::MountIndex;
use crate::error::errno;
use crate::find::{self, Found};
use crate::folding;
use crate::guard::{Arrival, FolderOpens, Guard, Names, Spot};
use crate::merge::{self, Merge};
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::{Node, Place};
use crate::parked::Rest;
use crate::shared::Shared;
use crate::who::Who;

/// `DT_UNKNOWN` and `DT_DIR`.
const DT_UNKNOWN: u8 = 0;
const DT_DIR: u8 = 4;

/// The pool's side of one open folder. It is opened below when it is first listed: a listing that the kernel
/// has cached costs nothing.
#[derive(Debug)]
pub struct PoolDir {
    pub(crate) walk: Arc<Walk>,
}

/// A folder and, where the kernel tells us what it opens, how far its listing is.
#[derive(Debug)]
pub(crate) struct Walk {
    node: Arc<Node>,
    state: Mutex<Option<State>>,
    /// The same of a folder in a merge.
    merged: merge::Opened,
}

impl Walk {
    /// Closes what it holds of branches that were removed.
    pub(crate) fn let_go(&self, shared: &Shared) {
        self.merged.let_go(shared);
    }

    /// What its listing knows, if it is of this folder, reads these places and has been where so many records were listed.
    pub(crate) fn past(&self, folder: NodeId, places: &[Weak<Place>], to: usize) -> Option<merge::Past> {
        if self.node.id == folder { self.merged.past(places, to) } else { None }
    }
}

/// A listing under way.
#[derive(Debug)]
pub(crate) struct State {
    reader: DirReader,
    /// The device that the folder is on, for the numbers of records without attributes.
    device: Device,
    ino: u64,
}

/// OPENDIR.
pub(crate) fn open(shared: &Shared, who: Who, id: NodeId) -> Result<PoolDir> {
    let node = shared.node(id)?;
    if !node.is_dir() {
        return Err(Errno::NOTDIR);
    }
    let node = Guard::new(shared, who).judge(FolderOpens { node })?.open();
    let before = shared.merge.as_ref().map(Merge::changes);
    let merged = merge::Opened::new(shared, &node, None);
    let walk = Arc::new(Walk { node, state: Mutex::new(None), merged });
    if let Some(merge) = &shared.merge {
        merge.walks.note(&walk);
        if before != Some(merge.changes()) {
            // Whoever removed a branch meanwhile did not know of it.
            walk.let_go(shared);
        }
    }
    Ok(PoolDir { walk })
}

/// A folder that a predecessor had open, which left this of its listing: that goes on at the cookie that is asked for.
pub(crate) fn of_node(shared: &Shared, node: Arc<Node>, left: Option<OwnedFd>) -> PoolDir {
    let merged = merge::Opened::new(shared, &node, left);
    let walk = Arc::new(Walk { node, state: Mutex::new(None), merged });
    shared.merge.iter().for_each(|merge| merge.walks.note(&walk));
    PoolDir { walk }
}

/// What another server needs to go on with a listing.
pub(crate) fn kept(dir: &PoolDir) -> Option<BorrowedFd<'_>> {
    dir.walk.merged.kept()
}

/// RELEASEDIR.
pub(crate) fn close(shared: &Shared, dir: &PoolDir) {
    dir.walk.merged.close(shared, dir.walk.node.id);
}

impl State {
    fn open(shared: &Shared, node: &Arc<Node>, cookie: u64) -> Result<Self> {
        let descriptor = shared.descriptor(node)?;
        folding::check(shared, node, &descriptor)?;
        let stat = stat_of(&descriptor).map_err(errno)?;
        let to_read = shared.to_access(node)?;
        let fd = shared.opening(|| reopen(&to_read, mode::O_RDONLY | mode::O_DIRECTORY))?;
        let mut reader = DirReader::new(fd);
        if cookie != 0 {
            reader.seek(cookie).map_err(errno)?;
        }
        Ok(Self { reader, device: stat.dev, ino: stat.ino })
    }
}

/// A descriptor that syncs and answers ioctls.
pub(crate) fn readable(shared: &Shared, dir: &PoolDir) -> Result<Arc<LowerFile>> {
    shared.open_node(&dir.walk.node, mode::O_RDONLY | mode::O_DIRECTORY)
}

/// The same on the further branches of a merge.
pub(crate) fn readable_elsewhere(shared: &Shared, dir: &PoolDir) -> Result<Vec<Arc<LowerFile>>> {
    let node = &dir.walk.node;
    let Some(parts) = node.parts() else { return Ok(Vec::new()) };
    let open = |place: Arc<Place>| {
        let descriptor = shared.descriptor_at(node, &place);
        let fd = descriptor.and_then(|descriptor| {
            shared.opening_to_stay(|| reopen(&descriptor, mode::O_RDONLY | mode::O_DIRECTORY))
        });
        match fd {
            Err(Errno::STALE) if shared.leaves(node, &place) => None,
            fd => Some(fd.map(|fd| Arc::new(LowerFile::new(fd)))),
        }
    };
    let shown = parts.shown().mount();
    parts.all().into_iter().filter(|place| place.mount() != shown).filter_map(open).collect()
}

/// Where records go: into the reply itself, or into memory where the reply cannot leave its queue.
pub(crate) trait Records {
    /// Whether records carry entries.
    fn wants_entries(&self) -> bool;
    /// Whether a record with a name this long finds room.
    fn fits(&self, name_len: usize) -> bool;
    /// Adds a record without an entry.
    fn push(&mut self, ino: u64, cookie: u64, kind: u8, name: &CStr) -> bool;
    /// Adds a record with an entry.
    fn push_entry(&mut self, entry: &Entry, cookie: u64, name: &CStr) -> bool;
}

impl Records for DirSink<'_> {
    fn wants_entries(&self) -> bool {
        DirSink::wants_entries(self)
    }

    fn fits(&self, name_len: usize) -> bool {
        DirSink::fits(self, name_len)
    }

    fn push(&mut self, ino: u64, cookie: u64, kind: u8, name: &CStr) -> bool {
        DirSink::push(self, ino, cookie, FileType::of_dirent(kind), name.to_bytes())
    }

    fn push_entry(&mut self, entry: &Entry, cookie: u64, name: &CStr) -> bool {
        Name::new(name).is_some_and(|name| DirSink::push_entry(self, entry, cookie, name))
    }
}

/// The nodes of the entries that were put into a reply.
#[derive(Debug)]
pub(crate) struct Pushed(pub(crate) Vec<NodeId>);

/// Puts records into a reply, and notes whose they are, where they may have to be taken back.
pub(crate) struct Noting<'n, 'q> {
    sink: &'n mut DirSink<'q>,
    nodes: Option<Vec<NodeId>>,
}

impl<'n, 'q> Noting<'n, 'q> {
    /// `may_be_left` says whether they may have to be.
    pub(crate) fn new(sink: &'n mut DirSink<'q>, may_be_left: bool) -> Self {
        Self { sink, nodes: may_be_left.then(Vec::new) }
    }

    /// The nodes of what was put there.
    pub(crate) fn into_pushed(self) -> Pushed {
        Pushed(self.nodes.unwrap_or_default())
    }
}

impl Records for Noting<'_, '_> {
    fn wants_entries(&self) -> bool {
        DirSink::wants_entries(&*self.sink)
    }

    fn fits(&self, name_len: usize) -> bool {
        DirSink::fits(&*self.sink, name_len)
    }

    fn push(&mut self, ino: u64, cookie: u64, kind: u8, name: &CStr) -> bool {
        Records::push(&mut *self.sink, ino, cookie, kind, name)
    }

    fn push_entry(&mut self, entry: &Entry, cookie: u64, name: &CStr) -> bool {
        let is_pushed = Records::push_entry(&mut *self.sink, entry, cookie, name);
        if let Some(nodes) = self.nodes.as_mut().filter(|_| is_pushed) {
            nodes.extend(entry.node);
        }
        is_pushed
    }
}

/// Records in memory, as many as will fit into the reply.
#[derive(Debug)]
pub(crate) struct Collected {
    plus: bool,
    room: usize,
    records: Vec<Record>,
}

#[derive(Debug)]
struct Record {
    name: CString,
    cookie: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Plain { ino: u64, kind: u8 },
    Entry(Entry),
}

impl Collected {
    /// Room for what fits into `sink`.
    pub(crate) fn for_sink(sink: &DirSink<'_>) -> Self {
        Self { plus: sink.wants_entries(), room: sink.capacity(), records: Vec::new() }
    }

    /// The nodes of its entries.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        let node = |record: &Record| match &record.what {
            What::Plain { .. } => None,
            What::Entry(entry) => entry.node,
        };
        self.records.iter().filter_map(node).collect()
    }

    fn size(&self, name_len: usize) -> usize {
        const DIRENT: usize = 24;
        const ENTRY: usize = 128;
        (DIRENT + name_len + if self.plus { ENTRY } else { 0 }).next_multiple_of(8)
    }

    fn add(&mut self, name: &CStr, cookie: u64, what: What) -> bool {
        let size = self.size(name.to_bytes().len());
        if size > self.room {
            return false;
        }
        self.room -= size;
        self.records.push(Record { name: name.to_owned(), cookie, what });
        true
    }

    /// Hands the records to the reply; what finds no room after all is not counted as looked up.
    pub(crate) fn hand_to(self, shared: &Shared, sink: &mut DirSink<'_>) {
        for Record { name, cookie, what } in self.records {
            match what {
                What::Plain { ino, kind } => {
                    Records::push(sink, ino, cookie, kind, &name);
                }
                What::Entry(entry) => {
                    if !Records::push_entry(sink, &entry, cookie, &name)
                        && let Some(id) = entry.node
                    {
                        shared.forget(id, LookupCount(1));
                    }
                }
            }
        }
    }
}

impl Records for Collected {
    fn wants_entries(&self) -> bool {
        self.plus
    }

    fn fits(&self, name_len: usize) -> bool {
        self.size(name_len) <= self.room
    }

    fn push(&mut self, ino: u64, cookie: u64, kind: u8, name: &CStr) -> bool {
        self.add(name, cookie, What::Plain { ino, kind })
    }

    fn push_entry(&mut self, entry: &Entry, cookie: u64, name: &CStr) -> bool {
        self.add(name, cookie, What::Entry(*entry))
    }
}

/// READDIR and READDIRPLUS: records from `cookie` on, until the room or the folder ends.
pub(crate) fn list(shared: &Shared, who: Who, dir: &Walk, cookie: u64, out: &mut impl Records) -> Result<()> {
    if dir.node.parts().is_some() {
        return merge::list(shared, who, (&dir.node, &dir.merged), cookie, out);
    }
    if !shared.hears_of_open_folders() {
        return list_from(shared, who, &dir.node, cookie, out);
    }
    let mut held = dir.state.lock();
    let state = match &mut *held {
        Some(state) => {
            state.reader.seek(cookie).map_err(errno)?;
            state
        }
        none => none.insert(State::open(shared, &dir.node, cookie)?),
    };
    go_on(shared, who, &dir.node, state, out).map(drop)
}

/// The same without an open folder.
fn list_from(shared: &Shared, who: Who, node: &Arc<Node>, cookie: u64, out: &mut impl Records) -> Result<()> {
    let waiting = if cookie == 0 {
        shared.parked.forget(node.id);
        None
    } else {
        shared.parked.take(node.id, cookie)
    };
    let mut state = match waiting {
        Some(Rest::More(state)) => state,
        Some(Rest::Nothing) => return Ok(()),
        None => State::open(shared, node, cookie)?,
    };
    let is_at_end = go_on(shared, who, node, &mut state, out)?;
    let next = state.reader.position();
    // An answer without records is the last; after any other the kernel asks once more.
    let rest = match (is_at_end, next == cookie) {
        (true, true) => return Ok(()),
        (true, false) => Rest::Nothing,
        (false, _) => Rest::More(state),
    };
    drop(shared.parked.put(node.id, next, rest));
    Ok(())
}

/// Goes on with a listing until the room or the folder ends; whether it was the folder.
fn go_on(
    shared: &Shared,
    who: Who,
    node: &Arc<Node>,
    state: &mut State,
    out: &mut impl Records,
) -> Result<bool> {
    let State { reader, device, ino } = state;
    let guard = Guard::new(shared, who);
    let lister = Lister {
        shared,
        dir: node,
        mount: node.mount(),
        descriptor: shared.descriptor(node)?,
        device: *device,
        ino: shared.branch(node.mount()).shown_ino(*ino, *device),
        guard: &guard,
        names: guard.names_in(node.id),
        numbers: None,
        is_doubtful: false,
    };
    let mut has_answered = false;
    loop {
        let step = match reader.peek() {
            Ok(Some(record)) if !out.fits(record.name.to_bytes().len()) => return Ok(false),
            Ok(Some(record)) => {
                has_answered |= lister.add(&record, out);
                reader.advance()
            }
            Ok(None) => match reader.fill() {
                Ok(true) => Ok(()),
                Ok(false) => return Ok(true),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match step {
            // What is listed already is answered; the error comes back at the next call. An answer without records would be the end.
            Err(_) if has_answered => return Ok(false),
            step => step.map_err(errno)?,
        }
    }
}

/// Lists one folder on one branch to one caller.
pub(crate) struct Lister<'l> {
    pub(crate) shared: &'l Shared,
    pub(crate) dir: &'l Arc<Node>,
    pub(crate) mount: MountIndex,
    pub(crate) descriptor: Arc<LowerFile>,
    pub(crate) device: Device,
    /// The folder's own number, as it is shown.
    pub(crate) ino: u64,
    pub(crate) guard: &'l Guard<'l>,
    pub(crate) names: Names<'l>,
    /// The numbers of names, where they go by the path.
    pub(crate) numbers: Option<merge::InFolder>,
    /// Whether an earlier branch did not answer, which may have what is shown in place of this.
    pub(crate) is_doubtful: bool,
}

impl Lister<'_> {
    /// What a name means that was read here. In a merge a folder may be on further branches, and what is no folder is here, if the first
    /// one is shown.
    fn find(&self, spot: Spot<'_>, kind: u8) -> Result<Found> {
        let is_here = |merge: &Merge| merge.shows_first() && ![DT_UNKNOWN, DT_DIR].contains(&kind);
        match &self.shared.merge {
            Some(merge) if !is_here(merge) => find::find(self.shared, spot),
            _ => find::find_at(self.shared, spot).map(|found| found.doubted(self.is_doubtful)),
        }
    }

    /// Adds a name, if it is shown. Whether the answer has a record more.
    pub(crate) fn add(&self, record: &DirRecord<'_>, out: &mut impl Records) -> bool {
        let &DirRecord { ino, next, kind, name } = record;
        let branch = self.shared.branch(self.mount);
        let shown = |ino| branch.shown_ino(ino, self.device);
        if name == c"." || (name == c".." && self.dir.id == NodeId::ROOT) {
            return out.push(self.ino, next, kind, name);
        }
        let buf = Name::new(name).map(NameBuf::new);
        let Some(Ok(buf)) = buf.filter(|_| name != c"..") else {
            return out.push(shown(ino), next, kind, name);
        };
        let spot = Spot { folder: self.dir, mount: self.mount, dir: &self.descriptor, name: &buf };
        if self.guard.check_sight(spot).is_err() {
            return false;
        }
        // A name that not everybody sees alike is looked up at each walk anyway.
        let push_plain = |out: &mut dyn Records| {
            self.names.has(spot) && {
                let by_path = self.numbers.and_then(|numbers| numbers.number(name, kind == DT_DIR));
                let may_be_folder = [DT_UNKNOWN, DT_DIR].contains(&kind);
                let of_folder = || may_be_folder.then(|| find::folder_ino(self.shared, spot)).flatten();
                let number = by_path.or_else(of_folder);
                out.push(number.unwrap_or_else(|| shown(ino)), next, kind, name)
            }
        };
        if !out.wants_entries() || self.guard.varies(spot) {
            return push_plain(out);
        }
        match self.find(spot, kind) {
            Ok(found) => match self.guard.arrive(spot, found, Arrival::Met) {
                Ok(arrived) => {
                    let is_pushed = out.push_entry(&arrived.entry(self.shared), next, name);
                    if !is_pushed {
                        self.shared.forget(arrived.node.id, LookupCount(1));
                    }
                    is_pushed
                }
                // What is hidden, or cannot be told, does not exist.
                Err(Errno::NOENT | Errno::ACCES | Errno::STALE) => false,
                // The manifest does not tell: whoever asks for it gets the error.
                Err(_) => push_plain(out),
            },
            // The name went away since the batch was read.
            Err(Errno::NOENT) => false,
            // It is there, but cannot be told about: whoever asks for it gets the error.
            Err(_) => push_plain(out),
        }
    }
}
