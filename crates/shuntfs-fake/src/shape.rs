//! How long the answer to a request may be, as `fs/fuse/dev.c` checks it (`fuse_copy_out_args`).

use shuntfs_wire::{
    AttrOut, BmapOut, CopyFileRangeOut, CreateOut, EntryOut, GetxattrIn, GetxattrOut, InitOut, IoctlIn,
    IoctlOut, LkOut, LseekOut, Opcode, OpenOut, PollOut, ReadIn, StatfsOut, StatxOut, WriteOut,
};
use zerocopy::FromBytes;

/// What an answer's body may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// There must be no answer.
    None,
    /// So many bytes.
    Exactly(usize),
    /// From the first to the second number of bytes.
    Between(usize, usize),
}

/// The longest target of a symlink: a page less its NUL.
const LINK_MAX: usize = 4095;

impl Shape {
    /// Of the answer to a request with this body. A body that is too short says nothing of the room for data.
    pub(crate) fn of(opcode: u32, body: &[u8]) -> Self {
        let Some(opcode) = Opcode::new(opcode) else { return Self::Exactly(0) };
        let read = || ReadIn::read_from_prefix(body).map_or(0, |(arg, _)| arg.size as usize);
        match opcode {
            Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt | Opcode::NotifyReply => Self::None,
            Opcode::Lookup | Opcode::Mknod | Opcode::Mkdir | Opcode::Symlink | Opcode::Link => {
                Self::Exactly(size_of::<EntryOut>())
            }
            Opcode::Getattr | Opcode::Setattr => Self::Exactly(size_of::<AttrOut>()),
            Opcode::Readlink => Self::Between(0, LINK_MAX),
            Opcode::Open | Opcode::Opendir => Self::Exactly(size_of::<OpenOut>()),
            Opcode::Create | Opcode::Tmpfile => Self::Exactly(size_of::<CreateOut>()),
            Opcode::Read | Opcode::Readdir | Opcode::Readdirplus => Self::Between(0, read()),
            Opcode::Write | Opcode::CopyFileRange => Self::Exactly(size_of::<WriteOut>()),
            Opcode::CopyFileRange64 => Self::Exactly(size_of::<CopyFileRangeOut>()),
            Opcode::Statfs => Self::Exactly(size_of::<StatfsOut>()),
            Opcode::Getxattr | Opcode::Listxattr => xattr(body),
            Opcode::Init => Self::Between(8, size_of::<InitOut>()),
            Opcode::Getlk => Self::Exactly(size_of::<LkOut>()),
            Opcode::Bmap => Self::Exactly(size_of::<BmapOut>()),
            Opcode::Poll => Self::Exactly(size_of::<PollOut>()),
            Opcode::Lseek => Self::Exactly(size_of::<LseekOut>()),
            Opcode::Statx => Self::Exactly(size_of::<StatxOut>()),
            Opcode::Ioctl => {
                let room = IoctlIn::read_from_prefix(body).map_or(0, |(arg, _)| arg.out_size as usize);
                Self::Between(size_of::<IoctlOut>(), size_of::<IoctlOut>() + room)
            }
            _ => Self::Exactly(0),
        }
    }

    /// Whether a body of so many bytes is taken.
    pub(crate) fn takes(self, len: usize) -> bool {
        match self {
            Self::None => false,
            Self::Exactly(exactly) => len == exactly,
            Self::Between(least, most) => (least..=most).contains(&len),
        }
    }
}

fn xattr(body: &[u8]) -> Shape {
    let room = GetxattrIn::read_from_prefix(body).map_or(0, |(arg, _)| arg.size as usize);
    if room == 0 { Shape::Exactly(size_of::<GetxattrOut>()) } else { Shape::Between(0, room) }
}

#[cfg(test)]
mod test {
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn room_is_taken_from_the_request() {
        let read = ReadIn { size: 4096, ..ReadIn::default() };
        let shape = Shape::of(Opcode::Read.number(), read.as_bytes());
        assert!(shape.takes(0) && shape.takes(4096) && !shape.takes(4097));
        let length = Shape::of(Opcode::Getxattr.number(), GetxattrIn::default().as_bytes());
        assert!(length.takes(8) && !length.takes(0));
        assert!(!Shape::of(Opcode::Forget.number(), &[]).takes(0));
        assert!(Shape::of(Opcode::Unlink.number(), b"a\0").takes(0));
    }
}
