//! From a path to a node: LOOKUP, cached names, symlinks.

use shuntfs_wire::{EntryOut, Errno, NodeId, Opcode};
use zerocopy::FromBytes;

use crate::books::ROOT;
use crate::breach::Rule;
use crate::inode::{S_IFDIR, S_IFLNK};
use crate::process::Process;

/// A folder and a name in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) parent: u64,
    pub(crate) name: Vec<u8>,
    /// The folders on the way there, but for the last one.
    pub(crate) above: Vec<u64>,
}

impl Place {
    pub(crate) fn new(parent: u64, name: &[u8]) -> Self {
        Self { parent, name: name.to_vec(), above: Vec::new() }
    }

    /// Whether a folder is above this place, or holds it.
    pub(crate) fn is_in(&self, folder: u64) -> bool {
        self.parent == folder || self.above.contains(&folder)
    }
}

/// As many symlinks are followed on one way.
const LINKS_MAX: usize = 40;
/// The longest name, in bytes.
const NAME_MAX: usize = 255;

impl Process {
    /// The node that a path leads to; symlinks are followed.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, ELOOP, or what the file system says.
    pub fn node(&self, path: &str) -> Result<NodeId, Errno> {
        let node = self.walk(path, true)?;
        NodeId::new(node).ok_or(Errno::IO)
    }

    /// The node that a path leads to; a symlink at its end is not followed.
    ///
    /// # Errors
    /// As [`Process::node`].
    pub fn node_itself(&self, path: &str) -> Result<NodeId, Errno> {
        let node = self.walk(path, false)?;
        NodeId::new(node).ok_or(Errno::IO)
    }

    /// How many lookups of a node the kernel holds.
    #[must_use]
    pub fn lookups(&self, node: NodeId) -> u64 {
        self.kernel.books().inodes.get(&node.get()).map_or(0, |inode| inode.lookups)
    }

    pub(crate) fn walk(&self, path: &str, follow: bool) -> Result<u64, Errno> {
        self.way(path, follow).map(|(node, _)| node)
    }

    /// The node that a path leads to, and the folders on the way.
    fn way(&self, path: &str, follow: bool) -> Result<(u64, Vec<u64>), Errno> {
        let mut at = ROOT;
        let mut rest: Vec<Vec<u8>> = components(path.as_bytes());
        let (mut links, mut way) = (0, Vec::new());
        while let Some(name) = rest.pop() {
            if name == b".." {
                // The kernel knows the way back by itself.
                at = way.pop().unwrap_or(ROOT);
                continue;
            }
            let parent = at;
            at = self.lookup(&Place::new(parent, &name))?;
            way.push(parent);
            if self.is_link(at) && (follow || !rest.is_empty()) {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP);
                }
                let target = self.target(at)?;
                way.pop();
                at = if target.first() == Some(&b'/') { ROOT } else { parent };
                rest.extend(components(&target));
            }
        }
        Ok((at, way))
    }

    /// The folder and the last name of a path.
    pub(crate) fn place(&self, path: &str) -> Result<Place, Errno> {
        let (folder, name) = path.trim_end_matches('/').rsplit_once('/').ok_or(Errno::INVAL)?;
        let (parent, above) = self.way(folder, true)?;
        self.must_be_folder(parent)?;
        Ok(Place { parent, name: name.as_bytes().to_vec(), above })
    }

    /// The node of a name, from the cache while it holds.
    pub(crate) fn lookup(&self, place: &Place) -> Result<u64, Errno> {
        self.must_be_folder(place.parent)?;
        let cached = self.kernel.books().name(place.parent, &place.name).cloned();
        let Some(cached) = cached else { return self.lookup_afresh(place) };
        if self.kernel.doubts {
            let old = self
                .kernel
                .books()
                .inodes
                .get(&cached.node.unwrap_or(0))
                .map(|inode| (inode.attr, inode.attr_until));
            let fresh = self.ask_lookup(place);
            let fresh = match fresh {
                Ok(entry) => (entry.nodeid != 0).then_some(entry),
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(errno),
            };
            let now = fresh.map(|entry| entry.nodeid);
            if now != cached.node {
                let what = format!(
                    "{} was to hold for {:?} and stood for {}; the file system now says {}, and has not told the kernel",
                    told(place),
                    cached.ttl,
                    node_or_none(cached.node),
                    node_or_none(now)
                );
                self.kernel.books().breach(Rule::Names, what);
            }
            if let Some(entry) = fresh {
                if let (Some((attr, until)), true) = (old, now == cached.node) {
                    self.compare(entry.nodeid, (&attr, until), &entry.attr);
                    self.count_only(&entry, place)?;
                } else {
                    self.meet(&entry, place)?;
                }
            }
        }
        cached.node.ok_or(Errno::NOENT)
    }

    /// The node of a name, asked for.
    pub(crate) fn lookup_afresh(&self, place: &Place) -> Result<u64, Errno> {
        self.must_be_folder(place.parent)?;
        let entry = match self.ask_lookup(place) {
            Ok(entry) => entry,
            Err(errno) => {
                self.kernel.books().drop_name(place.parent, &place.name);
                return Err(errno);
            }
        };
        if entry.nodeid == 0 {
            self.kernel.books().remember(place.parent, &place.name, &entry);
            return Err(Errno::NOENT);
        }
        self.meet(&entry, place)
    }

    /// An entry came: the node is met, and the name remembered.
    pub(crate) fn meet(&self, entry: &EntryOut, place: &Place) -> Result<u64, Errno> {
        let mut books = self.kernel.books();
        let node = books.meet(entry, &told(place)).map_err(|()| Errno::IO)?;
        books.remember(place.parent, &place.name, entry);
        Ok(node)
    }

    /// An entry came that was asked for in doubt alone: it counts, and refreshes nothing.
    fn count_only(&self, entry: &EntryOut, place: &Place) -> Result<(), Errno> {
        let mut books = self.kernel.books();
        let kept = books.inodes.get(&entry.nodeid).map(|inode| (inode.attr, inode.attr_until));
        if let Some((attr, until)) = kept {
            books.meet(&EntryOut { attr, ..*entry }, &told(place)).map_err(|()| Errno::IO)?;
            if let Some(inode) = books.inodes.get_mut(&entry.nodeid) {
                inode.attr_until = until;
            }
        }
        Ok(())
    }

    fn ask_lookup(&self, place: &Place) -> Result<EntryOut, Errno> {
        if place.name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        let answer = self.kernel.ask(self.caller, (Opcode::Lookup, place.parent), &[&place.name, b"\0"])?;
        EntryOut::read_from_bytes(&answer).map_err(|_| Errno::IO)
    }

    fn must_be_folder(&self, node: u64) -> Result<(), Errno> {
        if self.kind(node)? == S_IFDIR { Ok(()) } else { Err(Errno::NOTDIR) }
    }

    /// The type of a node that the kernel holds.
    pub(crate) fn kind(&self, node: u64) -> Result<u32, Errno> {
        self.kernel.books().inodes.get(&node).map(crate::inode::Inode::kind).ok_or(Errno::STALE)
    }

    fn is_link(&self, node: u64) -> bool {
        self.kernel.books().inodes.get(&node).is_some_and(|inode| inode.kind() == S_IFLNK)
    }

    pub(crate) fn target(&self, node: u64) -> Result<Vec<u8>, Errno> {
        self.kernel.ask(self.caller, (Opcode::Readlink, node), &[])
    }
}

/// The names of a path, the last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.rev().map(<[u8]>::to_vec).collect()
}

/// The name, for messages.
pub(crate) fn told(place: &Place) -> String {
    format!("the name {:?} in node {}", String::from_utf8_lossy(&place.name), place.parent)
}

fn node_or_none(node: Option<u64>) -> String {
    node.map_or_else(|| "nothing".to_owned(), |node| format!("node {node}"))
}
