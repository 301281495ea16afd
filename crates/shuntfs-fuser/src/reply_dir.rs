//! Replies that list a folder.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use shuntfs_wire as wire;
use zerocopy::IntoBytes;

use crate::attr::{self, FileAttr, FileType};
use crate::errno::Errno;
use crate::ids::{Generation, INodeNo};
use crate::sender::Answer;

/// The answer is names.
#[derive(Debug)]
pub struct ReplyDirectory {
    answer: Answer,
    listing: Listing,
}

/// The answer is names with their nodes.
#[derive(Debug)]
pub struct ReplyDirectoryPlus {
    answer: Answer,
    listing: Listing,
}

impl ReplyDirectory {
    pub(crate) fn new(answer: Answer, room: u32) -> Self {
        Self { answer, listing: Listing::new(room) }
    }

    /// Adds a name; the next listing goes on after it where it is given `offset`. True where there is no room for it.
    #[must_use]
    pub fn add<T: AsRef<OsStr>>(&mut self, ino: INodeNo, offset: u64, kind: FileType, name: T) -> bool {
        !self.listing.push(&[], (ino, offset, kind), name.as_ref())
    }

    /// Answers with what was added.
    pub fn ok(self) {
        self.answer.bytes(&[&self.listing.bytes]);
    }

    /// Answers with an error.
    pub fn error(self, err: Errno) {
        self.answer.error(err);
    }
}

impl ReplyDirectoryPlus {
    pub(crate) fn new(answer: Answer, room: u32) -> Self {
        Self { answer, listing: Listing::new(room) }
    }

    /// Adds a name with its node, which counts as looked up; the next listing goes on after it where it is given `offset`.
    /// Name and attributes hold for `ttl`. True where there is no room for it.
    #[expect(clippy::too_many_arguments, reason = "fuser's interface")]
    pub fn add<T: AsRef<OsStr>>(
        &mut self,
        ino: INodeNo,
        offset: u64,
        name: T,
        ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
    ) -> bool {
        let _ = ino;
        let entry = attr::entry(attr, generation, (*ttl, *ttl));
        !self.listing.push(entry.as_bytes(), (attr.ino, offset, attr.kind), name.as_ref())
    }

    /// Answers with what was added.
    pub fn ok(self) {
        self.answer.bytes(&[&self.listing.bytes]);
    }

    /// Answers with an error.
    pub fn error(self, err: Errno) {
        self.answer.error(err);
    }
}

/// Records, as many as there is room for.
#[derive(Debug)]
struct Listing {
    bytes: Vec<u8>,
    room: usize,
}

impl Listing {
    fn new(room: u32) -> Self {
        Self { bytes: Vec::new(), room: room as usize }
    }

    /// Adds a record; false where it does not fit.
    fn push(&mut self, entry: &[u8], (ino, off, kind): (INodeNo, u64, FileType), name: &OsStr) -> bool {
        let name = name.as_bytes();
        let Ok(namelen) = u32::try_from(name.len()) else { return false };
        let head = wire::Dirent { ino: ino.0, off, namelen, kind: u32::from(kind.dirent_kind()) };
        let len = entry.len() + size_of::<wire::Dirent>() + name.len();
        let end = self.bytes.len() + len.next_multiple_of(8);
        if end > self.room {
            return false;
        }
        for piece in [entry, head.as_bytes(), name] {
            self.bytes.extend_from_slice(piece);
        }
        self.bytes.resize(end, 0);
        true
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn records_end_at_multiples_of_8_and_stay_within_their_room() {
        let mut listing = Listing::new(64);
        assert!(listing.push(&[], (INodeNo(7), 1, FileType::Directory), OsStr::new("abc")));
        assert!(!listing.push(&[], (INodeNo(8), 2, FileType::RegularFile), OsStr::new("123456789")));
        assert_eq!(listing.bytes.len(), 32);
        assert!(listing.push(&[], (INodeNo(8), 2, FileType::RegularFile), OsStr::new("12345678")));
        assert_eq!(listing.bytes.len(), 64);
        assert!(!listing.push(&[], (INodeNo(9), 3, FileType::Symlink), OsStr::new("")));
        let mut expected = vec![0; 64];
        let mut sink = wire::DirentSink::new(&mut expected);
        assert!(sink.push(7, 1, 4, b"abc") && sink.push(8, 2, 8, b"12345678"));
        assert_eq!(listing.bytes, expected);
    }
}
