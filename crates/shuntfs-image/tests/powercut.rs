//! What is left of a qcow2 image when the power is cut at any write: clusters that nobody uses at most, and all that was made
//! durable. Needs root, /dev/fuse and qemu-img. `SHUNTFS_POWER_CUTS` says how many cuts of each work are examined (8),
//! `SHUNTFS_POWER_SEED` which work (1).

#[path = "../examples/powercut/disk.rs"]
mod disk;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use disk::{Op, PowerCut, after_cut};
use shuntfs::{MountOptions, Session, SessionOptions, Transport, TransportKind};
use shuntfs_image::{Export, Exported, Format, Image, ImageFiles, ImageOptions};
use shuntfs_testkit::seeded::Random;
use shuntfs_testkit::supervisor::Supervisor;

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 0x10;

/// An image on a disk that forgets, exported.
struct Bench {
    // First to go: the export before what it stands on.
    export: Session,
    image: Arc<Image>,
    /// Of one that another server may go on with.
    _files: Option<ImageFiles>,
    lower: Session,
    disk: Arc<PowerCut>,
    base: Vec<u8>,
    folder: tempfile::TempDir,
    /// This process cannot end what it serves and waits for.
    _supervisors: [Supervisor; 2],
    _alone: MutexGuard<'static, ()>,
}

/// How long one image may be mounted.
const LIMIT: Duration = Duration::from_secs(300);
/// One at a time, or the machine is too slow for all.
static ALONE: Mutex<()> = Mutex::new(());

impl Bench {
    /// `None`, and why on standard error, where the test cannot run.
    fn new(make: &str, transport: TransportKind, growable: bool) -> Option<Self> {
        Self::of(make, transport, growable, |options| (Arc::new(Image::open(options).expect("opens")), None))
    }

    /// The same with an image that another server may go on with.
    fn kept(make: &str, transport: TransportKind, growable: bool) -> Option<Self> {
        Self::of(make, transport, growable, |options| {
            let files = ImageFiles::open(options).expect("opens");
            (Arc::new(Image::surviving(&files).expect("is sound")), Some(files))
        })
    }

    fn of(
        make: &str,
        transport: TransportKind,
        growable: bool,
        open: fn(&ImageOptions) -> (Arc<Image>, Option<ImageFiles>),
    ) -> Option<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = made(make)?;
        let at = |name: &str| folder.path().join(name);
        let base = std::fs::read(at("image")).expect("reads");
        let disk = Arc::new(PowerCut::new(base.clone()));
        for name in ["lower", "disk"] {
            File::create_new(at(name)).expect("makes");
        }
        let options =
            SessionOptions { transport: Transport::Only(TransportKind::Cloned), ..SessionOptions::default() };
        let lower = Session::mount(Arc::clone(&disk), &at("lower"), &MountOptions::default(), &options)
            .expect("mounts");
        let options = ImageOptions {
            path: at("lower"),
            format: if make.starts_with("raw") { Format::Raw } else { Format::Qcow2 },
            writable: true,
            ..ImageOptions::default()
        };
        let (image, files) = open(&options);
        let export = Arc::new(Export::new(Arc::clone(&image), Exported::default().growable(growable)));
        // As many at once on two queues as eight have by default.
        let options =
            SessionOptions { transport: Transport::Only(transport), depth: 128, ..SessionOptions::default() };
        let export = Session::mount(export, &at("disk"), &MountOptions::default(), &options).expect("mounts");
        let supervisors =
            ["disk", "lower"].map(|name| Supervisor::of(&at(name), LIMIT).expect("a supervisor"));
        Some(Self {
            export,
            image,
            _files: files,
            lower,
            disk,
            base,
            folder,
            _supervisors: supervisors,
            _alone: alone,
        })
    }

    fn open(&self) -> File {
        File::options().read(true).write(true).open(self.export.path()).expect("opens")
    }

    fn end(self) -> std::io::Result<()> {
        // A process that another test starts may have our files open until it is another program.
        self.export.unmount_lazily().expect("unmounts");
        self.export.wait();
        let outcome = self.image.close();
        drop(self.image);
        // A lane may have the file open for a moment longer.
        self.lower.unmount_lazily().expect("unmounts");
        outcome
    }
}

/// A folder with `image`, made by qemu-img from these words, and by further commands behind semicolons.
fn made(make: &str) -> Option<tempfile::TempDir> {
    if shuntfs_sys::spawn::effective_uid() != 0 || File::open("/dev/fuse").is_err() {
        eprintln!("SKIPPED: root and /dev/fuse are needed");
        return None;
    }
    if Command::new("qemu-img").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no qemu-img (Debian: qemu-utils)");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    if let Some(size) = make.strip_prefix("raw ") {
        let size = size.parse().expect("a number");
        File::create_new(folder.path().join("image")).and_then(|file| file.set_len(size)).expect("makes");
        return Some(folder);
    }
    for words in make.split("; ") {
        let mut words = words.split(' ');
        let program = words.next().expect("one");
        let ran = Command::new(program).args(words).current_dir(folder.path()).output().expect("runs");
        assert!(ran.status.success(), "{make}: {ran:?}");
    }
    Some(folder)
}

/// What the disk held when it was last made durable, and what may have changed since.
struct Durable {
    log: usize,
    bytes: Vec<u8>,
    changes: usize,
}

/// Work on a part of a disk, and what is known of it.
struct Work {
    start: u64,
    model: Vec<u8>,
    changed: Vec<Range<usize>>,
    durable: Vec<Durable>,
}

impl Work {
    /// On part `number` of so many.
    fn new(disk: &File, number: u64, parts: u64) -> Self {
        let len = disk.metadata().expect("answers").len() / parts;
        let start = number * len;
        let mut model = vec![0; usize::try_from(len).expect("small")];
        disk.read_exact_at(&mut model, start).expect("reads");
        let durable = vec![Durable { log: 0, bytes: model.clone(), changes: 0 }];
        Self { start, model, changed: Vec::new(), durable }
    }

    fn range(&self, random: &mut Random, len_max: usize) -> Range<usize> {
        let start = random.below(self.model.len() / 512) * 512;
        start..(start + (1 + random.below(len_max / 512)) * 512).min(self.model.len())
    }

    fn run(&mut self, bench: &Bench, random: &mut Random, steps: usize, growable: bool) {
        let mut file = bench.open();
        for step in 0..steps {
            match random.below(16) {
                0..=8 => {
                    let range = self.range(random, 20_000);
                    let byte = u8::try_from(step % 255 + 1).expect("small");
                    self.changed.push(range.clone());
                    file.write_all_at(&vec![byte; range.len()], self.start + range.start as u64)
                        .expect("writes");
                    self.model[range].fill(byte);
                }
                kind @ 9..=11 => {
                    let range = self.range(random, 100_000);
                    let mode = if kind == 11 { ZERO_RANGE | KEEP_SIZE } else { PUNCH_HOLE | KEEP_SIZE };
                    self.changed.push(range.clone());
                    let (offset, len) = (self.start + range.start as u64, range.len() as u64);
                    match shuntfs_sys::data::fallocate(&file, mode, offset, len) {
                        Ok(()) => self.model[range].fill(0),
                        // Version 2 has no clusters of zeroes.
                        Err(shuntfs_sys::OsError::OPNOTSUPP) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                12 if growable => {
                    let end = self.model.len();
                    self.changed.push(end..end + 3000);
                    file.write_all_at(&[9; 3000], end as u64).expect("grows");
                    self.model.resize(end + 3000, 9);
                }
                13 => file = bench.open(),
                _ => {
                    file.sync_data().expect("is durable");
                    let (bytes, changes) = (self.model.clone(), self.changed.len());
                    self.durable.push(Durable { log: bench.disk.log().len(), bytes, changes });
                }
            }
        }
    }

    /// The disk in an image after a cut has all that was durable and was not touched since.
    fn check(&self, upto: usize, disk: &[u8], what: &str) {
        let durable = self.durable.iter().rev().find(|durable| durable.log <= upto).expect("the first");
        let mut known = vec![true; durable.bytes.len()];
        for range in &self.changed[durable.changes..] {
            let end = range.end.min(known.len());
            known[range.start.min(end)..end].fill(false);
        }
        let disk = &disk[usize::try_from(self.start).expect("small")..];
        assert!(disk.len() >= known.len(), "{what}: the disk is shorter than it was");
        let lost = (0..known.len()).find(|at| known[*at] && disk[*at] != durable.bytes[*at]);
        assert_eq!(lost, None, "{what}: lost what was durable, of {}", known.len());
    }
}

fn cuts() -> usize {
    std::env::var("SHUNTFS_POWER_CUTS").ok().map_or(8, |text| text.parse().expect("a number"))
}

fn disk_in(image: &Path) -> Vec<u8> {
    let options = ImageOptions { path: image.to_owned(), format: Format::Qcow2, ..ImageOptions::default() };
    let image = Image::open(&options).expect("is an image");
    let mut bytes = vec![0; usize::try_from(image.size()).expect("small")];
    let len = image.read_at(&mut bytes, 0).expect("reads");
    assert_eq!(len, bytes.len());
    bytes
}

/// Works, and looks at what cuts at many times leave.
fn survives(make: &str, transport: TransportKind, growable: bool, workers: u64) {
    let Some(bench) = Bench::new(make, transport, growable) else { return };
    works(bench, make, transport, growable, workers);
}

fn works(bench: Bench, make: &str, transport: TransportKind, growable: bool, workers: u64) {
    let seed = std::env::var("SHUNTFS_POWER_SEED").ok().map_or(1, |text| text.parse().expect("a number"));
    let mut random = Random::new(seed);
    let mut all: Vec<Work> = (0..workers).map(|number| Work::new(&bench.open(), number, workers)).collect();
    std::thread::scope(|scope| {
        for work in &mut all {
            let (bench, mut random) = (&bench, Random::new(random.number()));
            scope.spawn(move || {
                work.run(bench, &mut random, 250 / usize::try_from(workers).expect("few"), growable)
            });
        }
    });
    let (disk, base, folder) = (Arc::clone(&bench.disk), bench.base.clone(), bench.folder.path().to_owned());
    let kept = tempfile::tempdir().expect("a folder");
    // What the image stands on, by its name.
    for entry in std::fs::read_dir(&folder).expect("lists").flatten() {
        if entry.file_name() == "base" {
            std::fs::copy(entry.path(), kept.path().join("base")).expect("copies");
        }
    }
    bench.end().expect("ends well");
    let log = disk.log();
    let mut leaks = 0;
    for cut in 0..cuts() {
        // The last is no cut at all.
        let upto = if cut == 0 { log.len() } else { random.below(log.len() + 1) };
        let (how, share) = (random.below(5), 1 + random.below(20));
        let state = after_cut(&base, &log, upto, |end| match how {
            0 => 0,
            1 => end - 1,
            // Most of it, a little of it, anything.
            2 if random.below(share) > 0 => end - 1,
            3 if random.below(share) > 0 => 0,
            _ => random.below(end),
        });
        let path = kept.path().join("state");
        std::fs::write(&path, state).expect("writes");
        let what = format!("{make} by {transport}, seed {seed}, cut {cut} at {upto} of {}", log.len());
        let leak = is_sound(&path, &what);
        assert!(!leak || cut > 0, "{what}: clusters leak without a cut");
        leaks += usize::from(leak);
        let disk = disk_in(&path);
        all.iter().for_each(|work| work.check(upto, &disk, &what));
    }
    let syncs = log.iter().filter(|op| **op == Op::Sync).count();
    println!("{make} by {transport}: {} changes, {syncs} barriers, {leaks} cuts leak", log.len());
}

/// Whether there are leaks; anything worse is a failure.
fn is_sound(image: &Path, what: &str) -> bool {
    let ran = Command::new("qemu-img").args(["check", "-f", "qcow2"]).arg(image).output().expect("runs");
    match ran.status.code() {
        Some(0) => false,
        Some(3) => true,
        _ => {
            let said = String::from_utf8_lossy(&ran.stderr);
            let lines: Vec<&str> = said.lines().take(5).collect();
            let aside = PathBuf::from("/tmp/shuntfs-powercut-failed.qcow2");
            std::fs::copy(image, &aside).expect("copies");
            panic!("{what}: {lines:#?}, see {}", aside.display())
        }
    }
}

const BOTH: [TransportKind; 2] = [TransportKind::Cloned, TransportKind::Uring];

fn survive(make: &str, growable: bool) {
    for transport in BOTH {
        survives(make, transport, growable, 1);
    }
}

#[test]
fn privileged_small_clusters_and_many_tables() {
    survive("qemu-img create -q -f qcow2 -o cluster_size=512 image 3M", false);
}

#[test]
fn privileged_clusters_of_a_page_and_narrow_counts() {
    survive("qemu-img create -q -f qcow2 -o cluster_size=4096,refcount_bits=1 image 6M", false);
}

#[test]
fn privileged_the_usual_clusters() {
    survive("qemu-img create -q -f qcow2 image 8M", false);
}

#[test]
fn privileged_the_old_version() {
    survive("qemu-img create -q -f qcow2 -o compat=0.10,cluster_size=1024 image 3M", false);
}

#[test]
fn privileged_several_who_work_at_once() {
    for transport in BOTH {
        survives("qemu-img create -q -f qcow2 -o cluster_size=1024 image 4M", transport, false, 5);
    }
}

#[test]
fn privileged_a_disk_that_grows() {
    survive("qemu-img create -q -f qcow2 -o cluster_size=512 image 200K", true);
}

#[test]
fn privileged_clusters_that_a_snapshot_has_too() {
    survive(
        "qemu-img create -q -f qcow2 -o cluster_size=1024,preallocation=full image 2M; qemu-img snapshot -c before image",
        false,
    );
}

#[test]
fn privileged_compressed_clusters() {
    survive(
        "cp /bin/sh base; truncate -s 2M base; qemu-img convert -c -f raw -O qcow2 -o cluster_size=4096 base image",
        false,
    );
}

/// What another server may go on with is not less safe from power cuts.
#[test]
fn privileged_images_that_another_server_may_go_on_with() {
    for (make, growable, workers) in [
        ("qemu-img create -q -f qcow2 -o cluster_size=512 image 3M", false, 1),
        ("qemu-img create -q -f qcow2 -o cluster_size=512 image 200K", true, 1),
        ("qemu-img create -q -f qcow2 -o cluster_size=1024 image 4M", false, 5),
        (
            "qemu-img create -q -f qcow2 -o cluster_size=1024,preallocation=full image 2M; qemu-img snapshot -c before image",
            false,
            1,
        ),
    ] {
        let Some(bench) = Bench::kept(make, TransportKind::Cloned, growable) else { return };
        works(bench, make, TransportKind::Cloned, growable, workers);
    }
}

/// Barriers are counted, because their times are the disk's.
#[test]
fn privileged_an_order_costs_few_barriers() {
    let Some(bench) = Bench::new("qemu-img create -q -f qcow2 image 4G", TransportKind::Cloned, false) else {
        return;
    };
    let file = bench.open();
    let barriers = |work: &dyn Fn()| {
        let count = || bench.disk.log().iter().filter(|op| **op == Op::Sync).count();
        let before = count();
        work();
        count() - before
    };
    let write = |at: u64| file.write_all_at(&[1; 4096], at).expect("writes");
    let sync = || file.sync_data().expect("is durable");
    let (cluster, of_table) = (65536, 512 << 20);
    let fresh = barriers(&|| (0..200).for_each(|number| write(number % 4 * of_table + number * cluster)));
    assert_eq!(fresh, 0, "writes to new clusters of new tables");
    assert_eq!(barriers(&sync), 2, "the first fsync: what tables lead to, and the pointers to the tables");
    assert_eq!(
        barriers(&|| (0..50).for_each(|number| write((1000 + number) * cluster))),
        0,
        "of a table that is known"
    );
    assert_eq!(barriers(&sync), 2, "counts and data, then the table");
    let again = || {
        write(0);
        sync();
    };
    assert_eq!(barriers(&again), 1, "a cluster that is there");
    let free = || {
        for number in 0..50 {
            let mode = PUNCH_HOLE | KEEP_SIZE;
            shuntfs_sys::data::fallocate(&file, mode, (1000 + number) * cluster, cluster).expect("frees");
        }
    };
    assert_eq!(barriers(&free), 0, "discards");
    let reuse = barriers(&|| (0..50).for_each(|number| write((1000 + number) * cluster)));
    assert!(reuse <= 3, "{reuse}: once for all that was freed before");
    drop(file);
    bench.end().expect("ends well");
}

/// Where another server may go on, tables that wait for a barrier are in memory that it has; what is freed waits for one.
#[test]
fn privileged_what_another_server_has_costs_barriers() {
    let Some(bench) = Bench::kept("qemu-img create -q -f qcow2 image 4G", TransportKind::Cloned, false)
    else {
        return;
    };
    let file = bench.open();
    let barriers = |work: &dyn Fn(u64)| {
        let count = || bench.disk.log().iter().filter(|op| **op == Op::Sync).count();
        let before = count();
        (0..50).for_each(work);
        count() - before
    };
    let cluster = 65536;
    let write = |number: u64| file.write_all_at(&[1; 4096], number * cluster).expect("writes");
    let (first, again) = (barriers(&write), barriers(&write));
    let long = barriers(&|number| {
        file.write_all_at(&vec![1; 1 << 20], (1 << 30) + (number << 20)).expect("writes");
    });
    let free = barriers(&|number| {
        let mode = PUNCH_HOLE | KEEP_SIZE;
        shuntfs_sys::data::fallocate(&file, mode, number * cluster, cluster).expect("frees");
    });
    let reuse = barriers(&write);
    println!(
        "{first} for new clusters, {again} for the same, {long} for 1 MiB, {free} for discards, {reuse} to use them anew"
    );
    assert_eq!(again, 0, "clusters that are there");
    assert_eq!((first, long), (0, 0), "new clusters");
    assert!(free <= 105 && reuse <= 4);
    drop(file);
    bench.end().expect("ends well");
}

/// The kernel tells of a failed `fsync` once. What it lost is lost, and is said to be, whoever asks and however often.
#[test]
fn privileged_a_lost_write_is_told_at_the_end() {
    for make in ["raw 1000000", "qemu-img create -q -f qcow2 image 8M"] {
        for transport in BOTH {
            let Some(bench) = Bench::new(make, transport, false) else { return };
            let file = bench.open();
            file.write_all_at(&[1; 4096], 0).expect("writes");
            file.sync_data().expect("is durable");
            file.write_all_at(&[2; 4096], 0).expect("writes");
            bench.disk.sync_error.store(5, Ordering::Relaxed);
            let number = |outcome: std::io::Result<()>| outcome.err().and_then(|error| error.raw_os_error());
            assert_eq!(number(file.sync_data()), Some(5), "{make}");
            // From now on all is well again, but for what is lost.
            bench.disk.sync_error.store(0, Ordering::Relaxed);
            assert_eq!(number(file.sync_data()), Some(5), "{make}");
            assert_eq!(number(bench.open().sync_all()), Some(5), "{make}");
            drop(file);
            assert_eq!(number(bench.end()), Some(5), "{make}");
        }
    }
}

/// Each needs a table of its own, of which there is room for fewer (`qcow2.rs` has the story).
#[test]
fn privileged_writers_far_from_each_other_all_get_their_tables() {
    let Some(bench) =
        Bench::new("qemu-img create -q -f qcow2 -o cluster_size=4096 image 1T", TransportKind::Uring, false)
    else {
        return;
    };
    let writers: u64 = 256;
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let file = bench.open();
            scope.spawn(move || {
                for round in 0..4_u64 {
                    // Each a table of its own: one is for 2 MiB.
                    let at = (round * writers + writer) * 331 % (1 << 19) * (2 << 20);
                    let byte = u8::try_from(writer % 251 + 1).expect("small");
                    file.write_all_at(&[byte; 4096], at).unwrap_or_else(|error| panic!("at {at}: {error}"));
                    let mut read = [0; 4096];
                    file.read_exact_at(&mut read, at).expect("reads");
                    assert_eq!(read, [byte; 4096]);
                }
            });
        }
    });
    bench.end().expect("ends well");
}
