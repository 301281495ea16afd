//! Moving a file because a rule says so, whether it is open or not.
//!
//! A file that is open flows through the server or past it. Where it flows past us the kernel keeps the lower file, so such a file stays; and one
//! that is open for writing stays, too, though it could be moved, and where somebody begins to change the file the copy is given up: who writes
//! does not wait ([`Move::begin_idle`]). What somebody has open for writing on its branch, beside the pool, stays, because what they write would be lost
//! with the old file. From the beginning of a move to its end no open of
//! the file gets to pass us ([`crate::file::lower_file`]). One that was on its way there before is counted before it asks, and so it is seen here
//! ([`Course::Unsettled`]); one that takes the backing id that was kept from an earlier open, before that is let go of, is seen when the copy is
//! about to get its name. A mapping for reading that outlives its open file shows the file that was.

use std::sync::Arc;

use shuntfs::{Errno, LowerFile};
use shuntfs_sys::{OsError, Stat, give_back_lease, take_read_lease};

use super::change::release;
use super::refusals::why_read_only;
use super::relocate::{Aim, Carried, Relocation, Unmoved};
use crate::branch::touches_on;
use crate::guard::Spot;
use crate::lowers::Course;
use crate::name_buf::NameBuf;
use crate::node::{Marks, Mobile, Move, Node};
use crate::shared::Shared;

/// A file that must be moved because a rule says so.
#[derive(Clone, Copy)]
pub(crate) struct Errand<'e> {
    /// The name by which the rule was asked. Where it has got another one, the file stays.
    pub(crate) spot: Spot<'e>,
    /// What the rule was asked about.
    pub(crate) stat: &'e Stat,
    /// Where it may go: the first branch that has room.
    pub(crate) to: &'e [u16],
    /// Whether its branch is to get more room by that.
    pub(crate) makes_room: bool,
    /// How many bytes more than now something takes on a branch before this one is copied.
    pub(crate) spoken_for: &'e dyn Fn(u16) -> u64,
    /// Is told of bytes as they are copied.
    pub(crate) copied: &'e dyn Fn(u64),
}

impl Errand<'_> {
    /// Whether this is the name.
    pub(super) fn is_at(&self, folder: &Arc<Node>, name: &NameBuf) -> bool {
        self.spot.folder.id == folder.id && self.spot.c_name() == name.as_c_str()
    }
}

/// Moves a file, or, if `is_dry`, only checks whether and where to it would be; the branch.
///
/// May take as long as the file is large, so never in a queue.
///
/// # Errors
/// Why it stays where it is.
pub(crate) fn carry_out(
    shared: &Shared,
    node: &Arc<Node>,
    errand: &Errand<'_>,
    is_dry: bool,
) -> Result<u16, Unmoved> {
    let merge = shared.merge.as_ref().ok_or(Unmoved::Off)?;
    let relocation = Relocation { shared, merge, node, aim: Aim::Errand(errand), moving: None };
    // Each part by itself is seen if a disk hangs; the copy takes as long as the file is large.
    let look = || shared.under_way(|| relocation.look(errand));
    if is_dry {
        relocation.check_unwritten()?;
        return look();
    }
    // First, because a move waits for who writes.
    relocation.check_unwritten()?;
    let moving = Move::begin_idle(node).ok_or(Unmoved::InUse)?;
    let relocation = Relocation { moving: Some(&moving), ..relocation };
    let moved = relocation.check_unwritten().and_then(|()| {
        if let Some(notifier) = shared.notifier.get() {
            notifier.drop_backing(node.id);
        }
        look()?;
        relocation.run(0)
    });
    drop(moving);
    // As after any other move: its branch may have been removed, and this may have been the last file there.
    release(shared, merge, node);
    moved
}

impl Relocation<'_> {
    /// Whether it can be moved, and where to, by what there is now.
    fn look(&self, errand: &Errand<'_>) -> Result<u16, Unmoved> {
        let stat = self.check()?;
        let asked = errand.stat;
        if (stat.ino, stat.dev, stat.size, stat.mtime) != (asked.ino, asked.dev, asked.size, asked.mtime) {
            return Err(Unmoved::Changed);
        }
        match self.only(errand.spot, &stat) {
            Ok(_) => {}
            Err(Carried::Nowhere(why)) => return Err(why),
            Err(Carried::NotThere(error)) => return Err(Unmoved::Failed(error)),
        }
        self.pick_named(errand, needed(&stat), &[])
    }

    /// The first branch that it may go to and that has room for it.
    pub(super) fn pick_named(
        &self,
        errand: &Errand<'_>,
        needed: u64,
        tried: &[(u16, Errno)],
    ) -> Result<u16, Unmoved> {
        let mut why = self.why_tried(tried);
        for number in errand.to.iter().copied() {
            if number == self.node.mount().branch || tried.iter().any(|(tried, _)| *tried == number) {
                continue;
            }
            match self.suits(errand, number, needed) {
                Ok(()) => return Ok(number),
                Err(text) => {
                    why.push(format!("{}: {text}", self.shared.branches.at(number).source().display()));
                }
            }
        }
        Err(Unmoved::NoBranch(why.join("; ")))
    }

    /// Whether a branch that a rule names may get it. One with the mode `NC` may: that keeps policies away, and the rule has named it.
    fn suits(&self, errand: &Errand<'_>, number: u16, needed: u64) -> Result<(), String> {
        let branch = self.shared.branches.at(number);
        if !self.shared.branches.order().contains(&number) {
            return Err("it was removed from the pool".into());
        }
        if let Some((_, why)) = branch.health.aside() {
            return Err(format!("it is set aside: {why}"));
        }
        if branch.is_still_read_only() {
            return Err(why_read_only(branch).into());
        }
        let own = self.shared.mount(self.node.mount()).device();
        if errand.makes_room && branch.mounts.own().device() == own {
            return Err("it is on the same file system, so that nothing would be won".into());
        }
        let space = branch.space_now().map_err(|error| format!("it does not answer: {error}"))?;
        let available = space.available.saturating_sub((errand.spoken_for)(number));
        let left = self.merge.min_free(branch);
        if available < needed.saturating_add(left) {
            return Err(format!(
                "{available} bytes are available, {needed} are needed, and {left} are to be left"
            ));
        }
        Ok(())
    }

    /// Refuses what is open for writing, or flows past us, or may be about to.
    fn check_unwritten(&self) -> Result<(), Unmoved> {
        if self.is_written_by_us() {
            return Err(Unmoved::Written);
        }
        self.check_unused()
    }

    fn is_written_by_us(&self) -> bool {
        let opens = self.node.mobile().map(Mobile::opens).unwrap_or_default();
        opens.iter().any(|open| open.may_write())
    }

    /// Refuses what somebody else has open for writing on its branch, or has mapped so: a program beside the pool, another pool, a loop device. Nobody
    /// is kept from that meanwhile, so it is asked when the copy begins and when the file is about to go. `from` is the file, open for reading.
    pub(super) fn check_unwritten_below(&self, from: &LowerFile) -> Result<(), Unmoved> {
        // Of ours nothing is lost: they go on with the copy.
        if matches!(self.aim, Aim::Room(_)) || self.is_written_by_us() {
            return Ok(());
        }
        touches_on(self.node.mount());
        match take_read_lease(from) {
            Err(OsError::AGAIN) => Err(Unmoved::Written),
            // Not every file system has leases, and whoever is not root has them on their own files alone.
            Err(_) => Ok(()),
            Ok(()) => {
                if let Err(error) = give_back_lease(from) {
                    tracing::debug!(%error, "no lease to give back");
                }
                Ok(())
            }
        }
    }

    /// The same, but for who came to write it while it was copied, who goes on with the copy. For a file whose branch is full it was asked before.
    pub(super) fn check_unused(&self) -> Result<(), Unmoved> {
        let Aim::Errand(_) = self.aim else { return Ok(()) };
        let opens = self.node.mobile().map(Mobile::opens).unwrap_or_default();
        let is_on = |course: Course| opens.iter().any(|open| open.course() == course);
        if is_on(Course::PastUs) {
            Err(Unmoved::Passthrough)
        } else if is_on(Course::Unsettled) {
            Err(Unmoved::InUse)
        } else if self.node.has(Marks::MAPPED_BELOW) {
            Err(Unmoved::Mapped)
        } else if self
            .shared
            .table
            .peek(self.node.key())
            .iter()
            .any(|node| !node.view.is_whole() && node.opens() > 0)
        {
            // They are of another node, which would not come along.
            Err(Unmoved::Viewed)
        } else {
            Ok(())
        }
    }

    /// Is told of bytes as they are copied.
    ///
    /// # Errors
    /// EAGAIN where somebody changes the file: then the copy is given up. EIO where its branch was removed, which is kept by it.
    pub(super) fn copied(&self, bytes: u64) -> shuntfs_sys::Result<()> {
        let Aim::Errand(errand) = self.aim else { return Ok(()) };
        (errand.copied)(bytes);
        if self.is_given_up() {
            return Err(OsError::AGAIN);
        }
        if self.shared.branch(self.node.mount()).is_let_go() { Err(OsError::IO) } else { Ok(()) }
    }

    /// Whether somebody has begun to change the file, who does not wait for the copy.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.aim, Aim::Errand(_)) && self.moving.is_some_and(Move::is_given_up)
    }
}

/// What a file takes of a file system.
pub(crate) fn needed(stat: &Stat) -> u64 {
    /// As `stat` counts.
    const BLOCK: u64 = 512;
    stat.blocks.saturating_mul(BLOCK)
}
