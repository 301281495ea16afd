//! `shunt top` of real mounts.

mod common;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use common::{LIMIT, Room, SHUNT, can_mount, eventually, run, shunt, signal, wait};

#[test]
fn without_mounts_it_says_so() {
    // In a namespace of its own nothing of others is mounted, and there are no sockets.
    if !can_mount() {
        return;
    }
    let script = "mkdir -p /run/shunt; mount -t tmpfs none /run/shunt; umount -a -t fuse.shunt 2>/dev/null || true; exec \"$1\" top --once -n 0.1";
    let ran = run(&mut common::apart(script)).ok();
    assert!(ran.out.starts_with("shunt top: no mounts"), "{ran:?}");
}

#[test]
fn one_interval_as_text_and_as_json() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&["--flow", "served", "--cache", "none"]);
    let mnt = room.mnt();
    let reads = std::thread::spawn(move || {
        // Enough for an interval to see some.
        run(Command::new("sh")
            .args(["-c", "for i in $(seq 200); do cat \"$1/hello\"; sleep 0.01; done", "sh"])
            .arg(&mnt))
        .ok()
    });
    let words = |more: &[&str]| {
        let mut words = vec![OsStr::new("top").to_owned(), room.mnt().into_os_string()];
        words.extend(more.iter().map(Into::into));
        words
    };
    let json = shunt(words(&["--once", "--json", "-n", "0.5"])).ok().out;
    let document: Value = serde_json::from_str(&json).expect("one document");
    assert_eq!(json.lines().count(), 1);
    assert_eq!(document["format"], 1);
    let mount = &document["mounts"][0];
    assert_eq!((mount["mount"].as_str(), mount["state"].as_str()), (room.mnt().to_str(), Some("mounted")));
    assert!(mount["ops_per_s"].as_f64().is_some_and(|rate| rate > 1.0), "{json}");
    assert!(mount["read_bytes_per_s"].as_f64().is_some_and(|rate| rate > 1.0), "{json}");
    assert_eq!(mount["flows"][0]["flow"], "served", "{json}");
    let load = &mount["load"];
    assert_eq!((&load["one_of"], &mount["load_error"]), (&1.into(), &Value::Null), "{json}");
    let file = find(&load["files"], "path", "hello");
    assert!(file["read_bytes_per_s"].as_f64().is_some_and(|rate| rate > 1.0), "{json}");
    assert!(file["opens_per_s"].as_f64().is_some_and(|rate| rate > 1.0), "{json}");
    assert_eq!(find(&load["processes"], "comm", "cat")["passthrough"], false, "{json}");

    // Neither terminal nor --once: as --once.
    let text = shunt(words(&["--interval", "0.5"])).ok().out;
    for word in
        ["1 mount,", "MOUNT", "OPERATION", "READ", "served", "QUEUE", "FILE", "hello ", "PROCESS", "cat "]
    {
        assert!(text.contains(word), "no {word} in {text}");
    }
    assert!(!text.contains('\u{1b}'), "{text:?}");
    reads.join().expect("reads");
    room.umount(&[]).ok();
    shunt(words(&["--once"])).fails(1, &["not a mount point"]);
}

/// The entry of a list with this text.
#[track_caller]
fn find<'a>(list: &'a Value, field: &str, text: &str) -> &'a Value {
    let found = list.as_array().and_then(|list| list.iter().find(|one| one[field] == text));
    found.unwrap_or_else(|| panic!("no {field} {text} in {list:#}"))
}

/// Documents of a mount, one for each interval, while something is done again and again; the first that holds.
fn until(room: &Room, act: impl Fn(), holds: impl Fn(&Value) -> bool) -> Value {
    let mut top = Command::new(SHUNT)
        .args(["top", "--json", "-n", "0.2"])
        .arg(room.mnt())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let (send, lines) = std::sync::mpsc::channel();
    let out = BufReader::new(top.stdout.take().expect("was piped"));
    std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let _gone = send.send(line);
        }
    });
    let mut last = Value::Null;
    let mut found = None;
    let end = std::time::Instant::now() + LIMIT;
    while found.is_none() && std::time::Instant::now() < end {
        act();
        if let Ok(line) = lines.recv_timeout(std::time::Duration::from_millis(10)) {
            let document: Value = serde_json::from_str(&line).expect("a document a line");
            last = document["mounts"][0].clone();
            found = Some(last.clone()).filter(&holds);
        }
    }
    top.kill().expect("is a child");
    top.wait().expect("is a child");
    found.unwrap_or_else(|| panic!("never, as in {last:#}"))
}

/// How many threads of a server count for somebody who looks.
fn counters(pid: u32) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("is alive").flatten();
    threads
        .filter(|it| std::fs::read(it.path().join("comm")).is_ok_and(|name| name == b"shunt-load\n"))
        .count()
}

/// Opens are seen; bytes that the kernel moves by itself are not, and not said to be none.
#[test]
fn files_in_passthrough_are_counted_by_their_opens() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    // A small file leaves passthrough when it is read again.
    std::fs::write(room.src().join("large"), vec![b'x'; 256 << 10]).expect("writes");
    room.mount(&["--flow", "passthrough"]);
    let read = || {
        let _text = room.read("large");
    };
    let is_there = |mount: &Value| {
        mount["load"]["files"].as_array().is_some_and(|files| {
            files.iter().any(|file| file["path"] == "large" && file["opens_per_s"].as_f64() > Some(0.0))
        })
    };
    let mount = until(&room, read, is_there);
    let file = find(&mount["load"]["files"], "path", "large");
    if mount["flows"].as_array().is_some_and(|flows| flows.iter().any(|flow| flow["flow"] == "passthrough")) {
        assert_eq!(
            (&file["passthrough"], &file["read_bytes_per_s"]),
            (&true.into(), &Value::Null),
            "{mount:#}"
        );
    } else {
        eprintln!("SKIPPED: no passthrough here: {mount:#}");
    }
    let server = room.pid();
    eventually("nobody looks", || counters(server) == 0);
    room.umount(&[]).ok();
}

/// However it ends, its server looks no more. Trace and top together have room for eight.
#[test]
fn who_ceases_to_look_costs_nothing_any_more() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&["--cache", "none"]);
    let server = room.pid();
    let look = || {
        let mut top = Command::new(SHUNT);
        top.args(["top", "--json", "-n", "0.2"]).arg(room.mnt());
        top.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("starts")
    };
    let mut many: Vec<Child> = (0..8).map(|_| look()).collect();
    eventually("eight look", || counters(server) == 8);
    let ran =
        shunt(["top".as_ref(), room.mnt().as_os_str(), "--once".as_ref(), "-n".as_ref(), "0.1".as_ref()]);
    assert!(ran.out.contains("8 traces are running already"), "{ran:?}");
    let mut last = many.pop().expect("there are eight");
    for mut one in many {
        one.kill().expect("is a child");
        one.wait().expect("is a child");
    }
    eventually("one looks", || counters(server) == 1);
    signal(last.id(), "INT");
    wait(&mut last);
    eventually("nobody looks", || counters(server) == 0);
    room.umount(&[]).ok();
}

/// A user whose server may see more than the user does not see what others do.
#[test]
fn others_do_not_see_files_and_processes() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&["--allow-other"]);
    let ran = run(common::as_nobody(&room).args(["top", "--once", "-n", "0.1"]).arg(room.mnt()));
    assert!(!ran.out.contains("FILE") && ran.out.contains("not yours"), "{ran:?}");
    assert_eq!(counters(room.pid()), 0);
    room.umount(&[]).ok();
}

#[test]
fn a_pipe_that_is_closed_ends_it_without_a_word() {
    if !can_mount() {
        return;
    }
    let mut child = Command::new(SHUNT)
        .args(["top", "--json", "-n", "0.1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("was piped"));
    for _ in 0..2 {
        let mut line = String::new();
        lines.read_line(&mut line).expect("readable");
        serde_json::from_str::<Value>(&line).expect("a document a line");
    }
    drop(lines);
    assert_eq!(wait(&mut child), Some(0));
    let said = child.wait_with_output().expect("ended").stderr;
    assert!(!String::from_utf8_lossy(&said).contains("panicked"), "{}", String::from_utf8_lossy(&said));
}

/// Whether a terminal can be made; says so where it cannot.
fn can_have_a_terminal() -> bool {
    let has = Command::new("script").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has {
        eprintln!("SKIPPED: there is no script(1) (Debian: bsdutils)");
    }
    has
}

/// `shunt top` on a terminal of its own.
fn on_a_terminal(room: &Room, columns: u16, rows: u16) -> Child {
    let command =
        format!("stty cols {columns} rows {rows}; exec {SHUNT} top -n 0.2 {}", room.mnt().display());
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("starts")
}

/// The processes of `shunt top` that look at a mount.
fn looking_at(room: &Room) -> Vec<u32> {
    let mnt = room.mnt();
    let is_one = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        words.first() == Some(&SHUNT.as_bytes())
            && words.get(1) == Some(&&b"top"[..])
            && words.contains(&mnt.as_os_str().as_encoded_bytes())
    };
    let all = std::fs::read_dir("/proc").expect("is there").flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_one).collect()
}

#[test]
fn a_terminal_is_put_back_by_a_key_and_by_a_signal() {
    if !can_mount() || !can_have_a_terminal() {
        return;
    }
    let room = Room::new();
    room.mount(&[]);
    for (by_key, columns, rows) in [(true, 80, 24), (false, 80, 24), (true, 20, 6)] {
        let mut script = on_a_terminal(&room, columns, rows);
        eventually("it looks", || !looking_at(&room).is_empty());
        let mut out = script.stdout.take().expect("was piped");
        let mut seen = Vec::new();
        // What names the columns comes with the first picture; on a narrow terminal, the first of them.
        while !String::from_utf8_lossy(&seen).contains("MOUNT") {
            let mut piece = [0; 1024];
            let len = out.read(&mut piece).expect("readable");
            assert!(len > 0, "ended: {}", String::from_utf8_lossy(&seen));
            seen.extend_from_slice(&piece[..len]);
        }
        if by_key {
            script.stdin.as_mut().expect("was piped").write_all(b"jq").expect("writes");
        } else {
            signal(looking_at(&room)[0], "TERM");
        }
        out.read_to_end(&mut seen).expect("readable");
        assert_eq!(wait(&mut script), Some(0), "{by_key}");
        let seen = String::from_utf8_lossy(&seen).into_owned();
        assert!(seen.contains("\u{1b}[?1049h") && seen.contains("\u{1b}[?1049l"), "{by_key}: {seen:?}");
    }
    room.umount(&[]).ok();
}

/// A regression: the keyboard of a terminal that is gone was read again and again, by a process that nobody could see any more.
#[test]
fn it_ends_with_its_terminal() {
    if !can_mount() || !can_have_a_terminal() {
        return;
    }
    let room = Room::new();
    room.mount(&[]);
    let mut script = on_a_terminal(&room, 80, 24);
    eventually("it looks", || !looking_at(&room).is_empty());
    script.kill().expect("is a child");
    script.wait().expect("is a child");
    eventually("it has ended", || looking_at(&room).is_empty());
    room.umount(&[]).ok();
}

#[test]
fn a_server_that_is_stopped_holds_up_nothing_for_long() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    let server = room.mount_in_foreground(&[]);
    signal(server.id(), "STOP");
    let started = std::time::Instant::now();
    let ran =
        shunt(["top".as_ref(), room.mnt().as_os_str(), "--once".as_ref(), "-n".as_ref(), "0.1".as_ref()]);
    signal(server.id(), "CONT");
    assert!(started.elapsed() < LIMIT / 2, "{:?}", started.elapsed());
    assert!(
        ran.code == Some(1) && ran.err.contains("does not answer") && ran.out.contains("silent"),
        "{ran:?}"
    );
    room.umount(&[]).ok();
}

#[test]
fn names_are_written_out_and_not_obeyed() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    // In a namespace of its own: other tests read the list of mounts as text.
    let script = r#"
        place=$(printf '%s/evil\033[2J\377\nx' "$2")
        mkdir "$place"
        file=$(printf 'file\033[2J\377\nx')
        echo > "$2/src/$file"
        cp "$(command -v sh)" "$2/$(printf 'sh\033c\377\n.')"
        "$1" mount --cache none --flow served "$2/src" "$place"
        "$2/$(printf 'sh\033c\377\n.')" -c 'while read -r line < "$1"; do :; done' sh "$place/$file" &
        "$1" top --once -n 0.5 "$place"
        "$1" top --once --json -n 0.5 "$place" > "$2/json"
        kill $!
        wait $! || true
        "$1" umount "$place""#;
    let text = run(common::apart(script).arg(room.path())).ok().out;
    let json = std::fs::read_to_string(room.path().join("json")).expect("is UTF-8");
    for (name, command) in [(r"evil\x1b[2J\xff\n", ""), (r"file\x1b[2J\xff\nx ", r"sh\x1bc\xff\n. ")] {
        assert!(text.contains(name) && text.contains(command), "{text:?}");
        for name in [name, command].map(str::trim_end) {
            assert!(json.contains(&name.replace('\\', r"\\")), "{json:?}");
        }
    }
    assert!(
        !text.chars().chain(json.chars()).any(|letter| letter.is_control() && letter != '\n'),
        "{text:?}"
    );
}
