//! `shunt trace`, and requests that take too long, on the real kernel.

mod common;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use common::{Room, SHUNT, as_nobody, can_mount, eventually, is_alive, run, shunt, signal};
use serde_json::Value;

const TRANSPORTS: [&str; 3] = ["device", "cloned", "uring"];
/// What a terminal obeys, and what is no text.
const EVIL: &[u8] = b"evil\x1b[2J\n\xc2\x9b\xff";

/// A trace that runs, and its lines.
struct Tracing {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Tracing {
    /// Starts one, and waits until it sees requests.
    fn of(mnt: &Path, flags: &[&str]) -> Self {
        let mut child = Command::new(SHUNT)
            .arg("trace")
            .args(flags)
            .arg(mnt)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let out = BufReader::new(child.stdout.take().expect("was piped"));
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in out.split(b'\n').map_while(Result::ok) {
                let _gone = send.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        let this = Self { child, lines };
        let first = this.next();
        assert!(first.contains("passthrough"), "{first}");
        this
    }

    fn next(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(20)).expect("a line")
    }

    /// Reads until a line holds what is looked for, which it gives with those before.
    fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let next = self.lines.recv_timeout(Duration::from_secs(20));
            let line = next.unwrap_or_else(|_| panic!("never: {what}, in {lines:#?}"));
            let is_it = holds(&line);
            lines.push(line);
            if is_it {
                return lines;
            }
        }
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many look at the requests of a server.
fn tracers(pid: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("is alive").flatten();
    threads
        .filter(|thread| fs::read(thread.path().join("comm")).is_ok_and(|name| name == b"shunt-trace\n"))
        .count()
}

fn json(line: &str) -> Value {
    let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_eq!(value["format"], 1, "{line}");
    value
}

#[test]
fn requests_are_shown_with_who_what_and_how_on_each_transport() {
    if !can_mount() {
        return;
    }
    for transport in TRANSPORTS {
        let room = Room::new();
        fs::write(room.src().join(OsStr::from_bytes(EVIL)), "evil").expect("writes");
        room.mount(&["--transport", transport, "--flow", "served", "--cache", "none"]);
        let all = Tracing::of(&room.mnt(), &[]);
        let documents = Tracing::of(&room.mnt(), &["--json", "--op", "lookup,READ,OPEN"]);
        let errors = Tracing::of(&room.mnt(), &["--errors", "--path", "miss*", "--count", "1"]);
        room.read("hello");
        fs::read(room.mnt().join(OsStr::from_bytes(EVIL))).expect("is there");
        assert!(fs::metadata(room.mnt().join("missing")).is_err());

        let lines = all.until("a lookup in vain", |line| line.contains("LOOKUP missing = ENOENT <"));
        assert!(lines.iter().all(|line| !line.chars().any(char::is_control)), "{transport}: {lines:#?}");
        assert!(
            lines.iter().any(|line| line.contains(" cat(0) ") && line.contains("OPEN hello")),
            "{lines:#?}"
        );
        let is_read = |line: &String| line.contains("READ hello ") && line.contains("@0 served = 12 <");
        assert!(lines.iter().any(is_read), "{transport}: {lines:#?}");
        assert!(lines.iter().any(|line| line.contains(r"evil\x1b[2J\n")), "{transport}: {lines:#?}");

        let lines = documents.until("the same", |line| line.contains("missing"));
        assert!(lines.iter().all(|line| !line.chars().any(char::is_control)), "{transport}: {lines:#?}");
        let lines: Vec<Value> = lines.iter().map(|line| json(line)).collect();
        assert!(lines.iter().all(|one| ["LOOKUP", "READ", "OPEN"].iter().any(|op| one["op"] == *op)));
        let hex: String = EVIL.iter().map(|byte| format!("{byte:02x}")).collect();
        let evil = lines.iter().find(|one| one["op"] == "LOOKUP" && one["name_hex"] == *hex);
        let evil = evil.unwrap_or_else(|| panic!("{transport}: {lines:#?}"));
        assert_eq!(evil["name"], *String::from_utf8_lossy(EVIL), "{transport}");
        assert!(evil["pid"].as_u64().is_some_and(|pid| pid > 0) && evil["uid"] == 0, "{transport}: {evil}");

        let one = errors.next();
        assert!(one.contains("LOOKUP missing = ENOENT"), "{transport}: {one}");
        let mut errors = errors;
        assert_eq!(common::wait(&mut errors.child), Some(0), "{transport}: it ends after one");
        let server = room.pid();
        drop((all, documents));
        eventually("nobody looks", || tracers(server) == 0);
        room.umount(&[]).ok();
    }
}

/// Killed, with a closed pipe, or by its user: in each case the server looks no more. There is room for eight.
#[test]
fn a_trace_that_goes_away_costs_nothing_any_more() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&["--cache", "none"]);
    let server = room.pid();
    let many: Vec<Tracing> = (0..8).map(|_| Tracing::of(&room.mnt(), &[])).collect();
    assert_eq!(tracers(server), 8);
    shunt(["trace".as_ref(), room.mnt().as_os_str()]).fails(1, &["8 traces are running already"]);
    // It is dropped by SIGKILL.
    drop(many);
    eventually("those that were killed are gone", || tracers(server) == 0);

    let script = format!("{SHUNT} trace {} | head -n 1", room.mnt().display());
    let mut child = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().expect("starts");
    eventually("it looks", || tracers(server) == 1);
    eventually("the pipe is closed", || {
        let _ = fs::metadata(room.mnt().join("missing"));
        child.try_wait().expect("is a child").is_some()
    });
    eventually("the one with the closed pipe is gone", || tracers(server) == 0);

    let last = Tracing::of(&room.mnt(), &["--json"]);
    room.umount(&[]).ok();
    let lines = last.until("the end", |line| line.contains(r#""event":"end""#));
    assert_eq!(json(lines.last().expect("is there"))["event"], "end");
}

/// A regression: the server looked for the end every half second, and had ended itself by then. What `shunt trace` shows then it concludes
/// from the list of mounts, where another mount may have the same numbers by now.
#[test]
fn the_server_itself_tells_of_the_end() {
    if !can_mount() {
        return;
    }
    for takeover in ["off", "crash"] {
        let room = Room::new();
        room.mount(&["--cache", "none", "--takeover", takeover]);
        let status = shunt(["status".as_ref(), OsStr::new("--json"), room.mnt().as_os_str()]).ok().out;
        let status: Value = serde_json::from_str(&status).expect("JSON");
        let socket = format!("/run/shunt/{}", status["session"]["connection"]);
        let mut stream = UnixStream::connect(&socket).expect("listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("is a socket");
        stream.write_all(b"{\"ask\":\"trace\"}\n").expect("asks");
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        assert_eq!(lines.next().as_deref(), Some(r#"{"traced":"begins"}"#));
        run(Command::new("umount").arg(room.mnt())).ok();
        assert_eq!(lines.last().as_deref(), Some(r#"{"traced":"ends"}"#), "{takeover}");
    }
}

/// The mount has not ended: it is still there, without a server.
#[test]
fn the_death_of_a_server_is_no_end_of_the_mount() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&["--cache", "none"]);
    let mut trace = Tracing::of(&room.mnt(), &[]);
    signal(room.pid(), "KILL");
    assert_eq!(common::wait(&mut trace.child), Some(1));
    let rest: Vec<String> = trace.lines.iter().collect();
    assert!(!rest.iter().any(|line| line.contains("has ended")), "{rest:?}");
    drop(trace);
    room.umount(&[]);
}

#[test]
fn a_trace_that_is_read_too_slowly_says_how_many_are_missing() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&["--cache", "none", "--transport", "cloned"]);
    let trace = Tracing::of(&room.mnt(), &["--json", "--op", "LOOKUP", "--path", "missing*"]);
    signal(trace.child.id(), "STOP");
    const SENT: usize = 12_000;
    for round in 0..SENT {
        assert!(fs::metadata(room.mnt().join(format!("missing{round}"))).is_err());
    }
    signal(trace.child.id(), "CONT");
    std::thread::sleep(Duration::from_millis(300));
    assert!(fs::metadata(room.mnt().join("missing-last")).is_err());
    let lines = trace.until("the last one", |line| line.contains("missing-last"));
    let lines: Vec<Value> = lines.iter().map(|line| json(line)).collect();
    let told = lines.iter().filter(|one| one["event"] == "request").count();
    let missing: u64 =
        lines.iter().filter(|one| one["event"] == "dropped").filter_map(|one| one["count"].as_u64()).sum();
    assert!(missing > 0, "{told} of {SENT}");
    assert_eq!(told + usize::try_from(missing).expect("small"), SENT + 1);
    drop(trace);
    room.umount(&[]).ok();
}

/// What the kernel moves is no request; how the open settled is told.
#[test]
fn passthrough_is_told_at_the_open_alone() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&["--flow", "passthrough"]);
    let trace = Tracing::of(&room.mnt(), &[]);
    let file = File::open(room.mnt().join("hello")).expect("opens");
    file.read_at(&mut [0; 12], 0).expect("reads");
    drop(file);
    let lines = trace.until("the close", |line| line.contains("RELEASE hello"));
    let is_open = |line: &&String| line.contains("OPEN hello");
    let open = lines.iter().find(is_open).expect("was opened");
    if open.contains("OPEN hello passthrough = 0") {
        assert!(lines.iter().all(|line| !line.contains("READ hello")), "{lines:#?}");
    } else {
        eprintln!("SKIPPED: no passthrough here: {open}");
    }
    drop(trace);
    room.umount(&[]).ok();
}

#[test]
fn sealed_folders_exports_and_several_folders_are_shown() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    fs::create_dir(room.src().join("deep")).expect("makes");
    fs::write(room.src().join("deep/file"), "sealed").expect("writes");
    shunt(["seal".as_ref(), room.src().as_os_str()]).ok();
    room.mount(&["--verify", "required", "--flow", "served"]);
    let trace = Tracing::of(&room.mnt(), &["--path", "deep/*"]);
    room.read("deep/file");
    trace.until("a sealed file is read", |line| line.contains("READ deep/file"));
    drop(trace);
    room.umount(&[]).ok();

    let (image, shown) = (room.path().join("image"), room.path().join("disk"));
    fs::write(&image, vec![7; 8192]).expect("writes");
    fs::write(&shown, "").expect("writes");
    run(Command::new(SHUNT).args(["export", "--format", "raw", "--flow", "served"]).args([&image, &shown]))
        .ok();
    let trace = Tracing::of(&shown, &["--op", "READ"]);
    assert_eq!(fs::read(&shown).expect("reads").len(), 8192);
    let line = trace.next();
    assert!(line.contains("READ / ") && line.contains("@0 "), "{line}");
    drop(trace);
    run(Command::new(SHUNT).arg("umount").arg(&shown)).ok();

    let other = room.path().join("other");
    fs::create_dir(&other).expect("makes");
    fs::create_dir(other.join("deeper")).expect("makes");
    fs::write(other.join("deeper/thing"), "there").expect("writes");
    let list = format!("{}:{}", room.src().display(), other.display());
    let pool = Command::new(SHUNT).args(["mount", "--flow", "served", &list]).arg(room.mnt()).status();
    assert!(pool.expect("starts").success());
    let trace = Tracing::of(&room.mnt(), &["--op", "READ"]);
    room.read("deeper/thing");
    let line = trace.next();
    assert!(line.contains(&format!("READ deeper/thing on {} ", other.display())), "{line}");
    drop(trace);
    room.umount(&[]).ok();
}

/// Names and callers are for those alone who could look into the server's process.
#[test]
fn others_and_users_of_servers_with_capabilities_see_nothing() {
    if !can_mount() {
        return;
    }
    let room = Room::new();
    room.mount(&["--allow-other"]);
    run(as_nobody(&room).arg("trace").arg(room.mnt()))
        .fails(1, &["only the user of the mount and root may ask"]);
    room.umount(&[]).ok();

    for capability in [false, true] {
        let place = room.path().join("own");
        fs::create_dir_all(place.join("src")).expect("makes");
        fs::create_dir_all(place.join("mnt")).expect("makes");
        for folder in [&place, &place.join("src"), &place.join("mnt")] {
            run(Command::new("chown").arg("65534:65534").arg(folder)).ok();
        }
        fs::set_permissions(room.path(), fs::Permissions::from_mode(0o777)).expect("is ours");
        let mut mount = Command::new("setpriv");
        mount.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        if capability {
            mount.args(["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]);
        }
        mount.arg(room.path().join("shunt")).arg("mount").arg(place.join("src")).arg(place.join("mnt"));
        let mounted = run(mount.env_remove("XDG_RUNTIME_DIR").current_dir("/"));
        if mounted.code != Some(0) {
            eprintln!("SKIPPED: an ordinary user cannot mount here: {}", mounted.err);
            return;
        }
        // The copy of the program is there; the server runs it.
        let mut trace = Command::new(room.path().join("shunt"));
        trace.uid(65534).gid(65534).env_remove("XDG_RUNTIME_DIR").current_dir("/");
        trace.arg("trace").args(["--count", "1"]).arg(place.join("mnt"));
        if capability {
            run(&mut trace).fails(1, &["only root may trace it"]);
        } else {
            let mut child = trace.stdout(Stdio::null()).spawn().expect("starts");
            let mut round = 0;
            eventually("its own user may look", || {
                // The kernel remembers which names do not exist, and lets in who has the same group.
                round += 1;
                let _ =
                    Command::new("ls").uid(65534).gid(65534).arg(place.join(format!("mnt/{round}"))).output();
                child.try_wait().expect("is a child").is_some()
            });
            assert!(child.wait().expect("is a child").success());
        }
        run(Command::new(SHUNT).arg("umount").arg(place.join("mnt"))).ok();
    }
}

/// The lower file system is a server that is stopped, which hangs as a disk does that does not answer.
#[test]
fn a_request_that_hangs_is_told_and_told_again_when_it_ends() {
    if !can_mount() {
        return;
    }
    for transport in TRANSPORTS {
        let (below, room) = (Room::new(), Room::new());
        below.mount(&["--cache", "none", "--stall-after", "off"]);
        let lower = below.pid();
        let log = room.path().join("log");
        let log_file = log.to_str().expect("is text");
        let flags =
            ["--cache", "none", "--transport", transport, "--stall-after", "300ms", "--log-file", log_file];
        let mut mount = Command::new(SHUNT);
        run(mount.arg("mount").args(flags).arg(below.mnt()).arg(room.mnt())).ok();
        room.read("hello");
        let told = |words: &[&str]| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.lines().any(|line| words.iter().all(|word| line.contains(word)))
        };
        assert!(!told(&["under way for"]), "{transport}: in time");
        signal(lower, "STOP");
        let mut reader =
            Command::new("cat").arg(room.mnt().join("hello")).stdout(Stdio::null()).spawn().expect("starts");
        let caller = format!("for process {} (cat, uid 0)", reader.id());
        eventually("it is told", || told(&["WARN", "under way for", &caller, "hang in the kernel"]));
        let status = shunt(["status".as_ref(), room.mnt().as_os_str()]).ok().out;
        assert!(status.contains("stalls     1 requests took longer than 300 ms, 1 are still"), "{status}");
        assert!(is_alive(reader.id()));
        signal(lower, "CONT");
        assert_eq!(common::wait(&mut reader), Some(0), "{transport}");
        eventually("its end is told", || told(&["ended after"]));
        let status = shunt(["status".as_ref(), OsStr::new("--json"), room.mnt().as_os_str()]).ok().out;
        let status: Value = serde_json::from_str(&status).expect("JSON");
        assert_eq!(status["session"]["stalls"]["now"], 0, "{transport}");
        assert_eq!(status["session"]["stalls"]["limit_ms"], 300, "{transport}");
        room.umount(&[]).ok();
        below.umount(&[]).ok();
    }
}
