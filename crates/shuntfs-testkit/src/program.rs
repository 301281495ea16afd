//! Programs that tests run: found, run with a time limit, and shown with their output when they fail.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{skipped, tools};

/// Folders that hold programs although an ordinary `PATH` may lack them.
const MORE_FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/local/bin", "/usr/local/sbin"];

/// What a program did.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// Everything it wrote to its standard output.
    pub stdout: String,
    /// Everything it wrote to its standard error.
    pub stderr: String,
}

impl Ran {
    /// Returns the standard output of a program that succeeded.
    ///
    /// # Errors
    /// The program did not exit with 0; the error carries its output.
    pub fn ok(self, what: &str) -> Result<String> {
        if self.status.success() {
            return Ok(self.stdout);
        }
        bail!(
            "{what}: {}\n--- stdout\n{}\n--- stderr\n{}",
            self.status,
            tail(&self.stdout),
            tail(&self.stderr)
        )
    }
}

/// Debian keeps the programs of each version of PostgreSQL in a folder of their own.
const POSTGRESQL: &str = "/usr/lib/postgresql";

/// Looks a program up on `PATH`, in the folders of the system administrator, in that of the newest PostgreSQL, and among those that tests built.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir(POSTGRESQL).into_iter().flatten().flatten();
    let newest = versions.map(|version| version.path().join("bin")).max();
    std::env::split_paths(&path)
        .chain(MORE_FOLDERS.iter().map(PathBuf::from))
        .chain(newest)
        .chain(tools::folder().map(|folder| folder.join("bin")))
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// Says whether all programs are there; names the first missing one as the reason of a skipped test.
#[must_use]
pub fn have(names: &[&str]) -> bool {
    match names.iter().find(|name| find(name).is_none()) {
        None => true,
        Some(name) => {
            skipped(&format!("the program {name} is not installed"));
            false
        }
    }
}

/// Runs a command in its own process group and kills the whole group when `limit` has passed.
///
/// # Errors
/// The command could not be started or did not end inside the limit. A bad exit status is not an error here: see
/// [`Ran::ok`].
pub fn run(command: &mut Command, limit: Duration) -> Result<Ran> {
    let what = format!("{:?}", command.get_program());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {what}"))?;
    let stdout = child.stdout.take().map(drain);
    let stderr = child.stderr.take().map(drain);
    let Some(status) = wait_for(&mut child, limit)? else {
        kill_group(&child);
        bail!("{what}: did not end inside {limit:?}");
    };
    Ok(Ran { status, stdout: collected(stdout), stderr: collected(stderr) })
}

/// Runs a program with arguments and returns its standard output.
///
/// # Errors
/// It could not be started, did not end inside the limit, or failed.
pub fn call(program: &str, args: &[&dyn AsRef<OsStr>], limit: Duration) -> Result<String> {
    let found = find(program).with_context(|| format!("{program} is not installed"))?;
    let mut command = Command::new(found);
    command.args(args.iter().map(AsRef::as_ref));
    run(&mut command, limit)?.ok(program)
}

/// Runs a shell script with `set -eu` inside a folder.
///
/// # Errors
/// As [`call`].
pub fn script(folder: &Path, text: &str, limit: Duration) -> Result<String> {
    let mut command = Command::new("/bin/sh");
    command.arg("-euc").arg(text).current_dir(folder);
    let first = text.trim_start().lines().next().unwrap_or_default();
    run(&mut command, limit)?.ok(&format!("script `{first}` in {}", folder.display()))
}

/// Waits for a child without ever blocking longer than `limit`; `None` when it still runs.
///
/// # Errors
/// The child cannot be waited for.
pub fn wait_for(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

fn kill_group(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // The group may have ended by itself.
        kill_process_group(group, Signal::KILL).unwrap_or_default();
    }
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What arrived before an error is what the program said.
        drop(pipe.read_to_end(&mut bytes));
        bytes
    })
}

fn collected(reader: Option<JoinHandle<Vec<u8>>>) -> String {
    let bytes = reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn tail(text: &str) -> &str {
    const SHOWN: usize = 4000;
    let mut from = text.len().saturating_sub(SHOWN);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn output_and_failure_are_told() {
        let text = script(Path::new("/"), "echo out; echo err >&2", Duration::from_secs(10)).unwrap();
        assert_eq!(text, "out\n");
        let failed =
            script(Path::new("/"), "echo why >&2; exit 3", Duration::from_secs(10)).unwrap_err().to_string();
        assert!(failed.contains("why") && failed.contains('3'), "{failed}");
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let before = Instant::now();
        assert!(script(Path::new("/"), "sleep 60", Duration::from_millis(50)).is_err());
        assert!(before.elapsed() < Duration::from_secs(10));
    }
}
