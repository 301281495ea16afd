//! The header of a qcow2 image, as far as it decides whether and how the image is opened. Bytes in, facts out.
//!
//! imago reads the header again for its own use. This reader comes first, because a refusal has to say what is not
//! supported, and because imago clears bits of a header that it then refuses.

use thiserror::Error;

const MAGIC: &[u8; 4] = b"QFI\xfb";
/// The length of the header of version 2, and of what version 3 has at least.
const LEN_V2: usize = 72;
const LEN_V3: usize = 104;
const BACKING_FORMAT: u32 = 0xe279_2aca;
/// The longest name of a backing file that the format allows.
const NAME_MAX: u32 = 1023;
/// What QEMU allows the first table to have, in bytes.
const L1_MAX: u64 = 32 << 20;

const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const DATA_FILE: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;
const EXTENDED: u64 = 1 << 4;

/// What the header says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// Size of the disk in bytes.
    pub size: u64,
    /// Size of a cluster in bytes.
    pub cluster_size: u64,
    /// The name of the backing file.
    pub backing: Option<String>,
    /// The backing file's format, where it is said.
    pub backing_format: Option<String>,
    /// How many internal snapshots there are.
    pub snapshots: u32,
    /// Where their table is, in bytes.
    pub snapshots_offset: u64,
    /// Where the first table is, in bytes.
    pub l1_offset: u64,
    /// How many entries it has.
    pub l1_entries: u32,
    /// Where the table of reference counts is, in bytes.
    pub refcount_offset: u64,
    /// How many clusters it has.
    pub refcount_clusters: u32,
    /// A reference count has two to the power of this many bits.
    pub refcount_order: u32,
}

/// Why an image is not opened.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// It is something else.
    #[error("this is not a qcow2 image")]
    NotQcow2,
    /// It ends too early.
    #[error("the header is cut off")]
    Short,
    /// A number in it cannot be.
    #[error("the header is broken: {0}")]
    Broken(&'static str),
    /// What we cannot do.
    #[error("the image has {0}, which is not supported")]
    Unsupported(String),
    /// Somebody did not end well.
    #[error("the image was not closed; repair it: qemu-img check -r all")]
    Dirty,
    /// Somebody found it broken.
    #[error("the image is marked as corrupt; see: qemu-img check")]
    Corrupt,
}

/// Whether these first bytes of a file are of a qcow image, of whichever version.
pub(crate) fn is_qcow(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

/// The size of the first cluster, which holds all of the header.
///
/// # Errors
/// Where that cannot be.
pub(crate) fn cluster_size(start: &[u8]) -> Result<u64, HeaderError> {
    if !start.starts_with(MAGIC) {
        return Err(HeaderError::NotQcow2);
    }
    // What follows is elsewhere in other versions.
    match u32_at(start, 4)? {
        2 | 3 => {}
        other => return Err(HeaderError::Unsupported(format!("version {other}"))),
    }
    match u32_at(start, 20)? {
        bits @ 9..=21 => Ok(1 << bits),
        _ => Err(HeaderError::Broken("the size of a cluster")),
    }
}

impl Header {
    /// Reads a header from the first cluster of an image, or from all of a shorter one.
    ///
    /// # Errors
    /// Where it is none, a broken one, or one that asks for what we do not have.
    pub fn parse(cluster: &[u8]) -> Result<Self, HeaderError> {
        let cluster_size = cluster_size(cluster)?;
        let version = u32_at(cluster, 4)?;
        let end = match version {
            2 => LEN_V2,
            _ => usize::try_from(u32_at(cluster, 100)?).map_err(|_| HeaderError::Short)?,
        };
        if version == 3 && (end < LEN_V3 || end as u64 > cluster_size || !end.is_multiple_of(8)) {
            return Err(HeaderError::Broken("its length"));
        }
        check_features(cluster, version)?;
        let size = u64_at(cluster, 24)?;
        check_first_table(cluster, size, cluster_size)?;
        Ok(Self {
            version,
            size,
            cluster_size,
            backing: backing(cluster, cluster_size)?,
            backing_format: backing_format(cluster, end)?,
            snapshots: u32_at(cluster, 60)?,
            snapshots_offset: u64_at(cluster, 64)?,
            l1_offset: u64_at(cluster, 40)?,
            l1_entries: u32_at(cluster, 36)?,
            refcount_offset: u64_at(cluster, 48)?,
            refcount_clusters: u32_at(cluster, 56)?,
            refcount_order: if version == 2 { 4 } else { u32_at(cluster, 96)? },
        })
    }
}

fn check_features(cluster: &[u8], version: u32) -> Result<(), HeaderError> {
    let unsupported = |what: &str| Err(HeaderError::Unsupported(what.to_owned()));
    match u32_at(cluster, 32)? {
        0 => {}
        1 | 2 => return unsupported("encryption"),
        _ => return Err(HeaderError::Broken("the method of encryption")),
    }
    if version == 2 {
        return Ok(());
    }
    let bits = u64_at(cluster, 72)?;
    if bits & CORRUPT != 0 {
        return Err(HeaderError::Corrupt);
    }
    if bits & DIRTY != 0 {
        return Err(HeaderError::Dirty);
    }
    for (bit, name) in [
        (DATA_FILE, "an external data file"),
        (COMPRESSION, "clusters compressed otherwise than by zlib"),
        (EXTENDED, "subclusters (extended L2 entries)"),
    ] {
        if bits & bit != 0 {
            return unsupported(name);
        }
    }
    if bits >> 5 != 0 {
        return unsupported(&format!("unknown features (bits {:#x})", bits >> 5 << 5));
    }
    if u32_at(cluster, 96)? > 6 {
        return Err(HeaderError::Broken("the width of its reference counts"));
    }
    Ok(())
}

/// The first table must cover the disk, and no more than QEMU lets it: what it takes in memory is bounded by that.
fn check_first_table(cluster: &[u8], size: u64, cluster_size: u64) -> Result<(), HeaderError> {
    let (entries, offset) = (u64::from(u32_at(cluster, 36)?), u64_at(cluster, 40)?);
    if size > i64::MAX.unsigned_abs() {
        return Err(HeaderError::Broken("the size of the disk"));
    }
    if entries * 8 > L1_MAX {
        return Err(HeaderError::Broken("the first table is too large"));
    }
    // A table of the second kind fills one cluster with entries of 8 bytes, each for one cluster.
    let covered = entries.saturating_mul(cluster_size / 8 * cluster_size);
    if covered < size {
        return Err(HeaderError::Broken("the first table is too small for the disk"));
    }
    if !offset.is_multiple_of(cluster_size) || (entries > 0 && offset == 0) {
        return Err(HeaderError::Broken("the place of the first table"));
    }
    Ok(())
}

fn backing(cluster: &[u8], cluster_size: u64) -> Result<Option<String>, HeaderError> {
    let (offset, len) = (u64_at(cluster, 8)?, u32_at(cluster, 16)?);
    if offset == 0 || len == 0 {
        return Ok(None);
    }
    if len > NAME_MAX || offset.checked_add(len.into()).is_none_or(|end| end > cluster_size) {
        return Err(HeaderError::Broken("the name of the backing file"));
    }
    let place = usize::try_from(offset).map_err(|_| HeaderError::Short)?;
    let name = bytes_at(cluster, place, len)?;
    let name = std::str::from_utf8(name).map_err(|_| HeaderError::Broken("the name of the backing file"))?;
    Ok(Some(name.to_owned()))
}

fn backing_format(cluster: &[u8], header_len: usize) -> Result<Option<String>, HeaderError> {
    // Extensions follow the header, and end with one of kind 0 or with the room for them.
    let mut place = header_len;
    while let (Ok(kind), Ok(len)) = (u32_at(cluster, place), u32_at(cluster, place.saturating_add(4))) {
        if kind == 0 {
            break;
        }
        if kind == BACKING_FORMAT {
            let name = bytes_at(cluster, place + 8, len)?;
            let name = std::str::from_utf8(name)
                .map_err(|_| HeaderError::Broken("the format of the backing file"))?;
            return Ok(Some(name.trim_end_matches('\0').to_owned()));
        }
        let padded = usize::try_from(len).map_err(|_| HeaderError::Short)?.next_multiple_of(8);
        place = place.saturating_add(8).saturating_add(padded);
    }
    Ok(None)
}

pub(crate) fn bytes_at(bytes: &[u8], place: usize, len: u32) -> Result<&[u8], HeaderError> {
    let end = usize::try_from(len).ok().and_then(|len| place.checked_add(len)).ok_or(HeaderError::Short)?;
    bytes.get(place..end).ok_or(HeaderError::Short)
}

pub(crate) fn u32_at(bytes: &[u8], place: usize) -> Result<u32, HeaderError> {
    let word = bytes.get(place..).and_then(|rest| rest.first_chunk()).ok_or(HeaderError::Short)?;
    Ok(u32::from_be_bytes(*word))
}

pub(crate) fn u64_at(bytes: &[u8], place: usize) -> Result<u64, HeaderError> {
    let word = bytes.get(place..).and_then(|rest| rest.first_chunk()).ok_or(HeaderError::Short)?;
    Ok(u64::from_be_bytes(*word))
}

#[cfg(test)]
mod test {
    use super::*;

    /// A header of version 3 for a disk of 1 GiB, with a backing file.
    fn header() -> Vec<u8> {
        let mut bytes = vec![0; 512];
        let mut put = |place: usize, more: &[u8]| bytes[place..][..more.len()].copy_from_slice(more);
        put(0, MAGIC);
        put(4, &3_u32.to_be_bytes());
        put(8, &200_u64.to_be_bytes());
        put(16, &8_u32.to_be_bytes());
        put(20, &16_u32.to_be_bytes());
        put(24, &(1_u64 << 30).to_be_bytes());
        put(36, &2_u32.to_be_bytes());
        put(40, &0x3_0000_u64.to_be_bytes());
        put(96, &4_u32.to_be_bytes());
        put(100, &104_u32.to_be_bytes());
        put(104, &0x6803_f857_u32.to_be_bytes());
        put(108, &3_u32.to_be_bytes());
        put(120, &BACKING_FORMAT.to_be_bytes());
        put(124, &3_u32.to_be_bytes());
        put(128, b"raw");
        put(200, b"base.raw");
        bytes
    }

    #[test]
    fn a_header_is_read() {
        let header = Header::parse(&header()).expect("is one");
        assert_eq!((header.version, header.size, header.cluster_size), (3, 1 << 30, 65536));
        assert_eq!(
            (header.backing.as_deref(), header.backing_format.as_deref()),
            (Some("base.raw"), Some("raw"))
        );
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for (place, value, words) in [
            (4, 1_u32.to_be_bytes().to_vec(), "version 1"),
            (32, 2_u32.to_be_bytes().to_vec(), "encryption"),
            (72, DIRTY.to_be_bytes().to_vec(), "not closed"),
            (72, (CORRUPT | DIRTY).to_be_bytes().to_vec(), "corrupt"),
            (72, DATA_FILE.to_be_bytes().to_vec(), "external data file"),
            (72, COMPRESSION.to_be_bytes().to_vec(), "zlib"),
            (72, EXTENDED.to_be_bytes().to_vec(), "subclusters"),
            (72, (1_u64 << 40).to_be_bytes().to_vec(), "0x10000000000"),
            (20, 8_u32.to_be_bytes().to_vec(), "size of a cluster"),
            (36, u32::MAX.to_be_bytes().to_vec(), "too large"),
            (36, 1_u32.to_be_bytes().to_vec(), "too small"),
            (40, 1_u64.to_be_bytes().to_vec(), "place of the first table"),
            (24, u64::MAX.to_be_bytes().to_vec(), "size of the disk"),
            (16, 5000_u32.to_be_bytes().to_vec(), "name of the backing file"),
            (8, (u64::MAX - 2).to_be_bytes().to_vec(), "name of the backing file"),
            (100, 3_u32.to_be_bytes().to_vec(), "length"),
            (96, 9_u32.to_be_bytes().to_vec(), "reference counts"),
            (0, b"QFI\0".to_vec(), "not a qcow2 image"),
        ] {
            let mut bytes = header();
            bytes[place..][..value.len()].copy_from_slice(&value);
            let said = Header::parse(&bytes).expect_err("is refused").to_string();
            assert!(said.contains(words), "{place} {value:?}: {said}");
        }
    }

    #[test]
    fn no_cut_panics() {
        let whole = header();
        for len in 0..whole.len() {
            let _refused_or_read = Header::parse(&whole[..len]);
        }
        assert_eq!(Header::parse(&whole[..60]), Err(HeaderError::Short));
    }
}
