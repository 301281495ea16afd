//! Trees sealed, changed and verified.
#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use std::fs::{self, File};
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use common::{Watch, bytes, findings, flip, open, options, plant, seal, verify};
use shuntfs_seal::{
    Belief, Checking, Fault, ManifestError, NodeIndex, NodeKind, Progress, SealError, SealOptions, Side,
    Store, StoreError, Trust, seal_file, seal_tree, verify_file, verify_tree,
};
use shuntfs_verity::sign::{KeyPair, MacKey};
use shuntfs_verity::{Algorithm, BlockSize, Discard, Params, Salt, build};
use tempfile::TempDir;

fn planted() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    plant(dir.path());
    dir
}

fn digest_of(path: &Path, params: &Params) -> shuntfs_verity::Digest {
    let data = fs::read(path).unwrap();
    build(params, data.len() as u64, data.as_slice(), Discard, NonZeroUsize::MIN).unwrap().digest()
}

#[test]
fn a_manifest_says_what_is_there() {
    let dir = planted();
    let at = dir.path();
    let report = seal(at).unwrap();
    assert_eq!((report.counts.files, report.counts.folders, report.counts.symlinks), (5, 3, 1));
    assert_eq!((report.hashed, report.unchanged, report.resumed), (5, 0, 0));
    let manifest = open(at, None).unwrap();
    for path in ["", "a", "a/b", "a/b/small", "a/two", "a/same", "big", "empty", "a/link"] {
        let node = manifest.node(manifest.find(path.as_bytes()).unwrap().unwrap()).unwrap();
        let stat = fs::symlink_metadata(at.join(path)).unwrap();
        assert_eq!((node.mode, node.uid, node.gid), (stat.mode(), stat.uid(), stat.gid()), "{path}");
        assert_eq!(
            (node.mtime.secs, i64::from(node.mtime.nanos)),
            (stat.mtime(), stat.mtime_nsec()),
            "{path}"
        );
        let is_file = stat.is_file();
        assert_eq!(node.digest(), is_file.then(|| digest_of(&at.join(path), &Params::default())), "{path}");
        if !stat.is_dir() {
            assert_eq!(node.size, stat.len(), "{path}");
        }
        // Of the names of a file with several, the one that is met first.
        let path = if path == "a/two" { "linked" } else { path };
        let names: Vec<&[u8]> = path.split('/').filter(|name| !name.is_empty()).map(str::as_bytes).collect();
        assert_eq!(manifest.path_of(node.index).unwrap(), names);
    }
    let find = |path: &[u8]| manifest.find(path).unwrap();
    assert_eq!(find(b"linked"), find(b"a/two"), "hard links share a node");
    assert_eq!(manifest.node(find(b"linked").unwrap()).unwrap().nlink, 2);
    assert_eq!(manifest.node(NodeIndex::ROOT).unwrap().nlink, 3);
    assert_eq!(manifest.link_target(find(b"a/link").unwrap()).unwrap(), b"../big");
    assert_eq!([find(b".shunt"), find(b"a/none"), find(b"big/x"), find(b"..")], [None; 4]);
    let names = |from| -> Vec<Vec<u8>> {
        manifest.entries(NodeIndex::ROOT, from).unwrap().map(|entry| entry.unwrap().name).collect()
    };
    assert_eq!(names(0), [&b"a"[..], b"big", b"empty", b"linked"]);
    assert_eq!(names(2), [&b"empty"[..], b"linked"]);
    assert_eq!(names(u64::MAX).len(), 0);
    assert!(matches!(manifest.entries(find(b"big").unwrap(), 0).err(), Some(ManifestError::NotAFolder)));
    let trees = walk(&Store::beside(at).join("trees"));
    assert_eq!(
        trees.len(),
        2,
        "big's, and one for the two that are equal; the manifest is one block: {trees:?}"
    );
    assert_eq!(findings(at), [""; 0]);
}

#[test]
fn every_parameter_is_kept() {
    for (algorithm, block_size, salt) in [
        (Algorithm::Sha512, 1024, &b"salt"[..]),
        (Algorithm::Sha256, 65536, b""),
        (Algorithm::Sha256, 2048, &[7; 32]),
    ] {
        let dir = planted();
        let params =
            Params::new(algorithm, BlockSize::new(block_size).unwrap(), Salt::new(salt).unwrap()).unwrap();
        let options = SealOptions { params, ..options(&[]) };
        seal_tree(dir.path(), &options, &Watch::quiet()).unwrap();
        let manifest = open(dir.path(), None).unwrap();
        assert_eq!(*manifest.params(), params);
        let big = manifest.node(manifest.find(b"big").unwrap().unwrap()).unwrap();
        assert_eq!(big.digest(), Some(digest_of(&dir.path().join("big"), &params)));
        assert_eq!(findings(dir.path()), [""; 0]);
    }
}

#[test]
fn what_is_unchanged_is_not_hashed_again() {
    let dir = planted();
    let at = dir.path();
    let first = seal(at).unwrap();
    let again = seal(at).unwrap();
    assert_eq!((again.hashed, again.hashed_bytes, again.unchanged, again.resumed), (0, 0, 5, 0));
    assert_eq!(again.digest, first.digest, "the same tree makes the same manifest");
    // A change that leaves size and mtime alone is seen by the ctime.
    let path = at.join("a/two");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    flip(&path, 3);
    File::options().write(true).open(&path).unwrap().set_modified(before).unwrap();
    let changed = seal(at).unwrap();
    assert_eq!((changed.hashed, changed.hashed_bytes, changed.unchanged), (1, 5000, 4));
    assert_ne!(changed.digest, first.digest);
    assert_eq!(findings(at), [""; 0]);
    // Trees and manifests that nothing names any more go.
    fs::remove_file(at.join("big")).unwrap();
    let smaller = seal(at).unwrap();
    assert_eq!((smaller.hashed, smaller.unchanged, smaller.pruned), (0, 4, 2));
    assert_eq!(walk(&Store::beside(at).join("manifests")).len(), 1);
    // A tree that is gone, or not as long as it must be, is made again.
    fs::remove_dir_all(Store::beside(at).join("trees")).unwrap();
    assert_eq!(seal(at).unwrap().hashed, 2);
    assert_eq!(findings(at), [""; 0]);
    // A cache that was tampered with costs time, nothing else.
    flip(&Store::beside(at).join("unchanged"), 70);
    assert_eq!(seal(at).unwrap().hashed, 1);
    fs::write(Store::beside(at).join("unchanged"), "nonsense").unwrap();
    assert_eq!(seal(at).unwrap().hashed, 4);
}

#[test]
fn a_file_that_changes_meanwhile_is_named_and_the_old_seal_stays() {
    let dir = planted();
    let at = dir.path();
    let sealed = seal(at).unwrap().digest;
    fs::write(at.join("big"), bytes(2_000_000, 5)).unwrap();
    fs::write(at.join("a/two"), bytes(6000, 5)).unwrap();
    let change = || {
        File::options().append(true).open(at.join("big")).unwrap().write_all(b"more").unwrap();
    };
    // 300 000 bytes in, one of the two threads is in the middle of it.
    let watch = Watch { hashed: AtomicU64::new(0), after: 300_000, then: Box::new(change) };
    let error = seal_tree(at, &options(&[]), &watch).unwrap_err();
    let SealError::Changed { paths, count } = &error else { panic!("{error}") };
    assert_eq!((paths.as_slice(), *count), (&[at.join("big")][..], 1));
    assert_eq!(open(at, None).unwrap().digest(), sealed, "the old seal is whole");
    // What was hashed is not hashed again.
    let report = seal(at).unwrap();
    assert_eq!((report.hashed, report.resumed, report.unchanged), (1, 1, 3));
    assert_eq!(findings(at), [""; 0]);
    assert!(!Store::beside(at).join("progress").exists());
}

#[test]
fn a_write_of_the_same_length_in_the_same_tick_is_seen() {
    // The clock of files stands still for some milliseconds: what is hashed before the tick of its last change is over
    // could change once more without a trace.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    for round in 0..10 {
        fs::write(&path, bytes(300_000, round)).unwrap();
        let change = || flip(&path, 299_000);
        let watch = Watch { hashed: AtomicU64::new(0), after: 100_000, then: Box::new(change) };
        let error = seal_tree(dir.path(), &options(&[]), &watch).unwrap_err();
        assert!(matches!(error, SealError::Changed { .. }), "{error}");
    }
}

#[test]
fn names_that_come_and_go_meanwhile_are_named() {
    let dir = planted();
    let at = dir.path();
    let changes: [(&(dyn Fn() + Sync), PathBuf); 2] = [
        (&|| fs::write(at.join("a/new"), "x").unwrap(), at.join("a")),
        (&|| fs::rename(at.join("a/b/small"), at.join("a/b/other")).unwrap(), at.join("a/b")),
    ];
    for (index, (change, named)) in changes.iter().enumerate() {
        fs::write(at.join("big"), bytes(2_000_000, index)).unwrap();
        let watch = Watch { hashed: AtomicU64::new(0), after: 1_000_000, then: Box::new(*change) };
        let error = seal_tree(at, &options(&[]), &watch).map(drop);
        let Err(SealError::Changed { paths, .. }) = error else { panic!("{error:?}") };
        assert!(paths.contains(named), "{paths:?}");
        assert!(open(at, None).is_err(), "nothing is sealed");
    }
}

#[test]
fn a_flipped_bit_is_refused_where_it_is() {
    let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let dir = planted();
    let at = dir.path();
    let store = Store::beside(at);
    // More names, so that the manifest has a tree.
    for index in 0..100 {
        fs::write(at.join(format!("a/{index}")), "x").unwrap();
    }
    let options = options(&[&one]);
    let reseal = || seal_tree(at, &options, &Watch::quiet()).unwrap().digest;
    let digest = reseal();
    let trust = [one.public()];
    open(at, Some(&trust)).unwrap();
    let (seal, manifest) = (store.join("seal"), store.join("manifests").join(digest.to_hex()));
    // Data.
    flip(&at.join("big"), 4096 * 17 + 5);
    let verified = verify(at).unwrap();
    let faults: Vec<&Fault> = verified.findings.iter().map(|finding| &finding.fault).collect();
    let data = faults.iter().find_map(|fault| match fault {
        Fault::Data { blocks, first, unknown, .. } => Some((blocks.len(), first.unwrap().block, *unknown)),
        _ => None,
    });
    assert_eq!(data, Some((1, 17, 0)));
    flip(&at.join("big"), 4096 * 17 + 5);
    reseal();
    // The tree of a file: its data is good anyway.
    let big = open(at, None).unwrap();
    let big = big.node(big.find(b"big").unwrap().unwrap()).unwrap().digest().unwrap();
    let tree = Store::open(&store).unwrap().tree_path(&big);
    flip(&tree, 5000);
    assert_eq!(findings(at), ["big: the data is as it was sealed, its tree is not: it differs at byte 5000"]);
    flip(&tree, 5000);
    let whole = fs::read(&tree).unwrap();
    for (bytes, how) in [(&whole[..4096], "truncated"), (&[&whole[..], &[0]].concat()[..], "grown")] {
        fs::write(&tree, bytes).unwrap();
        let found = findings(at);
        assert!(found.len() == 1 && found[0].contains(how) && found[0].contains("trees"), "{found:?}");
    }
    fs::write(&tree, &whole).unwrap();
    assert_eq!(findings(at), [""; 0]);
    // Both: what can be said is said.
    let is_unknown = |fault: &Fault| matches!(fault, Fault::Data { unknown, .. } if *unknown > 0);
    flip(&tree, 5000);
    flip(&at.join("big"), 0);
    assert!(verify(at).unwrap().findings.iter().any(|finding| is_unknown(&finding.fault)));
    flip(&tree, 5000);
    flip(&at.join("big"), 0);
    reseal();
    // The manifest, wherever it is read; its tree; the descriptor of it; the signature.
    let digest = open(at, None).unwrap().digest();
    let manifest = manifest.with_file_name(digest.to_hex());
    for at_byte in [0, 300, fs::metadata(&manifest).unwrap().len() - 1] {
        flip(&manifest, at_byte);
        let error = verify(at).unwrap_err();
        assert!(matches!(error, StoreError::Manifest { source: ManifestError::Damaged(_), .. }), "{error}");
        flip(&manifest, at_byte);
    }
    let tree = Store::open(&store).unwrap().tree_path(&digest);
    flip(&tree, 1);
    assert!(matches!(verify(at), Err(StoreError::Manifest { source: ManifestError::Damaged(_), .. })));
    flip(&tree, 1);
    flip(&seal, 16 + 20);
    open(at, Some(&trust)).unwrap_err();
    flip(&seal, 16 + 20);
    flip(&seal, 352 + 30);
    assert!(matches!(open(at, Some(&trust)), Err(StoreError::WrongSignature { .. })));
    open(at, None).unwrap();
    flip(&seal, 352 + 30);
    assert!(matches!(open(at, Some(&[other.public()])), Err(StoreError::Untrusted { .. })));
    open(at, Some(&[other.public(), one.public()])).unwrap();
    fs::write(&seal, b"").unwrap();
    assert!(matches!(open(at, None), Err(StoreError::Broken { .. })));
    fs::remove_file(&seal).unwrap();
    assert!(matches!(open(at, None), Err(StoreError::NotSealed(_))));
}

#[test]
fn every_difference_is_found() {
    let dir = planted();
    let at = dir.path();
    seal(at).unwrap();
    let mtime = |path: &str| fs::symlink_metadata(at.join(path)).unwrap().modified().unwrap();
    let (root, folder) = (mtime(""), mtime("a"));
    fs::remove_file(at.join("empty")).unwrap();
    fs::create_dir(at.join("empty")).unwrap();
    fs::write(at.join("extra"), "x").unwrap();
    fs::remove_file(at.join("linked")).unwrap();
    fs::remove_file(at.join("a/link")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", at.join("a/link")).unwrap();
    File::options().append(true).open(at.join("a/same")).unwrap().write_all(b"x").unwrap();
    File::open(at).unwrap().set_modified(root).unwrap();
    File::open(at.join("a")).unwrap().set_modified(folder).unwrap();
    let found = findings(at);
    let has =
        |start: &str, end: &str| found.iter().any(|line| line.starts_with(start) && line.ends_with(end));
    assert!(has("empty: a folder in place of a file", ""), "{found:#?}");
    assert!(has("extra: not sealed", "") && has("linked: missing", ""), "{found:#?}");
    assert!(has("a/link: mtime", "target /etc/passwd in place of ../big"), "{found:#?}");
    assert!(has("a/same: 5001 bytes in place of 5000", "") && has("a/same: mtime", ""), "{found:#?}");
    assert_eq!(found.len(), 6, "{found:#?}");
    // Of a part alone.
    let jobs = NonZeroUsize::MIN;
    let only = vec![b"a/b".to_vec(), b"extra".to_vec(), b"big".to_vec()];
    let part = Checking { folder: at, store: None, trust: &Trust::anybody(), only, jobs };
    let part = verify_tree(&part, &Watch::quiet()).unwrap();
    assert_eq!((part.files, part.findings.len()), (2, 1));
}

#[test]
fn data_that_must_not_be_touched_has_its_store_elsewhere() {
    let dir = planted();
    let at = dir.path();
    let elsewhere = tempfile::tempdir().unwrap();
    let store = elsewhere.path().join("deep/store");
    let elsewhere = SealOptions { store: Some(store.clone()), ..options(&[]) };
    seal_tree(at, &elsewhere, &Watch::quiet()).unwrap();
    let again = seal_tree(at, &elsewhere, &Watch::quiet()).unwrap();
    assert_eq!((again.hashed, again.counts.files), (0, 5));
    assert!(!Store::beside(at).exists());
    let checking = Checking {
        folder: at,
        store: Some(store),
        trust: &Trust::anybody(),
        only: Vec::new(),
        jobs: NonZeroUsize::MIN,
    };
    assert!(verify_tree(&checking, &Watch::quiet()).unwrap().findings.is_empty());
    let inside = SealOptions { store: Some(at.join("a/store")), ..options(&[]) };
    let error = seal_tree(at, &inside, &Watch::quiet()).unwrap_err();
    assert!(matches!(error, SealError::InTree { .. }), "{error}");
}

#[test]
fn two_do_not_seal_into_one_store() {
    let dir = planted();
    let at = dir.path();
    let errors = std::sync::Mutex::new(Vec::new());
    let meanwhile = || errors.lock().unwrap().push(seal(at).map(drop));
    let watch = Watch { hashed: AtomicU64::new(0), after: 10, then: Box::new(meanwhile) };
    seal_tree(at, &options(&[]), &watch).unwrap();
    drop(watch);
    let errors = errors.into_inner().unwrap();
    assert!(matches!(errors.as_slice(), [Err(SealError::Busy(_))]), "{errors:?}");
}

#[test]
fn hostile_stores_are_refused() {
    let dir = planted();
    let at = dir.path();
    let digest = seal(at).unwrap().digest;
    let manifest = Store::beside(at).join("manifests").join(digest.to_hex());
    let bytes = fs::read(&manifest).unwrap();
    // A link out of the store, a folder, and a manifest of another length.
    fs::remove_file(&manifest).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &manifest).unwrap();
    assert!(matches!(open(at, None), Err(StoreError::Io { .. })));
    fs::remove_file(&manifest).unwrap();
    fs::create_dir(&manifest).unwrap();
    assert!(matches!(open(at, None), Err(StoreError::Broken { .. })));
    fs::remove_dir(&manifest).unwrap();
    fs::write(&manifest, &bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(open(at, None), Err(StoreError::Broken { .. })));
    fs::remove_file(&manifest).unwrap();
    assert!(open(at, None).unwrap_err().to_string().contains("manifests"));
}

/// Swaps the folder `from` for a link to `to` once the file has been opened.
struct Swap<'a> {
    from: &'a Path,
    to: &'a Path,
}

impl Progress for Swap<'_> {
    fn found(&self, _names: u64) {}
    fn to_hash(&self, _files: u64, _bytes: u64) {
        fs::rename(self.from, self.from.with_extension("away")).unwrap();
        std::os::unix::fs::symlink(self.to, self.from).unwrap();
    }
    fn hashed(&self, _bytes: u64) {}
    fn file_done(&self) {}
}

/// A regression: the folder was looked for twice, and who owns one of those above it had root write the side file elsewhere.
#[test]
fn a_side_file_comes_to_the_file_that_was_hashed() {
    let dir = planted();
    let (from, to) = (dir.path().join("a"), dir.path().join("victim"));
    fs::create_dir(&to).unwrap();
    let swap = Swap { from: &from, to: &to };
    let file = from.join("b/small");
    fs::create_dir(to.join("b")).unwrap();
    seal_file(&file, &Params::default(), None, NonZeroUsize::MIN, &swap).unwrap();
    assert_eq!(fs::read_dir(to.join("b")).unwrap().count(), 0, "nothing comes to the other folder");
    Side::open(&dir.path().join("a.away/b/small")).unwrap();
}

#[test]
fn single_files_have_a_side_file() {
    let dir = planted();
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    for name in ["big", "a/b/small", "empty"] {
        let path = dir.path().join(name);
        let jobs = NonZeroUsize::new(2).unwrap();
        let quiet = Watch::quiet();
        let descriptor = seal_file(&path, &Params::default(), Some(&key), jobs, &quiet).unwrap();
        assert_eq!(descriptor.digest(), digest_of(&path, &Params::default()));
        let side = Side::open(&path).unwrap();
        side.check(&Trust::keys(vec![key.public()])).unwrap();
        side.check(&Trust::keys(vec![other.public()])).unwrap_err();
        assert_eq!(verify_file(&path, &side, jobs, &quiet).unwrap(), None);
        let side_path = Side::path_of(&path);
        let bytes = fs::read(&side_path).unwrap();
        for len in [0, 3, 200, 267, 300] {
            fs::write(&side_path, &bytes[..len]).unwrap();
            Side::open(&path).unwrap_err();
        }
        fs::write(&side_path, &bytes).unwrap();
        flip(&side_path, 270);
        Side::open(&path).unwrap().check(&Trust::keys(vec![key.public()])).unwrap_err();
        flip(&side_path, 4 + 20);
        assert!(Side::open(&path).and_then(|side| side.check(&Trust::keys(vec![key.public()]))).is_err());
    }
    let big = dir.path().join("big");
    seal_file(&big, &Params::default(), None, NonZeroUsize::MIN, &Watch::quiet()).unwrap();
    let side = Side::open(&big).unwrap();
    assert!(matches!(side.check(&Trust::keys(vec![key.public()])), Err(StoreError::Unsigned(_))));
    flip(&big, 4096 * 3);
    let fault = verify_file(&big, &side, NonZeroUsize::MIN, &Watch::quiet()).unwrap();
    assert!(matches!(fault, Some(Fault::Data { blocks, .. }) if blocks.len() == 1 && blocks[0] == (3..4)));
    // A side file's tree lies behind its head, as fs-verity has it.
    let bytes = fs::read(Side::path_of(&big)).unwrap();
    let mut tree = Vec::new();
    flip(&big, 4096 * 3);
    build(&Params::default(), 900_000, File::open(&big).unwrap(), &mut tree, NonZeroUsize::MIN).unwrap();
    assert_eq!(bytes[4096..], tree);
    let names: Vec<_> =
        walk(dir.path()).into_iter().filter(|path| path.to_string_lossy().contains("fsv_meta.")).collect();
    assert!(names.is_empty(), "{names:?}");
}

#[test]
fn what_is_no_file_has_its_kind_and_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let name = std::ffi::CString::new("pipe").unwrap();
    let folder = shuntfs_sys::open::open_folder(dir.path()).unwrap();
    shuntfs_sys::mknod_at(&folder, &name, 0o010_644, 0).unwrap();
    seal(dir.path()).unwrap();
    let manifest = open(dir.path(), None).unwrap();
    let pipe = manifest.node(manifest.find(b"pipe").unwrap().unwrap()).unwrap();
    assert_eq!((pipe.kind, pipe.descriptor), (NodeKind::Pipe, None));
    assert_eq!(findings(dir.path()), [""; 0]);
}

/// A file that rots keeps its times: `--repair` must not seal the damage, and `--rehash` says that it does.
#[test]
fn data_that_differs_from_what_was_noted_is_said() {
    let dir = planted();
    let at = dir.path();
    seal(at).unwrap();
    // What was noted is made to be of other data, as no change of a file could do it without another ctime.
    let path = Store::beside(at).join("unchanged");
    let (head_len, record_len) = (51, 56 + 32 + MacKey::TAG_LEN);
    let write = |bytes: &mut [u8]| {
        for record in bytes[head_len..].chunks_exact_mut(record_len) {
            record[56] ^= 1;
            let (body, tag) = record.split_at_mut(56 + 32);
            tag.copy_from_slice(&MacKey::new(&[0; 32]).tag(body));
        }
        fs::write(&path, bytes).unwrap();
    };
    let mut bytes = fs::read(&path).unwrap();
    assert_eq!(bytes.len(), head_len + 5 * record_len);
    write(&mut bytes);
    let run = |belief| seal_tree(at, &SealOptions { belief, ..options(&[]) }, &Watch::quiet());
    let error = run(Belief::Checked).unwrap_err();
    let SealError::Damaged { paths, count } = &error else { panic!("{error}") };
    // Files of one block have no tree that would be missing, and are trusted.
    assert_eq!((*count, paths.len()), (3, 3), "{error}");
    let report = run(Belief::Nothing).unwrap();
    assert_eq!((report.hashed, report.notes.len()), (5, 1), "{report:?}");
    assert!(report.notes[0].starts_with("of 5 files (") && report.notes[0].contains("not what was noted"));
    assert_eq!(findings(at), [""; 0]);
    assert_eq!(run(Belief::Checked).unwrap().unchanged, 5);
}

/// All files below a folder.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { all.extend(walk(&path)) } else { all.push(path) }
    }
    all
}
