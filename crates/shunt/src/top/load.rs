//! Which files and processes cause what happens.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde::Serialize;

use crate::control::{FileLoad, LoadCounts, ProcessLoad};
use crate::json;
use crate::mounts::shown;

/// What files and processes asked, the busiest first.
#[derive(Clone, Default, PartialEq, Debug, Serialize)]
pub(super) struct Load {
    /// One request of so many was looked at, and stands for as many.
    pub(super) one_of: u32,
    pub(super) files: Vec<File>,
    pub(super) processes: Vec<Process>,
}

/// One file or folder.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct File {
    /// Its path below the mount, or what stands for it.
    pub(super) path: String,
    #[serde(flatten)]
    pub(super) rates: Rates,
}

/// One process.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Process {
    /// 0 where there is none, or it is not visible.
    pub(super) pid: u32,
    pub(super) comm: String,
    pub(super) uid: u32,
    #[serde(flatten)]
    pub(super) rates: Rates,
}

/// What was asked, by the second.
#[derive(Clone, Copy, Default, PartialEq, Debug, Serialize)]
pub(super) struct Rates {
    pub(super) ops_per_s: f64,
    pub(super) errors_per_s: f64,
    pub(super) opens_per_s: f64,
    /// `None` where a file was in passthrough, and the server moved nothing.
    pub(super) read_bytes_per_s: Option<f64>,
    pub(super) written_bytes_per_s: Option<f64>,
    /// Whether there may be more bytes, in passthrough.
    pub(super) passthrough: bool,
}

impl Load {
    /// What was told, by the second; `None` where nothing was yet.
    pub(super) fn of(told: &crate::control::Load) -> Option<Self> {
        let by_second = Rates::of(told.lasted_ns)?;
        let file = |file: &FileLoad| File { path: path_of(file), rates: by_second(&file.counts) };
        let process = |process: &ProcessLoad| Process {
            pid: process.pid,
            comm: comm_of(process),
            uid: process.uid,
            rates: by_second(&process.counts),
        };
        let mut files: Vec<File> = told.files.iter().map(file).collect();
        let mut processes: Vec<Process> = told.processes.iter().map(process).collect();
        // Equals have an order, too.
        files.sort_by(|one, other| one.path.cmp(&other.path));
        processes.sort_by_key(|process| process.pid);
        sort(&mut files, |file| file.rates);
        sort(&mut processes, |process| process.rates);
        Some(Self { one_of: told.one_of, files, processes })
    }

    /// Whether bytes flowed by that the server did not see.
    pub(super) fn has_passthrough(&self) -> bool {
        self.files.iter().map(|file| file.rates).any(|rates| rates.passthrough)
            || self.processes.iter().map(|process| process.rates).any(|rates| rates.passthrough)
    }
}

impl Rates {
    /// How counts of so many nanoseconds are rates.
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn of(lasted_ns: u64) -> Option<impl Fn(&LoadCounts) -> Self> {
        let seconds = Some(lasted_ns as f64 / 1e9).filter(|seconds| *seconds > 0.0)?;
        let rate = move |count: u64| count as f64 / seconds;
        Some(move |counts: &LoadCounts| {
            let bytes = |count: u64| (count > 0 || !counts.passthrough).then(|| rate(count));
            Self {
                ops_per_s: rate(counts.requests),
                errors_per_s: rate(counts.errors),
                opens_per_s: rate(counts.opens),
                read_bytes_per_s: bytes(counts.read_bytes),
                written_bytes_per_s: bytes(counts.written_bytes),
                passthrough: counts.passthrough,
            }
        })
    }

    fn bytes_per_s(&self) -> f64 {
        self.read_bytes_per_s.unwrap_or_default() + self.written_bytes_per_s.unwrap_or_default()
    }
}

/// First what has the largest share: of the requests or of the bytes, whichever is larger. One long READ is as busy as many short ones.
fn sort<T>(all: &mut [T], rates: impl Fn(&T) -> Rates) {
    let sum = |of: fn(&Rates) -> f64| all.iter().map(|one| of(&rates(one))).sum::<f64>().max(1e-9);
    let (requests, bytes) = (sum(|rates| rates.ops_per_s), sum(Rates::bytes_per_s));
    let share = |one: &T| {
        let rates = rates(one);
        (rates.ops_per_s / requests).max(rates.bytes_per_s() / bytes)
    };
    all.sort_by(|one, other| share(other).total_cmp(&share(one)));
}

/// A name as no terminal obeys it: the server may be another user's, and names anybody's.
fn text(name: &Option<String>, hex: &Option<String>) -> Option<String> {
    json::bytes(name, hex).map(|bytes| shown(OsStr::from_bytes(&bytes)))
}

fn path_of(file: &FileLoad) -> String {
    match text(&file.path, &file.path_hex) {
        Some(path) if path.is_empty() => "/".to_owned(),
        Some(path) => path,
        None => format!("(node {})", file.node),
    }
}

fn comm_of(process: &ProcessLoad) -> String {
    match (text(&process.comm, &process.comm_hex), process.pid) {
        (Some(comm), _) => comm,
        (None, 0) => "(kernel)".to_owned(),
        (None, _) => "-".to_owned(),
    }
}

#[cfg(test)]
pub(super) mod test {
    use super::*;

    /// Two seconds in which a file was read, names were looked for, and one file was opened in passthrough.
    pub(in crate::top) fn told() -> crate::control::Load {
        let counts = |requests, read_bytes, passthrough| LoadCounts {
            requests,
            read_bytes,
            opens: 2,
            passthrough,
            ..LoadCounts::default()
        };
        let file = |path: &[u8], counts| FileLoad {
            path: Some(json::text(OsStr::from_bytes(path))),
            path_hex: json::hex(OsStr::from_bytes(path)),
            counts,
            ..FileLoad::default()
        };
        let process = |pid, comm: &str, counts| ProcessLoad {
            pid,
            comm: Some(comm.into()).filter(|comm: &String| !comm.is_empty()),
            counts,
            ..ProcessLoad::default()
        };
        crate::control::Load {
            lasted_ns: 2_000_000_000,
            one_of: 4,
            files: vec![
                file(b"evil\x1b[2J\n\xff", counts(10, 0, false)),
                file(b"", counts(50, 0, false)),
                file(b"big", counts(4, 8192, false)),
                file(b"passed", counts(5, 0, true)),
                FileLoad { node: 7, counts: counts(3, 0, false), ..FileLoad::default() },
            ],
            processes: vec![
                process(0, "", counts(1, 0, false)),
                process(11, "cat\u{1b}c", counts(80, 8192, true)),
            ],
        }
    }

    #[test]
    fn the_largest_share_is_first_and_no_name_is_obeyed() {
        let load = Load::of(&told()).expect("something was told");
        let paths: Vec<&str> = load.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["big", "/", r"evil\x1b[2J\n\xff", "passed", "(node 7)"]);
        let comms: Vec<&str> = load.processes.iter().map(|process| process.comm.as_str()).collect();
        assert_eq!(comms, [r"cat\x1bc", "(kernel)"]);
        let big = load.files[0].rates;
        assert_eq!((big.read_bytes_per_s, big.written_bytes_per_s), (Some(4096.0), Some(0.0)));
        assert!((big.ops_per_s - 2.0).abs() < 1e-9 && (big.opens_per_s - 1.0).abs() < 1e-9);
    }

    /// Zero would be a lie.
    #[test]
    fn bytes_in_passthrough_are_not_known() {
        let load = Load::of(&told()).expect("something was told");
        let passed = load.files[3].rates;
        assert_eq!((passed.read_bytes_per_s, passed.passthrough), (None, true));
        // It read another file, too.
        let process = load.processes[0].rates;
        assert_eq!((process.read_bytes_per_s, process.written_bytes_per_s), (Some(4096.0), None));
        assert!(process.passthrough && load.has_passthrough());
    }

    #[test]
    fn the_first_answer_is_none() {
        assert_eq!(Load::of(&crate::control::Load::default()), None);
    }
}
