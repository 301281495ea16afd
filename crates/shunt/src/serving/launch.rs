//! Starts a server in the background and waits until its mount answers.

use std::ffi::OsString;
use std::io::{self, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use shuntfs_sys::spawn::{self, Push};
use shuntfs_sys::{open, stat};

use super::announce::{News, Outcome, listen};
use crate::bar::Bar;
use crate::failure::Failure;
use crate::mounts::shown;
use crate::patience::within;
use crate::run::complain;

/// How long a server may take to say that it is ready.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long the mount may take to answer then.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// How long a server that failed may take to end.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Starts the server, which is this program with these words, and returns when its mount answers at `place`. A device that
/// was mounted by someone else has no place to ask at.
///
/// # Errors
/// The server's own failure; and where it ends, or the mount does not answer, without a word.
pub(crate) fn launch(words: &[OsString], place: Option<&Path>) -> Result<(), Failure> {
    let mut child =
        start(words).map_err(|error| Failure::new(format!("cannot start the server: {error}")))?;
    let Some(news) = child.stdout.take() else { return Err(Failure::new("cannot listen to the server")) };
    let bar = Arc::new(Bar::waiting("starting the server"));
    let seen = Arc::clone(&bar);
    let hear = move || {
        let mut notes = Vec::new();
        let outcome = listen(BufReader::new(news), |news| match news {
            News::Doing(what) => seen.wait_for(what),
            News::Note(note) => notes.push(note.to_owned()),
        });
        (outcome, notes)
    };
    let heard = within(START_LIMIT, hear);
    bar.end();
    let Some((outcome, notes)) = heard else {
        stop(&mut child);
        return Err(Failure::new(format!(
            "the mount did not start within {} seconds",
            START_LIMIT.as_secs()
        ))
        .hint("what it did until then: --foreground --log debug"));
    };
    notes.iter().for_each(|note| complain(&format!("shunt: note: {note}")));
    match outcome {
        Outcome::Ready => place.map_or(Ok(()), |place| answered(place, &mut child)),
        Outcome::Failed(failure) => {
            let _ended = wait(&mut child);
            Err(failure)
        }
        Outcome::Silence => {
            Err(Failure::new(format!("the server ended before its mount answered: {}", end_of(&mut child)))
                .hint("what it did until then: --foreground --log debug"))
        }
    }
}

/// Checks that the mount answers.
fn answered(place: &Path, child: &mut Child) -> Result<(), Failure> {
    let target = place.to_owned();
    let asked = within(ANSWER_LIMIT, move || {
        let root = open::open_target(&target)?;
        stat::filesystem_of(&root).map(drop)
    });
    let text = match asked {
        Some(Ok(())) => return Ok(()),
        Some(Err(error)) => format!("answers with an error: {}", io::Error::from(error)),
        None => format!("does not answer within {} seconds", ANSWER_LIMIT.as_secs()),
    };
    stop(child);
    Err(Failure::new(format!("the mount at {} {text}", shown(place))))
}

fn start(words: &[OsString]) -> io::Result<Child> {
    Command::new(program()?)
        .arg0("shunt")
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// This very program. A path keeps the process's name readable; where the file was replaced meanwhile, the link
/// in /proc still leads to what runs.
fn program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    Ok(if path.exists() { path } else { PathBuf::from("/proc/self/exe") })
}

/// Asks the server to end, which unmounts, and makes it end where it does not.
fn stop(child: &mut Child) {
    let _ended_already = spawn::push(child.id(), Push::End);
    if wait(child).is_none() {
        // A keeper alone would leave a server that hangs.
        let _leads_none_yet = spawn::kill_group(child.id());
        let _ended_already = child.kill();
    }
}

/// Waits for the end of the server, not forever.
fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let end = std::time::Instant::now() + END_LIMIT;
    while std::time::Instant::now() < end {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

fn end_of(child: &mut Child) -> String {
    match wait(child) {
        None => "it still runs".into(),
        Some(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "for no known reason".into(),
        },
    }
}
