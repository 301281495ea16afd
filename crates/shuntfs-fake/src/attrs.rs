//! Attributes: `stat`, `chmod`, `chown`, `truncate`, `utimensat`, `statfs`.

use std::time::Duration;

use shuntfs_wire::{
    Attr, AttrOut, Errno, GetattrFlags, GetattrIn, Kstatfs, NodeId, Opcode, SetattrIn, SetattrValid,
    StatfsOut,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::books::ROOT;
use crate::breach::Rule;
use crate::inode::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use crate::kernel::told;
use crate::process::Process;

impl Process {
    /// The attributes of what a path leads to; symlinks are followed.
    ///
    /// # Errors
    /// Those of the way, and of GETATTR.
    pub fn stat(&self, path: &str) -> Result<Attr, Errno> {
        self.attributes(self.walk(path, true)?)
    }

    /// The attributes of what a path names, be it a symlink.
    ///
    /// # Errors
    /// As [`Process::stat`].
    pub fn lstat(&self, path: &str) -> Result<Attr, Errno> {
        self.attributes(self.walk(path, false)?)
    }

    /// The attributes of a node that the kernel holds.
    ///
    /// # Errors
    /// That of GETATTR.
    pub fn stat_node(&self, node: NodeId) -> Result<Attr, Errno> {
        self.attributes(node.get())
    }

    /// Sets permission bits.
    ///
    /// # Errors
    /// Those of the way, and of SETATTR.
    pub fn chmod(&self, path: &str, mode: u32) -> Result<Attr, Errno> {
        let node = self.walk(path, true)?;
        let kind = self.attributes(node)?.mode & S_IFMT;
        self.set(
            node,
            SetattrIn { valid: SetattrValid::MODE, mode: kind | mode & 0o7777, ..SetattrIn::default() },
        )
    }

    /// Sets owner and group.
    ///
    /// # Errors
    /// Those of the way, and of SETATTR.
    pub fn chown(&self, path: &str, uid: u32, gid: u32) -> Result<Attr, Errno> {
        let node = self.walk(path, false)?;
        self.set(
            node,
            SetattrIn { valid: SetattrValid::UID | SetattrValid::GID, uid, gid, ..SetattrIn::default() },
        )
    }

    /// Sets the size.
    ///
    /// # Errors
    /// Those of the way, and of SETATTR.
    pub fn truncate(&self, path: &str, size: u64) -> Result<Attr, Errno> {
        let node = self.walk(path, true)?;
        match self.kind(node)? {
            S_IFREG => {}
            S_IFDIR => return Err(Errno::ISDIR),
            _ => return Err(Errno::INVAL),
        }
        self.set(node, SetattrIn { valid: SetattrValid::SIZE, size, ..SetattrIn::default() })
    }

    /// Sets the time of the last change, in seconds since 1970.
    ///
    /// # Errors
    /// Those of the way, and of SETATTR.
    pub fn set_mtime(&self, path: &str, mtime: u64) -> Result<Attr, Errno> {
        let node = self.walk(path, true)?;
        self.set(node, SetattrIn { valid: SetattrValid::MTIME, mtime, ..SetattrIn::default() })
    }

    /// The state of the file system as a whole.
    ///
    /// # Errors
    /// That of STATFS.
    pub fn statfs(&self) -> Result<Kstatfs, Errno> {
        let answer = self.kernel.ask(self.caller, (Opcode::Statfs, ROOT), &[])?;
        StatfsOut::read_from_bytes(&answer).map(|out| out.st).map_err(|_| Errno::IO)
    }

    /// What a symlink points to.
    ///
    /// # Errors
    /// EINVAL for what is no symlink, and those of READLINK.
    pub fn readlink(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let node = self.walk(path, false)?;
        if self.attributes(node)?.mode & S_IFMT != S_IFLNK {
            return Err(Errno::INVAL);
        }
        self.target(node)
    }

    /// The attributes of a node, from the cache while they hold.
    pub(crate) fn attributes(&self, node: u64) -> Result<Attr, Errno> {
        let cached = {
            let books = self.kernel.books();
            let inode = books.inodes.get(&node).ok_or(Errno::STALE)?;
            (inode.attr_until > books.clock).then_some((inode.attr, inode.attr_until))
        };
        let Some((attr, until)) = cached else { return self.fresh_attributes(node, None) };
        if self.kernel.doubts {
            let fresh = self.ask_attributes(node, None)?;
            self.compare(node, (&attr, until), &fresh.attr);
        }
        Ok(attr)
    }

    /// The attributes of a node, asked for; through an open file where the kernel has one at hand.
    pub(crate) fn fresh_attributes(&self, node: u64, fh: Option<u64>) -> Result<Attr, Errno> {
        let fresh = self.ask_attributes(node, fh)?;
        let valid = (fresh.attr_valid, fresh.attr_valid_nsec);
        self.kernel.books().refresh(node, fresh.attr, valid).map_err(|()| Errno::IO)?;
        Ok(fresh.attr)
    }

    fn ask_attributes(&self, node: u64, fh: Option<u64>) -> Result<AttrOut, Errno> {
        let getattr_flags = fh.map_or(GetattrFlags::empty(), |_| GetattrFlags::FH);
        let arg = GetattrIn { getattr_flags, dummy: 0, fh: fh.unwrap_or(0) };
        let answer = self.kernel.ask(self.caller, (Opcode::Getattr, node), &[arg.as_bytes()]);
        if let Err(errno @ Errno::STALE) = answer {
            let mut books = self.kernel.books();
            let lookups = books.inodes.get(&node).map_or(0, |inode| inode.lookups);
            let what = format!(
                "{} was answered {errno}, and the kernel holds the node: {lookups} lookups were not given back",
                told(Opcode::Getattr, node)
            );
            books.breach(Rule::Held, what);
        }
        AttrOut::read_from_bytes(&answer?).map_err(|_| Errno::IO)
    }

    /// SETATTR.
    pub(crate) fn set(&self, node: u64, arg: SetattrIn) -> Result<Attr, Errno> {
        let answer = self.kernel.ask(self.caller, (Opcode::Setattr, node), &[arg.as_bytes()])?;
        let out = AttrOut::read_from_bytes(&answer).map_err(|_| Errno::IO)?;
        let mut books = self.kernel.books();
        let valid = (out.attr_valid, out.attr_valid_nsec);
        books.refresh(node, out.attr, valid).map_err(|()| Errno::IO)?;
        if arg.valid.contains(SetattrValid::SIZE) {
            if out.attr.size != arg.size {
                let what = format!("node {node} was cut to {} bytes, and has {}", arg.size, out.attr.size);
                books.breach(Rule::Attributes, what);
            }
            if let Some(inode) = books.inodes.get_mut(&node) {
                inode.pages.cut(arg.size);
            }
        }
        Ok(out.attr)
    }

    /// Whether attributes that were promised to hold until then still do. Times of access and of the inode's change are
    /// nobody's promise, nor are blocks.
    pub(crate) fn compare(&self, node: u64, (cached, until): (&Attr, Duration), fresh: &Attr) {
        let mut books = self.kernel.books();
        // The answer may have come with a notice that they hold no longer.
        let still = books.inodes.get(&node).map_or(Duration::ZERO, |inode| inode.attr_until);
        if until.min(still) <= books.clock {
            return;
        }
        let fields = |attr: &Attr| {
            [
                ("ino", attr.ino),
                ("size", attr.size),
                ("mode", attr.mode.into()),
                ("links", attr.nlink.into()),
                ("uid", attr.uid.into()),
                ("gid", attr.gid.into()),
                ("rdev", attr.rdev.into()),
                ("mtime", attr.mtime),
                ("mtime's nanoseconds", attr.mtimensec.into()),
            ]
        };
        let differ = fields(cached).into_iter().zip(fields(fresh)).filter(|(old, new)| old != new);
        let differ: Vec<String> =
            differ.map(|((field, old), (_, new))| format!("{field} {old} is now {new}")).collect();
        if !differ.is_empty() {
            let left = until.saturating_sub(books.clock);
            let what = format!("of node {node}, to hold for {left:?} more, {}", differ.join(", "));
            books.breach(Rule::Attributes, what);
        }
    }
}
