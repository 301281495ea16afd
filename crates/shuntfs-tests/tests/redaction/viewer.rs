//! Every way to the bytes of a file.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{MemfdFlags, copy_file_range, memfd_create, sendfile};
use rustix::mm::ProtFlags;
use rustix::pipe::{SpliceFlags, pipe, splice};
use shuntfs_testkit::raw::Mapping;

/// A way to look at a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Read,
    Pieces,
    MapShared,
    MapPrivate,
    Splice,
    Sendfile,
    Copy,
    Reopen,
    ByPath,
    Run,
}

impl Way {
    pub(crate) const ALL: [Self; 10] = [
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

    /// Everything that is to be seen of a file this way. `out` is a folder on the same mount that may be written.
    pub(crate) fn look(self, path: &Path, out: &Path) -> io::Result<Vec<u8>> {
        match self {
            Self::ByPath => {
                let file = File::options().read(true).custom_flags(libc::O_PATH).open(path)?;
                fs::read(format!("/proc/self/fd/{}", file.as_raw_fd()))
            }
            Self::Run => ran(path),
            _ => self.look_at(&File::open(path)?, out),
        }
    }

    /// The same of a file that is open; where a way needs a path, by the open file all the same.
    pub(crate) fn look_at(self, mut file: &File, out: &Path) -> io::Result<Vec<u8>> {
        file.seek(SeekFrom::Start(0))?;
        match self {
            Self::Read | Self::Run | Self::ByPath => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)?;
                Ok(bytes)
            }
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
    Ok(Mapping::new(file, len, ProtFlags::READ, shared)?.load(0, len))
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
