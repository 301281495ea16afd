//! What is told of one request.

use std::time::{Duration, SystemTime};

use shuntfs_wire::{Errno, Opcode};

use crate::delegation::Flow;

/// The length of a name or place from which on the rest is cut off.
const LEN_MAX: usize = 1024;
/// What stands where the rest was.
const CUT: &str = "…";

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

/// One request and its answer. Names are bytes, as the caller gave them: whoever prints them sees to control characters. Of a name, a path or a
/// branch that is longer than 1024 bytes, those are kept and followed by `…`, after filters have seen the whole: see [`TraceRecord::is_cut`].
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
    /// The error that it was answered with; ENOENT for a name that does not exist.
    pub errno: Option<Errno>,
    /// Whether the answer leaves by itself when the kernel has read the bytes, on a ring: neither its error nor its time is known then.
    pub is_linked: bool,
    /// Whether a name, a path or a branch was too long, so that it ends with `…` in place of its rest.
    pub is_cut: bool,
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

    /// Cuts what is too long to be kept.
    pub(super) fn cut(&mut self) {
        let places = [&mut self.place, &mut self.second_place].into_iter().flatten();
        let of_places = places.flat_map(|place| [Some(&mut place.path), place.branch.as_mut()]);
        let names = of_places.chain([self.name.as_mut(), self.second.as_mut()]).flatten();
        self.is_cut |= names.map(cut).fold(false, |any, is_cut| any | is_cut);
    }
}

/// Whether a name was too long. A character is not cut in two; of what is no UTF-8, a few bytes more may go.
fn cut(name: &mut Vec<u8>) -> bool {
    let is_cut = name.len() > LEN_MAX;
    if is_cut {
        let is_start = |at: &usize| name[*at] & 0b1100_0000 != 0b1000_0000;
        let at = (LEN_MAX - 3..=LEN_MAX).rev().find(is_start).unwrap_or(LEN_MAX);
        name.truncate(at);
        name.extend_from_slice(CUT.as_bytes());
    }
    // An author may have reserved more than there is.
    name.shrink_to_fit();
    is_cut
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
        is_cut: false,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn long_names_are_cut_between_characters() {
        let cut_of = |name: &[u8]| {
            let mut name = name.to_vec();
            let is_cut = cut(&mut name);
            assert!(name.capacity() < LEN_MAX + 64, "{}", name.capacity());
            (name, is_cut)
        };
        assert_eq!(cut_of(&[b'a'; LEN_MAX]), (vec![b'a'; LEN_MAX], false));
        assert_eq!(cut_of(&[b'a'; 4000]), ([&[b'a'; LEN_MAX], CUT.as_bytes()].concat(), true));
        assert_eq!(cut_of(&[0x80; 4000]).0.len(), LEN_MAX + CUT.len());
        for before in 0..4 {
            let name = "a".repeat(before) + &"\u{1f4f7}".repeat(400);
            let (cut, is_cut) = cut_of(name.as_bytes());
            let cut = String::from_utf8(cut).expect("whole characters");
            assert!(is_cut && name.starts_with(cut.trim_end_matches(CUT)) && cut.len() > LEN_MAX - 4);
        }
        let mut record = TraceRecord { second: Some(vec![b'x'; 2000]), ..nothing() };
        record.place = Some(NodePlace::new("a").on(vec![b'x'; 2000]));
        record.second_place = Some(NodePlace::new(vec![b'x'; 2000]));
        record.cut();
        let lens = [&record.second, &record.place.as_ref().and_then(|place| place.branch.clone())];
        assert_eq!(lens.map(|name| name.as_ref().map(Vec::len)), [Some(LEN_MAX + CUT.len()); 2]);
        assert_eq!(record.second_place.map(|place| place.path.len()), Some(LEN_MAX + CUT.len()));
        assert!(record.is_cut && record.place.is_some_and(|place| place.path == b"a"));
    }

    #[test]
    fn names_are_joined_to_their_folders() {
        assert_eq!(NodePlace::default().child(b"a"), b"a");
        assert_eq!(NodePlace::new("a/b").child(b"\xff"), b"a/b/\xff");
        assert_eq!(NodePlace::new("a").on("/disk").branch.as_deref(), Some(&b"/disk"[..]));
    }
}
