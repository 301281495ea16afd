//! Takes any bytes for a seal, for what is carried to be signed, for the list of serials of a trust store and for a manifest, and walks all of what it finds: what is said must hold together, names must
//! stay in the tree, and the walk must end. Runs under libFuzzer and in the tests of `shuntfs-seal`.

use std::collections::HashSet;
use std::sync::Arc;

use shuntfs_seal::{Blocks, Codec, ManifestError, NodeIndex, NodeKind, Seal, Seen, ToSign};

/// Blocks so small that everything straddles them.
const BLOCK_SIZE: u32 = 100;

struct Bytes<'a>(&'a [u8]);

impl Blocks for Bytes<'_> {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn block_size(&self) -> u32 {
        BLOCK_SIZE
    }
    fn block(&self, index: u64) -> Result<Arc<[u8]>, ManifestError> {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let block = self.0.chunks(BLOCK_SIZE as usize).nth(index);
        block.map(Arc::from).ok_or(ManifestError::Malformed("beyond the end"))
    }
}

pub(crate) fn run(bytes: &[u8]) {
    if let Ok(seal) = Seal::parse(bytes) {
        assert_eq!(seal.to_bytes(), bytes, "a seal has one form");
    }
    if let Ok(to_sign) = ToSign::parse(bytes) {
        assert_eq!(to_sign.message().as_bytes(), bytes, "what is signed has one form");
    }
    if let Some(seen) = std::str::from_utf8(bytes).ok().and_then(|text| Seen::parse(text).ok()) {
        assert_eq!(seen.to_text().as_bytes(), bytes, "a list of serials has one form");
    }
    let Ok(manifest) = Codec::new(Bytes(bytes)) else { return };
    assert!(manifest.node_count() <= bytes.len() as u64);
    let mut folders = vec![NodeIndex::ROOT];
    let mut seen = HashSet::from([NodeIndex::ROOT]);
    let mut steps = 0;
    while let Some(folder) = folders.pop() {
        let Ok(entries) = manifest.entries(folder, 0) else { continue };
        for entry in entries {
            steps += 1;
            assert!(steps <= bytes.len(), "a walk visits each entry once");
            let Ok(entry) = entry else { break };
            check_name(&entry.name, folder);
            let Ok(node) = manifest.node(entry.node) else { continue };
            if node.kind == NodeKind::Folder {
                assert!(
                    entry.node > folder && seen.insert(entry.node),
                    "a folder is reached once, downwards"
                );
                folders.push(entry.node);
            }
            visit(&manifest, entry.node);
            // Names may be out of order, so that a search misses it or finds another of the same name; but a folder that it
            // finds is in this one.
            if let Ok(Some(found)) = manifest.lookup(folder, &entry.name)
                && manifest.node(found).is_ok_and(|node| node.kind == NodeKind::Folder)
            {
                assert_eq!(manifest.parent(found).ok(), Some(folder));
            }
        }
    }
    // Nodes that no walk reached.
    for index in 0..manifest.node_count().min(50) {
        if let Some(node) = NodeIndex::from_inode(index + 1) {
            visit(&manifest, node);
        }
    }
}

fn check_name(name: &[u8], folder: NodeIndex) {
    assert!(!name.is_empty() && name.len() <= 255 && name != b"." && name != b"..");
    assert!(!name.contains(&b'/') && !name.contains(&0));
    assert!(folder != NodeIndex::ROOT || name != b".shunt");
}

fn visit(manifest: &Codec<Bytes<'_>>, node: NodeIndex) {
    if let Ok(path) = manifest.path_of(node) {
        let mut at = NodeIndex::ROOT;
        for (index, name) in path.iter().enumerate() {
            check_name(name, if index == 0 { NodeIndex::ROOT } else { node });
            // A search may miss a name that is out of order; what it finds is at that path.
            match manifest.lookup(at, name) {
                Ok(Some(found)) => at = found,
                _ => break,
            }
        }
    }
    if let Ok(target) = manifest.link_target(node) {
        assert!(!target.is_empty() && target.len() < 4096 && !target.contains(&0));
    }
    if let Ok(xattrs) = manifest.xattrs(node) {
        assert!(xattrs.iter().map(|one| one.name.len() + one.value.len()).sum::<usize>() <= 16 << 20);
    }
}
