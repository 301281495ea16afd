//! Changes of tables that were answered for and are not in the image file yet: in memory that the next server has, too.
//!
//! A table may go to the file when what it leads to is durable ([`crate::order`]), and an answer shall not wait for that. So a changed table of the
//! second kind is put here, and so is a changed entry of the first table; whoever reads the image reads them over what is in the file. They go to
//! the file with the next `fsync`, before anything is freed, and when there are many.
//!
//! There are three files in memory, with holes, in which everything has the place that it has in the image: the tables; a byte for each
//! cluster that has one here; and the entries, with the lowest bit set, which no entry has. A table is written first and marked last.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use shuntfs_sys::{OsError, data, memory};

/// So many bytes of tables are kept here at most, before they go to the file.
const BYTES_MAX: u64 = 16 << 20;
const HELD: u64 = 1;
const PAGE: usize = 4096;

/// The memory, which outlives servers.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    pub(crate) tables: Arc<File>,
    pub(crate) marks: Arc<File>,
    pub(crate) entries: Arc<File>,
}

impl Shelf {
    pub(crate) fn new() -> io::Result<Self> {
        let file = |name: &CStr| Ok::<_, io::Error>(Arc::new(memory::file_in_memory(name)?));
        Ok(Self {
            tables: file(c"shunt-tables")?,
            marks: file(c"shunt-marks")?,
            entries: file(c"shunt-entries")?,
        })
    }
}

/// What waits there for an image.
#[derive(Debug)]
pub(crate) struct Pending {
    shelf: Shelf,
    cluster: u64,
    /// The tables, by their place, each with how often it was changed here.
    places: Mutex<BTreeMap<u64, u64>>,
    count: AtomicUsize,
}

/// A table as it was at a time.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) place: u64,
    pub(crate) bytes: Vec<u8>,
    version: u64,
}

impl Pending {
    /// With what dead servers left.
    pub(crate) fn new(shelf: Shelf, cluster: u64) -> io::Result<Self> {
        let marked = found(&shelf.marks, 1, |byte| byte[0] == 1)?;
        let places: BTreeMap<u64, u64> =
            marked.into_iter().map(|(number, _)| (number * cluster, 0)).collect();
        let count = places.len().into();
        Ok(Self { shelf, cluster, places: Mutex::new(places), count })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Whether it is time to write them to the file.
    pub(crate) fn is_full(&self) -> bool {
        self.count.load(Ordering::Acquire) as u64 * self.cluster > BYTES_MAX
    }

    /// Puts a table here.
    pub(crate) fn put(&self, bytes: &[u8], place: u64) -> io::Result<()> {
        let mut places = self.places.lock();
        self.shelf.tables.write_all_at(bytes, place)?;
        if let Some(version) = places.get_mut(&place) {
            *version += 1;
            return Ok(());
        }
        self.shelf.marks.write_all_at(&[1], place / self.cluster)?;
        places.insert(place, 0);
        self.count.store(places.len(), Ordering::Release);
        Ok(())
    }

    /// Reads what is here over what was read from the file.
    pub(crate) fn read_over(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let end = offset.saturating_add(bytes.len() as u64);
        let first = offset / self.cluster * self.cluster;
        let places = self.places.lock();
        for place in places.range(first..end).map(|(place, _)| *place) {
            let (from, to) = (place.max(offset), (place + self.cluster).min(end));
            let (Ok(from), Ok(to)) = (usize::try_from(from - offset), usize::try_from(to - offset)) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            fill(&self.shelf.tables, &mut bytes[from..to], offset + from as u64)?;
        }
        Ok(())
    }

    /// All tables as they are now.
    pub(crate) fn all(&self) -> io::Result<Vec<Waiting>> {
        let places = self.places.lock();
        let len = usize::try_from(self.cluster).map_err(|_| io::ErrorKind::InvalidInput)?;
        let read = |(place, version): (&u64, &u64)| {
            let mut bytes = vec![0; len];
            fill(&self.shelf.tables, &mut bytes, *place)?;
            Ok(Waiting { place: *place, bytes, version: *version })
        };
        places.iter().map(read).collect()
    }

    /// A table is in the file as it was: unless it has changed since, it is not needed here.
    pub(crate) fn written(&self, table: &Waiting) -> io::Result<()> {
        let mut places = self.places.lock();
        if places.get(&table.place) != Some(&table.version) {
            return Ok(());
        }
        self.shelf.marks.write_all_at(&[0], table.place / self.cluster)?;
        places.remove(&table.place);
        self.count.store(places.len(), Ordering::Release);
        // Its memory is given back; where that fails, it is used again.
        let _kept = data::fallocate(&*self.shelf.tables, 3, table.place, self.cluster);
        Ok(())
    }

    /// Puts an entry of the first table here.
    pub(crate) fn hold(&self, place: u64, entry: u64) -> io::Result<()> {
        self.shelf.entries.write_all_at(&(entry | HELD).to_be_bytes(), place)
    }

    /// An entry is in the file.
    pub(crate) fn let_go(&self, place: u64) -> io::Result<()> {
        self.shelf.entries.write_all_at(&[0; 8], place)
    }

    /// The entries that dead servers left here, by their places.
    pub(crate) fn entries(&self) -> io::Result<BTreeMap<u64, u64>> {
        let all = found(&self.shelf.entries, 8, |word| word[7] & 1 == 1)?;
        let entry = |word: &[u8]| word.first_chunk().map_or(0, |word| u64::from_be_bytes(*word) & !HELD);
        Ok(all.into_iter().map(|(number, word)| (number * 8, entry(&word))).collect())
    }
}

/// The records of a length that are something, by their number.
fn found(file: &File, len: usize, is_one: impl Fn(&[u8]) -> bool) -> io::Result<Vec<(u64, Vec<u8>)>> {
    let (mut all, mut at) = (Vec::new(), 0);
    loop {
        at = match data::seek_data(file, at) {
            // By whole pages, as memory is.
            Ok(next) => next / PAGE as u64 * PAGE as u64,
            Err(OsError::NXIO) => return Ok(all),
            Err(error) => return Err(error.into()),
        };
        let mut page = [0; PAGE];
        fill(file, &mut page, at)?;
        let first = at / len as u64;
        let records = (first..).zip(page.chunks_exact(len)).filter(|(_, record)| is_one(record));
        all.extend(records.map(|(number, record)| (number, record.to_vec())));
        at += PAGE as u64;
    }
}

/// What is beyond the end is zero.
fn fill(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let read = data::read_at(file, bytes, offset)?;
        if read == 0 {
            bytes.fill(0);
            return Ok(());
        }
        bytes = &mut bytes[read..];
        offset += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod test {
    use super::*;

    const CLUSTER: u64 = 4096;

    fn pending(shelf: &Shelf) -> Pending {
        Pending::new(shelf.clone(), CLUSTER).expect("reads")
    }

    fn read(pending: &Pending, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![9; len];
        pending.read_over(&mut bytes, offset).expect("reads");
        bytes
    }

    #[test]
    fn the_next_server_has_the_tables_that_were_put_and_not_written() {
        let shelf = Shelf::new().expect("there is memory");
        let first = pending(&shelf);
        assert!(first.is_empty());
        let places = [3 * CLUSTER, 4 * CLUSTER, 1 << 50];
        for (byte, place) in (1..).zip(places) {
            first.put(&[byte; 4096], place).expect("puts");
        }
        let next = pending(&shelf);
        assert!(!next.is_empty() && !next.is_full());
        assert_eq!(
            read(&next, 2 * CLUSTER + 4000, 4192 + 96),
            [vec![9; 96], vec![1; 4096], vec![2; 96]].concat()
        );
        assert_eq!(read(&next, 4 * CLUSTER + 4095, 2), [2, 9]);
        assert_eq!(read(&next, (1 << 50) - 1, 3), [9, 3, 3]);
        assert_eq!(read(&next, 0, 4096), [9; 4096]);
        let all = next.all().expect("reads");
        assert_eq!(all.iter().map(|table| table.place).collect::<Vec<_>>(), places);
        next.put(&[7; 4096], places[1]).expect("puts");
        all.iter().for_each(|table| next.written(table).expect("writes"));
        let last = pending(&shelf);
        let left = last.all().expect("reads");
        assert_eq!(left.len(), 1, "one has changed since");
        assert_eq!((left[0].place, &left[0].bytes), (places[1], &vec![7; 4096]));
        last.written(&left[0]).expect("writes");
        assert!(last.is_empty() && pending(&shelf).is_empty());
    }

    #[test]
    fn the_next_server_has_the_entries_that_are_held() {
        let shelf = Shelf::new().expect("there is memory");
        let first = pending(&shelf);
        let entries = [(0x3_0000, 0x8000_0000_0005_0000), (0x3_0008, 0), (1 << 40, 0x8000_0000_0006_0000)];
        for (place, entry) in entries {
            first.hold(place, entry).expect("puts");
        }
        assert_eq!(pending(&shelf).entries().expect("reads"), BTreeMap::from(entries));
        first.let_go(0x3_0000).expect("puts");
        assert_eq!(pending(&shelf).entries().expect("reads"), BTreeMap::from([entries[1], entries[2]]));
    }
}
