//! What the kernel holds of a node.

use std::time::Duration;

use shuntfs_wire::{Attr, EntryOut, FopenFlags};

use crate::backing::BackingFile;
use crate::pages::Pages;

pub(crate) const S_IFMT: u32 = 0o170_000;
pub(crate) const S_IFDIR: u32 = 0o040_000;
pub(crate) const S_IFREG: u32 = 0o100_000;
pub(crate) const S_IFLNK: u32 = 0o120_000;

/// A node with a lookup count above zero.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) generation: u64,
    /// What FORGET gives back at the end.
    pub(crate) lookups: u64,
    pub(crate) attr: Attr,
    /// Until when the attributes hold, on the fake's clock; zero where they do not.
    pub(crate) attr_until: Duration,
    pub(crate) pages: Pages,
    pub(crate) io: IoMode,
}

/// What the opens of a node oblige the next one to (`fs/fuse/iomode.c`, Linux 6.9).
#[derive(Debug, Default)]
pub(crate) struct IoMode {
    cached: usize,
    backed: Option<(BackingFile, usize)>,
    direct: usize,
}

/// How one open counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Cached,
    Direct,
    Backed,
    /// Under OPEN answered ENOSYS: opens have no mode.
    Free,
}

/// What may stand beside `PASSTHROUGH` (`FOPEN_PASSTHROUGH_MASK`).
const BESIDE_PASSTHROUGH: FopenFlags = FopenFlags::PASSTHROUGH
    .union(FopenFlags::DIRECT_IO)
    .union(FopenFlags::PARALLEL_DIRECT_WRITES)
    .union(FopenFlags::NOFLUSH);

impl IoMode {
    /// Takes an open in, or says why the kernel fails it with EIO.
    pub(crate) fn open(&mut self, flags: FopenFlags, backing: Option<BackingFile>) -> Result<Kind, String> {
        let passes = flags.contains(FopenFlags::PASSTHROUGH);
        if let Some((file, opens)) = &self.backed
            && !passes
        {
            return Err(format!(
                "it is open {opens} times in passthrough to backing id {}, and this open is answered without",
                file.id()
            ));
        }
        if !passes {
            if flags.contains(FopenFlags::DIRECT_IO) {
                self.direct += 1;
                return Ok(Kind::Direct);
            }
            self.cached += 1;
            return Ok(Kind::Cached);
        }
        if !BESIDE_PASSTHROUGH.contains(flags) {
            return Err(format!("{flags:?} cannot stand together"));
        }
        let Some(backing) = backing else { return Err("passthrough was not agreed to".to_owned()) };
        if self.cached > 0 {
            return Err(format!("it is open {} times through the page cache", self.cached));
        }
        match &mut self.backed {
            Some((file, _)) if !file.is(&backing) => Err(format!(
                "it is in passthrough to backing id {}, and this open names {}: only the same id will do",
                file.id(),
                backing.id()
            )),
            Some((_, opens)) => {
                *opens += 1;
                Ok(Kind::Backed)
            }
            none => {
                *none = Some((backing, 1));
                Ok(Kind::Backed)
            }
        }
    }

    /// The last descriptor of an open is gone.
    pub(crate) fn close(&mut self, kind: Kind) {
        match kind {
            Kind::Cached => self.cached -= 1,
            Kind::Direct => self.direct -= 1,
            Kind::Free => {}
            Kind::Backed => {
                if let Some((_, opens)) = &mut self.backed {
                    *opens -= 1;
                }
                self.backed.take_if(|(_, opens)| *opens == 0);
            }
        }
    }
}

impl Inode {
    pub(crate) fn new(entry: &EntryOut) -> Self {
        Self {
            generation: entry.generation,
            lookups: 0,
            attr: entry.attr,
            attr_until: Duration::ZERO,
            pages: Pages::default(),
            io: IoMode::default(),
        }
    }

    pub(crate) fn kind(&self) -> u32 {
        self.attr.mode & S_IFMT
    }

    /// Fresh attributes. Where mtime or size differ, the pages go, if that was agreed to (`AUTO_INVAL_DATA`).
    pub(crate) fn refresh(&mut self, attr: Attr, until: Duration, auto_inval: bool) {
        let stamp = |attr: &Attr| (attr.mtime, attr.mtimensec, attr.size);
        let changed = stamp(&attr) != stamp(&self.attr);
        if changed && auto_inval {
            self.pages.clear();
        } else if attr.size != self.attr.size {
            self.pages.cut(attr.size);
        }
        self.attr = attr;
        self.attr_until = until;
    }

    /// What the server says of it is asked for again.
    pub(crate) fn doubt(&mut self) {
        self.attr_until = Duration::ZERO;
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn backing(id: u32) -> BackingFile {
        BackingFile::new(id, std::fs::File::open("/proc/self/exe").unwrap().into())
    }

    /// The measured matrix of the kernel.
    #[test]
    fn opens_of_one_node_agree() {
        let (one, other) = (backing(1), backing(2));
        let passes = FopenFlags::PASSTHROUGH;
        let direct = FopenFlags::DIRECT_IO;
        let cached = FopenFlags::empty();
        let id = |file: &BackingFile| Some(file.clone());
        for (first, second, good) in [
            ((passes, id(&one)), (passes, id(&one)), true),
            ((passes, id(&one)), (passes, id(&other)), false),
            ((passes, id(&one)), (cached, None), false),
            ((passes, id(&one)), (FopenFlags::KEEP_CACHE, None), false),
            ((passes, id(&one)), (direct, None), false),
            ((passes, id(&one)), (direct | passes, id(&one)), true),
            ((cached, None), (passes, id(&one)), false),
            ((direct, None), (passes, id(&one)), true),
            ((direct, None), (cached, None), true),
        ] {
            let mut mode = IoMode::default();
            let kind = mode.open(first.0, first.1).unwrap();
            assert_eq!(
                mode.open(second.0, second.1.clone()).is_ok(),
                good,
                "{:?} then {:?}",
                first.0,
                second.0
            );
            if !good {
                mode.close(kind);
                assert!(mode.open(second.0, second.1).is_ok(), "after the last close anything goes");
            }
        }
        let mut mode = IoMode::default();
        assert!(mode.open(passes | FopenFlags::KEEP_CACHE, id(&one)).is_err());
        assert!(mode.open(passes, None).is_err());
    }
}
