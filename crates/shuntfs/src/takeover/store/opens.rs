//! Open files and folders, each at the place that its number has in the table of handles.
//!
//! The first word has the number's generation, and whether it is open. It stays when that is closed, so that no number ever comes back.

use std::os::fd::RawFd;

use shuntfs_wire::{Fh, NodeId, Result};

use super::layout::{FILES, FOLDERS, Records, Store, StoreError, check_of};
use crate::delegation::{Flow, Flows, Reason, Settled};
use crate::flow::{OpenKind, Worth};
use crate::nodes::Counted;
use crate::takeover::surviving::FileIdentity;

/// Which table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    Files,
    Folders,
}

/// What is kept of something open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OpenRecord {
    pub(crate) node: NodeId,
    /// The request that opened it.
    pub(crate) unique: u64,
    pub(crate) counted: Counted,
    pub(crate) worth: Worth,
    pub(crate) flows: Flows,
    /// The kernel's number of the lower file, 0 where it has none.
    pub(crate) backing: u32,
    pub(crate) descriptor: Option<(RawFd, FileIdentity)>,
    pub(crate) words: [u64; 2],
}

impl OpenRecord {
    /// Of a folder, which has no bytes that flow.
    pub(crate) fn of_folder(node: NodeId, unique: u64) -> Self {
        let flows = Flows::both(Flow::Served, Reason::Wished);
        let (worth, counted) = (Worth::Unchecked, Counted::ALONE);
        Self { node, unique, counted, worth, flows, backing: 0, descriptor: None, words: [0; 2] }
    }
}

/// A place of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FoundOpen {
    pub(crate) index: u32,
    pub(crate) generation: u32,
    /// `None` where nothing is open.
    pub(crate) open: Option<OpenRecord>,
}

const NODE: usize = 1;
const UNIQUE: usize = 2;
const HOW: usize = 3;
const BACKING: usize = 4;
const DESCRIPTOR: usize = 5;
const DEVICE: usize = 6;
const INODE: usize = 7;
const WORDS: usize = 8;
const CHECK: usize = 10;
const LIVE: u64 = 1;

impl Table {
    fn records(self) -> &'static Records {
        match self {
            Self::Files => &FILES,
            Self::Folders => &FOLDERS,
        }
    }
}

impl Store {
    /// Writes down what was opened.
    ///
    /// # Errors
    /// ENFILE where there are too many, ENOMEM.
    pub(crate) fn opened(&self, table: Table, fh: Fh, open: &OpenRecord) -> Result<()> {
        let records = table.records();
        let (index, generation) = apart(fh);
        self.grow_to(records, index)?;
        let at = records.at(index);
        let (number, identity) =
            open.descriptor.map_or((0, FileIdentity::default()), |(number, identity)| {
                (u64::try_from(number).map_or(0, |number| number + 1), identity)
            });
        let state = u64::from(generation) << 32 | LIVE;
        let [first, second] = open.words;
        let body = [
            open.node.get(),
            open.unique,
            how(open),
            u64::from(open.backing),
            number,
            identity.device,
            identity.inode,
            first,
            second,
        ];
        for (place, word) in body.into_iter().enumerate() {
            self.put(at + NODE + place, word);
        }
        self.put(at + CHECK, check_of(at as u64, std::iter::once(state).chain(body)));
        self.publish(at, state);
        Ok(())
    }

    /// It is closed, and may be forgotten from now on.
    pub(crate) fn closes(&self, table: Table, fh: Fh) {
        let records = table.records();
        let (index, generation) = apart(fh);
        if index < records.count {
            let live = u64::from(generation) << 32 | LIVE;
            let _was = self.update(records.at(index), |state| (state == live).then_some(live & !LIVE));
        }
    }

    /// Every place that was ever used.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn found_opens(&self, table: Table) -> std::result::Result<Vec<FoundOpen>, StoreError> {
        let records = table.records();
        (0..self.top(records)?).map(|index| self.found_open(records, index)).collect()
    }

    fn found_open(&self, records: &Records, index: u32) -> std::result::Result<FoundOpen, StoreError> {
        let at = records.at(index);
        let wrong = |why| StoreError::Record { what: records.what, index, why };
        let state = self.get(at);
        let generation = u32::try_from(state >> 32).unwrap_or(0);
        match state & u64::from(u32::MAX) {
            0 => return Ok(FoundOpen { index, generation, open: None }),
            LIVE if generation > 0 => {}
            _ => return Err(wrong("its state is none")),
        }
        let words: [u64; CHECK] = std::array::from_fn(|place| self.get(at + place));
        if self.get(at + CHECK) != check_of(at as u64, words) {
            return Err(wrong("it is not what was written"));
        }
        let open = read(&words).ok_or_else(|| wrong("it says what cannot be"))?;
        Ok(FoundOpen { index, generation, open: Some(open) })
    }
}

fn read(words: &[u64; CHECK]) -> Option<OpenRecord> {
    let descriptor = match words[DESCRIPTOR] {
        0 => None,
        number => {
            let identity = FileIdentity { device: words[DEVICE], inode: words[INODE] };
            Some((RawFd::try_from(number - 1).ok()?, identity))
        }
    };
    let (counted, worth, flows) = how_of(words[HOW])?;
    Some(OpenRecord {
        node: NodeId::new(words[NODE])?,
        unique: words[UNIQUE],
        counted,
        worth,
        flows,
        backing: u32::try_from(words[BACKING]).ok()?,
        descriptor,
        words: [words[WORDS], words[WORDS + 1]],
    })
}

fn apart(fh: Fh) -> (u32, u32) {
    let low = u32::try_from(fh.0 & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    (low, u32::try_from(fh.0 >> 32).unwrap_or(0))
}

/// How it is counted and how its bytes flow, a byte each.
fn how(open: &OpenRecord) -> u64 {
    let kind = match open.counted.kind {
        OpenKind::Cached => 0,
        OpenKind::Direct => 1,
        OpenKind::Backed => 2,
    };
    let Flows { reads, writes } = open.flows;
    u64::from_le_bytes([
        kind,
        u8::from(open.counted.drops_pages),
        u8::from(open.worth == Worth::Checked),
        reads.flow as u8,
        reads.reason as u8,
        writes.flow as u8,
        writes.reason as u8,
        0,
    ])
}

fn how_of(word: u64) -> Option<(Counted, Worth, Flows)> {
    let [kind, drops, checked, flow, reason, write_flow, write_reason, 0] = word.to_le_bytes() else {
        return None;
    };
    let kind = match kind {
        0 => OpenKind::Cached,
        1 => OpenKind::Direct,
        2 => OpenKind::Backed,
        _ => return None,
    };
    let is = |byte: u8| (byte <= 1).then_some(byte == 1);
    let settled = |flow: u8, reason: u8| {
        let (flow, reason) = (Flow::ALL.get(usize::from(flow))?, Reason::ALL.get(usize::from(reason))?);
        Some(Settled { flow: *flow, reason: *reason })
    };
    let worth = if is(checked)? { Worth::Checked } else { Worth::Unchecked };
    let flows = Flows { reads: settled(flow, reason)?, writes: settled(write_flow, write_reason)? };
    Some((Counted { kind, drops_pages: is(drops)? }, worth, flows))
}
