//! Changes of names: creations, links, moves, removals.

use shuntfs_wire::{EntryOut, Errno, LinkIn, MkdirIn, MknodIn, NodeId, Opcode, Rename2In, RenameIn};
use zerocopy::{FromBytes, IntoBytes};

use crate::breach::Rule;
use crate::inode::{S_IFDIR, S_IFLNK, S_IFMT};
use crate::process::Process;
use crate::walk::{Place, told};

/// The umask of the fake's callers.
const UMASK: u32 = 0o022;
/// What makes the kernel doubt a name that was to go (`fuse_unlink`, `fuse_rename_common`).
const GONE: [Errno; 2] = [Errno::INTR, Errno::NOENT];
const RENAME_EXCHANGE: u32 = 2;
const RENAME_NOREPLACE: u32 = 1;

impl Process {
    /// Makes a folder.
    ///
    /// # Errors
    /// EEXIST, those of the way and of MKDIR.
    pub fn mkdir(&self, path: &str, mode: u32) -> Result<NodeId, Errno> {
        let place = self.new_place(path)?;
        let arg = MkdirIn { mode: self.masked(mode), umask: UMASK };
        self.make(Opcode::Mkdir, &place, &[arg.as_bytes(), &place.name, b"\0"], S_IFDIR)
    }

    /// Makes a file, a FIFO, a socket or a device; `mode` has the type.
    ///
    /// # Errors
    /// EEXIST, those of the way and of MKNOD.
    pub fn mknod(&self, path: &str, mode: u32, rdev: u32) -> Result<NodeId, Errno> {
        let place = self.new_place(path)?;
        let arg = MknodIn { mode: self.masked(mode), rdev, umask: UMASK, padding: 0 };
        self.make(Opcode::Mknod, &place, &[arg.as_bytes(), &place.name, b"\0"], mode & S_IFMT)
    }

    /// Makes a symlink.
    ///
    /// # Errors
    /// EEXIST, those of the way and of SYMLINK.
    pub fn symlink(&self, target: &str, path: &str) -> Result<NodeId, Errno> {
        let place = self.new_place(path)?;
        self.make(Opcode::Symlink, &place, &[&place.name, b"\0", target.as_bytes(), b"\0"], S_IFLNK)
    }

    /// Gives a file another name.
    ///
    /// # Errors
    /// EEXIST, those of the ways and of LINK.
    pub fn link(&self, old: &str, new: &str) -> Result<NodeId, Errno> {
        let node = self.walk(old, false)?;
        let place = self.new_place(new)?;
        let kind = self.kind(node)?;
        if kind == S_IFDIR {
            return Err(Errno::PERM);
        }
        let arg = LinkIn { oldnodeid: node };
        let made = self.make(Opcode::Link, &place, &[arg.as_bytes(), &place.name, b"\0"], kind)?;
        if made.get() != node {
            let what = format!(
                "LINK of node {node} was answered with node {}: the two names do not share their pages",
                made.get()
            );
            self.kernel.books().breach(Rule::Identity, what);
        }
        Ok(made)
    }

    /// Removes a name of what is not a folder.
    ///
    /// # Errors
    /// Those of the way and of UNLINK.
    pub fn unlink(&self, path: &str) -> Result<(), Errno> {
        self.remove(Opcode::Unlink, path)
    }

    /// Removes an empty folder.
    ///
    /// # Errors
    /// Those of the way and of RMDIR.
    pub fn rmdir(&self, path: &str) -> Result<(), Errno> {
        self.remove(Opcode::Rmdir, path)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// Those of the ways and of RENAME.
    pub fn rename(&self, old: &str, new: &str) -> Result<(), Errno> {
        self.rename_with(old, new, 0)
    }

    /// Moves or exchanges names, with the flags of `renameat2(2)`.
    ///
    /// # Errors
    /// Those of the ways and of RENAME2; EINVAL where the file system has no flags.
    pub fn rename_with(&self, old: &str, new: &str, flags: u32) -> Result<(), Errno> {
        let (from, to) = (self.place(old)?, self.place(new)?);
        let moved = self.lookup(&from)?;
        let replaced = match self.lookup(&to) {
            Ok(_) if flags & RENAME_NOREPLACE != 0 => return Err(Errno::EXIST),
            Ok(node) => Some(node),
            Err(Errno::NOENT) if flags & RENAME_EXCHANGE == 0 => None,
            Err(errno) => return Err(errno),
        };
        if flags == 0 && replaced == Some(moved) {
            return Ok(());
        }
        if to.is_in(moved) || replaced.is_some_and(|replaced| from.is_in(replaced)) {
            return Err(if to.is_in(moved) { Errno::INVAL } else { Errno::NOTEMPTY });
        }
        let dirs = [Some(moved), replaced].map(|node| node.map(|node| self.kind(node) == Ok(S_IFDIR)));
        match dirs {
            [Some(true), Some(false)] if flags & RENAME_EXCHANGE == 0 => return Err(Errno::NOTDIR),
            [Some(false), Some(true)] if flags & RENAME_EXCHANGE == 0 => return Err(Errno::ISDIR),
            _ => {}
        }
        let names: [&[u8]; 4] = [&from.name, b"\0", &to.name, b"\0"];
        let outcome = if flags == 0 {
            let arg = RenameIn { newdir: to.parent };
            self.kernel.ask(
                self.caller,
                (Opcode::Rename, from.parent),
                &[&[arg.as_bytes()][..], &names].concat(),
            )
        } else if self.is_off(Opcode::Rename2) {
            Err(Errno::INVAL)
        } else {
            let arg = Rename2In { newdir: to.parent, flags, padding: 0 };
            let what = (Opcode::Rename2, from.parent);
            let outcome = self.kernel.ask(self.caller, what, &[&[arg.as_bytes()][..], &names].concat());
            self.off_at_nosys(Opcode::Rename2, outcome, Errno::INVAL)
        };
        let outcome = self.distrusting(outcome, &GONE, &from);
        self.distrusting(outcome, if replaced.is_some() { &GONE } else { &[] }, &to)?;
        let mut books = self.kernel.books();
        books.drop_name(from.parent, &from.name);
        books.drop_name(to.parent, &to.name);
        for node in [Some(from.parent), Some(to.parent), Some(moved), replaced].into_iter().flatten() {
            books.changed(node);
        }
        Ok(())
    }

    /// What the file system answers ENOSYS once is not asked again.
    pub(crate) fn is_off(&self, opcode: Opcode) -> bool {
        self.kernel.books().never.contains(&opcode)
    }

    /// Remembers ENOSYS, which the caller then sees as `seen`.
    pub(crate) fn off_at_nosys<T>(
        &self,
        opcode: Opcode,
        outcome: Result<T, Errno>,
        seen: Errno,
    ) -> Result<T, Errno> {
        outcome.map_err(|errno| {
            if errno == Errno::NOSYS {
                self.kernel.books().never.insert(opcode);
                return seen;
            }
            errno
        })
    }

    /// After some errors of a change the kernel looks the name up again. After all others it believes what it believed before.
    pub(crate) fn distrusting<T>(
        &self,
        outcome: Result<T, Errno>,
        after: &[Errno],
        place: &Place,
    ) -> Result<T, Errno> {
        if outcome.as_ref().is_err_and(|errno| after.contains(errno)) {
            self.kernel.books().drop_name(place.parent, &place.name);
        }
        outcome
    }

    /// The mode as a creation carries it.
    pub(crate) fn masked(&self, mode: u32) -> u32 {
        let unmasked = self.kernel.books().has_agreed(shuntfs_wire::InitFlags::DONT_MASK);
        if unmasked { mode } else { mode & !UMASK }
    }

    /// The umask, as creations carry it.
    pub(crate) fn umask() -> u32 {
        UMASK
    }

    /// A place where there is nothing yet; looked up anew, as the kernel does before it makes something.
    fn new_place(&self, path: &str) -> Result<Place, Errno> {
        let place = self.place(path)?;
        match self.lookup_afresh(&place) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => Ok(place),
            Err(errno) => Err(errno),
        }
    }

    fn make(&self, opcode: Opcode, place: &Place, parts: &[&[u8]], kind: u32) -> Result<NodeId, Errno> {
        let answer = self.kernel.ask(self.caller, (opcode, place.parent), parts);
        let answer = self.distrusting(answer, &[Errno::EXIST], place);
        let answer =
            if opcode == Opcode::Link { self.off_at_nosys(opcode, answer, Errno::PERM) } else { answer };
        let entry = EntryOut::read_from_bytes(&answer?).map_err(|_| Errno::IO)?;
        let made = entry.attr.mode & S_IFMT;
        if entry.nodeid == 0 || made != kind {
            let what = format!(
                "{opcode} of {} was answered with node {} of type {made:o}: its caller gets EIO",
                told(place),
                entry.nodeid
            );
            self.kernel.books().breach(Rule::Identity, what);
            return Err(Errno::IO);
        }
        let node = self.meet(&entry, place)?;
        self.kernel.books().changed(place.parent);
        NodeId::new(node).ok_or(Errno::IO)
    }

    fn remove(&self, opcode: Opcode, path: &str) -> Result<(), Errno> {
        let place = self.place(path)?;
        let node = self.lookup(&place)?;
        match (self.kind(node)?, opcode) {
            (S_IFDIR, Opcode::Unlink) => return Err(Errno::ISDIR),
            (S_IFDIR, _) => {}
            (_, Opcode::Rmdir) => return Err(Errno::NOTDIR),
            _ => {}
        }
        let answer = self.kernel.ask(self.caller, (opcode, place.parent), &[&place.name, b"\0"]);
        self.distrusting(answer, &GONE, &place)?;
        let mut books = self.kernel.books();
        books.drop_name(place.parent, &place.name);
        books.changed(place.parent);
        books.changed(node);
        Ok(())
    }
}
