use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use shuntfs_testkit::seeded::Random;

use super::*;

const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 0 };

/// A tree in memory, whose calls take their time. Each file and folder has a number, which is shown as its size.
#[derive(Debug, Default)]
struct Tree {
    all: Mutex<BTreeMap<PathBuf, (u64, FileType)>>,
    last: AtomicU64,
    /// How often a path led elsewhere at the end of a call than at its start.
    strayed: AtomicU64,
    /// An open waits until a rename was asked for, for a while.
    open_waits: AtomicBool,
    was_renamed: AtomicBool,
}

impl Tree {
    fn there(&self, path: &Path) -> Result<(u64, FileType)> {
        if path.as_os_str().is_empty() {
            return Ok((0, FileType::Directory));
        }
        self.all.lock().get(path).copied().ok_or(Errno::NOENT)
    }

    /// What is at a path, looked for twice.
    fn steady(&self, path: &Path) -> Result<(u64, FileType)> {
        let before = self.there(path);
        for _ in 0..4 {
            thread::yield_now();
        }
        // What does not exist may be made meanwhile.
        self.strayed.fetch_add(u64::from(before.is_ok() && self.there(path) != before), Ordering::SeqCst);
        before
    }

    fn make(&self, path: &Path, kind: FileType) -> Result<u64> {
        self.steady(path.parent().unwrap_or(Path::new("")))?;
        let mut all = self.all.lock();
        if all.contains_key(path) {
            return Err(Errno::EXIST);
        }
        let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
        all.insert(path.to_owned(), (number, kind));
        Ok(number)
    }

    fn remove(&self, path: &Path, kind: FileType) -> Result<()> {
        let mut all = self.all.lock();
        match all.get(path) {
            None => Err(Errno::NOENT),
            Some((_, there)) if *there != kind => Err(Errno::NOTDIR),
            Some(_) if all.keys().any(|other| other != path && other.starts_with(path)) => {
                Err(Errno::NOTEMPTY)
            }
            Some(_) => all.remove(path).map(drop).ok_or(Errno::NOENT),
        }
    }

    /// Takes out what is at a path and below.
    fn cut(&self, path: &Path) -> Vec<(PathBuf, (u64, FileType))> {
        let mut all = self.all.lock();
        let there: Vec<_> = all.keys().filter(|other| other.starts_with(path)).cloned().collect();
        let cut = |at: PathBuf| {
            let what = all.remove(&at)?;
            Some((at.strip_prefix(path).ok()?.to_owned(), what))
        };
        there.into_iter().filter_map(cut).collect()
    }

    fn paste(&self, path: &Path, what: Vec<(PathBuf, (u64, FileType))>) {
        let at = |below: &Path| if below.as_os_str().is_empty() { path.to_owned() } else { path.join(below) };
        self.all.lock().extend(what.into_iter().map(|(below, what)| (at(&below), what)));
    }
}

impl PathFilesystem for Arc<Tree> {
    type File = u64;

    const OPS: OpSet = OpSet::all();

    fn getattr(&self, _: &Caller, place: Place<'_, u64>) -> Result<Attr> {
        let (number, kind) = match place {
            Place::Path(path) => self.steady(path)?,
            Place::Open(number) => (*number, FileType::Regular),
        };
        Ok(Attr::new(0, kind, 0o777).with_size(number))
    }

    fn mkdir(&self, _: &Caller, new: &New<PathBuf>) -> Result<()> {
        self.make(&new.place, FileType::Directory).map(drop)
    }

    fn create(&self, _: &Caller, new: &New<PathBuf>, _: OpenFlags) -> Result<Opened<u64>> {
        self.make(&new.place, FileType::Regular).map(Opened::served)
    }

    fn open(&self, _: &Caller, path: &Path, _: OpenFlags) -> Result<Opened<u64>> {
        let end = Instant::now() + Duration::from_millis(200);
        while self.open_waits.load(Ordering::SeqCst) && Instant::now() < end {
            if self.was_renamed.load(Ordering::SeqCst) {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.steady(path).map(|(number, _)| Opened::served(number))
    }

    fn unlink(&self, _: &Caller, path: &Path) -> Result<()> {
        self.remove(path, FileType::Regular)
    }

    fn rmdir(&self, _: &Caller, path: &Path) -> Result<()> {
        self.remove(path, FileType::Directory)
    }

    fn rename(&self, _: &Caller, old: &Path, new: &Path, flags: u32) -> Result<()> {
        let (moved, replaced) = (self.steady(old)?, self.steady(new).ok());
        if new.starts_with(old) || old.starts_with(new) {
            return Err(Errno::INVAL);
        }
        if flags & RENAME_EXCHANGE != 0 {
            replaced.ok_or(Errno::NOENT)?;
            let (one, other) = (self.cut(old), self.cut(new));
            self.paste(new, one);
            self.paste(old, other);
        } else {
            if replaced.is_some() {
                self.remove(new, moved.1)?;
            }
            let moved = self.cut(old);
            self.paste(new, moved);
        }
        self.was_renamed.store(true, Ordering::SeqCst);
        Ok(())
    }
}

fn new(parent: NodeId, name: &str) -> NewName {
    New { place: (parent, name.into()), mode: 0o777, umask: 0 }
}

fn node_of(entry: &Entry) -> NodeId {
    entry.node.expect("it is there")
}

/// A regression: the path of a file was found, its folder moved, another one took the folder's place, and what was opened was the
/// other folder's file.
#[test]
fn a_folder_stays_while_a_file_below_it_is_opened() {
    let tree = Arc::new(Tree::default());
    let paths = Paths::new(Arc::clone(&tree));
    let folder = |name| node_of(&paths.mkdir(&CALLER, &new(NodeId::ROOT, name)).expect("makes"));
    let (one, other) = (folder("one"), folder("other"));
    let file = |parent| {
        let (entry, opened) =
            paths.create(&CALLER, &new(parent, "file"), OpenFlags::READ_ONLY).expect("makes");
        (node_of(&entry), *opened.file)
    };
    let ((asked, expected), (_, others)) = (file(one), file(other));
    tree.open_waits.store(true, Ordering::SeqCst);
    let opened = thread::scope(|scope| {
        let opens = scope.spawn(|| paths.open(&CALLER, asked, OpenFlags::READ_ONLY));
        while paths.locks.is_idle() {
            thread::yield_now();
        }
        let (from, to) = ((NodeId::ROOT, OsStr::new("one")), (NodeId::ROOT, OsStr::new("other")));
        assert_eq!(paths.rename(&CALLER, from, to, RENAME_EXCHANGE), Ok(()));
        opens.join().expect("opens")
    });
    assert_eq!(opened.map(|opened| *opened.file), Ok(expected));
    // And now it is where its folder went.
    let opened = paths.open(&CALLER, asked, OpenFlags::READ_ONLY).map(|opened| *opened.file);
    assert_eq!(
        (opened, tree.there(Path::new("other/file"))),
        (Ok(expected), Ok((expected, FileType::Regular)))
    );
    assert_eq!(tree.there(Path::new("one/file")), Ok((others, FileType::Regular)));
}

/// Whatever moves meanwhile: a node is one file forever, and a path leads to the same one from the start of a call to its end.
#[test]
fn a_node_is_one_file_whatever_moves() {
    let tree = Arc::new(Tree::default());
    let paths = Paths::new(Arc::clone(&tree));
    let known = Mutex::new(vec![(NodeId::ROOT, 0)]);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (paths, known) = (&paths, &known);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for step in 0..3000 {
                    if let Err(what) = act(paths, known, &mut random) {
                        panic!("seed {seed}, step {step}: {what}");
                    }
                }
            });
        }
    });
    assert_eq!(tree.strayed.load(Ordering::SeqCst), 0, "paths that led elsewhere during a call");
    assert!(known.lock().len() > 100, "hardly anything was made");
    assert!(paths.locks.is_idle());
}

/// Makes one call. What fails is as it may be; a node that shows another file than it was met as is not.
fn act(
    paths: &Paths<Arc<Tree>>,
    known: &Mutex<Vec<(NodeId, u64)>>,
    random: &mut Random,
) -> std::result::Result<(), String> {
    let any = |random: &mut Random| {
        let known = known.lock();
        known[random.below(known.len())]
    };
    let name = |random: &mut Random| ["a", "b", "c"][random.below(3)];
    let is_same = |node: NodeId, met: u64, seen: u64| {
        if met == seen { Ok(()) } else { Err(format!("{node:?} was {met} and is {seen}")) }
    };
    let meet = |entry: Entry| {
        let (node, number) = (node_of(&entry), entry.attr.size);
        let mut known = known.lock();
        let met = known.iter().find(|(other, _)| *other == node).map(|(_, met)| *met);
        known.extend(met.is_none().then_some((node, number)));
        is_same(node, met.unwrap_or(number), number)
    };
    let ((parent, met), at) = (any(random), name(random));
    let (other, to) = (any(random).0, OsStr::new(name(random)));
    match random.below(8) {
        0 => paths.mkdir(&CALLER, &new(parent, at)).map_or(Ok(()), meet),
        1 => {
            let made = paths.create(&CALLER, &new(parent, at), OpenFlags::READ_ONLY);
            made.map_or(Ok(()), |(entry, _)| meet(entry))
        }
        2 => paths.lookup(&CALLER, parent, OsStr::new(at)).map_or(Ok(()), meet),
        3 => {
            let opened = paths.open(&CALLER, parent, OpenFlags::READ_ONLY);
            opened.map_or(Ok(()), |opened| is_same(parent, met, *opened.file))
        }
        4 => {
            let flags = if random.below(2) == 0 { RENAME_EXCHANGE } else { 0 };
            let _: Result<()> = paths.rename(&CALLER, (parent, OsStr::new(at)), (other, to), flags);
            Ok(())
        }
        5 if random.below(3) == 0 => {
            let _: Result<()> = paths.unlink(&CALLER, parent, OsStr::new(at));
            let _: Result<()> = paths.rmdir(&CALLER, other, to);
            Ok(())
        }
        _ => {
            let reply = paths.getattr(&CALLER, parent, None);
            reply.map_or(Ok(()), |reply| is_same(parent, met, reply.attr.size))
        }
    }
}
