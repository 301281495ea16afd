//! Files that rules want on another disk, as users see it: what is moved, who may have it done, and what is left when a server is killed. What mounts
//! needs root and /dev/fuse.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use common::{Ends, Ran, Room, SHUNT, as_nobody, can_mount, eventually, run, shunt, signal};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use serde_json::Value;
use shuntfs_testkit::lower::{Lower, LowerKind, LowerSpec};
use shuntfs_testkit::program::have;

const MIB: usize = 1 << 20;
const DAY: u64 = 24 * 60 * 60;

/// What was not used for ten days goes from the disk `fast` to the disk `slow`.
const AFTER_TEN_DAYS: &str =
    "[[rule]]\nname = 'old'\nmove = { to = 'id=slow', from = 'id=fast', after = '10d' }\n";

/// A pool of a disk that is called `fast` and one that is called `slow`, on which nothing new is made.
struct Pool {
    // Removed first.
    room: Room,
    fast: Lower,
    slow: Lower,
}

impl Pool {
    /// With disks of so many MiB; `None` where they cannot be had, and then the reason was said.
    fn new(kind: LowerKind, fast: usize, slow: usize, rules: &str) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let disk = |mib: usize| LowerSpec::new(kind).size((mib * MIB) as u64).make().expect("makes");
        let pool = Self { room: Room::new(), fast: disk(fast)?, slow: disk(slow)? };
        pool.write_rules(rules);
        Some(pool)
    }

    fn rules(&self) -> PathBuf {
        self.room.path().join("rules.toml")
    }

    fn write_rules(&self, text: &str) {
        fs::write(self.rules(), text).expect("writes");
    }

    fn mount(&self, args: &[&str]) -> &Self {
        let branches =
            format!("{}=RW,id=fast:{}=NC,id=slow", self.fast.path().display(), self.slow.path().display());
        let mut command = Command::new(SHUNT);
        command.args(["mount", "--create", "ff", "--minfreespace", "0", "--rules"]).arg(self.rules());
        run(command.args(args).arg(branches).arg(self.room.mnt())).ok();
        self
    }

    fn at(&self, path: &str) -> PathBuf {
        self.room.mnt().join(path)
    }

    /// A file on the first disk, with these bytes and of this age.
    fn put(&self, path: &str, bytes: &[u8], days: u64) -> PathBuf {
        let at = self.fast.path().join(path);
        fs::create_dir_all(at.parent().expect("is in a folder")).expect("makes");
        fs::write(&at, bytes).expect("writes");
        age(&at, days);
        at
    }

    /// On which disks a path is.
    fn on(&self, path: &str) -> Vec<&'static str> {
        let disks = [("fast", &self.fast), ("slow", &self.slow)];
        let is_there = |disk: &Lower| disk.path().join(path).symlink_metadata().is_ok();
        disks.into_iter().filter(|(_, disk)| is_there(disk)).map(|(name, _)| name).collect()
    }

    fn mover(&self, words: &[&str]) -> Ran {
        shunt(words_of(&self.room.mnt(), words))
    }

    /// What a run says of each file, and at the end.
    fn run(&self, words: &[&str]) -> (Vec<Value>, Value) {
        let ran = self.mover(&[&["run", "--json"][..], words].concat()).ok();
        let mut lines: Vec<Value> =
            ran.out.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
        let end = lines.pop().expect("says how it ended")["end"].take();
        (lines.into_iter().map(|mut line| line["file"].take()).collect(), end)
    }

    /// The paths of which a run says this.
    fn said(&self, words: &[&str], outcome: &str) -> Vec<String> {
        let files = self.run(words).0;
        let meant = files.iter().filter(|file| file["outcome"] == outcome);
        meant.map(|file| file["path"].as_str().expect("is text").to_owned()).collect()
    }
}

fn words_of(mnt: &Path, words: &[&str]) -> Vec<std::ffi::OsString> {
    ["mover"].iter().chain(words).map(Into::into).chain([mnt.into()]).collect()
}

fn age(path: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * DAY);
    let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
    OpenOptions::new().write(true).open(path).expect("opens").set_times(times).expect("sets");
}

/// Bytes that say where they are.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at / 512 % 251).expect("fits")).collect()
}

/// All names on a disk but what its file system has there itself.
fn names(disk: &Lower) -> Vec<String> {
    let all = fs::read_dir(disk.path()).expect("lists").map(|entry| entry.expect("reads").file_name());
    let mut all: Vec<String> = all.map(|name| name.into_string().expect("is text")).collect();
    all.retain(|name| name != "lost+found");
    all.sort();
    all
}

#[test]
fn what_cannot_run_is_said() {
    let room = Room::new();
    let gone = room.path().join("gone");
    shunt(words_of(&gone, &["run"])).fails(1, &["gone"]);
    shunt(["mover"]).fails_with_usage();
    shunt(["mover", "run", "--quiet", "--json", "/"]).fails_with_usage();
    if !can_mount() {
        return;
    }
    room.mount(&[]);
    shunt(words_of(&room.mnt(), &["run"])).fails(1, &["one folder"]);
    assert!(shunt(words_of(&room.mnt(), &["status"])).ok().out.contains("did not run"));
    room.umount(&[]).ok();
    // A rule that names a disk that there is not mounts nothing.
    let rules = room.path().join("rules.toml");
    fs::write(&rules, AFTER_TEN_DAYS).expect("writes");
    room.try_mount(&["--rules", rules.to_str().expect("text")]).fails(1, &["old", "id="]);
    let Some(pool) = Pool::new(LowerKind::Tmpfs, 8, 8, "[[rule]]\nallow = true\n") else { return };
    pool.mount(&[]).mover(&["run"]).fails(1, &["no rule says what to move"]);
    pool.room.umount(&[]).ok();
}

#[test]
fn privileged_what_is_old_goes_to_the_slow_disk_as_it_is() {
    for kind in [LowerKind::Ext4, LowerKind::Tmpfs] {
        let Some(pool) = Pool::new(kind, 64, 64, AFTER_TEN_DAYS) else { return };
        let old = pool.put("films/old", &bytes(3 * MIB + 17), 20);
        pool.put("films/new", b"new", 9);
        // With a hole, an owner, an ACL, an attribute and a mode.
        let sparse = pool.put("films/sparse", b"", 0);
        let file = OpenOptions::new().write(true).open(&sparse).expect("opens");
        file.write_all_at(b"end", 8 * MIB as u64).expect("writes");
        drop(file);
        chown(&old, Some(71_001), Some(71_002)).expect("is ours");
        fs::set_permissions(&old, fs::Permissions::from_mode(0o2640)).expect("is ours");
        run(Command::new("setfacl").args(["-m", "u:71003:r"]).arg(&old)).ok();
        setxattr(&old, "user.note", b"kept", XattrFlags::empty()).expect("sets");
        age(&old, 20);
        age(&sparse, 15);
        let acl =
            |path: &Path| run(Command::new("getfacl").args(["-cn", "--absolute-names"]).arg(path)).ok().out;
        let (before, acl_before) = (old.metadata().expect("is there"), acl(&old));

        pool.mount(&[]);
        assert_eq!(pool.said(&["--dry-run"], "would_move"), ["films/old", "films/sparse"]);
        assert_eq!((pool.on("films/old"), names(&pool.slow)), (vec!["fast"], vec![]), "nothing was moved");
        let text = pool.mover(&["run", "--dry-run"]).ok().out;
        assert!(text.contains("films/old: would be moved from ") && text.contains("rule \"old\""), "{text}");
        let (files, end) = pool.run(&[]);
        assert_eq!(files.len(), 2, "{files:?}");
        assert_eq!(
            (&end["moved_files"], &end["failures"], &end["running"]),
            (&2.into(), &0.into(), &false.into())
        );
        assert_eq!(
            ["films/old", "films/sparse", "films/new"].map(|path| pool.on(path)),
            [vec!["slow"], vec!["slow"], vec!["fast"]]
        );
        let moved = pool.slow.path().join("films/old");
        let after = moved.metadata().expect("is there");
        let kept = |of: &fs::Metadata| {
            (
                of.mode(),
                of.uid(),
                of.gid(),
                of.len(),
                of.mtime(),
                of.mtime_nsec(),
                of.atime(),
                of.atime_nsec(),
            )
        };
        assert_eq!((kept(&after), acl(&moved)), (kept(&before), acl_before));
        let mut value = [0; 16];
        let len = getxattr(&moved, "user.note", &mut value).expect("has it");
        assert_eq!(&value[..len], b"kept");
        assert!(fs::read(pool.at("films/old")).expect("reads") == bytes(3 * MIB + 17));
        let sparse = pool.slow.path().join("films/sparse").metadata().expect("is there");
        assert_eq!(sparse.len(), 8 * MIB as u64 + 3);
        assert!(sparse.blocks() * 512 < MIB as u64, "the hole is one still: {} blocks", sparse.blocks());
        assert_eq!(
            (names(&pool.fast), names(&pool.slow)),
            (vec!["films".to_owned()], vec!["films".to_owned()])
        );
        let status = pool.mover(&["status"]).ok().out;
        assert!(status.starts_with("the last run moved 2 files"), "{status}");
        assert_eq!(pool.run(&[]).1["moved_files"], 0, "it is done");
        pool.room.umount(&[]).ok();
    }
}

/// The oldest go, and no more than it takes.
#[test]
fn privileged_a_disk_that_is_too_full_is_emptied_to_the_mark() {
    let rules =
        "[[rule]]\nname = 'room'\nmove = { to = 'id=slow', from = 'id=fast', when_fuller_than = '50%' }\n";
    let Some(pool) = Pool::new(LowerKind::Tmpfs, 32, 64, rules) else { return };
    // Eight times 3 MiB of 32, which is 75 %: three files above the mark.
    for (name, days) in [("a", 5), ("b", 80), ("c", 3), ("d", 60), ("e", 70), ("f", 1), ("g", 2), ("h", 4)] {
        pool.put(name, &bytes(3 * MIB), days);
    }
    pool.mount(&[]);
    assert_eq!(pool.said(&["--dry-run"], "would_move"), ["b", "e", "d"]);
    assert_eq!(pool.said(&[], "moved"), ["b", "e", "d"]);
    assert_eq!(names(&pool.slow), ["b", "d", "e"]);
    assert_eq!(pool.said(&[], "moved"), [""; 0], "it is below the mark");
    pool.room.umount(&[]).ok();
    // One that does not fit there is said to, and the next one that does goes.
    let Some(pool) = Pool::new(LowerKind::Tmpfs, 32, 4, AFTER_TEN_DAYS) else { return };
    pool.put("large", &bytes(8 * MIB), 30);
    pool.put("small", &bytes(MIB), 20);
    let (files, end) = pool.mount(&[]).run(&[]);
    let why = files[0]["why"].as_str().expect("is said");
    assert!(
        files[0]["path"] == "large" && why.contains("bytes are available") && why.contains("are needed"),
        "{why}"
    );
    assert_eq!((&end["moved_files"], &end["left_files"]), (&1.into(), &1.into()));
    assert_eq!((pool.on("large"), pool.on("small")), (vec!["fast"], vec!["slow"]));
    assert!(pool.mover(&["run"]).ok().out.contains("large: left on "), "the reason is in words, too");
    pool.room.umount(&[]).ok();
}

#[test]
fn privileged_what_is_in_use_stays_until_it_is_not() {
    for args in [&[][..], &["--flow", "relay"]] {
        let Some(pool) = Pool::new(LowerKind::Tmpfs, 32, 32, AFTER_TEN_DAYS) else { return };
        for name in ["written", "read", "linked", "both", "free"] {
            pool.put(name, name.as_bytes(), 30);
        }
        fs::hard_link(pool.fast.path().join("linked"), pool.fast.path().join("link")).expect("links");
        fs::write(pool.slow.path().join("both"), "other").expect("writes");
        pool.mount(args);
        let written = OpenOptions::new().write(true).open(pool.at("written")).expect("opens");
        let mut read = File::open(pool.at("read")).expect("opens");
        let files = pool.run(&[]).0;
        let reason = |path: &str| {
            let file = files.iter().find(|file| file["path"] == path);
            let file = file.unwrap_or_else(|| panic!("nothing is said of {path}: {files:?}"));
            file["why"].as_str().unwrap_or_default().to_owned()
        };
        assert!(reason("written").contains("open for writing"), "{files:?}");
        assert!(reason("linked").contains("2 names") && reason("link").contains("2 names"), "{files:?}");
        assert!(reason("both").contains("other branches have a file of its name"), "{files:?}");
        assert_eq!(pool.on("free"), ["slow"]);
        match pool.on("read")[..] {
            ["fast"] => assert!(args.is_empty() && reason("read").contains("passthrough"), "{files:?}"),
            // Through the server, who reads goes on with the copy.
            _ => assert_eq!(pool.on("read"), ["slow"]),
        }
        let mut text = String::new();
        read.read_to_string(&mut text).expect("reads");
        assert_eq!(text, "read");
        written.write_all_at(b"WRITTEN", 0).expect("writes");
        drop((written, read));
        for name in ["written", "read"] {
            // What was used just now is not old.
            let disk = if pool.on(name) == ["fast"] { &pool.fast } else { &pool.slow };
            age(&disk.path().join(name), 30);
        }
        eventually("what is not in use any more goes", || {
            pool.run(&[]);
            pool.on("written") == ["slow"] && pool.on("read") == ["slow"]
        });
        assert_eq!(fs::read_to_string(pool.at("written")).expect("reads"), "WRITTEN");
        pool.room.umount(&[]).ok();
    }
}

/// To and fro, while others read: none of them ever sees anything but the whole file.
#[test]
fn privileged_readers_see_a_whole_file_at_any_time() {
    let to = |to: &str, from: &str| {
        // By what reading does not change.
        format!("[[rule]]\nmove = {{ to = 'id={to}', from = 'id={from}', after = '1d', by = 'mtime' }}\n")
    };
    let Some(pool) = Pool::new(LowerKind::Tmpfs, 64, 64, &to("slow", "fast")) else { return };
    let (small, large) = (bytes(700), bytes(5 * MIB));
    pool.put("d/small", &small, 30);
    pool.put("d/large", &large, 30);
    for args in [&["--flow", "relay"][..], &["--cache", "none"], &[]] {
        pool.write_rules(&to("slow", "fast"));
        pool.mount(args);
        let (server, has_ended) = (pool.room.pid(), AtomicBool::new(false));
        let moved = std::thread::scope(|scope| {
            let ends = Ends(&has_ended);
            let readers: Vec<_> = [("d/small", &small), ("d/large", &large)]
                .into_iter()
                .map(|(path, expected)| {
                    let (pool, has_ended) = (&pool, &has_ended);
                    scope.spawn(move || {
                        let mut reads = 0;
                        while !has_ended.load(Ordering::Relaxed) {
                            let found = fs::read(pool.at(path)).expect("is always there");
                            assert!(found == *expected, "{path}: {} bytes", found.len());
                            reads += 1;
                        }
                        reads
                    })
                })
                .collect();
            let mut moved = 0;
            for round in 0..12 {
                moved += pool.run(&[]).1["moved_files"].as_u64().expect("a number");
                let back = if round % 2 == 0 { to("fast", "slow") } else { to("slow", "fast") };
                let reloads = || {
                    let status =
                        shunt(["status".as_ref(), "--json".as_ref(), pool.room.mnt().as_os_str()]).ok().out;
                    serde_json::from_str::<Value>(&status).expect("is JSON")["rules"]["reloads"].as_u64()
                };
                let before = reloads();
                pool.write_rules(&back);
                signal(server, "HUP");
                eventually("the rules were read again", || reloads() != before);
            }
            drop(ends);
            let reads: Vec<u32> =
                readers.into_iter().map(|reader| reader.join().expect("sees no error")).collect();
            assert!(reads.iter().all(|reads| *reads > 0), "{reads:?}");
            moved
        });
        // Who reads in passthrough keeps it where it is. Through the server nothing does.
        assert!(moved > 0 || !args.contains(&"relay"), "{args:?}");
        pool.room.umount(&[]).ok();
        for path in ["d/small", "d/large"] {
            assert_eq!(pool.on(path).len(), 1, "{path}");
        }
        assert_eq!((names(&pool.fast).len(), names(&pool.slow).len() <= 1), (1, true));
    }
}

/// Whenever the server dies, the file is whole, and after the next mount it is there once and nothing else is.
#[test]
fn privileged_a_server_that_is_killed_leaves_nothing_half() {
    let Some(pool) = Pool::new(LowerKind::Tmpfs, 96, 96, AFTER_TEN_DAYS) else { return };
    let content = bytes(48 * MIB);
    let (mut before, mut after) = (0, 0);
    for round in 0..12_u64 {
        pool.put("file", &content, 30);
        pool.mount(&[]);
        let server = pool.room.pid();
        let mut mover = Command::new(SHUNT)
            .args(words_of(&pool.room.mnt(), &["run", "--quiet"]))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        // From before it begins to after it has ended.
        std::thread::sleep(Duration::from_millis(8 * round));
        signal(server, "KILL");
        common::wait(&mut mover);
        run(Command::new("umount").arg("--lazy").arg(pool.room.mnt())).ok();
        eventually("the mount is gone", || !pool.room.is_mounted());
        pool.mount(&[]);
        assert!(fs::read(pool.at("file")).expect("is there") == content, "{round}");
        let on = pool.on("file");
        assert_eq!(on.len(), 1, "{round}");
        before += u32::from(on == ["fast"]);
        after += u32::from(on == ["slow"]);
        pool.room.umount(&[]).ok();
        let left = [names(&pool.fast), names(&pool.slow)].concat();
        assert_eq!(left, ["file"], "{round}");
        fs::remove_file(if on == ["fast"] { &pool.fast } else { &pool.slow }.path().join("file"))
            .expect("goes");
    }
    assert!(before > 0, "it was never killed before the end: {before} {after}");
}

/// The answer to a second run does not wait for the first, and who goes ends the one that he had begun.
#[test]
fn privileged_one_runs_at_a_time_and_ends_with_who_asked() {
    let Some(pool) = Pool::new(LowerKind::Tmpfs, 64, 64, AFTER_TEN_DAYS) else { return };
    for number in 0..4000 {
        pool.put(&format!("d/{number}"), b"x", 30);
    }
    pool.mount(&[]);
    // Nobody reads what it says, so that it comes to wait.
    let mut first = Command::new(SHUNT)
        .args(words_of(&pool.room.mnt(), &["run", "--json"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let status = || -> Value {
        let said = pool.mover(&["status", "--json"]).ok().out;
        serde_json::from_str::<Value>(&said).expect("is JSON")["mover"].take()
    };
    eventually("it runs", || status()["moved_files"].as_u64().is_some_and(|moved| moved > 0));
    pool.mover(&["run"]).fails(1, &["EBUSY", "running already"]);
    assert!(pool.mover(&["status"]).ok().out.starts_with("moving from "));
    first.kill().expect("is a child");
    common::wait(&mut first);
    eventually("it has ended", || status()["running"] == false);
    let ended = status();
    assert!(
        ended["cancelled"] == true && ended["moved_files"].as_u64().is_some_and(|moved| moved < 4000),
        "{ended}"
    );
    assert!(pool.mover(&["status"]).ok().out.contains("ended before it was done"));
    assert_eq!(pool.run(&[]).1["left_files"], 0);
    assert_eq!(fs::read_dir(pool.slow.path().join("d")).expect("lists").count(), 4000);
    pool.room.umount(&[]).ok();
}

#[test]
fn privileged_an_ordinary_user_neither_starts_it_nor_has_it_reach_elsewhere() {
    let Some(pool) = Pool::new(LowerKind::Tmpfs, 32, 32, AFTER_TEN_DAYS) else { return };
    let victim = tempfile::tempdir().expect("makes");
    fs::write(victim.path().join("file"), "secret").expect("writes");
    age(&victim.path().join("file"), 30);
    pool.put("own/d/file", b"theirs", 30);
    for path in ["own", "own/d", "own/d/file"] {
        chown(pool.fast.path().join(path), Some(65534), Some(65534)).expect("is ours");
    }
    pool.mount(&["--allow-other"]);
    let ran = run(as_nobody(&pool.room).args(words_of(&pool.room.mnt(), &["run"])));
    assert!(
        ran.code == Some(1) && ran.err.contains("only the user of the mount and root may ask"),
        "{ran:?}"
    );
    assert!(pool.mover(&["status"]).ok().out.contains("did not run"));
    // The folder on the way is a symlink to elsewhere one moment, and a folder the next.
    let (own, away) = (pool.fast.path().join("own"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let ends = Ends(&away);
        let attacker = scope.spawn(|| {
            symlink(victim.path(), own.join("link")).expect("links");
            while !away.load(Ordering::Relaxed) {
                for (from, to) in [("d", "aside"), ("link", "d"), ("d", "link"), ("aside", "d")] {
                    fs::rename(own.join(from), own.join(to)).expect("renames");
                }
            }
        });
        for _ in 0..15 {
            // Whatever becomes of the file, which goes about; only that it is not somebody else's.
            let _ = pool.mover(&["run", "--quiet"]);
        }
        drop(ends);
        attacker.join().expect("ends");
    });
    let found: Vec<_> =
        fs::read_dir(victim.path()).expect("lists").map(|entry| entry.expect("reads").file_name()).collect();
    assert_eq!(found, ["file"], "nothing was put or taken there");
    assert_eq!(fs::read_to_string(victim.path().join("file")).expect("reads"), "secret");
    let copies: Vec<PathBuf> = [&pool.fast, &pool.slow]
        .into_iter()
        .flat_map(|disk| ["own/d/file", "own/aside/file"].map(|path| disk.path().join(path)))
        .filter(|path| path.symlink_metadata().is_ok())
        .collect();
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert_eq!(fs::read_to_string(&copies[0]).expect("reads"), "theirs");
    pool.room.umount(&[]).ok();
}

/// How fast it is beside `cp` of the same file to the same disk with its bytes made durable, which is what it does and least. In turns, and of each
/// the best time counts.
#[test]
fn privileged_it_moves_about_as_fast_as_a_copy() {
    const LEN: usize = 512 * MIB;
    const ROUNDS: usize = 3;
    let Some(pool) = Pool::new(LowerKind::Ext4, 1024, 1024, AFTER_TEN_DAYS) else { return };
    let content = bytes(LEN);
    pool.mount(&[]);
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        let path = pool.put("file", &content, 30);
        rustix::fs::sync();
        let copy = pool.slow.path().join("copy");
        let begun = Instant::now();
        run(Command::new("cp").args([&path, &copy])).ok();
        File::open(&copy).expect("is there").sync_all().expect("syncs");
        best[0] = best[0].min(begun.elapsed());
        fs::remove_file(copy).expect("goes");
        age(&path, 30);
        rustix::fs::sync();
        let begun = Instant::now();
        assert_eq!(pool.run(&[]).1["moved_files"], 1);
        best[1] = best[1].min(begun.elapsed());
        assert_eq!(pool.on("file"), ["slow"]);
        fs::remove_file(pool.slow.path().join("file")).expect("goes");
    }
    let [copy, moved] = best.map(|time| (LEN / MIB) as f64 / time.as_secs_f64());
    println!(
        "of 512 MiB: cp and fsync {copy:.0} MiB/s, the mover {moved:.0} MiB/s, {:.2} of that",
        moved / copy
    );
    pool.room.umount(&[]).ok();
    assert!(best[1] < best[0] * 2 + Duration::from_secs(1), "{best:?}");
}

/// A thousand small files, moved from a terminal, where a bar tells how far it is. Elsewhere there is none.
#[test]
fn privileged_a_terminal_shows_how_far_it_is() {
    const COUNT: usize = 1000;
    if !have(&["script"]) {
        return;
    }
    let Some(pool) = Pool::new(LowerKind::Ext4, 256, 256, AFTER_TEN_DAYS) else { return };
    let mut said = Vec::new();
    pool.mount(&[]);
    for is_terminal in [true, false] {
        let folder = if is_terminal { "0" } else { "1" };
        (0..COUNT).for_each(|number| drop(pool.put(&format!("{folder}/{number}"), b"small", 30)));
        rustix::fs::sync();
        let begun = Instant::now();
        let words = format!("'{SHUNT}' mover run '{}'", pool.room.mnt().display());
        let (program, how) = if is_terminal { ("script", "-qec") } else { ("sh", "-c") };
        let mut command = Command::new(program);
        command.args([how, &words]);
        if is_terminal {
            command.arg("/dev/null").env("TERM", "xterm");
        }
        let ran = run(&mut command).ok();
        said.push(ran.out + &ran.err);
        let rate = COUNT as f64 / begun.elapsed().as_secs_f64();
        println!("{COUNT} files of 5 bytes, terminal {is_terminal}: {rate:.0} in a second");
    }
    pool.room.umount(&[]).ok();
    assert!(said[0].contains("to go") && !said[1].contains("to go"), "{said:?}");
    assert_eq!(fs::read_dir(pool.slow.path().join("0")).expect("lists").count(), COUNT);
}
