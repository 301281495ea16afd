//! Making, removing and moving names, and noting it.

use std::os::fd::OwnedFd;

use shuntfs::{Errno, LowerFile, Result};
use shuntfs_sys::{
    OsError, link_to, mkdir_at, mknod_at, open_at, rename_at, rmdir_at, stat_at, stat_of, symlink_at,
    tmpfile_at, unlink_at,
};

use super::{begun, merged};
use crate::branch::touches_on;
use crate::error::errno;
use crate::guard::after::{self, Moving};
use crate::guard::settling::Settling;
use crate::guard::{
    Coming, Judged, Made, NameComes, NameGoes, NameMoves, NamelessComes, SecondName, Spot, Terms, Untold,
};
use crate::merge;
use crate::mode;
use crate::removal::{self, Removal};
use crate::scarce::Room;
use crate::shared::Shared;

impl<'c> Judged<NameComes<'c>> {
    /// Makes a folder, a symlink or a node.
    pub(crate) fn make(self, shared: &'c Shared) -> Result<Untold<'c>> {
        let (who, spot) = (self.who, self.change.spot);
        let (dir, name) = (spot.dir, spot.c_name());
        shared.check_room()?;
        touches_on(spot.mount);
        let made = match self.change.what {
            // Files that are opened are made by `create`.
            Coming::File { .. } => return Err(Errno::INVAL),
            Coming::Folder { made } => who.create(made.mode, made.umask, || mkdir_at(dir, name, made.mode)),
            Coming::Symlink { target } => who.create(0, 0, || symlink_at(target, dir, name)),
            Coming::Node { made, rdev } => {
                who.create(made.mode, made.umask, || mknod_at(dir, name, made.mode, rdev))
            }
        };
        let made = match made {
            // A server that is dead had made it for this very request.
            Err(OsError::EXIST) if who.is_begun() && begun::is_of(self.change.what, who, dir, name) => Ok(()),
            made => made.map_err(errno),
        };
        made.inspect_err(|error| shared.note_refusal(spot, *error))?;
        Ok(Untold::new(shared, spot))
    }

    /// Makes a file and opens it with `access`, as its maker.
    pub(crate) fn create(self, shared: &'c Shared, access: u32) -> Result<(OwnedFd, Terms, Untold<'c>)> {
        let Coming::File { made, .. } = self.change.what else { return Err(Errno::INVAL) };
        let (who, spot) = (self.who, self.change.spot);
        let flags = mode::O_CREAT | mode::O_EXCL | access;
        shared.check_room()?;
        touches_on(spot.mount);
        let open =
            || who.create(made.mode, made.umask, || open_at(spot.dir, spot.c_name(), flags, made.mode));
        let fd = shared.opening(open).inspect_err(|error| shared.note_refusal(spot, *error))?;
        shared.scarce.is_last(&fd, Room::Stays);
        Ok((fd, self.terms, Untold::new(shared, spot)))
    }
}

impl Judged<NamelessComes<'_>> {
    /// Makes a file without a name and opens it.
    pub(crate) fn create(self, shared: &Shared) -> Result<(OwnedFd, Terms)> {
        let Coming::File { made: Made { mode, umask }, flags } = self.change.what else {
            return Err(Errno::INVAL);
        };
        let (who, dir) = (self.who, self.change.dir);
        let flags = mode::O_RDWR | flags.0 & mode::O_EXCL;
        shared.check_room()?;
        let open = || who.create(mode, umask, || tmpfile_at(dir, flags, mode));
        Ok((shared.opening(open)?, self.terms))
    }
}

impl<'c> Judged<SecondName<'c>> {
    /// Gives a file one more name.
    pub(crate) fn link(self, shared: &'c Shared) -> Result<Untold<'c>> {
        let SecondName { node, spot, held } = self.change;
        let descriptor = shared.descriptor(node)?;
        let linked = match link_to(&descriptor, spot.dir, spot.c_name()) {
            Err(OsError::EXIST) if self.who.is_begun() && is_same(&descriptor, spot) => Ok(()),
            linked => linked.map_err(errno),
        };
        linked.inspect_err(|error| merge::pass_on_at(shared, spot, *error))?;
        let untold = Untold::new(shared, spot);
        // It has a name again, so its handle can be opened.
        removal::settle(shared, node);
        after::note_second(shared, spot, node, held);
        Ok(untold)
    }
}

/// Whether a name is the inode's already.
fn is_same(descriptor: &LowerFile, spot: Spot<'_>) -> bool {
    let (inode, named) = (stat_of(descriptor), stat_at(spot.dir, spot.c_name()));
    inode.is_ok_and(|inode| named.is_ok_and(|named| (named.dev, named.ino) == (inode.dev, inode.ino)))
}

impl Judged<NameGoes<'_>> {
    /// Removes a name.
    pub(crate) fn remove(self, shared: &Shared) -> Result<()> {
        let NameGoes { spot, held, is_folder } = self.change;
        // No file gets another place meanwhile: its name would be left there.
        let of_file = shared.merge.as_ref().filter(|_| !is_folder);
        let _name = of_file.map(|merge| merge.switching.hold(spot.folder.id, spot.c_name())).transpose()?;
        let removal = Removal::begin(shared, spot)?;
        if let Some(merge) = &shared.merge {
            let doubt = |_: &Errno| shared.doubt_attributes(spot.folder.id);
            let settling = Settling::begin(shared, merge, &[spot])?;
            let removed = merged::remove(shared, merge, (self.who, self.change)).inspect_err(doubt);
            settling.into_iter().for_each(|settling| settling.done(held));
            removed?;
            removal.doubt_copies();
            return Ok(());
        }
        if is_folder {
            return rmdir_at(spot.dir, spot.c_name()).map_err(errno);
        }
        unlink_at(spot.dir, spot.c_name()).map_err(errno)?;
        after::note_removed(shared, spot, removal.nodes());
        Ok(())
    }
}

impl Judged<NameMoves<'_>> {
    /// Moves a name, or exchanges two.
    pub(crate) fn rename(self, shared: &Shared) -> Result<()> {
        let NameMoves { from, to, held, flags } = self.change;
        if let Some(merge) = &shared.merge {
            // On some branches it may have been done, and undone.
            let doubt =
                |_: &Errno| [from, to].iter().for_each(|spot| shared.doubt_attributes(spot.folder.id));
            let settling = Settling::begin(shared, merge, &[from, to])?;
            let renamed = merged::rename(shared, merge, (self.who, self.change)).inspect_err(doubt);
            settling.into_iter().for_each(|settling| settling.done(held));
            return renamed;
        }
        let moving = Moving::begin(shared, from, to, flags)?;
        let replaces = flags & (mode::RENAME_EXCHANGE | mode::RENAME_NOREPLACE) == 0;
        let _removal = if replaces { Some(Removal::begin(shared, to)?) } else { None };
        let rename = || rename_at(from.dir, from.c_name(), to.dir, to.c_name(), flags);
        // A whiteout is a new inode, and the caller's.
        let whiteout = flags & mode::RENAME_WHITEOUT != 0;
        let renamed = if whiteout { self.who.create(0, 0, rename) } else { rename() };
        renamed.map_err(errno)?;
        moving.done();
        Ok(())
    }
}
