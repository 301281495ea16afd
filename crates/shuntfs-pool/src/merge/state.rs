//! What a merge knows beyond its branches.

use std::ffi::CStr;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shuntfs::{NodeId, Result};
use shuntfs_sys::Stat;

use super::change::tell_kernel;
use super::closed::Closed;
use super::control::Control;
use super::copying::Copying;
use super::hints::Hints;
use super::in_force::{KeptBranches, Untold};
use super::linked::Linked;
use super::noted::Room;
use super::numbers::Numbers;
use super::options::MergeOptions;
use super::order::{Growing, Order};
use super::refusals::Refusals;
use super::settings::Settings;
use super::switching::Switching;
use super::walks::Walks;
use crate::branch::{Flights, InFlight, Parting, Twins};
use crate::error::PoolError;
use crate::find;
use crate::folders::Folders;
use crate::guard::Spot;
use crate::keeping_renames::Renames;
use crate::mover::Mover;
use crate::node::{Marks, Node, Way};
use crate::policy::Function;
use crate::rules::Engine;
use crate::shared::Shared;

/// Ends the watch with the pool.
#[derive(Debug)]
struct Watched(Arc<Flights>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The state of a merge.
#[derive(Debug)]
pub(crate) struct Merge {
    /// As it was asked for; what may change since is in `settings`.
    pub(crate) options: MergeOptions,
    pub(crate) settings: Settings,
    pub(crate) control: Control,
    pub(crate) folders: Folders,
    pub(crate) numbers: Numbers,
    /// Rules that say where something new is made and nothing else, where these are all.
    pub(crate) placing: Option<Engine>,
    /// Held up by who removes a file's name, and watched by who looks one up.
    pub(crate) switching: Switching,
    pub(super) refusals: Refusals,
    pub(crate) copying: Copying,
    pub(crate) mover: Mover,
    /// How many files were moved because their branches were full.
    moved: AtomicU64,
    /// Whether rules judge files by paths on several branches.
    pub(crate) twins: Twins,
    growing: Growing,
    /// What is under way, where somebody watches it.
    flights: Option<Watched>,
    /// Whether a branch is set aside.
    has_aside: AtomicBool,
    /// What the kernel must be told when it is taken back.
    aside: Mutex<Option<Untold>>,
    /// Whether the kernel is to keep no names because of that.
    doubts_names: AtomicBool,
    /// Held while new branches are opened, which get the next numbers; before `changing`.
    pub(super) opening: Mutex<()>,
    /// Held while branches come, go and change.
    pub(super) changing: Growing,
    /// Whether a branch that was removed is held still.
    has_removed: AtomicBool,
    /// How often the branches have changed.
    changes: AtomicU64,
    pub(crate) walks: Walks,
    /// What renames exchange, for another server.
    pub(crate) renames: Renames,
    /// How much listings remember.
    pub(super) room: Arc<Room>,
    /// Listings that were closed in part.
    pub(crate) closed: Closed,
    hints: Hints,
    pub(super) linked: Linked,
    seeds: RandomState,
    /// How many random numbers were asked for.
    asked: AtomicU64,
}

impl Merge {
    pub(crate) fn new(options: MergeOptions) -> Self {
        let flights = options.timeout.map(|_| Watched(Flights::new()));
        Self {
            settings: Settings::of(&options),
            numbers: Numbers::new(options.inode_calc),
            placing: None,
            twins: Twins::default(),
            options,
            control: Control::new(),
            folders: Folders::default(),
            switching: Switching::default(),
            refusals: Refusals::default(),
            copying: Copying::default(),
            mover: Mover::default(),
            moved: AtomicU64::new(0),
            growing: Growing::default(),
            flights,
            has_aside: AtomicBool::new(false),
            aside: Mutex::default(),
            doubts_names: AtomicBool::new(false),
            opening: Mutex::new(()),
            changing: Growing::default(),
            has_removed: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            walks: Walks::default(),
            renames: Renames::default(),
            room: Arc::default(),
            closed: Closed::default(),
            hints: Hints::default(),
            linked: Linked::default(),
            seeds: RandomState::new(),
            asked: AtomicU64::new(0),
        }
    }

    /// Takes over the settings that were in force.
    ///
    /// # Errors
    /// [`PoolError::Kept`].
    pub(crate) fn set_kept(&self, kept: &KeptBranches) -> std::result::Result<(), PoolError> {
        kept.set(&self.settings)
    }

    /// Notes for another server which branches and which settings are in force now, if there may be one.
    pub(crate) fn note_in_force(&self, shared: &Shared) {
        self.note_in_force_by(shared, 0);
    }

    /// The same, and that a request has brought it about, unless that is 0: the next server does not do it once more.
    pub(crate) fn note_in_force_by(&self, shared: &Shared, request: u64) {
        let Some(kept) = &shared.options.kept else { return };
        let root = shared.root.parts().map_or(0, |parts| parts.ino);
        if let Err(error) = kept.note((&shared.branches, root), &self.settings, request) {
            tracing::error!(%error, "another server would not know of this change");
        }
    }

    /// Notes for another server, before something changes, that the kernel must be told of it, if there may be one.
    pub(super) fn begin_change(shared: &Shared) -> Option<Untold> {
        shared.options.kept.as_ref().map(KeptBranches::begin)
    }

    /// Tells the kernel of what a server had changed that died before it had told it.
    pub(super) fn tell_what_is_left(shared: &Shared) {
        let Some(kept) = shared.options.kept.as_ref().filter(|kept| kept.is_untold()) else { return };
        tell_kernel(shared);
        kept.has_told();
    }

    /// Waits until no path is made on a branch, and no folder moves. The kernel locks the folder that something comes to, but not those around
    /// it: a path that is made for it must not get the name that one of these has just lost. And nobody is to take a folder
    /// for finished that is not.
    pub(crate) fn order(&self) -> Order<'_> {
        self.growing.take()
    }

    /// Takes that from who has it, if it is stuck on a branch that is set aside, and has nobody wait for files that are stuck between two.
    pub(super) fn leave_behind(&self, is_stuck: impl Fn(u64) -> bool) -> bool {
        let of_files = self.switching.leave_behind(&is_stuck);
        let of_branches = self.changing.leave_behind(&is_stuck);
        self.growing.leave_behind(is_stuck) || of_files || of_branches
    }

    /// What is under way, and how long a branch may take, where somebody watches.
    pub(super) fn watched(&self) -> Option<(Arc<Flights>, Duration)> {
        self.flights.as_ref().map(|watched| Arc::clone(&watched.0)).zip(self.options.timeout)
    }

    /// Notes that this thread begins an operation, where somebody watches.
    pub(crate) fn begin(&self) -> Option<InFlight> {
        self.flights.as_ref().map(|watched| watched.0.begin())
    }

    /// Where a task hears that it is not to wait for an operation any more, where somebody watches.
    pub(crate) fn may_part(&self) -> Option<Arc<Parting>> {
        self.flights.as_ref().map(|_| Arc::default())
    }

    /// Whether an operation takes so long that others must not wait behind it in a queue.
    pub(crate) fn is_strained(&self) -> bool {
        self.flights.as_ref().is_some_and(|watched| watched.0.is_strained())
    }

    /// Notes whether a branch is set aside, and whether the kernel is to keep no names because of that.
    pub(super) fn note_aside(&self, has_aside: bool, doubts_names: bool) {
        self.doubts_names.store(has_aside && doubts_names, Ordering::SeqCst);
        self.has_aside.store(has_aside, Ordering::SeqCst);
    }

    /// Notes for another server that one is about to be set aside: that begins with all of them, and the kernel knows what is found without.
    pub(super) fn begin_aside(&self, shared: &Shared) {
        let mut aside = self.aside.lock();
        if aside.is_none() {
            *aside = Self::begin_change(shared);
        }
    }

    /// The kernel knows that all are taken back.
    pub(super) fn end_aside(&self) {
        self.aside.lock().take();
    }

    /// Whether a branch is set aside.
    pub(crate) fn has_aside(&self) -> bool {
        self.has_aside.load(Ordering::Relaxed)
    }

    /// Whether the kernel is to keep no names, because a branch is set aside and it could not be told when that is taken back.
    pub(crate) fn doubts_names(&self) -> bool {
        self.doubts_names.load(Ordering::Relaxed)
    }

    /// Counts a file that was moved to another branch.
    pub(super) fn moved_one(&self) {
        self.moved.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
    pub(crate) fn files_moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Whether a branch that was removed is held still.
    pub(crate) fn has_removed(&self) -> bool {
        self.has_removed.load(Ordering::SeqCst)
    }

    /// Checks whether there is such a branch.
    pub(super) fn notice_removed(&self, shared: &Shared) {
        self.has_removed.store(shared.branches.removed().next().is_some(), Ordering::SeqCst);
    }

    /// How often the branches have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Notes that they are others now.
    pub(super) fn have_changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether what is found first is shown, so that a file need not be looked for on further branches.
    pub(crate) fn shows_first(&self) -> bool {
        self.settings.shows_first()
    }

    /// The branch on which a name was found, where that still holds.
    pub(crate) fn hint(&self, shared: &Shared, spot: Spot<'_>) -> Option<u16> {
        let holds = shared.is_ours_alone() && self.shows_first();
        if holds { self.hints.of(spot.folder.id, spot.c_name()) } else { None }
    }

    /// What [`Merge::note_hint`] is told later, by who is about to look.
    pub(crate) fn hint_round(&self) -> u64 {
        self.hints.round()
    }

    /// Notes on which branch a name was found, that is not on the first. Comes to nothing where all of these were given up since the round began.
    pub(crate) fn note_hint(&self, shared: &Shared, spot: Spot<'_>, branch: u16, round: u64) {
        if shared.is_ours_alone() {
            self.hints.note(spot.folder.id, spot.c_name(), branch, round);
        }
    }

    /// Gives up what is noted of all names: branches are others, or other copies are shown.
    pub(super) fn forget_hints(&self) {
        self.hints.clear();
    }

    /// Gives up what is noted of a name that comes to several branches.
    pub(crate) fn forget_hint(&self, spot: Spot<'_>) {
        self.hints.forget(spot.folder.id, spot.c_name());
    }

    /// Notes by which name a file was found, if it has several, and if its number goes by that.
    pub(crate) fn note_name(&self, spot: Spot<'_>, id: NodeId, stat: &Stat) {
        let way = || -> Way { (spot.folder.id, spot.c_name().into()) };
        self.numbers.note(id, way);
        if stat.nlink > 1 {
            self.linked.note(id, way());
        }
    }

    /// Has each folder be looked for again when it is used.
    pub(crate) fn see_folders_again(&self, shared: &Shared) {
        let all = shared.table.all();
        all.iter().filter(|node| node.parts().is_some()).for_each(|node| node.mark(Marks::UNSEEN));
    }

    /// The node of a folder, where the kernel knows it and it is there; its lookup count stays.
    pub(crate) fn folder(&self, shared: &Shared, parent: NodeId, name: &CStr) -> Option<Arc<Node>> {
        let node = self.folders.peek(&shared.table, parent, name)?;
        let is_there = !node.has(Marks::UNSEEN) || shared.see(&node).is_ok();
        is_there.then_some(node)
    }

    /// What had the first name has the second one now, and `back` says whether the other way round, too.
    pub(crate) fn moved(&self, shared: &Shared, from: Way, to: Way, back: bool) {
        self.numbers.moved(&from, &to, back);
        self.folder_moved(shared, from, to, back);
    }

    /// The same of what a server that is dead had moved, where files are noted by [`Merge::was_moved`].
    pub(crate) fn folder_moved(&self, shared: &Shared, from: Way, to: Way, back: bool) {
        self.folders.moved(&shared.table, from, to, back);
    }

    /// Notes what two names lead to that a server that is dead had moved or exchanged: inode numbers may go by them. Folders are the caller's to
    /// note.
    ///
    /// # Errors
    /// Those of looking what the names lead to.
    pub(crate) fn was_moved(&self, shared: &Shared, from: Spot<'_>, to: Spot<'_>) -> Result<()> {
        if !self.numbers.go_by_path() {
            return Ok(());
        }
        let way = |spot: Spot<'_>| -> Way { (spot.folder.id, spot.c_name().into()) };
        let (at_from, at_to) = (find::known(shared, from)?, find::known(shared, to)?);
        self.numbers.was_moved((&way(from), &at_from), (&way(to), &at_to));
        Ok(())
    }

    /// Whether what is moved and linked only goes where its folder is: as the policy of new files has it, in mergerfs, too.
    pub(crate) fn keeps_paths(&self) -> bool {
        let name = self.settings.policy(Function::Create).name();
        name.starts_with("ep") || name.starts_with("msp")
    }

    /// Whether a file that loses its name on one branch may keep it on others: then what is left does not tell what was to go.
    pub(crate) fn leaves_copies(&self) -> bool {
        !["all", "epall"].contains(&self.settings.policy(Function::Unlink).name())
    }

    /// A random number.
    pub(super) fn seed(&self) -> u64 {
        self.seeds.hash_one(self.asked.fetch_add(1, Ordering::Relaxed))
    }
}
