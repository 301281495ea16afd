//! A program that mounts, gone with its guard whatever happens.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use shuntfs_testkit::fusectl::Connection;
use shuntfs_testkit::limit::wait_until;
use shuntfs_testkit::mounted::Transport;
use shuntfs_testkit::program::{run, script, wait_for};
use shuntfs_testkit::supervisor::Supervisor;
use tempfile::TempDir;

const START_LIMIT: Duration = Duration::from_secs(20);
const STEP_LIMIT: Duration = Duration::from_secs(20);

/// A mounted file system of somebody else's.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    dir: TempDir,
    log: PathBuf,
    /// After the mount: a caller that waits for a stuck server can only be freed from outside.
    supervisor: Option<Supervisor>,
}

/// In which way a program is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    /// By which ordinary user; by root where not said.
    pub(crate) user: Option<u32>,
    /// How many threads take requests; as many as the program does by itself where not said.
    pub(crate) queues: Option<u32>,
}

impl Default for How {
    fn default() -> Self {
        // Programs that take one call at a time must read several descriptors nonetheless.
        Self { user: None, queues: Some(2) }
    }
}

impl Server {
    /// Starts `program` with words that are made of the mount point, and waits for its mount, which is ended after `limit`.
    pub(crate) fn start(
        program: &Path,
        transport: Option<Transport>,
        limit: Duration,
        words: impl FnOnce(&Path) -> Vec<String>,
    ) -> Result<Self> {
        Self::start_by(How::default(), program, transport, limit, words)
    }

    /// The same, in another way.
    pub(crate) fn start_by(
        how: How,
        program: &Path,
        transport: Option<Transport>,
        limit: Duration,
        words: impl FnOnce(&Path) -> Vec<String>,
    ) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (point, log) = (dir.path().join("mount"), dir.path().join("log"));
        std::fs::create_dir(&point)?;
        let out = File::create(&log)?;
        let mut command = Command::new(program);
        command
            .args(words(&point))
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .process_group(0);
        command.env("RUST_LOG", "error");
        if let Some(queues) = how.queues {
            command.env("SHUNTFS_FUSER_QUEUES", queues.to_string());
        }
        if let Some(transport) = transport {
            command.env("SHUNTFS_FUSER_TRANSPORT", transport.name());
        }
        if let Some(user) = how.user {
            std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
            chown(&point, Some(user), Some(user))?;
            command.uid(user).gid(user);
        }
        let child = command.spawn().with_context(|| program.display().to_string())?;
        let mut server = Self { child, dir, log, supervisor: None };
        let point = server.path();
        let mounted = || Connection::of(&point).is_ok_and(|found| found.is_some());
        if !wait_until(START_LIMIT, mounted) {
            bail!("{}: no mount: {}", program.display(), server.said());
        }
        server.supervisor = Some(Supervisor::of(&point, limit)?);
        Ok(server)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    pub(crate) fn join(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path().join(name.as_ref())
    }

    /// What the program wrote.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Runs a script in the mount.
    pub(crate) fn script(&self, text: &str) -> Result<String> {
        script(&self.path(), text, STEP_LIMIT).with_context(|| format!("the server said: {}", self.said()))
    }

    /// Unmounts as its ordinary user, by fusermount3; the program is to end by itself and well.
    pub(crate) fn end_as(mut self, user: u32) -> Result<()> {
        let mut command = Command::new("fusermount3");
        run(command.arg("-u").arg(self.path()).uid(user).gid(user), STEP_LIMIT)?.ok("fusermount3 -u")?;
        self.has_ended(true)
    }

    /// Unmounts; the program is to end by itself and well, where it is one that ends.
    pub(crate) fn end(mut self, ends: bool) -> Result<()> {
        run(Command::new("umount").arg(self.path()), STEP_LIMIT)?.ok("umount")?;
        self.has_ended(ends)
    }

    fn has_ended(&mut self, ends: bool) -> Result<()> {
        if ends {
            let status = wait_for(&mut self.child, STEP_LIMIT)?;
            ensure!(
                status.is_some_and(|status| status.success()),
                "it ended with {status:?}: {}",
                self.said()
            );
        }
        ensure!(Connection::of(&self.path())?.is_none(), "it is still mounted");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let point = self.path();
        if matches!(Connection::of(&point), Ok(None)) {
            // Some go on without a mount.
        } else if run(Command::new("umount").arg(&point), STEP_LIMIT).is_ok_and(|ran| ran.status.success()) {
        } else {
            drop(run(Command::new("umount").arg("-f").arg(&point), STEP_LIMIT));
            drop(run(Command::new("umount").arg("-l").arg(&point), STEP_LIMIT));
        }
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            kill_process_group(group, Signal::KILL).unwrap_or_default();
        }
        drop(wait_for(&mut self.child, STEP_LIMIT));
    }
}
