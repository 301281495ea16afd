//! A mounted target, which is taken down whatever happens.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::cpu;
use crate::fio;
use crate::process;
use crate::stop::Stop;
use crate::target::{Mounting, Places, Target, fill};

/// A mount that does not answer after this time counts as failed.
const MOUNT_LIMIT: Duration = Duration::from_secs(15);

/// A step of the way down.
const STEP_LIMIT: Duration = Duration::from_secs(10);

/// How often a mount is looked for: a fraction of the fastest mount.
const LOOK: Duration = Duration::from_millis(10);

/// A mounted target.
#[derive(Debug)]
pub(crate) struct Mounted {
    root: PathBuf,
    mounted: bool,
    server: Option<Child>,
    /// Where there is one file alone, its name below the root; empty where the root is that file.
    file: Option<&'static str>,
}

impl Mounted {
    /// Mounts a target and waits until it answers.
    ///
    /// # Errors
    /// When the server ends, says nothing in time, or does not answer; what it said is part of the error.
    pub(crate) fn start(target: &Target, places: &Places, stop: &Stop) -> Result<Self> {
        let Some(words) = target.mounting.words() else { return Self::without_server(target, places, stop) };
        let file = match target.mounting {
            Mounting::FileServer(_) | Mounting::OwnFileServer(_) => Some(""),
            _ => None,
        };
        let mut log = tempfile::tempfile().context("cannot make a temporary file")?;
        let mut command = fill(words, places);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?).process_group(0);
        let server = command.spawn().with_context(|| format!("cannot start `{}`", words.join(" ")))?;
        let mut mounted =
            Self { root: places.mount_point.clone(), mounted: true, server: Some(server), file };
        mounted.wait_until_it_answers(stop).with_context(|| format!("does not mount: {}", said(&mut log)))?;
        Ok(mounted)
    }

    fn without_server(target: &Target, places: &Places, stop: &Stop) -> Result<Self> {
        let mut mounted = Self { root: places.source.clone(), mounted: false, server: None, file: None };
        if matches!(target.mounting, Mounting::Bind) {
            let mut command = Command::new("mount");
            command.arg("--bind").arg(&places.source).arg(&places.mount_point);
            process::run_ok(&mut command, MOUNT_LIMIT, stop)?;
            mounted.root.clone_from(&places.mount_point);
            mounted.mounted = true;
        }
        Ok(mounted)
    }

    /// Returns the folder to work in.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the file that all jobs share.
    pub(crate) fn shared_file(&self) -> PathBuf {
        match self.file {
            Some("") => self.root.clone(),
            Some(name) => self.root.join(name),
            None => self.root.join(fio::large_file(0)),
        }
    }

    /// Returns the processor time that the server has used so far, in seconds.
    pub(crate) fn server_cpu_s(&self) -> Option<f64> {
        cpu::process_s(self.server.as_ref()?.id())
    }

    /// Takes the mount down.
    ///
    /// # Errors
    /// When it had to be forced.
    pub(crate) fn end(mut self) -> Result<()> {
        self.take_down()
    }

    fn wait_until_it_answers(&mut self, stop: &Stop) -> Result<()> {
        let started = Instant::now();
        while mount_device(&self.root).is_none() {
            stop.check()?;
            if let Some(server) = &mut self.server
                && let Some(status) = server.try_wait()?
                && !status.success()
            {
                bail!("the server ended with {status}");
            }
            if started.elapsed() > MOUNT_LIMIT {
                bail!("nothing was mounted within {} s", MOUNT_LIMIT.as_secs());
            }
            std::thread::sleep(LOOK);
        }
        // In a program of its own: a mount that does not answer would hold us, and nothing could end that.
        let mut command = Command::new("ls");
        let folder = if self.file == Some("") { self.root.clone() } else { self.root.join(".") };
        process::run_ok(command.arg("-d").arg(folder), MOUNT_LIMIT, stop)?;
        Ok(())
    }

    fn take_down(&mut self) -> Result<()> {
        if self.file == Some("")
            && let Some(mut server) = self.server.take()
        {
            // Such a server stays when its mount is gone, and takes the mount with it when it is told to end.
            process::terminate(&server);
            if process::wait(&mut server, STEP_LIMIT, &Stop::default()).is_err() {
                process::kill(&mut server);
            }
        }
        let outcome = if std::mem::take(&mut self.mounted) { unmount(&self.root) } else { Ok(()) };
        if let Some(mut server) = self.server.take() {
            let never = Stop::default();
            if process::wait(&mut server, STEP_LIMIT, &never).is_err() {
                process::terminate(&server);
                if process::wait(&mut server, STEP_LIMIT, &never).is_err() {
                    process::kill(&mut server);
                    bail!("the server did not end after its mount was gone, and was killed");
                }
                bail!("the server did not end after its mount was gone until it was told to");
            }
        }
        outcome
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            eprintln!("shunt-bench: {}: {error:#}", self.root.display());
        }
    }
}

/// Unmounts in the usual way, and by force where that fails.
fn unmount(mount_point: &Path) -> Result<()> {
    const TRIES: u32 = 20;
    let never = Stop::default();
    let root = rustix::process::geteuid().is_root();
    let started = Instant::now();
    for _ in 0..TRIES {
        // A try that does not end waits for a server that does not answer: more tries would, too.
        if started.elapsed() > STEP_LIMIT {
            break;
        }
        if mount_device(mount_point).is_none() {
            return Ok(());
        }
        let mut command = if root { Command::new("umount") } else { Command::new("fusermount3") };
        if !root {
            command.arg("-u");
        }
        if process::run_ok(command.arg(mount_point), STEP_LIMIT, &never).is_ok() {
            return Ok(());
        }
        std::thread::sleep(LOOK * 10);
    }
    if let Some(minor) = mount_device(mount_point) {
        // Ends every request with an error, so that nothing stays stuck; it may not be a FUSE mount at all.
        let _ = fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1");
    }
    let mut command = if root { Command::new("umount") } else { Command::new("fusermount3") };
    command.args(if root { ["-l"].iter() } else { ["-uz"].iter() });
    process::run_ok(command.arg(mount_point), STEP_LIMIT, &never)?;
    bail!("was busy and was unmounted by force")
}

/// Returns the minor device number of what is mounted on a folder, if anything is.
fn mount_device(mount_point: &Path) -> Option<u32> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    find_device(&table, &mount_point.to_string_lossy())
}

fn find_device(table: &str, mount_point: &str) -> Option<u32> {
    // Our own mount points have no character that this table would escape.
    let last = table.lines().rfind(|line| line.split(' ').nth(4) == Some(mount_point))?;
    last.split(' ').nth(2)?.split_once(':')?.1.parse().ok()
}

fn said(log: &mut File) -> String {
    let mut text = String::new();
    // Words for a human: what cannot be read does not exist.
    if log.rewind().is_ok() {
        let _ = log.read_to_string(&mut text);
    }
    process::last_lines(&text, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::parse;

    #[test]
    fn the_topmost_mount_is_found() {
        let table = "1 0 0:20 / /a rw - tmpfs t rw\n2 1 0:51 / /a rw - fuse.shunt s rw\n3 1 0:52 / /ab rw - tmpfs t rw\n";
        assert_eq!(find_device(table, "/a"), Some(51));
        assert_eq!(find_device(table, "/b"), None);
    }

    #[test]
    fn a_server_that_fails_is_reported_with_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let mut target = parse("broken=sh -c exit {SRC}{MNT}").unwrap();
        let words = ["sh", "-c", "echo no such device >&2; exit 4"];
        target.mounting = Mounting::Server(words.iter().map(|&word| word.to_owned()).collect());
        let path = || folder.path().to_path_buf();
        let places =
            Places { source: path(), mount_point: path(), work: path(), empty: path(), branches: Vec::new() };
        let error = Mounted::start(&target, &places, &Stop::default()).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("no such device") && text.contains("exit status: 4"), "{text}");
    }
}
