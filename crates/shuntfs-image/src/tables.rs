//! The file of a qcow2 image that is written, and the order in which its tables reach the disk ([`crate::order`]).

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use shuntfs::LowerFile;
use shuntfs_sys::{OsError, data};

use crate::lanes::Lanes;
use crate::lost::{Depth, Lost};
use crate::order::{Kind, Known, Marks, PLACE, Shared};
use crate::pending::Pending;

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
/// What is longer is written on a lane.
const INLINE_MAX: usize = 4096;

/// The file, and what is known of it.
#[derive(Debug)]
pub(crate) struct Tables {
    lower: Arc<LowerFile>,
    lanes: Lanes,
    known: Shared,
    pub(crate) marks: Marks,
    lost: Arc<Lost>,
    /// Held shared by what is under way, so that it can be waited for.
    moving: Arc<tokio::sync::RwLock<()>>,
    barrier: tokio::sync::Mutex<()>,
    publishing: tokio::sync::Mutex<()>,
    /// Blocks are changed here beside imago, a few bits of a byte maybe.
    blocks: Mutex<()>,
    /// Where another server may go on.
    pending: Option<Pending>,
    draining: tokio::sync::Mutex<()>,
}

impl Tables {
    pub(crate) fn new(lower: Arc<LowerFile>, lanes: &Lanes, known: Known, pending: Option<Pending>) -> Self {
        Self {
            lower,
            lanes: lanes.clone(),
            known: Mutex::new(known),
            marks: Marks::default(),
            lost: Arc::default(),
            moving: Arc::default(),
            barrier: tokio::sync::Mutex::default(),
            publishing: tokio::sync::Mutex::default(),
            blocks: Mutex::default(),
            pending,
            draining: tokio::sync::Mutex::default(),
        }
    }

    /// Goes on where a dead server was: what it wrote may not be durable, and it may have died before it counted what an entry leads to.
    pub(crate) fn goes_on(&self) -> io::Result<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let entries = pending.entries()?;
        for entry in entries.values() {
            self.count(entry & PLACE)?;
        }
        self.known.lock().holds_again(entries);
        self.marks.written.add();
        self.marks.tables.add();
        Ok(())
    }

    /// Whether the next server has all that is handed over by [`Tables::write`].
    pub(crate) fn is_sheltered(&self) -> bool {
        self.pending.is_some()
    }

    /// Puts what waits over what was read from the file.
    pub(crate) fn read_over(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        self.known.lock().read_over(bytes, offset);
        pending.read_over(bytes, offset)
    }

    /// Whether a table may still lead to what was freed.
    fn may_be_in_use(&self) -> bool {
        let waits = self.pending.as_ref().is_some_and(|pending| !pending.is_empty());
        self.marks.freed.is_open() && (self.marks.tables.is_open() || waits)
    }

    /// Writes the tables that wait to the file, when what they lead to is durable.
    pub(crate) async fn drain(&self) -> io::Result<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        // One after the other, or an older state of a table would come last.
        let _alone = self.draining.lock().await;
        if pending.is_empty() {
            return Ok(());
        }
        let all = pending.all()?;
        self.settle().await?;
        for table in &all {
            put(&self.lower, &table.bytes, table.place)?;
            self.marks.tables.add();
            pending.written(table)?;
        }
        Ok(())
    }

    pub(crate) fn lost(&self) -> &Arc<Lost> {
        &self.lost
    }

    pub(crate) fn cluster(&self) -> u64 {
        self.known.lock().cluster()
    }

    /// Writes what imago wants written, when its time has come.
    pub(crate) async fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        match self.kind_of(offset, bytes.len()) {
            Kind::Header => return self.write_header(bytes).await,
            Kind::Pointers => return self.hold(bytes, offset),
            Kind::BlockPointers => return self.write_block_pointers(bytes, offset).await,
            Kind::Block | Kind::Table | Kind::Other => {}
        }
        let moving = Arc::clone(&self.moving).read_owned().await;
        // Once more: a table may have become one of the disk's meanwhile.
        match self.kind_of(offset, bytes.len()) {
            Kind::Table if self.is_sheltered() => self.shelter(bytes, offset).await?,
            Kind::Table => {
                if self.marks.written.is_open() {
                    self.settle().await?;
                }
                self.put(bytes, offset, moving).await?;
                self.marks.tables.add();
            }
            kind => {
                self.ready_for_data().await?;
                if kind == Kind::Block {
                    self.put_block(bytes, offset)?;
                } else {
                    self.put(bytes, offset, moving).await?;
                }
                self.marks.written.add();
            }
        }
        Ok(())
    }

    /// Before a cluster gets its first bytes by another way.
    pub(crate) async fn ready_for_data(&self) -> io::Result<()> {
        if !self.may_be_in_use() {
            return Ok(());
        }
        self.drain().await?;
        self.settle().await
    }

    fn hold(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut known = self.known.lock();
        known.hold(offset, bytes);
        if let Some(pending) = &self.pending {
            for (place, word) in (offset..).step_by(8).zip(bytes.chunks_exact(8)) {
                pending.hold(place, crate::header::u64_at(word, 0).unwrap_or_default())?;
            }
        }
        Ok(())
    }

    async fn shelter(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let Some(pending) = &self.pending else { return Ok(()) };
        pending.put(bytes, offset)?;
        if pending.is_full() { self.drain().await } else { Ok(()) }
    }

    /// Changes the contents of clusters in another way than by bytes, on a lane.
    pub(crate) async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LowerFile) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.ready_for_data().await?;
        let moving = Arc::clone(&self.moving).read_owned().await;
        let lower = Arc::clone(&self.lower);
        let work = move || {
            let _moving = moving;
            work(&lower)
        };
        let outcome = self.lanes.run(work).await;
        self.marks.written.add();
        outcome
    }

    /// imago is about to free what its tables in memory no longer lead to.
    pub(crate) async fn before_free(&self) -> io::Result<()> {
        drop(self.moving.write().await);
        self.drain().await?;
        if self.holds_pointers() {
            self.publish().await?;
            self.settle().await?;
        }
        self.marks.freed.add();
        Ok(())
    }

    pub(crate) fn holds_pointers(&self) -> bool {
        self.known.lock().holds_any()
    }

    /// Writes the pointers that are held; all that they lead to is durable and counted then.
    pub(crate) async fn publish(&self) -> io::Result<()> {
        let _alone = self.publishing.lock().await;
        let pointers = self.known.lock().publishable();
        if pointers.is_empty() {
            return Ok(());
        }
        // What was sorted before these were tables of the disk is written.
        drop(self.moving.write().await);
        for (_, entry) in &pointers {
            self.count(entry & PLACE)?;
        }
        self.settle().await?;
        for (place, entry) in &pointers {
            put(&self.lower, &entry.to_be_bytes(), *place)?;
        }
        self.marks.written.add();
        let mut known = self.known.lock();
        for place in known.published(&pointers) {
            self.pending.as_ref().map_or(Ok(()), |pending| pending.let_go(place))?;
        }
        Ok(())
    }

    /// imago has written everything, nobody writes, and all pointers are published.
    pub(crate) fn is_complete(&self) {
        self.known.lock().forget_counted();
    }

    /// Makes durable what is written, if anything is.
    pub(crate) async fn settle(&self) -> io::Result<()> {
        let _alone = self.barrier.lock().await;
        if self.marks.written.is_open() || self.marks.tables.is_open() {
            return self.sync_alone().await;
        }
        self.lost.told()
    }

    /// Makes everything durable: data, too, that went another way.
    pub(crate) async fn sync(&self) -> io::Result<()> {
        self.drain().await?;
        let _alone = self.barrier.lock().await;
        self.sync_alone().await
    }

    async fn sync_alone(&self) -> io::Result<()> {
        let (written, tables) = (self.marks.written.now(), self.marks.tables.now());
        let (lower, lost) = (Arc::clone(&self.lower), Arc::clone(&self.lost));
        self.lanes.run(move || lost.sync(Depth::Data, || data::sync_data(&*lower))).await?;
        self.marks.written.close(written);
        self.marks.tables.close(tables);
        Ok(())
    }

    /// Gives the place of freed clusters back to the file system.
    pub(crate) async fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let lower = Arc::clone(&self.lower);
        let punch = move || match data::fallocate(&*lower, PUNCH_HOLE | KEEP_SIZE, offset, len) {
            // It keeps its space there.
            Err(OsError::OPNOTSUPP | OsError::NODEV | OsError::INVAL) => Ok(()),
            outcome => Ok(outcome?),
        };
        self.lanes.run(punch).await
    }

    fn kind_of(&self, offset: u64, len: usize) -> Kind {
        self.known.lock().kind_of(offset, len as u64)
    }

    async fn write_header(&self, bytes: &[u8]) -> io::Result<()> {
        let (table_moves, blocks_move) = self.known.lock().moves(bytes);
        if table_moves {
            self.publish().await?;
            let clusters = self.known.lock().first_table_of(bytes);
            for cluster in clusters {
                self.count(cluster)?;
            }
        }
        if table_moves || blocks_move {
            self.settle().await?;
        }
        put(&self.lower, bytes, 0)?;
        self.marks.written.add();
        let reftable = if blocks_move { Some(self.read_reftable(bytes)?) } else { None };
        self.known.lock().leads(bytes, reftable.as_deref());
        // What it led to before is freed next.
        if table_moves || blocks_move { self.settle().await } else { Ok(()) }
    }

    fn read_reftable(&self, header: &[u8]) -> io::Result<Vec<u8>> {
        let (offset, len) = self.known.lock().reftable_of(header);
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::InvalidData)?];
        let mut filled = 0;
        while filled < bytes.len() {
            match data::read_at(&*self.lower, &mut bytes[filled..], offset + filled as u64)? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(bytes)
    }

    async fn write_block_pointers(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let new = self.known.lock().new_blocks(offset, bytes);
        for block in new {
            self.count(block)?;
        }
        self.settle().await?;
        put(&self.lower, bytes, offset)?;
        self.marks.written.add();
        Ok(())
    }

    /// Sees to it that a cluster is counted on the disk.
    fn count(&self, cluster: u64) -> io::Result<()> {
        let found = self.known.lock().count_of(cluster);
        let (place, count) = found.ok_or_else(|| io::Error::other("a cluster of the image has no count"))?;
        let _alone = self.blocks.lock();
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..count.len];
        let _short = data::read_at(&*self.lower, bytes, place)?;
        if count.raise(bytes) {
            put(&self.lower, bytes, place)?;
            self.marks.written.add();
        }
        Ok(())
    }

    fn put_block(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let _alone = self.blocks.lock();
        let mut block = bytes.to_vec();
        self.known.lock().raise(offset, &mut block);
        put(&self.lower, &block, offset)
    }

    /// Writes, and lets go of what says that it is under way when it is done, whoever still waits for it.
    async fn put(
        &self,
        bytes: &[u8],
        offset: u64,
        moving: tokio::sync::OwnedRwLockReadGuard<()>,
    ) -> io::Result<()> {
        if bytes.len() <= INLINE_MAX {
            return put(&self.lower, bytes, offset);
        }
        let (lower, own) = (Arc::clone(&self.lower), bytes.to_vec());
        let write = move || {
            let _moving = moving;
            put(&lower, &own, offset)
        };
        self.lanes.run(write).await
    }
}

/// Writes all of it.
pub(crate) fn put(lower: &LowerFile, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = data::write_at(lower, bytes, offset)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[written..];
        offset += written as u64;
    }
    Ok(())
}
