//! One request as JSON: at the control socket, and in the output.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use shuntfs::TraceRecord;

use crate::json;

/// One request. Names that are no UTF-8 have their bytes in hexadecimal digits, too (`.._hex`): the text alone may be that of another.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceLine {
    /// When it came, in microseconds since 1970.
    pub time_us: u64,
    /// How long it took, to the moment before the answer was sent.
    pub duration_ns: u64,
    /// The operation's name.
    pub op: String,
    /// Its number in this connection.
    pub unique: u64,
    /// The queue that served it.
    pub queue: usize,
    /// The caller's thread; 0 where there is none, or it is not visible.
    pub pid: u32,
    /// What that thread is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm: Option<String>,
    /// The same in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comm_hex: Option<String>,
    /// The caller's uid.
    pub uid: u32,
    /// The caller's gid.
    pub gid: u32,
    /// The node's number: that of the folder, for what is done to a name.
    pub node: u64,
    /// The path below the mount, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The same in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
    /// The branch that it is on, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The same in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch_hex: Option<String>,
    /// The name in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The same in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_hex: Option<String>,
    /// The name of the extended attribute in the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xattr: Option<String>,
    /// The same in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xattr_hex: Option<String>,
    /// Where it is moved to, or what a symlink leads to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The same in hexadecimal digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_hex: Option<String>,
    /// The node that was found or made, or that is linked or copied to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
    /// Where it begins, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// How many bytes were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// How many bytes were answered or taken, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<u64>,
    /// How the file's bytes flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<String>,
    /// The error's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<String>,
    /// Whether the answer left with the bytes, in the kernel: how it ended is not known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub linked: bool,
    /// Whether a name was too long, and ends with `…` in place of its rest.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

impl TraceLine {
    /// What is told of a record.
    #[must_use]
    pub fn of(record: &TraceRecord) -> Self {
        let (comm, comm_hex) = text(Some(&record.comm).filter(|comm| !comm.is_empty()));
        let (path, path_hex) = text(record.path().as_ref());
        let branch = record.place.as_ref().and_then(|place| place.branch.as_ref());
        let (branch, branch_hex) = text(branch);
        let (name, name_hex) = text(record.name.as_ref().filter(|_| !record.is_attribute));
        let (xattr, xattr_hex) = text(record.name.as_ref().filter(|_| record.is_attribute));
        let (to, to_hex) = text(record.second_path().as_ref().or(record.second.as_ref()));
        let since = record.began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            time_us: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
            duration_ns: ns(record.duration),
            op: record
                .operation()
                .map_or_else(|| format!("UNKNOWN_{}", record.opcode), |op| op.name().into()),
            unique: record.unique,
            queue: record.queue,
            pid: record.pid,
            comm,
            comm_hex,
            uid: record.uid,
            gid: record.gid,
            node: record.node,
            path,
            path_hex,
            branch,
            branch_hex,
            name,
            name_hex,
            xattr,
            xattr_hex,
            to,
            to_hex,
            found: record.found,
            offset: record.offset,
            size: record.len,
            moved: record.moved,
            flow: record.flow.map(|flow| flow.name().into()),
            errno: record.errno.map(|errno| errno.to_string()),
            linked: record.is_linked,
            cut: record.is_cut,
        }
    }
}

pub(super) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A name, and its bytes in hexadecimal digits where it is no UTF-8.
fn text(bytes: Option<&Vec<u8>>) -> (Option<String>, Option<String>) {
    let name = bytes.map(|bytes| OsStr::from_bytes(bytes));
    (name.map(json::text), name.and_then(json::hex))
}
