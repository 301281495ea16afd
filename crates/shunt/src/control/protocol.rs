//! What is asked and answered.

use serde::{Deserialize, Serialize};

/// The longest line that either side reads.
pub(super) const LINE_MAX: u64 = 1 << 20;

/// A question to a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
#[non_exhaustive]
pub enum Request {
    /// How is the mount?
    Status,
    /// How do, or would, the bytes of a node flow?
    Why {
        /// The node's number, as the kernel has it.
        node: u64,
    },
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Reply {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// To [`Request::Why`].
    Why(Why),
    /// The question made no sense, or not to this asker.
    Error(String),
}

/// The state of a mount.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The server's version.
    pub version: String,
    /// The server's process.
    pub pid: u32,
    /// The connection's number.
    pub connection: u64,
    /// The folder that is shown.
    pub source: String,
    /// Where it is shown.
    pub mountpoint: String,
    /// Seconds since the mount.
    pub uptime_s: u64,
    /// The protocol that was agreed on, as `7.45`.
    pub protocol: String,
    /// How requests arrive.
    pub transport: TransportStatus,
    /// Opens by settled flow.
    pub flows: Vec<FlowCount>,
    /// Opens that did not get the flow they wished for, by reason.
    pub downgrades: Vec<Downgrade>,
    /// Requests by operation.
    pub operations: Vec<OperationCount>,
    /// Requests by queue.
    pub queues: Vec<QueueCount>,
    /// Other counters by name.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// How requests arrive.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct TransportStatus {
    /// The one in use.
    pub kind: String,
    /// The one that was asked for.
    pub asked: String,
    /// Why it is the one in use.
    pub why: String,
    /// Number of queues.
    pub queues: usize,
    /// What payload memory can become, in bytes.
    pub payload_max: u64,
}

/// Opens by flow.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct FlowCount {
    /// The flow.
    pub flow: String,
    /// Opens so far.
    pub opens: u64,
}

/// Opens that did not get the flow they wished for.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Downgrade {
    /// The reason's name.
    pub reason: String,
    /// What it means, and what to do about it.
    pub meaning: String,
    /// Opens so far.
    pub opens: u64,
}

/// Requests by operation.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct OperationCount {
    /// The operation, as the kernel calls it.
    pub operation: String,
    /// Requests so far.
    pub requests: u64,
    /// Of these, answered with an error.
    pub errors: u64,
}

/// Requests by queue.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct QueueCount {
    /// The queue's number.
    pub queue: usize,
    /// Requests so far.
    pub requests: u64,
}

/// What a server knows of a node's flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Why {
    /// The node's number.
    pub node: u64,
    /// Whether it is open, and so settled, or what an open would give.
    pub known: Known,
    /// The flow.
    pub flow: String,
    /// What that flow means.
    pub meaning: String,
    /// The reason's name.
    pub reason: String,
    /// What the reason means.
    pub reason_meaning: String,
}

/// How sure an answer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Known {
    /// The node is open with this flow.
    Open,
    /// The node is not open; this is what an open would give now.
    Expected,
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_lines_are_what_the_documentation_says() {
        let line = |request: &Request| serde_json::to_string(request).expect("is plain data");
        assert_eq!(line(&Request::Status), r#"{"ask":"status"}"#);
        assert_eq!(line(&Request::Why { node: 7 }), r#"{"ask":"why","node":7}"#);
        let why: Request =
            serde_json::from_str(r#"{"node":18446744073709551615,"ask":"why"}"#).expect("parses");
        assert_eq!(why, Request::Why { node: u64::MAX });
        assert!(serde_json::from_str::<Request>(r#"{"ask":"stop"}"#).is_err());
    }

    #[test]
    fn a_status_of_another_version_still_reads() {
        let reply: Reply =
            serde_json::from_str(r#"{"status":{"pid":5,"transport":{"kind":"uring"},"new":1}}"#)
                .expect("parses");
        let Reply::Status(status) = reply else { panic!("not a status") };
        assert_eq!((status.pid, status.transport.kind.as_str()), (5, "uring"));
    }
}
