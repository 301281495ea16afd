//! What a call does to the model, and answers.

use shuntfs::Errno;

use super::op::{EXCHANGE, Op, SLOTS, Seen};
use super::pool::{At, Found, Pool};
use super::tree::Kind;

/// A model with open files.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) pool: Pool,
    open: [Option<(At, bool)>; SLOTS],
}

impl Model {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { pool, open: [None; SLOTS] }
    }

    /// The call as it can be compared: `None` for one whose outcome is not the pool's to say, or that would wait.
    pub(crate) fn fit(&self, op: Op) -> Option<Op> {
        let follow = |path: &str| self.pool.walk(path, true).ok().map(|(_, found)| found);
        let kind = |path: &str| follow(path).map(|found| self.pool.inode(found.shown()).kind.clone());
        let is_special = |path: &str| matches!(kind(path), Some(Kind::Fifo));
        match op {
            Op::Open { ref path, .. }
            | Op::Truncate { ref path, .. }
            | Op::SetXattr { ref path, .. }
            | Op::RemoveXattr { ref path, .. } => (!is_special(path)).then_some(op),
            Op::Save { ref path, .. } => {
                // What a dangling symlink points to would be made.
                let itself = self.pool.walk(path, false).ok().map(|(_, found)| found.shown());
                let is_link = itself.is_some_and(|at| matches!(self.pool.inode(at).kind, Kind::Symlink(_)));
                (!is_link && !is_special(path)).then_some(op)
            }
            Op::Chmod { path, mode } => {
                // Without set-id bits, which writing removes.
                let is_folder = matches!(kind(&path), Some(Kind::Folder(_)));
                Some(Op::Chmod { path, mode: if is_folder { mode } else { mode & 0o777 } })
            }
            Op::Rename { ref old, ref new, flags } if flags & EXCHANGE != 0 => {
                // Within each other, or two names of one file: kernels differ.
                let at = |path: &str| self.pool.walk(path, false).ok();
                match (at(old), at(new)) {
                    (Some((way, one)), Some((new_way, other))) => {
                        let nested = way.starts_with(&new_way) || new_way.starts_with(&way);
                        (!nested && one != other).then_some(op)
                    }
                    _ => Some(op),
                }
            }
            op => Some(op),
        }
    }

    /// # Errors
    /// What the call fails with.
    pub(crate) fn call(&mut self, op: &Op) -> Result<Seen, Errno> {
        let pool = &mut self.pool;
        let done = |()| Seen::Nothing;
        match op {
            Op::Create { path, mode, slot } => {
                let at = pool.make(path, &Kind::File(Vec::new()), *mode, false)?;
                self.open[*slot] = Some((at, true));
                Ok(Seen::Nothing)
            }
            Op::Save { path, bytes } => match pool.walk(path, true) {
                Ok((_, found)) => self.write_all(&found, bytes).map(done),
                Err(_) => pool.make(path, &Kind::File(bytes.clone()), 0o644, false).map(|_| Seen::Nothing),
            },
            Op::Open { path, writes, slot } => {
                let (_, found) = pool.walk(path, true)?;
                self.file(&found, *writes)?;
                self.open[*slot] = Some((found.shown(), *writes));
                Ok(Seen::Nothing)
            }
            Op::Write { slot, at, bytes } => self.write(*slot, *at, bytes).map(done),
            Op::Read { slot } => self.read(*slot),
            Op::Close { slot } => {
                self.open[*slot] = None;
                Ok(Seen::Nothing)
            }
            Op::Truncate { path, len } => self.truncate(path, *len).map(done),
            Op::Mkdir { path, mode } => {
                pool.make(path, &Kind::Folder([].into()), *mode, true).map(|_| Seen::Nothing)
            }
            Op::Mkfifo { path } => pool.make(path, &Kind::Fifo, 0o644, true).map(|_| Seen::Nothing),
            Op::Mknod { path } => {
                pool.make(path, &Kind::File(Vec::new()), 0o644, true).map(|_| Seen::Nothing)
            }
            Op::Symlink { target, path } => {
                pool.make(path, &Kind::Symlink(target.clone()), 0o777, true).map(|_| Seen::Nothing)
            }
            Op::Link { old, new } => pool.link(old, new).map(done),
            Op::Unlink { path } => pool.unlink(path).map(done),
            Op::Rmdir { path } => pool.rmdir(path).map(done),
            Op::Rename { old, new, flags } => pool.rename(old, new, *flags).map(done),
            Op::Chmod { .. } | Op::Chown { .. } | Op::SetMtime { .. } => self.set(op).map(done),
            Op::SetXattr { .. } | Op::RemoveXattr { .. } => self.set_xattr(op).map(done),
            Op::List { path } => match pool.walk(path, true)?.1 {
                Found::Folder(parts) => Ok(Seen::Names(pool.names(&parts))),
                Found::Other(_) => Err(Errno::NOTDIR),
            },
            Op::Stat { path } => {
                let (_, found) = pool.walk(path, false)?;
                Ok(Seen::Stat(pool.stat(&found)))
            }
            Op::Forget => Ok(Seen::Nothing),
        }
    }

    /// The bytes of a file, to be changed or not.
    fn file(&mut self, found: &Found, writes: bool) -> Result<&mut Vec<u8>, Errno> {
        let at = found.shown();
        let refuses = writes && self.pool.is_read_only(at);
        let inode = self.pool.inode_mut(at);
        match &mut inode.kind {
            Kind::Folder(_) => Err(Errno::ISDIR),
            Kind::File(_) if refuses => Err(Errno::ROFS),
            Kind::File(bytes) => {
                if writes {
                    inode.attributes.mtime = None;
                }
                Ok(bytes)
            }
            Kind::Symlink(_) | Kind::Fifo => Err(Errno::INVAL),
        }
    }

    fn write_all(&mut self, found: &Found, bytes: &[u8]) -> Result<(), Errno> {
        bytes.clone_into(self.file(found, true)?);
        Ok(())
    }

    fn truncate(&mut self, path: &str, len: usize) -> Result<(), Errno> {
        let (_, found) = self.pool.walk(path, true)?;
        self.file(&found, true)?.resize(len, 0);
        Ok(())
    }

    fn open_file(&mut self, slot: usize, writes: bool) -> Result<&mut Vec<u8>, Errno> {
        let open = self.open[slot].filter(|(_, may_write)| *may_write || !writes);
        let (at, _) = open.ok_or(Errno::BADF)?;
        self.file(&Found::Other(at), writes)
    }

    fn write(&mut self, slot: usize, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        let file = self.open_file(slot, true)?;
        let end = at + bytes.len();
        file.resize(file.len().max(end), 0);
        file[at..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, slot: usize) -> Result<Seen, Errno> {
        Ok(Seen::Bytes(self.open_file(slot, false)?.clone()))
    }

    fn set(&mut self, op: &Op) -> Result<(), Errno> {
        let (Op::Chmod { path, .. } | Op::Chown { path, .. } | Op::SetMtime { path, .. }) = op else {
            return Ok(());
        };
        let (_, found) = self.pool.walk(path, !matches!(op, Op::Chown { .. }))?;
        self.pool.change(&found, |attributes| match op {
            Op::Chmod { mode, .. } => attributes.mode = *mode,
            Op::Chown { uid, gid, .. } => (attributes.uid, attributes.gid) = (*uid, *gid),
            Op::SetMtime { secs, .. } => attributes.mtime = Some(*secs),
            _ => {}
        })
    }

    fn set_xattr(&mut self, op: &Op) -> Result<(), Errno> {
        let (Op::SetXattr { path, name, .. } | Op::RemoveXattr { path, name }) = op else { return Ok(()) };
        let (_, found) = self.pool.walk(path, true)?;
        let at = found.shown();
        let is_missing = !self.pool.inode(at).attributes.xattrs.contains_key(*name);
        if matches!(op, Op::RemoveXattr { .. }) && is_missing && !self.pool.is_read_only(at) {
            return Err(Errno::NODATA);
        }
        self.pool.change(&found, |attributes| match op {
            Op::SetXattr { value, .. } => drop(attributes.xattrs.insert((*name).to_owned(), value.clone())),
            _ => drop(attributes.xattrs.remove(*name)),
        })
    }
}
