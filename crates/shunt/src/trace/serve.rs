//! The server's side: a thread for each who looks.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use globset::GlobMatcher;
use shuntfs::{Opcode, Trace, TraceFilter, TraceRecord, Traced};
use shuntfs_sys::caps::Rights;

use super::args::glob;
use super::document::TraceLine;
use super::news::{TraceNews, TraceQuestion};
use crate::control::{Farewell, Reply};

/// How often it is checked whether whoever looks is still there.
const LOOK: Duration = Duration::from_millis(500);
/// How long whoever looks may take to read what is sent, before it is ended.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// So many requests are sent at once.
const BATCH: usize = 256;

/// Whether somebody may see what callers do: root, and the server's own user, unless the server has capabilities. Without any, that user may
/// trace the process of the server and see it all there. With some, he may not, and names may come by that he could not see himself.
pub(crate) fn may_trace(peer: u32, own: u32) -> Result<(), &'static str> {
    let has_capabilities = Rights::of_this_thread().is_none_or(|rights| !rights.capabilities.is_empty());
    decide(peer, own, has_capabilities)
}

fn decide(peer: u32, own: u32, has_capabilities: bool) -> Result<(), &'static str> {
    match (peer == 0, peer == own) {
        (true, _) => Ok(()),
        (false, true) if !has_capabilities => Ok(()),
        (false, true) => {
            Err("only root may trace it: the server has capabilities that its user does not have")
        }
        (false, false) => Err("only the user of the mount and root may ask"),
    }
}

/// The filter that a question asks for; what `asker` does itself is left out, as its output may go to the mount.
///
/// # Errors
/// What is wrong with the question.
pub(crate) fn filter(question: &TraceQuestion, asker: u32) -> Result<TraceFilter, String> {
    let operation = |name: &String| {
        let found = Opcode::ALL.iter().find(|opcode| opcode.name() == name);
        found.copied().ok_or_else(|| format!("an operation that this server does not know: {name}"))
    };
    let operations = question.operations.iter().map(operation).collect::<Result<Vec<_>, _>>()?;
    let path =
        question.path.as_deref().map(|text| glob(text).map(|glob| glob.compile_matcher())).transpose()?;
    let matches = move |record: &TraceRecord| {
        let is_asked = |path: &GlobMatcher| {
            record.path().is_some_and(|known| path.is_match(Path::new(OsStr::from_bytes(&known))))
        };
        record.pid != asker && path.as_ref().is_none_or(is_asked)
    };
    Ok(TraceFilter {
        operations,
        process: question.pid,
        slower_than: Duration::from_nanos(question.slower_than_ns),
        errors: question.errors,
        matches: Some(Arc::new(matches)),
        ..TraceFilter::default()
    })
}

/// Tells an asker of each request, in a thread of its own, until the connection ends or the asker goes.
pub(crate) fn stream(stream: &UnixStream, mut trace: Trace, end: &Arc<Farewell>) -> io::Result<()> {
    let own = stream.try_clone()?;
    let end = Arc::clone(end);
    let tell = move || -> io::Result<()> {
        // The process stays until this has told of the end.
        let _listens = end.listen();
        own.set_write_timeout(Some(PATIENCE))?;
        own.set_read_timeout(Some(Duration::from_millis(1)))?;
        send(&own, &[TraceNews::Begins])?;
        loop {
            let mut news: Vec<TraceNews> = trace.next_within(LOOK).and_then(news_of).into_iter().collect();
            while news.len() < BATCH
                && let Some(next) = trace.next_within(Duration::ZERO)
            {
                news.extend(news_of(next));
            }
            if news.is_empty() {
                if trace.has_ended() {
                    return send(&own, &[TraceNews::Ends]);
                }
                if matches!((&own).read(&mut [0; 1]), Ok(0)) {
                    return Ok(());
                }
            }
            send(&own, &news)?;
        }
    };
    std::thread::Builder::new().name("shunt-trace".into()).spawn(tell)?;
    Ok(())
}

fn news_of(traced: Traced) -> Option<TraceNews> {
    match traced {
        Traced::Record(record) => Some(TraceNews::Request(Box::new(TraceLine::of(&record)))),
        Traced::Dropped(count) => Some(TraceNews::Dropped(count)),
        _ => None,
    }
}

fn send(mut stream: &UnixStream, news: &[TraceNews]) -> io::Result<()> {
    let mut text = Vec::new();
    for one in news {
        serde_json::to_writer(&mut text, &Reply::Traced(one.clone()))?;
        text.push(b'\n');
    }
    stream.write_all(&text)
}

#[cfg(test)]
mod test {
    use super::*;

    /// A server with capabilities sees what its user may not see.
    #[test]
    fn who_may_look_is_who_could_look_into_the_server() {
        for (peer, own, has_capabilities, may) in [
            (0, 0, true, true),
            (0, 1000, true, true),
            (1000, 1000, false, true),
            (1000, 1000, true, false),
            (1001, 1000, false, false),
            (1000, 0, false, false),
        ] {
            assert_eq!(decide(peer, own, has_capabilities).is_ok(), may, "{peer} {own} {has_capabilities}");
        }
    }

    #[test]
    fn questions_that_make_no_sense_are_refused() {
        let question = TraceQuestion { operations: vec!["REED".into()], ..TraceQuestion::default() };
        assert!(filter(&question, 1).is_err_and(|why| why.contains("REED")));
        let question = TraceQuestion { path: Some("[".into()), ..TraceQuestion::default() };
        assert!(filter(&question, 1).is_err());
        let question = TraceQuestion { operations: vec!["READ".into()], ..TraceQuestion::default() };
        assert_eq!(filter(&question, 1).expect("makes sense").operations, [Opcode::Read]);
    }
}
