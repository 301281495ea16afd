//! What all operations of a pool share, and the ways from a node to a descriptor.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use shuntfs::{Errno, Generation, LookupCount, LowerFile, NodeId, Notifier, NotifyError, Result};
use shuntfs_rules::Rules;
use shuntfs_sys::{OsError, limits, reopen};
use shuntfs_verified::Seals;

use crate::branch::{Branch, Branches, Mount, MountIndex};
use crate::dir;
use crate::error::{PoolError, errno};
use crate::fds::Descriptors;
use crate::folding;
use crate::guard::Spot;
use crate::init::KernelOffer;
use crate::lasting::Fleeting;
use crate::ledger::{Earlier, Ledger};
use crate::locks::LockTable;
use crate::merge::{self, Merge, Order};
use crate::mode;
use crate::name_buf::NameBuf;
use crate::node::{Marks, Node, Parts, Place};
use crate::options::{Cache, Locks, PoolOptions};
use crate::parked::Parked;
use crate::redact::Copies;
use crate::rules::Engine;
use crate::scarce::{Room, Scarce};
use crate::seals::SealedNodes;
use crate::table::Table;
use crate::view::{View, Views};

/// Descriptors kept by default, at most.
const DESCRIPTORS_DEFAULT: u64 = 4096;

/// How often and how long an open waits that met a lease: as long as a long photo is examined, and then some.
const LEASE_WAITS: u32 = 1000;
const LEASE_WAIT: Duration = Duration::from_millis(1);

/// A folder on one branch, and its descriptor.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) node: Arc<Node>,
    /// The mount that the descriptor is on.
    pub(crate) mount: MountIndex,
    pub(crate) descriptor: Arc<LowerFile>,
}

impl Folder {
    /// A name in it.
    pub(crate) fn spot<'n>(&'n self, name: &'n NameBuf) -> Spot<'n> {
        self.spot_of(&self.node, name)
    }

    /// A name in the folder of this node, which is this one or was it a moment ago.
    pub(crate) fn spot_of<'n>(&'n self, node: &'n Arc<Node>, name: &'n NameBuf) -> Spot<'n> {
        Spot { folder: node, mount: self.mount, dir: &self.descriptor, name }
    }
}

/// The state of a pool.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: PoolOptions,
    pub(crate) table: Table,
    pub(crate) descriptors: Descriptors,
    pub(crate) scarce: Scarce,
    /// Listings under way, where the kernel opens folders without telling.
    pub(crate) parked: Parked<dir::State>,
    /// The lower trees: one, or those of a merge.
    pub(crate) branches: Branches,
    /// What there is besides where there may be several.
    pub(crate) merge: Option<Merge>,
    pub(crate) locks: LockTable,
    pub(crate) views: Views,
    /// What open files of partial views show.
    pub(crate) copies: Copies,
    pub(crate) root: Arc<Node>,
    /// What is sealed, where anything is.
    pub(crate) sealed: Option<SealedNodes>,
    /// What is decided by rules, where there are any.
    pub(crate) rules: Option<Engine>,
    /// Where what rules go by is written down for the next server, if there may be one.
    pub(crate) ledger: OnceLock<Arc<Ledger>>,
    /// Tells handles of this mount from those of others, where they do not outlive it.
    pub(crate) generation: OnceLock<Generation>,
    /// What the kernel offered, as far as it is asked for later.
    pub(crate) kernel: KernelOffer,
    /// The way to tell the kernel, once there is a mount.
    pub(crate) notifier: OnceLock<Notifier>,
}

impl Shared {
    /// Takes hold of the source.
    pub(crate) fn open(options: &PoolOptions) -> std::result::Result<Self, PoolError> {
        Self::open_with(options, None, None)
    }

    /// The same, under rules and checked where there are any.
    pub(crate) fn open_with(
        options: &PoolOptions,
        mut rules: Option<Rules>,
        seals: Option<Arc<Seals>>,
    ) -> std::result::Result<Self, PoolError> {
        let mut merge = options.merge.clone().map(Merge::new);
        let branches = match &merge {
            None => {
                let branch = Branch::open(0, &options.source, options)?;
                Branches::one(branch.with_handles(options, options.goes_on)?)
            }
            Some(merge) => merge::open(&merge.options, options, seals.is_some())?,
        };
        if let (Some(merge), Some(kept)) = (&merge, &options.kept) {
            merge.set_kept(kept)?;
        }
        // A branch may have been removed since rules that name it came into force.
        if let Some(rules) = rules.as_ref().filter(|_| options.earlier == Earlier::None) {
            merge::check_places(rules, merge.is_some().then_some(&branches))?;
        }
        // Where they only place, a merge is as fast as without. Others may come to a merge whose names were noted.
        let may_judge = options.earlier == Earlier::Judged;
        let only_place = rules.as_ref().is_some_and(|rules| !may_judge && rules.beyond_places().is_none());
        if let Some(merge) = merge.as_mut().filter(|_| only_place) {
            merge.placing = rules.take().map(Engine::new);
        }
        if options.handles && (rules.is_some() || seals.is_some()) {
            return Err(PoolError::Handles { path: options.source.clone(), why: Fleeting::Names });
        }
        let branch = branches.at(0);
        let root = match &merge {
            None => {
                let root = Node::new(NodeId::ROOT, branch.identity(), View::WHOLE, branch.mode());
                root.pin(Arc::clone(branch.root()));
                root
            }
            Some(_) => merge::root(&branches, options),
        };
        let root = Arc::new(root);
        let descriptors = options.descriptors.unwrap_or_else(default_descriptors);
        let shared = Self {
            table: Table::new(),
            // A folder of a merge may keep one on each branch.
            descriptors: Descriptors::new(descriptors / branches.order().len()),
            scarce: Scarce::new(),
            parked: Parked::default(),
            branches,
            merge,
            locks: LockTable::new(options.lock_waiters),
            views: Views::default(),
            copies: Copies::default(),
            root,
            sealed: seals.map(SealedNodes::new),
            rules: rules.map(Engine::new),
            ledger: OnceLock::new(),
            generation: OnceLock::new(),
            kernel: KernelOffer::default(),
            notifier: OnceLock::new(),
            options: options.clone(),
        };
        if let Some(engine) = &shared.rules {
            engine.search(&shared).map_err(|error| PoolError::Names { error })?;
        }
        match folding::of_source(&shared).map_err(|error| PoolError::Names { error })? {
            None => Ok(shared),
            Some((branch, why)) => {
                let path = if shared.merge.is_some() { branch } else { options.source.clone() };
                Err(PoolError::FoldsNames { path, why })
            }
        }
    }

    /// The rules, whatever they may say here.
    pub(crate) fn all_rules(&self) -> Option<&Engine> {
        self.rules.as_ref().or_else(|| self.merge.as_ref()?.placing.as_ref())
    }

    /// Whether several branches are shown and rules judge what is done.
    pub(crate) fn is_ruled_merge(&self) -> bool {
        self.merge.is_some() && self.rules.is_some()
    }

    /// The branch that a mount is of.
    pub(crate) fn branch(&self, mount: MountIndex) -> &Branch {
        self.branches.at(mount.branch)
    }

    /// How often a file of a merge has got another place, for who looks a name up; after the one with this name has it.
    ///
    /// # Errors
    /// EIO where it is on its way to a disk that does not answer.
    pub(crate) fn switches(&self, spot: Spot<'_>) -> Result<u64> {
        let now = |merge: &Merge| merge.switching.now(spot.folder.id, spot.c_name());
        self.merge.as_ref().map_or(Ok(0), now)
    }

    /// Whether one has since then, or does now: what was found may be what it was.
    pub(crate) fn has_switched(&self, then: u64) -> bool {
        self.merge.as_ref().is_some_and(|merge| merge.switching.has_passed(then))
    }

    /// The merge, where a node is its control file.
    pub(crate) fn controls(&self, id: NodeId) -> Option<&Merge> {
        self.merge.as_ref().filter(|_| id == merge::CONTROL)
    }

    /// For what is of one branch only, as yet.
    pub(crate) fn first_branch(&self) -> &Branch {
        self.branches.at(0)
    }

    /// The mount with this index.
    pub(crate) fn mount(&self, index: MountIndex) -> &Mount {
        self.branch(index).mounts.at(index)
    }

    /// The node with this id.
    ///
    /// # Errors
    /// ESTALE for an id that the kernel was never given or has given back, and for a folder that a predecessor knew and that is gone; EPERM for the control file of a merge, which nothing is done
    /// with but by who knows it.
    pub(crate) fn node(&self, id: NodeId) -> Result<Arc<Node>> {
        if id == NodeId::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let unknown = || if id == merge::CONTROL { Errno::PERM } else { Errno::STALE };
        let node = self.table.find(id).ok_or_else(unknown)?;
        if node.has(Marks::UNSEEN) {
            self.see(&node)?;
        }
        Ok(node)
    }

    /// The `O_PATH` descriptor of a node, opened by handle where it is not cached.
    ///
    /// # Errors
    /// ESTALE where the inode is gone, EMFILE at the descriptor limit.
    pub(crate) fn descriptor(&self, node: &Arc<Node>) -> Result<Arc<LowerFile>> {
        if let Some(parts) = node.parts() {
            return self.where_shown(node, parts, |place| self.descriptor_at(node, place));
        }
        // Once, because a file may be moved to another branch meanwhile.
        let place = node.place();
        self.reaches(place.mount())?;
        if let Some(held) = place.held() {
            node.used();
            return Ok(held);
        }
        let handle = place.handle().ok_or(Errno::STALE)?;
        let mount = self.mount(place.mount());
        let fd = self.opening(|| mount.open(handle))?;
        Ok(self.adopt(node, place, Arc::new(LowerFile::new(fd))))
    }

    /// The same of a folder in a merge, at one of its places.
    pub(crate) fn descriptor_at(&self, node: &Arc<Node>, place: &Place) -> Result<Arc<LowerFile>> {
        self.reaches(place.mount())?;
        if let Some(held) = place.held() {
            node.used();
            return Ok(held);
        }
        let handle = place.handle().ok_or(Errno::STALE)?;
        let mount = self.mount(place.mount());
        let fd = self.opening(|| mount.open(handle))?;
        // Those without a handle are open as long as the folder is known, and no clock takes them.
        let is_first = !node.parts().is_some_and(Parts::can_give_up);
        let (held, is_new) = place.keep(Arc::new(LowerFile::new(fd)));
        if is_first && is_new && !node.has(Marks::PINNED) {
            drop(self.descriptors.admit(node));
        }
        Ok(held)
    }

    /// Gives a node a descriptor of its inode at this place to cache; the one to use.
    pub(crate) fn adopt(
        &self,
        node: &Arc<Node>,
        place: &Place,
        descriptor: Arc<LowerFile>,
    ) -> Arc<LowerFile> {
        if !self.caches_descriptor(node) {
            return descriptor;
        }
        let (held, is_new) = place.keep(descriptor);
        if is_new && !node.has(Marks::PINNED) {
            drop(self.descriptors.admit(node));
        }
        if !std::ptr::eq(place, node.place()) {
            // It was moved meanwhile, and nobody else would take this one away, with the space that it keeps.
            drop(place.give_up(|| false));
        }
        held
    }

    /// Gives a pinned node's descriptor back to the cache.
    pub(crate) fn unpin(&self, node: &Arc<Node>) {
        if node.unpin() {
            let idle = if self.caches_descriptor(node) {
                self.descriptors.admit(node)
            } else {
                node.drop_descriptor()
            };
            drop(idle);
        }
    }

    /// Whether a node keeps a descriptor while nobody uses it. Not a file of a merge whose branches others change, too: what is moved away below,
    /// as by tools that level disks, would keep its space until the kernel forgets it.
    pub(crate) fn caches_descriptor(&self, node: &Node) -> bool {
        self.merge.is_none() || self.is_ours_alone() || node.place().handle().is_none()
    }

    /// A folder by id, and its descriptor.
    pub(crate) fn folder(&self, id: NodeId) -> Result<Folder> {
        let node = self.node(id)?;
        match node.parts() {
            Some(parts) => self.where_shown(&node, parts, |place| self.folder_at(Arc::clone(&node), place)),
            None if self.merge.is_some() => Err(Errno::NOTDIR),
            None => {
                let descriptor = self.descriptor(&node)?;
                Ok(Folder { mount: node.place().mount(), node, descriptor })
            }
        }
    }

    /// A folder of a merge at one of its places.
    pub(crate) fn folder_at(&self, node: Arc<Node>, place: &Place) -> Result<Folder> {
        let descriptor = self.descriptor_at(&node, place)?;
        Ok(Folder { node, mount: place.mount(), descriptor })
    }

    /// An `O_PATH` descriptor of a node through which reading it sets the time of access as the options ask.
    ///
    /// # Errors
    /// As for `descriptor`.
    pub(crate) fn to_access(&self, node: &Arc<Node>) -> Result<Arc<LowerFile>> {
        if let Some(parts) = node.parts() {
            return self.where_shown(node, parts, |place| self.to_access_at(node, place));
        }
        let opened = self.timed(node, node.place())?;
        opened.map_or_else(|| self.descriptor(node), |fd| Ok(Arc::new(LowerFile::new(fd))))
    }

    /// The same of a folder in a merge, at one of its places.
    pub(crate) fn to_access_at(&self, node: &Arc<Node>, place: &Place) -> Result<Arc<LowerFile>> {
        let opened = self.timed(node, place)?;
        opened.map_or_else(|| self.descriptor_at(node, place), |fd| Ok(Arc::new(LowerFile::new(fd))))
    }

    /// An `O_PATH` descriptor on the mount that keeps times of access as asked, where there is one.
    fn timed(&self, node: &Node, place: &Place) -> Result<Option<OwnedFd>> {
        self.reaches(place.mount())?;
        let mount = self.mount(place.mount());
        match place.handle() {
            None if node.id != NodeId::ROOT => Ok(None),
            handle => match self.opening(|| mount.open_timed(handle).transpose()) {
                // It has lost its last name, and not every file system finds it by its handle then.
                Err(Errno::STALE) => Ok(None),
                opened => opened,
            },
        }
    }

    /// Opens a node's lower file with flags of its own.
    pub(crate) fn open_node(&self, node: &Arc<Node>, flags: u32) -> Result<Arc<LowerFile>> {
        let reads = flags & mode::O_ACCMODE == mode::O_RDONLY;
        self.under_way(|| -> Result<_> {
            // Whether anything may be written is for the lower mount to say, which may be remounted read-only.
            let descriptor = if reads { self.to_access(node) } else { self.descriptor(node) }?;
            let fd = self.opening_to_stay(|| reopen(&descriptor, flags))?;
            Ok(Arc::new(self.lower_file(node, fd)))
        })
    }

    /// Makes a call that yields a descriptor; at the limit it gives up cached ones and tries once more. One for writing
    /// waits for leases of ours.
    pub(crate) fn opening<T>(&self, call: impl Fn() -> shuntfs_sys::Result<T>) -> Result<T> {
        for _ in 0..LEASE_WAITS {
            match call() {
                Err(OsError::MFILE | OsError::NFILE) if self.descriptors.shed() + self.parked.shed() > 0 => {
                    break;
                }
                Err(OsError::AGAIN) if self.copies.may_be_in_the_way() => std::thread::sleep(LEASE_WAIT),
                outcome => return outcome.map_err(errno),
            }
        }
        call().map_err(errno)
    }

    /// The same for a descriptor that stays open for a caller. The last ones are left for calls that close theirs again, so that names can be removed
    /// whatever is open.
    pub(crate) fn opening_to_stay(&self, call: impl Fn() -> shuntfs_sys::Result<OwnedFd>) -> Result<OwnedFd> {
        let fd = self.opening(&call)?;
        if !self.scarce.is_last(&fd, Room::Stays) {
            return Ok(fd);
        }
        drop(fd);
        self.check_room()?;
        self.opening(call)
    }

    /// Refuses what may keep a descriptor, if only the last ones are left: before something is made, which cannot be unmade.
    ///
    /// # Errors
    /// EMFILE.
    pub(crate) fn check_room(&self) -> Result<()> {
        if !self.scarce.is_near() {
            return Ok(());
        }
        let has_room = || -> Result<bool> {
            let probe = self.opening(|| reopen(self.branches.at(0).root(), mode::O_PATH))?;
            Ok(!self.scarce.is_last(&probe, Room::Stays))
        };
        if has_room()? || self.descriptors.shed() + self.parked.shed() > 0 && has_room()? {
            return Ok(());
        }
        Err(Errno::MFILE)
    }

    /// Whether bytes of some file may be hidden from somebody.
    pub(crate) fn redacts(&self) -> bool {
        self.rules.as_ref().is_some_and(|engine| engine.rules().redacts())
    }

    /// Whether names decide about anything.
    pub(crate) fn goes_by_names(&self) -> bool {
        self.sealed.is_some() || self.rules.as_ref().is_some_and(|engine| engine.index.is_kept())
    }

    /// Held from the judgement of a change of names until it is noted, where rules go by names.
    pub(crate) fn one_change_of_names(&self) -> Option<Order<'_>> {
        self.rules.as_ref().filter(|engine| engine.index.is_kept()).map(|engine| engine.order.take())
    }

    /// Has the kernel ask for a node's attributes again: a change of them failed, and what it keeps it believes.
    pub(crate) fn doubt_attributes(&self, id: NodeId) {
        match self.notifier.get().map(|notifier| notifier.attributes(id)) {
            None | Some(Ok(()) | Err(NotifyError::Unknown | NotifyError::Ended)) => {}
            Some(Err(error)) => tracing::warn!(%error, "the kernel may believe old attributes"),
        }
    }

    /// Whether nothing changes below but through this mount.
    pub(crate) fn is_ours_alone(&self) -> bool {
        self.options.cache == Cache::Default
    }

    /// Whether the kernel tells us which folders are opened: where somebody has to be asked, or what it keeps of a listing
    /// does not hold beyond one open.
    pub(crate) fn hears_of_open_folders(&self) -> bool {
        self.rules.is_some() || self.merge.is_some() || !self.is_ours_alone()
    }

    /// Whether locks are kept below.
    pub(crate) fn locks_below(&self) -> bool {
        self.options.locks == Locks::Lower
    }

    /// Takes back a lookup that never reached the kernel.
    pub(crate) fn forget(&self, id: NodeId, count: LookupCount) {
        // The root is not in the table.
        self.table.forget(id, count).iter().for_each(|node| self.forgot(node));
    }

    /// A node left the table.
    pub(crate) fn forgot(&self, node: &Arc<Node>) {
        let id = node.id;
        match &self.merge {
            Some(merge) if node.parts().is_some() => {
                merge.folders.forget(&self.table, node);
                merge.closed.forget(id);
            }
            Some(merge) => merge.numbers.forget(id),
            None => {}
        }
        if let Some(engine) = &self.rules {
            engine.paths.forget(id);
        }
        if let Some(sealed) = &self.sealed {
            sealed.forget(id);
        }
        if !node.view.is_whole() {
            self.copies.forget(id);
        }
        if node.is_dir() {
            self.parked.forget(id);
        }
        if node.place().handle().is_some() && node.opens() == 0 {
            // The clock may still name the node for a while; its descriptor need not wait for that.
            node.unmark(Marks::PINNED);
            drop(node.drop_descriptor());
        }
    }
}

/// Whether less than half of all descriptors are in use, going by the number of one that was just opened: the kernel gives the least that is free.
/// What is kept open only for the next server must not leave callers without.
pub(crate) fn has_descriptors_left(opened: &LowerFile) -> bool {
    let number = u64::try_from(opened.as_fd().as_raw_fd()).unwrap_or(0);
    number < limits::nofile() / 2
}

fn default_descriptors() -> usize {
    usize::try_from((limits::nofile() / 4).min(DESCRIPTORS_DEFAULT)).expect("at most 4096")
}
