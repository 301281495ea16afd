//! The examples as programs: they mount, answer, and end cleanly at Ctrl-C, as root and as an ordinary user.
//! Needs CAP_SYS_ADMIN and /dev/fuse, and `cargo test` without `--test`, which builds the examples.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use common::{can_mount, is_mounted};

const NOBODY: u32 = 65_534;
/// How long a program may take for one thing.
const LIMIT: Duration = Duration::from_secs(20);

/// A program that does not outlive the test, nor its mount.
struct Program {
    child: Child,
    mounted: PathBuf,
}

impl Program {
    fn start(name: &str, arguments: &[&Path], user: Option<u32>) -> Option<Self> {
        let program = example(name)?;
        let mounted = arguments.last()?.to_path_buf();
        let mut command = Command::new(program);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut this = Self { child: command.spawn().expect("starts"), mounted };
        this.wait_for("the mount", |this| {
            if this.child.try_wait().expect("waits").is_some() {
                let mut said = String::new();
                let stderr = this.child.stderr.as_mut().expect("piped");
                stderr.read_to_string(&mut said).expect("text");
                panic!("it ended: {said}");
            }
            is_mounted(&this.mounted)
        });
        Some(this)
    }

    fn wait_for(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + LIMIT;
        while !holds(self) {
            assert!(Instant::now() < end, "never: {what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn interrupt(&mut self) {
        self.signal("-INT");
    }

    fn signal(&mut self, which: &str) {
        let kill = Command::new("kill").arg(which).arg(self.child.id().to_string()).status();
        assert!(kill.expect("kill runs").success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _may_have_ended = self.child.kill();
        let _may_have_ended = self.child.wait();
        if is_mounted(&self.mounted) {
            let _best_effort = Command::new("umount").arg("-l").arg(&self.mounted).status();
        }
    }
}

/// Distributions make /dev/fuse accessible to everybody by a udev rule; a bare kernel does not.
struct DeviceMode(fs::Permissions);

impl DeviceMode {
    fn for_everybody() -> Self {
        let before = fs::metadata("/dev/fuse").expect("a device").permissions();
        if before.mode() & 0o666 != 0o666 {
            println!("chmod 0666 /dev/fuse, for as long as this test runs");
            fs::set_permissions("/dev/fuse", fs::Permissions::from_mode(0o666)).expect("is root");
        }
        Self(before)
    }
}

impl Drop for DeviceMode {
    fn drop(&mut self) {
        let _best_effort = fs::set_permissions("/dev/fuse", self.0.clone());
    }
}

/// The program beside this one's folder, where it was built.
fn example(name: &str) -> Option<PathBuf> {
    let tests = std::env::current_exe().ok()?;
    let path = tests.parent()?.parent()?.join("examples").join(name);
    if !path.exists() {
        println!("SKIPPED: {} was not built", path.display());
        return None;
    }
    Some(path)
}

#[test]
fn ctrl_c_unmounts() {
    if !can_mount() {
        return;
    }
    let (source, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(source.path().join("hello"), "Hello, world!\n").unwrap();
    for (name, arguments) in [("hello", vec![dir.path()]), ("passthrough", vec![source.path(), dir.path()])] {
        let Some(mut program) = Program::start(name, &arguments, None) else { return };
        assert_eq!(fs::read_to_string(dir.path().join("hello")).unwrap(), "Hello, world!\n", "{name}");
        program.interrupt();
        program.wait_for("the end", |this| this.child.try_wait().expect("waits").is_some());
        assert!(program.child.wait().unwrap().success(), "{name}");
        assert!(!is_mounted(dir.path()), "{name}");
    }
}

#[test]
fn a_busy_mount_goes_at_the_second_ctrl_c() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(mut program) = Program::start("null", &[dir.path()], None) else { return };
    let open = fs::File::open(dir.path().join("null")).unwrap();
    program.interrupt();
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_mounted(dir.path()), "busy");
    program.interrupt();
    program.wait_for("the detachment", |this| !is_mounted(&this.mounted));
    assert!(program.child.try_wait().unwrap().is_none(), "what is open is served on");
    drop(open);
    program.wait_for("the end", |this| this.child.try_wait().expect("waits").is_some());
    assert!(program.child.wait().unwrap().success());
}

#[test]
fn an_ordinary_user_mounts_by_fusermount3() {
    if !can_mount() {
        return;
    }
    let fusermount = Path::new("/usr/bin/fusermount3");
    if fs::metadata(fusermount).map_or(true, |found| found.permissions().mode() & 0o4000 == 0) {
        println!("SKIPPED: fusermount3 is not there, or not set-uid");
        return;
    }
    let _opened = DeviceMode::for_everybody();
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let Some(mut program) = Program::start("hello", &[dir.path()], Some(NOBODY)) else { return };
    // Without allow_other even root is kept out.
    let mut look = Command::new("cat");
    look.arg(dir.path().join("hello")).uid(NOBODY).gid(NOBODY);
    assert_eq!(look.output().unwrap().stdout, b"Hello, world!\n");
    assert!(fs::read(dir.path().join("hello")).is_err());
    program.interrupt();
    program.wait_for("the end", |this| this.child.try_wait().expect("waits").is_some());
    assert!(program.child.wait().unwrap().success());
    assert!(!is_mounted(dir.path()));
}

/// SIGHUP comes when a terminal is closed; a server that dies of it would leave a mount that answers nobody.
#[test]
fn the_end_of_a_terminal_unmounts() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(mut program) = Program::start("null", &[folder.path()], None) else { return };
    program.signal("-HUP");
    program.wait_for("the end", |this| this.child.try_wait().unwrap().is_some());
    assert!(!is_mounted(folder.path()));
}

/// Tells the next line that begins so; a program that says nothing is not waited for forever.
fn lines_of(stderr: ChildStderr, begin: &'static str) -> impl Fn() -> String {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stderr).lines().map_while(Result::ok);
        // Nobody may listen any more.
        lines.filter(|line| line.starts_with(begin)).try_for_each(|line| tell.send(line)).unwrap_or_default();
    });
    move || told.recv_timeout(LIMIT).expect("a line in time")
}

/// A file that is open keeps the mount busy: the first signal says so, the second detaches, the third ends it by force.
#[test]
fn three_signals_end_a_busy_mount() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(mut program) = Program::start("null", &[folder.path()], None) else { return };
    let open = fs::File::open(folder.path().join("null")).unwrap();
    program.interrupt();
    let stderr = program.child.stderr.take().unwrap();
    let next = lines_of(stderr, "null: ");
    let said = next();
    assert!(said.contains("is busy") && said.contains("again detaches"), "{said}");
    assert!(is_mounted(folder.path()));
    program.interrupt();
    assert!(next().contains("detached"));
    assert!(!is_mounted(folder.path()));
    if fs::read_dir("/sys/fs/fuse/connections").map_or(0, Iterator::count) == 0 {
        println!("SKIPPED: there is no fusectl, by which a detached mount is ended");
        return;
    }
    program.interrupt();
    assert!(next().contains("by force"));
    program.wait_for("the end", |this| this.child.try_wait().unwrap().is_some());
    let error = std::os::unix::fs::FileExt::read_at(&open, &mut [0; 4096], 0).unwrap_err();
    assert!([Some(103), Some(107)].contains(&error.raw_os_error()), "{error}");
}
