//! What the kernel knows: nodes, names, open files, what was agreed to.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use shuntfs_wire::{Attr, EntryOut, FopenFlags, InitFlags, InitIn, InitOut, Opcode};

use crate::backing::{BackingFile, Backings};
use crate::breach::{Breach, Rule};
use crate::inode::{Inode, Kind, S_IFMT};
use crate::requests::Requests;
use crate::rings::RingBooks;

/// The root's node.
pub(crate) const ROOT: u64 = 1;

/// A cached name.
#[derive(Clone, Debug)]
pub(crate) struct Dentry {
    /// `None`: there is no such name.
    pub(crate) node: Option<u64>,
    /// Until when it holds, on the fake's clock.
    pub(crate) until: Duration,
    pub(crate) epoch: u64,
    /// How long it was promised to hold, for messages.
    pub(crate) ttl: Duration,
}

/// An open file or folder.
#[derive(Clone, Debug)]
pub(crate) struct OpenFile {
    pub(crate) node: u64,
    /// The server's number.
    pub(crate) fh: u64,
    pub(crate) flags: u32,
    pub(crate) answered: FopenFlags,
    pub(crate) kind: Kind,
    pub(crate) backing: Option<BackingFile>,
    /// Under OPEN answered ENOSYS there is none to release.
    pub(crate) to_release: bool,
    pub(crate) is_dir: bool,
}

/// What was agreed to at INIT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) flags: InitFlags,
    pub(crate) max_write: u32,
    /// The longest READ, in bytes.
    pub(crate) max_read: u32,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) breaches: Vec<Breach>,
    pub(crate) requests: Requests,
    pub(crate) rings: RingBooks,
    pub(crate) inodes: HashMap<u64, Inode>,
    pub(crate) names: HashMap<(u64, Vec<u8>), Dentry>,
    pub(crate) backings: Backings,
    pub(crate) opens: HashMap<u64, OpenFile>,
    pub(crate) opened: u64,
    pub(crate) agreed: Option<Agreed>,
    /// Operations that were answered ENOSYS and are sent no more.
    pub(crate) never: HashSet<Opcode>,
    pub(crate) clock: Duration,
    pub(crate) epoch: u64,
    /// How many requests of each operation were sent.
    pub(crate) sent: HashMap<Opcode, u64>,
    /// Whether requests can be asked for again.
    pub(crate) resends: bool,
    pub(crate) ended: bool,
    /// Whether single requests were sent, whose opens nobody knows of here.
    pub(crate) has_raw: bool,
}

/// The longest request that fits the socket in any case.
const DATA_MAX: u32 = 128 << 10;

impl Books {
    pub(crate) fn new(root_mode: u32) -> Self {
        let attr = Attr { mode: root_mode, ..Attr::default() };
        let mut root = Inode::new(&EntryOut { nodeid: ROOT, attr, ..EntryOut::default() });
        root.lookups = 1;
        Self {
            breaches: Vec::new(),
            requests: Requests::default(),
            rings: RingBooks::default(),
            inodes: HashMap::from([(ROOT, root)]),
            names: HashMap::new(),
            backings: Backings::default(),
            opens: HashMap::new(),
            opened: 0,
            agreed: None,
            never: HashSet::new(),
            clock: Duration::ZERO,
            epoch: 0,
            sent: HashMap::new(),
            resends: true,
            ended: false,
            has_raw: false,
        }
    }

    pub(crate) fn breach(&mut self, rule: Rule, what: impl Into<String>) {
        self.breaches.push(Breach { rule, what: what.into() });
    }

    pub(crate) fn has_agreed(&self, flag: InitFlags) -> bool {
        self.agreed.is_some_and(|agreed| agreed.flags.contains(flag))
    }

    /// INIT was answered.
    pub(crate) fn agree(&mut self, offered: &InitIn, answer: &InitOut) {
        let mut flags = InitFlags::from_bits_retain(u64::from(answer.flags));
        if flags.contains(InitFlags::INIT_EXT) {
            flags |= InitFlags::from_bits_retain(u64::from(answer.flags2) << 32);
        }
        let made_up = flags - offered.offered();
        if !made_up.is_empty() {
            self.breach(Rule::Init, format!("{made_up:?} was agreed to and never offered"));
        }
        if flags.contains(InitFlags::PASSTHROUGH) && !(1..=2).contains(&answer.max_stack_depth) {
            self.breach(Rule::Init, format!("PASSTHROUGH with a stack depth of {}", answer.max_stack_depth));
        }
        let pages = if flags.contains(InitFlags::MAX_PAGES) { u32::from(answer.max_pages) } else { 32 };
        self.agreed = Some(Agreed {
            flags,
            max_write: answer.max_write.clamp(4096, DATA_MAX).min(pages * 4096),
            max_read: (pages * 4096).max(4096),
        });
    }

    /// When what was promised for so long ends.
    pub(crate) fn until(&self, secs: u64, nanos: u32) -> Duration {
        self.clock.saturating_add(ttl(secs, nanos))
    }

    /// Takes in what an entry says: the node gets a lookup count, and fresh attributes. `Err` where the caller
    /// gets EIO.
    pub(crate) fn meet(&mut self, entry: &EntryOut, by: &str) -> Result<u64, ()> {
        let node = entry.nodeid;
        let kind = entry.attr.mode & S_IFMT;
        if node == ROOT || !is_kind(kind) || entry.attr.size > i64::MAX.cast_unsigned() {
            let what = if node == ROOT { "the root's node".to_owned() } else { odd(&entry.attr) };
            self.breach(Rule::Identity, format!("{by} was answered with {what}: its caller gets EIO"));
            return Err(());
        }
        let until = self.until(entry.attr_valid, entry.attr_valid_nsec);
        let auto_inval = self.has_agreed(InitFlags::AUTO_INVAL_DATA);
        if let Some(inode) = self.inodes.get(&node)
            && (inode.kind() != kind || inode.generation != entry.generation)
        {
            let what = format!(
                "{by} was answered with node {node} of generation {} and type {kind:o}, and the kernel holds it ({} \
                 lookups) with generation {} and type {:o}: open files of it get EIO",
                entry.generation,
                inode.lookups,
                inode.generation,
                inode.kind()
            );
            self.breach(Rule::Identity, what);
        }
        let inode = self.inodes.entry(node).or_insert_with(|| Inode::new(entry));
        inode.lookups += 1;
        inode.generation = entry.generation;
        inode.refresh(entry.attr, until, auto_inval);
        Ok(node)
    }

    /// Attributes came for a node.
    pub(crate) fn refresh(&mut self, node: u64, attr: Attr, valid: (u64, u32)) -> Result<(), ()> {
        let until = self.until(valid.0, valid.1);
        let auto_inval = self.has_agreed(InitFlags::AUTO_INVAL_DATA);
        let kind = attr.mode & S_IFMT;
        let Some(inode) = self.inodes.get_mut(&node) else { return Err(()) };
        if !is_kind(kind) || attr.size > i64::MAX.cast_unsigned() || inode.kind() != kind {
            let what = format!(
                "node {node} has type {:o}, and now {}: it gets EIO from now on",
                inode.kind(),
                odd(&attr)
            );
            self.breach(Rule::Identity, what);
            return Err(());
        }
        inode.refresh(attr, until, auto_inval);
        Ok(())
    }

    /// Something in a folder changed through the mount.
    pub(crate) fn changed(&mut self, node: u64) {
        if let Some(inode) = self.inodes.get_mut(&node) {
            inode.doubt();
        }
    }

    /// A name must be looked up again.
    pub(crate) fn drop_name(&mut self, parent: u64, name: &[u8]) {
        self.names.remove(&(parent, name.to_vec()));
    }

    /// What is cached of a name, while it holds.
    pub(crate) fn name(&self, parent: u64, name: &[u8]) -> Option<&Dentry> {
        let dentry = self.names.get(&(parent, name.to_vec()))?;
        (dentry.until > self.clock && dentry.epoch == self.epoch).then_some(dentry)
    }

    /// Remembers what a name stands for.
    pub(crate) fn remember(&mut self, parent: u64, name: &[u8], entry: &EntryOut) {
        let (secs, nanos) = (entry.entry_valid, entry.entry_valid_nsec);
        let dentry = Dentry {
            node: (entry.nodeid != 0).then_some(entry.nodeid),
            until: self.until(secs, nanos),
            epoch: self.epoch,
            ttl: ttl(secs, nanos),
        };
        self.names.insert((parent, name.to_vec()), dentry);
    }

    /// Takes the nodes that nothing uses, or this one of them, with their lookup counts.
    pub(crate) fn evict(&mut self, one: Option<u64>) -> Vec<(u64, u64)> {
        let used: HashSet<u64> = self.opens.values().map(|open| open.node).collect();
        let chosen = |node: &u64| *node != ROOT && !used.contains(node) && one.is_none_or(|one| one == *node);
        let mut nodes: Vec<u64> = self.inodes.keys().copied().filter(chosen).collect();
        nodes.sort_unstable();
        self.names.retain(|(parent, _), dentry| {
            !nodes.contains(parent) && dentry.node.is_none_or(|node| !nodes.contains(&node))
        });
        let counts = nodes.iter().filter_map(|node| Some((*node, self.inodes.remove(node)?.lookups)));
        counts.collect()
    }
}

/// Seconds and nanoseconds that something holds.
pub(crate) fn ttl(secs: u64, nanos: u32) -> Duration {
    Duration::from_secs(secs).saturating_add(Duration::from_nanos(u64::from(nanos)))
}

/// Whether the bits are a type of file.
fn is_kind(kind: u32) -> bool {
    [0o010_000, 0o020_000, 0o040_000, 0o060_000, 0o100_000, 0o120_000, 0o140_000].contains(&kind)
}

fn odd(attr: &Attr) -> String {
    format!("mode {:o} and size {}", attr.mode, attr.size)
}
