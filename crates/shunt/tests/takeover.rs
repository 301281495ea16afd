//! A mount whose servers are killed, and whose keeper is: what callers see, how it ends, and what is left. Needs root and /dev/fuse.

mod common;

#[path = "../../shuntfs-keeper/tests/callers/mod.rs"]
mod callers;
mod kept;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use callers::{Callers, is_caller};
use common::{
    Ran, Room, SHUNT, apart, can_mount, eventually, is_alive, room_of_nobody, run, servers_of, shunt, signal,
    wait,
};
use kept::{Kept, PAGE, call, sockets_of, status};
use serde_json::Value;

/// A fifth server that dies within a minute is the last.
const KILLS: u64 = 4;
const CALLERS: usize = 3;

#[test]
fn privileged_no_call_fails_while_servers_are_killed() {
    if let Some(folder) = is_caller() {
        return call(&folder).say();
    }
    if !can_mount() {
        return;
    }
    for (flags, transport) in [(&[][..], "cloned"), (&["--transport", "device"], "device")] {
        let kept = Kept::start(flags);
        fs::write(kept.room.src().join("open"), [7; PAGE]).expect("writes");
        let open = File::open(kept.room.mnt().join("open")).expect("opens");
        let callers =
            Callers::start(CALLERS, "privileged_no_call_fails_while_servers_are_killed", &kept.room.mnt());
        for replaced in 1..=KILLS {
            // So that calls are under way.
            std::thread::sleep(Duration::from_millis(250));
            let server = kept.kill();
            let status = status(&kept.room);
            let of = |name: &str| status["takeover"][name].as_u64();
            assert_eq!((of("keeper"), of("replaced")), (Some(u64::from(kept.keeper)), Some(replaced)));
            assert_eq!(status["session"]["transport"]["kind"], transport);
            assert_ne!(status["pid"].as_u64(), Some(u64::from(server)));
            let mut room = [0; PAGE];
            open.read_exact_at(&mut room, 0).expect("is open");
            assert_eq!(room, [7; PAGE]);
        }
        let seen = callers.stop();
        println!("{transport}: {seen:?}");
        drop(open);
        kept.was_unnoticed(&seen);
    }
}

#[test]
fn privileged_a_mount_is_asked_before_and_after_its_server_is_killed() {
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&[]);
    let (mnt, file) = (kept.room.mnt(), kept.room.mnt().join("hello"));
    let text = |command: &str, path: &Path| shunt([command.as_ref(), path.as_os_str()]).ok().out;
    let before = text("status", &mnt);
    let watches = format!("keeper     process {} watches", kept.keeper);
    assert!(before.contains(&watches) && before.contains("no server was replaced"), "{before}");
    let why = text("why", &file);
    let readahead = fs::read_to_string(format!("/sys/class/bdi/0:{}/read_ahead_kb", kept.connection));
    assert_eq!(readahead.expect("is there").trim(), "1024");
    let count = |metric: &str| status(&kept.room)["session"][metric].clone();
    let opens = |flow: &str| count("flows")[flow].as_u64().expect("a number");
    let (mut looked, mut opened) = (0, 0);
    for words in ["1 server was replaced", "2 servers were replaced"] {
        assert_eq!(kept.room.read("hello"), "hello there\n");
        let requests = count("ops")["LOOKUP"]["requests"].as_u64().expect("a number");
        assert!(opens("passthrough") > opened && requests >= looked, "they go on: {requests} after {looked}");
        (looked, opened) = (requests, opens("passthrough"));
        kept.kill();
        assert!(opens("passthrough") >= opened, "they go on");
        let after = text("status", &mnt);
        assert!(after.contains(words) && after.contains(&watches), "{after}");
        assert_eq!(text("why", &file), why);
        let row = shunt(["list"]).ok().out;
        let row = row.lines().find(|line| line.starts_with(mnt.to_str().expect("plain"))).expect("is listed");
        assert!(row.contains("mounted") && row.contains("cloned"), "{row}");
        let status = status(&kept.room);
        let of = |name: &str| status["session"][name].clone();
        assert_eq!(of("path"), mnt.to_str().expect("plain"));
        assert_eq!(of("source"), kept.room.src().to_str().expect("plain"));
        let metrics = shunt(["metrics".as_ref(), mnt.as_os_str()]).ok().out;
        assert!(metrics.contains("shuntfs_up{"), "{metrics}");
    }
    assert_eq!(kept.room.read("hello"), "hello there\n");
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// Ends a mount in some way.
type End = fn(&Kept);

#[test]
fn privileged_nothing_is_left_however_it_ends() {
    if !can_mount() {
        return;
    }
    let ends: [(&str, End); 7] = [
        ("shunt umount", |kept| drop(kept.room.umount(&[]).ok())),
        ("shunt umount --force", |kept| drop(kept.room.umount(&["--force"]).ok())),
        ("umount", |kept| drop(run(Command::new("umount").arg(kept.room.mnt())).ok())),
        ("SIGTERM to the keeper", |kept| signal(kept.keeper, "TERM")),
        ("SIGTERM to the server", |kept| signal(kept.room.pid(), "TERM")),
        ("SIGINT to both", |kept| {
            let server = kept.room.pid();
            signal(kept.keeper, "INT");
            let _gone_by_now = run(Command::new("kill").arg("-INT").arg(server.to_string()));
        }),
        ("an abort", |kept| drop(run(Command::new("umount").arg("-f").arg(kept.room.mnt())))),
    ];
    for (how, end) in ends {
        for kills in [0, 1] {
            let kept = Kept::start(&[]);
            (0..kills).for_each(|_| assert!(kept.kill() > 0));
            assert_eq!(kept.room.read("hello"), "hello there\n", "{how}");
            end(&kept);
            eventually(how, || !kept.room.is_mounted());
            kept.is_gone();
        }
    }
}

#[test]
fn privileged_a_busy_mount_is_detached_by_a_signal_and_served_to_its_end() {
    if !can_mount() {
        return;
    }
    for both in [false, true] {
        let kept = Kept::start(&[]);
        let file =
            OpenOptions::new().read(true).write(true).open(kept.room.mnt().join("hello")).expect("opens");
        let server = kept.room.pid();
        signal(kept.keeper, "TERM");
        if both {
            signal(server, "TERM");
        }
        eventually("it is detached", || !kept.room.is_mounted());
        // Without a name of the mount: what is not open is not reached any more.
        signal(server, "KILL");
        file.set_len(5).expect("the next server answers");
        assert_eq!(fs::read(kept.room.src().join("hello")).expect("is there"), b"hello");
        assert!(is_alive(kept.keeper) && kept.log().contains("busy: files are open on it"), "{}", kept.log());
        drop(file);
        kept.is_gone();
    }
}

#[test]
fn privileged_a_second_signal_ends_it_by_force() {
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&[]);
    let file = OpenOptions::new().write(true).open(kept.room.mnt().join("hello")).expect("opens");
    signal(kept.keeper, "TERM");
    eventually("it is detached", || !kept.room.is_mounted());
    signal(kept.keeper, "TERM");
    eventually("callers get errors", || file.set_len(5).is_err());
    kept.is_gone();
}

/// Kills each server as soon as there is one. How many that were.
fn kill_all(keeper: u32, mut is_over: impl FnMut() -> bool) -> usize {
    let end = Instant::now() + Duration::from_secs(60);
    let mut killed = Vec::new();
    while !is_over() {
        assert!(Instant::now() < end, "it does not end");
        let path = format!("/proc/{keeper}/task/{keeper}/children");
        let children = fs::read_to_string(path).unwrap_or_default();
        for server in children.split_whitespace().map(str::to_owned) {
            if !killed.contains(&server) {
                let _gone_by_now = run(Command::new("kill").arg("-KILL").arg(&server));
                killed.push(server);
            }
        }
    }
    killed.len()
}

#[test]
fn privileged_a_crash_loop_ends_with_a_message() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let mut server = room.mount_in_foreground(&["--takeover", "crash"]);
    let keeper = server.id();
    let connection = status(&room)["session"]["connection"].as_u64().expect("a number");
    let open = OpenOptions::new().write(true).open(room.mnt().join("hello")).expect("opens");
    let caller = Command::new("sh")
        .args(["-c", "while stat \"$1\" > /dev/null 2>&1; do :; done", "sh"])
        .arg(room.mnt().join("hello"))
        .spawn();
    let mut caller = caller.expect("starts");
    let killed = kill_all(keeper, || !is_alive(keeper));
    assert!(killed >= 5, "{killed}");
    assert_eq!(server.ends(), Some(1), "{}", server.log());
    let log = server.log();
    assert!(
        log.contains("is gone: given up, and the connection was ended: 5 servers died within 60s"),
        "{log}"
    );
    assert!(open.set_len(5).is_err(), "nobody serves it");
    assert_eq!(wait(&mut caller), Some(0), "nobody waits for ever");
    assert!(!room.is_mounted());
    eventually("no socket is left", || sockets_of(connection).is_empty());
}

#[test]
fn privileged_a_server_goes_on_without_its_keeper_and_says_so() {
    if !can_mount() {
        return;
    }
    let ends: [End; 3] = [
        |kept| drop(kept.room.umount(&[]).ok()),
        |kept| signal(kept.room.pid(), "TERM"),
        |kept| {
            let file = File::open(kept.room.mnt().join("hello")).expect("opens");
            signal(kept.room.pid(), "TERM");
            eventually("it is detached", || !kept.room.is_mounted());
            drop(file);
        },
    ];
    for end in ends {
        let kept = Kept::start(&[]);
        kept.kill();
        let server = status(&kept.room)["pid"].clone();
        signal(kept.keeper, "KILL");
        eventually("the server notices", || kept.log().contains("no other server follows this one"));
        let after = status(&kept.room);
        assert_eq!((&after["pid"], &after["takeover"]["keeper"]), (&server, &Value::Null));
        let text = shunt(["status".as_ref(), kept.room.mnt().as_os_str()]).ok().out;
        assert!(text.contains("keeper     DEAD"), "{text}");
        assert_eq!(kept.room.read("hello"), "hello there\n");
        end(&kept);
        kept.is_gone();
    }
}

#[test]
fn privileged_without_keeper_and_server_it_is_a_dead_mount() {
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&[]);
    let server = kept.room.pid();
    signal(kept.keeper, "KILL");
    signal(server, "KILL");
    eventually("callers get errors", || fs::metadata(kept.room.mnt().join("hello")).is_err());
    kept.room.umount(&[]).ok();
    assert!(!kept.room.is_mounted());
    // As after any server that was killed, the next list sweeps its socket.
    shunt(["list"]).ok();
    kept.is_gone();
}

#[test]
fn privileged_the_next_server_shows_the_same_folder_whatever_it_is_called() {
    if !can_mount() {
        return;
    }
    let kept = Kept::start(&[]);
    let (src, mnt) = (kept.room.src(), kept.room.mnt());
    let open = File::open(mnt.join("hello")).expect("opens");
    fs::rename(&src, kept.room.path().join("elsewhere")).expect("renames");
    fs::create_dir(&src).expect("makes");
    fs::write(src.join("hello"), "another folder").expect("writes");
    kept.kill();
    assert_eq!(kept.room.read("hello"), "hello there\n");
    fs::write(mnt.join("new"), "x").expect("writes");
    assert!(kept.room.path().join("elsewhere/new").exists() && !src.join("new").exists());
    assert_eq!(io::read_to_string(open).expect("is open"), "hello there\n");
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

#[test]
fn privileged_a_service_manager_is_told_of_the_keeper() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let path = room.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("binds");
    manager.set_read_timeout(Some(Duration::from_secs(20))).expect("is a socket");
    let mut command = Command::new(SHUNT);
    command.args(["mount", "--foreground", "--takeover", "crash"]).arg(room.src()).arg(room.mnt());
    let mut server = room.start(command.env("NOTIFY_SOCKET", &path));
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
    let keeper = server.id();
    hear(&["READY=1", &format!("MAINPID={keeper}\n"), "STATUS="]);
    // The keeper passes it on.
    for (count, process) in [keeper, room.pid()].into_iter().enumerate() {
        signal(process, "HUP");
        let said = "SIGHUP: there is nothing to read again";
        eventually("it is heard", || server.log().matches(said).count() == count + 1);
    }
    signal(room.pid(), "KILL");
    hear(&["STATUS=", "1 servers have died"]);
    assert_eq!(room.read("hello"), "hello there\n");
    signal(keeper, "TERM");
    hear(&["STOPPING=1"]);
    assert_eq!(server.ends(), Some(0), "{}", server.log());
    assert!(!room.is_mounted());
}

#[test]
fn privileged_scrapes_are_answered_by_each_server() {
    if !can_mount() {
        return;
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let address = free.expect("a port").to_string();
    let kept = Kept::start(&["--metrics-listen", &address]);
    let scrape = || {
        let mut stream = TcpStream::connect(&address).expect("somebody listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("is a socket");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("writes");
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    };
    for _ in 0..2 {
        let text = scrape().expect("an answer");
        assert!(text.contains("200 OK") && text.contains("shuntfs_up{"), "{text}");
        kept.kill();
        // A connection that the dead server had taken ends without an answer.
        assert_eq!(kept.room.read("hello"), "hello there\n");
    }
    assert!(scrape().expect("an answer").contains("shuntfs_up{"));
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

#[test]
fn privileged_what_no_other_server_could_go_on_with_is_refused() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let cases: [(&[&str], &str); 2] = [
        (&["--transport", "uring"], "with io_uring: when a server dies"),
        (&["-o", "io_uring"], "with io_uring"),
    ];
    for (flags, words) in cases {
        let ran = room.try_mount(&[&["-o", "takeover=crash"], flags].concat());
        ran.fails(2, &["--takeover crash is not possible", words, "leave out --takeover"]);
        let ran = room.try_mount(&[&["--foreground", "--takeover", "crash"], flags].concat());
        ran.fails(2, &[words]);
        assert!(!room.is_mounted());
    }
    let mount = |source: &Path, target: &Path| -> Ran {
        run(Command::new(SHUNT).args(["mount", "--takeover", "crash"]).arg(source).arg(target))
    };
    mount(&room.src(), Path::new("/dev/fd/97")).fails(1, &["/dev/fd/97 is not an open descriptor"]);
    room.try_mount(&["--takeover", "always"]).fails_with_usage();
    assert!(!room.is_mounted() && servers_of(&room.path()).is_empty());
}

/// By fusermount3, in a namespace of its own whose /dev/fuse is open to all.
#[test]
fn privileged_an_ordinary_user_keeps_a_mount() {
    let Some(room) = room_of_nobody() else { return };
    let script = r#"
        mount -t tmpfs none /dev; mknod -m 666 /dev/fuse c 10 229; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5
        cd /
        exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -ec "$4" sh "$2" "$3""#;
    // The file without a name is longer than what a request had in memory from the start.
    let user = r#"
        "$2" mount --takeover crash "$1/src" "$1/mnt" 2> "$1/mnt/../src/said"
        exec 9<> "$1/mnt/open"; rm "$1/mnt/open"
        for round in 1 2 3 4; do
            kill -9 $("$2" status --json "$1/mnt" | grep -o '"pid": *[0-9]*' | head -1 | tr -dc 0-9)
            mkdir "$1/mnt/d$round"; echo $round > "$1/mnt/a"; mv "$1/mnt/a" "$1/mnt/d$round/b"
            head -c 1000000 /dev/zero > "$1/mnt/big"; stat -c %s "$1/mnt/big"
            echo $round >&9
            cat "$1/mnt/d$round/b"; rm -r "$1/mnt/d$round"
        done
        stat -L -c '%h %s' /proc/self/fd/9
        exec 9>&-
        "$2" status "$1/mnt" | grep -o "4 servers were replaced"
        ls "$1/mnt"
        "$2" umount "$1/mnt"
        ! grep -q " $1/mnt " /proc/self/mountinfo"#;
    let program = room.path().join("shunt");
    let ran = run(apart(script).arg(room.path()).arg(program).arg(user).env_remove("XDG_RUNTIME_DIR")).ok();
    let each: String = (1..=4)
        .map(|round| {
            format!(
                "1000000
{round}
"
            )
        })
        .collect();
    assert_eq!(
        ran.out,
        format!(
            "{each}0 8
4 servers were replaced
big
hello
said
"
        ),
        "{ran:?}"
    );
    eventually("no process is left", || servers_of(&room.path()).is_empty());
}

/// Somebody who stops a server wants it to stay.
#[test]
fn privileged_a_server_that_was_stopped_is_left_alone() {
    if !can_mount() || !can_look() {
        return;
    }
    let kept = Kept::start(&["--replace-hung", "1s"]);
    let server = kept.room.pid();
    signal(server, "STOP");
    let mut caller = Command::new("stat").arg(kept.room.mnt().join("hello")).stdout(Stdio::null()).spawn();
    let caller = caller.as_mut().expect("starts");
    eventually("the keeper notices", || kept.log().contains("somebody has stopped it"));
    assert!(is_alive(server) && caller.try_wait().expect("is a child").is_none(), "{}", kept.log());
    signal(server, "CONT");
    assert_eq!(wait(caller), Some(0));
    assert_eq!(kept.room.pid(), server);
    kept.room.umount(&[]).ok();
    kept.is_gone();
    let room = Room::new();
    room.try_mount(&["--replace-hung", "1s"])
        .fails(2, &["--replace-hung needs a keeper", "--takeover crash"]);
    room.try_mount(&["--takeover", "crash", "--replace-hung", "10ms"]).fails_with_usage();
}

/// Whether the kernel tells in which calls threads are; says that it does not.
fn can_look() -> bool {
    let can = Path::new("/proc/self/syscall").exists();
    if !can {
        println!("SKIPPED: the kernel has no /proc/PID/syscall");
    }
    can
}

/// An instruction that leads to itself.
const NEVER_ON: Option<&[u8]> = if cfg!(target_arch = "x86_64") {
    Some(&[0xeb, 0xfe])
} else if cfg!(target_arch = "aarch64") {
    Some(&[0, 0, 0, 0x14])
} else {
    None
};

/// Puts that instruction where each thread of a process returns from the call that it waits in. How many there are.
fn hang(pid: u32, instruction: &[u8]) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("is there").flatten();
    let calls = tasks.map(|task| fs::read_to_string(task.path().join("syscall")).unwrap_or_default());
    let places: Vec<u64> = calls
        .filter_map(|call| u64::from_str_radix(call.split_whitespace().last()?.strip_prefix("0x")?, 16).ok())
        .collect();
    let memory = OpenOptions::new().write(true).open(format!("/proc/{pid}/mem")).expect("root may");
    places.iter().for_each(|place| memory.write_all_at(instruction, *place).expect("is mapped"));
    places.len()
}

#[test]
fn privileged_a_server_that_hangs_is_replaced() {
    let Some(instruction) = NEVER_ON.filter(|_| can_mount() && can_look()) else { return };
    let kept = Kept::start(&["--replace-hung", "1s"]);
    let open = File::open(kept.room.mnt().join("hello")).expect("opens");
    let server = kept.room.pid();
    assert!(hang(server, instruction) > 2);
    // More than it has queues, each of which reads one yet.
    let stat = |name: u32| {
        let path = kept.room.mnt().join(format!("none{name}"));
        Command::new("stat").arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts")
    };
    let mut callers: Vec<Child> = (0..24).map(stat).collect();
    eventually("it is replaced", || kept.log().contains("the server has read no request for 1s"));
    for caller in &mut callers {
        assert_eq!(wait(caller), Some(1), "there is no such file: {}", kept.log());
    }
    assert!(kept.room.pid() != server && !is_alive(server));
    assert_eq!(status(&kept.room)["takeover"]["replaced"], 1);
    assert_eq!(io::read_to_string(open).expect("is open"), "hello there\n");
    kept.room.umount(&[]).ok();
    kept.is_gone();
}

/// Without the option nothing is as with it.
#[test]
fn privileged_by_default_a_mount_has_no_keeper() {
    if !can_mount() {
        return;
    }
    for flags in [&[][..], &["--takeover", "off"]] {
        let room = Room::new();
        room.mount(flags);
        assert_eq!(status(&room).get("takeover"), None);
        assert_eq!(servers_of(&room.path()).len(), 1);
        room.umount(&[]).ok();
    }
}
