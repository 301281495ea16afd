//! Requests whose data lies in pages that nobody here sees: it is moved between them and lower files, or, where it has to be seen or put
//! together after all, through a file in memory, which costs a copy more than a payload.

use std::fs::File;
use std::future::poll_fn;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::task::Poll;

use shuntfs_sys::OsError;
use shuntfs_wire::{ByteRange, Errno, Opcode, Result};

use crate::exchange::{Done, Exchange, Outcome, from_os};
use crate::lower::LowerFile;
use crate::slot::{PAGE, payload};

impl Exchange {
    /// Whether the data of a READ or a WRITE lies in pages, or is to go there, and not in the payload (zero copy). Data in the payload of
    /// such a READ is put there by [`Exchange::put`].
    #[must_use]
    pub fn is_in_pages(&self) -> bool {
        self.parts.in_pages
    }

    /// Whether it is a WRITE whose data is nowhere to be seen yet: [`Exchange::fetch`] shows it.
    #[must_use]
    pub fn has_unseen_data(&self) -> bool {
        self.parts.in_pages && self.header().operation() == Some(Opcode::Write)
    }

    /// Whether what was read last went to the request's pages, and not to its payload.
    #[must_use]
    pub fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// Resolves when the request has a payload to put bytes together in. Nobody who has one waits for another request.
    pub async fn with_payload(&mut self) {
        self.has_moved = false;
        let Self { port, slot, .. } = self;
        poll_fn(|task| {
            let is_there = slot.has_payload() || port.ring_way().take_spare(slot, task.waker());
            if is_there { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Reads a lower file into the payload or the pages from `start` on, wherever they lie; at most as much as fits there, fewer at the
    /// file's end.
    ///
    /// # Errors
    /// Those of reading; EBUSY where somebody still uses the payload.
    pub async fn move_lower(&mut self, start: usize, lower: &Arc<LowerFile>, at: ByteRange) -> Result<usize> {
        if !self.parts.in_pages {
            return self.read_lower(start, lower, at).await;
        }
        let len = (at.len as usize).min(self.payload_len().saturating_sub(start));
        let part = part_of(start..start + len)?;
        self.has_moved = true;
        self.slot.read_to_pages(lower, part, at.offset).await.map_err(from_os)
    }

    /// Puts bytes of the payload where they are to go, where that is pages, and [`Exchange::move_lower`] has not moved them there since
    /// [`Exchange::with_payload`].
    ///
    /// # Errors
    /// ENOMEM, EMFILE; EIO where they went there in part.
    pub async fn put(&mut self, part: Range<usize>) -> Result<()> {
        if !self.parts.in_pages || self.has_moved || part.is_empty() {
            return Ok(());
        }
        let room = Room::of(self, &part)?;
        let bytes = self.slot.bytes(payload(part.start, part.len()));
        let outcome = match room.write(bytes) {
            Ok(()) => {
                let (slot, file) = (&mut self.slot, &room.file);
                all(part, room.offset, async |part, offset| slot.read_to_pages(file, part, offset).await)
                    .await
            }
            Err(error) => Err(error),
        };
        room.clear();
        outcome
    }

    /// Fills a part of the payload or the pages with zeroes.
    ///
    /// # Errors
    /// EIO where a part of the pages could not be reached, EMFILE.
    pub async fn zero(&mut self, part: Range<usize>) -> Result<()> {
        if !self.parts.in_pages {
            self.payload_mut()[part].fill(0);
            return Ok(());
        }
        let zeroes = Arc::clone(self.port.ring_way().zeroes().map_err(from_os)?);
        let slot = &mut self.slot;
        all(part, 0, async |part, offset| slot.read_to_pages(&zeroes, part, offset).await).await
    }

    /// Shows the data of a WRITE in the payload, where it was not.
    ///
    /// # Errors
    /// ENOMEM, EMFILE; EIO where it came in part.
    pub async fn fetch(&mut self) -> Result<()> {
        if !self.has_unseen_data() {
            return Ok(());
        }
        let data = 0..self.parts.rest.len();
        let room = self.fill_room(&data).await?;
        let outcome = room.read(self.slot.bytes_mut(payload(0, data.len())));
        room.clear();
        self.parts.in_pages = outcome.is_err();
        outcome
    }

    /// A copy of a part of the data of a WRITE that [`Exchange::has_unseen_data`].
    ///
    /// # Errors
    /// ENOMEM, EMFILE; EIO where it came in part; EINVAL where the request has no such data.
    pub async fn copy_unseen(&self, part: Range<usize>) -> Result<Vec<u8>> {
        if part.start > part.end || part.end > self.parts.rest.len() {
            return Err(Errno::INVAL);
        }
        let room = self.fill_room(&part).await?;
        let mut bytes = vec![0; part.len()];
        let outcome = room.read(&mut bytes);
        room.clear();
        outcome.map(|()| bytes)
    }

    /// Moves a part of the data of a WRITE to the file through which bytes go.
    async fn fill_room(&self, part: &Range<usize>) -> Result<Room> {
        let room = Room::of(self, part)?;
        let (slot, file) = (&self.slot, &room.file);
        let step = async |part, offset| slot.write_from_pages(file, part, offset).await;
        match all(part.clone(), room.offset, step).await {
            Ok(()) => Ok(room),
            Err(error) => {
                room.clear();
                Err(error)
            }
        }
    }

    /// Answers a READ by a read of a lower file into its pages, in one submission.
    pub(crate) fn relay_to_pages(self, lower: &Arc<LowerFile>, at: ByteRange) -> Done {
        self.port.commit_after_pages(self.slot, self.header.unique, lower, at);
        Done(Outcome::Linked(at.len))
    }

    /// Writes a part of the pages of a WRITE to a lower file.
    pub(crate) async fn write_pages(
        &self,
        part: Range<usize>,
        lower: &Arc<LowerFile>,
        offset: u64,
    ) -> Result<usize> {
        self.slot.write_from_pages(lower, part_of(part)?, offset).await.map_err(from_os)
    }
}

/// The room of one request in the file through which bytes go: it is as its slot's place in memory would be.
struct Room {
    file: Arc<File>,
    offset: u64,
    len: usize,
}

impl Room {
    fn of(x: &Exchange, part: &Range<usize>) -> Result<Self> {
        let file = Arc::clone(x.port.ring_way().scratch().map_err(from_os)?);
        let start = x.slot.index() as usize * (x.slot.size() - PAGE) + part.start;
        Ok(Self { file, offset: start as u64, len: part.len() })
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, self.offset).map_err(|error| from_io(&error))
    }

    fn read(&self, into: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(into, self.offset).map_err(|error| from_io(&error))
    }

    /// Gives the memory back.
    fn clear(&self) {
        const PUNCH_HOLE_KEEP_SIZE: u32 = 3;
        let (offset, len) = (self.offset, self.len as u64);
        if let Err(error) = shuntfs_sys::data::fallocate(&self.file, PUNCH_HOLE_KEEP_SIZE, offset, len) {
            tracing::debug!(%error, "bytes that went between memory and pages stay in memory");
        }
    }
}

/// Moves all of a part of the pages by steps that may fall short: each gets what is left of it, and the place in the file.
async fn all(
    mut part: Range<usize>,
    mut offset: u64,
    mut step: impl AsyncFnMut(Range<u32>, u64) -> shuntfs_sys::Result<usize>,
) -> Result<()> {
    while !part.is_empty() {
        match step(part_of(part.clone())?, offset).await.map_err(from_os)? {
            0 => return Err(Errno::IO),
            more => {
                part.start += more;
                offset += more as u64;
            }
        }
    }
    Ok(())
}

/// A part of the pages, which are fewer than 4 GiB.
fn part_of(part: Range<usize>) -> Result<Range<u32>> {
    let end = |at| u32::try_from(at).map_err(|_| Errno::INVAL);
    Ok(end(part.start)?..end(part.end)?)
}

fn from_io(error: &std::io::Error) -> Errno {
    OsError::from_io_error(error).map_or(Errno::IO, from_os)
}
