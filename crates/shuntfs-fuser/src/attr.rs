//! Attributes of files.

use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, SystemTime};

use shuntfs_wire as wire;

use crate::flags::FopenFlags;
use crate::ids::{FileHandle, Generation, INodeNo};
use crate::time;

/// What kind of file it is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[cfg_attr(feature = "serializable", derive(serde::Serialize, serde::Deserialize))]
pub enum FileType {
    /// A FIFO.
    NamedPipe,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A folder.
    Directory,
    /// An ordinary file.
    RegularFile,
    /// A symlink.
    Symlink,
    /// A socket.
    Socket,
}

impl FileType {
    /// The kind that the standard library names so; `None` for one that it does not name.
    pub fn from_std(file_type: std::fs::FileType) -> Option<Self> {
        let table = [
            (file_type.is_file(), Self::RegularFile),
            (file_type.is_dir(), Self::Directory),
            (file_type.is_symlink(), Self::Symlink),
            (file_type.is_fifo(), Self::NamedPipe),
            (file_type.is_socket(), Self::Socket),
            (file_type.is_char_device(), Self::CharDevice),
            (file_type.is_block_device(), Self::BlockDevice),
        ];
        table.into_iter().find(|(is, _)| *is).map(|(_, kind)| kind)
    }

    /// `DT_*`: the upper four bits of a mode.
    pub(crate) fn dirent_kind(self) -> u8 {
        match self {
            Self::NamedPipe => 0o1,
            Self::CharDevice => 0o2,
            Self::Directory => 0o4,
            Self::BlockDevice => 0o6,
            Self::RegularFile => 0o10,
            Self::Symlink => 0o12,
            Self::Socket => 0o14,
        }
    }
}

/// The attributes of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(feature = "serializable", derive(serde::Serialize, serde::Deserialize))]
pub struct FileAttr {
    /// The node's number.
    pub ino: INodeNo,
    /// Length in bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// When it was read last.
    pub atime: SystemTime,
    /// When its content changed last.
    pub mtime: SystemTime,
    /// When its content or attributes changed last.
    pub ctime: SystemTime,
    /// When it was made; not used on Linux.
    pub crtime: SystemTime,
    /// Its kind.
    pub kind: FileType,
    /// Permissions with set-user-id, set-group-id and sticky bit.
    pub perm: u16,
    /// How many names it has.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Which device a device file stands for.
    pub rdev: u32,
    /// The length of I/O that suits it, in bytes.
    pub blksize: u32,
    /// Flags of `chflags(2)`; not used on Linux.
    pub flags: u32,
}

impl FileAttr {
    pub(crate) fn to_wire(self) -> wire::Attr {
        let ((atime, atimensec), (mtime, mtimensec), (ctime, ctimensec)) =
            (time::to_wire(self.atime), time::to_wire(self.mtime), time::to_wire(self.ctime));
        wire::Attr {
            ino: self.ino.0,
            size: self.size,
            blocks: self.blocks,
            atime,
            mtime,
            ctime,
            atimensec,
            mtimensec,
            ctimensec,
            mode: u32::from(self.kind.dirent_kind()) << 12 | u32::from(self.perm),
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            blksize: self.blksize,
            flags: wire::AttrFlags::empty(),
        }
    }
}

/// How long a name and its attributes hold, in the order name, attributes.
pub(crate) type Lifetimes = (Duration, Duration);

pub(crate) fn entry(attr: &FileAttr, generation: Generation, (name, attrs): Lifetimes) -> wire::EntryOut {
    wire::EntryOut {
        nodeid: attr.ino.0,
        generation: generation.0,
        entry_valid: name.as_secs(),
        attr_valid: attrs.as_secs(),
        entry_valid_nsec: name.subsec_nanos(),
        attr_valid_nsec: attrs.subsec_nanos(),
        attr: attr.to_wire(),
    }
}

pub(crate) fn attr_out(attr: &FileAttr, ttl: Duration) -> wire::AttrOut {
    wire::AttrOut {
        attr_valid: ttl.as_secs(),
        attr_valid_nsec: ttl.subsec_nanos(),
        dummy: 0,
        attr: attr.to_wire(),
    }
}

pub(crate) fn open_out(fh: FileHandle, flags: FopenFlags, backing_id: u32) -> wire::OpenOut {
    wire::OpenOut {
        fh: fh.0,
        open_flags: wire::FopenFlags::from_bits_retain(flags.bits()),
        backing_id: backing_id.cast_signed(),
    }
}

/// A time that must be set.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TimeOrNow {
    /// This one.
    SpecificTime(SystemTime),
    /// The time at which it is carried out.
    Now,
}
