//! Replies that are written into the request's own payload.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::sync::Arc;

use shuntfs_transport::Exchange;
use shuntfs_wire::{ByteRange, DirentSink, Errno, IoctlFlags, IoctlOut, Name, Result};
use zerocopy::IntoBytes;

use crate::attr::Entry;
use crate::cursor::Cursor;
use crate::cx::Cx;
use crate::delegation::LowerFile;
use crate::encode;
use crate::file_type::FileType;

/// The right to answer one request with bytes, once. No second answer is possible:
///
/// ```compile_fail,E0382
/// use shuntfs::{Filled, ReadReply, Result};
///
/// fn twice<'q>(reply: ReadReply<'q>) -> Result<[Filled<'q>; 2]> {
///     Ok([reply.copy_from_slice(b"one")?, reply.copy_from_slice(b"two")?])
/// }
/// ```
///
/// And [`Filled`] is proof for its own request, which cannot be kept for the next one:
///
/// ```compile_fail
/// use shuntfs::{Filled, ReadReply};
///
/// fn keep<'q>(kept: &mut Option<Filled<'static>>, reply: ReadReply<'q>) {
///     *kept = Some(reply.length(1));
/// }
/// ```
#[derive(Debug)]
pub struct ReadReply<'q> {
    pub(crate) exchange: &'q mut Exchange,
    /// Where in the payload it starts; zero but for a part of a composed file.
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// Proof that the reply holds bytes of this request and no stale ones.
#[must_use]
#[derive(Debug)]
pub struct Filled<'q> {
    len: usize,
    /// Whether there are no bytes, but a length alone.
    bare: bool,
    _brand: PhantomData<&'q mut ()>,
}

impl Filled<'_> {
    pub(crate) fn bytes(len: usize) -> Self {
        Self { len, bare: false, _brand: PhantomData }
    }

    /// A length with no bytes.
    pub(crate) fn bare(len: usize) -> Self {
        Self { len, bare: true, _brand: PhantomData }
    }

    /// How many bytes of the payload are filled. EIO where only a length was answered, but bytes were asked
    /// for.
    pub(crate) fn filled(&self) -> Result<usize> {
        if self.bare { Err(Errno::IO) } else { Ok(self.len) }
    }

    /// The length that was asked for, or of what was filled.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl<'q> ReadReply<'q> {
    /// `len` bytes of the payload from `start` on; fewer where it ends.
    pub(crate) fn new(exchange: &'q mut Exchange, start: usize, len: usize) -> Self {
        let room = exchange.payload_len().saturating_sub(start);
        Self { exchange, start, len: len.min(room) }
    }

    /// How many bytes fit; zero where only the length is asked for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.len
    }

    /// Whether the request came by a ring. The rings' threads keep to the CPU of their callers, each to one, so that work which other
    /// CPUs could do is best given away.
    #[must_use]
    pub fn came_by_ring(&self) -> bool {
        self.exchange.is_ring()
    }

    /// Answers with bytes in memory. Copies once. Where only the length is asked for, answers with that.
    ///
    /// # Errors
    /// ERANGE where they do not fit (never for READ, where `bytes` must not be longer than the capacity).
    pub fn copy_from_slice(self, bytes: &[u8]) -> Result<Filled<'q>> {
        if self.len == 0 {
            return Ok(self.length(bytes.len()));
        }
        if bytes.len() > self.len {
            return Err(Errno::RANGE);
        }
        self.exchange.payload_mut()[self.start..][..bytes.len()].copy_from_slice(bytes);
        Ok(Filled::bytes(bytes.len()))
    }

    /// Answers with bytes that are written piece by piece, from the start on, straight into the payload.
    #[must_use]
    pub fn cursor(self) -> Cursor<'q> {
        Cursor::new(&mut self.exchange.payload_mut()[self.start..][..self.len])
    }

    /// Answers with a length alone (xattrs asked for with no room).
    pub fn length(self, len: usize) -> Filled<'q> {
        Filled::bare(len)
    }

    /// Answers with the bytes of a lower file, straight into the payload. Where the future is dropped or leaked half way, the request is
    /// answered when the read has ended, which it is asked to.
    ///
    /// # Errors
    /// Those of reading it.
    pub async fn read_from(self, cx: &Cx<'_>, lower: &Arc<LowerFile>, offset: u64) -> Result<Filled<'q>> {
        let _ = cx;
        let at = ByteRange { offset, len: u32::try_from(self.len).unwrap_or(u32::MAX) };
        let read = read(self.exchange, self.start, lower, at).await?.min(self.len);
        lower.count_read(read as u64);
        Ok(Filled::bytes(read))
    }

    /// The same, and when it fails, with those of the file that `next` gives for the error, until it gives none. `next` is called
    /// inline.
    ///
    /// # Errors
    /// That for which `next` gives none.
    pub async fn read_from_or(
        self,
        cx: &Cx<'_>,
        lower: &Arc<LowerFile>,
        offset: u64,
        mut next: impl FnMut(Errno) -> Option<Arc<LowerFile>>,
    ) -> Result<Filled<'q>> {
        let _ = cx;
        let at = ByteRange { offset, len: u32::try_from(self.len).unwrap_or(u32::MAX) };
        let mut lower = Arc::clone(lower);
        loop {
            match read(self.exchange, self.start, &lower, at).await {
                Ok(read) => {
                    let read = read.min(self.len);
                    lower.count_read(read as u64);
                    return Ok(Filled::bytes(read));
                }
                Err(error) => lower = next(error).ok_or(error)?,
            }
        }
    }
}

/// Reads a lower file to where an answer's bytes are to go.
pub(crate) async fn read(
    x: &mut Exchange,
    start: usize,
    lower: &Arc<LowerFile>,
    at: ByteRange,
) -> Result<usize> {
    if x.is_in_pages() {
        // On the heap, as every other READ would have to have room for it.
        return Box::pin(x.move_lower(start, lower, at)).await;
    }
    x.read_lower(start, lower, at).await
}

/// The data of a WRITE, in the payload.
#[derive(Clone, Copy, Debug)]
pub struct WriteData<'q> {
    exchange: &'q Exchange,
    data: &'q [u8],
    /// Where in the request's data it starts.
    start: usize,
    kill_priv: bool,
}

/// How many bytes were written.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written(pub u32);

impl<'q> WriteData<'q> {
    pub(crate) fn new(exchange: &'q Exchange, data: &'q [u8], kill_priv: bool) -> Self {
        Self { exchange, data, start: 0, kill_priv }
    }

    /// A part of the data, which is at other places below than the rest.
    ///
    /// # Panics
    /// Where the part is not inside of the data.
    #[must_use]
    pub fn part(&self, start: usize, len: usize) -> Self {
        Self { data: &self.data[start..][..len], start: self.start + start, ..*self }
    }

    /// The bytes.
    ///
    /// # Panics
    /// Where nobody has seen them yet ([`crate::Filesystem::takes_unseen_data`]).
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        assert!(!self.is_unseen(), "data that lies in the caller's pages");
        self.data
    }

    /// Whether the bytes lie in the caller's pages, which [`WriteData::write_to`] moves without a look at them.
    #[must_use]
    pub fn is_unseen(&self) -> bool {
        self.exchange.has_unseen_data()
    }

    /// The bytes, wherever they lie. A copy of those that nobody has seen yet: the caller may change them meanwhile, so what was looked at
    /// must be written from the copy.
    ///
    /// # Errors
    /// EIO where they could not be reached; ENOMEM, EMFILE.
    pub async fn bytes(&self, cx: &Cx<'_>) -> Result<Cow<'q, [u8]>> {
        let _ = cx;
        if !self.is_unseen() {
            return Ok(Cow::Borrowed(self.data));
        }
        // On the heap, as every other WRITE would have to have room for it.
        Box::pin(self.exchange.copy_unseen(self.start..self.start + self.data.len())).await.map(Cow::Owned)
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.data.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// That all of it was written.
    pub fn written(&self) -> Written {
        Written(u32::try_from(self.data.len()).unwrap_or(u32::MAX))
    }

    /// Whether suid, sgid and capabilities go with this write (`HANDLE_KILLPRIV_V2`).
    #[must_use]
    pub fn kill_priv(&self) -> bool {
        self.kill_priv
    }

    /// Writes the bytes to a lower file. Where the future is dropped or leaked half way, some of them may be written, and the request is
    /// answered when the write has ended, which it is asked to.
    ///
    /// # Errors
    /// Those of writing it.
    pub async fn write_to(&self, cx: &Cx<'_>, lower: &Arc<LowerFile>, offset: u64) -> Result<Written> {
        let _ = cx;
        let part = self.start..self.start + self.data.len();
        let written = self.exchange.write_lower(part, lower, offset).await?;
        lower.count_written(written as u64);
        u32::try_from(written).map(Written).map_err(|_| Errno::IO)
    }
}

/// The records of a listing, packed straight into the payload.
#[derive(Debug)]
pub struct DirSink<'q> {
    capacity: usize,
    records: DirentSink<'q>,
    plus: bool,
}

/// Proof that the listing was written.
#[must_use]
#[derive(Debug)]
pub struct Listed<'q> {
    pub(crate) len: usize,
    _brand: PhantomData<&'q mut ()>,
}

impl<'q> DirSink<'q> {
    pub(crate) fn new(payload: &'q mut [u8], plus: bool) -> Self {
        Self { capacity: payload.len(), records: DirentSink::new(payload), plus }
    }

    /// How many bytes of records the reply holds in all.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether records shall carry entries.
    #[must_use]
    pub fn wants_entries(&self) -> bool {
        self.plus
    }

    /// Whether a record with a name of this many bytes fits. To be asked before [`DirSink::push_entry`], so
    /// that no lookup count is raised for a record that finds no room.
    #[must_use]
    pub fn fits(&self, name_len: usize) -> bool {
        if self.plus { self.records.fits_plus(name_len) } else { self.records.fits(name_len) }
    }

    /// Adds a record without an entry, which raises no lookup count; the kernel looks the name up when it needs it. `kind` may be
    /// `None` where it is not known. `cookie` names the place after the record and is never 0. False where it does not fit;
    /// the listing is then to be finished.
    pub fn push(
        &mut self,
        ino: u64,
        cookie: u64,
        kind: impl Into<Option<FileType>>,
        name: impl AsRef<[u8]>,
    ) -> bool {
        let (kind, name) = (kind.into().map_or(0, FileType::dirent_kind), name.as_ref());
        if self.plus {
            let none = shuntfs_wire::EntryOut::default();
            self.records.push_plus(&none, ino, cookie, kind, name)
        } else {
            self.records.push(ino, cookie, kind, name)
        }
    }

    /// Adds a record with its entry, whose lookup count rises by one where [`DirSink::wants_entries`] holds and the record fits.
    /// Without it, adds what [`DirSink::push`] would. The name is any single component.
    pub fn push_entry(&mut self, entry: &Entry, cookie: u64, name: Name<'_>) -> bool {
        let attr = &entry.attr;
        let kind = u8::try_from(attr.mode >> 12 & 0xf).unwrap_or_default();
        if self.plus {
            self.records.push_plus(&encode::entry_out(entry), attr.ino, cookie, kind, name.as_bytes())
        } else {
            self.records.push(attr.ino, cookie, kind, name.as_bytes())
        }
    }

    /// Lists a folder that is at hand as a whole: its records from `cookie` on, as many as fit. Each is an inode number, a type
    /// and a name; the cookie of each is its place, from 1.
    pub fn list<K, N>(mut self, cookie: u64, records: impl IntoIterator<Item = (u64, K, N)>) -> Listed<'q>
    where
        K: Into<Option<FileType>>,
        N: AsRef<[u8]>,
    {
        let seen = usize::try_from(cookie).unwrap_or(usize::MAX);
        for (place, (ino, kind, name)) in (1..).zip(records).skip(seen) {
            if !self.push(ino, place, kind, name) {
                break;
            }
        }
        self.finish()
    }

    /// Ends the listing.
    pub fn finish(self) -> Listed<'q> {
        Listed { len: self.records.len() as usize, _brand: PhantomData }
    }
}

/// The right to answer an ioctl with data and a result.
#[derive(Debug)]
pub struct IoctlReply<'q> {
    payload: &'q mut [u8],
    output_max: usize,
}

impl<'q> IoctlReply<'q> {
    pub(crate) fn new(payload: &'q mut [u8], output_max: usize) -> Self {
        let room = payload.len().saturating_sub(size_of::<IoctlOut>());
        Self { payload, output_max: output_max.min(room) }
    }

    /// Answers with a result (0 or positive) and data for the caller.
    ///
    /// # Errors
    /// EOVERFLOW where `data` is longer than what the caller can take.
    pub fn answer(self, result: i32, data: &[u8]) -> Result<Filled<'q>> {
        if data.len() > self.output_max {
            return Err(Errno::OVERFLOW);
        }
        let out = IoctlOut { result, flags: IoctlFlags::empty(), in_iovs: 0, out_iovs: 0 };
        let (head, room) = self.payload.split_at_mut(size_of::<IoctlOut>());
        head.copy_from_slice(out.as_bytes());
        room[..data.len()].copy_from_slice(data);
        Ok(Filled::bytes(size_of::<IoctlOut>() + data.len()))
    }
}
