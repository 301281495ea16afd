//! What a server is left with, what it keeps of whoever started it, and who else may stand in its place. Needs root and
//! /dev/fuse.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{Room, SHUNT, apart, can_mount, eventually, is_alive, run, servers_of, shunt, signal};

/// Users of these numbers exist nowhere else.
const ALICE: u32 = 64_123;
const MALLORY: u32 = 64_124;

fn status(room: &Room) -> serde_json::Value {
    let ran = shunt(["status".as_ref(), "--json".as_ref(), room.mnt().as_os_str()]).ok();
    serde_json::from_str(&ran.out).expect("JSON")
}

/// A shell script, with the program and the room's folder as its first two arguments.
fn script(room: &Room, text: &str) -> common::Ran {
    let mut command = Command::new("sh");
    run(command.args(["-ec", text, "sh", SHUNT]).arg(room.path()).current_dir(room.path()))
}

/// A lock that the caller's shell held stayed with the server, and whoever read a pipe of it waited forever.
#[test]
fn privileged_a_server_keeps_no_descriptor_of_its_caller() {
    if !can_mount() {
        return;
    }
    for mount in ["mount", "mount -f"] {
        let room = Room::new();
        fs::write(room.path().join("lock"), "").expect("writes");
        let (mut read, write) = std::io::pipe().expect("a pipe");
        let mut command = Command::new("sh");
        let text = format!(
            r#"exec 9> "$2/lock"; flock 9; exec 7>&0 0< /dev/null 1> /dev/null; exec "$1" {mount} "$2/src" "$2/mnt""#
        );
        command.args(["-ec", &text, "sh", SHUNT]).arg(room.path()).stdin(write).stderr(Stdio::null());
        let mut child = command.spawn().expect("starts");
        // What was lent to the child is not to be kept here.
        drop(command);
        eventually("it answers", || shunt(["status".as_ref(), room.mnt().as_os_str()]).code == Some(0));
        run(Command::new("flock").arg("-n").arg(room.path().join("lock")).arg("true")).ok();
        let ended = std::thread::spawn(move || read.read(&mut [0; 1]).expect("reads"));
        eventually("the pipe has no writer any more", || ended.is_finished());
        assert_eq!(ended.join().expect("no panic"), 0, "{mount}");
        room.umount(&[]).ok();
        assert_eq!(common::wait(&mut child), Some(0));
    }
}

/// A start that hung outlived whoever gave it up, and SIGTERM.
#[test]
fn privileged_a_start_that_hangs_ends_with_its_parent() {
    if !can_mount() {
        return;
    }
    let (stuck, room) = (Room::new(), Room::new());
    stuck.mount(&["--flow", "served", "--cache", "none", "--transport", "device", "--threads", "1"]);
    let pid = stuck.pid();
    signal(pid, "STOP");
    let rules = stuck.mnt().join("hello");
    let ran = run(Command::new("timeout").args(["1", SHUNT, "mount", "--rules"]).args([
        &rules,
        &room.src(),
        &room.mnt(),
    ]));
    assert_eq!(ran.code, Some(124), "{ran:?}");
    eventually("the server ends with its parent", || servers_of(&room.path()).is_empty());
    // In the foreground, by the signal itself.
    let mut command = Command::new(SHUNT);
    command.args(["mount", "-f", "--rules"]).args([&rules, &room.src(), &room.mnt()]);
    let mut child = command.stderr(Stdio::null()).spawn().expect("starts");
    std::thread::sleep(Duration::from_millis(300));
    signal(child.id(), "TERM");
    assert_eq!(common::wait(&mut child), Some(1));
    signal(pid, "CONT");
    stuck.umount(&[]).ok();
    assert!(!room.is_mounted());
}

#[test]
fn privileged_a_log_file_that_is_a_pipe_is_refused() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    run(Command::new("mkfifo").arg(room.path().join("pipe"))).ok();
    let option = format!("log_file={}", room.path().join("pipe").display());
    room.try_mount(&["-o", &option]).fails(1, &["cannot log to", "it is a pipe, not a file", "--log-file"]);
    // With a reader it would open, and stop the server where the reader is slow.
    let mut reader = Command::new("cat").arg(room.path().join("pipe")).spawn().expect("starts");
    std::thread::sleep(Duration::from_millis(100));
    room.try_mount(&["-o", &option]).fails(1, &["it is a pipe, not a file"]);
    assert_eq!(common::wait(&mut reader), Some(0));
    room.mount(&["-o", "log_file=/dev/null"]);
    room.umount(&[]).ok();
}

/// `-o rules=e.toml` was read as /e.toml, because a server in the background leaves its caller's folder.
#[test]
fn privileged_paths_in_options_are_those_of_the_caller() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    fs::write(room.path().join("e.toml"), "[[rule]]\npath = \"hello\"\nhide = true\n").expect("writes");
    script(&room, r#""$1" mount -o rules=e.toml,log_file=log src mnt"#).ok();
    assert!(!room.mnt().join("hello").exists(), "the rule is in force");
    assert!(fs::read_to_string(room.path().join("log")).expect("is there").contains("mounted"));
    room.umount(&[]).ok();
}

#[test]
fn privileged_who_unmounts_from_inside_is_not_in_the_way() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&[]);
    script(&room, r#"cd mnt; exec "$1" umount ."#).ok();
    assert!(!room.is_mounted());
}

/// `busy: used by a process that cannot be seen from here` was all that was said of a loop device, which no process holds.
#[test]
fn privileged_a_loop_device_on_a_file_of_it_is_named() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    fs::write(room.src().join("disk"), vec![0; 1 << 20]).expect("writes");
    room.mount(&[]);
    let made = run(Command::new("losetup").args(["--find", "--show"]).arg(room.mnt().join("disk")));
    if made.code != Some(0) {
        eprintln!("SKIPPED: no loop device: {}", made.err);
        return;
    }
    let device = made.out.trim();
    let busy = room.umount(&[]);
    run(Command::new("losetup").args(["--detach", device])).ok();
    let words = format!("the loop device {device} is on {}", room.mnt().join("disk").display());
    busy.fails(1, &["is busy", &words, "--lazy"]);
    eventually("it is free", || room.umount(&[]).code == Some(0));
}

/// Root's server ran with every capability of root.
#[test]
fn privileged_a_server_gives_up_what_it_does_not_need() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&[]);
    let folder = rights_of(&room);
    for kept in ["CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_SETUID"] {
        assert!(folder.iter().any(|name| name == kept), "{kept}: {folder:?}");
    }
    let said = shunt(["status".as_ref(), room.mnt().as_os_str()]).ok().out;
    assert!(said.contains("rights     capabilities ") && said.contains("programs gain none"), "{said}");
    room.umount(&[]).ok();
    // What was sealed is changed by nobody, so nobody is acted for.
    shunt(["seal".as_ref(), room.src().as_os_str()]).ok();
    let asked = ["--verify=required", "--cache", "none", "--locks", "lower"];
    let ran = room.mount(&asked);
    for option in ["--cache none", "--locks lower"] {
        assert!(ran.err.contains(&format!("with --verify=required, {option} has no effect")), "{ran:?}");
    }
    let sealed = rights_of(&room);
    assert!(!sealed.iter().any(|name| name == "CAP_CHOWN" || name == "CAP_DAC_OVERRIDE"), "{sealed:?}");
    assert_eq!(room.read("hello"), "hello there\n");
    room.umount(&[]).ok();
}

/// What the server says it may do, which must be what the kernel says of each of its threads.
fn rights_of(room: &Room) -> Vec<String> {
    let status = status(room);
    let rights = &status["rights"];
    let names = rights["capabilities"].as_array().expect("a list");
    let names: Vec<String> = names.iter().map(|name| name.as_str().expect("a name").to_owned()).collect();
    assert_eq!(rights["no_new_privileges"], true);
    let pid = status["pid"].as_u64().expect("a number");
    for thread in fs::read_dir(format!("/proc/{pid}/task")).expect("runs").flatten() {
        let text = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let count = |name: &str| {
            u64::from_str_radix(field(name).expect("is there"), 16).expect("a number").count_ones() as usize
        };
        assert_eq!(field("NoNewPrivs:"), Some("1"), "{text}");
        assert_eq!((count("CapPrm:"), count("CapInh:")), (names.len(), 0), "{text}");
        assert!(count("CapBnd:") <= 17 && count("CapBnd:") >= names.len(), "{text}");
        for bit in [16, 12, 22, 39] {
            // SYS_MODULE, NET_ADMIN, SYS_BOOT, BPF
            let bound = u64::from_str_radix(field("CapBnd:").expect("is there"), 16).expect("a number");
            assert_eq!(bound & 1 << bit, 0, "{text}");
        }
    }
    names
}

/// Numbers that are not what was asked for were taken in silence.
#[test]
fn privileged_numbers_that_are_too_large_are_said() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let ran = room.mount(&["--transport", "device", "--threads", "1", "--queue-depth", "100000000"]);
    assert!(ran.err.contains("100000000 requests for each queue were asked for, and there are "), "{ran:?}");
    room.umount(&[]).ok();
    shunt(["mount", "--threads", "0", "/", "/mnt"]).fails_with_usage();
    let ran = shunt(["mount", "-o", "max_read=4294967296", "/", "/mnt"]);
    assert!(ran.err.contains("from 4K to less than 4G"), "{ran:?}");
}

/// Files of 3 and 7 bytes counted as 4096 bytes each.
#[test]
fn privileged_what_was_read_is_counted_and_not_what_was_asked_for() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    fs::write(room.src().join("three"), "abc").expect("writes");
    fs::write(room.src().join("seven"), "abcdefg").expect("writes");
    for flow in ["served", "splice"] {
        room.mount(&["--transport", "device", "--flow", flow]);
        assert_eq!((room.read("three").len(), room.read("seven").len()), (3, 7));
        assert_eq!(status(&room)["session"]["read_bytes"], 10, "{flow}");
        room.umount(&[]).ok();
    }
}

/// mount(8) looks for SRC in the list of mounts, where `fsname` has put something else, and calls the helper again.
#[test]
fn privileged_mount_a_again_is_no_failure() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let helper = room.path().join("mount.fuse.shunt");
    symlink(SHUNT, &helper).expect("links");
    let mount = |source: &Path, options: &str| {
        run(Command::new(&helper).arg(source).arg(room.mnt()).args(["-o", options]))
    };
    mount(&room.src(), "fsname=photos,nofail").ok();
    let again = mount(&room.src(), "fsname=photos,nofail").ok();
    assert!(again.err.contains("already"), "{again:?}");
    // Another folder is not what is asked for, and without a name of its own mount(8) knows by itself.
    fs::create_dir(room.path().join("other")).expect("makes");
    mount(&room.path().join("other"), "fsname=photos").fails(32, &["already"]);
    mount(&room.src(), "nofail").fails(32, &["already"]);
    room.umount(&[]).ok();
}

/// As an ordinary user, with a copy of the program, in a namespace whose /dev/fuse is open to all.
fn as_alice(room: &Room, text: &str) -> Command {
    run(Command::new("cp").arg(SHUNT).arg(room.path().join("shunt"))).ok();
    run(Command::new("chmod").arg("755").arg(room.path()).arg(room.path().join("shunt"))).ok();
    run(Command::new("chown").arg(ALICE.to_string()).arg(room.src()).arg(room.mnt())).ok();
    let text = format!(
        r#"node=$(mktemp); rm "$node"; mknod -m 666 "$node" c 10 229; mount --bind "$node" /dev/fuse; rm "$node"
        names=$(mktemp); cp /etc/passwd "$names"; chmod 644 "$names"
        echo alice:x:{ALICE}:{ALICE}::/:/bin/sh >> "$names"; mount --bind "$names" /etc/passwd; rm "$names"
        alice() {{ setpriv --reuid {ALICE} --regid {ALICE} --clear-groups "$@"; }}
        mallory() {{ setpriv --reuid {MALLORY} --regid {MALLORY} --clear-groups "$@"; }}
        cd /; rm -rf /tmp/shunt-{ALICE}
        trap 'umount -l "$2/mnt" 2> /dev/null || true; rm -rf /tmp/shunt-{ALICE}' EXIT
        {text}"#
    );
    let mut command = apart(&text);
    command.arg(room.path()).env_remove("XDG_RUNTIME_DIR");
    command
}

/// Alice has one folder of sockets; whoever uses it keeps the others waiting. `None` where she cannot mount.
fn alone_with_alice() -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    if !can_mount() {
        return None;
    }
    if Command::new("fusermount3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no fusermount3");
        return None;
    }
    Some(ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A folder that does not exist or somebody else's was taken for the place of sockets, and its owner was told "not yours".
#[test]
fn privileged_a_wrong_runtime_folder_is_passed_over() {
    let Some(_alone) = alone_with_alice() else { return };
    let room = Room::new();
    for wrong in ["/nonexistent", "/dev/null", "/root", "/tmp"] {
        let text = format!(
            r#"export XDG_RUNTIME_DIR={wrong}
            alice "$2/shunt" mount "$2/src" "$2/mnt"
            alice "$2/shunt" list
            alice "$2/shunt" status "$2/mnt" > /dev/null
            unset XDG_RUNTIME_DIR
            alice "$2/shunt" status "$2/mnt" > /dev/null
            "$1" status "$2/mnt" > /dev/null
            alice "$2/shunt" umount "$2/mnt""#
        );
        let ran = run(&mut as_alice(&room, &text)).ok();
        assert!(ran.out.contains(" mounted ") && !ran.err.contains("will not work"), "{wrong}: {ran:?}");
    }
}

/// Mallory owns a mount, and makes the folder of its sockets a link. Root lists the mounts, and removed every file below
/// the link that had a number for a name.
#[test]
fn privileged_root_sweeps_no_folder_that_a_user_leads_to() {
    let Some(_alone) = alone_with_alice() else { return };
    let room = Room::new();
    let victim = room.path().join("victim");
    fs::create_dir(&victim).expect("makes");
    fs::write(victim.join("7"), "precious").expect("writes");
    drop(UnixListener::bind(victim.join("8")).expect("binds"));
    let text = format!(
        r#"alice "$2/shunt" mount "$2/src" "$2/mnt"
        alice sh -c 'mv /tmp/shunt-{ALICE} /tmp/shunt-{ALICE}-kept; ln -s "$1/victim" /tmp/shunt-{ALICE}' - "$2"
        "$1" list
        alice sh -c 'rm /tmp/shunt-{ALICE}; mv /tmp/shunt-{ALICE}-kept /tmp/shunt-{ALICE}'
        alice "$2/shunt" umount "$2/mnt""#
    );
    run(&mut as_alice(&room, &text)).ok();
    assert_eq!(fs::read_to_string(victim.join("7")).expect("is left alone"), "precious");
    assert!(fs::symlink_metadata(victim.join("8")).expect("is left alone").file_type().is_socket());
}

/// Mallory makes the folder of Alice's sockets before she does, and listens instead of her server, in a process that
/// root would take for it and end by force.
#[test]
fn privileged_nobody_else_speaks_for_a_server() {
    if let Some(folder) = std::env::var_os("SHUNT_TEST_LISTENER") {
        listen_for_the_attack(Path::new(&folder));
        return;
    }
    let Some(_alone) = alone_with_alice() else { return };
    let room = Room::new();
    let own = std::env::current_exe().expect("is known");
    run(Command::new("cp").arg(own).arg(room.path().join("listener"))).ok();
    let text = format!(
        r#"chmod 755 "$2/listener"; mallory mkdir -m 755 /tmp/shunt-{ALICE}
        alice "$2/shunt" mount "$2/src" "$2/mnt" 2>&1
        id=$(awk -v at="$2/mnt" '$5 == at {{ split($3, dev, ":"); print dev[2] }}' /proc/self/mountinfo)
        export SHUNT_TEST_LISTENER=/tmp/shunt-{ALICE}/$id
        setpriv --reuid {MALLORY} --regid {MALLORY} --clear-groups timeout 60 "$2/listener" --exact --nocapture \
            privileged_nobody_else_speaks_for_a_server > "$2/heard" 2>&1 &
        for try in $(seq 100); do [ -S /tmp/shunt-{ALICE}/$id ] && break; sleep 0.1; done
        "$1" status "$2/mnt" 2>&1 || true
        "$1" umount --force "$2/mnt"
        kill -0 $! && echo the listener lives
        kill $!; rm -rf /tmp/shunt-{ALICE}"#
    );
    let ran = run(&mut as_alice(&room, &text)).ok();
    assert!(ran.out.contains("belongs to someone else or is open to others"), "{ran:?}");
    assert!(ran.out.contains(&format!("user {MALLORY} listens in place of its server")), "{ran:?}");
    assert!(ran.out.contains("the listener lives"), "{ran:?}");
    for pid in servers_of(&room.path()) {
        eventually("the server ends with its mount", || !is_alive(pid));
    }
}

/// Answers each question with what would reach a terminal, until it is ended.
fn listen_for_the_attack(place: &Path) {
    let listener = UnixListener::bind(place).expect("binds");
    fs::set_permissions(place, fs::Permissions::from_mode(0o777)).expect("is its own");
    for stream in listener.incoming().flatten() {
        let mut line = String::new();
        let _asker_gone = BufReader::new(&stream).read_line(&mut line);
        println!("asked: {line}");
    }
}
