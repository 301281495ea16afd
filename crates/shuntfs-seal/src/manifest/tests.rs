//! Manifests that are what they should be, of any size, and manifests that are not.

use std::fs::File;
use std::num::NonZeroUsize;
use std::sync::Arc;

use shuntfs_sys::{Device, Time};
use shuntfs_verity::{Digest, Params, Verifier, build_at};

use super::layout::{ENTRY_LEN, EntryRecord, HEADER_LEN, Header, NODE_HEAD_LEN, Record};
use super::*;
use crate::ManifestError;

struct Bytes(Vec<u8>);

impl Blocks for Bytes {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn block_size(&self) -> u32 {
        64
    }
    fn block(&self, index: u64) -> Result<Arc<[u8]>, ManifestError> {
        let block = self.0.chunks(64).nth(usize::try_from(index).unwrap());
        block.map(Arc::from).ok_or(ManifestError::Malformed("beyond"))
    }
}

fn node(mode: u32) -> DraftNode {
    DraftNode { mode, uid: 1, gid: 2, mtime: Time { secs: -3, nanos: 4 }, ..DraftNode::default() }
}

fn child(name: &str, node: DraftNode) -> Child {
    Child { name: name.into(), node, link: None }
}

/// The root, with a folder `d` of a file `f`, a file `g` and a symlink `s`.
fn sample() -> Vec<u8> {
    let mut draft = Draft::new(Params::default(), node(0o040_755)).unwrap();
    let xattrs = vec![
        Xattr { name: b"user.b".to_vec(), value: b"2".to_vec() },
        Xattr { name: b"user.a".to_vec(), value: Vec::new() },
    ];
    let link = DraftNode { target: b"../up".to_vec(), ..node(0o120_777) };
    let file = DraftNode { size: 5, xattrs, ..node(0o100_644) };
    let placed = draft
        .fill(NodeIndex::ROOT, vec![child("d", node(0o040_700)), child("g", file.clone()), child("s", link)])
        .unwrap();
    draft.fill(placed[0].node, vec![child("f", file)]).unwrap();
    draft
        .set_root_hash(placed[1].node, &Digest::new(Params::default().algorithm(), &[9; 32]).unwrap())
        .unwrap();
    let mut bytes = Vec::new();
    draft.write(&mut bytes).unwrap();
    bytes
}

fn open(bytes: Vec<u8>) -> Result<Codec<Bytes>, ManifestError> {
    Codec::new(Bytes(bytes))
}

const NODE_LEN: usize = NODE_HEAD_LEN + 32;

fn change_node(bytes: &mut [u8], index: usize, change: impl Fn(&mut Record)) {
    let at = HEADER_LEN + index * NODE_LEN;
    let mut record = Record::parse(&bytes[at..at + NODE_LEN]).unwrap();
    change(&mut record);
    let mut out = Vec::new();
    record.write(&mut out);
    bytes[at..at + NODE_LEN].copy_from_slice(&out);
}

fn change_entry(bytes: &mut [u8], index: usize, change: impl Fn(&mut EntryRecord)) {
    let at = HEADER_LEN + 5 * NODE_LEN + index * ENTRY_LEN;
    let mut record = EntryRecord::parse(bytes[at..].first_chunk().unwrap()).unwrap();
    change(&mut record);
    let mut out = Vec::new();
    record.write(&mut out);
    bytes[at..at + ENTRY_LEN].copy_from_slice(&out);
}

/// Replaces a name, of the same length, in the blob.
fn rename(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    let blob = HEADER_LEN + 5 * NODE_LEN + 4 * ENTRY_LEN;
    let at = bytes[blob..].windows(from.len()).rposition(|window| window == from).unwrap() + blob;
    bytes[at..at + to.len()].copy_from_slice(to);
}

#[test]
fn what_is_written_is_read() {
    let manifest = open(sample()).unwrap();
    let find = |path: &[u8]| manifest.find(path).unwrap().unwrap();
    let file = manifest.node(find(b"g")).unwrap();
    assert_eq!((file.kind, file.mode, file.uid, file.gid, file.size), (NodeKind::File, 0o100_644, 1, 2, 5));
    assert_eq!((file.mtime, file.nlink), (Time { secs: -3, nanos: 4 }, 1));
    assert_eq!(file.descriptor.unwrap().root_hash().as_bytes(), [9; 32]);
    let names: Vec<_> = manifest.xattrs(file.index).unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, [b"user.a", b"user.b"]);
    assert_eq!(manifest.link_target(find(b"s")).unwrap(), b"../up");
    assert_eq!(manifest.link_target(file.index), Err(ManifestError::NotASymlink));
    assert_eq!(manifest.lookup(file.index, b"x"), Err(ManifestError::NotAFolder));
    assert_eq!(manifest.path_of(find(b"d/f")).unwrap(), [b"d", b"f"]);
    assert_eq!(manifest.parent(find(b"d/f")).unwrap(), find(b"d"));
    assert_eq!(manifest.parent(NodeIndex::ROOT).unwrap(), NodeIndex::ROOT);
    assert_eq!(manifest.node(find(b"d")).unwrap().nlink, 2);
    assert_eq!(manifest.node(NodeIndex::ROOT).unwrap().nlink, 3);
    assert_eq!(manifest.node_count(), 5);
    assert!(manifest.node(NodeIndex(5)).is_err());
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in [b"/", b".", b"\0"] {
        let mut bytes = sample();
        rename(&mut bytes, b"g", name);
        let manifest = open(bytes).unwrap();
        assert!(manifest.entries(NodeIndex::ROOT, 0).unwrap().any(|entry| entry.is_err()), "{name:?}");
        assert!(manifest.find(b"g").is_err() && manifest.path_of(NodeIndex(2)).is_err(), "{name:?}");
    }
    let long = "x".repeat(256);
    for name in ["", ".", "..", "a/b", "a\0b", ".shunt", &long] {
        let mut draft = Draft::new(Params::default(), node(0o040_755)).unwrap();
        assert!(draft.fill(NodeIndex::ROOT, vec![child(name, node(0o100_644))]).is_err(), "{name:?}");
    }
    // Below the root it is a name as any other.
    let mut draft = Draft::new(Params::default(), node(0o040_755)).unwrap();
    let placed = draft.fill(NodeIndex::ROOT, vec![child("d", node(0o040_755))]).unwrap();
    draft.fill(placed[0].node, vec![child(".shunt", node(0o100_644))]).unwrap();
}

#[test]
fn folders_in_two_places_or_in_themselves_are_refused() {
    type Change = fn(&mut Vec<u8>);
    // Nodes: 0 root, 1 d, 2 g, 3 s, 4 f. Entries: 0 d, 1 g, 2 s (in the root), 3 f (in d).
    let cases: [(&str, Change); 7] = [
        ("d in d", |bytes| change_entry(bytes, 3, |entry| entry.node = 1)),
        ("the root in d", |bytes| change_entry(bytes, 3, |entry| entry.node = 0)),
        ("d twice", |bytes| change_entry(bytes, 1, |entry| entry.node = 1)),
        ("an entry of another folder", |bytes| change_entry(bytes, 3, |entry| entry.folder = 0)),
        ("entries of another folder", |bytes| change_node(bytes, 1, |node| node.content = 0)),
        ("a home elsewhere", |bytes| change_node(bytes, 4, |node| node.home = 1)),
        ("a home beyond the last", |bytes| change_node(bytes, 4, |node| node.home = u64::MAX)),
    ];
    for (what, change) in cases {
        let mut bytes = sample();
        change(&mut bytes);
        let manifest = open(bytes).unwrap();
        let walk = |folder: u64| -> Result<(), ManifestError> {
            manifest.entries(NodeIndex(folder), 0)?.try_for_each(|entry| entry.map(drop))
        };
        let refused = walk(0).is_err() || walk(1).is_err() || manifest.path_of(NodeIndex(4)).is_err();
        assert!(refused, "{what}");
    }
}

#[test]
fn numbers_beyond_the_end_are_refused() {
    type Change = fn(&mut Record);
    let cases: [(usize, Change); 8] = [
        (0, |node| node.content_count = u64::MAX),
        (0, |node| node.content = u64::MAX),
        (0, |node| node.content_count = 5),
        (2, |node| node.xattrs_offset = u64::MAX),
        (2, |node| node.xattrs_len = 1 << 20),
        (3, |node| node.size = u64::MAX),
        (3, |node| node.content = 1 << 40),
        (2, |node| node.size = u64::MAX),
    ];
    for (case, (index, change)) in cases.into_iter().enumerate() {
        let mut bytes = sample();
        change_node(&mut bytes, index, change);
        let manifest = open(bytes).unwrap();
        let at = NodeIndex(index as u64);
        let refused = [
            manifest.entries(at, 0).err(),
            manifest.xattrs(at).err(),
            manifest.link_target(at).err(),
            manifest.node(at).err(),
        ];
        assert!(
            refused.iter().flatten().any(|error| matches!(error, ManifestError::Malformed(_))),
            "case {case}"
        );
    }
}

#[test]
fn names_out_of_order_are_refused() {
    let mut bytes = sample();
    rename(&mut bytes, b"g", b"z");
    let manifest = open(bytes).unwrap();
    assert!(manifest.entries(NodeIndex::ROOT, 0).unwrap().any(|entry| entry.is_err()));
    let mut draft = Draft::new(Params::default(), node(0o040_755)).unwrap();
    for names in [["b", "a"], ["a", "a"]] {
        let children = names.map(|name| child(name, node(0o100_644))).to_vec();
        assert!(draft.fill(NodeIndex::ROOT, children).is_err());
    }
}

#[test]
fn another_version_length_or_header_is_refused() {
    for (at, byte) in
        [(0, 0), (8, 2), (12, 3), (13, 9), (13, 17), (14, 33), (15, 1), (48, 9), (56, 9), (64, 1), (200, 1)]
    {
        let mut bytes = sample();
        bytes[at] = byte;
        assert!(open(bytes).is_err(), "byte {at}");
    }
    let mut version = sample();
    version[8] = 2;
    assert_eq!(open(version).err(), Some(ManifestError::Version(2)));
    let whole = sample();
    for len in 0..whole.len() {
        assert!(open(whole[..len].to_vec()).is_err(), "{len} bytes");
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert!(open(longer).is_err());
    let mut no_folder = whole;
    change_node(&mut no_folder, 0, |node| node.mode = 0o100_644);
    assert!(open(no_folder).is_err());
}

#[test]
fn the_header_says_lengths_that_cannot_overflow() {
    let header = Header {
        params: Params::default(),
        nodes: u64::MAX,
        entries: u64::MAX,
        blob_len: u64::MAX,
        counts: Counts::default(),
    };
    assert_eq!(header.manifest_len(), None);
    assert!(Header::parse(&header.to_bytes(), 1000).is_err());
}

#[test]
fn hard_links_share_a_node() {
    let link = Some((Device::default(), 7));
    let mut draft = Draft::new(Params::default(), node(0o040_755)).unwrap();
    let linked = |name: &str| Child { name: name.into(), node: node(0o100_644), link };
    let placed =
        draft.fill(NodeIndex::ROOT, vec![linked("a"), linked("b"), child("d", node(0o040_755))]).unwrap();
    let below = draft.fill(placed[2].node, vec![linked("c")]).unwrap();
    assert_eq!(
        [placed[1], below[0]].map(|placed| (placed.node, placed.is_new)),
        [(placed[0].node, false); 2]
    );
    let mut bytes = Vec::new();
    draft.write(&mut bytes).unwrap();
    let manifest = open(bytes).unwrap();
    assert_eq!(manifest.node(placed[0].node).unwrap().nlink, 3);
    assert_eq!(manifest.find(b"d/c").unwrap(), Some(placed[0].node));
    assert_eq!(manifest.path_of(placed[0].node).unwrap(), [b"a"]);
    assert_eq!(draft.counts().files, 1);
}

/// A sealed manifest of so many folders of so many files each, without any file below.
fn large(folders: u32, files: u32) -> Codec<SealedBlocks> {
    let mut draft = Draft::new(Params::default(), node(0o040_755)).unwrap();
    let children = |count: u32, mode| (0..count).map(|at| child(&format!("{at:09}"), node(mode))).collect();
    let placed = draft.fill(NodeIndex::ROOT, children(folders, 0o040_755)).unwrap();
    for folder in placed {
        draft.fill(folder.node, children(files, 0o100_644)).unwrap();
    }
    let mut bytes = Vec::new();
    draft.write(&mut bytes).unwrap();
    let (manifest, mut tree) = (tempfile::tempfile().unwrap(), Vec::new());
    std::io::Write::write_all(&mut &manifest, &bytes).unwrap();
    let jobs = NonZeroUsize::new(2).unwrap();
    let descriptor =
        build_at(&Params::default(), bytes.len() as u64, bytes.as_slice(), &mut tree, jobs).unwrap();
    let tree_file: File = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut &tree_file, &tree).unwrap();
    let verifier = Verifier::new(descriptor, &descriptor.digest()).unwrap();
    let sealed = SealedBlocks::new(manifest, Some(TreeFile { file: tree_file, start: 0 }), verifier);
    Codec::new(sealed).unwrap()
}

#[test]
fn a_manifest_of_a_million_entries_opens_with_as_many_reads_as_levels() {
    // Blocks of the manifest: 4, 3760 and 37600. One block of it, and one of each level of the tree above it.
    let (small, middle, million) = (large(1, 100), large(100, 1000), large(1000, 1000));
    assert_eq!(million.node_count(), 1_001_001);
    let reads = [&small, &middle, &million].map(|manifest| manifest.blocks().reads());
    assert_eq!(reads, [2, 3, 4]);
    let mut random = shuntfs_testkit::seeded::Random::new(7);
    let (mut before, mut most) = (reads[2], 0);
    for _ in 0..500 {
        let (folder, file) = (random.below(1000), random.below(1000));
        let names = [folder, file].map(|at| format!("{at:09}").into_bytes());
        let found = million.find(&names.join(&b'/')).unwrap().unwrap();
        assert_eq!(million.path_of(found).unwrap(), names);
        assert_eq!(found.get(), u64::try_from(1001 + 1000 * folder + file).unwrap());
        assert_eq!(million.find(&[&names[0][..], b"/none"].concat()).unwrap(), None);
        let now = million.blocks().reads();
        (before, most) = (now, most.max(now - before));
    }
    // Three searches of 10 steps, each of which looks at an entry and its name, most of them in blocks of their own, and what
    // of the tree is above them.
    assert!(most <= 3 * 10 * 2 + 40, "{most} reads to find a path and to miss another");
    let names = million.entries(NodeIndex(777), 0).unwrap().map(|entry| entry.unwrap().name);
    assert!(names.eq((0..1000).map(|at| format!("{at:09}").into_bytes())));
}
