//! Runs programs under a time limit.
//!
//! Every program gets a process group of its own, so that a Ctrl-C at the terminal reaches us alone (we take the mounts
//! down in order) and so that one kill ends a program with all its children. Output goes to unnamed files, not pipes: a
//! grandchild that keeps a pipe open could hold us forever.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use crate::stop::Stop;

/// How often a wait looks at the stop flag, should the signal have hit another thread.
const LOOK: Duration = Duration::from_millis(100);

/// How long a killed program may take to go; one that is stuck in a dead mount goes when that mount is aborted.
const GRACE: Duration = Duration::from_secs(3);

/// What a program that ended left behind.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) elapsed: Duration,
}

/// Runs a program to its end.
///
/// # Errors
/// When it cannot be started, exceeds the limit, or `stop` is set; a failing exit status is not an error here.
pub(crate) fn run(command: &mut Command, limit: Duration, stop: &Stop) -> Result<Ended> {
    let what = describe(command);
    let mut stdout = tempfile::tempfile().context("cannot make a temporary file")?;
    let mut stderr = tempfile::tempfile().context("cannot make a temporary file")?;
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?).process_group(0);
    let started = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot start `{what}`"))?;
    let outcome = wait(&mut child, limit, stop);
    let elapsed = started.elapsed();
    if outcome.is_err() {
        kill(&mut child);
    }
    let status = outcome.with_context(|| format!("`{what}`"))?;
    Ok(Ended { status, stdout: contents(&mut stdout)?, stderr: contents(&mut stderr)?, elapsed })
}

/// Runs a program to its end and takes a failing exit status for an error, with what the program said.
pub(crate) fn run_ok(command: &mut Command, limit: Duration, stop: &Stop) -> Result<Ended> {
    let what = describe(command);
    let ended = run(command, limit, stop)?;
    if !ended.status.success() {
        bail!("`{what}` ended with {}: {}", ended.status, last_lines(&ended.stderr, &ended.stdout));
    }
    Ok(ended)
}

/// Waits for a child's end.
pub(crate) fn wait(child: &mut Child, limit: Duration, stop: &Stop) -> Result<ExitStatus> {
    let pidfd = pidfd_open(pid_of(child)?, PidfdFlags::empty()).context("pidfd_open")?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        stop.check()?;
        let Some(left) = limit.checked_sub(started.elapsed()) else {
            bail!("took longer than {} s and was killed", limit.as_secs());
        };
        let timeout = Timespec::try_from(left.min(LOOK)).context("time limit")?;
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("poll"),
        }
    }
}

/// Ends a child and its process group, and gives up waiting for one that cannot be killed.
pub(crate) fn kill(child: &mut Child) {
    if let Ok(pid) = pid_of(child) {
        // The group is gone when all of it has ended: nothing to do then.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = wait(child, GRACE, &Stop::default());
}

/// Asks a child's process group to end.
pub(crate) fn terminate(child: &Child) {
    if let Ok(pid) = pid_of(child) {
        let _ = kill_process_group(pid, Signal::TERM);
    }
}

/// Makes a command that the kernel ends when we are killed and cannot do it ourselves, where there is `setpriv`.
pub(crate) fn bound(mut words: impl Iterator<Item = String>) -> Command {
    let mut command = if on_path("setpriv") {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        command
    } else {
        Command::new(words.next().unwrap_or_default())
    };
    command.args(words);
    command
}

/// Looks a program up on the PATH.
pub(crate) fn on_path(name: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Returns the last words of a program that failed.
pub(crate) fn last_lines(stderr: &str, stdout: &str) -> String {
    let text = if stderr.trim().is_empty() { stdout } else { stderr };
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let from = lines.len().saturating_sub(3);
    if lines.is_empty() { "(it said nothing)".to_owned() } else { lines[from..].join(" / ") }
}

fn pid_of(child: &Child) -> Result<Pid> {
    let raw = i32::try_from(child.id()).context("process id")?;
    Pid::from_raw(raw).context("process id 0")
}

fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

fn contents(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_hangs_is_killed_at_the_limit() {
        let started = Instant::now();
        let error = run(Command::new("sleep").arg("60"), Duration::from_millis(200), &Stop::default());
        assert!(error.is_err());
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_set_stop_flag_ends_the_wait() {
        let stop = Stop::default();
        stop.set();
        let error = run(Command::new("sleep").arg("60"), Duration::from_mins(1), &stop).unwrap_err();
        assert!(format!("{error:#}").contains("interrupted"), "{error:#}");
    }

    #[test]
    fn a_failure_carries_what_the_program_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such luck >&2; exit 3"]);
        let error = run_ok(&mut command, Duration::from_secs(10), &Stop::default()).unwrap_err();
        assert!(error.to_string().contains("no such luck"), "{error}");
    }

    #[test]
    fn output_is_returned() {
        let mut command = Command::new("echo");
        command.arg("words");
        let ended = run_ok(&mut command, Duration::from_secs(10), &Stop::default()).unwrap();
        assert_eq!(ended.stdout, "words\n");
    }
}
