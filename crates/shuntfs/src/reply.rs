//! Replies that are written into the request's own payload.

use std::marker::PhantomData;

use shuntfs_wire::{Name, Result};

use crate::attr::Entry;
use crate::cx::Cx;
use crate::delegation::LowerFile;

/// The right to answer one request with bytes, once.
#[derive(Debug)]
pub struct ReadReply<'q> {
    payload: &'q mut [u8],
}

/// Proof that the reply holds bytes of this request and no stale ones.
#[must_use]
#[derive(Debug)]
pub struct Filled<'q> {
    pub(crate) len: u32,
    _brand: PhantomData<&'q mut ()>,
}

impl<'q> ReadReply<'q> {
    /// How many bytes fit; zero where only the length is asked for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.payload.len()
    }
    /// Answers with bytes in memory. Copies once.
    ///
    /// # Errors
    /// ERANGE where they do not fit (never for READ, where `bytes` must not be longer than the capacity).
    pub fn copy_from_slice(self, bytes: &[u8]) -> Result<Filled<'q>> {
        let _ = bytes;
        unimplemented!()
    }
    /// Lets `fill` write into the payload; it returns how many bytes it wrote.
    ///
    /// # Errors
    /// Those of `fill`.
    pub fn fill_with(self, fill: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<Filled<'q>> {
        let _ = fill;
        unimplemented!()
    }
    /// Answers with a length alone (xattrs asked for with no room).
    pub fn length(self, len: usize) -> Filled<'q> {
        let _ = len;
        unimplemented!()
    }
    /// Answers with the bytes of a lower file, straight into the payload.
    ///
    /// # Errors
    /// Those of reading it.
    pub async fn read_from(self, cx: &Cx<'_>, lower: &LowerFile, offset: u64) -> Result<Filled<'q>> {
        let _ = (cx, lower, offset);
        unimplemented!()
    }
}

/// The data of a WRITE, in the payload.
#[derive(Debug)]
pub struct WriteData<'q> {
    data: &'q [u8],
    kill_priv: bool,
}

/// How many bytes were written.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written(pub u32);

impl WriteData<'_> {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.data
    }
    /// Whether suid, sgid and capabilities go with this write (`HANDLE_KILLPRIV_V2`).
    #[must_use]
    pub fn kill_priv(&self) -> bool {
        self.kill_priv
    }
    /// Writes the bytes to a lower file.
    ///
    /// # Errors
    /// Those of writing it.
    pub async fn write_to(&self, cx: &Cx<'_>, lower: &LowerFile, offset: u64) -> Result<Written> {
        let _ = (cx, lower, offset);
        unimplemented!()
    }
}

/// The records of a listing, packed straight into the payload.
#[derive(Debug)]
pub struct DirSink<'q> {
    payload: &'q mut [u8],
    plus: bool,
}

/// Proof that the listing was written.
#[must_use]
#[derive(Debug)]
pub struct Listed<'q> {
    pub(crate) len: u32,
    _brand: PhantomData<&'q mut ()>,
}

impl<'q> DirSink<'q> {
    /// Whether records shall carry entries.
    #[must_use]
    pub fn wants_entries(&self) -> bool {
        self.plus
    }
    /// Whether a record with a name of this many bytes fits. To be asked before [`DirSink::push_entry`], so
    /// that no lookup count is raised for a record that finds no room.
    #[must_use]
    pub fn fits(&self, name_len: usize) -> bool {
        name_len < self.payload.len()
    }
    /// Adds a record; `kind` is the type bits of the mode shifted as in `d_type`. `cookie` names the place
    /// after it. False where it does not fit; the listing is then to be finished. Under `wants_entries` a
    /// record without an entry ("." and "..") raises no lookup count.
    pub fn push(&mut self, ino: u64, cookie: u64, kind: u8, name: &[u8]) -> bool {
        let _ = (ino, cookie, kind, name);
        unimplemented!()
    }
    /// Adds a record with its entry. The name is any single component.
    pub fn push_entry(&mut self, entry: &Entry, cookie: u64, name: Name<'_>) -> bool {
        let _ = (entry, cookie, name);
        unimplemented!()
    }
    /// Ends the listing.
    pub fn finish(self) -> Listed<'q> {
        unimplemented!()
    }
}

/// The right to answer an ioctl with data and a result.
#[derive(Debug)]
pub struct IoctlReply<'q> {
    payload: &'q mut [u8],
}

impl<'q> IoctlReply<'q> {
    /// Answers with a result (0 or positive) and data for the caller.
    ///
    /// # Errors
    /// EOVERFLOW where `data` is longer than what the caller can take.
    pub fn answer(self, result: i32, data: &[u8]) -> Result<Filled<'q>> {
        let _ = (result, data, &self.payload);
        unimplemented!()
    }
}
