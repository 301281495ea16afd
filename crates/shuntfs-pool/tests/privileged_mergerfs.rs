//! Policies beside the real mergerfs: the same branches, the same operations, the same places. Needs root, /dev/fuse and mergerfs.
#![expect(clippy::unwrap_used, reason = "also the helpers of tests report by panic")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode as FileMode, Timespec, Timestamps, XattrFlags, getxattr, mknodat, setxattr,
    statvfs, utimensat,
};
use shuntfs::{Errno, MountOptions, Session, SessionOptions, Timestamp};
use shuntfs_pool::policy::{BranchMode, Candidate, Category, Function, POLICIES, Policy, Space, Why};
use shuntfs_pool::{BranchOptions, Cache, MergeOptions, Pool, PoolOptions};
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::lower::{Lower, LowerKind, LowerSpec};
use shuntfs_testkit::program::{call, find, wait_for};
use shuntfs_testkit::skipped;
use shuntfs_testkit::supervisor::Supervisor;

const LIMIT: Duration = Duration::from_secs(60);
const START: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;

/// Sizes of the branches and what of them is used, so that most and least free, least used and the smallest share differ.
const SIZES: [(u64, usize); 3] = [(64, 30), (128, 12), (96, 10)];
const EQUAL: [(u64, usize); 3] = [(64, 8); 3];

/// The minor version from which on every policy is there.
const COMPLETE: u32 = 42;

/// A branch's mode, and whether more must be left free than there is.
type Mode = (&'static str, bool);

const RW: Mode = ("RW", false);
const RO: Mode = ("RO", false);
const NC: Mode = ("NC", false);
const FULL: Mode = ("RW", true);

const MODES: [[Mode; 3]; 13] = [
    [RW, RW, RW],
    [RW, RW, RO],
    [RW, RW, NC],
    [RW, RW, FULL],
    [RW, RO, FULL],
    [RW, NC, FULL],
    [RW, FULL, RO],
    [FULL, NC, RO],
    [RO, NC, RO],
    [NC, NC, NC],
    [FULL, FULL, FULL],
    [RO, RO, FULL],
    [FULL, RO, RO],
];

struct Peer {
    branches: Vec<Lower>,
    mount: tempfile::TempDir,
    child: Child,
    minor: u32,
    _supervisor: Option<Supervisor>,
}

impl Peer {
    /// `None` where there is none available, and then the reason was said.
    fn start(sizes: [(u64, usize); 3]) -> Option<Self> {
        let Some(program) = find("mergerfs") else {
            skipped("mergerfs is not installed");
            return None;
        };
        let mut branches = Vec::new();
        for (size, used) in sizes {
            let lower = LowerSpec::new(LowerKind::Tmpfs).size(size * MIB).make().unwrap()?;
            fs::write(lower.path().join("used"), vec![0; used << 20]).unwrap();
            branches.push(lower);
        }
        let version = call(program.to_str().unwrap(), &[&"--version"], START).unwrap();
        let mut numbers = version.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
        let minor = numbers.nth(1).unwrap().parse().unwrap();
        let mount = tempfile::tempdir().unwrap();
        let list =
            branches.iter().map(|branch| branch.path().to_str().unwrap()).collect::<Vec<_>>().join(":");
        let child = Command::new(program)
            .args(["-f", "-o", "minfreespace=1M,cache.statfs=0,cache.files=off", &list])
            .arg(mount.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut peer = Self { branches, mount, child, minor, _supervisor: None };
        assert!(wait_until(START, || peer.asked(".mergerfs", "category.create").is_some()), "it mounts");
        peer._supervisor = Some(Supervisor::of(peer.mount.path(), LIMIT).unwrap());
        Some(peer)
    }

    fn asked(&self, name: &str, what: &str) -> Option<String> {
        let mut value = vec![0; 4096];
        let len = getxattr(self.mount.path().join(name), format!("user.mergerfs.{what}"), &mut value).ok()?;
        value.truncate(len);
        String::from_utf8(value).ok()
    }

    fn set(&self, what: &str, value: &str) {
        let control = self.mount.path().join(".mergerfs");
        let name = format!("user.mergerfs.{what}");
        setxattr(control, name, value.as_bytes(), XattrFlags::empty()).unwrap();
    }

    fn set_modes(&self, modes: [Mode; 3]) {
        let with = self.branches.iter().zip(modes).map(|(branch, (mode, is_full))| {
            let min_free = if is_full { "1T" } else { "1M" };
            format!("{}={mode},{min_free}", branch.path().display())
        });
        self.set("branches", &with.collect::<Vec<_>>().join(":"));
    }

    /// `d` on the second and third branch, `d/e` on the third, `s` on all; each with times of its own.
    fn lay_out(&self) {
        for (place, branch) in self.branches.iter().enumerate() {
            for entry in fs::read_dir(branch.path()).unwrap().map(Result::unwrap) {
                if entry.file_name() == "used" {
                    continue;
                }
                let is_folder = entry.file_type().unwrap().is_dir();
                if is_folder { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) }
                    .unwrap();
            }
            fs::write(branch.path().join("s"), "").unwrap();
            fs::set_permissions(branch.path().join("s"), fs::Permissions::from_mode(0o644)).unwrap();
            if place > 0 {
                fs::create_dir(branch.path().join("d")).unwrap();
            }
            if place > 1 {
                fs::create_dir(branch.path().join("d/e")).unwrap();
            }
            for (name, times) in
                [("d/e", [0, 0, 100]), ("d", [0, 300, 200]), ("s", [10, 30, 20]), ("", [600, 400, 500])]
            {
                set_mtime(&branch.path().join(name), times[place]);
            }
        }
    }

    fn candidates(&self, path: &str, modes: [Mode; 3]) -> Vec<Candidate> {
        let of = |(branch, (mode, is_full)): (&Lower, Mode)| {
            let below = statvfs(branch.path()).unwrap();
            let mut candidate = Candidate {
                mode: BranchMode::of(mode).unwrap(),
                space: Space {
                    total: below.f_blocks * below.f_frsize,
                    available: below.f_bavail * below.f_frsize,
                },
                min_free: if is_full { 1 << 40 } else { MIB },
                ..Candidate::default()
            };
            let mut here = branch.path().to_owned();
            candidate.depth = components(path)
                .take_while(|part| {
                    here.push(part);
                    here.exists()
                })
                .count();
            let time = |found: fs::Metadata| Timestamp { secs: found.mtime(), nanos: 0 };
            candidate.mtime = fs::metadata(branch.path().join(path)).ok().map(time);
            candidate
        };
        self.branches.iter().zip(modes).map(of).collect()
    }

    /// The branches on which something holds.
    fn on(&self, path: &str, holds: impl Fn(&Path) -> bool) -> Vec<usize> {
        let is_there = |(place, branch): (usize, &Lower)| holds(&branch.path().join(path)).then_some(place);
        self.branches.iter().enumerate().filter_map(is_there).collect()
    }

    fn is_complete(&self) -> bool {
        self.minor >= COMPLETE
    }

    fn policies(&self) -> impl Iterator<Item = &'static Policy> {
        let is_complete = self.is_complete();
        if !is_complete {
            skipped(
                "lup, and lookups by lus, eplus and msplus: early releases, as 2.33, do not have them right",
            );
        }
        POLICIES.iter().filter(move |policy| is_complete || policy.name() != "lup")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let unmounted = call("umount", &[&self.mount.path()], START).is_ok();
        if !unmounted || wait_for(&mut self.child, START).unwrap_or(None).is_none() {
            self.child.kill().unwrap_or_default();
            self.child.wait().unwrap();
        }
    }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

fn set_mtime(path: &PathBuf, secs: i64) {
    let time = Timespec { tv_sec: secs, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    if path.exists() {
        utimensat(CWD, path, &times, AtFlags::empty()).unwrap();
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_lower(error.raw_os_error().unwrap())
}

/// What policies say; of one that chooses by chance, all that it could choose.
fn expected(
    policy: &Policy,
    category: Category,
    path: &str,
    branches: &[Candidate],
) -> Result<Vec<Vec<usize>>, Errno> {
    let pick = policy.pick(category, components(path).count(), branches, 0);
    let chosen = pick.chosen()?;
    if !["rand", "pfrd"].iter().any(|word| policy.name().ends_with(word)) {
        return Ok(vec![chosen]);
    }
    let fit = |place: &usize| matches!(pick.why_not(*place), None | Some(Why::NotFirst));
    Ok((0..branches.len()).filter(fit).map(|place| vec![place]).collect())
}

#[track_caller]
fn assert_same(expected: &Result<Vec<Vec<usize>>, Errno>, seen: &Result<Vec<usize>, Errno>, what: &str) {
    let is_same = match (expected, seen) {
        (Ok(expected), Ok(seen)) => expected.contains(seen),
        (Err(expected), Err(seen)) => expected == seen,
        _ => false,
    };
    assert!(is_same, "{what}: ours says {expected:?}, mergerfs {seen:?}");
}

#[test]
fn new_things_are_made_where_mergerfs_makes_them() {
    for sizes in [SIZES, EQUAL] {
        compare_new(sizes);
    }
}

fn compare_new(sizes: [(u64, usize); 3]) {
    let Some(peer) = Peer::start(sizes) else { return };
    let mut compared = 0;
    for policy in peer.policies() {
        peer.set("category.create", policy.name());
        for modes in MODES {
            peer.set_modes(modes);
            for folder in ["", "d", "d/e"] {
                peer.lay_out();
                let expected = expected(policy, Category::Create, folder, &peer.candidates(folder, modes));
                if policy.name().starts_with("msp") && expected.is_err() {
                    // It would try forever.
                    continue;
                }
                let what = format!("{} {modes:?} in {folder:?}", policy.name());
                // The kernel keeps names that it was told of.
                compared += 1;
                let path = format!("{folder}/new-{compared}");
                let path = path.trim_start_matches('/');
                let made = fs::create_dir(peer.mount.path().join(path));
                let seen = made.map(|()| peer.on(path, Path::is_dir)).map_err(|error| errno(&error));
                assert_same(&expected, &seen, &what);
                peer.lay_out();
                let path = &format!("{path}-file");
                // A file is made on the first of them.
                let one = expected.map(|all| all.into_iter().map(|chosen| vec![chosen[0]]).collect());
                let made = fs::write(peer.mount.path().join(path), "");
                let seen = made.map(|()| peer.on(path, Path::is_file)).map_err(|error| errno(&error));
                assert_same(&one, &seen, &what);
            }
        }
    }
    assert!(compared > 500, "{compared}");
}

#[test]
fn what_is_there_is_found_and_changed_where_mergerfs_does() {
    let Some(peer) = Peer::start(SIZES) else { return };
    for policy in peer.policies() {
        for modes in [[RW, RW, RW], [RW, NC, RO], [RO, RW, RW], [RO, RO, RO], [NC, FULL, RW]] {
            let what = format!("{} {modes:?}", policy.name());
            peer.set("category.search", policy.name());
            peer.set_modes(modes);
            peer.lay_out();
            let searches = peer.is_complete() || !policy.name().ends_with("lus");
            for path in ["s", "d", "d/e"].iter().filter(|_| searches) {
                let expected = expected(policy, Category::Search, path, &peer.candidates(path, modes));
                let one = expected.map(|all| all.into_iter().map(|chosen| vec![chosen[0]]).collect());
                let Some(base) = peer.asked(path, "basepath") else { panic!("{what}: {path} is not found") };
                let seen = peer.on("", |branch| branch == Path::new(&base).join(""));
                assert_same(&one, &Ok(seen), &format!("{what}, looking for {path}"));
            }
            peer.set("category.search", "ff");
            peer.set("category.action", policy.name());
            let expected = expected(policy, Category::Action, "s", &peer.candidates("s", modes));
            let changed = fs::set_permissions(peer.mount.path().join("s"), fs::Permissions::from_mode(0o600));
            let is_changed = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777 == 0o600;
            let seen = changed.map(|()| peer.on("s", is_changed)).map_err(|error| errno(&error));
            assert_same(&expected, &seen, &format!("{what}, changing it"));
        }
    }
}

/// Our own mount of the same branches.
struct Ours {
    session: Session,
    top: tempfile::TempDir,
    _supervisor: Supervisor,
}

impl Ours {
    fn start(peer: &Peer, policy: &'static Policy, modes: [Mode; 3]) -> Self {
        Self::start_with(peer, modes, |merge| merge.create = policy)
    }

    fn start_with(peer: &Peer, modes: [Mode; 3], change: impl FnOnce(&mut MergeOptions)) -> Self {
        let branches = peer.branches.iter().zip(modes).map(|(branch, (mode, is_full))| BranchOptions {
            mode: BranchMode::of(mode).unwrap(),
            min_free: Some(if is_full { 1 << 40 } else { MIB }),
            ..BranchOptions::new(branch.path())
        });
        let mut merge = MergeOptions::new(branches.collect());
        change(&mut merge);
        let options = PoolOptions { merge: Some(merge), cache: Cache::None, ..PoolOptions::new("branches") };
        let (pool, top) = (Pool::open(&options).unwrap(), tempfile::tempdir().unwrap());
        let how = MountOptions::default();
        let session = Session::mount(Arc::new(pool), top.path(), &how, &SessionOptions::default()).unwrap();
        let supervisor = Supervisor::of(top.path(), LIMIT).unwrap();
        Self { session, top, _supervisor: supervisor }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if let Err(error) = self.session.unmount() {
            eprintln!("our mount is left to its supervisor: {error}");
        }
    }
}

/// Through mounts of both, on the same branches: what is made, with which path, and what it fails with.
#[test]
fn our_mount_makes_new_things_where_mergerfs_makes_them() {
    let Some(peer) = Peer::start(SIZES) else { return };
    let mut compared = 0;
    for policy in
        peer.policies().filter(|policy| !policy.name().ends_with("rand") && !policy.name().ends_with("pfrd"))
    {
        peer.set("category.create", policy.name());
        for modes in
            [[RW, RW, RW], [RW, RO, NC], [FULL, RW, RW], [RW, NC, FULL], [RO, NC, RO], [FULL, FULL, FULL]]
        {
            peer.set_modes(modes);
            let ours = Ours::start(&peer, policy, modes);
            for folder in ["", "d", "d/e"] {
                let expected = expected(policy, Category::Create, folder, &peer.candidates(folder, modes));
                if policy.name().starts_with("msp") && expected.is_err() {
                    // mergerfs would try forever.
                    continue;
                }
                compared += 1;
                let path =
                    |what: &str| format!("{folder}/{what}-{compared}").trim_start_matches('/').to_owned();
                let (made, file) = (path("folder"), path("file"));
                let seen = [peer.mount.path(), ours.top.path()].map(|top| {
                    peer.lay_out();
                    let by = |made: std::io::Result<()>| made.map_err(|error| errno(&error));
                    let outcome =
                        (by(fs::create_dir(top.join(&made))), by(fs::write(top.join(&file), "bytes")));
                    let places = [made.as_str(), &file, "d", "d/e"].map(|path| peer.on(path, Path::exists));
                    (outcome, places)
                });
                assert_eq!(seen[0], seen[1], "{} {modes:?} in {folder:?}: mergerfs, ours", policy.name());
            }
        }
    }
    assert!(compared > 100, "{compared}");
}

/// Something done below the top of a mount; the path is one that nobody has used yet.
type Act = fn(&Path, &str) -> std::io::Result<()>;

/// A function, the folder of the new name, and what calls it.
const ACTS: [(Function, &str, Act); 7] = [
    (Function::Create, "d/", |top, new| fs::write(top.join(new), "")),
    (Function::Mkdir, "d/", |top, new| fs::create_dir(top.join(new))),
    (Function::Mknod, "d/", |top, new| make_fifo(&top.join(new))),
    (Function::Symlink, "d/", |top, new| std::os::unix::fs::symlink("x", top.join(new))),
    (Function::Unlink, "", |top, _| fs::remove_file(top.join("s"))),
    (Function::Rename, "", |top, new| fs::rename(top.join("s"), top.join(new))),
    (Function::Rename, "d/", |top, new| fs::rename(top.join("s"), top.join(new))),
];

fn make_fifo(path: &Path) -> std::io::Result<()> {
    Ok(mknodat(CWD, path, FileType::Fifo, FileMode::from_raw_mode(0o644), 0)?)
}

fn policies_for(function: Function) -> &'static [&'static str] {
    match function {
        // Others pick what is hidden, too, and mergerfs moves it; here the caller hears EXDEV and copies what is seen.
        Function::Rename => &["ff", "all", "epff", "epall"],
        Function::Unlink => &["ff", "all", "epff", "epall", "epmfs", "eplfs", "newest"],
        _ => &[
            "ff", "all", "mfs", "lfs", "lus", "epff", "epall", "epmfs", "eplfs", "eplus", "mspmfs", "newest",
        ],
    }
}

/// Each function with a policy of its own, while all others have that of their category: through mounts of both, the same comes to the
/// same places.
#[test]
fn single_functions_go_where_they_go_in_mergerfs() {
    let Some(peer) = Peer::start(SIZES) else { return };
    for (category, policy) in [("create", "lfs"), ("action", "epall"), ("search", "ff")] {
        peer.set(&format!("category.{category}"), policy);
    }
    let mut compared = 0;
    for (function, folder, act) in ACTS {
        let key = format!("func.{}", function.name());
        let before = peer.asked(".mergerfs", &key).unwrap();
        for policy in policies_for(function) {
            peer.set(&key, policy);
            for modes in [[RW, RW, RW], [RW, NC, RW], [FULL, RW, NC]] {
                peer.set_modes(modes);
                let ours = Ours::start_with(&peer, modes, |merge| {
                    merge.create = Policy::of("lfs").unwrap();
                    merge.functions = vec![(function, Policy::of(policy).unwrap())];
                });
                compared += 1;
                let new = format!("{folder}new-{compared}");
                let seen = [peer.mount.path(), ours.top.path()].map(|top| {
                    peer.lay_out();
                    let outcome = act(top, &new).map_err(|error| errno(&error));
                    let places = [new.as_str(), "s", "d"]
                        .map(|path| peer.on(path, |at| at.symlink_metadata().is_ok()));
                    (outcome, places)
                });
                assert_eq!(seen[0], seen[1], "{key}={policy} {modes:?}: mergerfs, ours");
            }
        }
        peer.set(&key, &before);
    }
    assert!(compared > 100, "{compared}");
}
