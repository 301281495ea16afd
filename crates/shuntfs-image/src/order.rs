//! In which order the tables of a qcow2 image reach the disk, so that a power cut, or the end of this process, at any time leaves
//! clusters that nobody uses at most.
//!
//! imago orders its writes in memory, and only some of them: it counts the cluster of a new table in its cache, and writes the pointer
//! to the table at once. So what it writes is examined here, and sorted by what it is:
//!
//! - **Pointers** (entries of the first table, to tables of the second kind) are held until all that they lead to is durable
//!   and counted on the disk ([`publish`](crate::tables::Tables::publish)). Until then what they lead to is nobody's.
//! - **Tables** of the second kind that the disk knows are written when the counts and the data that they lead to are durable.
//! - **Blocks** of reference counts, and clusters that are used anew, are written when the tables that no longer lead to what
//!   was freed are durable. Where nothing was freed, nothing waits.
//! - The **header** and the table of the blocks are written when what they lead to is durable and counted, and are durable before
//!   what they led to is freed.
//!
//! The bytes of clusters that are there already go past all this. A barrier is `fdatasync`; writes and barriers are
//! numbered, so that a barrier is left out where nothing was written since the last.
//!
//! Where another server may go on, tables and pointers that wait do so in memory that it has, too ([`crate::pending`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::counts::Count;
use crate::header::u64_at;

/// The place in an entry of a table.
pub(crate) const PLACE: u64 = 0x00ff_ffff_ffff_fe00;
/// The part of the header that changes: that of version 2.
pub(crate) const HEADER_LEN: usize = 72;

/// What a write is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Header,
    Pointers,
    BlockPointers,
    Block,
    Table,
    Other,
}

/// What the disk leads to, and what waits.
#[derive(Debug)]
pub(crate) struct Known {
    cluster: u64,
    refcount_order: u32,
    header: [u8; HEADER_LEN],
    l1: Range<u64>,
    reftable: Range<u64>,
    /// The blocks of reference counts, by what they count.
    entries: Vec<u64>,
    blocks: HashMap<u64, usize>,
    tables: HashSet<u64>,
    /// Entries of the first table that are not written yet, by their place.
    held: BTreeMap<u64, u64>,
    /// Clusters that were counted here, which imago may not have written yet.
    counted: BTreeSet<u64>,
}

impl Known {
    /// Of the header, the first table and the table of blocks, as they are on the disk.
    pub(crate) fn new(header: [u8; HEADER_LEN], refcount_order: u32, l1: &[u8], reftable: &[u8]) -> Self {
        let cluster = 1 << u32::from_be_bytes([header[20], header[21], header[22], header[23]]).min(30);
        let mut known = Self {
            cluster,
            refcount_order,
            header,
            l1: 0..0,
            reftable: 0..0,
            entries: Vec::new(),
            blocks: HashMap::new(),
            tables: words(l1).map(|entry| entry & PLACE).filter(|place| *place != 0).collect(),
            held: BTreeMap::new(),
            counted: BTreeSet::new(),
        };
        known.led_by(header);
        known.blocks_are(reftable);
        known
    }

    fn led_by(&mut self, header: [u8; HEADER_LEN]) {
        self.header = header;
        let (l1_len, l1) = (u64::from(self.u32_at(36)) * 8, self.u64_at(40));
        self.l1 = l1..l1.saturating_add(l1_len);
        let (reftable, len) = (self.u64_at(48), u64::from(self.u32_at(56)) * self.cluster);
        self.reftable = reftable..reftable.saturating_add(len);
    }

    fn blocks_are(&mut self, reftable: &[u8]) {
        self.entries = words(reftable).map(|entry| entry & PLACE).collect();
        let blocks = self.entries.iter().enumerate().filter(|(_, place)| **place != 0);
        self.blocks = blocks.map(|(index, place)| (*place, index)).collect();
    }

    fn u32_at(&self, place: usize) -> u32 {
        crate::header::u32_at(&self.header, place).unwrap_or_default()
    }

    fn u64_at(&self, place: usize) -> u64 {
        u64_at(&self.header, place).unwrap_or_default()
    }

    pub(crate) fn cluster(&self) -> u64 {
        self.cluster
    }

    /// Sorts a write.
    pub(crate) fn kind_of(&self, offset: u64, len: u64) -> Kind {
        if offset == 0 && len >= HEADER_LEN as u64 {
            Kind::Header
        } else if self.l1.contains(&offset) {
            Kind::Pointers
        } else if self.reftable.contains(&offset) {
            Kind::BlockPointers
        } else if len == self.cluster && self.blocks.contains_key(&offset) {
            Kind::Block
        } else if len == self.cluster && self.tables.contains(&offset) {
            Kind::Table
        } else {
            Kind::Other
        }
    }

    /// Keeps pointers for later.
    pub(crate) fn hold(&mut self, offset: u64, bytes: &[u8]) {
        self.held.extend((offset..).step_by(8).zip(words(bytes)));
    }

    /// Entries that a dead server held.
    pub(crate) fn holds_again(&mut self, entries: BTreeMap<u64, u64>) {
        self.held = entries;
    }

    /// Puts the entries that are held over what was read from the file.
    pub(crate) fn read_over(&self, bytes: &mut [u8], offset: u64) {
        let end = offset.saturating_add(bytes.len() as u64);
        for (place, entry) in self.held.range(offset..end) {
            let from = usize::try_from(place - offset).unwrap_or(usize::MAX);
            if let Some(word) = bytes.get_mut(from..).and_then(|rest| rest.first_chunk_mut()) {
                *word = entry.to_be_bytes();
            }
        }
    }

    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// The pointers that are held. What they lead to is a table of the disk from now on.
    pub(crate) fn publishable(&mut self) -> Vec<(u64, u64)> {
        self.tables.extend(self.held.values().map(|entry| entry & PLACE).filter(|place| *place != 0));
        self.held.iter().map(|(place, entry)| (*place, *entry)).collect()
    }

    /// These are written; those that are held no longer.
    pub(crate) fn published(&mut self, pointers: &[(u64, u64)]) -> Vec<u64> {
        let is_last = |(place, entry): &&(u64, u64)| self.held.get(place) == Some(entry);
        let places: Vec<u64> = pointers.iter().filter(is_last).map(|(place, _)| *place).collect();
        self.held.retain(|place, _| !places.contains(place));
        places
    }

    /// What of a new header leads elsewhere: the first table, and the table of blocks.
    pub(crate) fn moves(&self, header: &[u8]) -> (bool, bool) {
        let differs = |range: Range<usize>| header.get(range.clone()) != self.header.get(range);
        (differs(36..48), differs(48..60))
    }

    /// The clusters of the first table that a new header leads to.
    pub(crate) fn first_table_of(&self, header: &[u8]) -> impl Iterator<Item = u64> + use<> {
        let entries = u64::from(crate::header::u32_at(header, 36).unwrap_or_default());
        let (start, cluster) = (u64_at(header, 40).unwrap_or_default(), self.cluster);
        (0..(entries * 8).div_ceil(cluster)).map(move |number| start.saturating_add(number * cluster))
    }

    /// Where the table of blocks is that a header leads to.
    pub(crate) fn reftable_of(&self, header: &[u8]) -> (u64, u64) {
        let clusters = u64::from(crate::header::u32_at(header, 56).unwrap_or_default());
        (u64_at(header, 48).unwrap_or_default(), clusters * self.cluster)
    }

    /// The header is written; and the table of blocks where it moved.
    pub(crate) fn leads(&mut self, header: &[u8], reftable: Option<&[u8]>) {
        if let Some(header) = header.first_chunk() {
            self.led_by(*header);
        }
        if let Some(reftable) = reftable {
            self.blocks_are(reftable);
        }
    }

    /// Takes note of new blocks, and says where they are.
    pub(crate) fn new_blocks(&mut self, offset: u64, bytes: &[u8]) -> Vec<u64> {
        let first = usize::try_from((offset - self.reftable.start) / 8).unwrap_or(usize::MAX);
        let mut new = Vec::new();
        for (index, entry) in (first..).zip(words(bytes)) {
            let (Some(known), place) = (self.entries.get_mut(index), entry & PLACE) else { continue };
            if place != 0 && *known != place {
                *known = place;
                self.blocks.insert(place, index);
                new.push(place);
            }
        }
        new
    }

    fn in_block(&self) -> u64 {
        (self.cluster * 8) >> self.refcount_order
    }

    /// Where the count of the cluster at `offset` is on the disk, which is from now on at least one.
    pub(crate) fn count_of(&mut self, offset: u64) -> Option<(u64, Count)> {
        let number = offset / self.cluster;
        let index = usize::try_from(number / self.in_block()).ok()?;
        let block = self.entries.get(index).copied().filter(|block| *block != 0)?;
        self.counted.insert(number);
        let count = Count::at(number % self.in_block(), self.refcount_order);
        Some((block + count.byte, count))
    }

    /// Puts into a block what was counted here and imago may not know to be on the disk.
    pub(crate) fn raise(&self, offset: u64, block: &mut [u8]) {
        let Some(index) = self.blocks.get(&offset) else { return };
        let in_block = self.in_block();
        let first = *index as u64 * in_block;
        for number in self.counted.range(first..first.saturating_add(in_block)) {
            let count = Count::at(number - first, self.refcount_order);
            let place = usize::try_from(count.byte).unwrap_or(usize::MAX);
            if let Some(bytes) = block.get_mut(place..).and_then(|rest| rest.get_mut(..count.len)) {
                count.raise(bytes);
            }
        }
    }

    /// imago has written all counts, and nothing is under way.
    pub(crate) fn forget_counted(&mut self) {
        self.counted.clear();
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(8).filter_map(|word| word.first_chunk().map(|word| u64::from_be_bytes(*word)))
}

/// Numbers writes, and says up to which they are durable.
#[derive(Debug, Default)]
pub(crate) struct Mark {
    done: AtomicU64,
    durable: AtomicU64,
}

impl Mark {
    /// One more, which is done.
    pub(crate) fn add(&self) {
        self.done.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn now(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.now() > self.durable.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self, upto: u64) {
        self.durable.fetch_max(upto, Ordering::AcqRel);
    }
}

/// What is written and not yet durable.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Data, counts, and tables that nothing leads to yet.
    pub(crate) written: Mark,
    /// Tables that the disk leads to.
    pub(crate) tables: Mark,
    /// How often clusters were freed.
    pub(crate) freed: Mark,
}

/// What is shared: never across an await.
pub(crate) type Shared = Mutex<Known>;
