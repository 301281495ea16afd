//! Making files, folders, links, and everything else that has an inode, as the caller.

use std::ffi::CStr;
use std::sync::Arc;

use shuntfs::{Entry, Errno, LookupCount, LowerFile, NodeId, OpenFlags, Opened, Result};
use shuntfs_rules::Use;
use shuntfs_sys::caps::{Cap, has_effective};
use shuntfs_sys::{link_to, mkdir_at, mknod_at, open_at, reopen, stat_at, stat_of, symlink_at, tmpfile_at};

use crate::error::errno;
use crate::file::{self, PoolFile};
use crate::find;
use crate::mode;
use crate::name_buf::NameBuf;
use crate::names;
use crate::node::{Marks, Node};
use crate::rules;
use crate::sealed;
use crate::shared::{KEPT_FLAGS, Shared};
use crate::view::Seen;
use crate::who::Who;

/// What a creation is to look like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    /// Type and permission bits, before the umask.
    pub(crate) mode: u32,
    /// The caller's umask, which a default ACL overrules.
    pub(crate) umask: u32,
}

impl Made {
    /// What rules are asked about: something of this type, to be opened with these flags.
    fn asked(self, kind: u32, flags: u32) -> rules::New {
        let mode = kind | self.mode & !self.umask & !mode::TYPE;
        // A device or a folder is not open when it is made.
        let how = if kind == mode::FILE { rules::use_of(flags) } else { Use::LOOK };
        rules::New { mode, how }
    }
}

fn is_there(dir: &LowerFile, name: &NameBuf) -> bool {
    stat_at(dir, name.as_c_str()).is_ok()
}

/// How often a name may vanish just when it was found to be there, before the kernel is to look again.
const RACES_MAX: usize = 16;

/// CREATE.
pub(crate) fn create(
    shared: &Shared,
    who: Who,
    parent: NodeId,
    name: &NameBuf,
    made: Made,
    flags: OpenFlags,
) -> Result<(Entry, Opened<PoolFile>)> {
    shared.check_writable()?;
    // The kernel looks again once when it hears ESTALE, and then the caller gets it.
    for _ in 0..RACES_MAX {
        if let Some(outcome) = create_once(shared, who, parent, name, (made, flags))? {
            return Ok(outcome);
        }
    }
    Err(Errno::STALE)
}

/// Makes the file, or opens the one that is there; `None` where that one has gone meanwhile.
fn create_once(
    shared: &Shared,
    who: Who,
    parent: NodeId,
    name: &NameBuf,
    (made, flags): (Made, OpenFlags),
) -> Result<Option<(Entry, Opened<PoolFile>)>> {
    let (folder, dir) = shared.folder(parent)?;
    let new = made.asked(mode::FILE, flags.0);
    let decision = match rules::check_make(shared, who, parent, Some(name), new) {
        Ok(decision) => decision,
        // Where it is there after all, what the rules say of it counts.
        Err(_) if flags.0 & mode::O_EXCL == 0 && is_there(&dir, name) => {
            return open_existing(shared, who, &folder, &dir, name, flags);
        }
        Err(error) => return Err(error),
    };
    let course = rules::course_of_new(decision, flags)?;
    // Else read-only, so that the descriptor can be registered and holds no right to write.
    let access =
        if opens_only_now(made, flags) { mode::O_RDWR | flags.0 & KEPT_FLAGS } else { mode::O_RDONLY };
    let open = || {
        let flags = mode::O_CREAT | mode::O_EXCL | access;
        who.create(made.mode, made.umask, || open_at(&dir, name.as_c_str(), flags, made.mode))
    };
    let fd = match shared.opening(open) {
        Ok(fd) => fd,
        Err(Errno::EXIST) if flags.0 & mode::O_EXCL == 0 => {
            return open_existing(shared, who, &folder, &dir, name, flags);
        }
        Err(error) => return Err(error),
    };
    let (fd, mover) = if access == mode::O_RDONLY {
        (fd, None)
    } else {
        (shared.opening(|| reopen(&fd, mode::O_PATH))?, Some(fd))
    };
    let found = find::made(shared, &folder, fd)?;
    let (node, stat) = find::obtain(shared, found, rules::see_new(shared, parent, name));
    find::is_new(shared, &node);
    rules::note(shared, parent, name, &node);
    let file = PoolFile::new(shared, Arc::clone(&node), flags, course);
    if let Some(mover) = mover {
        file.is_moved_by(shared.lower_file(&node, mover));
    }
    Ok(Some((shared.entry(&node, &stat), file::answer(shared, file))))
}

/// Whether the creation is the one chance to open the file as the caller asks: its mode forbids its own owner to, and the
/// server is an ordinary user, who is bound by that, too. (Git makes its objects so.)
fn opens_only_now(made: Made, flags: OpenFlags) -> bool {
    let allowed = made.mode & !made.umask & 0o600;
    allowed != 0o600 && flags.may_write() && !has_effective(Cap::DacOverride)
}

/// CREATE of a name that is there already, because the kernel did not know; `None` where it has gone since.
fn open_existing(
    shared: &Shared,
    who: Who,
    folder: &Node,
    dir: &LowerFile,
    name: &NameBuf,
    flags: OpenFlags,
) -> Result<Option<(Entry, Opened<PoolFile>)>> {
    rules::refuse_hidden(shared, who, folder.id, dir, name)?;
    let found = match find::find(shared, folder, dir, name.as_c_str()) {
        Err(Errno::NOENT) => return Ok(None),
        found => found?,
    };
    if !found.stat.is_file() {
        // CREATE can only answer with a regular file; told so, the kernel looks the name up and does what it is for.
        return Err(Errno::STALE);
    }
    let seen = rules::see(shared, who, folder.id, dir, name, &found)?;
    let (node, stat) = find::obtain(shared, found, seen);
    rules::note(shared, folder.id, name, &node);
    // The name itself is none of the manifest's, which was looked at before.
    sealed::note(shared, &node, &stat, None);
    let opened = file::open(shared, who, node.id, flags).and_then(|opened| {
        let cut = flags.0 & mode::O_TRUNC != 0;
        let stat = if cut { stat_of(shared.descriptor(&node)?).map_err(errno)? } else { stat };
        Ok((shared.entry(&node, &stat), opened))
    });
    if opened.is_err() {
        shared.forget(node.id, LookupCount(1));
    }
    match opened {
        Err(Errno::STALE) => Ok(None),
        opened => opened.map(Some),
    }
}

/// TMPFILE.
pub(crate) fn tmpfile(
    shared: &Shared,
    who: Who,
    parent: NodeId,
    made: Made,
    flags: OpenFlags,
) -> Result<(Entry, Opened<PoolFile>)> {
    shared.check_writable()?;
    let (folder, dir) = shared.folder(parent)?;
    let decision = rules::check_make(shared, who, parent, None, made.asked(mode::FILE, flags.0))?;
    let course = rules::course_of_new(decision, flags)?;
    let lower_flags = mode::O_RDWR | flags.0 & mode::O_EXCL;
    let open = || who.create(made.mode, made.umask, || tmpfile_at(&dir, lower_flags, made.mode));
    let writable = shared.opening(open)?;
    let hold = shared.opening(|| reopen(&writable, mode::O_PATH))?;
    let (node, stat) = find::obtain(shared, find::made(shared, &folder, hold)?, Seen::ALL);
    rules::note_nameless(shared, parent, &node);
    // It has no name, so nothing but a descriptor keeps it; `writable` does until here.
    let held = file::hold(shared, &node);
    drop(writable);
    if let Err(error) = held {
        shared.forget(node.id, LookupCount(1));
        return Err(error);
    }
    find::is_new(shared, &node);
    let file = PoolFile::new(shared, Arc::clone(&node), flags, course);
    Ok((shared.entry(&node, &stat), file::answer(shared, file)))
}

/// MKNOD.
pub(crate) fn mknod(
    shared: &Shared,
    who: Who,
    parent: NodeId,
    name: &NameBuf,
    made: Made,
    rdev: u32,
) -> Result<Entry> {
    rules::check_make(shared, who, parent, Some(name), made.asked(made.mode & mode::TYPE, 0))?;
    make(shared, parent, name, |dir, name| {
        who.create(made.mode, made.umask, || mknod_at(dir, name, made.mode, rdev))
    })
}

/// MKDIR.
pub(crate) fn mkdir(shared: &Shared, who: Who, parent: NodeId, name: &NameBuf, made: Made) -> Result<Entry> {
    rules::check_make(shared, who, parent, Some(name), made.asked(mode::DIR, 0))?;
    make(shared, parent, name, |dir, name| {
        who.create(made.mode, made.umask, || mkdir_at(dir, name, made.mode))
    })
}

/// SYMLINK.
pub(crate) fn symlink(
    shared: &Shared,
    who: Who,
    parent: NodeId,
    name: &NameBuf,
    target: &CStr,
) -> Result<Entry> {
    let new = Made { mode: 0o777, umask: 0 }.asked(mode::LINK, 0);
    rules::check_make(shared, who, parent, Some(name), new)?;
    make(shared, parent, name, |dir, name| who.create(0, 0, || symlink_at(target, dir, name)))
}

/// Makes a name and tells what it means.
fn make(
    shared: &Shared,
    parent: NodeId,
    name: &NameBuf,
    make: impl FnOnce(&LowerFile, &CStr) -> shuntfs_sys::Result<()>,
) -> Result<Entry> {
    shared.check_writable()?;
    let (folder, dir) = shared.folder(parent)?;
    make(&dir, name.as_c_str()).map_err(errno)?;
    let seen = rules::see_new(shared, parent, name);
    let (node, stat) = find::obtain(shared, find::find(shared, &folder, &dir, name.as_c_str())?, seen);
    find::is_new(shared, &node);
    rules::note(shared, parent, name, &node);
    Ok(shared.entry(&node, &stat))
}

/// LINK.
pub(crate) fn link(shared: &Shared, who: Who, id: NodeId, parent: NodeId, name: &NameBuf) -> Result<Entry> {
    shared.check_writable()?;
    let node = shared.node(id)?;
    if !node.view.is_whole() {
        // Under another name other rules may hold.
        return Err(Errno::ACCES);
    }
    let (folder, dir) = shared.folder(parent)?;
    if folder.identity.mount != node.identity.mount {
        return Err(Errno::XDEV);
    }
    rules::check_second_name(shared, who, &node, parent, name)?;
    let descriptor = shared.descriptor(&node)?;
    link_to(&descriptor, &dir, name.as_c_str()).map_err(errno)?;
    // It has a name again, so its handle can be opened.
    names::settle(shared, &node);
    let stat = stat_of(&descriptor).map_err(errno)?;
    // The kernel holds the node while it asks for a link to it, so this finds the same one.
    let make = |id, identity| Node::new(id, identity, node.view, stat.mode);
    let (same, _) = shared.table.obtain(node.identity.clone(), node.view, make);
    if rules::see_new(shared, parent, name).varies {
        same.mark(Marks::VARIES);
    }
    rules::note_second(shared, parent, name, &same);
    Ok(shared.entry(&same, &stat))
}
