//! Listings of folders that are on several branches.
//!
//! The branches are read one after the other. If the first one has to wait for its disk, the others are read ahead meanwhile
//! ([`crate::branch::Ahead`]), because they will probably have to wait, too. A name that an earlier branch has was listed there; so names are noted (a hash each) as
//! they are listed, and where a later branch has one with a hash that is noted, the earlier branches are asked whether they have it. So no two
//! names are taken for one, and what was listed before its branch lost it is found on the next. Beyond so many names the branches
//! are asked about each, which bounds the memory.
//!
//! A cookie is the number of records before it. Going back to one of the last is exact, and to others nearly so ([`super::trail`]). A cookie beyond what
//! this listing has listed, of another open folder or from before a step back, is counted from where the listing stands: as many names are left out as
//! were removed in between. Where handles last, a listing that has been there is gone on with ([`super::closed`]).
//!
//! So a cookie is only good for the open folder that it was given for. That is why the kernel keeps no listing of a merge: what it keeps is
//! of one open folder, and when it drops that, as when somebody else lists a folder that has changed, it goes on by a cookie of that on
//! another one, whose names were removed meanwhile (`fuse_readdir_cached`, `fs/fuse/readdir.c`, Linux 6.18).
//!
//! Where another server may go on, the positions of the last records are kept for it in memory that it inherits.
//!
//! A branch that is removed is let go of by the listings that are under way: whoever removes it closes what they hold of it, and a listing that
//! is in use just then does that itself at its end.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use shuntfs::{Errno, LowerFile, NodeId, Result};
use shuntfs_sys::dir::{DirReader, DirRecord};
use shuntfs_sys::memory::file_in_memory;
use shuntfs_sys::xattr::get_xattr;
use shuntfs_sys::{Device, OsError, reopen, stat_at, stat_of};

use super::closed::{Past, are_same};
use super::noted::Noted;
use super::state::Merge;
use super::trail::Trail;
use crate::branch::{Ahead, MountIndex, touches_nothing, touches_on, waits};
use crate::dir::{Lister, Records};
use crate::error::errno;
use crate::folding;
use crate::guard::Guard;
use crate::mode;
use crate::node::{Marks, Node, Parts, Place};
use crate::shared::Shared;
use crate::slots::Slots;
use crate::who::Who;

/// A batch of names that takes this long comes from a disk: from the kernel's cache it takes microseconds, from flash some 100 of them.
const DISK: Duration = Duration::from_millis(2);

/// How often whoever waits for a listing checks whether that hangs.
const LOOK: Duration = Duration::from_millis(20);

/// A listing under way.
#[derive(Debug)]
pub(crate) struct State {
    /// In the order of the branches.
    readers: Vec<Reader>,
    /// Whether the others were read ahead.
    is_ahead: bool,
    /// Whether attributes are listed, too.
    wants_entries: bool,
    noted: Noted,
    trail: Trail,
    /// Whether the last answer said that there is no more.
    is_over: bool,
    /// The error of a branch that could not be read. It is told when all others are: who compares trees must not take names for
    /// gone because a disk does not answer.
    failed: Cell<Option<Errno>>,
    /// Of what is kept of it for another server.
    version: u64,
}

/// How long a slot of that is: 2048 positions, and what there is of each of 256 branches.
const KEPT_LEN: u32 = 64 << 10;

/// The folder on one branch.
#[derive(Debug)]
struct Reader {
    place: Weak<Place>,
    mount: MountIndex,
    device: Device,
    /// `None` since the branch was removed.
    open: Option<Open>,
    /// Whether its branch was set aside meanwhile.
    is_aside: Arc<AtomicBool>,
    ahead: Ahead,
}

#[derive(Debug)]
struct Open {
    descriptor: Arc<LowerFile>,
    reader: DirReader,
}

/// Where a folder was when it was opened, and how far its listing is.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Who may list it there was asked then, and it is not asked for what comes to its name later.
    places: Vec<Arc<Place>>,
    held: Mutex<Option<State>>,
    /// Where another server finds how far it is, if there may be one.
    kept: Option<Slots>,
}

impl Opened {
    /// A folder that is opened now, or that a dead server had open, which left this.
    pub(crate) fn new(shared: &Shared, node: &Node, left: Option<OwnedFd>) -> Self {
        let is_kept = shared.options.kept.is_some() && node.parts().is_some();
        // Most folders are listed without an OPENDIR, and come here at each READDIR: it costs a call only where it is needed.
        let anew = || if is_kept { file_in_memory(c"shuntfs-listing").ok() } else { None };
        let file = left.map(File::from).or_else(anew);
        let places = node.parts().map(Parts::all).unwrap_or_default();
        Self { places, held: Mutex::default(), kept: file.map(|file| Slots::of(file, KEPT_LEN)) }
    }

    /// What another server needs to go on.
    pub(crate) fn kept(&self) -> Option<BorrowedFd<'_>> {
        self.kept.as_ref().map(AsFd::as_fd)
    }

    /// The listing. Somebody else has it only if nobody waits any more for a READDIR that began before: the caller was killed, or got EIO because a
    /// disk hangs.
    ///
    /// # Errors
    /// EIO where that may hang, and a time is set for branches: the kernel holds the folder's lock for whoever waits here, and nobody would see that
    /// they do.
    fn take(&self, shared: &Shared) -> Result<MutexGuard<'_, Option<State>>> {
        let watched = shared.merge.as_ref().and_then(|merge| Some((merge, merge.options.timeout?)));
        let Some((merge, timeout)) = watched else { return Ok(self.held.lock()) };
        if let Some(held) = self.held.try_lock() {
            return Ok(held);
        }
        let begun = Instant::now();
        waits(|| {
            loop {
                if let Some(held) = self.held.try_lock_for(LOOK) {
                    return Ok(held);
                }
                if merge.has_aside() || begun.elapsed() >= timeout {
                    return Err(Errno::IO);
                }
            }
        })
    }

    /// The folder is closed: where it was listed in part, whoever opens it next may go on.
    pub(crate) fn close(&self, shared: &Shared, folder: NodeId) {
        let Some(merge) = shared.merge.as_ref().filter(|_| shared.options.handles) else { return };
        let state = self.held.try_lock().and_then(|mut held| held.take());
        if let Some(State { readers, noted, trail, failed, .. }) = state.filter(|state| !state.is_over) {
            let places = readers.iter().map(|reader| reader.place.clone()).collect();
            merge.closed.keep(folder, Past { places, trail, noted, failed: failed.get() });
        }
    }

    /// What its listing knows, if that reads these places and has been where so many records were listed.
    pub(crate) fn past(&self, places: &[Weak<Place>], to: usize) -> Option<Past> {
        let held = self.held.try_lock()?;
        let State { readers, noted, trail, failed, .. } = held.as_ref()?;
        if !trail.leads_to(to) || !are_same(readers.iter().map(|reader| &reader.place), places) {
            return None;
        }
        let (places, trail, noted) = (places.to_vec(), trail.clone(), noted.copy());
        Some(Past { places, trail, noted, failed: failed.get() })
    }

    /// Closes what it holds of branches that were removed. Where it is listed just now, that is done when the listing ends.
    pub(crate) fn let_go(&self, shared: &Shared) {
        let in_use = shared.branches.order();
        if let Some(mut held) = self.held.try_lock()
            && let Some(state) = &mut *held
        {
            state.let_go(&in_use);
        }
        for place in self.places.iter().filter(|place| !in_use.contains(&place.mount().branch)) {
            drop(place.give_up(|| false));
        }
    }
}

/// READDIR and READDIRPLUS: records from `cookie` on, until the room or the folder ends.
pub(crate) fn list(
    shared: &Shared,
    who: Who,
    (node, opened): (&Arc<Node>, &Opened),
    cookie: u64,
    out: &mut impl Records,
) -> Result<()> {
    folding::check_merged(shared, node)?;
    let changes = || shared.merge.as_ref().map(Merge::changes);
    let before = changes();
    let listed = list_held(shared, who, (node, opened), cookie, out);
    if changes() != before {
        opened.let_go(shared);
    }
    listed
}

fn list_held(
    shared: &Shared,
    who: Who,
    (node, opened): (&Arc<Node>, &Opened),
    cookie: u64,
    out: &mut impl Records,
) -> Result<()> {
    let to = usize::try_from(cookie).map_err(|_| Errno::INVAL)?;
    let mut held = opened.take(shared)?;
    let listed = list_from(shared, who, (node, opened), (to, &mut held), out);
    if let (Some(kept), Some(state)) = (&opened.kept, &mut *held) {
        state.keep(kept);
    }
    listed
}

fn list_from(
    shared: &Shared,
    who: Who,
    (node, opened): (&Arc<Node>, &Opened),
    (to, held): (usize, &mut Option<State>),
    out: &mut impl Records,
) -> Result<()> {
    if to == 0 {
        // From the start on it shows what there is now.
        *held = None;
    }
    let state = match held {
        Some(state) => {
            state.let_go(&shared.branches.order());
            state
        }
        none => {
            let mut state = State::open(shared, node, &opened.places);
            if to != 0 && !state.go_on(opened.kept.as_ref(), to)? {
                state.follow(shared, node.id, to)?;
            }
            none.insert(state)
        }
    };
    (state.wants_entries, state.is_over) = (out.wants_entries(), false);
    state.seek(to)?;
    let guard = Guard::new(shared, who);
    let ino = node.parts().map_or(0, |parts| shared.folder_ino(node, parts));
    let numbers = shared.merge.as_ref().and_then(|merge| merge.numbers.in_folder(shared, node));
    let mut has_answered = false;
    while !state.is_at_end() {
        let next = state.cookie() + 1;
        let is_doubtful = state.failed.get().is_some() || node.has(Marks::DOUBTFUL);
        let step = state.step(|(mount, device, descriptor), record| {
            if !out.fits(record.name.to_bytes().len()) {
                return false;
            }
            let lister = Lister {
                shared,
                dir: node,
                mount,
                descriptor: Arc::clone(descriptor),
                device,
                ino,
                guard: &guard,
                names: guard.names_in(node.id),
                numbers,
                is_doubtful,
            };
            has_answered |= lister.add(&DirRecord { next, ..*record }, out);
            true
        });
        match step {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            // What is listed already is answered; the error comes back at the next call. An answer without records would be the end.
            Err(_) if has_answered => return Ok(()),
            Err(error) => return Err(errno(error)),
        }
    }
    state.is_over = !has_answered;
    state.failed.get().filter(|_| !has_answered).map_or(Ok(()), Err)
}

impl State {
    fn open(shared: &Shared, node: &Arc<Node>, places: &[Arc<Place>]) -> Self {
        let (mut readers, mut failed) = (Vec::new(), None);
        let all = places_now(shared, node, places);
        // What is on a branch that was set aside meanwhile does not exist, unless there is nothing else, which is an error.
        let is_aside = |place: &Arc<Place>| shared.branch(place.mount()).health.is_aside();
        let has_others = !all.iter().all(is_aside);
        for place in all.iter().filter(|place| !(has_others && is_aside(place))) {
            match Reader::open(shared, node, place) {
                Ok(reader) => readers.push(reader),
                Err(Errno::STALE) if shared.leaves(node, place) => {}
                Err(error) => {
                    let branch = shared.branch(place.mount());
                    branch.health.failed(error);
                    let branch = branch.source();
                    tracing::warn!(%error, ?branch, "a listing goes without what is there");
                    failed.get_or_insert(error);
                }
            }
        }
        let room = shared.merge.as_ref().map(|merge| Arc::clone(&merge.room)).unwrap_or_default();
        Self {
            readers,
            is_ahead: false,
            wants_entries: false,
            noted: Noted::new(room),
            trail: Trail::new(),
            is_over: false,
            failed: Cell::new(failed),
            version: 0,
        }
    }

    fn branches(&self) -> Vec<u16> {
        self.readers.iter().map(|reader| reader.mount.branch).collect()
    }

    /// Notes for another server how far it is, before the kernel hears of it. Without memory that one counts from the start.
    fn keep(&mut self, kept: &Slots) {
        if self.version == 0 {
            self.version = kept.newest().map_or(0, |(version, _)| version);
        }
        let text: Vec<u8> =
            self.trail.words(&self.branches()).iter().flat_map(|word| word.to_le_bytes()).collect();
        self.version += 1;
        if let Err(error) = kept.put(self.version, &text) {
            tracing::debug!(%error, "another server would not know how far a listing is");
        }
    }

    /// Goes on where a dead server was, if that has left an exact way to where so many records were listed. Whether it has.
    fn go_on(&mut self, kept: Option<&Slots>, to: usize) -> Result<bool> {
        let left = kept.and_then(Slots::newest).and_then(|(_, text)| {
            let words = text.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_le_bytes));
            Trail::of_words(&words.collect::<Vec<_>>(), &self.branches())
        });
        let Some(trail) = left.filter(|trail| trail.leads_to(to)) else { return Ok(false) };
        self.trail = trail;
        // Which names were listed is for the branches to say.
        self.noted = Noted::unknown(self.noted.room());
        self.go_back(to).map(|()| true)
    }

    /// How many records were listed.
    fn cookie(&self) -> u64 {
        u64::try_from(self.trail.listed()).expect("64 bits fit")
    }

    /// Which branch is read.
    fn at(&self) -> usize {
        self.trail.at()
    }

    /// Whether all branches are read.
    fn is_at_end(&self) -> bool {
        self.at() == self.readers.len()
    }

    /// Goes on from where another listing of this folder has been, if there is one that has been where so many records were listed.
    fn follow(&mut self, shared: &Shared, folder: NodeId, to: usize) -> Result<()> {
        let Some(merge) = shared.merge.as_ref().filter(|_| shared.options.handles) else { return Ok(()) };
        let places: Vec<_> = self.readers.iter().map(|reader| reader.place.clone()).collect();
        let of_open = || merge.walks.all().iter().find_map(|walk| walk.past(folder, &places, to));
        let Some(past) = merge.closed.take(folder, &places, to).or_else(of_open) else { return Ok(()) };
        (self.trail, self.noted) = (past.trail, past.noted);
        self.failed.set(self.failed.get().or(past.failed));
        self.go_back(to)
    }

    /// Goes to where so many records were listed; to later ones by reading on.
    fn seek(&mut self, to: usize) -> Result<()> {
        if to < self.trail.listed() {
            self.go_back(to)?;
        }
        while self.trail.listed() < to && !self.is_at_end() {
            self.step(|_, _| true).map_err(errno)?;
        }
        Ok(())
    }

    /// Goes back to where so many records, no more than now, were listed, or to the mark before if that position is no longer kept. After an
    /// error the listing is where it was.
    fn go_back(&mut self, to: usize) -> Result<()> {
        let (at, stop) = (self.at(), self.trail.stop(to));
        // The branches that were read after it begin anew. The one being read is the last of them, so that an error leaves it alone.
        let lower = |index: usize| if index == stop.reader { stop.lower } else { 0 };
        for (index, reader) in self.readers.iter_mut().enumerate().take(at + 1).skip(stop.reader) {
            if let Some(open) = &mut reader.open {
                open.reader.seek(lower(index)).map_err(errno)?;
            }
        }
        self.trail.go_back(stop);
        Ok(())
    }

    /// One step, not at the end: over a record, or to further ones. A record that is listed goes to `add` first; if that does not take it, it
    /// stays where it is, and the answer is false.
    fn step(
        &mut self,
        add: impl FnOnce((MountIndex, Device, &Arc<LowerFile>), &DirRecord<'_>) -> bool,
    ) -> shuntfs_sys::Result<bool> {
        let Reader { mount, device, open, .. } = &self.readers[self.at()];
        let Some(open) = open else {
            self.next_branch();
            return Ok(true);
        };
        touches_on(*mount);
        let Some(record) = open.reader.peek()? else {
            self.fill();
            return Ok(true);
        };
        if self.is_listed(&record) {
            self.pass()?;
        } else if add((*mount, *device, &open.descriptor), &record) {
            self.take()?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Closes what is open on branches that are not among these. Their names that were listed already count as listed.
    fn let_go(&mut self, in_use: &[u16]) {
        for reader in self.readers.iter_mut().filter(|reader| !in_use.contains(&reader.mount.branch)) {
            drop(reader.open.take());
        }
    }

    fn reader(&mut self) -> Option<&mut DirReader> {
        let at = self.at();
        self.readers[at].open.as_mut().map(|open| &mut open.reader)
    }

    /// Whether an earlier branch lists a name.
    fn is_listed(&self, record: &DirRecord<'_>) -> bool {
        if self.at() == 0 {
            return false;
        }
        // Each branch has these.
        if record.name == c"." || record.name == c".." {
            return true;
        }
        let is_noted = self.noted.has(record.name);
        let has = |reader: &Reader| {
            // It was removed, and can be asked no more.
            let Some(open) = &reader.open else { return is_noted };
            if reader.is_aside.load(Ordering::Relaxed) {
                // A name whose hash is noted was listed, but for a chance of one in 2^64.
                self.failed.set(Some(Errno::IO));
                return !self.noted.is_over();
            }
            touches_on(reader.mount);
            match stat_at(&*open.descriptor, record.name) {
                Ok(_) => true,
                Err(OsError::NOENT) => false,
                Err(error) => {
                    self.failed.set(Some(errno(error)));
                    true
                }
            }
        };
        (is_noted || self.noted.is_over()) && self.readers[..self.at()].iter().any(has)
    }

    /// Steps over a record that is not listed.
    fn pass(&mut self) -> shuntfs_sys::Result<()> {
        self.reader().map_or(Ok(()), DirReader::advance)
    }

    /// Steps over a record that is.
    fn take(&mut self) -> shuntfs_sys::Result<()> {
        let at = self.at();
        let is_last = at + 1 == self.readers.len();
        let Some(Open { reader, .. }) = &mut self.readers[at].open else { return Ok(()) };
        if let Some(record) = reader.peek()?.filter(|_| !is_last) {
            self.noted.add(record.name);
        }
        reader.advance()?;
        self.trail.add(reader.position());
        Ok(())
    }

    /// Reads on, on the next branch where this one has no more.
    fn fill(&mut self) {
        if self.readers[self.at()].is_aside.load(Ordering::Relaxed) {
            // Whoever lists the folder meanwhile must not take what is left out for gone.
            self.failed.set(Some(Errno::IO));
            self.next_branch();
            return;
        }
        // However many batches a caller has passed over, by a cookie far behind, each is a call of its own: the time of all says nothing of the branch.
        touches_nothing();
        touches_on(self.readers[self.at()].mount);
        let begun = Instant::now();
        let filled = self.reader().map(DirReader::fill);
        if begun.elapsed() >= DISK {
            self.read_ahead();
        }
        match filled {
            Some(Ok(true)) => {}
            // On this branch the folder was removed, and others have it; or the branch was.
            Some(Ok(false) | Err(OsError::NOENT)) | None => self.next_branch(),
            Some(Err(error)) => {
                self.failed.set(Some(errno(error)));
                self.next_branch();
            }
        }
    }

    /// Has the other branches read, once.
    fn read_ahead(&mut self) {
        if std::mem::replace(&mut self.is_ahead, true) {
            return;
        }
        for reader in &self.readers[self.at() + 1..] {
            if let Some(open) = &reader.open
                && !reader.is_aside.load(Ordering::Relaxed)
                && let Ok(folder) = open.reader.as_fd().try_clone_to_owned()
            {
                reader.ahead.read(folder, self.wants_entries);
            }
        }
    }

    fn next_branch(&mut self) {
        self.trail.next_reader();
    }
}

impl Reader {
    fn open(shared: &Shared, node: &Arc<Node>, place: &Arc<Place>) -> Result<Self> {
        let descriptor = shared.descriptor_at(node, place)?;
        let stat = stat_of(&descriptor).map_err(errno)?;
        let to_read = shared.to_access_at(node, place)?;
        let fd = shared.opening(|| reopen(&to_read, mode::O_RDONLY | mode::O_DIRECTORY))?;
        let mount = place.mount();
        let branch = shared.branch(mount);
        let (is_aside, ahead) = (branch.health.sign(), branch.ahead.clone());
        let open = Some(Open { descriptor, reader: DirReader::new(fd) });
        Ok(Self { place: Arc::downgrade(place), mount, device: stat.dev, open, is_aside, ahead })
    }
}

/// Where an open folder is listed, in the order of the branches: where it was when it was opened, and on branches that it has come to since, if it
/// belongs to the same there and lets the same people in.
fn places_now(shared: &Shared, node: &Arc<Node>, opened: &[Arc<Place>]) -> Vec<Arc<Place>> {
    let is_on = |all: &[Arc<Place>], branch: u16| all.iter().any(|one| one.mount().branch == branch);
    let mut joined = node.parts().map(Parts::all).unwrap_or_default();
    joined.retain(|place| !opened.iter().any(|one| Arc::ptr_eq(one, place)));
    let mut places = opened.to_vec();
    // What was removed below, and made again, is another folder there.
    places.retain(|place| !(is_on(&joined, place.mount().branch) && shared.is_gone(node, place)));
    joined.retain(|place| !is_on(&places, place.mount().branch));
    if !joined.is_empty() {
        let known = places.first().and_then(|place| rights(shared, node, place).ok());
        joined.retain(|place| known.is_some() && rights(shared, node, place).ok() == known);
        places.append(&mut joined);
    }
    let in_use = shared.branches.order();
    let rank = |place: &Arc<Place>| in_use.iter().position(|number| *number == place.mount().branch);
    places.retain(|place| rank(place).is_some());
    places.sort_by_key(rank);
    places
}

/// Who may use a folder in one of its places: owner, group, mode and ACL.
fn rights(shared: &Shared, node: &Arc<Node>, place: &Place) -> Result<(u32, u32, u32, Vec<u8>)> {
    /// What an ACL of 500 entries takes.
    const ACL_MAX: usize = 4096;
    let descriptor = shared.descriptor_at(node, place)?;
    let stat = stat_of(&descriptor).map_err(errno)?;
    let mut acl = vec![0; ACL_MAX];
    let len = match get_xattr(&descriptor, c"system.posix_acl_access", &mut acl) {
        Err(OsError::NODATA | OsError::OPNOTSUPP) => 0,
        len => len.map_err(errno)?,
    };
    acl.truncate(len);
    Ok((stat.uid, stat.gid, stat.mode, acl))
}
