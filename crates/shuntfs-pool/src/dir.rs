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
use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs::{DirSink, Entry, Errno, FileType, LookupCount, LowerFile, Name, NodeId, Result};
use shuntfs_sys::dir::{DirReader, DirRecord};
use shuntfs_sys::open::reopen;
use shuntfs_sys::stat::{Device, stat_of};

use crate::error::errno;
use crate::find;
use crate::folding;
use crate::guard::{Arrival, FolderOpens, Guard, Names, Spot};
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::Node;
use crate::parked::Rest;
use crate::shared::Shared;
use crate::who::Who;

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
    Ok(PoolDir { walk: Arc::new(Walk { node, state: Mutex::new(None) }) })
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
        descriptor: shared.descriptor(node)?,
        device: *device,
        ino: *ino,
        guard: &guard,
        names: guard.names_in(node.id),
    };
    let mut count = 0_usize;
    loop {
        let step = match reader.peek() {
            Ok(Some(record)) if !out.fits(record.name.to_bytes().len()) => return Ok(false),
            Ok(Some(record)) => {
                lister.add(&record, out);
                count += 1;
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
            // What is listed already is answered; the error comes back at the next call.
            Err(_) if count > 0 => return Ok(false),
            step => step.map_err(errno)?,
        }
    }
}

/// Lists one folder to one caller.
struct Lister<'l> {
    shared: &'l Shared,
    dir: &'l Arc<Node>,
    descriptor: Arc<LowerFile>,
    device: Device,
    ino: u64,
    guard: &'l Guard<'l>,
    names: Names<'l>,
}

impl Lister<'_> {
    fn add(&self, record: &DirRecord<'_>, out: &mut impl Records) {
        let &DirRecord { ino, next, kind, name } = record;
        let branch = self.shared.branch(self.dir.place.mount());
        let shown = |ino| branch.shown_ino(ino, self.device);
        if name == c"." || (name == c".." && self.dir.id == NodeId::ROOT) {
            out.push(shown(self.ino), next, kind, name);
            return;
        }
        let buf = Name::new(name).map(NameBuf::new);
        let Some(Ok(buf)) = buf.filter(|_| name != c"..") else {
            out.push(shown(ino), next, kind, name);
            return;
        };
        let spot = Spot { folder: self.dir, dir: &self.descriptor, name: &buf };
        if self.guard.check_sight(spot).is_err() {
            return;
        }
        // A name that not everybody sees alike is looked up at each walk anyway.
        let push_plain = |out: &mut dyn Records| {
            if self.names.has(spot) {
                out.push(shown(ino), next, kind, name);
            }
        };
        if !out.wants_entries() || self.guard.varies(spot) {
            push_plain(out);
            return;
        }
        match find::find(self.shared, self.dir, &self.descriptor, name) {
            Ok(found) => match self.guard.arrive(spot, found, Arrival::Met) {
                Ok(arrived) => {
                    if !out.push_entry(&arrived.entry(self.shared), next, name) {
                        self.shared.forget(arrived.node.id, LookupCount(1));
                    }
                }
                // What is hidden, or cannot be told, is not there.
                Err(Errno::NOENT | Errno::ACCES | Errno::STALE) => {}
                // The manifest does not tell: whoever asks for it gets the error.
                Err(_) => push_plain(out),
            },
            // The name went away since the batch was read.
            Err(Errno::NOENT) => {}
            // It is there, but cannot be told about: whoever asks for it gets the error.
            Err(_) => push_plain(out),
        }
    }
}
