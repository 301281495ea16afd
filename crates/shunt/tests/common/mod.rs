//! What the tests of the program share: running it with a time limit, and mounts that do not outlive a test.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a command may take.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// What it said on standard error, but for what each mount says on a machine without a system log.
    pub(crate) fn said(&self) -> String {
        self.err.lines().filter(|line| !line.contains("no system log")).collect::<Vec<_>>().join("\n")
    }

    /// The command line was wrong.
    #[track_caller]
    pub(crate) fn fails_with_usage(self) {
        assert!(self.code == Some(2) && !self.err.is_empty(), "{self:?}");
    }

    /// It failed with this code and one line that has all of these words in it.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.err.trim_end().lines().count(), 1, "not one line: {self:?}");
        for word in words {
            assert!(self.err.contains(word), "no `{word}` in {self:?}");
        }
        self
    }
}

/// The program under test.
pub(crate) const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

/// Runs shunt.
pub(crate) fn shunt<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Ran {
    run(Command::new(SHUNT).args(words))
}

/// Runs a command to its end, or to the limit's.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ran {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let (out, err) = (drain(child.stdout.take()), drain(child.stderr.take()));
    let code = wait(&mut child);
    // A server that kept the pipes would be a defect: whoever captures the output would wait forever.
    let text = |receiver: mpsc::Receiver<String>| {
        receiver.recv_timeout(Duration::from_secs(10)).expect("pipes are closed")
    };
    Ran { code, out: text(out), err: text(err) }
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    let mut pipe = pipe.expect("was piped");
    std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = pipe.read_to_end(&mut text);
        let _ = send.send(String::from_utf8_lossy(&text).into_owned());
    });
    receive
}

/// Waits for a child; kills it at the limit and fails.
#[track_caller]
pub(crate) fn wait(child: &mut Child) -> Option<i32> {
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        if let Some(status) = child.try_wait().expect("is a child") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("is a child");
    panic!("did not end within {LIMIT:?}");
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Has threads end that look at this flag, however this goes: a scope waits for its threads when it panics, too.
#[derive(Debug)]
pub(crate) struct Ends<'e>(pub(crate) &'e AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Whether this process may mount; says so where it may not.
pub(crate) fn can_mount() -> bool {
    let root = std::fs::read_to_string("/proc/self/status").expect("readable").contains("\nUid:\t0\t0");
    let can = root && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("SKIPPED: mounting needs root and /dev/fuse");
    }
    can
}

/// Two folders, and whatever is mounted at one of them is removed at the end.
#[derive(Debug)]
pub(crate) struct Room {
    folder: tempfile::TempDir,
}

impl Room {
    pub(crate) fn new() -> Self {
        let room = Self { folder: tempfile::tempdir().expect("a folder") };
        std::fs::create_dir(room.src()).expect("makes");
        std::fs::create_dir(room.mnt()).expect("makes");
        std::fs::write(room.src().join("hello"), "hello there\n").expect("writes");
        room
    }

    pub(crate) fn src(&self) -> PathBuf {
        self.path().join("src")
    }

    pub(crate) fn mnt(&self) -> PathBuf {
        self.path().join("mnt")
    }

    /// Without symlinks, as the list of mounts has it.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("is there")
    }

    /// Mounts SRC at MNT with these flags.
    #[track_caller]
    pub(crate) fn mount(&self, flags: &[&str]) -> Ran {
        self.try_mount(flags).ok()
    }

    pub(crate) fn try_mount(&self, flags: &[&str]) -> Ran {
        run(Command::new(SHUNT).arg("mount").args(flags).arg(self.src()).arg(self.mnt()))
    }

    /// Mounts in the foreground and waits until the mount is there.
    pub(crate) fn mount_in_foreground(&self, flags: &[&str]) -> Server {
        let mut command = Command::new(SHUNT);
        command.args(["mount", "--foreground"]).args(flags).arg(self.src()).arg(self.mnt());
        self.start(&mut command)
    }

    /// Starts a server that stays, and waits until its mount answers.
    pub(crate) fn start(&self, command: &mut Command) -> Server {
        let log = self.path().join("stderr");
        let file = std::fs::File::create(&log).expect("makes");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn().expect("starts");
        let mut server = Server { child, log };
        eventually("the mount answers", || {
            assert!(server.child.try_wait().expect("is a child").is_none(), "ended: {}", server.log());
            self.is_mounted() && shunt(["status".as_ref(), self.mnt().as_os_str()]).code == Some(0)
        });
        server
    }

    pub(crate) fn is_mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
        let path = self.mnt();
        table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
    }

    /// Reads a file of the mount, in another process, so that a stuck mount does not stop the test.
    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        run(Command::new("cat").arg(self.mnt().join(name))).ok().out
    }

    /// The process that serves the mount.
    #[track_caller]
    pub(crate) fn pid(&self) -> u32 {
        self.server().expect("has a process")
    }

    /// The process that serves; none, where one has ended and the next one does not answer yet.
    pub(crate) fn server(&self) -> Option<u32> {
        let list: serde_json::Value =
            serde_json::from_str(&shunt(["list", "--json"]).ok().out).expect("JSON");
        let rows = list["mounts"].as_array().expect("a list").clone();
        let row = rows
            .into_iter()
            .find(|row| row["mountpoint"].as_str() == self.mnt().to_str())
            .expect("is listed");
        row["pid"].as_u64().and_then(|pid| pid.try_into().ok())
    }

    #[track_caller]
    pub(crate) fn umount(&self, flags: &[&str]) -> Ran {
        run(Command::new(SHUNT).arg("umount").args(flags).arg(self.mnt()))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // Nothing of a failed test may stay, and a stuck server must not hold this up: force, then detach.
        for _ in 0..4 {
            if !self.is_mounted() {
                break;
            }
            let _ = Command::new("umount").arg("-f").arg(self.mnt()).stderr(Stdio::null()).status();
            let _ = Command::new("umount").arg("-l").arg(self.mnt()).stderr(Stdio::null()).status();
        }
        // A server that is stopped or stuck is known by the folder's name, which is nobody else's.
        for pid in servers_of(&self.path()) {
            let _ = Command::new("kill").arg("-KILL").arg(pid.to_string()).stderr(Stdio::null()).status();
        }
    }
}

/// Servers in the background whose command line names something in this folder.
pub(crate) fn servers_of(folder: &Path) -> Vec<u32> {
    use std::os::unix::ffi::OsStrExt;
    let words_of = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let prefix = [folder.as_os_str().as_bytes(), b"/"].concat();
    let is_one = |words: &[u8]| {
        let mut words = words.split(|byte| *byte == 0);
        words.next() == Some(b"shunt") && words.any(|word| word.starts_with(&prefix))
    };
    let processes = std::fs::read_dir("/proc").expect("readable").flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.filter(|pid| is_one(&words_of(*pid))).collect()
}

/// A server in the foreground; it does not outlive this.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    pub(crate) fn new(child: Child, log: PathBuf) -> Self {
        Self { child, log }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    #[track_caller]
    pub(crate) fn ends(&mut self) -> Option<i32> {
        wait(&mut self.child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process.
#[track_caller]
pub(crate) fn signal(pid: u32, name: &str) {
    run(Command::new("kill").arg(format!("-{name}")).arg(pid.to_string())).ok();
}

/// Whether a process is there and not only waits to be collected.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !matches!(stat.rsplit(") ").next().and_then(|rest| rest.chars().next()), None | Some('Z'))
}

/// A command in a mount namespace of its own, so that what it mounts stays there.
pub(crate) fn apart(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec", script, "sh"]).arg(SHUNT);
    command
}

/// Folders of an ordinary user's, who mounts by fusermount3 with the copy of the program in there; `None`, and the reason was said, where that is
/// not to be tested.
pub(crate) fn room_of_nobody() -> Option<Room> {
    if !can_mount() {
        return None;
    }
    if Command::new("fusermount3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no fusermount3");
        return None;
    }
    let room = Room::new();
    run(Command::new("chown").args(["-R", "65534:65534"]).arg(room.src()).arg(room.mnt())).ok();
    let _copies_the_program = as_nobody(&room);
    Some(room)
}

/// A command as an ordinary user, who gets a copy of the program that all may run.
pub(crate) fn as_nobody(room: &Room) -> Command {
    use std::os::unix::fs::PermissionsExt;
    let program = room.path().join("shunt");
    // By another process: one that a parallel test starts meanwhile would inherit our descriptor for writing,
    // and the copy could not be run (ETXTBSY).
    run(Command::new("cp").arg(SHUNT).arg(&program)).ok();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("is ours");
    std::fs::set_permissions(room.path(), std::fs::Permissions::from_mode(0o777)).expect("is ours");
    let mut command = Command::new(program);
    command.uid(65534).gid(65534).env_remove("XDG_RUNTIME_DIR").current_dir("/");
    command
}
