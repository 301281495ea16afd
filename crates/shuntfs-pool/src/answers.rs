//! What the kernel is told of a node: its attributes, its numbers, and how long they hold.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use shuntfs::{Attr, AttrReply, Entry, Generation, NodeId, Timestamp};
use shuntfs_sys::{Stat, encode_dev};

use crate::lasting::Lasting;
use crate::node::{Identity, Marks, Node, Parts};
use crate::options::Cache;
use crate::sealed;
use crate::shared::Shared;
use crate::view::View;

/// How long attributes hold of a file that a mapping may still change after its last close.
const MAPPED_TTL: Duration = Duration::from_secs(1);

/// How long attributes hold at most where numbers go by paths.
const NUMBERED_TTL: Duration = Duration::from_secs(1);

impl Shared {
    /// The number to show.
    fn ino(&self, node: &Node, stat: &Stat) -> u64 {
        match node.parts() {
            Some(parts) => self.folder_ino(node, parts),
            None => {
                let by_path = self.merge.as_ref().and_then(|merge| merge.numbers.of_node(self, node));
                by_path.unwrap_or_else(|| self.branch(node.place().mount()).shown_ino(stat.ino, stat.dev))
            }
        }
    }

    /// The number to show of a folder of a merge.
    pub(crate) fn folder_ino(&self, node: &Node, parts: &Parts) -> u64 {
        let by_path = self.merge.as_ref().and_then(|merge| merge.numbers.of_node(self, node));
        by_path.unwrap_or(parts.ino)
    }

    /// The attributes to show.
    fn attr(&self, node: &Node, stat: &Stat) -> Attr {
        Attr {
            ino: self.ino(node, stat),
            size: stat.size,
            blocks: stat.blocks,
            atime: timestamp(stat.atime),
            mtime: timestamp(stat.mtime),
            ctime: timestamp(stat.ctime),
            mode: stat.mode,
            nlink: stat.nlink,
            uid: stat.uid,
            gid: stat.gid,
            rdev: encode_dev(stat.rdev.major, stat.rdev.minor),
            blksize: stat.blksize,
        }
    }

    /// Fresh attributes of a node, for the kernel.
    pub(crate) fn attr_reply(&self, node: &Node, stat: &Stat) -> AttrReply {
        node.saw(stat);
        let mut attr = self.attr(node, stat);
        if self.sealed.is_some() {
            attr.size = sealed::size(self, node).unwrap_or(attr.size);
        }
        AttrReply { attr, ttl: self.attr_ttl(node, stat) }
    }

    /// Fresh attributes of a node whose lookup count was raised, for the kernel.
    pub(crate) fn entry(&self, node: &Node, stat: &Stat) -> Entry {
        let ttl = if node.has(Marks::FLEETING) { Duration::ZERO } else { self.ttl() };
        Entry::new(node.id, self.attr_reply(node, stat)).with_ttl(ttl).with_generation(self.generation(node))
    }

    /// The number by which a node is found again in another mount, where there are such numbers.
    pub(crate) fn lasting_number(&self, identity: &Identity, view: View) -> Option<NodeId> {
        let handle = identity.handle.as_ref().filter(|_| identity.mount.is_own() && view.is_whole())?;
        self.branch(identity.mount).lasting()?.number(handle)
    }

    /// What tells this life of a node's number from others.
    fn generation(&self, node: &Node) -> Generation {
        if node.id == NodeId::ROOT {
            return Generation(0);
        }
        let lasting = match node.parts() {
            Some(parts) => parts.generation,
            None => self.lasting_generation(node),
        };
        lasting.unwrap_or_else(|| *self.generation.get_or_init(|| Generation(of_this_mount().into())))
    }

    /// The generation of a file's number, if that lasts. It goes by where the file was first, as its number does: it may have been moved to another
    /// branch since.
    pub(crate) fn lasting_generation(&self, node: &Node) -> Option<Generation> {
        if !Lasting::lasts(node.id) || node.parts().is_some() {
            return None;
        }
        self.table.generation_of(node.id).or_else(|| {
            let first = node.first_place();
            self.branch(first.mount()).lasting()?.generation(first.handle()?)
        })
    }

    /// Handles of it are those of the mount with this number, whichever server gave them. To be called before any is given.
    pub(crate) fn is_mount(&self, number: u32) {
        let is_first = self.generation.set(Generation(number.into())).is_ok();
        assert!(is_first, "no handle was given yet");
    }

    /// How long what the kernel was told holds.
    pub(crate) fn ttl(&self) -> Duration {
        match self.options.cache {
            Cache::Default => Duration::MAX,
            // Names that changed below a second ago must not decide what somebody may do.
            Cache::Second if self.rules.is_some() || self.sealed.is_some() => Duration::ZERO,
            Cache::Second => Duration::from_secs(1),
            Cache::None => Duration::ZERO,
        }
    }

    /// Stores through a shared mapping of a passthrough file change its times and blocks without the kernel's
    /// FUSE side noticing. So attributes hold for no time while such a mapping may be made, and for a short one
    /// while it may outlive its open file. An empty file has no page to store to, and what lengthens it
    /// makes the kernel ask again: so whoever has just made a file and looks at it costs no request.
    fn attr_ttl(&self, node: &Node, stat: &Stat) -> Duration {
        let ttl = match &self.merge {
            // A folder that moves changes the numbers of all that is in it.
            Some(merge) if merge.numbers.go_by_path() => NUMBERED_TTL.min(self.ttl()),
            _ => self.ttl(),
        };
        if node.has(Marks::FLEETING) {
            Duration::ZERO
        } else if stat.is_file() && stat.size == 0 {
            ttl
        } else if node.is_mappable() {
            Duration::ZERO
        } else if node.has(Marks::MAPPED) {
            MAPPED_TTL.min(ttl)
        } else {
            ttl
        }
    }
}

/// A number that another mount does not have.
fn of_this_mount() -> u32 {
    u32::try_from(RandomState::new().build_hasher().finish() >> 32).expect("32 bits fit")
}

pub(crate) fn timestamp(time: shuntfs_sys::Time) -> Timestamp {
    Timestamp { secs: time.secs, nanos: time.nanos }
}
