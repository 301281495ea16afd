//! A mount for one test, gone with its guard whatever happens.
//!
//! The order of ending it, each step only when the one before did not do: `umount`; lazily; abort of the connection
//! (which frees every caller); kill of the server by its number. A watchdog does the last two when a test takes longer
//! than it may, so that a hung mount fails its test instead of keeping it forever.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::fusectl::Connection;
use crate::limit::{run_with_timeout, wait_until};
use crate::process::signal;
use crate::program::{Ran, run, wait_for};
use crate::status::Status;
use crate::{say, skipped};

const START_LIMIT: Duration = Duration::from_secs(20);
const STEP_LIMIT: Duration = Duration::from_secs(10);

/// How requests reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One /dev/fuse descriptor.
    Device,
    /// A cloned descriptor for each queue.
    Cloned,
    /// fuse-over-io_uring.
    Uring,
}

impl Transport {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Device, Self::Cloned, Self::Uring];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Cloned => "cloned",
            Self::Uring => "uring",
        }
    }

    /// Says whether this kernel has it, turning its parameter on where needed; the reason is said where not.
    #[must_use]
    pub fn is_available(self) -> bool {
        self != Self::Uring || enable_uring()
    }
}

/// Where the bytes of files flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The kernel moves them.
    Passthrough,
    /// They go through our descriptors unseen: `relay` on a ring, without a copy where the kernel can, `splice` on a device.
    Delegated,
    /// The file system reads and writes them itself.
    Served,
}

impl Flow {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Passthrough, Self::Delegated, Self::Served];

    /// Its name on the command line, which depends on the transport.
    #[must_use]
    pub fn name(self, transport: Transport) -> &'static str {
        match (self, transport) {
            (Self::Passthrough, _) => "passthrough",
            (Self::Delegated, Transport::Uring) => "relay",
            (Self::Delegated, _) => "splice",
            (Self::Served, _) => "served",
        }
    }
}

/// What to mount.
#[derive(Clone, Debug)]
pub struct MountSpec {
    /// The folder to show.
    pub source: PathBuf,
    /// How requests reach the server.
    pub transport: Transport,
    /// Where the bytes flow.
    pub flow: Flow,
    /// Whether other users than the one who mounts get in, which is so where nothing else is asked for.
    pub allow_other: bool,
    /// More arguments for `shunt mount`.
    pub args: Vec<OsString>,
    /// How long the test may take before the watchdog ends the mount.
    pub limit: Duration,
    /// The limit on open descriptors of the server, where not the one of the test.
    pub descriptors: Option<u64>,
    /// A command that the server is started by, as `strace` or `setpriv`; empty for none.
    pub by: Vec<OsString>,
}

impl MountSpec {
    /// A mount with default settings and a watchdog of two minutes.
    #[must_use]
    pub fn new(source: &Path, transport: Transport, flow: Flow) -> Self {
        Self {
            source: source.to_owned(),
            transport,
            flow,
            allow_other: true,
            args: Vec::new(),
            limit: Duration::from_secs(120),
            descriptors: None,
            by: Vec::new(),
        }
    }

    /// Adds arguments for `shunt mount`.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(OsString::from));
        self
    }

    /// Lets nobody in but who mounts.
    #[must_use]
    pub fn alone(mut self) -> Self {
        self.allow_other = false;
        self
    }

    /// Sets the watchdog.
    #[must_use]
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Has the server started by a command.
    #[must_use]
    pub fn by(mut self, command: &[&str]) -> Self {
        self.by = command.iter().map(OsString::from).collect();
        self
    }

    /// Sets the server's limit on open descriptors, soft and hard.
    #[must_use]
    pub fn descriptors(mut self, limit: u64) -> Self {
        self.descriptors = Some(limit);
        self
    }
}

impl fmt::Display for MountSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.transport.name(), self.flow.name(self.transport))
    }
}

/// A running mount.
#[derive(Debug)]
pub struct Mounted {
    target: PathBuf,
    pid: u32,
    child: Option<Child>,
    connection: Connection,
    log: PathBuf,
    bitten: Arc<AtomicBool>,
    /// Dropped after everything else of the mount: the folder must be empty by then.
    watchdog: Option<Watchdog>,
    room: Option<TempDir>,
}

impl Mounted {
    /// Starts `shunt mount -f` and waits until the mount answers; `None` where the kernel lacks the transport.
    ///
    /// # Errors
    /// The server ended, or did not answer inside twenty seconds; the error carries what it wrote.
    pub fn start(spec: &MountSpec) -> Result<Option<Self>> {
        if !Path::new("/dev/fuse").exists() {
            skipped("there is no /dev/fuse");
            return Ok(None);
        }
        if !spec.transport.is_available() {
            return Ok(None);
        }
        let room = tempfile::Builder::new().prefix("shuntfs-mount-").tempdir()?;
        fs::set_permissions(room.path(), Permissions::from_mode(0o755))?;
        let (target, log) = (room.path().join("mnt"), room.path().join("log"));
        fs::create_dir(&target)?;
        let mut child = server(spec, &target, &log)?;
        match wait_for_mount(&mut child, &target) {
            Ok(connection) => {
                let bitten = Arc::new(AtomicBool::new(false));
                let pid = child.id();
                let watchdog = Some(Watchdog::arm(spec.limit, connection, pid, &bitten));
                Ok(Some(Self {
                    target,
                    pid,
                    child: Some(child),
                    connection,
                    log,
                    bitten,
                    watchdog,
                    room: Some(room),
                }))
            }
            Err(error) => {
                let said = fs::read_to_string(&log).unwrap_or_default();
                end(&target, Connection::of(&target).ok().flatten(), &mut child);
                Err(error.context(format!("mount {spec} of {}:\n{said}", spec.source.display())))
            }
        }
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.target
    }

    /// The server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The kernel's connection.
    #[must_use]
    pub fn connection(&self) -> Connection {
        self.connection
    }

    /// Says whether the watchdog had to end the mount.
    #[must_use]
    pub fn was_bitten(&self) -> bool {
        self.bitten.load(Ordering::Acquire)
    }

    /// What the server wrote.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What `shunt status --json` says about it.
    ///
    /// # Errors
    /// The command failed or did not print a document.
    pub fn status(&self) -> Result<Status> {
        let text = shunt(&[&"status", &self.target, &"--json"])?.ok("shunt status")?;
        Ok(Status(serde_json::from_str(&text).with_context(|| format!("not a document: {text}"))?))
    }

    /// Sends the server a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, which: Signal) -> Result<()> {
        signal(self.pid, which)
    }

    /// Waits for the server to end by itself.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let Some(child) = self.child.as_mut() else { return Ok(None) };
        let status = wait_for(child, limit)?;
        if status.is_some() {
            self.child = None;
        }
        Ok(status)
    }

    /// Unmounts as a user would and returns how the server ended.
    ///
    /// # Errors
    /// `umount` failed, or the server stayed.
    pub fn unmount(&mut self) -> Result<ExitStatus> {
        // A file that a process closed a moment ago may still keep it busy.
        let mut last = umount(&self.target, false);
        wait_until(Duration::from_secs(5), || {
            if last.is_err() {
                last = umount(&self.target, false);
            }
            last.is_ok()
        });
        last?;
        self.wait(STEP_LIMIT)?.with_context(|| format!("the server stays after umount:\n{}", self.log()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(&self.target, Some(self.connection), &mut child);
        } else {
            end_mount(&self.target, Some(self.connection));
        }
        drop(self.watchdog.take());
        if let Some(room) = self.room.take() {
            // Never recursively: a mount that did not go away would be emptied with its source.
            drop(fs::remove_dir(&self.target));
            drop(fs::remove_file(&self.log));
            drop(fs::remove_dir(room.path()));
            let _left_on_purpose = room.keep();
        }
        if thread::panicking() {
            say(&format!("the server of the failed test wrote:\n{}", self.log()));
        }
    }
}

/// Runs `shunt` with arguments and a time limit.
///
/// # Errors
/// It is not built, or does not end.
pub fn shunt(args: &[&dyn AsRef<OsStr>]) -> Result<Ran> {
    let mut command = Command::new(shunt_binary()?);
    command.args(args.iter().map(AsRef::as_ref));
    run(&mut command, Duration::from_secs(30))
}

/// The program under test: `SHUNT_BIN`, or the newer one of those beside the running test.
///
/// # Errors
/// It is not built.
pub fn shunt_binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("SHUNT_BIN") {
        return Ok(PathBuf::from(path));
    }
    beside_tests("shunt")?
        .context("shunt is not built; run `cargo build --release -p shunt`, or `cargo xtask test`")
}

/// Turns fuse-over-io_uring on for the whole machine, once, saying so; false with a reason where it is not available.
#[must_use]
pub fn enable_uring() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
        let Ok(value) = fs::read_to_string(PARAMETER) else {
            skipped("this kernel has no fuse-over-io_uring");
            return false;
        };
        if value.trim() == "Y" {
            return true;
        }
        match fs::write(PARAMETER, "Y") {
            Ok(()) => {
                say(&format!("NOTE: wrote Y to {PARAMETER} to test the transport uring"));
                true
            }
            Err(error) => {
                skipped(&format!("fuse-over-io_uring is off and cannot be turned on: {error}"));
                false
            }
        }
    })
}

/// Finds a program that cargo built beside the running test: the newest of `debug` and `release`.
///
/// # Errors
/// The path of the running test is unknown.
pub(crate) fn beside_tests(name: &str) -> Result<Option<PathBuf>> {
    let own = std::env::current_exe()?;
    let profile = own.ancestors().find(|folder| folder.join("deps").is_dir()).map(Path::to_owned);
    let Some(profile) = profile else { return Ok(None) };
    let target = profile.parent().unwrap_or(&profile).to_owned();
    let built = ["release", "debug"].map(|folder| target.join(folder).join(name));
    let dated = built.into_iter().filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)));
    Ok(dated.max_by_key(|(time, _)| *time).map(|(_, path)| path))
}

fn server(spec: &MountSpec, target: &Path, log: &Path) -> Result<Child> {
    let binary = shunt_binary()?;
    let mut command = match (spec.descriptors, spec.by.split_first()) {
        (None, None) => Command::new(&binary),
        (None, Some((program, words))) => {
            let mut command = Command::new(program);
            command.args(words).arg(&binary);
            command
        }
        (Some(limit), _) => {
            // Without that capability even root cannot raise its limit again, as an ordinary user cannot.
            let mut command = Command::new("setpriv");
            command
                .arg("--bounding-set=-sys_resource")
                .arg("prlimit")
                .arg(format!("--nofile={limit}:{limit}"));
            command.arg("--").arg(&binary);
            command
        }
    };
    let log = File::create(log)?;
    command
        .arg("mount")
        .arg(&spec.source)
        .arg(target)
        .args(["-f", "--transport", spec.transport.name(), "--flow", spec.flow.name(spec.transport)])
        .args(spec.allow_other.then_some("--allow-other"))
        .args(&spec.args)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {}", binary.display()))
}

fn wait_for_mount(child: &mut Child, target: &Path) -> Result<Connection> {
    let mut found = None;
    let mut ended = None;
    wait_until(START_LIMIT, || {
        found = Connection::of(target).ok().flatten();
        ended = child.try_wait().ok().flatten();
        found.is_some() || ended.is_some()
    });
    if let Some(status) = ended {
        bail!("the server ended: {status}");
    }
    let connection = found.with_context(|| format!("no mount after {START_LIMIT:?}"))?;
    let path = target.to_owned();
    run_with_timeout(START_LIMIT, "first stat", move || fs::metadata(path))?
        .context("the root does not answer")?;
    Ok(connection)
}

fn end(target: &Path, connection: Option<Connection>, child: &mut Child) {
    end_mount(target, connection);
    if matches!(wait_for(child, Duration::from_secs(5)), Ok(Some(_))) {
        return;
    }
    // It may have ended in this moment.
    drop(child.kill());
    drop(wait_for(child, STEP_LIMIT));
}

fn end_mount(target: &Path, connection: Option<Connection>) {
    if umount(target, false).is_ok() {
        return;
    }
    // From here on the mount did not go in good order; callers that still wait must get their errors.
    drop(umount(target, true));
    if let Some(connection) = connection.filter(|connection| connection.is_alive()) {
        drop(connection.abort());
    }
}

fn umount(target: &Path, lazy: bool) -> Result<()> {
    if Connection::of(target)?.is_none() {
        return Ok(());
    }
    let mut command = Command::new("umount");
    command.args(lazy.then_some("-l")).arg(target);
    run(&mut command, STEP_LIMIT)?.ok("umount").map(drop)
}

/// Ends a mount whose test takes too long.
#[derive(Debug)]
struct Watchdog {
    told: Arc<(Mutex<bool>, Condvar)>,
}

impl Watchdog {
    fn arm(limit: Duration, connection: Connection, pid: u32, bitten: &Arc<AtomicBool>) -> Self {
        let told = Arc::new((Mutex::new(false), Condvar::new()));
        let (heard, bitten) = (Arc::clone(&told), Arc::clone(bitten));
        thread::spawn(move || {
            let (lock, condition) = &*heard;
            let waiting = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = condition.wait_timeout_while(waiting, limit, |ended| !*ended);
            if waited.is_ok_and(|(_, result)| result.timed_out()) {
                bitten.store(true, Ordering::Release);
                say(&format!("WATCHDOG: the mount is ended after {limit:?}"));
                drop(connection.abort());
                drop(signal(pid, Signal::KILL));
            }
        });
        Self { told }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let (lock, condition) = &*self.told;
        *lock.lock().unwrap_or_else(PoisonError::into_inner) = true;
        condition.notify_all();
    }
}
