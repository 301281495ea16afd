//! Everything that is shown, where it is shown to nobody, to many, or with names that nobody would choose.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Room, SHUNT, apart, can_mount, run, wait};

/// Names with an escape, a control character of two bytes, a byte that is no UTF-8 and a line break, in every place that has names.
#[test]
fn odd_names_are_written_out_in_every_view() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let script = r#"
        shunt=$1 room=$2
        evil=$(printf 'e\033c\302\233\377\nx')
        one="$2/$evil"
        mkdir "$one" "$one/src" "$one/more" "$one/mnt"
        echo text > "$one/src/$evil"
        "$shunt" mount --cache none --log-file /dev/null "$one/src:$one/more" "$one/mnt"
        view() { { printf -- '--- %s\n' "$1"; shift; "$@" 2>&1 || true; } >> "$room/out"; }
        view list "$shunt" list
        view status "$shunt" status "$one/mnt"
        view why "$shunt" why "$one/mnt/$evil"
        view explain "$shunt" explain create "$one/mnt/new$evil"
        view branches "$shunt" branches list "$one/mnt"
        view mover-status "$shunt" mover status "$one/mnt"
        view mover-run "$shunt" mover run "$one/mnt"
        view top "$shunt" top --once -n 0.1 "$one/mnt"
        view metrics "$shunt" metrics "$one/mnt"
        view doctor "$shunt" doctor
        exec 3< "$one/mnt/$evil"
        view busy "$shunt" umount "$one/mnt"
        exec 3<&-
        view umount "$shunt" umount "$one/mnt"
        view seal "$shunt" seal --unsigned "$one/src"
        view seal-show "$shunt" seal show "$one/src"
        echo changed > "$one/src/$evil"
        view seal-verify "$shunt" seal verify "$one/src"
        view rules "$shunt" rules check "$one/src/$evil"
        view migrate "$shunt" migrate mergerfs "/a$evil /mnt fuse.mergerfs x$evil=1 0 0"
        view gone "$shunt" why "$one/gone$evil"
        view no-mount "$shunt" status "$one/src"
        view no-source "$shunt" mount "$one/gone$evil" "$one/mnt"
        view no-option "$shunt" mount -o "x$evil" / /mnt
        view no-command "$shunt" "$evil"
        view no-value "$shunt" mount --transport "$evil" / /mnt
        view no-pattern "$shunt" trace --path "[$evil" /mnt
        "#;
    run(apart(script).arg(room.path())).ok();
    let out = std::fs::read(room.path().join("out")).expect("was written");
    let out = String::from_utf8(out).expect("no name is written as it is");
    let sections: BTreeMap<&str, &str> =
        out.split("--- ").skip(1).filter_map(|section| section.split_once('\n')).collect();
    assert_eq!(sections.len(), 24, "{:?}", sections.keys());
    for (view, text) in &sections {
        assert!(!text.chars().any(|letter| letter != '\n' && letter.is_control()), "{view}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with('x')), "{view}: a name broke a line: {text:?}");
        let has_names = !["doctor", "mover-status", "migrate", "umount", "seal-show"].contains(view);
        assert!(!has_names || text.contains(r"\x1bc"), "{view}: {text:?}");
    }
}

#[test]
fn a_backslash_in_a_name_is_written_out_once() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let script = r#"
        mkdir "$2/a\b" "$2/a\c"
        "$1" mount --log-file /dev/null "$2/a\b:$2/a\c" "$2/mnt"
        "$1" status "$2/mnt"; "$1" list; "$1" branches list "$2/mnt"
        "$1" umount "$2/mnt"
        "#;
    let ran = run(apart(script).arg(room.path())).ok();
    let escaped: Vec<_> = ran.out.lines().filter(|line| line.contains(r"a\\")).collect();
    assert!(escaped.len() > 5 && !ran.out.contains(r"\\\"), "{}", ran.out);
}

/// Whoever reads may go before there is anything to read.
#[test]
fn a_closed_pipe_is_no_failure_of_any_view() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&[]);
    let (mnt, file) = (room.mnt(), room.mnt().join("hello"));
    let (mnt, file) = (mnt.to_str().expect("is text"), file.to_str().expect("is text"));
    for words in [
        &["--help"][..],
        &["mount", "--help"],
        &["man"],
        &["completions", "bash"],
        &["list"],
        &["list", "--json"],
        &["status", mnt],
        &["status", "--json", mnt],
        &["why", file],
        &["metrics", mnt],
        &["top", "--once", "-n", "0.1", mnt],
        &["top", "--json", "-n", "0.1", mnt],
        &["trace", mnt],
        &["trace", "--json", mnt],
        &["doctor"],
        &["doctor", "--json"],
        &["seal", "digest", file],
        &["migrate", "mergerfs", "/a:/b /mnt fuse.mergerfs defaults 0 0"],
    ] {
        let (reader, writer) = std::io::pipe().expect("makes");
        drop(reader);
        let mut command = Command::new(SHUNT);
        command.args(words).stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        drop(command);
        let code = wait(&mut child);
        let said = child.wait_with_output().expect("has ended").stderr;
        assert_eq!((code, String::from_utf8_lossy(&said).as_ref()), (Some(0), ""), "{words:?}");
    }
    room.umount(&[]).ok();
}

/// The state of a mount, and what its files and processes ask, as a server of another user might tell them.
fn answer(stream: UnixStream) {
    const STATUS: &str = include_str!("../src/metrics/sample.json");
    let status = STATUS.lines().collect::<String>();
    let mut lines = BufReader::new(&stream);
    let mut line = String::new();
    while lines.read_line(&mut line).is_ok_and(|len| len > 0) {
        let reply = if line.contains("\"load\"") {
            let counts = r#"{"requests":5,"opens":1,"read_bytes":7}"#;
            format!(
                r#"{{"load":{{"lasted_ns":1000000000,"one_of":1,"files":[{{"path":"a\u001bc","counts":{counts}}}]}}}}"#
            )
        } else {
            format!(r#"{{"status":{status}}}"#)
        };
        if writeln!(&stream, "{reply}").is_err() {
            return;
        }
        line.clear();
    }
}

/// A thousand servers, in one process.
#[test]
fn a_thousand_mounts_are_shown() {
    const MOUNTS: usize = 1000;
    if !can_mount() {
        return;
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let more = rustix::process::Rlimit { current: limit.maximum.or(Some(1 << 20)), ..limit };
    if rustix::process::setrlimit(rustix::process::Resource::Nofile, more).is_err() {
        eprintln!("SKIPPED: this process may not have so many descriptors");
        return;
    }
    let room = Room::new();
    let sockets = room.path().join("sockets");
    std::fs::create_dir(&sockets).expect("makes");
    // No connection of the kernel has such numbers.
    let listeners: Vec<UnixListener> = (0..MOUNTS)
        .map(|number| {
            let listener =
                UnixListener::bind(sockets.join(format!("{}", 4_000_000 + number))).expect("binds");
            listener.set_nonblocking(true).expect("is a socket");
            listener
        })
        .collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&is_over);
    let serving = std::thread::spawn(move || {
        while !until.load(Ordering::Relaxed) {
            for listener in &listeners {
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(false).expect("is a socket");
                    std::thread::spawn(move || answer(stream));
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let show = |words: &str| {
        let script = format!(
            "mkdir -p /run/shunt; mount --bind \"$2/sockets\" /run/shunt; umount -a -t fuse.shunt 2>/dev/null || true; ulimit -n 256; exec \"$1\" {words}"
        );
        let started = Instant::now();
        let ran = run(apart(&script).arg(room.path()));
        assert!(started.elapsed() < Duration::from_secs(30), "{words}: {:?}", started.elapsed());
        ran
    };
    let list = show("list").ok().out;
    assert_eq!(list.matches("detached").count(), MOUNTS, "{list}");
    let metrics = show("metrics").ok().out;
    assert_eq!(metrics.matches("\nshuntfs_up{").count(), MOUNTS, "{metrics}");
    let top = show("top --once -n 0.1").ok().out;
    assert!(top.starts_with("shunt top: 1000 mounts, "), "{top}");
    assert!(top.contains(r"a\x1bc") && top.contains("only those of 64 mounts are shown"), "{top}");
    assert!(!top.contains('\u{1b}'), "{top:?}");
    let json = show("top --once --json -n 0.1").ok().out;
    let document: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let mounts = document["mounts"].as_array().expect("are there");
    let known = mounts.iter().filter(|mount| mount["load"].is_object()).count();
    assert!(mounts.len() == MOUNTS && (64..80).contains(&known), "{} {known}", mounts.len());
    is_over.store(true, Ordering::Relaxed);
    serving.join().expect("no panic");
}
