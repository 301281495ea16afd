//! One request as a line for people, much as strace shows a system call.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use super::document::TraceLine;
use crate::json::bytes;
use crate::mounts::shown;

/// The line, without its end. Names have their control characters written out.
pub(super) fn line(of: &TraceLine) -> String {
    let mut text = format!("{} {:>7} ", time(of.time_us), of.pid);
    let caller = bytes(&of.comm, &of.comm_hex).map_or_else(|| "-".to_owned(), |comm| name(&comm));
    let _ = write!(text, "{:<16}", format!("{caller}({})", of.uid));
    let _ = write!(text, " {} {}", shown(&of.op), what(of));
    if let Some(range) = range(of) {
        let _ = write!(text, " {range}");
    }
    if let Some(flow) = &of.flow {
        let _ = write!(text, " {}", shown(flow));
    }
    let _ = write!(text, " = {} <{}>", outcome(of), seconds(of.duration_ns));
    text
}

/// What it is done to.
fn what(of: &TraceLine) -> String {
    let path = bytes(&of.path, &of.path_hex);
    let own = bytes(&of.name, &of.name_hex);
    let mut text = match (path, own) {
        (Some(path), _) if path.is_empty() => "/".to_owned(),
        (Some(path), _) => name(&path),
        (None, Some(own)) => format!("{} in node {}", name(&own), of.node),
        (None, None) if of.node == 0 => "-".to_owned(),
        (None, None) => format!("node {}", of.node),
    };
    if let Some(xattr) = bytes(&of.xattr, &of.xattr_hex) {
        let _ = write!(text, " xattr {}", name(&xattr));
    }
    if let Some(to) = bytes(&of.to, &of.to_hex) {
        let _ = write!(text, " -> {}", name(&to));
    }
    if let Some(branch) = bytes(&of.branch, &of.branch_hex) {
        let _ = write!(text, " on {}", name(&branch));
    }
    text
}

fn range(of: &TraceLine) -> Option<String> {
    match (of.offset, of.size) {
        (Some(offset), Some(size)) => Some(format!("{size}@{offset}")),
        (Some(offset), None) => Some(format!("@{offset}")),
        (None, Some(size)) => Some(format!("size {size}")),
        (None, None) => None,
    }
}

fn outcome(of: &TraceLine) -> String {
    match (&of.errno, of.moved, of.linked) {
        (Some(errno), ..) => shown(errno),
        (None, Some(moved), _) => moved.to_string(),
        (None, None, true) => "?".to_owned(),
        (None, None, false) => "0".to_owned(),
    }
}

/// A name; in quotes where it has a space, so that it is one word.
fn name(bytes: &[u8]) -> String {
    let text = shown(OsStr::from_bytes(bytes));
    if text.is_empty() || text.contains(' ') || text.contains('"') { format!("{text:?}") } else { text }
}

/// The time of the day, in UTC.
fn time(us: u64) -> String {
    let (seconds, us) = (us / 1_000_000, us % 1_000_000);
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{us:06}", seconds % 60)
}

fn seconds(ns: u64) -> String {
    let time = Duration::from_nanos(ns);
    format!("{}.{:06}", time.as_secs(), time.subsec_micros())
}

#[cfg(test)]
mod test {
    use super::*;

    fn base() -> TraceLine {
        TraceLine {
            time_us: 50_591_201_334,
            duration_ns: 41_700,
            op: "LOOKUP".into(),
            pid: 4711,
            comm: Some("cat".into()),
            uid: 1000,
            node: 5,
            ..TraceLine::default()
        }
    }

    #[test]
    fn lines_say_what_was_done_to_what_by_whom_and_how_it_went() {
        let lookup = TraceLine {
            path: Some("a/b".into()),
            name: Some("b".into()),
            errno: Some("ENOENT".into()),
            ..base()
        };
        assert_eq!(line(&lookup), "14:03:11.201334    4711 cat(1000)        LOOKUP a/b = ENOENT <0.000041>");
        let read = TraceLine {
            op: "READ".into(),
            path: Some("f".into()),
            offset: Some(8192),
            size: Some(4096),
            moved: Some(100),
            flow: Some("served".into()),
            branch: Some("/disk".into()),
            ..base()
        };
        assert!(
            line(&read).ends_with("READ f on /disk 4096@8192 served = 100 <0.000041>"),
            "{}",
            line(&read)
        );
        let linked = TraceLine { moved: None, linked: true, ..read };
        assert!(line(&linked).contains(" = ? "), "{}", line(&linked));
        let unknown = TraceLine { name: Some("b".into()), ..base() };
        assert!(line(&unknown).contains("LOOKUP b in node 5 = 0"), "{}", line(&unknown));
        let root = TraceLine { op: "STATFS".into(), path: Some(String::new()), ..base() };
        assert!(line(&root).contains("STATFS / = 0"), "{}", line(&root));
    }

    #[test]
    fn no_name_moves_the_cursor() {
        let evil = TraceLine {
            path: Some("a \u{1b}[2J\n\u{9b}\u{fffd}".into()),
            path_hex: Some("61201b5b324a0ac29bff".into()),
            comm: Some("\r\u{7}".into()),
            to: Some("\u{1b}]0;x\u{7}".into()),
            op: "A\u{1b}".into(),
            errno: Some("\u{1b}c".into()),
            flow: Some("\u{1b}c".into()),
            ..base()
        };
        let text = line(&evil);
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert!(text.contains(r"\x1b[2J"), "{text}");
    }
}
