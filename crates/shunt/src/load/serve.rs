//! The server's side: a thread for each who looks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use shuntfs::Trace;

use super::tally::Tally;
use crate::control::{Reply, Request};

/// The longest question.
const QUESTION_MAX: u64 = 1024;
/// Who lets so much more time pass than said does not look any more.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest time between two questions.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Answers one who looks, in a thread of its own, until they go, or ask no more. `trace` counts until then.
pub(crate) fn stream(
    stream: &UnixStream,
    interval: Duration,
    tally: Arc<Tally>,
    trace: Trace,
) -> io::Result<()> {
    let own = stream.try_clone()?;
    let tell = move || -> io::Result<()> {
        let _counts = trace;
        let mut lines = BufReader::new(&own);
        let mut interval = interval;
        loop {
            let mut text = serde_json::to_vec(&Reply::Load(Box::new(tally.take())))?;
            text.push(b'\n');
            (&own).write_all(&text)?;
            own.set_read_timeout(Some(interval.min(INTERVAL_MAX) + PATIENCE))?;
            let mut line = String::new();
            if (&mut lines).take(QUESTION_MAX).read_line(&mut line)? == 0 {
                return Ok(());
            }
            let Ok(Request::Load { interval_ms }) = serde_json::from_str(&line) else { return Ok(()) };
            interval = Duration::from_millis(interval_ms);
        }
    };
    std::thread::Builder::new().name("shunt-load".into()).spawn(tell)?;
    Ok(())
}
