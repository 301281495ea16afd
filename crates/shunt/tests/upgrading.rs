//! A mount that goes on with another program while it is used: what callers see, which programs are not let go on, and who may ask. Needs root
//! and /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
mod kept;
mod programs;

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use callers::{Callers, is_caller};
use common::{
    Ran, Room, SHUNT, apart, as_nobody, can_mount, eventually, is_alive, room_of_nobody, run, servers_of,
    shunt, signal, wait,
};
use kept::{Kept, PAGE, call, settled_files, status};
use programs::{copy, impostor, program_of, upgrading};

const UPGRADES: u64 = 20;
const CALLERS: usize = 3;

fn upgrade(kept: &Kept, program: &Path) -> Ran {
    run(&mut upgrading(&kept.room.mnt(), program))
}

#[test]
fn privileged_no_call_fails_while_the_program_is_replaced() {
    if let Some(folder) = is_caller() {
        return call(&folder).say();
    }
    if !can_mount() {
        return;
    }
    for (flags, transport) in [(&[][..], "cloned"), (&["--transport", "device"], "device")] {
        let kept = Kept::start(flags);
        let programs = ["one", "other"].map(|name| copy(Path::new(SHUNT), &kept.room.path().join(name)));
        fs::write(kept.room.src().join("open"), [7; PAGE]).expect("writes");
        let open = File::options().read(true).write(true).open(kept.room.mnt().join("open")).expect("opens");
        assert_eq!(kept.room.read("hello"), "hello there\n");
        upgrade(&kept, &programs[0]).ok();
        let before = settled_files(kept.keeper);
        let test = "privileged_no_call_fails_while_the_program_is_replaced";
        let callers = Callers::start(CALLERS, test, &kept.room.mnt());
        let mut longest = Duration::ZERO;
        for (count, program) in (2..=UPGRADES).zip(programs.iter().cycle()) {
            std::thread::sleep(Duration::from_millis(150));
            let start = Instant::now();
            let ran = upgrade(&kept, program).ok();
            longest = longest.max(start.elapsed());
            assert!(ran.out.contains("continues with") && ran.out.contains("keeper process"), "{ran:?}");
            let status = status(&kept.room);
            let of = |name: &str| status["takeover"][name].as_u64();
            assert_eq!((of("keeper"), of("replaced")), (Some(u64::from(kept.keeper)), Some(count)));
            assert_eq!(status["session"]["transport"]["kind"], transport);
            assert_eq!([kept.keeper, kept.room.pid()].map(program_of), [program.clone(), program.clone()]);
            let byte = u8::try_from(count).expect("small");
            open.write_all_at(&[byte; PAGE], 0).expect("is open");
            let mut room = [0; PAGE];
            open.read_exact_at(&mut room, 0).expect("is open");
            assert_eq!(room, [byte; PAGE]);
        }
        let seen = callers.stop();
        println!("{transport}: {seen:?}; the longest upgrade took {longest:?}");
        assert_eq!(kept.room.read("hello"), "hello there\n");
        let after = settled_files(kept.keeper);
        // Lower files that are open are kept for a while; what was removed is not.
        let below = |files: &[PathBuf]| files.iter().filter(|file| file.starts_with(kept.room.src())).count();
        let beside = |files: &[PathBuf]| files.len() - below(files);
        assert!(beside(&after) <= beside(&before), "left over: {before:?}, and now {after:?}");
        assert!(below(&after) <= below(&before) + 2, "left over: {before:?}, and now {after:?}");
        assert!(
            kept.log().matches("another program has gone on with the mount").count() == 20,
            "{}",
            kept.log()
        );
        drop(open);
        kept.was_unnoticed(&seen);
    }
}

/// Nothing is stopped for a program that cannot go on.
#[test]
fn privileged_a_program_that_is_none_of_ours_changes_nothing() {
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&[]);
    let (server, folder) = (kept.room.pid(), kept.room.path());
    let make = |name: &str, mode: u32| {
        let path = folder.join(name);
        fs::write(&path, "#!/bin/sh\ntouch /run/shunt-was-here\n").expect("writes");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("is ours");
        path
    };
    let open = copy(Path::new(SHUNT), &folder.join("open-to-all"));
    fs::set_permissions(&open, Permissions::from_mode(0o757)).expect("is ours");
    let set_uid = copy(Path::new(SHUNT), &folder.join("set-uid"));
    fs::set_permissions(&set_uid, Permissions::from_mode(0o4755)).expect("is ours");
    let others = folder.join("others");
    fs::create_dir(&others).expect("makes");
    fs::set_permissions(&others, Permissions::from_mode(0o777)).expect("is ours");
    symlink(SHUNT, others.join("link")).expect("links");
    let others_file = copy(Path::new(SHUNT), &folder.join("of-nobody"));
    std::os::unix::fs::chown(&others_file, Some(65534), None).expect("is ours");
    let shown = copy(Path::new(SHUNT), &kept.room.src().join("shunt"));
    let shown = kept.room.mnt().join(shown.file_name().expect("has one"));
    let cases = [
        (folder.join("none"), "No such file or directory"),
        (folder.clone(), "not a file"),
        (make("plain", 0o644), "not executable"),
        (make("script", 0o755), "is not used: it"),
        (open, "others may write to"),
        (set_uid, "set-uid or set-gid"),
        (others.join("link"), "others may write to"),
        (others_file, "belongs to user 65534"),
        (shown, "FUSE file system"),
        (PathBuf::from("/bin/true"), "it is not shunt"),
        (PathBuf::from("/bin/false"), "no such version of shunt"),
        (
            impostor(&kept.room.path(), "newer"),
            "it reads states of the layouts [77], and this program writes [1, 2]",
        ),
        (impostor(&kept.room.path(), "exits"), "a trial of the program failed (exit status: 7)"),
        (impostor(&kept.room.path(), "lies"), "it works"),
        (impostor(&kept.room.path(), "hangs"), "was not over after 10s"),
    ];
    for (program, words) in cases {
        upgrade(&kept, &program).fails(1, &["was not upgraded", words]);
        assert_eq!(kept.room.read("hello"), "hello there\n");
        assert_eq!(kept.room.pid(), server, "{}: the server was stopped", program.display());
    }
    assert!(!Path::new("/run/shunt-was-here").exists(), "a script was run");
    // What is tried gets what it needs, and not the device, which it would hold open.
    let looks = upgrade(&kept, &impostor(&kept.room.path(), "looks"))
        .fails(1, &["memfd:shuntfs-state", "memfd:shuntfs-passed"]);
    assert!(!looks.err.contains("/dev/fuse") && !looks.err.contains("socket:"), "{looks:?}");
    shunt(["upgrade"]).fails_with_usage();
    shunt(["upgrade", "--all", "/mnt"]).fails_with_usage();
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// A program that fails once it has taken the place of the one before gives that one its place back.
#[test]
fn privileged_a_program_that_fails_late_gives_the_place_back() {
    if let Some(folder) = is_caller() {
        return call(&folder).say();
    }
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&[]);
    let program = program_of(kept.keeper);
    let open = File::open(kept.room.mnt().join("hello")).expect("opens");
    let callers = Callers::start(
        CALLERS,
        "privileged_a_program_that_fails_late_gives_the_place_back",
        &kept.room.mnt(),
    );
    let ways = [
        ("begins-not", "it does not want to"),
        ("fails", "its server does not want to"),
        ("dies", "its server ended before it was ready"),
        ("late", "its server was not ready after 1s"),
    ];
    for (way, words) in ways {
        let server = kept.room.pid();
        upgrade(&kept, &impostor(&kept.room.path(), way)).fails(1, &["was not upgraded", words]);
        assert!(is_alive(kept.keeper) && kept.room.pid() != server, "{way}: {}", kept.log());
        assert_eq!(
            [kept.keeper, kept.room.pid()].map(program_of),
            [program.clone(), program.clone()],
            "{way}"
        );
        let mut room = [0; 12];
        open.read_exact_at(&mut room, 0).expect("is open");
        assert_eq!(&room, b"hello there\n");
    }
    // And another one can still go on.
    let other = copy(Path::new(SHUNT), &kept.room.path().join("other"));
    upgrade(&kept, &other).ok();
    assert_eq!(program_of(kept.keeper), other);
    let seen = callers.stop();
    println!("{seen:?}");
    assert!(seen.calls > 100, "{seen:?}");
    assert_eq!((seen.failed, seen.wrong), (0, 0), "{seen:?}\n{}", kept.log());
    drop(open);
    signal(kept.keeper, "TERM");
    kept.is_gone();
}

#[test]
fn privileged_a_server_is_killed_while_another_program_is_on_its_way() {
    if let Some(folder) = is_caller() {
        return call(&folder).say();
    }
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&[]);
    let programs = ["one", "other"].map(|name| copy(Path::new(SHUNT), &kept.room.path().join(name)));
    let test = "privileged_a_server_is_killed_while_another_program_is_on_its_way";
    let callers = Callers::start(CALLERS, test, &kept.room.mnt());
    // Just before.
    kept.kill();
    upgrade(&kept, &programs[0]).ok();
    assert_eq!(program_of(kept.keeper), programs[0]);
    // And at some moment of it.
    let mut upgraded = 0;
    for (round, program) in (0_u64..6).zip(programs.iter().rev().cycle()) {
        let mut child = start(upgrading(&kept.room.mnt(), program));
        std::thread::sleep(Duration::from_millis(round * 15));
        // The server, or the program that is tried.
        let children = format!("/proc/{0}/task/{0}/children", kept.keeper);
        for child in fs::read_to_string(children).unwrap_or_default().split_whitespace() {
            let _gone_by_now = run(Command::new("kill").arg("-KILL").arg(child));
        }
        upgraded += usize::from(wait(&mut child) == Some(0));
        assert_eq!(kept.room.read("hello"), "hello there\n");
        assert!(is_alive(kept.keeper), "{}", kept.log());
    }
    println!("{upgraded} of 6 went on");
    // Once nobody is killed, it goes on.
    upgrade(&kept, &programs[0]).ok();
    let seen = callers.stop();
    println!("{seen:?}");
    assert_eq!((seen.failed, seen.wrong), (0, 0), "{seen:?}\n{}", kept.log());
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts")
}

#[test]
fn privileged_two_who_ask_at_once_get_an_answer_each() {
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&[]);
    let programs = ["one", "other"].map(|name| copy(Path::new(SHUNT), &kept.room.path().join(name)));
    for _ in 0..4 {
        let asked: Vec<Ran> = std::thread::scope(|scope| {
            let kept = &kept;
            let ask = |program: &PathBuf| {
                let program = program.clone();
                scope.spawn(move || upgrade(kept, &program))
            };
            let asked: Vec<_> = programs.iter().map(ask).collect();
            asked.into_iter().map(|asked| asked.join().expect("no panic")).collect()
        });
        assert!(asked.iter().any(|ran| ran.code == Some(0)), "{asked:?}");
        for ran in asked.into_iter().filter(|ran| ran.code != Some(0)) {
            let words = ["another program is on its way already", "is not ready yet", "is not served yet"];
            assert!(words.iter().any(|words| ran.err.contains(words)), "{ran:?}");
        }
        assert_eq!(kept.room.read("hello"), "hello there\n");
        assert!(programs.contains(&program_of(kept.keeper)));
    }
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

#[test]
fn privileged_who_may_not_ask_and_what_has_no_keeper_is_told_so() {
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&["--allow-other"]);
    let server = kept.room.pid();
    let mut nobody = as_nobody(&kept.room);
    nobody.arg("upgrade").arg(kept.room.mnt()).arg("--binary").arg(SHUNT);
    run(&mut nobody).fails(1, &["may ask"]);
    assert_eq!(kept.room.pid(), server);
    // Without a keeper nobody could start another one.
    signal(kept.keeper, "KILL");
    eventually("the server notices", || kept.log().contains("no other server follows this one"));
    upgrade(&kept, Path::new(SHUNT)).fails(1, &["its keeper is dead"]);
    kept.room.umount(&[]).ok();
    kept.is_gone();
    let room = Room::new();
    room.mount(&[]);
    let ran = shunt(["upgrade".as_ref(), room.mnt().as_os_str()]);
    ran.fails(1, &["it has no keeper", "--takeover crash"]);
    assert_eq!(room.read("hello"), "hello there\n");
    room.umount(&[]).ok();
    shunt(["upgrade".as_ref(), room.mnt().as_os_str()]).fails(1, &["is not a mount point"]);
}

/// By fusermount3, in a namespace of its own whose /dev/fuse is open to all: with a program of the user's own and with one of root's, and not with one
/// that somebody else could change.
#[test]
fn privileged_an_ordinary_user_upgrades_a_mount() {
    let Some(room) = room_of_nobody() else { return };
    fs::set_permissions(room.path(), Permissions::from_mode(0o755)).expect("is ours");
    let others = copy(Path::new(SHUNT), &room.path().join("others"));
    std::os::unix::fs::chown(&others, Some(65533), None).expect("is ours");
    let script = r#"
        mount -t tmpfs none /dev; mknod -m 666 /dev/fuse c 10 229; mknod -m 666 /dev/null c 1 3
        cd /
        setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec "$4" sh "$2" "$3"
        for of in pid keeper; do
            readlink /proc/$("$3" status --json "$2/mnt" | grep -o "\"$of\": *[0-9]*" | head -1 | tr -dc 0-9)/exe
        done
        "$3" upgrade "$2/mnt" --binary "$3"
        exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec "$5" sh "$2" "$3""#;
    let user = r#"
        "$2" mount --takeover crash "$1/src" "$1/mnt" 2> /dev/null
        exec 9<> "$1/mnt/open"; rm "$1/mnt/open"
        echo before >&9
        cp "$2" "$1/src/own"; cp "$2" "$1/src/group"; chmod 775 "$1/src/group"
        no() { "$2" upgrade "$1/mnt" --binary "$3" 2>&1 && echo "$3 went on" || true; }
        no "$1" "$2" "$1/src/group"
        no "$1" "$2" "$1/others"
        no "$1" "$2" "$1/mnt/own"
        "$2" upgrade "$1/mnt" --binary "$1/src/own"
        kill -9 $("$2" status --json "$1/mnt" | grep -o '"pid": *[0-9]*' | head -1 | tr -dc 0-9)
        cat "$1/mnt/hello"
        echo after >&9
        stat -L -c '%h %s' /proc/self/fd/9
        exec 9>&-"#;
    let ends = r#"
        cat "$1/mnt/hello"
        rm "$1/mnt/own" "$1/mnt/group"
        ls "$1/mnt"
        "$2" umount "$1/mnt"
        ! grep -q " $1/mnt " /proc/self/mountinfo"#;
    let program = room.path().join("shunt");
    let mut command = apart(script);
    command.arg(room.path()).arg(program).args([user, ends]).env_remove("XDG_RUNTIME_DIR");
    let ran = run(&mut command).ok();
    let own = room.src().join("own").display().to_string();
    for words in ["others may write to", "belongs to user 65533", "is on a FUSE file system"] {
        assert!(ran.out.contains(words), "{words}: {ran:?}");
    }
    assert!(!ran.out.contains("went on"), "{ran:?}");
    assert_eq!(ran.out.matches(&format!("continues with {own}")).count(), 1, "{ran:?}");
    assert!(ran.out.contains(&format!("hello there\n0 13\n{own}\n{own}\n")), "{ran:?}");
    assert_eq!(ran.out.matches("continues with").count(), 2, "root's, too: {ran:?}");
    assert!(ran.out.ends_with("hello there\nhello\n"), "{ran:?}");
    eventually("no process is left", || servers_of(&room.path()).is_empty());
}

/// The process stays the same for whoever watches it, and its words, its environment, its folder and its sockets do.
#[test]
fn privileged_the_process_stays_what_it_was() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let path = room.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("binds");
    manager.set_read_timeout(Some(Duration::from_secs(20))).expect("is a socket");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let address = free.expect("a port").to_string();
    let mut command = Command::new(SHUNT);
    command.args(["mount", "-f", "--takeover", "crash", "--metrics-listen", &address]);
    command.arg(room.src()).arg(room.mnt()).env("NOTIFY_SOCKET", &path).env("SOME_WORD", "some value");
    let mut server = room.start(&mut command);
    let keeper = server.id();
    let hear = |words: &[&str]| {
        let mut buffer = [0; 4096];
        loop {
            let len = manager.recv(&mut buffer).expect("is told");
            let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
            if words.iter().all(|word| text.contains(word)) {
                return;
            }
        }
    };
    let main = format!("MAINPID={keeper}\n");
    hear(&["READY=1", &main]);
    let of = |name: &str| fs::read(format!("/proc/{keeper}/{name}")).expect("is there");
    let same = ["environ", "limits", "cgroup", "oom_score_adj", "comm"];
    let (before, words) = (same.map(of), of("cmdline"));
    let other = copy(Path::new(SHUNT), &room.path().join("shunt"));
    for _ in 0..2 {
        run(Command::new(SHUNT).arg("upgrade").arg(room.mnt()).arg("--binary").arg(&other)).ok();
        hear(&["another program goes on"]);
        hear(&["READY=1", &main]);
        assert_eq!(same.map(of), before);
        let now = String::from_utf8_lossy(&of("cmdline")).into_owned();
        let now: Vec<&str> = now.split('\0').filter(|word| !word.starts_with("--takeover-note=")).collect();
        assert_eq!(now, String::from_utf8_lossy(&words).split('\0').collect::<Vec<_>>());
        assert_eq!(program_of(keeper), other);
        let mut stream = TcpStream::connect(&address).expect("somebody listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("is a socket");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("writes");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        assert!(text.contains("200 OK") && text.contains("shuntfs_up{"), "{text}");
    }
    // The next server of the other program goes on like any other.
    signal(room.pid(), "KILL");
    assert_eq!(room.read("hello"), "hello there\n");
    signal(keeper, "TERM");
    hear(&["STOPPING=1"]);
    assert_eq!(server.ends(), Some(0), "{}", server.log());
    assert!(!room.is_mounted());
}

/// Apart, because it is about all mounts.
#[test]
fn privileged_programs_that_were_replaced_are_listed_and_upgraded() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let program = copy(Path::new(SHUNT), &room.path().join("program"));
    let other = copy(Path::new(SHUNT), &room.path().join("other"));
    let [plain, disk] = ["plain", "disk"].map(|name| room.path().join(name));
    fs::create_dir(&plain).expect("makes");
    fs::write(room.path().join("disk.raw"), [7; 4096]).expect("writes");
    let script = r#"
        mount -t tmpfs none /run
        "$2" mount --takeover crash "$4" "$5"
        "$2" mount "$4" "$6"
        "$2" export --takeover crash "$7.raw" "$7"
        trap 'umount -l "$5" "$6" "$7"' EXIT
        "$1" list
        mv "$3" "$2"
        "$1" list
        "$1" list --json
        "$1" upgrade --all --binary "$2"
        "$1" list
        "$1" upgrade --all --binary "$2"
        cat "$5/hello"
        cmp "$7.raw" "$7" && echo the disk is the same
    "#;
    let mut command = apart(script);
    let ran =
        run(command.arg(&program).arg(&other).arg(room.src()).arg(room.mnt()).arg(&plain).arg(&disk)).ok();
    let [mnt, plain, disk] = [&room.mnt(), &plain, &disk].map(|path| path.display().to_string());
    let count = |words: String| ran.err.matches(&words).count();
    let replaced = "runs a program that was replaced on the disk";
    assert_eq!(count(format!("{mnt} {replaced}: shunt upgrade {mnt}")), 1, "{ran:?}");
    assert_eq!(count(format!("{disk} {replaced}: shunt upgrade {disk}")), 1, "{ran:?}");
    assert_eq!(count(format!("{plain} {replaced}: unmount and mount again")), 2, "{ran:?}");
    assert_eq!(count(format!("{plain} has no keeper, and keeps its program")), 2, "{ran:?}");
    assert_eq!(ran.out.matches("\"outdated\": true").count(), 3, "{ran:?}");
    assert_eq!(ran.out.matches("continues with").count(), 2, "{ran:?}");
    assert!(ran.out.contains("hello there") && ran.out.contains("the disk is the same"), "{ran:?}");
}
