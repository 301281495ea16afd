//! Mounts on io_uring of each kind that go on with another program while they are used: under rules, of several branches, of an ordinary user, of what is
//! sealed, with handles that outlive the mount. Needs root, /dev/fuse, and FUSE over io_uring. `SHUNTFS_TEST_UPGRADES` says how often each is upgraded.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
mod kept;
#[path = "kept/known.rs"]
mod known;
mod programs;
#[path = "programs/rings.rs"]
mod rings;
#[path = "kept/ruled.rs"]
mod ruled;
#[path = "kept/sealed.rs"]
mod sealed;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use callers::{Callers, is_caller};
use common::{Ends, Room, SHUNT, apart, eventually, room_of_nobody, run, servers_of, shunt, signal, wait};
use kept::Kept;
use known::{Known, forget};
use programs::impostor;
use rings::Programs;
use ruled::{RULES, Ruled, SECRET, SHOWN, nobody, refused};
use sealed::{BLOCK, EIO, LARGE, Sealed, block, errno, large, tamper};
use shuntfs_sys::data::forget_cached;
use shuntfs_sys::locks::{FlockOp, LockKind, LockSpec, flock, ofd_lock};
use shuntfs_testkit::lower::{Lower, LowerKind};

const UPGRADES: u64 = 4;
const CALLERS: usize = 3;
/// The block that is changed below.
const BAD: usize = 5;
const FIRST: LockSpec = LockSpec { kind: LockKind::Write, start: 0, len: 10 };
const NOTHING: LockSpec = LockSpec { kind: LockKind::Unlock, start: 0, len: 0 };

fn upgrades() -> u64 {
    rings::upgrades(UPGRADES)
}

/// What a user may not see he does not see, and what root may see root sees, at each moment.
#[test]
fn privileged_two_users_see_what_they_may_on_io_uring() {
    if !rings::can_ring() {
        return;
    }
    for below in ["src", "a:b"] {
        let ruled = Ruled::start(below, "uring", RULES);
        let programs = Programs::of(&ruled.kept);
        let secret = nobody(|| File::open(ruled.at("secret"))).expect("may");
        let denied = File::open(ruled.at("denied/f")).expect("root may");
        // Not read again before somebody asks for that.
        fs::write(&ruled.rules, "[[rule]]\npath = 'other'\nuid = 65534\ndeny = 'EACCES'\n").expect("writes");
        let rounds = ruled.is_seen_by_two(|| {
            for count in 1..=upgrades() {
                std::thread::sleep(Duration::from_millis(150));
                programs.replace(&ruled.kept, count);
                let mut room = [0; SECRET.len()];
                secret.read_exact_at(&mut room, 0).expect("is open");
                assert_eq!(room, SHOWN.as_bytes(), "{count}");
                // By an open file of root's, as somebody else.
                let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&denied));
                assert_eq!(
                    refused(nobody(|| File::open(&path))),
                    Some(io::ErrorKind::PermissionDenied),
                    "{count}"
                );
            }
        });
        println!("{below}: {} upgrades, {rounds:?} rounds", upgrades());
        ruled.is_ruled();
        drop((secret, denied));
        ruled.ends();
    }
}

/// While branches come and go.
#[test]
fn privileged_no_call_fails_on_branches_on_io_uring() {
    if let Some(folder) = is_caller() {
        return rings::work(&folder).say();
    }
    if !rings::can_ring() {
        return;
    }
    let room = Room::new();
    let all = ["a", "b", "c"].map(|name| room.path().join(name));
    for branch in &all {
        fs::create_dir_all(branch.join("folder")).expect("makes");
        let name = branch.file_name().expect("has one").to_str().expect("plain").to_owned();
        fs::write(branch.join(format!("of-{name}")), name).expect("writes");
    }
    let list = format!("{}:{}", all[0].display(), all[1].display());
    let log = format!("log_file={}", room.path().join("log").display());
    let mut mount = Command::new(SHUNT);
    mount.arg("mount").args(rings::FLAGS).args(["-o", &log, "-o", "minfreespace=0", "--create", "rand"]);
    run(mount.arg(list).arg(room.mnt())).ok();
    let kept = Kept::of(room);
    let programs = Programs::of(&kept);
    let (mnt, c) = (kept.room.mnt(), &all[2]);
    let change = |how: &str| shunt(["branches".as_ref(), how.as_ref(), mnt.as_os_str(), c.as_os_str()]).ok();
    let test = "privileged_no_call_fails_on_branches_on_io_uring";
    let callers = Callers::start(CALLERS, test, &mnt.join("folder"));
    for count in 1..=upgrades() {
        std::thread::sleep(Duration::from_millis(150));
        // Nobody makes anything on a branch that goes.
        let is_there = !count.is_multiple_of(2);
        if is_there {
            let path = format!("{}=NC", c.display());
            shunt(["branches".as_ref(), "add".as_ref(), mnt.as_os_str(), path.as_ref()]).ok();
        } else {
            change("remove");
        }
        programs.replace(&kept, count);
        assert_eq!(mnt.join("of-c").exists(), is_there, "{count}: {}", kept.log());
        let shown = ["of-a", "of-b"].map(|name| kept.room.read(name));
        assert_eq!(shown, ["a", "b"], "{count}");
    }
    let seen = callers.stop();
    println!("{} upgrades, {seen:?}", upgrades());
    assert!(seen.calls > 100 && (seen.failed, seen.wrong) == (0, 0), "{seen:?}\n{}", kept.log());
    let left = all.iter().flat_map(|branch| fs::read_dir(branch.join("folder")).expect("is there").flatten());
    assert_eq!(left.map(|entry| entry.path()).collect::<Vec<_>>(), Vec::<PathBuf>::new());
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// Makes what its user may not read, and a folder in which the user may make nothing.
fn forbid_some(room: &Room) {
    let secret = room.src().join("secret");
    fs::write(&secret, "told").expect("writes");
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).expect("is ours");
    fs::create_dir(room.src().join("closed")).expect("makes");
}

/// By fusermount3, in a namespace of its own whose /dev/fuse is open to all.
#[test]
fn privileged_an_ordinary_user_notices_nothing_on_io_uring() {
    if !rings::can_ring() {
        return;
    }
    let Some(room) = room_of_nobody() else { return };
    fs::set_permissions(room.path(), fs::Permissions::from_mode(0o755)).expect("is ours");
    forbid_some(&room);
    let script = r#"
        mount -t tmpfs none /dev; mknod -m 666 /dev/fuse c 10 229; mknod -m 666 /dev/null c 1 3
        cd /
        exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -euc "$4" sh "$2" "$3" "$5""#;
    // Each loop has its own names, and tells how often it went round.
    let user = r#"
        "$2" mount --takeover upgrade --transport uring "$1/src" "$1/mnt" 2> /dev/null
        trap 'touch "$1/src/stop"' EXIT
        cp "$2" "$1/src/one"; cp "$2" "$1/src/other"
        exec 9<> "$1/mnt/open"; rm "$1/mnt/open"
        calls() {
            count=0
            while [ ! -e "$1/src/stop" ]; do
                count=$((count + 1))
                echo "$count" > "$1/mnt/$2-$count"
                mv "$1/mnt/$2-$count" "$1/mnt/$2-moved"
                test "$(cat "$1/mnt/$2-moved")" = "$count"
                rm "$1/mnt/$2-moved"
                test ! -e "$1/mnt/$2-moved"
            done
            echo "$count rounds"
        }
        calls "$1" first & first=$!
        calls "$1" second & second=$!
        round=0
        while [ "$round" -lt "$3" ]; do
            sleep 0.2
            round=$((round + 1))
            if [ $((round % 2)) = 0 ]; then program=one; else program=other; fi
            "$2" upgrade "$1/mnt" --binary "$1/src/$program"
            echo "$round" >&9
            echo "$round" > "$1/mnt/made-$round"
            stat -c 'made by %u:%g' "$1/src/made-$round"
            rm "$1/mnt/made-$round"
            if cat "$1/mnt/secret" || touch "$1/mnt/closed/x"; then echo "is allowed what is not"; fi 2> /dev/null
        done
        touch "$1/src/stop"
        wait "$first"; wait "$second"
        cat "$1/mnt/hello"
        "$2" status --json "$1/mnt" | grep -E '"(replaced|kind)":'
        stat -L -c '%h %s' /proc/self/fd/9
        exec 9>&-
        trap - EXIT
        rm -f "$1/mnt/one" "$1/mnt/other" "$1/mnt/stop" "$1/mnt/secret"
        rmdir "$1/mnt/closed"
        ls "$1/mnt"
        "$2" umount "$1/mnt"
        ! grep -q " $1/mnt " /proc/self/mountinfo"#;
    let program = room.path().join("shunt");
    let mut command = apart(script);
    command.arg(room.path()).arg(program).arg(user).arg(upgrades().to_string()).env_remove("XDG_RUNTIME_DIR");
    let ran = run(&mut command).ok();
    println!("{}", ran.out);
    assert_eq!(ran.out.matches("continues with").count() as u64, upgrades(), "{ran:?}");
    let replaced = format!("\"replaced\": {}", upgrades());
    let is_said = |words: &str| ran.out.contains(words);
    assert!(is_said("\"kind\": \"uring\"") && is_said(&replaced), "{ran:?}");
    assert_eq!(ran.out.matches("made by 65534:65534\n").count() as u64, upgrades(), "{ran:?}");
    assert!(!is_said("told") && !is_said("is allowed"), "{ran:?}");
    let rounds = ran.out.lines().filter_map(|line| line.strip_suffix(" rounds")?.parse::<u64>().ok());
    let rounds: Vec<u64> = rounds.collect();
    assert!(rounds.len() == 2 && rounds.iter().all(|count| *count > 10), "{ran:?}");
    let written: usize = (1..=upgrades()).map(|round| round.to_string().len() + 1).sum();
    assert!(ran.out.ends_with(&format!("0 {written}\nhello\n")), "{ran:?}");
    eventually("no process is left", || servers_of(&room.path()).is_empty());
}

/// A block that was changed below is an error under each program, and all others are what was sealed.
#[test]
fn privileged_a_changed_block_stays_an_error_on_io_uring() {
    if !rings::can_ring() {
        return;
    }
    let sealed = Sealed::start(&[&["--verify=required"], &rings::FLAGS[..]].concat());
    let programs = Programs::of(&sealed.0);
    let open = File::open(sealed.at("large")).expect("opens");
    let first = sealed.verify()["manifest"].clone();
    let read = |number: usize| {
        forget_cached(&open).expect("a hint");
        let mut bytes = vec![0; BLOCK.min(LARGE - number * BLOCK)];
        open.read_exact_at(&mut bytes, (number * BLOCK) as u64).map(|()| bytes)
    };
    let (stop, rounds, blocks) = (AtomicBool::new(false), AtomicU32::new(0), LARGE.div_ceil(BLOCK));
    tamper(&sealed.below("large"), (BAD * BLOCK) as u64);
    assert_eq!(errno(read(BAD)), Some(EIO));
    std::thread::scope(|scope| {
        let _ends = Ends(&stop);
        let (sealed, stop, rounds) = (&sealed, &stop, &rounds);
        scope.spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                let file = File::open(sealed.at("large")).expect("opens");
                forget_cached(&file).expect("a hint");
                // The kernel reads ahead, so what is changed is asked for first.
                let mut bytes = vec![0; BLOCK];
                assert_eq!(errno(file.read_exact_at(&mut bytes, (BAD * BLOCK) as u64)), Some(EIO));
                let mut bytes = vec![0; LARGE - 8 * BLOCK];
                file.read_exact_at(&mut bytes, 8 * BLOCK as u64).expect("is good");
                assert!(bytes == large()[8 * BLOCK..], "{}", sealed.0.log());
                rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        for count in 1..=upgrades() {
            std::thread::sleep(Duration::from_millis(150));
            programs.replace(&sealed.0, count);
            assert_eq!(errno(read(BAD)), Some(EIO), "{count}: {}", sealed.0.log());
            for number in (8..blocks - 1).step_by(29) {
                assert_eq!(read(number).expect("is good"), block(number), "{count}");
            }
            assert_eq!(sealed.verify()["manifest"], first);
            let before = rounds.load(Ordering::SeqCst);
            eventually("somebody has read all of it", || rounds.load(Ordering::SeqCst) > before);
        }
        println!("{} upgrades, {rounds:?} rounds", upgrades());
    });
    // Whoever seals the changed folder with another key meanwhile, and has it be the trusted one, is not believed.
    sealed.shell("rm -r src/.shunt");
    sealed::words(sealed.room(), &["src", "--key", "two"]).ok();
    sealed.shell("cp two.pub one.pub");
    programs.replace(&sealed.0, upgrades() + 1);
    assert_eq!(errno(read(BAD)), Some(EIO), "{}", sealed.0.log());
    assert_eq!(sealed.verify()["manifest"], first);
    drop(open);
    sealed.ends();
}

/// Handles lead to the same files under each program, also after the kernel has forgotten these.
#[test]
fn privileged_handles_hold_over_programs_on_io_uring() {
    if !rings::can_ring() {
        return;
    }
    let Some(lower) = Lower::make(LowerKind::Ext4).expect("a file system or none") else { return };
    let room = Room::new();
    let log = format!("log_file={}", room.path().join("log").display());
    let mut mount = Command::new(SHUNT);
    mount.arg("mount").args(rings::FLAGS).args(["--handles", "-o", &log]);
    run(mount.arg(lower.path()).arg(room.mnt())).ok();
    let kept = Kept::of(room);
    let programs = Programs::of(&kept);
    let known = Known::make(kept.room.mnt());
    known.holds("at the begin");
    for count in 1..=upgrades() {
        programs.replace(&kept, count);
        known.holds(&format!("after upgrade {count}: {}", kept.log()));
        // Whatever the next program finds of them, it has not from the kernel.
        forget();
        if count.is_multiple_of(2) {
            known.holds(&format!("after upgrade {count}, forgotten: {}", kept.log()));
        }
    }
    drop(known);
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).open(path).expect("opens")
}

fn lock(file: &File, is_flock: bool, wait: bool) -> shuntfs_sys::Result<()> {
    if is_flock { flock(file, FlockOp::Exclusive, wait) } else { ofd_lock(file, FIRST, wait) }
}

fn unlock(file: &File, is_flock: bool) {
    let given = if is_flock { flock(file, FlockOp::Unlock, false) } else { ofd_lock(file, NOTHING, false) };
    given.expect("gives it back");
}

/// Who waits for a lock goes on waiting under the next program, and gets the lock once; or is told that he was interrupted.
#[test]
fn privileged_who_waits_for_a_lock_gets_it_once_on_io_uring() {
    for is_flock in [false, true] {
        let Some(kept) = rings::start(&["--locks", "lower"]) else { return };
        let (programs, path) = (Programs::of(&kept), kept.room.mnt().join("hello"));
        wait_over_programs(&kept, &programs, is_flock);
        // Who has one has it under the next program.
        let [file, other, below] = [&path, &path, &kept.room.src().join("hello")].map(|path| open(path));
        lock(&file, is_flock, false).expect("is free");
        programs.replace(&kept, upgrades() + 2);
        for stranger in [&below, &other] {
            assert!(lock(stranger, is_flock, false).is_err(), "it is held: {}", kept.log());
        }
        unlock(&file, is_flock);
        lock(&below, is_flock, false).expect("is free");
        drop((below, file, other));
        kept.room.umount(&[]).ok();
        kept.is_gone();
    }
}

/// Three wait for what somebody below has, while programs are replaced.
fn wait_over_programs(kept: &Kept, programs: &Programs, is_flock: bool) {
    let (path, holders, turns) = (kept.room.mnt().join("hello"), AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        // In here: whatever fails, it is closed then, and nobody waits any more.
        let below = open(&kept.room.src().join("hello"));
        lock(&below, is_flock, false).expect("is free");
        for _ in 0..3 {
            scope.spawn(|| {
                let file = open(&path);
                lock(&file, is_flock, true).expect("gets it");
                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "alone");
                turns.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(50));
                holders.fetch_sub(1, Ordering::SeqCst);
                unlock(&file, is_flock);
            });
        }
        for count in 1..=upgrades() {
            // One more waits under each program, and is interrupted under the next one.
            let mut waits = Command::new("flock");
            waits.args(["-w", "60"]).arg(&path).arg("true").stdin(Stdio::null());
            let waits = is_flock.then(|| waits.spawn().expect("starts"));
            std::thread::sleep(Duration::from_millis(200));
            programs.replace(kept, count);
            assert_eq!(turns.load(Ordering::SeqCst), 0, "somebody below has it");
            if let Some(mut waits) = waits {
                assert!(waits.try_wait().expect("is a child").is_none(), "{}", kept.log());
                signal(waits.id(), if count.is_multiple_of(2) { "KILL" } else { "TERM" });
                assert_eq!(wait(&mut waits), None, "ended by the signal");
            }
        }
        // A program that gives the place back leaves those who wait where they are.
        let late = rings::upgrade(kept, &impostor(&kept.room.path(), "fails"));
        late.fails(1, &["was not upgraded", "its server does not want to"]);
        assert_eq!(turns.load(Ordering::SeqCst), 0, "somebody below has it");
        unlock(&below, is_flock);
    });
    assert_eq!(turns.load(Ordering::SeqCst), 3);
}
