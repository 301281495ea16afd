//! A pool above a file system that takes different names for the same. Needs root and /dev/fuse.
//!
//! Kernels have vfat, exfat, ntfs or folders with `chattr +F`, or they have not; a FUSE server that folds is available
//! everywhere, and the pool must find out by trying. Rules, seals and the store's name would be passed by another spelling.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shuntfs::{
    Attr, AttrReply, ByteRange, Cx, DirSink, Entry, Errno, FileType, Filesystem, Filled, Listed,
    MountOptions, Name, NodeId, OpenFlags, Opened, OpenedDir, ReadReply, Result, Session, SessionOptions,
};
use shuntfs_pool::{BranchOptions, Cache, MergeOptions, Pool, PoolError, PoolOptions};
use shuntfs_rules::{Nobody, Rules};
use shuntfs_testkit::supervisor::Supervisor;

/// A folder `sub`, and in each of the two folders a file `Secret`.
#[derive(Default)]
struct Folding {
    folds_root: bool,
    /// What names somebody has removed. They are still there.
    removed: Arc<Mutex<Vec<String>>>,
}

const SUB: u64 = 2;

fn attr(node: NodeId) -> AttrReply {
    let (kind, permissions) =
        if node.get() <= SUB { (FileType::Directory, 0o755) } else { (FileType::Regular, 0o644) };
    Attr::new(node.get(), kind, permissions).with_size(6).valid_for(Duration::ZERO)
}

impl Folding {
    fn find(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let folds = self.folds_root || parent != NodeId::ROOT;
        let is = |known: &[u8]| if folds { name.eq_ignore_ascii_case(known) } else { name == known };
        if is(b"Secret") {
            NodeId::new(parent.get() + SUB)
        } else if parent == NodeId::ROOT && is(b"sub") {
            NodeId::new(SUB)
        } else {
            None
        }
    }
}

impl Filesystem for Folding {
    type File = ();
    type Dir = ();

    async fn lookup(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<Entry> {
        let node = self.find(parent, name.as_bytes()).ok_or(Errno::NOENT)?;
        Ok(Entry::new(node, attr(node)))
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        Ok(attr(node))
    }

    async fn unlink(&self, _: &Cx<'_>, parent: NodeId, name: Name<'_>) -> Result<()> {
        self.find(parent, name.as_bytes()).ok_or(Errno::NOENT)?;
        self.removed.lock().push(String::from_utf8_lossy(name.as_bytes()).into_owned());
        Ok(())
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> {
        Ok(Opened::served(()))
    }

    async fn read<'q>(&self, _: &Cx<'_>, (): &(), at: ByteRange, reply: ReadReply<'q>) -> Result<Filled<'q>> {
        reply.copy_from_slice(if at.offset == 0 { b"secret" } else { b"" })
    }

    async fn opendir(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<OpenedDir<()>> {
        Ok(OpenedDir::new(()))
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        node: NodeId,
        (): &(),
        cookie: u64,
        out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        let names: &[&[u8]] = if node == NodeId::ROOT { &[b"Secret", b"sub"] } else { &[b"Secret"] };
        let records = names.iter().filter_map(|name| Some((self.find(node, name)?.get(), None, name)));
        Ok(out.list(cookie, records))
    }
}

fn rules(text: &str) -> Rules {
    Rules::parse(text, "rules", None, &Nobody).unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

/// With who ends the mount from outside where this process hangs; to be dropped after the session.
fn mount<F: Filesystem>(fs: F, at: &Path) -> Option<(Supervisor, Session)> {
    let how = MountOptions { allow_other: true, ..MountOptions::default() };
    match Session::mount(Arc::new(fs), at, &how, &SessionOptions::default()) {
        Ok(session) => Some((Supervisor::of(at, Duration::from_secs(60)).expect("a supervisor"), session)),
        Err(error) => {
            eprintln!("SKIPPED: cannot mount here: {error}");
            None
        }
    }
}

#[test]
fn a_source_that_folds_names_is_not_shown_under_rules_by_name() {
    let below = tempfile::tempdir().unwrap();
    let Some((_until, lower)) = mount(Folding { folds_root: true, ..Folding::default() }, below.path())
    else {
        return;
    };
    assert_eq!(fs::read_to_string(below.path().join("SECRET")).unwrap(), "secret");
    let options = PoolOptions::new(below.path());
    for text in
        ["[[rule]]\nbasename = 'Secret'\nhide = true\n", "[[rule]]\npath = 'Secret'\ndeny = 'EACCES'\n"]
    {
        let error = Pool::open_with_rules(&options, rules(text)).err().unwrap();
        assert!(matches!(error, PoolError::FoldsNames { .. }), "{error}");
        assert!(error.to_string().contains("takes different names for the same"), "{error}");
    }
    // What does not go by names holds there as anywhere.
    Pool::open_with_rules(&options, rules("[[rule]]\nuid = 71001\nread_only = true\n")).unwrap();
    Pool::open(&options).unwrap();
    lower.unmount_lazily().unwrap();
}

#[test]
fn a_folder_that_folds_names_is_refused_and_the_others_are_not() {
    let (below, top) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let Some((_until, lower)) = mount(Folding::default(), below.path()) else { return };
    let pool = Pool::open_with_rules(
        &PoolOptions::new(below.path()),
        rules("[[rule]]\npath = 'sub/Secret'\nhide = true\n"),
    );
    let Some((_until_too, upper)) = mount(pool.unwrap(), top.path()) else { return };
    let at = |name: &str| top.path().join(name);
    let refused = |name: &str| fs::read(at(name)).err().and_then(|error| error.raw_os_error());
    for name in ["sub/SECRET", "sub/secret", "sub/Secret", "sub/nothing"] {
        assert_eq!(refused(name), Some(95), "{name}");
    }
    assert_eq!(
        fs::read_dir(at("sub"))
            .and_then(Iterator::collect::<std::io::Result<Vec<_>>>)
            .err()
            .and_then(|error| error.raw_os_error()),
        Some(95)
    );
    assert_eq!(fs::write(at("sub/new"), "").err().and_then(|error| error.raw_os_error()), Some(95));
    assert_eq!(fs::read_to_string(at("Secret")).unwrap(), "secret");
    assert_eq!(refused("SECRET"), Some(2));
    upper.unmount_lazily().unwrap();
    upper.unmount().unwrap();
    drop(upper);
    lower.unmount_lazily().unwrap();
}

/// A name is looked for on every branch, so one that folds names would let it be met by another spelling.
#[test]
fn a_folder_of_a_merge_is_refused_where_one_branch_folds_names() {
    let [plain, below, top] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    for path in ["sub", "sub/deep", "other"] {
        fs::create_dir(plain.path().join(path)).unwrap();
    }
    for path in ["sub/x", "other/y"] {
        fs::write(plain.path().join(path), "x").unwrap();
    }
    let hides = || rules("[[rule]]\npath = 'sub/Secret'\nhide = true\n");
    let options = |branches: &[&Path]| {
        let branches = branches.iter().map(|path| BranchOptions::new(*path)).collect();
        PoolOptions { merge: Some(MergeOptions::new(branches)), ..PoolOptions::new("merged") }
    };
    let Some((_until, lower)) = mount(Folding { folds_root: true, ..Folding::default() }, below.path())
    else {
        return;
    };
    let error = Pool::open_with_rules(&options(&[plain.path(), below.path()]), hides()).err().unwrap();
    assert!(matches!(&error, PoolError::FoldsNames { path, .. } if path == below.path()), "{error}");
    lower.unmount_lazily().unwrap();
    drop(lower);

    let Some((_until, lower)) = mount(Folding::default(), below.path()) else { return };
    let pool = Pool::open_with_rules(&options(&[plain.path(), below.path()]), hides()).unwrap();
    let Some((_until_too, upper)) = mount(pool, top.path()) else { return };
    let refused = |name: &str| fs::read(top.path().join(name)).err().and_then(|error| error.raw_os_error());
    for name in ["sub/SECRET", "sub/Secret", "sub/x"] {
        assert_eq!(refused(name), Some(95), "{name}");
    }
    assert_eq!((refused("other/y"), refused("Secret"), refused("SECRET")), (None, None, Some(2)));
    upper.unmount_lazily().unwrap();
    upper.unmount().unwrap();
    drop(upper);
    lower.unmount_lazily().unwrap();
}

/// Without rules it is a branch as any other: what it takes for a name is one there. So each name that is listed leads to what was listed, and a
/// name is removed on each branch that takes it for one.
#[test]
fn names_that_differ_in_case_are_what_each_branch_takes_them_for() {
    let [plain, below, top] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    fs::write(plain.path().join("secret"), "plain").unwrap();
    let removed = Arc::<Mutex<Vec<String>>>::default();
    let folding = Folding { folds_root: true, removed: Arc::clone(&removed) };
    let Some((_until, lower)) = mount(folding, below.path()) else { return };
    let branches = [plain.path(), below.path()].map(BranchOptions::new).into();
    let options = PoolOptions {
        merge: Some(MergeOptions { min_free: 0, ..MergeOptions::new(branches) }),
        cache: Cache::None,
        ..PoolOptions::new("merged")
    };
    let Some((_until_too, upper)) = mount(Pool::open(&options).unwrap(), top.path()) else { return };
    let at = |name: &str| top.path().join(name);
    let mut names: Vec<_> = fs::read_dir(top.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["Secret", "secret", "sub"]);
    let texts = ["Secret", "SECRET", "secret"].map(|name| fs::read_to_string(at(name)).unwrap());
    assert_eq!(texts, ["secret", "secret", "plain"]);
    let exists = fs::File::create_new(at("SECRET")).err().map(|error| error.kind());
    assert_eq!(exists, Some(std::io::ErrorKind::AlreadyExists));
    fs::remove_file(at("secret")).unwrap();
    assert!(!plain.path().join("secret").exists());
    assert_eq!(*removed.lock(), ["secret"], "that branch has it, too");
    upper.unmount_lazily().unwrap();
    upper.unmount().unwrap();
    drop(upper);
    lower.unmount_lazily().unwrap();
}
