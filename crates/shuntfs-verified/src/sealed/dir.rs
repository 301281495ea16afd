//! Listings.

use std::ffi::CString;

use shuntfs::{DirSink, Entry, Errno, FileType, LookupCount, Name, NodeId, Result};
use shuntfs_seal::Manifest;

use super::attr;

/// The cookies of `.` and `..`; those of the manifest's entries come after.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// What a record takes at least: its head and a name of one byte, with an entry or without.
const RECORD_MIN: usize = 32;
const ENTRY_LEN: usize = 128;

/// One record of a listing.
#[derive(Debug)]
pub(super) struct Record {
    name: CString,
    cookie: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Plain { ino: u64, kind: Option<FileType> },
    Full(Entry),
}

/// How many records a reply can hold at most.
pub(super) fn count_max(out: &DirSink<'_>) -> usize {
    let least = RECORD_MIN + if out.wants_entries() { ENTRY_LEN } else { 0 };
    out.capacity() / least
}

/// The records of a folder after `cookie`, at most so many.
pub(super) fn records(
    manifest: &Manifest,
    id: NodeId,
    cookie: u64,
    (plus, count_max): (bool, usize),
) -> Result<Vec<Record>> {
    let folder = attr::index(id)?;
    let mut records = Vec::new();
    if cookie < DOT {
        let what = What::Plain { ino: id.get(), kind: Some(FileType::Directory) };
        records.push(Record { name: c".".to_owned(), cookie: DOT, what });
    }
    if cookie < DOT_DOT {
        let parent = manifest.parent(folder).map_err(|error| attr::told(&error))?;
        let what = What::Plain { ino: parent.inode(), kind: Some(FileType::Directory) };
        records.push(Record { name: c"..".to_owned(), cookie: DOT_DOT, what });
    }
    let entries =
        manifest.entries(folder, cookie.saturating_sub(DOT_DOT)).map_err(|error| attr::told(&error))?;
    for entry in entries {
        if records.len() >= count_max {
            break;
        }
        let entry = entry.map_err(|error| attr::told(&error))?;
        let node = manifest.node(entry.node).map_err(|error| attr::told(&error))?;
        let what = if plus {
            What::Full(attr::entry(manifest, &node))
        } else {
            What::Plain { ino: node.index.inode(), kind: FileType::of_mode(node.mode) }
        };
        let name = CString::new(entry.name).map_err(|_| Errno::IO)?;
        records.push(Record { name, cookie: entry.next + DOT_DOT, what });
    }
    Ok(records)
}

/// Hands records to a reply, until it is full. Nothing counts lookups here, so none has to be taken back.
pub(super) fn hand(records: &[Record], out: &mut DirSink<'_>) {
    for Record { name, cookie, what } in records {
        let taken = match what {
            What::Plain { ino, kind } => out.push(*ino, *cookie, *kind, name.to_bytes()),
            What::Full(entry) => Name::new(name).is_some_and(|name| out.push_entry(entry, *cookie, name)),
        };
        if !taken {
            return;
        }
    }
}

/// FORGET: nodes are numbers of the manifest, and nothing is kept of them.
pub(super) fn forget(node: NodeId, lookups: LookupCount) {
    let _ = (node, lookups);
}
