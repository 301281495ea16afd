//! Every way to the bytes of a file. A page that cannot be had is an error by each of them, never a signal.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, SeekFrom, copy_file_range, memfd_create, sendfile};
use rustix::mm::ProtFlags;
use rustix::pipe::{SpliceFlags, pipe, splice};

use crate::raw::{Mapping, Ring, read_ahead};

/// A way to look at a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// read(2) to the end.
    Read,
    /// pread(2), backwards and by odd lengths.
    Pieces,
    /// A shared mapping.
    MapShared,
    /// A private mapping.
    MapPrivate,
    /// splice(2) into a pipe.
    Splice,
    /// sendfile(2).
    Sendfile,
    /// copy_file_range(2) on the mount.
    Copy,
    /// Opened anew by its descriptor.
    Reopen,
    /// The same by a descriptor that opened nothing.
    ByPath,
    /// Run, where it is a program that prints a file.
    Run,
    /// With `O_DIRECT`.
    Direct,
    /// readahead(2) before it is read.
    Ahead,
    /// By a ring (io_uring).
    Ring,
    /// What is data by `SEEK_DATA`, with zeroes between.
    Data,
}

impl Way {
    /// Those that anything can be read by.
    pub const ALL: [Self; 10] = [
        Self::Read,
        Self::Pieces,
        Self::MapShared,
        Self::MapPrivate,
        Self::Splice,
        Self::Sendfile,
        Self::Copy,
        Self::Reopen,
        Self::ByPath,
        Self::Run,
    ];

    /// Further ones, which a file system or a machine may refuse altogether.
    pub const FURTHER: [Self; 4] = [Self::Direct, Self::Ahead, Self::Ring, Self::Data];

    /// Everything that must be seen of a file this way. `out` is a folder on the same mount that may be written.
    ///
    /// # Errors
    /// What the calls give.
    pub fn look(self, path: &Path, out: &Path) -> io::Result<Vec<u8>> {
        match self {
            Self::ByPath => {
                let file = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
                fs::read(format!("/proc/self/fd/{}", file.as_raw_fd()))
            }
            Self::Run => ran(path),
            Self::Direct => direct(&File::options().read(true).custom_flags(libc::O_DIRECT).open(path)?),
            _ => self.look_at(&File::open(path)?, out),
        }
    }

    /// The same of a file that is open; where a way needs a path or another open, by the open file anyway.
    ///
    /// # Errors
    /// What the calls give.
    pub fn look_at(self, mut file: &File, out: &Path) -> io::Result<Vec<u8>> {
        file.seek(io::SeekFrom::Start(0))?;
        match self {
            Self::Read | Self::Run | Self::ByPath | Self::Direct => to_end(file),
            Self::Ahead => {
                read_ahead(file, length(file)?)?;
                to_end(file)
            }
            Self::Ring => by_ring(file),
            Self::Data => data(file),
            Self::Pieces => pieces(file),
            Self::MapShared => map(file, true),
            Self::MapPrivate => map(file, false),
            Self::Splice => spliced(file),
            Self::Sendfile => sent(file),
            Self::Copy => copied(file, out),
            Self::Reopen => fs::read(format!("/proc/self/fd/{}", file.as_raw_fd())),
        }
    }
}

fn length(file: &File) -> io::Result<usize> {
    usize::try_from(file.metadata()?.len()).map_err(io::Error::other)
}

fn to_end(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// In aligned pieces of aligned memory. Before a page that cannot be had a piece is short, and so it is at the end.
fn direct(file: &File) -> io::Result<Vec<u8>> {
    const PIECE: usize = 65_536;
    const ALIGN: usize = 4096;
    let mut room = vec![0; PIECE + ALIGN];
    let start = room.as_ptr().align_offset(ALIGN);
    let piece = room.get_mut(start..start + PIECE).ok_or_else(|| io::Error::other("no aligned memory"))?;
    let mut bytes = Vec::new();
    loop {
        let read = file.read_at(piece, bytes.len() as u64)?;
        bytes.extend_from_slice(&piece[..read]);
        if read == 0 || bytes.len() == length(file)? {
            return Ok(bytes);
        }
    }
}

/// By reads of a ring, each of an odd length at most.
fn by_ring(file: &File) -> io::Result<Vec<u8>> {
    const STEP: usize = 30_001;
    let mut bytes = vec![0; length(file)?];
    let (mut ring, mut filled) = (Ring::new()?, 0);
    while filled < bytes.len() {
        let end = bytes.len().min(filled + STEP);
        match ring.read(file, &mut bytes[filled..end], filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// What lies between `SEEK_DATA` and `SEEK_HOLE`; all else is zero.
fn data(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length(file)?];
    let (mut at, end) = (0, bytes.len() as u64);
    while at < end {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Err(rustix::io::Errno::NXIO) => break,
            start => start?.min(end),
        };
        at = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(end);
        let range = usize::try_from(start).map_err(io::Error::other)?
            ..usize::try_from(at).map_err(io::Error::other)?;
        file.read_exact_at(&mut bytes[range], start)?;
    }
    Ok(bytes)
}

/// Backwards and by odd lengths.
fn pieces(file: &File) -> io::Result<Vec<u8>> {
    const STEP: usize = 3001;
    let mut bytes = vec![0; length(file)?];
    for start in (0..bytes.len()).step_by(STEP).rev() {
        let end = bytes.len().min(start + STEP);
        file.read_exact_at(&mut bytes[start..end], start as u64)?;
    }
    Ok(bytes)
}

fn map(file: &File, shared: bool) -> io::Result<Vec<u8>> {
    let len = length(file)?;
    if len == 0 {
        return Ok(Vec::new());
    }
    Ok(Mapping::new(file, len, ProtFlags::READ, shared)?.try_load(0, len)?)
}

fn spliced(file: &File) -> io::Result<Vec<u8>> {
    let (from, to) = pipe()?;
    let mut reader = File::from(from);
    let mut bytes = Vec::new();
    loop {
        let moved = splice(file, None, &to, None, 16_384, SpliceFlags::empty())?;
        if moved == 0 {
            return Ok(bytes);
        }
        let start = bytes.len();
        bytes.resize(start + moved, 0);
        reader.read_exact(&mut bytes[start..])?;
    }
}

fn sent(file: &File) -> io::Result<Vec<u8>> {
    let memory = memfd_create("sent", MemfdFlags::CLOEXEC)?;
    while sendfile(&memory, file.as_fd(), None, 1 << 20)? > 0 {}
    let memory = File::from(memory);
    let mut bytes = vec![0; length(&memory)?];
    memory.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// By copy_file_range(2) on the mount, which a server may do below.
fn copied(file: &File, out: &Path) -> io::Result<Vec<u8>> {
    let target = tempfile::Builder::new().prefix("copy-").tempfile_in(out)?;
    while copy_file_range(file, None, target.as_file(), None, 1 << 20)? > 0 {}
    fs::read(target.path())
}

/// A program that prints the file that it is told to, which is the one that it runs from.
fn ran(path: &Path) -> io::Result<Vec<u8>> {
    let ran = Command::new(path).arg("/proc/self/exe").stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    if ran.status.success() { Ok(ran.stdout) } else { Err(io::Error::other(ran.status.to_string())) }
}
