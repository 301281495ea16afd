//! Packs a listing that any bytes describe, and reads it back as the kernel does. Runs under libFuzzer and in the tests
//! of `shuntfs-wire`.
//!
//! The first two bytes are the room; then, for each record, one byte for its form and type, one for the length of its
//! name, and the name.

use shuntfs_wire::{Dirent, DirentSink, EntryOut};
use zerocopy::FromBytes;

/// What no record leaves behind.
const UNTOUCHED: u8 = 0xaa;

struct Record<'a> {
    plus: bool,
    kind: u8,
    name: &'a [u8],
}

pub(crate) fn run(bytes: &[u8]) {
    let Some((room, mut bytes)) = bytes.split_first_chunk() else { return };
    let room = usize::from(u16::from_le_bytes(*room));
    let mut memory = vec![UNTOUCHED; room];
    let mut sink = DirentSink::new(&mut memory);
    let mut packed = Vec::new();
    while let Some((record, rest)) = next(bytes) {
        bytes = rest;
        let before = sink.len();
        if push(&mut sink, &record, packed.len() as u64) {
            packed.push(record);
            assert!(sink.len() > before && !sink.is_empty());
        } else {
            assert_eq!(sink.len(), before, "what does not fit leaves nothing behind");
        }
        assert!(sink.len().is_multiple_of(8) && sink.len() as usize <= room);
    }
    let len = sink.len() as usize;
    assert!(memory[len..].iter().all(|byte| *byte == UNTOUCHED));
    read_back(&memory[..len], &packed);
}

fn next(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let ([form, name_len], rest) = bytes.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(usize::from(*name_len))?;
    Some((Record { plus: form & 0x80 != 0, kind: form & 0x0f, name }, rest))
}

fn push(sink: &mut DirentSink<'_>, record: &Record<'_>, place: u64) -> bool {
    let Record { plus, kind, name } = *record;
    let (fits, pushed) = if plus {
        let entry = EntryOut { nodeid: place, ..EntryOut::default() };
        (sink.fits_plus(name.len()), sink.push_plus(&entry, place, place + 1, kind, name))
    } else {
        (sink.fits(name.len()), sink.push(place, place + 1, kind, name))
    };
    assert_eq!(fits, pushed);
    pushed
}

fn read_back(mut packed: &[u8], records: &[Record<'_>]) {
    for (place, record) in records.iter().enumerate() {
        if record.plus {
            let (entry, rest) = EntryOut::read_from_prefix(packed).expect("room for the entry");
            assert_eq!(entry.nodeid, place as u64);
            packed = rest;
        }
        let (head, rest) = Dirent::read_from_prefix(packed).expect("room for the head");
        assert_eq!((head.ino, head.off), (place as u64, place as u64 + 1));
        assert_eq!((head.namelen as usize, head.kind), (record.name.len(), u32::from(record.kind)));
        let (name, rest) = rest.split_at(record.name.len());
        assert_eq!(name, record.name);
        let (padding, rest) = rest.split_at(name.len().next_multiple_of(8) - name.len());
        assert!(padding.iter().all(|byte| *byte == 0), "stale bytes behind a name");
        packed = rest;
    }
    assert!(packed.is_empty());
}
