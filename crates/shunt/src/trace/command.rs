//! The command.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Map, Value, json};
use shuntfs_sys::mount::MountInfo;

use super::args::TraceArgs;
use super::document::{TraceLine, ns};
use super::news::{TraceNews, TraceQuestion};
use super::serve::PATIENCE;
use super::text;
use crate::control::{AskError, Client};
use crate::failure::Failure;
use crate::json;
use crate::mounts::{self, Mounts, shown};
use crate::run::output_failure;
use crate::{status, umount};

/// Shows requests until the mount is gone, or there were so many.
///
/// # Errors
/// Where there is no such mount, and where its server does not answer or refuses.
pub(crate) fn run(args: &TraceArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let mounts = Mounts::read()?;
    let mount = umount::find(&mounts, &args.mountpoint)?;
    let client = status::client_of(mount)?;
    let place = mount.mount_point.clone();
    let left = args.count.map(u64::from);
    let mut report = Report { out, place, json: args.json, left, has_begun: false, broken: None };
    let ended = client.trace(question(args), &mut |news| report.hear(news));
    if let (None, true, Err(AskError::NoServer)) = (&report.broken, report.has_begun, &ended) {
        cut_off(mount)?;
        // A server that ends may go before it has said so.
        report.hear(TraceNews::Ends);
        return report.broken.map_or(Ok(()), Err);
    }
    match report.broken {
        Some(failure) => Err(failure),
        None => ended.map_err(|error| status::unanswered(mount, &error)),
    }
}

/// What is wrong where the server ended the trace without a word; nothing where the mount is gone.
fn cut_off(mount: &MountInfo) -> Result<(), Failure> {
    let same = |other: &MountInfo| other.id == mount.id && other.dev == mount.dev;
    if !Mounts::read()?.iter().any(same) {
        return Ok(());
    }
    let connection = mounts::connection(mount).unwrap_or_default();
    match Client::of_connection(connection, &Vec::from_iter(mounts::owner(mount))) {
        Ok(_lives) => Err(Failure::new(format!(
            "the server ended the trace: its output was not read for {} s",
            PATIENCE.as_secs()
        ))),
        Err(error) => Err(status::unanswered(mount, &error)),
    }
}

fn question(args: &TraceArgs) -> TraceQuestion {
    TraceQuestion {
        operations: args.op.iter().map(|opcode| opcode.name().into()).collect(),
        pid: args.pid,
        path: args.path.clone(),
        slower_than_ns: args.slower_than.map_or(0, ns),
        errors: args.errors,
    }
}

struct Report<'o> {
    out: &'o mut dyn Write,
    place: PathBuf,
    json: bool,
    /// How many requests are still to be shown.
    left: Option<u64>,
    has_begun: bool,
    /// Why something could not be printed.
    broken: Option<Failure>,
}

impl Report<'_> {
    /// Whether to go on.
    fn hear(&mut self, news: TraceNews) -> bool {
        self.has_begun = true;
        let line = if self.json { self.json_line(&news) } else { self.text_line(&news) };
        if let Some(line) = line
            && let Err(error) = writeln!(self.out, "{line}").and_then(|()| self.out.flush())
        {
            // Where nobody reads any more this ends the program.
            self.broken = Some(output_failure(&error));
            return false;
        }
        if let (TraceNews::Request(_), Some(left)) = (&news, &mut self.left) {
            *left -= 1;
        }
        self.left != Some(0)
    }

    fn text_line(&self, news: &TraceNews) -> Option<String> {
        match news {
            TraceNews::Begins => Some(format!(
                "# requests of {} as they are answered, times in UTC; what the kernel moves by itself (passthrough) is not shown",
                shown(&self.place)
            )),
            TraceNews::Request(line) => Some(text::line(line)),
            TraceNews::Dropped(count) => Some(format!("# {count} requests are missing: they came too fast")),
            TraceNews::Ends => Some("# the mount has ended".into()),
        }
    }

    fn json_line(&self, news: &TraceNews) -> Option<String> {
        let document = match news {
            TraceNews::Begins => {
                let mut begin = Map::from_iter([
                    ("event".to_owned(), "begin".into()),
                    ("shows_passthrough".to_owned(), false.into()),
                ]);
                json::name(&mut begin, "mountpoint", &self.place);
                Value::Object(begin)
            }
            TraceNews::Request(line) => request(line)?,
            TraceNews::Dropped(count) => json!({ "event": "dropped", "count": count }),
            TraceNews::Ends => json!({ "event": "end" }),
        };
        json::line(&document).ok()
    }
}

fn request(line: &TraceLine) -> Option<Value> {
    let mut document = serde_json::to_value(line).ok()?;
    let fields = document.as_object_mut()?;
    fields.insert("event".into(), "request".into());
    Some(document)
}
