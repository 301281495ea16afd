//! Servers of the example `kept_folder` are killed while programs make, move and remove names, with files open in passthrough: no call fails,
//! no byte is wrong, and nothing is done twice. Needs CAP_SYS_ADMIN and /dev/fuse; elsewhere it says so and passes.
//!
//! `SHUNTFS_TEST_KILLS=100` kills that many servers while names change.

mod callers;
pub(crate) mod support;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use callers::{Callers, Seen, is_caller, is_to_stop};
use shuntfs_sys::spawn::{Push, push};
use support::kept::{Kept, has_handles, links, lower_folders, with_state};
use support::{can_mount, is_mounted, wait_until};
use tempfile::TempDir;

/// A mount sees many servers, and machines are busy.
const LIVES: Duration = Duration::from_secs(240);
const KILLS: usize = 40;
const CALLERS: usize = 3;
const PAGE: usize = 4096;
/// Pages of the file that a caller has open all the time.
const PAGES: usize = 64;

fn kills() -> usize {
    std::env::var("SHUNTFS_TEST_KILLS").map_or(KILLS, |text| text.parse().expect("a number"))
}

/// A folder, kept on another one.
struct Scene {
    kept: Kept,
    source: TempDir,
    /// The folders that are shown: that one, or three in it.
    below: Vec<PathBuf>,
}

impl Scene {
    fn new(kind: &str, crashes: &str) -> Option<Self> {
        let source = tempfile::tempdir().expect("a folder");
        let (shown, below) = lower_folders(source.path());
        fs::write(below[0].join("here"), b"it is").expect("writes");
        let mut arguments = vec![&*shown, kind, crashes];
        if !has_handles() {
            arguments.extend(["passthrough", "without-handles"]);
        }
        let kept = Kept::start_of(with_state(), &arguments, LIVES, |_| ())?;
        let scene = Self { kept, source, below };
        wait_until("a mount that is served", || fs::read(scene.file("here")).ok());
        Some(scene)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.kept.path().join(name)
    }

    /// Kills the server and waits until the next one serves.
    fn kill(&self) -> u32 {
        let server = self.kept.next_server(None);
        push(server, Push::Die).expect("it is there");
        let next = self.kept.next_server(Some(server));
        fs::metadata(self.file("here")).expect("is served");
        next
    }

    fn descriptors(&self) -> (usize, usize) {
        self.kept.descriptors(self.source.path())
    }

    /// The same once nodes are gone that the kernel does not know, some seconds after a server has begun.
    fn swept(&self, before: (usize, usize)) -> (usize, usize) {
        let end = Instant::now() + Duration::from_secs(15);
        while Instant::now() < end {
            let now = self.descriptors();
            if now.1 <= before.1 {
                return now;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("of {before:?} there are {:?} left:\n{}", self.descriptors(), self.kept.said());
    }

    fn ends(mut self) {
        push(self.kept.keeper.id(), Push::End).expect("it is there");
        assert!(self.kept.ended().success(), "{}", self.kept.said());
        assert!(!is_mounted(self.kept.path()));
    }
}

fn has_ring(pid: u32) -> bool {
    links(pid).iter().any(|link| link.to_string_lossy().contains("io_uring"))
}

/// A process that calls, and knows what must be there.
struct Caller {
    folder: PathBuf,
    names: BTreeSet<OsString>,
    random: u64,
    made: u64,
    seen: Seen,
}

impl Caller {
    fn call<T>(&mut self, what: &str, call: impl FnOnce() -> io::Result<T>) -> Option<T> {
        self.seen.call(what, call)
    }

    fn must(&mut self, what: &str, is_right: bool) {
        if !is_right {
            eprintln!("{what} is wrong");
            self.seen.wrong += 1;
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % end
    }

    /// A name that never was.
    fn name(&mut self) -> OsString {
        self.made += 1;
        format!("n{}", self.made).into()
    }

    fn path(&self, name: &OsString) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes a file that must not be there, fills it, reads it, and moves and removes it at times.
    fn file(&mut self) {
        let name = self.name();
        let path = self.path(&name);
        let Some(file) = self.call("open(O_CREAT | O_EXCL)", || {
            OpenOptions::new().read(true).write(true).create_new(true).open(&path)
        }) else {
            return;
        };
        self.names.insert(name.clone());
        let byte = u8::try_from(self.made % 251).expect("small");
        self.call("pwrite", || file.write_all_at(&[byte; PAGE], 0));
        let mut room = [0; PAGE];
        if self.call("pread", || file.read_exact_at(&mut room, 0)).is_some() {
            self.must("what was read", room == [byte; PAGE]);
        }
        if let Some(found) = self.call("fstat", || file.metadata()) {
            self.must("the size", found.len() == PAGE as u64);
        }
        drop(file);
        let name = if self.below(2) == 0 { self.rename(name) } else { name };
        let path = self.path(&name);
        if let Some(bytes) = self.call("read", || fs::read(&path)) {
            self.must("what was read by its name", bytes == [byte; PAGE]);
        }
        if self.below(4) > 0 && self.call("unlink", || fs::remove_file(&path)).is_some() {
            self.names.remove(&name);
            let is_gone = fs::metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            self.must("what was removed", is_gone);
        }
    }

    fn rename(&mut self, from: OsString) -> OsString {
        let to = self.name();
        let (old, new) = (self.path(&from), self.path(&to));
        if self.call("rename", || fs::rename(&old, &new)).is_none() {
            return from;
        }
        self.names.remove(&from);
        self.names.insert(to.clone());
        let is_gone = fs::metadata(&old).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        self.must("what was moved away", is_gone);
        to
    }

    fn folder(&mut self) {
        let name = self.name();
        let path = self.path(&name);
        if self.call("mkdir", || fs::create_dir(&path)).is_some() {
            self.call("rmdir", || fs::remove_dir(&path));
        }
        self.call("symlink", || symlink("target", &path));
        if let Some(target) = self.call("readlink", || fs::read_link(&path)) {
            self.must("a symlink's target", target == Path::new("target"));
        }
        self.call("unlink", || fs::remove_file(&path));
    }

    fn list(&mut self) {
        let folder = self.folder.clone();
        let list = || -> io::Result<BTreeSet<OsString>> {
            fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
        };
        if let Some(found) = self.call("readdir", list) {
            self.must("a listing", found == self.names);
        }
        if self.names.len() > 40 {
            for name in std::mem::take(&mut self.names) {
                let path = self.path(&name);
                if self.call("unlink", || fs::remove_file(&path)).is_none() {
                    self.names.insert(name);
                }
            }
        }
    }
}

/// Calls until standard input ends, and removes what it made.
fn call(folder: &Path) {
    let id = std::process::id();
    let folder = folder.join(format!("caller{id}"));
    fs::create_dir(&folder).expect("makes a folder");
    let mut caller = Caller {
        folder: folder.clone(),
        names: BTreeSet::new(),
        random: id.into(),
        made: 0,
        seen: Seen::default(),
    };
    // Open all the time, and without a name.
    let path = folder.join("open");
    let open = OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("opens");
    fs::remove_file(&path).expect("removes");
    let mut shadow = [0_u8; PAGES];
    while !is_to_stop() {
        match caller.below(8) {
            0..3 => caller.file(),
            3 => caller.folder(),
            4 => caller.list(),
            _ => {
                let page = usize::try_from(caller.below(PAGES as u64)).expect("small");
                let (byte, at) = (u8::try_from(caller.below(255)).expect("small") + 1, (page * PAGE) as u64);
                if caller.call("pwrite", || open.write_all_at(&[byte; PAGE], at)).is_some() {
                    shadow[page] = byte;
                }
                let page = usize::try_from(caller.below(PAGES as u64)).expect("small");
                let mut room = [0; PAGE];
                let read = caller.call("pread", || open.read_at(&mut room, (page * PAGE) as u64));
                let is_right = read.is_some_and(|len| room[..len].iter().all(|byte| *byte == shadow[page]));
                caller.must("the file that is open", is_right);
            }
        }
    }
    caller.list();
    for name in std::mem::take(&mut caller.names) {
        let path = caller.path(&name);
        caller.call("unlink", || fs::remove_file(&path));
    }
    drop(open);
    caller.call("rmdir", || fs::remove_dir(&folder));
    caller.seen.say();
}

#[test]
fn privileged_names_change_over_forty_kills() {
    if let Some(folder) = is_caller() {
        return call(&folder);
    }
    if !can_mount() {
        return;
    }
    let kills = kills();
    for kind in ["device", "cloned"] {
        let Some(scene) = Scene::new(kind, "1000") else { return };
        let keeper = scene.kept.keeper.id();
        scene.kill();
        let open = scene.descriptors();
        let callers = Callers::start(CALLERS, "privileged_names_change_over_forty_kills", scene.kept.path());
        let mut server = scene.kept.next_server(None);
        std::thread::sleep(Duration::from_millis(300));
        for kill in 0..kills {
            // Some of them before they are ready.
            std::thread::sleep(Duration::from_millis([80, 3, 150, 40, 20][kill % 5]));
            assert!(!has_ring(keeper) && !has_ring(server), "on {kind}: a ring would outlive its server");
            push(server, Push::Die).expect("it is there");
            server = scene.kept.next_server(Some(server));
        }
        let seen = callers.stop();
        scene.kill();
        let still_open = scene.descriptors();
        println!("{kind}: {kills} kills, {seen:?}; descriptors {open:?}, then {still_open:?}");
        let Seen { calls, failed, wrong, .. } = seen;
        assert_eq!((failed, wrong), (0, 0), "on {kind}, of {calls} calls:\n{}", scene.kept.said());
        assert!(calls > 1000, "on {kind}: {calls} calls");
        let list = |folder: &PathBuf| fs::read_dir(folder).expect("lists").flatten();
        let left: Vec<_> = scene.below.iter().flat_map(list).collect();
        assert_eq!(left.len(), 1, "on {kind}: {left:?}");
        // A server that dies between counting a lookup and answering leaves that node known.
        // Where nodes are held by descriptors, the next one asks the kernel whether it knows them.
        let still_open = if has_handles() { still_open } else { scene.swept(open) };
        let more = still_open.1.saturating_sub(open.1);
        assert!(more <= kills, "on {kind}: {more} nodes are left over {kills} kills");
        assert_eq!(still_open.0 - still_open.1, open.0 - open.1, "on {kind}: descriptors gather");
        scene.ends();
    }
}

/// What is open stays open, where it was in a listing, and whether it has a name or not.
#[test]
fn privileged_what_is_open_stays_open() {
    if !can_mount() {
        return;
    }
    let Some(scene) = Scene::new("cloned", "1000") else { return };
    for number in 0..1000 {
        let below = &scene.below[number % scene.below.len()];
        fs::write(below.join(format!("a name that takes some room {number:04}")), []).expect("writes");
    }
    let path = scene.file("gone");
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("opens");
    fs::remove_file(&path).expect("removes");
    let mut listing = fs::read_dir(scene.kept.path()).expect("opens");
    let mut found: Vec<OsString> =
        listing.by_ref().take(10).map(|entry| entry.expect("lists").file_name()).collect();
    let is_passed = passes(&scene, &file);
    for round in 0_u8..5 {
        scene.kill();
        file.write_all_at(&[round + 1; PAGE], 0).expect("writes");
        let mut room = [0; PAGE];
        file.read_exact_at(&mut room, 0).expect("reads");
        assert_eq!(room, [round + 1; PAGE], "{round}");
        let about = file.metadata().expect("stats");
        assert_eq!((about.len(), about.nlink()), (PAGE as u64, 0), "{round}");
        // Without passthrough, a write may end in the page cache while the server is stopped.
        assert!(!is_passed || passes(&scene, &file), "{round}: it flows as before");
        file.set_len(0).expect("cuts");
        found.extend(listing.by_ref().take(10).map(|entry| entry.expect("lists").file_name()));
    }
    found.extend(listing.map(|entry| entry.expect("lists").file_name()));
    found.sort();
    let count = found.len();
    found.dedup();
    assert_eq!((count, found.len()), (1001, 1001), "each name once");
    println!("in passthrough: {is_passed}");
    drop(file);
    // What is known of a node is known by its descriptor: a second open is the same file.
    let (one, other) = (File::open(scene.file("here")).expect("opens"), scene.file("here"));
    scene.kill();
    let again = File::open(&other).expect("opens");
    assert_eq!(one.metadata().expect("stats").ino(), again.metadata().expect("stats").ino());
    drop((one, again));
    scene.ends();
}

/// A server that fails before it serves, here because its folder is not where it was, leaves to the next one what the dead one had open.
#[test]
fn privileged_a_server_that_cannot_begin_closes_nothing() {
    if !can_mount() || with_state() != "kept_pool" {
        return;
    }
    let Some(scene) = Scene::new("cloned", "1000000") else { return };
    if scene.below.len() > 1 {
        // Branches are held open by the keeper.
        return scene.ends();
    }
    let path = scene.file("gone");
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("opens");
    file.write_all_at(&[7; PAGE], 0).expect("writes");
    fs::remove_file(&path).expect("removes");
    let away = scene.below[0].with_extension("away");
    fs::rename(&scene.below[0], &away).expect("moves");
    let server = scene.kept.next_server(None);
    push(server, Push::Die).expect("it is there");
    let next = scene.kept.next_server(Some(server));
    scene.kept.next_server(Some(next));
    fs::rename(&away, &scene.below[0]).expect("moves back");
    let mut room = [0; PAGE];
    file.read_exact_at(&mut room, 0).expect("reads");
    assert_eq!(room, [7; PAGE]);
    file.set_len(0).expect("asks a server");
    assert_eq!(file.metadata().expect("stats").len(), 0);
    drop(file);
    scene.ends();
}

/// Whoever removes what a listing tells, as `rm -r` does, misses nothing: where the listing was does not follow from the names that are left.
#[test]
fn privileged_a_folder_is_emptied_over_kills() {
    const NAMES: usize = 3000;
    if !can_mount() {
        return;
    }
    let Some(scene) = Scene::new("device", "1000") else { return };
    let full = |below: &PathBuf| below.join("full");
    scene.below.iter().for_each(|below| fs::create_dir(full(below)).expect("makes a folder"));
    for number in 0..NAMES {
        let below = full(&scene.below[number % scene.below.len()]);
        fs::write(below.join(format!("a name that takes some room {number:05}")), []).expect("writes");
    }
    let mut removed = 0;
    for entry in fs::read_dir(scene.file("full")).expect("opens") {
        fs::remove_file(entry.expect("lists").path()).expect("removes");
        removed += 1;
        if removed % 700 == 0 {
            scene.kill();
        }
    }
    let left: usize = scene.below.iter().map(|below| fs::read_dir(full(below)).expect("lists").count()).sum();
    assert_eq!((removed, left), (NAMES, 0), "{}", scene.kept.said());
    fs::remove_dir(scene.file("full")).expect("is empty");
    scene.ends();
}

/// Whether bytes of a file move while its server is stopped.
fn passes(scene: &Scene, file: &File) -> bool {
    // The first write after a look at the attributes asks for what it may have to strip.
    file.write_all_at(b"through", 0).expect("writes");
    let server = scene.kept.next_server(None);
    let stopped = Command::new("kill").args(["-STOP", &server.to_string()]).status().expect("starts");
    assert!(stopped.success());
    // A thread that has not stopped yet could still answer.
    wait_until("a server that stands still", || has_stopped(server).then_some(()));
    let (file, (done, is_done)) = (file.try_clone().expect("a duplicate"), std::sync::mpsc::channel());
    let writes = std::thread::spawn(move || {
        let written = file.write_all_at(b"through", 0);
        // Nobody may wait for it any more.
        let _heard = done.send(());
        written
    });
    let passes = is_done.recv_timeout(Duration::from_millis(500)).is_ok();
    push(server, Push::GoOn).expect("it is there");
    writes.join().expect("no panic").expect("writes");
    passes
}

/// Whether no thread of a process runs.
fn has_stopped(server: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{server}/task")).expect("is there").flatten();
    threads.map(|thread| fs::read_to_string(thread.path().join("stat")).unwrap_or_default()).all(|stat| {
        // The name before may hold anything.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    })
}

/// A state that is not what was written ends the mount, and says so: nobody gets a wrong byte, and nobody waits.
#[test]
fn privileged_a_damaged_state_is_an_honest_end() {
    if !can_mount() {
        return;
    }
    let Some(mut scene) = Scene::new("cloned", "3") else { return };
    let file = File::open(scene.file("here")).expect("opens");
    let keeper = scene.kept.keeper.id();
    let is_state = |path: &PathBuf| {
        fs::read_link(path).is_ok_and(|link| link.to_string_lossy().contains("shuntfs-state"))
    };
    let table = fs::read_dir(format!("/proc/{keeper}/fd")).expect("its table").flatten();
    let state = table.map(|entry| entry.path()).find(is_state).expect("the keeper has it");
    let state = OpenOptions::new().read(true).write(true).open(state).expect("opens");
    // The slot of the last request that a queue has, wherever it is: all that is not zero is turned over.
    let mut words = vec![0; 1 << 20];
    state.read_exact_at(&mut words, (1 << 13) + (1 << 17)).expect("reads");
    words.iter_mut().filter(|byte| **byte != 0).for_each(|byte| *byte = !*byte);
    state.write_all_at(&words, (1 << 13) + (1 << 17)).expect("writes");
    let server = scene.kept.next_server(None);
    push(server, Push::Die).expect("it is there");
    let path = scene.file("here");
    let asked = Instant::now();
    let outcome = fs::metadata(&path);
    assert!(outcome.is_err(), "{outcome:?} after {:?}", asked.elapsed());
    assert!(!scene.kept.ended().success());
    let said = scene.kept.said();
    assert!(said.contains("the state of the mount is damaged"), "{said}");
    drop(file);
    assert!(!is_mounted(scene.kept.path()));
}
