//! The steps of a rename over several branches, forward and back.
//!
//! The name is moved on one branch after the other, then what has the new one is removed on others. As long as a step may fail, what is replaced
//! keeps the old name, so that all of it can be undone. Where another server may go on, it is written down first what is exchanged
//! (`keeping_renames.rs`), because that server could not tell what is from what is not.

use shuntfs::{LowerFile, Name, Result};
use shuntfs_sys::{OsError, rename_at, rmdir_at, stat_at, unlink_at};

use crate::branch::{MountIndex, touches_on, was_left};
use crate::error::errno;
use crate::guard::Spot;
use crate::keeping_renames::{Exchange, NotedExchange, inode_of};
use crate::merge::{Here, Merge};
use crate::mode;
use crate::shared::{Folder, Shared};

/// How far the move on one branch has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Not begun.
    Ahead,
    /// Done. What was replaced is gone.
    Moved,
    /// Done. What was replaced has the old name.
    Exchanged,
}

/// A rename under way.
pub(super) struct Moving<'m> {
    pub(super) shared: &'m Shared,
    pub(super) merge: &'m Merge,
    /// The number of the request, 0 where nobody asks.
    pub(super) request: u64,
    pub(super) from: Spot<'m>,
    pub(super) to: Spot<'m>,
    /// What moves, and the folder on its branch that it comes to.
    pub(super) moves: &'m [(Here, Folder)],
    /// What has the new name on these branches, and on others.
    pub(super) replaced: &'m [Here],
    pub(super) left: &'m [Here],
}

/// What is written down of the moves, each at its place.
type Notes<'m> = Vec<Option<NotedExchange<'m>>>;

impl Moving<'_> {
    /// Does the steps that are left. `earlier` is what a server that is dead had written down of them.
    ///
    /// # Errors
    /// That of the step that failed. Those before it are undone where that is possible; where it is not, that is logged.
    pub(super) fn finish(
        &self,
        flags: u32,
        mut steps: Vec<Step>,
        earlier: Vec<NotedExchange<'_>>,
    ) -> Result<()> {
        if let ([_], [], [Step::Ahead], []) = (self.moves, self.left, &*steps, &*earlier) {
            return self.there(0, flags).map_err(errno);
        }
        let notes: Notes<'_> =
            steps.iter().enumerate().map(|(index, step)| self.note(index, *step)).collect();
        let outcome = self.forward(flags, &mut steps, &notes);
        let is_as_told = match outcome {
            Ok(()) => self.take_all_replaced(&steps),
            Err(_) => self.undo(&steps),
        };
        if is_as_told {
            notes.into_iter().flatten().chain(earlier).for_each(NotedExchange::end);
        }
        outcome.map_err(errno)
    }

    /// Writes down what is about to be exchanged, if another server may go on.
    fn note(&self, index: usize, step: Step) -> Option<NotedExchange<'_>> {
        let replaced = self.replaced_by(index).filter(|_| step == Step::Ahead && self.is_kept())?;
        let (source, _) = &self.moves[index];
        let (moved, replaced) = (inode_of(&source.stat), inode_of(&replaced.stat));
        self.merge.renames.note(self.request, Exchange { branch: source.mount.branch, moved, replaced })
    }

    fn is_kept(&self) -> bool {
        self.shared.options.kept.is_some()
    }

    fn forward(&self, flags: u32, steps: &mut [Step], notes: &Notes<'_>) -> shuntfs_sys::Result<()> {
        for (index, step) in steps.iter_mut().enumerate().filter(|(_, step)| **step == Step::Ahead) {
            // Without a note what is replaced is gone at once.
            let exchanges = self.replaces(index) && (notes[index].is_some() || !self.is_kept());
            *step = if exchanges {
                self.exchange(index, flags)?
            } else {
                self.there(index, flags).map(|()| Step::Moved)?
            };
        }
        // From the last to the first, so that what is shown is there as long as anything is.
        self.left
            .iter()
            .rev()
            .try_for_each(|here| remove_at(here.mount, &here.dir, self.to, here.stat.is_dir()))
    }

    fn exchange(&self, index: usize, flags: u32) -> shuntfs_sys::Result<Step> {
        match self.there(index, mode::RENAME_EXCHANGE) {
            // Not every file system can: then what is replaced is gone.
            Err(OsError::INVAL | OsError::NOSYS | OsError::OPNOTSUPP) => {
                self.there(index, flags).map(|()| Step::Moved)
            }
            outcome => outcome.map(|()| Step::Exchanged),
        }
    }

    /// Removes what has the old name after exchanges. Whether all of it is gone.
    fn take_all_replaced(&self, steps: &[Step]) -> bool {
        let exchanged = steps.iter().enumerate().rev().filter(|(_, step)| **step == Step::Exchanged);
        let left = exchanged.filter_map(|(index, _)| self.take_replaced(index).err()).inspect(|error| {
            tracing::error!(%error, "what a rename replaced is left under the old name");
        });
        left.count() == 0
    }

    /// It is no use to the caller by then, whether they wait or not, but may be somebody else's.
    fn take_replaced(&self, index: usize) -> shuntfs_sys::Result<()> {
        let (source, _) = &self.moves[index];
        touches_on(source.mount);
        let is_still = || self.replaced_by(index).is_some_and(|old| is_still(&source.dir, self.from, old));
        if was_left() && !is_still() {
            return Err(OsError::STALE);
        }
        take_away(&source.dir, self.from, source.stat.is_dir())
    }

    /// What had the new name on the branch of a move.
    fn replaced_by(&self, index: usize) -> Option<&Here> {
        let branch = self.moves[index].0.mount.branch;
        self.replaced.iter().find(|here| here.mount.branch == branch)
    }

    fn replaces(&self, index: usize) -> bool {
        self.replaced_by(index).is_some()
    }

    fn there(&self, index: usize, flags: u32) -> shuntfs_sys::Result<()> {
        let (source, target) = &self.moves[index];
        touches_on(source.mount);
        check_wanted()?;
        rename_at(&*source.dir, self.from.c_name(), &target.descriptor, self.to.c_name(), flags)
    }

    /// Takes the moves back; those that were exchanges leave nothing undone. Where that fails, the kernel is to look the names up again, which
    /// it believes to be as they were. Whether every name is where it was.
    fn undo(&self, steps: &[Step]) -> bool {
        let (mut is_undone, mut is_back) = (true, true);
        for (index, step) in steps.iter().enumerate().rev().filter(|(_, step)| **step != Step::Ahead) {
            let was_exchanged = *step == Step::Exchanged;
            let flags = if was_exchanged { mode::RENAME_EXCHANGE } else { mode::RENAME_NOREPLACE };
            if let Err(error) = self.back(index, flags) {
                (is_undone, is_back) = (false, false);
                tracing::error!(%error, "a name that was moved on one branch only is left there");
            } else if !was_exchanged && self.replaces(index) {
                is_undone = false;
                tracing::error!(
                    "what a rename replaced on one branch is gone, and the rename failed on another"
                );
            }
        }
        if let Some(notifier) = self.shared.notifier.get().filter(|_| !is_undone) {
            for spot in [self.from, self.to] {
                Name::new(spot.c_name()).into_iter().for_each(|name| notifier.doubt(spot.folder.id, name));
            }
        }
        is_back
    }

    /// Takes one move back, if the names are as it left them: on a disk that hung it may be long ago. Without `RENAME_NOREPLACE` on the file system it
    /// is looked first that nothing is replaced.
    fn back(&self, index: usize, flags: u32) -> shuntfs_sys::Result<()> {
        let ((source, target), old) = (&self.moves[index], self.replaced_by(index));
        let (from, to) = (self.from.c_name(), self.to.c_name());
        touches_on(source.mount);
        let is_exchanged = flags == mode::RENAME_EXCHANGE;
        let is_old_there = || old.is_some_and(|old| is_still(&source.dir, self.from, old));
        if !is_still(&target.descriptor, self.to, source) || is_exchanged && !is_old_there() {
            return Err(OsError::STALE);
        }
        let rename = |flags| rename_at(&target.descriptor, to, &*source.dir, from, flags);
        match rename(flags) {
            Err(OsError::INVAL | OsError::NOSYS | OsError::OPNOTSUPP)
                if flags == mode::RENAME_NOREPLACE
                    && matches!(stat_at(&*source.dir, from), Err(OsError::NOENT)) =>
            {
                rename(0)
            }
            outcome => outcome,
        }
    }
}

/// Whether a name in a folder leads to what it led to before, or what was moved there.
fn is_still(dir: &LowerFile, spot: Spot<'_>, here: &Here) -> bool {
    stat_at(dir, spot.c_name()).is_ok_and(|now| (now.dev, now.ino) == (here.stat.dev, here.stat.ino))
}

/// Refuses the next change for a caller who was told EIO, because a disk hung: the name may be another file's by now.
///
/// # Errors
/// EIO, which nobody hears.
pub(super) fn check_wanted() -> shuntfs_sys::Result<()> {
    if was_left() { Err(OsError::IO) } else { Ok(()) }
}

pub(super) fn remove_at(
    mount: MountIndex,
    dir: &LowerFile,
    spot: Spot<'_>,
    is_folder: bool,
) -> shuntfs_sys::Result<()> {
    touches_on(mount);
    check_wanted()?;
    take_away(dir, spot, is_folder)
}

fn take_away(dir: &LowerFile, spot: Spot<'_>, is_folder: bool) -> shuntfs_sys::Result<()> {
    if is_folder { rmdir_at(dir, spot.c_name()) } else { unlink_at(dir, spot.c_name()) }
}
