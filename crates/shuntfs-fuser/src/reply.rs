//! Replies. Each is consumed by one answer, may be moved to another thread, and answers EIO when dropped.

use std::time::Duration;

use shuntfs_wire as wire;
use zerocopy::IntoBytes;

use crate::attr::{self, FileAttr};
use crate::errno::Errno;
use crate::flags::PollEvents;
use crate::ids::Generation;
use crate::sender::Answer;

macro_rules! replies {
    ($($(#[$outer:meta])* $name:ident)*) => {
        $(
            $(#[$outer])*
            #[derive(Debug)]
            pub struct $name(pub(crate) Answer);

            impl $name {
                /// Answers with an error.
                pub fn error(self, err: Errno) {
                    self.0.error(err);
                }
            }
        )*
    };
}
pub(crate) use replies;

replies! {
    /// The answer is success and nothing else.
    ReplyEmpty
    /// The answer is data.
    ReplyData
    /// The answer is a node.
    ReplyEntry
    /// The answer is attributes.
    ReplyAttr
    /// The answer is how much was written.
    ReplyWrite
    /// The answer is the state of the file system as a whole.
    ReplyStatfs
    /// The answer is a lock.
    ReplyLock
    /// The answer is a block's number.
    ReplyBmap
    /// The answer is an ioctl's.
    ReplyIoctl
    /// The answer is events.
    ReplyPoll
    /// The answer is an extended attribute, a list of them, or how long that is.
    ReplyXattr
    /// The answer is a place in a file.
    ReplyLseek
}

impl ReplyEmpty {
    /// Answers.
    pub fn ok(self) {
        self.0.empty();
    }
}

impl ReplyData {
    /// Answers.
    pub fn data(self, data: &[u8]) {
        self.0.bytes(&[data]);
    }
}

impl ReplyEntry {
    /// Answers; name and attributes hold for `ttl`.
    pub fn entry(self, ttl: &Duration, attr: &FileAttr, generation: Generation) {
        self.entry_with_ttls(ttl, ttl, attr, generation);
    }

    /// Answers; the attributes hold for `attr_ttl`, the name for `entry_ttl`.
    pub fn entry_with_ttls(
        self,
        attr_ttl: &Duration,
        entry_ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
    ) {
        self.0.with(&attr::entry(attr, generation, (*entry_ttl, *attr_ttl)));
    }
}

impl ReplyAttr {
    /// Answers; the attributes hold for `ttl`.
    pub fn attr(self, ttl: &Duration, attr: &FileAttr) {
        self.0.with(&attr::attr_out(attr, *ttl));
    }
}

impl ReplyWrite {
    /// Answers with a number of bytes.
    pub fn written(self, size: u32) {
        self.0.with(&wire::WriteOut { size, padding: 0 });
    }
}

impl ReplyStatfs {
    /// Answers. Blocks are counted in units of `frsize` bytes.
    #[expect(clippy::too_many_arguments, reason = "fuser's interface")]
    pub fn statfs(
        self,
        blocks: u64,
        bfree: u64,
        bavail: u64,
        files: u64,
        ffree: u64,
        bsize: u32,
        namelen: u32,
        frsize: u32,
    ) {
        let st = wire::Kstatfs {
            blocks,
            bfree,
            bavail,
            files,
            ffree,
            bsize,
            namelen,
            frsize,
            ..wire::Kstatfs::default()
        };
        self.0.with(&wire::StatfsOut { st });
    }
}

impl ReplyLock {
    /// Answers with a lock from byte `start` to byte `end`, of the kind `typ`, held by `pid`.
    pub fn locked(self, start: u64, end: u64, typ: i32, pid: u32) {
        let lk = wire::FileLock { start, end, r#type: typ.cast_unsigned(), pid };
        self.0.with(&wire::LkOut { lk });
    }
}

impl ReplyBmap {
    /// Answers.
    pub fn bmap(self, block: u64) {
        self.0.with(&wire::BmapOut { block });
    }
}

impl ReplyIoctl {
    /// Answers with what `ioctl(2)` returns, and with data for the caller.
    pub fn ioctl(self, result: i32, data: &[u8]) {
        let out = wire::IoctlOut { result, ..wire::IoctlOut::default() };
        self.0.bytes(&[out.as_bytes(), data]);
    }
}

impl ReplyPoll {
    /// Answers with what there is.
    pub fn poll(self, revents: PollEvents) {
        self.0.with(&wire::PollOut { revents: revents.bits(), padding: 0 });
    }
}

impl ReplyXattr {
    /// Answers how long it is, in bytes: where the request asked for 0 bytes.
    pub fn size(self, size: u32) {
        self.0.with(&wire::GetxattrOut { size, padding: 0 });
    }

    /// Answers with it.
    pub fn data(self, data: &[u8]) {
        self.0.bytes(&[data]);
    }
}

impl ReplyLseek {
    /// Answers.
    pub fn offset(self, offset: i64) {
        self.0.with(&wire::LseekOut { offset: offset.cast_unsigned() });
    }
}
