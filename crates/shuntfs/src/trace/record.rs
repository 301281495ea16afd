//! What is told of one request.

use std::time::{Duration, SystemTime};

use shuntfs_wire::{Errno, Opcode};

use crate::delegation::Flow;

/// Where a node is: what [`crate::Filesystem::place_of`] tells for people.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct NodePlace {
    /// Its path below the root of the mount, which itself is empty.
    pub path: Vec<u8>,
    /// The folder or disk below that it is on, where there may be several.
    pub branch: Option<Vec<u8>>,
}

impl NodePlace {
    /// A path below the root of the mount, without a slash in front.
    #[must_use]
    pub fn new(path: impl Into<Vec<u8>>) -> Self {
        Self { path: path.into(), branch: None }
    }

    /// The same on one of several folders or disks.
    #[must_use]
    pub fn on(self, branch: impl Into<Vec<u8>>) -> Self {
        Self { branch: Some(branch.into()), ..self }
    }

    /// The path of a name in this folder.
    #[must_use]
    pub fn child(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }
}

/// One request and its answer. Names are bytes, as the caller gave them: whoever prints them sees to control characters.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TraceRecord {
    /// When the server began with it.
    pub began: SystemTime,
    /// How long it took, to the moment before the answer was sent.
    pub duration: Duration,
    /// The request's number.
    pub unique: u64,
    /// The queue that served it.
    pub queue: usize,
    /// The operation's number.
    pub opcode: u32,
    /// The caller's thread, 0 where it is not visible or there is none (readahead, FORGET).
    pub pid: u32,
    /// What that thread is called; empty where that is not known.
    pub comm: Vec<u8>,
    /// The caller's file system uid.
    pub uid: u32,
    /// The caller's file system gid.
    pub gid: u32,
    /// The node that the request names: the folder, for what is done to a name. 0 where it names none.
    pub node: u64,
    /// Where that node is, as far as the file system could tell before it served the request.
    pub place: Option<NodePlace>,
    /// The name in the request: of a file in the folder, or of an extended attribute.
    pub name: Option<Vec<u8>>,
    /// Whether [`TraceRecord::name`] is that of an extended attribute.
    pub is_attribute: bool,
    /// The second name: where something is moved to, or what a symlink leads to.
    pub second: Option<Vec<u8>>,
    /// The folder of the second name.
    pub second_place: Option<NodePlace>,
    /// The node that the answer leads to, of operations that find or make one; and the one that a link is made to.
    pub found: Option<u64>,
    /// Where it begins, in bytes, of operations on a part of a file.
    pub offset: Option<u64>,
    /// How many bytes were asked for.
    pub len: Option<u64>,
    /// How many bytes of data were answered, or taken; `None` where that is not known, or there are none.
    pub moved: Option<u64>,
    /// How the bytes of the open file flow.
    pub flow: Option<Flow>,
    /// The error that it was answered with; ENOENT for a name that is not there.
    pub errno: Option<Errno>,
    /// Whether the answer leaves by itself when the kernel has read the bytes, on a ring: neither its error nor its time is known then.
    pub is_linked: bool,
}

impl TraceRecord {
    /// The operation; `None` for one that this library does not know.
    #[must_use]
    pub fn operation(&self) -> Option<Opcode> {
        Opcode::new(self.opcode)
    }

    /// The path of what the request is about, below the root of the mount: of the name in its folder, or of the node.
    #[must_use]
    pub fn path(&self) -> Option<Vec<u8>> {
        let place = self.place.as_ref()?;
        Some(match &self.name {
            Some(name) if !self.is_attribute => place.child(name),
            _ => place.path.clone(),
        })
    }

    /// The path of the second name, where something is moved.
    #[must_use]
    pub fn second_path(&self) -> Option<Vec<u8>> {
        Some(self.second_place.as_ref()?.child(self.second.as_ref()?))
    }
}

/// A record of nothing.
pub(super) fn nothing() -> TraceRecord {
    TraceRecord {
        began: SystemTime::UNIX_EPOCH,
        duration: Duration::ZERO,
        unique: 0,
        queue: 0,
        opcode: 0,
        pid: 0,
        comm: Vec::new(),
        uid: 0,
        gid: 0,
        node: 0,
        place: None,
        name: None,
        is_attribute: false,
        second: None,
        second_place: None,
        found: None,
        offset: None,
        len: None,
        moved: None,
        flow: None,
        errno: None,
        is_linked: false,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn names_are_joined_to_their_folders() {
        assert_eq!(NodePlace::default().child(b"a"), b"a");
        assert_eq!(NodePlace::new("a/b").child(b"\xff"), b"a/b/\xff");
        assert_eq!(NodePlace::new("a").on("/disk").branch.as_deref(), Some(&b"/disk"[..]));
    }
}
