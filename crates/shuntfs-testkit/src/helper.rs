//! The second process: some things (locks between processes, a waiter that is killed, a fault that ends the program)
//! cannot be seen from inside one process.
//!
//! [`Helper::spawn`] starts the program `testkit-helper`, whose `main` is [`serve`]. It says one line for each thing it
//! did and ends when its standard input ends.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::mm::ProtFlags;

use crate::conformance::errno_name;
use crate::program::wait_for;
use crate::raw::{Lock, LockKind, LockOwner, Mapping, lock, test_lock};

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Says where the helper program is; called by each test binary with the path that cargo built it at.
pub fn set_program(path: &str) {
    PROGRAM.get_or_init(|| PathBuf::from(path));
}

/// Returns the helper program: as set, or beside the folder of the running test.
///
/// # Errors
/// It was not built.
pub fn program() -> Result<PathBuf> {
    if let Some(path) = PROGRAM.get() {
        return Ok(path.clone());
    }
    let beside = crate::mounted::beside_tests("testkit-helper")?;
    beside.context("testkit-helper is not built; run `cargo build -p shuntfs-tests`")
}

/// A running helper process; killed when dropped.
#[derive(Debug)]
pub struct Helper {
    child: Child,
    lines: Receiver<String>,
}

impl Helper {
    /// Starts the helper with a verb and its arguments.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn spawn(words: &[&dyn AsRef<OsStr>]) -> Result<Self> {
        let mut child = Command::new(program()?)
            .args(words.iter().map(AsRef::as_ref))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start testkit-helper")?;
        let stdout = child.stdout.take().context("the helper has a standard output")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    /// Waits for the helper's next line.
    ///
    /// # Errors
    /// It said nothing for ten seconds, or it ended.
    pub fn line(&self) -> Result<String> {
        match self.line_within(Duration::from_secs(10))? {
            Some(line) => Ok(line),
            None => bail!("the helper says nothing"),
        }
    }

    /// Waits for the helper's next line, `None` when there was none inside the limit.
    ///
    /// # Errors
    /// The helper ended.
    pub fn line_within(&self, limit: Duration) -> Result<Option<String>> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the helper has ended"),
        }
    }

    /// The helper's process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the helper end, and returns how it ended.
    ///
    /// # Errors
    /// It did not end inside ten seconds.
    pub fn finish(mut self) -> Result<String> {
        drop(self.child.stdin.take());
        let Some(status) = wait_for(&mut self.child, Duration::from_secs(10))? else {
            bail!("the helper stays")
        };
        Ok(ending(status))
    }

    /// Kills the helper and says whether it was gone inside the limit.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn kill(&mut self, limit: Duration) -> Result<bool> {
        self.child.kill()?;
        Ok(wait_for(&mut self.child, limit)?.is_some())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Both fail when it has ended already. A helper stuck in the kernel is left to its connection's abort: waiting
        // for it here would hang the test.
        drop(self.child.kill());
        drop(wait_for(&mut self.child, Duration::from_secs(2)));
    }
}

fn ending(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("signal {signal}"),
        None => format!("exit {}", status.code().unwrap_or(-1)),
    }
}

/// The helper's `main`: does what the arguments say. Returns the exit code.
#[must_use]
pub fn serve() -> i32 {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let Some((verb, rest)) = words.split_first() else {
        return 2;
    };
    let done = match verb.to_str() {
        Some("lock") => serve_lock(rest),
        Some("test-lock") => serve_test(rest),
        Some("append") => serve_append(rest),
        Some("fault") => serve_fault(rest),
        Some("load") => load::serve(rest),
        Some("open-many") => serve_open_many(rest),
        _ => return 2,
    };
    match done {
        Ok(()) => 0,
        Err(error) => {
            said(&format!("error {error:#}"));
            1
        }
    }
}

/// Writes one line and flushes it: the other side waits for it.
fn said(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody listens any more: then nobody misses it.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Blocks until the parent closes our standard input or is gone.
fn until_told() {
    let mut rest = Vec::new();
    drop(std::io::stdin().read_to_end(&mut rest));
}

fn word(words: &[OsString], index: usize) -> Result<&OsStr> {
    words.get(index).map(OsString::as_os_str).with_context(|| format!("argument {index} is missing"))
}

fn text(words: &[OsString], index: usize) -> Result<&str> {
    word(words, index)?.to_str().context("not text")
}

/// `lock OWNER KIND wait|try FILE [START LEN]`: says `asking`, then `held` or the error, then holds it.
fn serve_lock(words: &[OsString]) -> Result<()> {
    let wait = text(words, 2)? == "wait";
    let path = Path::new(word(words, 3)?);
    let fd = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    said("asking");
    let answer = match text(words, 0)? {
        "flock" => flock(&fd, flock_operation(text(words, 1)?, wait)),
        _ => lock(&fd, &record_lock(words, 4)?, wait),
    };
    said(&answer.map_or_else(|error| errno_name(error.raw_os_error()), |()| "held".to_owned()));
    until_told();
    Ok(())
}

/// `test-lock OWNER KIND - FILE START LEN`: says who is in the way.
fn serve_test(words: &[OsString]) -> Result<()> {
    let fd = open(word(words, 3)?, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    said(&match test_lock(&fd, &record_lock(words, 4)?) {
        Ok(None) => "free".to_owned(),
        Ok(Some((kind, start, len, pid))) => format!("{kind:?} {start}+{len} by {pid}"),
        Err(error) => errno_name(error.raw_os_error()),
    });
    Ok(())
}

fn record_lock(words: &[OsString], first: usize) -> Result<Lock> {
    let owner = if text(words, 0)? == "ofd" { LockOwner::Description } else { LockOwner::Process };
    let kind = if text(words, 1)? == "sh" { LockKind::Shared } else { LockKind::Exclusive };
    let number = |index: usize| -> Result<i64> {
        words.get(index).map_or(Ok(0), |word| Ok(word.to_str().unwrap_or_default().parse()?))
    };
    Ok(Lock { owner, kind, start: number(first)?, len: number(first + 1)? })
}

fn flock_operation(kind: &str, wait: bool) -> FlockOperation {
    match (kind, wait) {
        ("sh", true) => FlockOperation::LockShared,
        ("sh", false) => FlockOperation::NonBlockingLockShared,
        (_, true) => FlockOperation::LockExclusive,
        (_, false) => FlockOperation::NonBlockingLockExclusive,
    }
}

/// `append FILE LETTER COUNT`: appends lines of 100 letters, each with one write.
fn serve_append(words: &[OsString]) -> Result<()> {
    let mut file = File::options().append(true).open(word(words, 0)?)?;
    let mut line = text(words, 1)?.repeat(99);
    line.push('\n');
    for _ in 0..text(words, 2)?.parse::<usize>()? {
        let written = file.write(line.as_bytes())?;
        if written != line.len() {
            bail!("a short append of {written}");
        }
    }
    said("done");
    Ok(())
}

/// `fault FILE`: maps a file one page further than it goes and touches that page; never says `survived`.
fn serve_fault(words: &[OsString]) -> Result<()> {
    let file = File::open(word(words, 0)?)?;
    let page = usize::try_from(file.metadata()?.len())?.next_multiple_of(4096);
    let map = Mapping::new(&file, page + 4096, ProtFlags::READ, true)?;
    said(&format!("tail {:?}", map.load(page - 1, 1)));
    said(&format!("survived {:?}", map.load(page, 1)));
    Ok(())
}

/// `open-many FOLDER COUNT`: opens the files `0`, `1`, ... for reading and keeps them open; says each error once.
fn serve_open_many(words: &[OsString]) -> Result<()> {
    let folder = Path::new(word(words, 0)?);
    let mut held = Vec::new();
    let mut errors = std::collections::BTreeMap::<String, usize>::new();
    for index in 0..text(words, 1)?.parse::<usize>()? {
        match File::open(folder.join(index.to_string())) {
            Ok(file) => held.push(file),
            Err(error) => *errors.entry(errno_name(error.raw_os_error().unwrap_or(0))).or_default() += 1,
        }
    }
    said(&format!("{} open, {errors:?}", held.len()));
    until_told();
    Ok(())
}

mod load;
