//! A folder with images and what they are shown as; nothing of it outlives the test.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::common::{Ran, SHUNT, Server, can_mount, eventually, is_alive, run, servers_of, shunt, signal};

/// How long a test may take before its servers are ended, so that whoever waits for them gets an error.
const LIMIT: Duration = Duration::from_secs(180);

/// One test at a time: a process that another test starts has our open files until it is another program, and an export
/// that is open is busy.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub(crate) struct Desk {
    _alone: MutexGuard<'static, ()>,
    folder: tempfile::TempDir,
    done: Arc<AtomicBool>,
}

impl Desk {
    /// `None`, and why on standard error, where the test cannot run.
    pub(crate) fn new(programs: &[&str]) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        for program in programs {
            if !on_path(program) {
                eprintln!("SKIPPED: there is no {program} (Debian: qemu-utils, qemu-system-x86, e2fsprogs)");
                return None;
            }
        }
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let desk =
            Self { _alone: alone, folder: tempfile::tempdir().expect("a folder"), done: Arc::default() };
        let (path, done) = (desk.path(), Arc::clone(&desk.done));
        std::thread::spawn(move || {
            let end = Instant::now() + LIMIT;
            while Instant::now() < end {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            eprintln!("the test took more than {LIMIT:?}: its servers are ended");
            servers_of(&path).into_iter().for_each(kill);
        });
        Some(desk)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("is there")
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A raw image with the same byte in every place of a block, another one in the next.
    pub(crate) fn raw(&self, name: &str, len: u64) -> PathBuf {
        let path = self.at(name);
        let file = std::fs::File::create_new(&path).expect("makes");
        file.set_len(len).expect("is long");
        for block in 0..(len / 65536).min(16) {
            let byte = u8::try_from(block % 251 + 1).expect("small");
            file.write_all_at(&[byte; 4096], block * 65536).expect("writes");
        }
        path
    }

    pub(crate) fn qemu_img(&self, words: &str) -> Ran {
        run(Command::new("qemu-img").args(words.split(' ')).current_dir(self.path()))
    }

    /// Exports, in the background.
    #[track_caller]
    pub(crate) fn export(&self, flags: &str, image: &str, file: &str) -> Export<'_> {
        self.try_export(flags, image, file).ok();
        Export { desk: self, file: self.at(file) }
    }

    pub(crate) fn try_export(&self, flags: &str, image: &str, file: &str) -> Ran {
        let flags = flags.split(' ').filter(|flag| !flag.is_empty());
        run(Command::new(SHUNT).arg("export").args(flags).arg(self.at(image)).arg(self.at(file)))
    }

    /// Exports in the foreground, and waits until it answers.
    pub(crate) fn export_in_foreground(&self, flags: &str, image: &str, file: &str) -> Server {
        let flags = flags.split(' ').filter(|flag| !flag.is_empty());
        let mut command = Command::new(SHUNT);
        command.arg("export").arg("--foreground").args(flags).arg(self.at(image)).arg(self.at(file));
        let log = self.at("stderr");
        let err = std::fs::File::create(&log).expect("makes");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(err).spawn().expect("starts");
        let server = Server::new(child, log);
        let file = self.at(file);
        eventually("the export answers", || {
            shunt(["status".as_ref(), file.as_os_str()]).code == Some(0) || !is_alive(server.id())
        });
        assert!(is_mounted(&file), "{}", server.log());
        server
    }

    /// Mounts the ext4 that is on an exported disk, and makes and removes files in it. It is whole before and afterwards.
    #[track_caller]
    pub(crate) fn fill_file_system_of(&self, export: &Export<'_>) {
        let is_whole = || run(tool("e2fsck").args(["-f", "-n"]).arg(export.file())).ok();
        is_whole();
        let folder = self.at("inside");
        std::fs::create_dir(&folder).expect("makes");
        run(tool("mount").args(["-o", "loop"]).arg(export.file()).arg(&folder)).ok();
        for number in 0_u8..40 {
            let bytes: Vec<u8> =
                (0..50_000).map(|at| number ^ u8::try_from(at % 251).expect("small")).collect();
            std::fs::write(folder.join(format!("file{number}")), bytes).expect("writes");
        }
        std::fs::remove_file(folder.join("file7")).expect("removes");
        run(tool("umount").arg(&folder)).ok();
        is_whole();
    }

    /// Nothing that QEMU finds wrong with an image.
    #[track_caller]
    pub(crate) fn is_sound(&self, image: &str) {
        self.qemu_img(&format!("check -f qcow2 {image}")).ok();
    }

    /// Two images hold the same disk.
    #[track_caller]
    pub(crate) fn are_equal(&self, one: (&str, &str), other: (&str, &str)) {
        self.qemu_img(&format!("compare -f {} -F {} {} {}", one.0, other.0, one.1, other.1)).ok();
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        for place in mounts_below(&self.path()) {
            let _ = Command::new("umount").arg("-f").arg(&place).stderr(Stdio::null()).status();
            let _ = Command::new("umount").arg("-l").arg(&place).stderr(Stdio::null()).status();
        }
        servers_of(&self.path()).into_iter().for_each(kill);
    }
}

fn kill(pid: u32) {
    let _ = Command::new("kill").arg("-KILL").arg(pid.to_string()).stderr(Stdio::null()).status();
}

/// The mount points below a folder, the innermost first.
fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    let places = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut places: Vec<PathBuf> = places.filter(|place| place.starts_with(folder)).collect();
    places.reverse();
    places
}

pub(crate) fn is_mounted(file: &Path) -> bool {
    mounts_below(file).iter().any(|place| place == file)
}

pub(crate) fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(sbin).any(|folder| folder.join(program).is_file())
}

/// A program that is in sbin, maybe not on the PATH.
pub(crate) fn tool(program: &str) -> Command {
    let mut command = Command::new(program);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}

/// A loop device, given back.
pub(crate) struct LoopDevice(pub(crate) String);

impl LoopDevice {
    /// `None`, and why on standard error, where there is none available.
    pub(crate) fn over(file: &Path) -> Option<Self> {
        let ran = run(tool("losetup").args(["--find", "--show"]).arg(file));
        if ran.code != Some(0) {
            eprintln!("SKIPPED: no loop device: {}", ran.err);
            return None;
        }
        Some(Self(ran.out.trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = tool("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// An image that is shown.
pub(crate) struct Export<'d> {
    desk: &'d Desk,
    file: PathBuf,
}

impl Export<'_> {
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    pub(crate) fn len(&self) -> u64 {
        std::fs::metadata(&self.file).expect("answers").len()
    }

    pub(crate) fn open(&self) -> std::fs::File {
        std::fs::File::options().read(true).write(true).open(&self.file).expect("opens")
    }

    pub(crate) fn open_read(&self) -> std::fs::File {
        std::fs::File::open(&self.file).expect("opens")
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        let ran = shunt(["status".as_ref(), "--json".as_ref(), self.file.as_os_str()]).ok();
        serde_json::from_str(&ran.out).expect("JSON")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.status()["pid"].as_u64().and_then(|pid| pid.try_into().ok()).expect("has a process")
    }

    /// Reads through QEMU, past the page cache.
    #[track_caller]
    pub(crate) fn qemu_io(&self, command: &str) -> Ran {
        let cache = ["-t", "none", "-f", "raw", "-c"];
        run(Command::new("qemu-io").args(cache).arg(command).arg(&self.file))
    }

    /// Takes it away, and waits for its end.
    #[track_caller]
    pub(crate) fn umount(self) -> Ran {
        let pid = self.pid();
        let ran = shunt(["umount".as_ref(), self.file.as_os_str()]);
        if ran.code == Some(0) {
            assert!(!is_mounted(&self.file));
            eventually("the server ends", || !is_alive(pid));
        }
        ran
    }

    /// Ends the server in the middle of whatever it does.
    pub(crate) fn kill(self) {
        let pid = self.pid();
        signal(pid, "KILL");
        eventually("the server is gone", || !is_alive(pid));
        let _ = Command::new("umount").arg("-l").arg(&self.file).stderr(Stdio::null()).status();
        assert!(self.desk.path().is_dir());
    }
}
