//! The internal snapshots of a qcow2 image. Bytes in, facts out.

use thiserror::Error;

use crate::header::{HeaderError, bytes_at, u32_at, u64_at};

/// What QEMU allows at most.
const COUNT_MAX: u32 = 65536;
/// An entry without its variable parts.
const FIXED_LEN: usize = 40;

/// One internal snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// Its number, which is text.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where its first table is, in bytes.
    pub l1_offset: u64,
    /// How many entries that has.
    pub l1_entries: u32,
    /// Size of the disk then, in bytes; as the image's where it is not said.
    pub disk_size: Option<u64>,
}

/// Why a snapshot is not available.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// There is none of that name.
    #[error("there is no snapshot `{wanted}`; there are: {there}")]
    Missing {
        /// What was asked for.
        wanted: String,
        /// What there is.
        there: String,
    },
    /// The table cannot be read.
    #[error("the table of snapshots is broken: {0}")]
    Broken(#[from] HeaderError),
}

/// The longest table that `count` entries can be, for reading no more of the file than that.
pub(crate) fn table_max(count: u32) -> u64 {
    // Two texts of at most 64 KiB and 1 KiB of extra data each, and no more than 64 MiB altogether.
    (u64::from(count) * (2 * 65536 + 1024)).min(64 << 20)
}

/// Reads the table.
///
/// # Errors
/// Where it ends too early, or has more entries than there may be.
pub(crate) fn parse(table: &[u8], count: u32) -> Result<Vec<Snapshot>, HeaderError> {
    if count > COUNT_MAX {
        return Err(HeaderError::Broken("too many snapshots"));
    }
    let mut place = 0_usize;
    let mut found = Vec::new();
    for _ in 0..count {
        let lens = u32_at(table, place + 12)?;
        let (id_len, name_len) = (lens >> 16, lens & 0xffff);
        let extra_len = u32_at(table, place + 36)?;
        let extra = bytes_at(table, place + FIXED_LEN, extra_len)?;
        let texts = place + FIXED_LEN + extra.len();
        let id = bytes_at(table, texts, id_len)?;
        let name = bytes_at(table, texts + id.len(), name_len)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        found.push(Snapshot {
            id: text(id),
            name: text(name),
            l1_offset: u64_at(table, place)?,
            l1_entries: u32_at(table, place + 8)?,
            disk_size: u64_at(extra, 8).ok(),
        });
        place = (texts + id.len() + name.len()).next_multiple_of(8);
    }
    Ok(found)
}

/// Finds a snapshot by its name, or else by its number.
///
/// # Errors
/// Where there is none.
pub(crate) fn find(all: Vec<Snapshot>, wanted: &str) -> Result<Snapshot, SnapshotError> {
    let place = all
        .iter()
        .position(|snapshot| snapshot.name == wanted)
        .or_else(|| all.iter().position(|snapshot| snapshot.id == wanted));
    let names = all.iter().map(|snapshot| snapshot.name.as_str()).collect::<Vec<_>>().join(", ");
    let there = if names.is_empty() { "none".to_owned() } else { names };
    place
        .and_then(|place| all.into_iter().nth(place))
        .ok_or_else(|| SnapshotError::Missing { wanted: wanted.to_owned(), there })
}

/// The first bytes of an image, changed so that they show a snapshot: size and first table are the snapshot's, and there
/// are no further snapshots.
pub(crate) fn header_of(header: &[u8], snapshot: &Snapshot) -> Option<Box<[u8]>> {
    let mut shown: Box<[u8]> = header.get(..72)?.into();
    if let Some(size) = snapshot.disk_size {
        shown[24..32].copy_from_slice(&size.to_be_bytes());
    }
    shown[36..40].copy_from_slice(&snapshot.l1_entries.to_be_bytes());
    shown[40..48].copy_from_slice(&snapshot.l1_offset.to_be_bytes());
    shown[60..72].fill(0);
    Some(shown)
}

#[cfg(test)]
mod test {
    use super::*;

    fn entry(id: &str, name: &str, extra: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; FIXED_LEN];
        bytes[..8].copy_from_slice(&0x5_0000_u64.to_be_bytes());
        bytes[8..12].copy_from_slice(&7_u32.to_be_bytes());
        bytes[12..14].copy_from_slice(&u16::try_from(id.len()).expect("short").to_be_bytes());
        bytes[14..16].copy_from_slice(&u16::try_from(name.len()).expect("short").to_be_bytes());
        bytes[36..40].copy_from_slice(&u32::try_from(extra.len()).expect("short").to_be_bytes());
        bytes.extend([extra, id.as_bytes(), name.as_bytes()].concat());
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    #[test]
    fn snapshots_are_found_by_name_and_by_number() {
        let extra = [0_u64.to_be_bytes(), 4096_u64.to_be_bytes()].concat();
        let table = [entry("1", "before", &extra), entry("2", "1", &[])].concat();
        let all = parse(&table, 2).expect("is one");
        assert_eq!(all[0].disk_size, Some(4096));
        assert_eq!(all[1].disk_size, None);
        assert_eq!(find(all.clone(), "before").expect("is there").id, "1");
        assert_eq!(find(all.clone(), "1").expect("a name comes first").id, "2");
        assert_eq!(find(all.clone(), "2").expect("by its number").name, "1");
        let said = find(all.clone(), "after").expect_err("is not").to_string();
        assert!(said.contains("`after`") && said.contains("before, 1"), "{said}");
        let shown = header_of(&[0xff; 100], &all[0]).expect("long enough");
        assert_eq!(shown[24..32], 4096_u64.to_be_bytes());
        assert_eq!(shown[36..40], 7_u32.to_be_bytes());
        for len in 0..table.len() {
            let _refused_or_read = parse(&table[..len], 2);
        }
        assert!(parse(&table, 3).is_err() && parse(&table, u32::MAX).is_err());
    }
}
