//! The reference counts of a qcow2 image, looked at before it is opened for writing: whether the clusters of its own tables
//! are counted. Where they are not, what is allocated would lie over them, or the search for a free cluster never end.

use std::io;

use crate::header::{Header, HeaderError, u64_at};

/// What QEMU lets the table take, in bytes.
const TABLE_MAX: u64 = 8 << 20;
const PLACE: u64 = 0x00ff_ffff_ffff_fe00;

/// Reads a part of the image: fewer bytes where it ends.
pub(crate) type Read<'a> = &'a dyn Fn(u64, u64) -> io::Result<Vec<u8>>;

/// Checks the table and its blocks, and that the tables of the image are counted.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn check(header: &Header, file_len: u64, read: Read<'_>) -> Result<(), HeaderError> {
    let cluster = header.cluster_size;
    let len = u64::from(header.refcount_clusters) * cluster;
    if len == 0 || len > TABLE_MAX || header.refcount_offset == 0 {
        return Err(HeaderError::Broken("the table of its reference counts"));
    }
    let inside = |offset: u64, len: u64| {
        offset.is_multiple_of(cluster) && offset.checked_add(len).is_some_and(|end| end <= file_len)
    };
    if !inside(header.refcount_offset, len) {
        return Err(HeaderError::Broken("the place of its reference counts"));
    }
    let table = read(header.refcount_offset, len).map_err(|_| HeaderError::Short)?;
    let entries: Vec<u64> = (0..table.len() / 8).filter_map(|entry| u64_at(&table, entry * 8).ok()).collect();
    // A block that was added last may end before the file's next cluster does.
    if entries.iter().any(|entry| entry & !PLACE != 0 || (*entry != 0 && !inside(*entry, 1))) {
        return Err(HeaderError::Broken("the place of a block of its reference counts"));
    }
    let l1_len = (u64::from(header.l1_entries) * 8).max(1);
    let ranges = [(0, 1), (header.refcount_offset, len), (header.l1_offset, l1_len)];
    let blocks = entries.iter().filter(|entry| **entry != 0).map(|entry| (*entry, 1));
    for (offset, len) in ranges.into_iter().chain(blocks) {
        for number in offset / cluster..(offset + len).div_ceil(cluster) {
            if !is_counted(header, &entries, number, read)? {
                return Err(HeaderError::Broken(
                    "its tables are not counted; repair it: qemu-img check -r all",
                ));
            }
        }
    }
    Ok(())
}

fn is_counted(header: &Header, entries: &[u64], number: u64, read: Read<'_>) -> Result<bool, HeaderError> {
    let bits = 1_u64 << header.refcount_order;
    let in_block = header.cluster_size * 8 / bits;
    let block = usize::try_from(number / in_block).ok().and_then(|place| entries.get(place)).copied();
    let Some(block) = block.filter(|block| *block != 0) else { return Ok(false) };
    let bit = number % in_block * bits;
    let bytes = read(block + bit / 8, bits.div_ceil(8)).map_err(|_| HeaderError::Short)?;
    if bits >= 8 {
        return Ok(bytes.iter().any(|byte| *byte != 0));
    }
    let byte = bytes.first().copied().unwrap_or(0);
    Ok(byte >> (bit % 8) & ((1_u16 << bits) - 1).to_le_bytes()[0] != 0)
}
