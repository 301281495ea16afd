//! A file below imago: its tables, and the bytes that do not go the short way.
//!
//! imago is asynchronous, and so is this: what the page cache holds is read at once, on the queue's own thread; what is not
//! cached is read on a lane while the queue serves others. Long writes (copies of clusters) and what a file system does with a range
//! go by a lane, short ones to the page cache at once; [`crate::tables`] says when. The bytes of whole runs of
//! clusters never come here: [`crate::qcow2`] moves them between the lower file and the request's payload.
//!
//! # Safety
//! imago declares its storage functions unsafe for those who call them past its own checks of alignment and of writes that
//! overlap. Nothing here relies on either: all memory is reached through safe slices, and files take any alignment.
#![expect(unsafe_code, reason = "the functions of imago's trait are declared unsafe")]

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use imago::Storage;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::PreallocateMode;
use imago::storage::drivers::CommonStorageHelper;
use shuntfs::LowerFile;
use shuntfs_sys::{OsError, data, stat_of, truncate};

use crate::lanes::Lanes;
use crate::moving::Ways;
use crate::tables::{Tables, put};

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

/// One file of an image.
pub(crate) struct Stored {
    lower: Arc<LowerFile>,
    /// The same file past the page cache, and what offsets and lengths must then be multiples of.
    direct: Option<(Arc<LowerFile>, u64)>,
    path: PathBuf,
    /// What is read instead of the first bytes.
    head: Option<Box<[u8]>>,
    /// A length that the file is known to have at least.
    known_len: AtomicU64,
    /// Of the image that is written.
    tables: Option<Arc<Tables>>,
    lanes: Lanes,
    helper: CommonStorageHelper,
}

impl Stored {
    pub(crate) fn new(lower: Arc<LowerFile>, path: &Path, lanes: &Lanes) -> Self {
        Self {
            lower,
            direct: None,
            path: path.to_owned(),
            head: None,
            known_len: AtomicU64::new(0),
            tables: None,
            lanes: lanes.clone(),
            helper: CommonStorageHelper::default(),
        }
    }

    /// With other bytes at its start.
    pub(crate) fn with_head(self, head: Option<Box<[u8]>>) -> Self {
        Self { head, ..self }
    }

    /// With the same file open past the page cache.
    pub(crate) fn with_direct(self, direct: Option<(Arc<LowerFile>, u64)>) -> Self {
        Self { direct, ..self }
    }

    /// With the order in which its tables are written.
    pub(crate) fn with_tables(self, tables: Option<Arc<Tables>>) -> Self {
        Self { tables, ..self }
    }

    /// How a run of bytes is best moved.
    pub(crate) fn ways(&self, offset: u64, len: u64) -> Ways<'_> {
        Ways::new(self.direct.as_ref(), &self.lower, (offset, len))
    }

    /// Whether the file is at least so long, so that a read up to there is not cut.
    pub(crate) fn holds(&self, end: u64) -> bool {
        if end <= self.known_len.load(Ordering::Relaxed) {
            return true;
        }
        let Ok(len) = self.size() else { return false };
        self.known_len.store(len, Ordering::Relaxed);
        end <= len
    }

    /// Notes that bytes were written up to there by another way.
    pub(crate) fn reaches(&self, end: u64) {
        // optimisation: most writes change what exists.
        if end > self.known_len.load(Ordering::Relaxed) {
            self.known_len.fetch_max(end, Ordering::Relaxed);
        }
    }

    async fn fill(&self, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let read = match data::read_at_cached(&*self.lower, bytes, offset) {
                Ok(read) => read,
                Err(OsError::AGAIN) => self.fill_cold(bytes, offset).await?,
                // The file system cannot say what is cached.
                Err(OsError::OPNOTSUPP) => data::read_at(&*self.lower, bytes, offset)?,
                Err(error) => return Err(error.into()),
            };
            if read == 0 {
                bytes.fill(0);
                return Ok(());
            }
            bytes = &mut bytes[read..];
            offset += read as u64;
        }
        Ok(())
    }

    /// Reads what is not cached, without keeping the queue.
    async fn fill_cold(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let (lower, len) = (Arc::clone(&self.lower), bytes.len());
        let read = self.lanes.run(move || {
            let mut own = vec![0; len];
            let read = data::read_at(&*lower, &mut own, offset)?;
            own.truncate(read);
            Ok(own)
        });
        let own = read.await?;
        bytes[..own.len()].copy_from_slice(&own);
        Ok(own.len())
    }

    async fn put(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match &self.tables {
            Some(tables) => tables.write(bytes, offset).await?,
            None => put(&self.lower, bytes, offset)?,
        }
        self.reaches(offset + bytes.len() as u64);
        Ok(())
    }

    /// Changes the file by something that may wait.
    async fn change(
        &self,
        work: impl FnOnce(&LowerFile) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        match &self.tables {
            Some(tables) => tables.change(work).await,
            None => {
                let lower = Arc::clone(&self.lower);
                self.lanes.run(move || work(&lower)).await
            }
        }
    }
}

fn put_zeroes(lower: &LowerFile, offset: u64, len: u64) -> io::Result<()> {
    const PIECE: u64 = 64 << 10;
    let zeroes = vec![0; usize::try_from(len.min(PIECE)).unwrap_or_default()];
    let end = offset.checked_add(len).ok_or(io::ErrorKind::InvalidInput)?;
    let mut at = offset;
    while at < end {
        let piece = usize::try_from((end - at).min(PIECE)).unwrap_or(zeroes.len());
        put(lower, &zeroes[..piece], at)?;
        at += piece as u64;
    }
    Ok(())
}

/// Makes a range zero by a call of the file system, or says that it has none for that.
fn zero_by_call(lower: &LowerFile, mode: u32, offset: u64, len: u64) -> io::Result<bool> {
    match data::fallocate(lower, mode, offset, len) {
        Ok(()) => Ok(true),
        // INVAL: a block device has no parts of blocks.
        Err(OsError::OPNOTSUPP | OsError::NODEV | OsError::INTR | OsError::INVAL) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl Storage for Stored {
    fn size(&self) -> io::Result<u64> {
        let stat = stat_of(self.lower.as_fd())?;
        Ok(if stat.is_file() { stat.size } else { data::end_of(&*self.lower)? })
    }

    fn get_filename(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }

    async unsafe fn pure_readv(&self, bufv: IoVectorMut<'_>, offset: u64) -> io::Result<()> {
        let mut at = offset;
        for mut buffer in bufv.into_inner() {
            self.fill(&mut buffer, at).await?;
            if let Some(tables) = &self.tables {
                tables.read_over(&mut buffer, at)?;
            }
            if let Some(head) = &self.head
                && let Some(from) = usize::try_from(at).ok().filter(|from| *from < head.len())
            {
                let len = buffer.len().min(head.len() - from);
                buffer[..len].copy_from_slice(&head[from..][..len]);
            }
            at += buffer.len() as u64;
        }
        Ok(())
    }

    async unsafe fn pure_writev(&self, bufv: IoVector<'_>, offset: u64) -> io::Result<()> {
        let mut at = offset;
        for buffer in bufv.into_inner() {
            self.put(&buffer, at).await?;
            at += buffer.len() as u64;
        }
        Ok(())
    }

    async unsafe fn pure_write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = offset.checked_add(length).ok_or(io::ErrorKind::InvalidInput)?;
        // A hole reads as zeroes; beyond the end there must be a file first.
        let may_be_hole = self.holds(end);
        self.change(move |lower| {
            if may_be_hole && zero_by_call(lower, PUNCH_HOLE | KEEP_SIZE, offset, length)? {
                return Ok(());
            }
            put_zeroes(lower, offset, length)
        })
        .await?;
        self.reaches(end);
        Ok(())
    }

    async unsafe fn pure_write_allocated_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        self.change(move |lower| {
            if zero_by_call(lower, ZERO_RANGE, offset, length)? {
                return Ok(());
            }
            put_zeroes(lower, offset, length)
        })
        .await?;
        self.reaches(offset + length);
        Ok(())
    }

    async unsafe fn pure_discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.change(move |lower| zero_by_call(lower, PUNCH_HOLE | KEEP_SIZE, offset, length).map(drop)).await
    }

    /// Nothing is kept here but pointers, which [`Tables::publish`] writes.
    async fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    async fn settle_writes(&self) -> io::Result<()> {
        match &self.tables {
            Some(tables) => tables.before_free().await,
            None => Ok(()),
        }
    }

    async fn sync(&self) -> io::Result<()> {
        if let Some(tables) = &self.tables {
            return tables.sync().await;
        }
        let lower = Arc::clone(&self.lower);
        self.lanes.run(move || Ok(data::sync_data(&*lower)?)).await
    }

    async unsafe fn invalidate_cache(&self) -> io::Result<()> {
        Ok(())
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        &self.helper
    }

    async fn resize(&self, new_size: u64, prealloc_mode: PreallocateMode) -> io::Result<()> {
        self.known_len.store(0, Ordering::Relaxed);
        let len = self.size()?;
        let more = match prealloc_mode {
            PreallocateMode::None | PreallocateMode::Zero => 0,
            PreallocateMode::Allocate => new_size.saturating_sub(len),
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        self.change(move |lower| {
            truncate(lower, new_size)?;
            if more > 0 {
                data::fallocate(lower, 0, len, more)?;
            }
            Ok(())
        })
        .await
    }
}

impl fmt::Debug for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stored").field("path", &self.path).finish_non_exhaustive()
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

#[cfg(test)]
mod test {
    use imago::StorageExt;

    use super::*;
    use pollster::block_on;

    fn stored() -> (tempfile::TempDir, Stored) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let file =
            std::fs::File::options().read(true).write(true).create_new(true).open(&path).expect("makes");
        let stored = Stored::new(Arc::new(LowerFile::new(file.into())), &path, &Lanes::default());
        (folder, stored)
    }

    #[test]
    fn what_lies_beyond_the_end_reads_as_zeroes() {
        let (_folder, stored) = stored();
        block_on(stored.write(&vec![7_u8; 10], 5)).expect("writes");
        let mut read = vec![1_u8; 20];
        block_on(stored.read(&mut read, 0)).expect("reads");
        assert_eq!(read, [&[0; 5][..], &[7; 10], &[0; 5]].concat());
        assert!(stored.holds(15) && !stored.holds(16));
    }

    #[test]
    fn the_head_is_read_in_place_of_the_first_bytes() {
        let (_folder, stored) = stored();
        block_on(stored.write(&vec![7_u8; 8], 0)).expect("writes");
        let stored = stored.with_head(Some(Box::new([1, 2, 3])));
        let read = |offset, len| {
            let mut read = vec![0_u8; len];
            block_on(stored.read(&mut read, offset)).expect("reads");
            read
        };
        assert_eq!(read(0, 5), [1, 2, 3, 7, 7]);
        assert_eq!(read(2, 2), [3, 7]);
        assert_eq!(read(3, 2), [7, 7]);
    }

    #[test]
    fn zeroes_may_make_the_file_longer() {
        let (_folder, stored) = stored();
        block_on(stored.write(&vec![7_u8; 8192], 0)).expect("writes");
        block_on(stored.write_zeroes(4096, 8192)).expect("zeroes");
        block_on(stored.write_allocated_zeroes(0, 4096)).expect("zeroes");
        let mut read = vec![1_u8; 12288];
        block_on(stored.read(&mut read, 0)).expect("reads");
        assert!(read.iter().all(|byte| *byte == 0) && stored.size().expect("has one") >= 8192);
        block_on(stored.resize(100, PreallocateMode::None)).expect("resizes");
        assert!(!stored.holds(101) && stored.holds(100));
    }
}
