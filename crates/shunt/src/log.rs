//! Where the server logs: standard error in the foreground, a file, or the system log in the background.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Mutex;

use shuntfs_sys::OsError;
use shuntfs_sys::open::open_to_append;
use tracing::Level;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::failure::Failure;
use crate::settings::{LevelChoice, Settings};

/// The socket of the system log.
const SYSTEM_LOG: &str = "/dev/log";

/// Starts logging.
///
/// # Errors
/// Where the log file cannot be opened.
pub(crate) fn start(settings: &Settings, foreground: bool) -> Result<(), Failure> {
    let (sink, stamped) = match &settings.log_file {
        Some(path) => {
            let file = log_file(path).map_err(|error| {
                Failure::new(format!("cannot log to {}: {error}", path.display()))
                    .hint("name another one with --log-file")
            })?;
            (Sink::File(file), true)
        }
        // The journal stamps what a service writes.
        None if foreground => (Sink::Stderr, std::env::var_os("JOURNAL_STREAM").is_none()),
        None => (Sink::System(system_log()), false),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level(settings.log))
        .with_ansi(false)
        .with_target(false)
        .with_timer(Stamp(stamped))
        .with_writer(Lines(Mutex::new(sink)))
        .finish();
    // A second start (in one test process) keeps the first one's log.
    let _already_set = tracing::subscriber::set_global_default(subscriber);
    std::panic::set_hook(Box::new(|panic| tracing::error!("a defect of shunt: {panic}")));
    Ok(())
}

/// Whether what is logged in the background gets anywhere.
pub(crate) fn has_system_log() -> bool {
    system_log().is_some()
}

/// A FIFO would keep the server waiting for a reader: when it is opened, and whenever the reader is slow.
fn log_file(path: &Path) -> io::Result<File> {
    open_to_append(path, 0o640).map(File::from).map_err(|error| match error {
        OsError::NXIO | OsError::PIPE => {
            io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe, not a file")
        }
        error => error.into(),
    })
}

fn level(choice: LevelChoice) -> Level {
    match choice {
        LevelChoice::Error => Level::ERROR,
        LevelChoice::Warn => Level::WARN,
        LevelChoice::Info => Level::INFO,
        LevelChoice::Debug => Level::DEBUG,
        LevelChoice::Trace => Level::TRACE,
    }
}

fn system_log() -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(SYSTEM_LOG).ok()?;
    // A log that is not read must not stop the mount.
    socket.set_nonblocking(true).ok()?;
    Some(socket)
}

#[derive(Debug)]
enum Sink {
    Stderr,
    File(File),
    /// The system log, where there is one.
    System(Option<UnixDatagram>),
}

struct Stamp(bool);

impl FormatTime for Stamp {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        if self.0 { SystemTime.format_time(writer) } else { Ok(()) }
    }
}

struct Lines(Mutex<Sink>);

struct Line<'a> {
    lines: &'a Lines,
    severity: u8,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line { lines: self, severity: 6 }
    }

    fn make_writer_for(&'a self, metadata: &tracing::Metadata<'_>) -> Line<'a> {
        // The severities of syslog(3).
        let severity = match *metadata.level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        Line { lines: self, severity }
    }
}

impl Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let Ok(mut sink) = self.lines.0.lock() else { return Ok(text.len()) };
        match &mut *sink {
            Sink::Stderr => io::stderr().write_all(text)?,
            Sink::File(file) => file.write_all(text)?,
            Sink::System(Some(socket)) => {
                let _full = socket.send(&syslog_line(self.severity, text));
            }
            Sink::System(None) => {}
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One datagram of RFC 3164 without its time, which the receiver stamps; facility 3 is "daemon".
fn syslog_line(severity: u8, text: &[u8]) -> Vec<u8> {
    let mut line = format!("<{}>shunt[{}]: ", 3 * 8 + severity, std::process::id()).into_bytes();
    line.extend_from_slice(text.trim_ascii());
    line
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_line_of_the_system_log_has_its_priority_and_process() {
        let line = String::from_utf8(syslog_line(4, b" WARN careful\n")).expect("is text");
        assert_eq!(line, format!("<28>shunt[{}]: WARN careful", std::process::id()));
    }
}
