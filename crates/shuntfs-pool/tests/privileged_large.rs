//! A folder of ten million names on one branch of a pool: each is listed once, and what the server holds for it has a bound. Needs root and
//! /dev/fuse.
//!
//! The folder is made up by a file system of the test's own, because no disk holds so many names in a time that a test has.

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, RawDir, open};
use shuntfs::{
    Attr, AttrReply, Cx, DirSink, Entry, Errno, FileType, Filesystem, Listed, MountOptions, Name, NodeId,
    OpenFlags, Opened, OpenedDir, Result, Session, SessionOptions,
};
use shuntfs_testkit::limit::run_with_timeout;
use shuntfs_testkit::mounted::{Flow, MountSpec, Mounted, Transport};
use shuntfs_testkit::process::resident_bytes;
use shuntfs_testkit::supervisor::Supervisor;
use shuntfs_testkit::{say, serial, skipped};

const NAMES: u64 = 10_000_000;

/// The second branch has so many names, and the first one has half of them, too: each is asked for, because more names than are noted
/// were listed before.
const OTHERS: u64 = 2000;

/// 72 MiB for names that are noted, half as much again while their table grows, and 2.5 MB for where the listing has been.
const GROWTH_MAX: u64 = 160 << 20;

const LIMIT: Duration = Duration::from_secs(400);

/// A root with the files `0`, `1` and so on.
struct Many;

fn attr(node: NodeId) -> AttrReply {
    let (kind, permissions) =
        if node == NodeId::ROOT { (FileType::Directory, 0o755) } else { (FileType::Regular, 0o644) };
    Attr::new(node.get(), kind, permissions).valid_for(Duration::ZERO)
}

/// The node of a number.
fn node(number: u64) -> Option<NodeId> {
    NodeId::new(number + 2)
}

impl Filesystem for Many {
    type File = ();
    type Dir = ();

    async fn lookup(&self, _: &Cx<'_>, _: NodeId, name: Name<'_>) -> Result<Entry> {
        let number = std::str::from_utf8(name.as_bytes()).ok().and_then(|name| name.parse::<u64>().ok());
        let node = number.filter(|number| *number < NAMES).and_then(node).ok_or(Errno::NOENT)?;
        Ok(Entry::new(node, attr(node)))
    }

    async fn getattr(&self, _: &Cx<'_>, node: NodeId, _: Option<&()>) -> Result<AttrReply> {
        Ok(attr(node))
    }

    async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<()>> {
        Err(Errno::ACCES)
    }

    async fn opendir(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<OpenedDir<()>> {
        Ok(OpenedDir::new(()))
    }

    async fn readdir<'q>(
        &self,
        _: &Cx<'_>,
        _: NodeId,
        (): &(),
        cookie: u64,
        mut out: DirSink<'q>,
    ) -> Result<Listed<'q>> {
        for number in cookie..NAMES {
            let ino = node(number).ok_or(Errno::IO)?.get();
            if !out.push(ino, number + 1, FileType::Regular, number.to_string().as_bytes()) {
                break;
            }
        }
        Ok(out.finish())
    }
}

/// How many names are listed, and how many of each kind: those that only the second branch has, and those that both have.
#[derive(Default)]
struct Seen {
    all: u64,
    second: u64,
    both: u64,
}

fn list(top: &Path) -> rustix::io::Result<Seen> {
    let folder = open(top, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut room = vec![MaybeUninit::uninit(); 1 << 20];
    let mut records = RawDir::new(folder, &mut room);
    let mut seen = Seen::default();
    while let Some(record) = records.next() {
        let name = record?.file_name().to_bytes().to_vec();
        let number = std::str::from_utf8(&name).ok().and_then(|name| name.parse::<u64>().ok());
        seen.all += 1;
        seen.second += u64::from(number.is_some_and(|number| number >= NAMES));
        seen.both += u64::from(number.is_some_and(|number| (NAMES - OTHERS / 2..NAMES).contains(&number)));
    }
    Ok(seen)
}

#[test]
fn ten_million_names_are_listed_once_each_in_bounded_memory() {
    let _serial = serial();
    let (many, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for number in NAMES - OTHERS / 2..NAMES + OTHERS / 2 {
        fs::write(others.path().join(number.to_string()), "").unwrap();
    }
    let how = MountOptions { allow_other: true, ..MountOptions::default() };
    let session = match Session::mount(Arc::new(Many), many.path(), &how, &SessionOptions::default()) {
        Ok(session) => session,
        Err(error) => return skipped(&format!("cannot mount here: {error}")),
    };
    let supervisor = Supervisor::of(many.path(), LIMIT).unwrap();
    let source = format!("{}:{}", many.path().display(), others.path().display());
    let spec = MountSpec::new(Path::new(&source), Transport::Device, Flow::Served).limit(LIMIT.as_secs());
    let Some(mut pool) = Mounted::start(&spec.args(&["--minfreespace", "0"])).unwrap() else { return };
    let fresh = resident_bytes(pool.pid()).unwrap();
    let (top, begun) = (pool.path().to_owned(), Instant::now());
    let listing = std::thread::spawn(move || run_with_timeout(LIMIT, "listing", move || list(&top)));
    let mut most = fresh;
    while !listing.is_finished() {
        most = most.max(resident_bytes(pool.pid()).unwrap());
        std::thread::sleep(Duration::from_millis(20));
    }
    let seen = listing.join().unwrap().unwrap().unwrap();
    let after = resident_bytes(pool.pid()).unwrap();
    let mib = |bytes: u64| bytes >> 20;
    say(&format!(
        "{} names in {:.1} s: {} MiB resident before, {} at most, {} after",
        seen.all,
        begun.elapsed().as_secs_f64(),
        mib(fresh),
        mib(most),
        mib(after)
    ));
    // Each once; the first branch lists neither `.` nor `..`.
    assert_eq!((seen.all, seen.second, seen.both), (NAMES + OTHERS / 2, OTHERS / 2, OTHERS / 2));
    assert!(most - fresh < GROWTH_MAX, "{} MiB more", mib(most - fresh));
    assert!(pool.unmount().unwrap().success());
    session.unmount_lazily().unwrap();
    drop((session, supervisor));
}
