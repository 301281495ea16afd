//! Processes that lock a file, and wait for that where somebody else has it.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use shuntfs_sys::locks::{FlockOp, LockKind, LockSpec, flock, ofd_lock};

use crate::common::{eventually, is_alive, wait};

/// What can be locked: all of a file, or its first ten bytes, by a process or by an open file.
pub(crate) const KINDS: [&str; 3] = ["flock", "posix", "ofd"];

/// It says what it does. A signal for which it has a handler, which does nothing, ends its waiting (EINTR). Bytes are locked by `struct flock` of fcntl(2) as
/// Linux has it on 64 bits: a lock for writing of ten bytes from the first one, or none.
const PROGRAM: &str = r#"
    use POSIX qw(EINTR);
    my ($kind, $path) = @ARGV;
    POSIX::sigaction(POSIX::SIGUSR1, POSIX::SigAction->new(sub {}));
    open(my $file, "+<", $path) or die "open: $!";
    $| = 1;
    my $range = sub { pack("s s x4 q q i x4", $_[0], 0, 0, $_[0] == 1 ? 10 : 0, 0) };
    my $lock = sub { fcntl($file, $kind eq "ofd" ? 38 : 7, $range->($_[0])) };
    print "locks\n";
    if (!($kind eq "flock" ? flock($file, 2) : $lock->(1))) {
        exit($! == EINTR ? 4 : 5);
    }
    print "has it\n";
    if (defined(my $line = <STDIN>)) {
        ($kind eq "flock" ? flock($file, 8) : $lock->(2)) or die "unlock: $!";
        print "gave it back\n";
        <STDIN>;
    }
"#;

/// The code of one whose waiting was interrupted.
pub(crate) const INTERRUPTED: i32 = 4;

/// Whether there is perl(1), in which they are written; says so where there is none.
pub(crate) fn has_perl() -> bool {
    let is_there = Command::new("perl").args(["-MPOSIX", "-e", "1"]).status().is_ok_and(|ran| ran.success());
    if !is_there {
        println!("SKIPPED: there is no perl");
    }
    is_there
}

/// A process that locks a file. It does not outlive this.
pub(crate) struct Locker {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: Option<ChildStdin>,
}

impl Locker {
    pub(crate) fn start(kind: &str, path: &Path) -> Self {
        let mut command = Command::new("perl");
        command.args(["-e", PROGRAM, kind]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("starts");
        let (says, hears) = (child.stdout.take().expect("a pipe"), child.stdin.take());
        let mut locker = Self { child, says: BufReader::new(says), hears };
        locker.says("locks");
        locker
    }

    #[track_caller]
    fn says(&mut self, expected: &str) {
        let mut line = String::new();
        self.says.read_line(&mut line).expect("a pipe");
        assert_eq!(line.trim_end(), expected);
    }

    #[track_caller]
    pub(crate) fn has_it(&mut self) {
        self.says("has it");
    }

    /// It waits in the call for the lock.
    #[track_caller]
    pub(crate) fn waits(&self) {
        let stat = format!("/proc/{}/stat", self.child.id());
        eventually("it waits", || {
            let stat = fs::read_to_string(&stat).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
        });
    }

    pub(crate) fn is_alive(&self) -> bool {
        is_alive(self.child.id())
    }

    /// Its waiting is interrupted.
    pub(crate) fn interrupt(&self) {
        send(self.child.id(), Signal::USR1);
    }

    #[track_caller]
    pub(crate) fn gives_back(&mut self) {
        self.hears.as_mut().expect("hears").write_all(b"unlock\n").expect("a pipe");
        self.says("gave it back");
    }

    /// It is to end once it has what it waits for.
    pub(crate) fn is_to_end(&mut self) {
        self.hears = None;
    }

    /// It ends by itself.
    #[track_caller]
    pub(crate) fn ends(&mut self) {
        self.is_to_end();
        assert_eq!(self.code(), Some(0));
    }

    #[track_caller]
    pub(crate) fn is_killed(&mut self) {
        self.child.kill().expect("is a child");
        assert_eq!(self.code(), None);
    }

    /// How it has ended.
    #[track_caller]
    pub(crate) fn code(&mut self) -> Option<i32> {
        wait(&mut self.child)
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        // One that nobody answers ends with the mount, which may be dropped later.
        let _gone_already = self.child.try_wait();
    }
}

/// Whether somebody else gets such a lock on a file; it is given back at once.
pub(crate) fn is_free(kind: &str, path: &Path) -> bool {
    let file = File::options().read(true).write(true).open(path).expect("opens");
    let range = |kind, len| LockSpec { kind, start: 0, len };
    // A close tells the server later.
    if kind == "flock" {
        flock(&file, FlockOp::Exclusive, false).and_then(|()| flock(&file, FlockOp::Unlock, false)).is_ok()
    } else {
        let take = ofd_lock(&file, range(LockKind::Write, 10), false);
        take.and_then(|()| ofd_lock(&file, range(LockKind::Unlock, 0), false)).is_ok()
    }
}

/// Sends a signal at once: another process would be needed for that otherwise.
#[track_caller]
pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, signal).expect("it is there");
}
