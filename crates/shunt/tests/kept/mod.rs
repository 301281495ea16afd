//! A mount that is kept, and processes that use it.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::callers::{Seen, is_to_stop};
use crate::common::{Room, eventually, servers_of, shunt, signal};

pub(crate) const PAGE: usize = 4096;

/// A mount that is kept, as its server says.
pub(crate) struct Kept {
    pub(crate) room: Room,
    pub(crate) keeper: u32,
    pub(crate) connection: u64,
}

impl Kept {
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::in_room(Room::new(), flags)
    }

    pub(crate) fn in_room(room: Room, flags: &[&str]) -> Self {
        let log = format!("log_file={}", room.path().join("log").display());
        let takeover: &[&str] = if flags.contains(&"--takeover") { &[] } else { &["--takeover", "crash"] };
        room.mount(&[takeover, &["-o", &log], flags].concat());
        Self::of(room)
    }

    /// What is mounted in a room.
    pub(crate) fn of(room: Room) -> Self {
        let status = status(&room);
        let number = |value: &Value| value.as_u64().expect("a number");
        let keeper = u32::try_from(number(&status["takeover"]["keeper"])).expect("a process");
        let connection = number(&status["session"]["connection"]);
        Self { room, keeper, connection }
    }

    /// Kills the server and waits for nothing. Which that was.
    pub(crate) fn kill(&self) -> u32 {
        // A busy machine may not have started the one after the last kill yet.
        let mut server = None;
        eventually("a server answers", || {
            server = self.room.server();
            server.is_some()
        });
        let server = server.expect("answers");
        assert_ne!(server, self.keeper);
        signal(server, "KILL");
        server
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.room.path().join("log")).unwrap_or_default()
    }

    /// Callers noticed nothing and left nothing, and neither does the mount when it is unmounted.
    #[track_caller]
    pub(crate) fn was_unnoticed(&self, seen: &Seen) {
        assert!(seen.calls > 100, "{seen:?}");
        assert_eq!((seen.failed, seen.wrong), (0, 0), "{seen:?}\n{}", self.log());
        let left = fs::read_dir(self.room.src()).expect("is there").flatten().map(|entry| entry.file_name());
        assert_eq!(left.filter(|name| name != "hello" && name != "open").count(), 0);
        self.room.umount(&[]).ok();
        self.is_gone();
    }

    /// Nothing of it is there any more.
    #[track_caller]
    pub(crate) fn is_gone(&self) {
        eventually("no process is left", || servers_of(&self.room.path()).is_empty());
        assert!(!self.room.is_mounted(), "{}", self.log());
        eventually("no socket is left", || sockets_of(self.connection).is_empty());
    }
}

pub(crate) fn status(room: &Room) -> Value {
    let ran = shunt(["status".as_ref(), "--json".as_ref(), room.mnt().as_os_str()]).ok();
    serde_json::from_str(&ran.out).expect("JSON")
}

/// Control sockets of a connection that a server has left. The kernel gives a connection's number to the next mount: a socket at which
/// somebody listens is that one's.
pub(crate) fn sockets_of(connection: u64) -> Vec<PathBuf> {
    let all = fs::read_dir("/run/shunt").into_iter().flatten().flatten().map(|entry| entry.path());
    let number = connection.to_string();
    let is_its = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().split('.').next() == Some(&number))
    };
    all.filter(is_its)
        .filter(|path| {
            UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        })
        .collect()
}

/// Makes, writes, reads, moves and removes names until it is to stop.
pub(crate) fn call(folder: &Path) -> Seen {
    let mut seen = Seen::default();
    let own = std::process::id();
    for made in 0_u64.. {
        if is_to_stop() {
            return seen;
        }
        let (path, moved) =
            (folder.join(format!("{own}-{made}")), folder.join(format!("{own}-{made}-moved")));
        let byte = u8::try_from(made % 251).expect("small");
        let file = seen.call("open(O_CREAT | O_EXCL)", || {
            OpenOptions::new().read(true).write(true).create_new(true).open(&path)
        });
        let Some(file) = file else { continue };
        seen.call("pwrite", || file.write_all_at(&[byte; PAGE], 0));
        seen.call("rename", || fs::rename(&path, &moved));
        if seen.call("read", || fs::read(&moved)).is_some_and(|bytes| bytes != [byte; PAGE]) {
            seen.wrong += 1;
        }
        seen.call("unlink", || fs::remove_file(&moved));
        if fs::metadata(&moved).map_err(|error| error.kind()).err() != Some(io::ErrorKind::NotFound) {
            seen.wrong += 1;
        }
        seen.calls += 1;
    }
    seen
}

/// What the descriptors of a process lead to.
pub(crate) fn open_files(pid: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).expect("is there").flatten();
    let mut links: Vec<PathBuf> = entries.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
    links.sort();
    links
}

/// The same, where nothing was opened or closed for a while: a server that has begun opens this and that yet.
pub(crate) fn settled_files(pid: u32) -> Vec<PathBuf> {
    let mut last = open_files(pid);
    let mut since = Instant::now();
    eventually("nothing is opened any more", || {
        std::thread::sleep(Duration::from_millis(10));
        let now = open_files(pid);
        if now.len() != last.len() {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_millis(500)
    });
    last
}
