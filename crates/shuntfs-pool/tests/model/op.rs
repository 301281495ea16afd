//! What is done to a mount, and what is seen of it.

use shuntfs::Errno;

/// How many files are open at most.
pub(crate) const SLOTS: usize = 4;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Makes a file, which stays open in a slot.
    Create {
        path: String,
        mode: u32,
        slot: usize,
    },
    /// Makes a file or cuts the one that is there, and writes.
    Save {
        path: String,
        bytes: Vec<u8>,
    },
    Open {
        path: String,
        writes: bool,
        slot: usize,
    },
    Write {
        slot: usize,
        at: usize,
        bytes: Vec<u8>,
    },
    Read {
        slot: usize,
    },
    Close {
        slot: usize,
    },
    Truncate {
        path: String,
        len: usize,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    Mkfifo {
        path: String,
    },
    /// A file that is not opened.
    Mknod {
        path: String,
    },
    Symlink {
        target: String,
        path: String,
    },
    Link {
        old: String,
        new: String,
    },
    Unlink {
        path: String,
    },
    Rmdir {
        path: String,
    },
    Rename {
        old: String,
        new: String,
        flags: u32,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Chown {
        path: String,
        uid: u32,
        gid: u32,
    },
    SetMtime {
        path: String,
        secs: u64,
    },
    SetXattr {
        path: String,
        name: &'static str,
        value: Vec<u8>,
    },
    RemoveXattr {
        path: String,
        name: &'static str,
    },
    List {
        path: String,
    },
    Stat {
        path: String,
    },
    /// The kernel gives back what it keeps.
    Forget,
}

pub(crate) const NOREPLACE: u32 = 1;
pub(crate) const EXCHANGE: u32 = 2;

pub(crate) const FILE: u32 = 0o100_000;
pub(crate) const FOLDER: u32 = 0o040_000;
pub(crate) const LINK: u32 = 0o120_000;
pub(crate) const FIFO: u32 = 0o010_000;

/// The attributes of something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stat {
    /// With the type.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// 0 for folders, for which file systems count in different ways.
    pub(crate) links: u32,
    /// 0 for folders.
    pub(crate) size: u64,
    /// `None` where the model does not know.
    pub(crate) mtime: Option<u64>,
}

/// What a call answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Nothing,
    Bytes(Vec<u8>),
    Names(Vec<String>),
    Stat(Stat),
}

impl Seen {
    /// Whether this is what was expected.
    pub(crate) fn is_as(&self, expected: &Self) -> bool {
        match (self, expected) {
            (Self::Stat(seen), Self::Stat(expected)) => seen.is_as(expected),
            _ => self == expected,
        }
    }
}

impl Stat {
    pub(crate) fn is_as(&self, expected: &Self) -> bool {
        let mtime = if expected.mtime.is_some() { self.mtime } else { None };
        Self { mtime, ..self.clone() } == *expected
    }
}

/// A mount of the branches: on the fake kernel or the real one.
pub(crate) trait Mount {
    /// # Errors
    /// Those of the call.
    fn call(&mut self, op: &Op) -> Result<Seen, Errno>;

    /// The attributes of a path itself, and its inode number.
    ///
    /// # Errors
    /// Those of the call.
    fn lstat(&self, path: &str) -> Result<(Stat, u64), Errno>;

    /// # Errors
    /// Those of the call.
    fn list(&self, path: &str) -> Result<Vec<String>, Errno>;

    /// The bytes of a file.
    ///
    /// # Errors
    /// Those of the call.
    fn read(&self, path: &str) -> Result<Vec<u8>, Errno>;

    /// # Errors
    /// Those of the call.
    fn readlink(&self, path: &str) -> Result<String, Errno>;

    /// # Errors
    /// Those of the call.
    fn xattr(&self, path: &str, name: &str) -> Result<Vec<u8>, Errno>;

    /// What is broken besides, in words.
    fn breaches(&self) -> Option<String>;

    /// Ends the mount. What was broken, in words.
    fn end(self) -> Option<String>;
}
