//! An open file: reads and writes through the page cache, past it, or in passthrough.

use shuntfs_sys::{data, open};
use shuntfs_wire::{
    Attr, Errno, FallocateIn, FopenFlags, FsyncFlags, FsyncIn, InitFlags, LseekIn, LseekOut, NodeId, Opcode,
    ReadFlags, ReadIn, WriteFlags, WriteIn, WriteOut,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::backing::BackingFile;
use crate::books::OpenFile;
use crate::breach::Rule;
use crate::inode::Kind;
use crate::open::{O_APPEND, O_RDONLY, O_WRONLY};
use crate::pages::PAGE;
use crate::process::Process;

/// An open file. Dropping it closes it.
#[derive(Debug)]
pub struct File {
    process: Process,
    id: u64,
}

/// The longest READ that is sent, as readahead has it.
const READ_MAX: u64 = 128 << 10;

impl File {
    pub(crate) fn new(process: Process, id: u64) -> Self {
        Self { process, id }
    }

    /// The node.
    ///
    /// # Errors
    /// EBADF where [`crate::Fake::finish`] has closed it.
    pub fn node(&self) -> Result<NodeId, Errno> {
        NodeId::new(self.open()?.node).ok_or(Errno::IO)
    }

    /// How the open was answered.
    ///
    /// # Errors
    /// EBADF where it is closed.
    pub fn answered(&self) -> Result<FopenFlags, Errno> {
        Ok(self.open()?.answered)
    }

    /// The server's number for it.
    ///
    /// # Errors
    /// EBADF where it is closed.
    pub fn fh(&self) -> Result<u64, Errno> {
        Ok(self.open()?.fh)
    }

    /// Reads at most `len` bytes at an offset; fewer at the end of the file.
    ///
    /// # Errors
    /// EBADF, EISDIR, and those of READ.
    pub fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let open = self.open()?;
        if open.is_dir {
            return Err(Errno::ISDIR);
        }
        if open.flags & 3 == O_WRONLY {
            return Err(Errno::BADF);
        }
        match (&open.backing, open.kind) {
            (Some(backing), Kind::Backed) if !open.answered.contains(FopenFlags::DIRECT_IO) => {
                self.read_below(&open, backing, offset, len)
            }
            (_, Kind::Cached | Kind::Free) => self.read_cached(&open, offset, len),
            _ => self.read_direct(&open, offset, len),
        }
    }

    /// Reads all.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_to_end(&self) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        loop {
            let more = self.read_at(bytes.len() as u64, 1 << 17)?;
            if more.is_empty() {
                return Ok(bytes);
            }
            bytes.extend_from_slice(&more);
        }
    }

    /// Writes at an offset, or at the end of a file that was opened to append; returns how many bytes.
    ///
    /// # Errors
    /// EBADF, and those of WRITE.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let open = self.open()?;
        if open.flags & 3 == O_RDONLY {
            return Err(Errno::BADF);
        }
        let appends = open.flags & O_APPEND != 0;
        if let (Some(backing), Kind::Backed, false) =
            (&open.backing, open.kind, open.answered.contains(FopenFlags::DIRECT_IO))
        {
            let offset = if appends { self.process.fresh_attributes(open.node, None)?.size } else { offset };
            return self.write_below(&open, backing, offset, bytes);
        }
        let offset =
            if appends { self.process.fresh_attributes(open.node, Some(open.fh))?.size } else { offset };
        self.write_through(&open, offset, bytes)
    }

    /// The attributes.
    ///
    /// # Errors
    /// That of GETATTR.
    pub fn stat(&self) -> Result<Attr, Errno> {
        self.process.attributes(self.open()?.node)
    }

    /// Makes the data durable, and the attributes unless `data_only`.
    ///
    /// # Errors
    /// That of FSYNC.
    pub fn sync(&self, data_only: bool) -> Result<(), Errno> {
        let open = self.open()?;
        let opcode = if open.is_dir { Opcode::Fsyncdir } else { Opcode::Fsync };
        if self.process.is_off(opcode) {
            return Ok(());
        }
        let fsync_flags = if data_only { FsyncFlags::FDATASYNC } else { FsyncFlags::empty() };
        let arg = FsyncIn { fh: open.fh, fsync_flags, padding: 0 };
        let outcome = self.process.kernel.ask(self.process.caller, (opcode, open.node), &[arg.as_bytes()]);
        match outcome {
            Err(Errno::NOSYS) => {
                self.process.kernel.books().never.insert(opcode);
                Ok(())
            }
            outcome => outcome.map(drop),
        }
    }

    /// Reserves or frees space, with the `FALLOC_FL_*` flags.
    ///
    /// # Errors
    /// That of FALLOCATE.
    pub fn allocate(&self, mode: u32, offset: u64, length: u64) -> Result<(), Errno> {
        let open = self.open()?;
        let process = &self.process;
        if process.is_off(Opcode::Fallocate) {
            return Err(Errno::OPNOTSUPP);
        }
        let arg = FallocateIn { fh: open.fh, offset, length, mode, padding: 0 };
        let outcome =
            self.process.kernel.ask(self.process.caller, (Opcode::Fallocate, open.node), &[arg.as_bytes()]);
        process.off_at_nosys(Opcode::Fallocate, outcome, Errno::OPNOTSUPP)?;
        let mut books = self.process.kernel.books();
        if let Some(inode) = books.inodes.get_mut(&open.node) {
            inode.pages.forget(offset, Some(length));
            inode.doubt();
        }
        Ok(())
    }

    /// Finds the next data (`whence` 3) or hole (4).
    ///
    /// # Errors
    /// That of LSEEK.
    pub fn seek(&self, offset: u64, whence: u32) -> Result<u64, Errno> {
        let open = self.open()?;
        let arg = LseekIn { fh: open.fh, offset, whence, padding: 0 };
        let answer =
            self.process.kernel.ask(self.process.caller, (Opcode::Lseek, open.node), &[arg.as_bytes()])?;
        LseekOut::read_from_bytes(&answer).map(|out| out.offset).map_err(|_| Errno::IO)
    }

    pub(crate) fn open(&self) -> Result<OpenFile, Errno> {
        self.process.kernel.books().opens.get(&self.id).cloned().ok_or(Errno::BADF)
    }

    pub(crate) fn ask(&self, opcode: Opcode, node: u64, arg: &[u8]) -> Result<Vec<u8>, Errno> {
        self.process.kernel.ask(self.process.caller, (opcode, node), &[arg])
    }

    fn read_cached(&self, open: &OpenFile, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let end = offset.saturating_add(len as u64);
        let process = &self.process;
        let refreshes = {
            let books = self.process.kernel.books();
            let size = books.inodes.get(&open.node).ok_or(Errno::STALE)?.attr.size;
            books.has_agreed(InitFlags::AUTO_INVAL_DATA) || end > size
        };
        if refreshes {
            process.attributes(open.node)?;
        }
        let size = self.process.kernel.books().inodes.get(&open.node).ok_or(Errno::STALE)?.attr.size;
        let end = end.min(size);
        let mut bytes = Vec::new();
        let mut at = offset;
        while at < end {
            let wanted = usize::try_from((end - at).min(self.longest_read()?)).unwrap_or(0);
            let held = self
                .process
                .kernel
                .books()
                .inodes
                .get(&open.node)
                .ok_or(Errno::STALE)?
                .pages
                .read(at, wanted);
            if held.is_empty() {
                let start = at / PAGE * PAGE;
                let room = (end.next_multiple_of(PAGE) - start).min(self.longest_read()?);
                let read = self.read_request(open, start, room)?;
                let mut books = self.process.kernel.books();
                let inode = books.inodes.get_mut(&open.node).ok_or(Errno::STALE)?;
                let known = start + read.len() as u64;
                inode.pages.fill(start, &read);
                if (read.len() as u64) < room && known < inode.attr.size {
                    // A short answer is the end of the file: the kernel cuts it for its callers.
                    inode.attr.size = known;
                }
                if known <= at {
                    break;
                }
                continue;
            }
            if self.process.kernel.doubts {
                self.compare_pages(open, at, &held)?;
            }
            at += held.len() as u64;
            bytes.extend_from_slice(&held);
        }
        Ok(bytes)
    }

    fn longest_read(&self) -> Result<u64, Errno> {
        let agreed = self.process.kernel.books().agreed.ok_or(Errno::NOTCONN)?;
        Ok(u64::from(agreed.max_read).min(READ_MAX))
    }

    /// What comes from the page cache must be what a READ brings.
    fn compare_pages(&self, open: &OpenFile, at: u64, held: &[u8]) -> Result<(), Errno> {
        let fresh = self.read_request(open, at, held.len() as u64)?;
        if fresh != held {
            let first = held.iter().zip(&fresh).take_while(|(old, new)| old == new).count();
            let what = format!(
                "node {} at byte {}: {} cached bytes, and a READ brings {}; the open was answered {:?}, and nobody told \
                 the kernel of a change",
                open.node,
                at + first as u64,
                held.len(),
                if fresh.len() == held.len() { "others".to_owned() } else { format!("{}", fresh.len()) },
                open.answered
            );
            self.process.kernel.books().breach(Rule::Pages, what);
        }
        Ok(())
    }

    fn read_direct(&self, open: &OpenFile, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let most = u64::from(self.process.kernel.books().agreed.ok_or(Errno::NOTCONN)?.max_read);
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let room = ((len - bytes.len()) as u64).min(most);
            let read = self.read_request(open, offset + bytes.len() as u64, room)?;
            bytes.extend_from_slice(&read);
            if (read.len() as u64) < room {
                break;
            }
        }
        Ok(bytes)
    }

    fn read_request(&self, open: &OpenFile, offset: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let size = u32::try_from(len).map_err(|_| Errno::INVAL)?;
        let arg = ReadIn {
            fh: open.fh,
            offset,
            size,
            read_flags: ReadFlags::empty(),
            flags: open.flags,
            ..ReadIn::default()
        };
        self.ask(Opcode::Read, open.node, arg.as_bytes())
    }

    fn write_through(&self, open: &OpenFile, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let most = self.process.kernel.books().agreed.ok_or(Errno::NOTCONN)?.max_write as usize;
        let cached = matches!(open.kind, Kind::Cached | Kind::Free);
        let mut done = 0;
        for chunk in bytes.chunks(most) {
            let at = offset + done as u64;
            let size = u32::try_from(chunk.len()).map_err(|_| Errno::INVAL)?;
            let write_flags = WriteFlags::empty();
            let arg = WriteIn {
                fh: open.fh,
                offset: at,
                size,
                write_flags,
                flags: open.flags,
                ..WriteIn::default()
            };
            let answer = self.process.kernel.ask(
                self.process.caller,
                (Opcode::Write, open.node),
                &[arg.as_bytes(), chunk],
            );
            let answer = match answer {
                Err(_) if done > 0 => break,
                answer => answer?,
            };
            let out = WriteOut::read_from_bytes(&answer).map_err(|_| Errno::IO)?;
            if out.size > size {
                let what = format!(
                    "WRITE of {size} bytes to node {} was answered with {}: its caller gets EIO",
                    open.node, out.size
                );
                self.process.kernel.books().breach(Rule::Shape, what);
                return Err(Errno::IO);
            }
            let wrote = out.size as usize;
            self.wrote(open.node, at, &chunk[..wrote], cached);
            done += wrote;
            if wrote < chunk.len() {
                break;
            }
        }
        Ok(done)
    }

    /// The kernel's own view of a node after a write.
    fn wrote(&self, node: u64, at: u64, bytes: &[u8], cached: bool) {
        let mut books = self.process.kernel.books();
        let Some(inode) = books.inodes.get_mut(&node) else { return };
        let end = at + bytes.len() as u64;
        if cached {
            inode.pages.write(at, bytes);
        } else {
            inode.pages.forget(at, Some(bytes.len() as u64));
        }
        inode.attr.size = inode.attr.size.max(end);
        inode.doubt();
    }

    fn read_below(
        &self,
        open: &OpenFile,
        backing: &BackingFile,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, Errno> {
        let lower = open::reopen(backing, open.flags & 3).map_err(lower_error)?;
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            match data::read_at(&lower, &mut bytes[done..], offset + done as u64).map_err(lower_error)? {
                0 => break,
                count => done += count,
            }
        }
        bytes.truncate(done);
        // The time of access is not known any more, and with it nothing is.
        self.process.kernel.books().changed(open.node);
        Ok(bytes)
    }

    fn write_below(
        &self,
        open: &OpenFile,
        backing: &BackingFile,
        offset: u64,
        bytes: &[u8],
    ) -> Result<usize, Errno> {
        let lower = open::reopen(backing, open.flags & 3).map_err(lower_error)?;
        let wrote = data::write_at(&lower, bytes, offset).map_err(lower_error)?;
        self.wrote(open.node, offset, &bytes[..wrote], false);
        Ok(wrote)
    }
}

fn lower_error(error: shuntfs_sys::OsError) -> Errno {
    Errno::from_lower(error.raw_os_error())
}

impl Drop for File {
    fn drop(&mut self) {
        self.process.kernel.close(self.process.caller, self.id);
    }
}
