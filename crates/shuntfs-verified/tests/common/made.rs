//! Stores that are written by hand, for trees that nobody can wait for: a manifest without the files that it speaks of.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::Path;

use shuntfs_seal::{Child, Draft, DraftNode, NodeIndex, Seal, Store};
use shuntfs_verity::{BlockHasher, Descriptor, Digest, Level, Params, Shape, build_at};

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;

fn child(name: &str, mode: u32, size: u64) -> Child {
    let node = DraftNode { mode, size, ..DraftNode::default() };
    Child { name: name.into(), node, link: None }
}

/// Makes the store of a folder: this manifest, sealed by nobody.
fn write_store(root: &Path, draft: &Draft) {
    let mut bytes = Vec::new();
    draft.write(&mut bytes).unwrap();
    write_bytes(root, &bytes);
}

/// The same with any bytes for a manifest.
fn write_bytes(root: &Path, bytes: &[u8]) {
    let place = Store::beside(root);
    for name in ["manifests", "trees"] {
        fs::create_dir_all(place.join(name)).unwrap();
    }
    let mut tree = Vec::new();
    let jobs = NonZeroUsize::new(2).unwrap();
    let made = build_at(&Params::default(), bytes.len() as u64, bytes, &mut tree, jobs).unwrap();
    fs::write(place.join("manifests").join(made.digest().to_hex()), bytes).unwrap();
    let tree_path = Store::open(&place).unwrap().tree_path(&made.digest());
    fs::create_dir_all(tree_path.parent().unwrap()).unwrap();
    fs::write(tree_path, &tree).unwrap();
    fs::write(place.join("seal"), Seal::new(made, None, &[]).to_bytes()).unwrap();
}

/// A manifest of so many folders of so many empty files each.
pub(crate) fn names(root: &Path, folders: u32, files: u32) {
    let mut draft = Draft::new(Params::default(), child("", FOLDER, 0).node).unwrap();
    let empty = Digest::zero(Params::default().algorithm());
    let children = |count: u32, what: &str, mode| {
        (0..count).map(|at| child(&format!("{what} {at:04}"), mode, 0)).collect::<Vec<_>>()
    };
    let placed = draft.fill(NodeIndex::ROOT, children(folders, "folder", FOLDER)).unwrap();
    for folder in placed {
        for file in draft.fill(folder.node, children(files, "a file of some name", FILE)).unwrap() {
            draft.set_root_hash(file.node, &empty).unwrap();
        }
    }
    write_store(root, &draft);
}

/// A manifest of an empty file `before` and one with a name that no program of ours would write.
pub(crate) fn hostile(root: &Path, name: &[u8]) {
    let mut draft = Draft::new(Params::default(), child("", FOLDER, 0).node).unwrap();
    let stand_in = "z".repeat(name.len());
    let children = vec![child("before", FILE, 0), child(&stand_in, FILE, 0)];
    for file in draft.fill(NodeIndex::ROOT, children).unwrap() {
        draft.set_root_hash(file.node, &Digest::zero(Params::default().algorithm())).unwrap();
    }
    let mut bytes = Vec::new();
    draft.write(&mut bytes).unwrap();
    // The names are at the end, this one last.
    let at = bytes.len() - name.len();
    assert_eq!(bytes[at..], *stand_in.as_bytes());
    bytes[at..].copy_from_slice(name);
    write_bytes(root, &bytes);
}

/// A sealed file `holes` of so many zeroes, all of them holes, and of its tree only what these blocks need.
///
/// Trees over zeroes are known without reading: in each level all blocks but the last are the same.
pub(crate) fn holes(root: &Path, len: u64, wanted: &[u64]) {
    let params = Params::default();
    let shape = Shape::new(&params, len).unwrap();
    let hasher = BlockHasher::new(&params);
    let (block_len, digest_len) = (params.block_size().len(), params.algorithm().digest_len());
    let hash_of = |block: &[u8]| {
        let mut hash = Vec::new();
        hasher.hash_blocks(block, &mut hash);
        hash
    };
    // Of each level, a block that is not the last, and the last.
    let zeroes = hash_of(&vec![0; block_len]);
    let (mut inner, mut last) = (zeroes.clone(), zeroes);
    let mut rows: Vec<[Vec<u8>; 2]> = Vec::new();
    for level in 0..u8::try_from(shape.levels()).unwrap() {
        let below = if level == 0 { Level::Data } else { Level::Tree(level - 1) };
        let in_last = usize::try_from((shape.blocks(below) - 1) % params.arity() as u64).unwrap();
        let full = inner.repeat(params.arity());
        let mut end = [inner.repeat(in_last), last].concat();
        end.resize(block_len, 0);
        (inner, last) = (hash_of(&full), hash_of(&end));
        rows.push([full, end]);
    }
    let root_hash = Digest::new(params.algorithm(), &last).unwrap();
    assert_eq!(last.len(), digest_len);
    let mut draft = Draft::new(params, child("", FOLDER, 0).node).unwrap();
    let placed = draft.fill(NodeIndex::ROOT, vec![child("holes", FILE, len)]).unwrap();
    draft.set_root_hash(placed[0].node, &root_hash).unwrap();
    write_store(root, &draft);
    let descriptor = Descriptor::new(&params, len, root_hash).unwrap();
    let path = Store::open(&Store::beside(root)).unwrap().tree_path(&descriptor.digest());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let tree = File::create(path).unwrap();
    tree.set_len(shape.tree_len()).unwrap();
    for place in wanted.iter().flat_map(|block| shape.path_of(Level::Data, *block)) {
        let Level::Tree(level) = place.level else { continue };
        let [full, end] = &rows[usize::from(level)];
        let is_last = place.index + 1 == shape.blocks(place.level);
        tree.write_all_at(if is_last { end } else { full }, place.tree_block * block_len as u64).unwrap();
    }
    File::create(root.join("holes")).unwrap().set_len(len).unwrap();
}
