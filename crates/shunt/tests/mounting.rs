//! Mounts that are, and how they end. Needs root and /dev/fuse.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Room, SHUNT, apart, as_nobody, can_mount, eventually, is_alive, run, shunt, signal};
use shuntfs_testkit::bare;

fn json(ran: common::Ran) -> serde_json::Value {
    serde_json::from_str(&ran.ok().out).expect("JSON")
}

/// The transports that can be had here.
fn transports() -> &'static [&'static str] {
    let uring =
        fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|on| on.trim() == "Y");
    if uring {
        return &["device", "cloned", "uring"];
    }
    eprintln!("without uring: /sys/module/fuse/parameters/enable_uring is not Y");
    &["device", "cloned"]
}

#[test]
fn privileged_a_mount_answers_when_the_command_returns_and_is_gone_after_umount() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let ran = room.mount(&[]);
    assert_eq!((ran.out.as_str(), ran.said().as_str()), ("", ""));
    assert!(room.is_mounted());
    assert_eq!(room.read("hello"), "hello there\n");
    fs::write(room.mnt().join("new"), "through\n").expect("writes");
    assert_eq!(fs::read_to_string(room.src().join("new")).expect("is below"), "through\n");
    let pid = room.pid();
    room.umount(&[]).ok();
    assert!(!room.is_mounted());
    eventually("the server ends", || !is_alive(pid));
    assert!(!fs::exists(room.mnt().join("hello")).expect("readable"));
}

#[test]
fn privileged_every_transport_and_flow_that_can_be_named_mounts() {
    if !can_mount() {
        return;
    }
    for &transport in transports() {
        for flow in ["passthrough", "relay", "splice", "served"] {
            let room = Room::new();
            let ran =
                room.mount(&["--transport", transport, "-o", &format!("flow={flow}"), "--threads", "1"]);
            assert_eq!(room.read("hello"), "hello there\n", "{transport} {flow}");
            let status = json(shunt(["status".as_ref(), "--json".as_ref(), room.mnt().as_os_str()]));
            assert_eq!(status["session"]["transport"]["kind"], transport, "{status}");
            assert_eq!(status["folder"].as_str(), room.src().to_str());
            let copied = match (flow, transport) {
                ("relay" | "splice", "uring") => "relay",
                ("relay" | "splice", _) => "splice",
                _ => flow,
            };
            let has_zero_copy = status["session"]["transport"]["zero_copy_off"].is_null();
            let expected = if copied == "relay" && has_zero_copy { "zero_copy" } else { copied };
            assert!(status["session"]["flows"][expected].as_u64() > Some(0), "{transport} {flow}: {status}");
            assert_eq!(
                ran.said().contains("note"),
                matches!(flow, "relay" | "splice") && flow != copied,
                "{ran:?}"
            );
            room.umount(&[]).ok();
        }
    }
}

/// A round trip for each 128 KiB was what long cached reads waited for.
#[test]
fn privileged_long_cached_reads_are_read_ahead_by_long_requests() {
    const PIECES: usize = 16;
    const PIECE: usize = 1 << 20;
    if !can_mount() {
        return;
    }
    for &transport in transports() {
        for (words, kib, requests) in [("", "1024", 16..=24), (",max_readahead=131072", "128", 128..=136)] {
            let room = Room::new();
            fs::write(room.src().join("long"), vec![7; PIECES * PIECE]).expect("writes");
            room.mount(&["--transport", transport, "-o", &format!("flow=served{words}")]);
            let file = fs::File::open(room.mnt().join("long")).expect("opens");
            let mut piece = vec![0; PIECE];
            for at in 0..PIECES {
                file.read_exact_at(&mut piece, (at * PIECE) as u64).expect("reads");
                assert!(piece.iter().all(|byte| *byte == 7));
            }
            let status = json(shunt(["status".as_ref(), "--json".as_ref(), room.mnt().as_os_str()]));
            let connection = &status["session"]["connection"];
            let set = fs::read_to_string(format!("/sys/class/bdi/0:{connection}/read_ahead_kb"));
            assert_eq!(set.expect("is there").trim(), kib);
            let count = status["session"]["ops"]["READ"]["requests"].as_u64().expect("counted");
            assert!(requests.contains(&count), "{transport}{words}: {count} READs");
            drop(file);
            room.umount(&[]).ok();
        }
    }
}

#[test]
fn privileged_why_tells_the_flow_of_a_file_and_the_reason() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&["--transport", "device"]);
    let why =
        |name: &str| json(shunt(["why".as_ref(), "--json".as_ref(), room.mnt().join(name).as_os_str()]));
    let expected = why("hello");
    assert_eq!(
        (expected["known"].as_str(), expected["flow"].as_str()),
        (Some("expected"), Some("passthrough"))
    );
    let open = fs::File::open(room.mnt().join("hello")).expect("opens");
    let settled = why("hello");
    assert_eq!((settled["known"].as_str(), settled["flow"].as_str()), (Some("settled"), Some("passthrough")));
    assert_eq!(settled["reason"], "wished");
    drop(open);
    let text = shunt(["why".as_ref(), room.mnt().join("hello").as_os_str()]).ok().out;
    assert!(text.contains("passthrough") && text.contains("reason:"), "{text}");
    shunt(["why".as_ref(), room.mnt().as_os_str()])
        .fails(1, &["is no file, so no bytes of it flow", "the mount has no rules"]);
    room.umount(&[]).ok();

    room.mount(&["--flow", "served"]);
    let served = why("hello");
    assert_eq!((served["flow"].as_str(), served["reason"].as_str()), (Some("served"), Some("wished")));
    room.umount(&[]).ok();
}

#[test]
fn privileged_a_second_mount_at_the_same_place_is_refused() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&[]);
    room.try_mount(&[]).fails(1, &["shows", "already", "shunt umount"]);
    let inner = room.mnt().join("inner");
    fs::create_dir(&inner).expect("makes");
    let ran = run(Command::new(SHUNT).arg("umount").arg(&inner));
    ran.fails(1, &["is not a mount point", "inside the mount at"]);
    assert_eq!(room.read("hello"), "hello there\n");
    room.umount(&[]).ok();
}

#[test]
fn privileged_a_mount_point_with_files_is_noted() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    fs::write(room.mnt().join("below"), "hidden").expect("writes");
    let ran = room.mount(&[]);
    assert!(ran.err.contains("note") && ran.err.contains("is not empty"), "{ran:?}");
    assert!(!fs::exists(room.mnt().join("below")).expect("readable"));
    room.umount(&[]).ok();
    assert!(fs::exists(room.mnt().join("below")).expect("readable"));
}

#[test]
fn privileged_options_reach_the_kernel() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&[
        "-o",
        "ro,nosuid,nodev,noexec,noatime,allow_other,fsname=a\\,b,subtype=sub",
        "--cache",
        "none",
    ]);
    let table = fs::read_to_string("/proc/self/mountinfo").expect("readable");
    let line =
        table.lines().find(|line| line.contains(room.mnt().to_str().expect("text"))).expect("is mounted");
    for word in ["ro,nosuid,nodev,noexec,noatime", " fuse.sub a,b ", "allow_other", "default_permissions"] {
        assert!(line.contains(word), "no {word}: {line}");
    }
    let error = fs::write(room.mnt().join("hello"), "no").expect_err("is read-only");
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    // With another type than ours, it is still found, by its server.
    let list = shunt(["list"]).ok().out;
    assert!(list.contains(room.mnt().to_str().expect("text")), "{list}");
    room.umount(&[]).ok();
}

#[test]
fn privileged_a_busy_mount_is_said_to_be_busy_and_by_whom() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&[]);
    let mut reader = Command::new("tail")
        .arg("-f")
        .arg(room.mnt().join("hello"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut line = String::new();
    // Kept, because tail ends when nobody listens any more.
    let mut words = BufReader::new(reader.stdout.take().expect("piped"));
    words.read_line(&mut line).expect("reads");
    assert_eq!(line, "hello there\n");
    let by = format!("process {} (tail) has a file of it open", reader.id());
    room.umount(&[]).fails(1, &["is busy", &by, "--lazy"]);
    assert!(room.is_mounted());
    let pid = room.pid();
    room.umount(&["--lazy"]).ok();
    assert!(!room.is_mounted() && is_alive(pid), "detached, and served on");
    let list = shunt(["list"]).ok().out;
    assert!(list.lines().any(|line| line.contains("detached") && line.contains(&pid.to_string())), "{list}");
    reader.kill().expect("is a child");
    reader.wait().expect("is a child");
    eventually("the server ends with the last close", || !is_alive(pid));
}

#[test]
fn privileged_a_copy_in_another_mount_namespace_keeps_the_server_and_is_named() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&[]);
    let pid = room.pid();
    let mut copy = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--", "sleep", "60"])
        .spawn()
        .expect("starts");
    let namespace = |pid: u32| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    eventually("sleep has mounts of its own", || {
        namespace(copy.id()).is_some_and(|its| Some(its) != namespace(std::process::id()))
    });
    let said = room.umount(&[]).ok().err;
    let gone = !room.is_mounted();
    let served_on = is_alive(pid);
    copy.kill().expect("is a child");
    copy.wait().expect("is a child");
    assert!(said.contains(&format!("process {}", copy.id())) && said.contains("mount namespace"), "{said}");
    assert!(gone && served_on);
    eventually("the server ends with the last copy", || !is_alive(pid));
}

#[test]
fn privileged_a_working_folder_and_a_mount_inside_keep_it_busy() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    fs::create_dir(room.src().join("inner")).expect("makes");
    room.mount(&[]);
    let mut sleeper = Command::new("sleep").arg("60").current_dir(room.mnt()).spawn().expect("starts");
    run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(room.mnt().join("inner"))).ok();
    let ran = room.umount(&[]);
    run(Command::new("umount").arg(room.mnt().join("inner"))).ok();
    ran.fails(1, &["is mounted inside it", &format!("process {} (sleep) works in it", sleeper.id())]);
    sleeper.kill().expect("is a child");
    sleeper.wait().expect("is a child");
    room.umount(&[]).ok();
}

#[test]
fn privileged_signals_end_a_server_cleanly() {
    if !can_mount() {
        return;
    }
    for name in ["TERM", "INT"] {
        let room = Room::new();
        let mut server = room.mount_in_foreground(&[]);
        signal(server.id(), "HUP");
        eventually("SIGHUP is logged", || server.log().contains("nothing to read again"));
        signal(server.id(), name);
        assert_eq!(server.ends(), Some(0), "{name}: {}", server.log());
        assert!(!room.is_mounted(), "{name}");
    }
}

#[test]
fn privileged_a_signal_detaches_a_busy_mount_and_says_by_whom() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let mut server = room.mount_in_foreground(&[]);
    let open = fs::File::open(room.mnt().join("hello")).expect("opens");
    signal(server.id(), "TERM");
    eventually("it is detached", || !room.is_mounted());
    eventually("it says so", || server.log().contains("detached, and served until"));
    let by = format!("process {} (", std::process::id());
    assert!(server.log().contains(&by), "no `{by}`: {}", server.log());
    assert_eq!(std::io::read_to_string(&open).expect("is served on"), "hello there\n");
    drop(open);
    assert_eq!(server.ends(), Some(0), "{}", server.log());
}

#[test]
fn privileged_a_second_signal_ends_a_busy_server_at_once() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let mut server = room.mount_in_foreground(&["--flow", "served"]);
    let open = fs::File::open(room.mnt().join("hello")).expect("opens");
    signal(server.id(), "TERM");
    eventually("it is detached", || server.log().contains("detached, and served until"));
    signal(server.id(), "TERM");
    assert_eq!(server.ends(), Some(0), "{}", server.log());
    assert!(std::io::read_to_string(&open).is_err(), "callers get errors");
}

#[test]
fn privileged_a_killed_server_leaves_errors_and_umount_works() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&[]);
    let pid = room.pid();
    signal(pid, "KILL");
    eventually("it is gone", || !is_alive(pid));
    // A call that the end of the connection catches under way gets ECONNABORTED, or ECANCELED where it was on
    // its way to a thread that is no more (io_uring); all later ones get ENOTCONN.
    let answer = || fs::read(room.mnt().join("hello")).expect_err("nobody serves").raw_os_error();
    let first = answer();
    assert!(matches!(first, Some(103 | 107 | 125)), "{first:?}");
    eventually("callers get ENOTCONN", || answer() == Some(107));
    let list = shunt(["list"]).ok().out;
    assert!(
        list.lines()
            .any(|line| line.starts_with(room.mnt().to_str().expect("text")) && line.contains("no server")),
        "{list}"
    );
    shunt(["status".as_ref(), room.mnt().as_os_str()]).fails(1, &["no server answers", "shunt umount"]);
    room.try_mount(&[]).fails(1, &["whose server is gone", "shunt umount"]);
    room.umount(&[]).ok();
    assert!(!room.is_mounted());
    room.mount(&[]);
    assert_eq!(room.read("hello"), "hello there\n");
    room.umount(&[]).ok();
}

fn all_threads_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("runs").flatten();
    let mut stats = threads.map(|thread| fs::read_to_string(thread.path().join("stat")).unwrap_or_default());
    stats.all(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T')))
}

/// On io_uring a stopped server kept the mount, its callers and whoever unmounted it waiting.
#[test]
fn privileged_a_stopped_server_can_be_taken_away_by_force() {
    if !can_mount() {
        return;
    }
    for &transport in transports() {
        let room = Room::new();
        room.mount(&["--flow", "served", "--cache", "none", "--transport", transport]);
        let pid = room.pid();
        signal(pid, "STOP");
        // Each thread stops when it looks; one that runs yet would answer.
        eventually("the server is stopped", || all_threads_stopped(pid));
        let mut stuck = Command::new("cat");
        stuck.arg(room.mnt().join("hello")).stdout(Stdio::null()).stderr(Stdio::null());
        let mut stuck = stuck.spawn().expect("starts");
        std::thread::sleep(Duration::from_millis(200));
        assert!(stuck.try_wait().expect("is a child").is_none(), "waits for the stopped server");
        let wake = format!("kill -CONT {pid}");
        shunt(["status".as_ref(), room.mnt().as_os_str()]).fails(1, &["does not answer", &wake]);
        room.umount(&[]).fails(1, &["is stopped", &wake, "--force"]);
        room.umount(&["--force"]).ok();
        assert!(!room.is_mounted());
        // The server goes on before the connection ends, so the caller may get its answer as well as an error.
        common::wait(&mut stuck);
        eventually("the server ends", || !is_alive(pid));
    }
}

/// A server whose connection is aborted takes its mount away itself, and `umount --force` then said EINVAL.
#[test]
fn privileged_a_stopped_server_can_be_taken_away_without_fusectl() {
    if !can_mount() {
        return;
    }
    if bare::is_bare() {
        assert!(!bare::has_control());
        return privileged_a_stopped_server_can_be_taken_away_by_force();
    }
    let ran = bare::again("privileged_a_stopped_server_can_be_taken_away_without_fusectl").expect("runs");
    assert!(ran.status.success() && ran.stdout.contains("1 passed"), "{ran:?}");
}

#[test]
fn privileged_an_external_umount_ends_the_server() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let mut server = room.mount_in_foreground(&[]);
    run(Command::new("umount").arg("-l").arg(room.mnt())).ok();
    assert_eq!(server.ends(), Some(0), "{}", server.log());
}

#[test]
fn privileged_an_aborted_connection_ends_the_server_and_leaves_no_mount() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let mut server = room.mount_in_foreground(&[]);
    let status = json(shunt(["status".as_ref(), "--json".as_ref(), room.mnt().as_os_str()]));
    let connection = status["session"]["connection"].as_u64().expect("has a number");
    // fusectl may not be mounted here; in a namespace of its own it can be.
    let script = "mount -t fusectl none /sys/fs/fuse/connections 2>/dev/null || true; echo 1 > /sys/fs/fuse/connections/$2/abort";
    run(apart(script).arg(connection.to_string())).ok();
    assert_eq!(server.ends(), Some(1), "{}", server.log());
    assert!(server.log().contains("was aborted"), "{}", server.log());
    assert!(!room.is_mounted());
}

#[test]
fn privileged_the_service_manager_is_told() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let path = room.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("binds");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("is a socket");
    let hear = || {
        let mut buffer = [0; 1024];
        let len = socket.recv(&mut buffer).expect("is told");
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    };
    let mut command = Command::new(SHUNT);
    command.args(["mount", "-f"]).arg(room.src()).arg(room.mnt()).env("NOTIFY_SOCKET", &path);
    let mut server = room.start(&mut command);
    let ready = hear();
    assert!(ready.contains("READY=1\n") && ready.contains(&format!("MAINPID={}\n", server.id())), "{ready}");
    assert!(ready.contains(room.mnt().to_str().expect("text")), "{ready}");
    signal(server.id(), "TERM");
    assert!(hear().starts_with("STOPPING=1\n"));
    assert_eq!(server.ends(), Some(0));
}

#[test]
fn privileged_mount_8_finds_its_helper() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    // /sbin is not ours to change: the link is there in a mount namespace of its own, and the mount with it.
    let script = r#"
        mkdir "$2/upper"
        mount -t tmpfs none "$2/upper"; mkdir "$2/upper/up" "$2/upper/work"
        mount -t overlay overlay -o "lowerdir=/sbin,upperdir=$2/upper/up,workdir=$2/upper/work" /sbin
        ln -s "$1" /sbin/mount.fuse.shunt
        mount -t fuse.shunt "$2/src" "$2/mnt" -o ro,nofail,x-systemd.requires=x,threads=1
        cat "$2/mnt/hello"
        grep -c " $2/mnt .* fuse.shunt " /proc/self/mountinfo
        umount "$2/mnt""#;
    let ran = run(apart(script).arg(room.path())).ok();
    assert_eq!(ran.out, "hello there\n1\n", "{ran:?}");
}

#[test]
fn privileged_the_forms_of_mount_fuse3_work() {
    if !can_mount() {
        return;
    }
    let Some(helper) = ["/sbin/mount.fuse3", "/usr/sbin/mount.fuse3"]
        .into_iter()
        .find(|path| fs::exists(path).unwrap_or(false))
    else {
        eprintln!("SKIPPED: there is no mount.fuse3");
        return;
    };
    let room = Room::new();
    let bin = room.path().join("bin");
    fs::create_dir(&bin).expect("makes");
    std::os::unix::fs::symlink(SHUNT, bin.join("shunt")).expect("links");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    for options in ["rw,nofail", "rw,drop_privileges"] {
        let source = format!("shunt#{}", room.src().display());
        run(Command::new(helper).arg(&source).arg(room.mnt()).args(["-o", options]).env("PATH", &path)).ok();
        eventually("it is mounted", || room.is_mounted());
        assert_eq!(room.read("hello"), "hello there\n", "{options}");
        run(Command::new("umount").arg(room.mnt())).ok();
    }
}

#[test]
fn privileged_ordinary_users_mount_through_fusermount3() {
    if !can_mount() {
        return;
    }
    let open = fs::metadata("/dev/fuse").is_ok_and(|it| it.permissions().mode() & 0o6 == 0o6);
    let program = Command::new("fusermount3").arg("--version").output().is_ok();
    if !program {
        eprintln!("SKIPPED: there is no fusermount3");
        return;
    }
    let room = Room::new();
    run(Command::new("chown").args(["65534:65534"]).arg(room.src()).arg(room.mnt())).ok();
    // Where /dev/fuse is closed to users, as without udev, the mount happens in a namespace whose /dev has an
    // open one; the test then sees it from inside only.
    let script = r#"
        if [ "$3" = closed ]; then
            mount -t tmpfs none /dev; mknod -m 666 /dev/fuse c 10 229; mknod -m 666 /dev/null c 1 3
        fi
        run() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
        cd /
        run "$4" mount "$2/src" "$2/mnt"
        run cat "$2/mnt/hello"
        run sh -c 'umask 222; echo kept > "$1"; cat "$1"; ls -l "$1" | cut -c 1-10' - "$2/mnt/read-only"
        run "$4" status "$2/mnt" | grep -c "transport"
        run "$4" list | grep -c "mounted"
        run "$4" umount "$2/mnt"
        ! grep -q " $2/mnt " /proc/self/mountinfo"#;
    let _copies_the_program = as_nobody(&room);
    let mut command = apart(script);
    command.arg(room.path()).arg(if open { "open" } else { "closed" }).arg(room.path().join("shunt"));
    let ran = run(command.env_remove("XDG_RUNTIME_DIR")).ok();
    // A file that its own owner may not write is written by whoever makes it.
    assert_eq!(ran.out, "hello there\nkept\n-r--r--r--\n1\n1\n", "{ran:?}");
    assert!(ran.err.contains("not by passthrough") && ran.err.contains("CAP_SYS_ADMIN"), "{ran:?}");
}

#[test]
fn privileged_the_control_socket_is_for_its_user_and_survives_nonsense() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&[]);
    let status = json(shunt(["status".as_ref(), "--json".as_ref(), room.mnt().as_os_str()]));
    let socket = format!("/run/shunt/{}", status["session"]["connection"]);
    assert_eq!(fs::metadata(&socket).expect("is there").permissions().mode() & 0o777, 0o600);
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("connects");
    stream.write_all(b"\xff\xfe\n").expect("writes");
    drop(stream);
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("is a socket");
    stream.write_all(b"{\"ask\":\"status\"}\n").expect("writes");
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).expect("answers");
    assert!(line.starts_with("{\"status\":{"), "{line}");
    drop(stream);
    // Nobody may not ask, and may not be told by mistake either.
    run(as_nobody(&room).arg("status").arg(room.mnt()))
        .fails(1, &["only the user of the mount and root may ask"]);
    // The next mount, of another test too, may have the connection's number by then, and a socket of that name.
    let identity = || fs::metadata(&socket).ok().map(|there| (there.ino(), there.created().ok()));
    let before = identity();
    room.umount(&[]).ok();
    eventually("its socket goes", || identity() != before);
}

#[test]
fn privileged_a_mount_that_is_just_starting_is_waited_for() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&[]);
    let ask = || shunt(["status".as_ref(), "--json".as_ref(), room.mnt().as_os_str()]);
    let socket = format!("/run/shunt/{}", json(ask())["session"]["connection"]);
    // As it is between the mount and its control socket.
    let aside = format!("{socket}.aside");
    fs::rename(&socket, &aside).expect("is renamed");
    let asked = std::thread::scope(|scope| {
        let asked = scope.spawn(ask);
        std::thread::sleep(Duration::from_millis(200));
        fs::rename(&aside, &socket).expect("is renamed back");
        asked.join().expect("does not panic")
    });
    asked.ok();
    room.umount(&[]).ok();
}

#[test]
fn privileged_a_log_file_has_the_story() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let log = room.path().join("log");
    room.mount(&["--log-file", log.to_str().expect("text"), "--log", "info"]);
    let pid = room.pid();
    room.umount(&[]).ok();
    eventually("the server ends", || !is_alive(pid));
    let text = fs::read_to_string(&log).expect("was written");
    assert!(text.contains("mounted") && text.contains("transport") && text.contains("ended"), "{text}");
    room.try_mount(&["--log-file", "/nonexistent/log"])
        .fails(1, &["cannot log to /nonexistent/log", "--log-file"]);
}
