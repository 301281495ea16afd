//! What is told at the control socket.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde::{Deserialize, Serialize};

use crate::json;

/// What files and processes asked of a mount since it was last told. Where requests are many, these are estimates.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// How long that was, in nanoseconds; 0 in the first answer, which has nothing in it.
    pub lasted_ns: u64,
    /// One request of so many was looked at, in the end.
    pub one_of: u32,
    /// Files and folders: those with the most requests, and those with the most bytes.
    pub files: Vec<FileLoad>,
    /// Processes, likewise.
    pub processes: Vec<ProcessLoad>,
}

/// One file or folder.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct FileLoad {
    /// The path below the mount, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its bytes in hexadecimal digits, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    /// The node's number, where the path is not known.
    pub node: u64,
    /// What was asked.
    pub counts: LoadCounts,
}

/// One process.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessLoad {
    /// Its number; 0 where there is none, or it is not visible.
    pub pid: u32,
    /// What it is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// Its bytes in hexadecimal digits, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm_hex: Option<String>,
    /// The user of its first request.
    pub uid: u32,
    /// What it asked.
    pub counts: LoadCounts,
}

/// What was asked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadCounts {
    /// Requests of all kinds.
    pub requests: u64,
    /// Those that were answered with an error, among them lookups of names that do not exist.
    pub errors: u64,
    /// Opens, among them creations.
    pub opens: u64,
    /// Bytes that were answered to READ. Those that the kernel moves by itself are not in it.
    pub read_bytes: u64,
    /// Bytes that were taken from WRITE, likewise.
    pub written_bytes: u64,
    /// Whether a file was in passthrough, so that there may be bytes that nobody counted.
    pub passthrough: bool,
}

impl LoadCounts {
    /// Bytes of both directions.
    pub(super) fn bytes(&self) -> u64 {
        self.read_bytes.saturating_add(self.written_bytes)
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.requests = self.requests.saturating_add(more.requests);
        self.errors = self.errors.saturating_add(more.errors);
        self.opens = self.opens.saturating_add(more.opens);
        self.read_bytes = self.read_bytes.saturating_add(more.read_bytes);
        self.written_bytes = self.written_bytes.saturating_add(more.written_bytes);
        self.passthrough |= more.passthrough;
    }
}

impl FileLoad {
    pub(super) fn new(path: Option<&[u8]>, node: u64, counts: LoadCounts) -> Self {
        let path = path.map(OsStr::from_bytes);
        Self { path: path.map(json::text), path_hex: path.and_then(json::hex), node, counts }
    }
}

impl ProcessLoad {
    pub(super) fn new(pid: u32, comm: &[u8], uid: u32, counts: LoadCounts) -> Self {
        let comm = Some(OsStr::from_bytes(comm)).filter(|comm| !comm.is_empty());
        Self { pid, comm: comm.map(json::text), comm_hex: comm.and_then(json::hex), uid, counts }
    }
}
