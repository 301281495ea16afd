//! Replies that open a file.
//!
//! # Safety
//! The unsafe functions are unsafe in fuser's interface, for the sake of other users of a backing id; nothing here depends on
//! what their callers promise.
#![expect(unsafe_code, reason = "fuser's interface has these functions unsafe")]

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use shuntfs_wire as wire;

use crate::attr::{self, FileAttr};
use crate::backing::BackingId;
use crate::errno::Errno;
use crate::flags::FopenFlags;
use crate::ids::{FileHandle, Generation};
use crate::reply::replies;
use crate::sender::Answer;

replies! {
    /// The answer is an open file or folder.
    ReplyOpen
    /// The answer is a new file, open.
    ReplyCreate
}

macro_rules! backed {
    ($($name:ident)*) => {
        $(impl $name {
            /// Registers a backing file.
            ///
            /// # Errors
            /// As [`BackingId::create_raw`].
            pub fn open_backing(&self, fd: impl AsFd) -> io::Result<BackingId> {
                self.0.open_backing(fd.as_fd())
            }

            /// Makes a [`BackingId`] of the kernel's number.
            ///
            /// # Safety
            /// The number is registered with this connection, and nobody else takes its registration back.
            pub unsafe fn wrap_backing(&self, id: u32) -> BackingId {
                self.0.wrap_backing(id)
            }
        })*
    };
}

backed! { ReplyOpen ReplyCreate }

impl ReplyOpen {
    /// Answers.
    ///
    /// # Panics
    /// Where `flags` have `FOPEN_PASSTHROUGH`, which needs [`ReplyOpen::opened_passthrough`].
    pub fn opened(self, fh: FileHandle, flags: FopenFlags) {
        refuse_passthrough(flags);
        self.0.with(&attr::open_out(fh, flags, 0));
    }

    /// Answers; the kernel moves the bytes of the backing file.
    pub fn opened_passthrough(self, fh: FileHandle, flags: FopenFlags, backing_id: &BackingId) {
        let flags = flags | FopenFlags::FOPEN_PASSTHROUGH;
        self.0.with(&attr::open_out(fh, flags, backing_id.backing_id));
    }
}

impl ReplyCreate {
    /// Answers; name and attributes hold for `ttl`.
    ///
    /// # Panics
    /// Where `flags` have `FOPEN_PASSTHROUGH`, which needs [`ReplyCreate::created_passthrough`].
    pub fn created(
        self,
        ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
        fh: FileHandle,
        flags: FopenFlags,
    ) {
        refuse_passthrough(flags);
        self.send(ttl, attr, generation, attr::open_out(fh, flags, 0));
    }

    /// Answers; the kernel moves the bytes of the backing file.
    #[expect(clippy::too_many_arguments, reason = "fuser's interface")]
    pub fn created_passthrough(
        self,
        ttl: &Duration,
        attr: &FileAttr,
        generation: Generation,
        fh: FileHandle,
        flags: FopenFlags,
        backing_id: &BackingId,
    ) {
        let flags = flags | FopenFlags::FOPEN_PASSTHROUGH;
        self.send(ttl, attr, generation, attr::open_out(fh, flags, backing_id.backing_id));
    }

    fn send(self, ttl: &Duration, attr: &FileAttr, generation: Generation, open: wire::OpenOut) {
        let entry = attr::entry(attr, generation, (*ttl, *ttl));
        self.0.with(&wire::CreateOut { entry, open });
    }
}

fn refuse_passthrough(flags: FopenFlags) {
    assert!(!flags.contains(FopenFlags::FOPEN_PASSTHROUGH), "passthrough needs a backing id");
}
