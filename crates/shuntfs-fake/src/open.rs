//! OPEN and CREATE, RELEASE, and what an answer obliges the kernel to.

use shuntfs_wire::{
    CreateIn, CreateOut, Errno, FlushIn, FopenFlags, InitFlags, MknodIn, NodeId, Opcode, OpenIn, OpenInFlags,
    OpenOut, ReleaseIn, SetattrIn, SetattrValid,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::books::OpenFile;
use crate::breach::Rule;
use crate::file::File;
use crate::inode::{Kind, S_IFDIR, S_IFMT, S_IFREG};
use crate::kernel::{Caller, Kernel, told};
use crate::process::Process;
use crate::walk::{Place, told as told_place};

/// For reading.
pub const O_RDONLY: u32 = 0;
/// For writing.
pub const O_WRONLY: u32 = 1;
/// For both.
pub const O_RDWR: u32 = 2;
/// Makes the file where it is missing.
pub const O_CREAT: u32 = 0o100;
/// Only makes it.
pub const O_EXCL: u32 = 0o200;
/// Cuts it.
pub const O_TRUNC: u32 = 0o1000;
/// Writes at the end.
pub const O_APPEND: u32 = 0o2000;

/// What of the flags of an open an OPEN carries.
const NOT_SENT: u32 = O_CREAT | O_EXCL | 0o400;

impl Process {
    /// Opens a file, and makes it with mode 0644 where `flags` have `O_CREAT` and it is missing.
    ///
    /// # Errors
    /// Those of the way, and of OPEN or CREATE. EIO where the answer cannot be: a breach then says why.
    pub fn open(&self, path: &str, flags: u32) -> Result<File, Errno> {
        self.open_mode(path, flags, 0o644)
    }

    /// Makes a file, which must not be there, and opens it for reading and writing.
    ///
    /// # Errors
    /// As [`Process::open`].
    pub fn create(&self, path: &str) -> Result<File, Errno> {
        self.open_mode(path, O_RDWR | O_CREAT | O_EXCL, 0o644)
    }

    /// As [`Process::open`], with the mode of a file that is made.
    ///
    /// # Errors
    /// As [`Process::open`].
    pub fn open_mode(&self, path: &str, flags: u32, mode: u32) -> Result<File, Errno> {
        if flags & O_CREAT == 0 {
            let node = self.walk(path, true)?;
            return self.open_node(node, flags);
        }
        let place = self.place(path)?;
        let exclusive = flags & O_EXCL != 0;
        let found = if exclusive { self.lookup_afresh(&place) } else { self.lookup(&place) };
        match found {
            Ok(_) if exclusive => Err(Errno::EXIST),
            // It may be a symlink, which leads elsewhere.
            Ok(_) => self.open_node(self.walk(path, true)?, flags),
            Err(Errno::NOENT) => self.create_at(&place, flags, mode),
            Err(errno) => Err(errno),
        }
    }

    /// Opens a node that the kernel holds.
    ///
    /// # Errors
    /// That of OPEN.
    pub fn open_held(&self, node: NodeId, flags: u32) -> Result<File, Errno> {
        self.open_node(node.get(), flags)
    }

    fn open_node(&self, node: u64, flags: u32) -> Result<File, Errno> {
        let kind = self.kernel.books().inodes.get(&node).ok_or(Errno::STALE)?.kind();
        match kind {
            S_IFDIR if flags & 3 != O_RDONLY => return Err(Errno::ISDIR),
            S_IFDIR => return self.open_as(Opcode::Opendir, node, flags),
            S_IFREG => {}
            // Devices, FIFOs and sockets are opened without the file system.
            _ => return Err(Errno::NXIO),
        }
        let atomic = self.kernel.books().has_agreed(InitFlags::ATOMIC_O_TRUNC);
        let file = self.open_as(Opcode::Open, node, if atomic { flags } else { flags & !O_TRUNC })?;
        if flags & O_TRUNC != 0 {
            if atomic {
                let mut books = self.kernel.books();
                if let Some(inode) = books.inodes.get_mut(&node) {
                    inode.pages.clear();
                    inode.attr.size = 0;
                    inode.doubt();
                }
            } else {
                self.set(node, SetattrIn { valid: SetattrValid::SIZE, size: 0, ..SetattrIn::default() })?;
            }
        }
        Ok(file)
    }

    pub(crate) fn open_as(&self, opcode: Opcode, node: u64, flags: u32) -> Result<File, Errno> {
        let is_dir = opcode == Opcode::Opendir;
        let arg = OpenIn { flags: flags & !NOT_SENT, open_flags: OpenInFlags::empty() };
        if !self.is_off(opcode) {
            match self.kernel.ask(self.caller, (opcode, node), &[arg.as_bytes()]) {
                Ok(answer) => {
                    let out = OpenOut::read_from_bytes(&answer).map_err(|_| Errno::IO)?;
                    return self.opened(node, arg.flags, out, is_dir);
                }
                Err(Errno::NOSYS) => drop(self.kernel.books().never.insert(opcode)),
                Err(errno) => return Err(errno),
            }
        }
        // Opens are free from now on: nothing is sent, and pages are kept.
        let open = OpenFile {
            node,
            fh: 0,
            flags: arg.flags,
            answered: FopenFlags::KEEP_CACHE,
            kind: Kind::Free,
            backing: None,
            to_release: false,
            is_dir,
        };
        Ok(self.hold(open))
    }

    fn create_at(&self, place: &Place, flags: u32, mode: u32) -> Result<File, Errno> {
        let mode = S_IFREG | self.masked(mode);
        if !self.is_off(Opcode::Create) {
            let arg = CreateIn {
                flags: flags & !0o400,
                mode,
                umask: Self::umask(),
                open_flags: OpenInFlags::empty(),
            };
            let parts: [&[u8]; 3] = [arg.as_bytes(), &place.name, b"\0"];
            let answer = self.kernel.ask(self.caller, (Opcode::Create, place.parent), &parts);
            match self.distrusting(answer, &[Errno::EXIST], place) {
                Ok(answer) => return self.created(place, flags, &answer),
                Err(Errno::NOSYS) => drop(self.kernel.books().never.insert(Opcode::Create)),
                Err(errno) => return Err(errno),
            }
        }
        let arg = MknodIn { mode, rdev: 0, umask: Self::umask(), padding: 0 };
        let parts: [&[u8]; 3] = [arg.as_bytes(), &place.name, b"\0"];
        let answer = self.kernel.ask(self.caller, (Opcode::Mknod, place.parent), &parts);
        let answer = self.distrusting(answer, &[Errno::EXIST], place)?;
        let entry = shuntfs_wire::EntryOut::read_from_bytes(&answer).map_err(|_| Errno::IO)?;
        let node = self.meet(&entry, place)?;
        self.kernel.books().changed(place.parent);
        self.open_as(Opcode::Open, node, flags & !O_TRUNC)
    }

    fn created(&self, place: &Place, flags: u32, answer: &[u8]) -> Result<File, Errno> {
        let CreateOut { entry, open } = CreateOut::read_from_bytes(answer).map_err(|_| Errno::IO)?;
        if entry.attr.mode & S_IFMT != S_IFREG || entry.nodeid == 0 {
            let what = format!("CREATE of {} was answered with no regular file", told_place(place));
            self.kernel.books().breach(Rule::Identity, what);
            return Err(Errno::IO);
        }
        let node = self.meet(&entry, place)?;
        self.kernel.books().changed(place.parent);
        self.opened(node, flags & !NOT_SENT, open, false)
    }

    /// An open was answered: the node's io mode takes it in, or its caller gets EIO.
    fn opened(&self, node: u64, flags: u32, out: OpenOut, is_dir: bool) -> Result<File, Errno> {
        let mut books = self.kernel.books();
        let passes = out.open_flags.contains(FopenFlags::PASSTHROUGH) && !is_dir;
        let backing = if passes && books.has_agreed(InitFlags::PASSTHROUGH) {
            match books.backings.find(out.backing_id) {
                Ok(backing) => Ok(Some(backing)),
                Err(what) => {
                    let opened = told(Opcode::Open, node);
                    books.breach(Rule::BackingId, format!("{opened} names {what} and its caller gets EIO"));
                    Err(())
                }
            }
        } else {
            Ok(None)
        };
        let inode = books.inodes.get_mut(&node).ok_or(Errno::STALE)?;
        let kind = match backing.clone() {
            Ok(_) if is_dir => Ok(Kind::Free),
            Ok(backing) => inode.io.open(out.open_flags, backing),
            Err(()) => Err(String::new()),
        };
        if let (Ok(Kind::Cached), false) = (&kind, out.open_flags.contains(FopenFlags::KEEP_CACHE)) {
            inode.pages.clear();
        }
        if kind == Ok(Kind::Backed) {
            inode.pages.clear();
        }
        let (fh, answered) = (out.fh, out.open_flags);
        let backing = backing.ok().flatten();
        let open = |kind| OpenFile { node, fh, flags, answered, kind, backing, to_release: true, is_dir };
        match kind {
            Ok(kind) => {
                let open = open(kind);
                drop(books);
                Ok(self.hold(open))
            }
            Err(why) => {
                if !why.is_empty() {
                    let what =
                        format!("an open of node {node} was answered {answered:?}: {why} (fs/fuse/iomode.c)");
                    books.breach(Rule::IoMode, format!("{what}; its caller gets EIO"));
                }
                let open = open(Kind::Free);
                drop(books);
                // The server did open it, and is to hear of the end.
                self.kernel.release(self.caller, &open);
                Err(Errno::IO)
            }
        }
    }

    fn hold(&self, open: OpenFile) -> File {
        let mut books = self.kernel.books();
        books.opened += 1;
        let id = books.opened;
        books.opens.insert(id, open);
        drop(books);
        File::new(self.clone(), id)
    }
}

impl Kernel {
    /// The last descriptor of an open goes: FLUSH, then RELEASE. The io mode is left before the server hears of it.
    pub(crate) fn close(&self, caller: Caller, id: u64) {
        let open = self.books().opens.get(&id).cloned();
        let Some(open) = open else { return };
        let never = self.books().never.contains(&Opcode::Flush);
        if !open.is_dir && !open.answered.contains(FopenFlags::NOFLUSH) && !never {
            let arg = FlushIn { fh: open.fh, lock_owner: id, ..FlushIn::default() };
            match self.ask(caller, (Opcode::Flush, open.node), &[arg.as_bytes()]) {
                Err(Errno::NOSYS) => drop(self.books().never.insert(Opcode::Flush)),
                Err(Errno::BADF) => {
                    let what = format!(
                        "{} with fh {} was answered EBADF, and it is open",
                        told(Opcode::Flush, open.node),
                        open.fh
                    );
                    self.books().breach(Rule::Handles, what);
                }
                _ => {}
            }
        }
        let mut books = self.books();
        books.opens.remove(&id);
        if let Some(inode) = books.inodes.get_mut(&open.node) {
            inode.io.close(open.kind);
        }
        drop(books);
        if open.to_release {
            self.release(caller, &open);
        }
    }

    pub(crate) fn release(&self, caller: Caller, open: &OpenFile) {
        let opcode = if open.is_dir { Opcode::Releasedir } else { Opcode::Release };
        let arg = ReleaseIn { fh: open.fh, flags: open.flags, ..ReleaseIn::default() };
        match self.ask(caller, (opcode, open.node), &[arg.as_bytes()]) {
            Ok(_) | Err(Errno::NOTCONN | Errno::TIMEDOUT) => {}
            Err(errno) => {
                let what = format!("{} with fh {} was answered {errno}", told(opcode, open.node), open.fh);
                self.books().breach(Rule::Handles, what);
            }
        }
    }
}
