//! What is asked and answered.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use shuntfs_pool::{BranchChange, MoverFacts, MoverNews};

use super::process::ProcessStatus;
use crate::load::Load;
use crate::trace::{TraceNews, TraceQuestion};

/// The longest line that either side reads.
pub(super) const LINE_MAX: usize = 1 << 20;

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
        /// For whom; the rules are not asked where nobody is named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asker: Option<Asker>,
    },
    /// How does it end? Answered twice: at once that it will be told, and when it has ended.
    Farewell,
    /// Have branches come, go or change.
    Branches {
        /// What happens to them.
        change: BranchChange,
    },
    /// Have the mover run once. Answered with news of it until it has ended; it ends early if whoever asked goes.
    Mover {
        /// Whether nothing may be moved.
        #[serde(default)]
        dry_run: bool,
    },
    /// How far is the mover, or how did its last run end?
    MoverStatus,
    /// Which branches would something go to?
    Place {
        /// What is done.
        what: What,
        /// The name.
        at: Spot,
        /// Who does it; root where nobody is named.
        #[serde(default)]
        asker: Asker,
    },
    /// What would become of something that somebody does?
    Would {
        /// What.
        question: Question,
        /// Who does it.
        asker: Asker,
    },
    /// Go on with another program. Answered when callers are served again, by that one or by the one before.
    Upgrade {
        /// Its path.
        #[serde(with = "crate::json::path")]
        program: PathBuf,
    },
    /// What do requests do? Answered with each of them from now on, until whoever asked goes.
    Trace(TraceQuestion),
    /// Which files and processes ask what? Answered with what came since the last time this was asked on this connection. The server
    /// counts until the connection ends; it ends it where far more time passes than said.
    Load {
        /// How soon this will be asked again, in milliseconds.
        interval_ms: u64,
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
    Why(Box<Why>),
    /// To [`Request::Would`].
    Verdict(Box<Verdict>),
    /// To [`Request::Place`]; `None` where there is one folder.
    Place(Option<serde_json::Value>),
    /// To [`Request::Branches`].
    Changed,
    /// To [`Request::Mover`], while it runs.
    News(Box<MoverNews>),
    /// To [`Request::MoverStatus`], and to [`Request::Mover`] at the end; `None` where it did not run since the mount.
    Mover(Option<Box<MoverFacts>>),
    /// To [`Request::Farewell`], at once.
    Waiting,
    /// To [`Request::Farewell`], at the end: what went wrong, if anything.
    Ended(Option<String>),
    /// To [`Request::Upgrade`]: the other program serves.
    Upgraded,
    /// To [`Request::Trace`], again and again.
    Traced(TraceNews),
    /// To [`Request::Load`].
    Load(Box<Load>),
    /// The question made no sense, or not to this asker.
    Error(String),
}

/// The state of a mount.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The server's version.
    pub version: String,
    /// The server's process.
    pub pid: u32,
    /// Where it is mounted; empty once it was detached.
    pub mountpoint: String,
    /// Its bytes in hexadecimal digits, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mountpoint_hex: Option<String>,
    /// The folder that is shown.
    pub folder: String,
    /// Its bytes in hexadecimal digits, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder_hex: Option<String>,
    /// Seconds since the server began.
    pub uptime_s: u64,
    /// The protocol that was agreed on, as `7.45`.
    pub protocol: String,
    /// What the session has done: transport, flows, downgrades, requests.
    pub session: shuntfs::Status,
    /// What the pool holds.
    pub pool: serde_json::Value,
    /// What the server may do.
    #[serde(default)]
    pub rights: RightsStatus,
    /// The image, where one is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<shuntfs_image::ImageStatus>,
    /// The rules, where there are any.
    #[serde(default)]
    pub rules: Option<RuleStatus>,
    /// What is checked against a seal, where anything is.
    #[serde(default)]
    pub verify: Option<VerifyStatus>,
    /// How far the mover is, or how its last run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mover: Option<MoverFacts>,
    /// What the server uses of the machine.
    #[serde(default)]
    pub process: ProcessStatus,
    /// Who sees to it that the mount survives its server, where anybody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub takeover: Option<TakeoverStatus>,
}

/// The servers of a mount that survives them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TakeoverStatus {
    /// The process that starts another server when this one dies, on io_uring when it is replaced; `None` where it is dead itself.
    pub keeper: Option<u32>,
    /// How many servers died before this one. Counters begin anew with each.
    pub replaced: u64,
    /// The program that serves, as the kernel names it; `None` where that cannot be asked.
    #[serde(default)]
    pub program: Option<String>,
    /// Why an upgrade was taken back: another program was to serve, and could not, or its servers died too often. `None` where it still serves, and
    /// where there was none.
    #[serde(default)]
    pub taken_back: Option<String>,
}

/// What a server may do, as the kernel has it.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct RightsStatus {
    /// Its capabilities.
    pub capabilities: Vec<String>,
    /// Whether programs that it starts get no more than it has.
    pub no_new_privileges: bool,
    /// Whether a filter of system calls is in force.
    pub seccomp: bool,
}

impl RightsStatus {
    /// Those of this process, as far as it is a server.
    #[must_use]
    pub fn of_this_process() -> Self {
        let rights = shuntfs_sys::caps::Rights::of_this_thread().unwrap_or_default();
        let shuntfs_sys::caps::Rights { capabilities, no_new_privileges, seccomp } = rights;
        Self { capabilities, no_new_privileges, seccomp }
    }
}

/// The state of a mount's checks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VerifyStatus {
    /// `required` or `if-sealed`.
    pub what: String,
    /// The manifest's digest, which stands for the whole tree.
    pub manifest: String,
    /// How many files are sealed.
    pub files: u64,
    /// Whether it is known to come from who is trusted: by signatures, or by its digest.
    pub trusted: bool,
    /// The trusted keys that have signed it.
    #[serde(default)]
    pub signed_by: Vec<String>,
    /// What its tree is called; none of one that an older version made.
    #[serde(default)]
    pub tree: Option<String>,
    /// Its serial, 0 where it has none.
    #[serde(default)]
    pub serial: u64,
    /// How often another seal was taken since the mount.
    #[serde(default)]
    pub reloads: u64,
    /// Why no other seal was taken when that was last tried; the earlier one holds.
    #[serde(default)]
    pub error: Option<String>,
    /// What was done.
    pub facts: shuntfs_verified::VerifyFacts,
}

/// The state of a mount's rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RuleStatus {
    /// Their file.
    pub file: String,
    /// How many there are.
    pub rules: usize,
    /// How often they were read again.
    pub reloads: u64,
    /// Why they were not read again when that was last tried; the earlier ones hold.
    pub error: Option<String>,
    /// Evaluations that failed and were refused.
    pub failures: u64,
}

/// What a server knows of a node's flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Why {
    /// The node's number.
    pub node: u64,
    /// Whether it is settled, or what an open would give.
    pub known: Known,
    /// The flow.
    pub flow: String,
    /// What that flow means.
    pub meaning: String,
    /// The reason's name.
    pub reason: String,
    /// What the reason means.
    pub reason_meaning: String,
    /// What the rules say, where there are any and somebody was named.
    #[serde(default)]
    pub verdict: Option<Verdict>,
    /// The file's seal, where it has one that the mount checks.
    #[serde(default)]
    pub seal: Option<shuntfs_verified::SealNote>,
}

/// Something that somebody might do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Question {
    /// What.
    pub what: What,
    /// The path below the mount point.
    #[serde(with = "crate::json::path")]
    pub path: PathBuf,
    /// The name, and its folder.
    pub at: Spot,
    /// The node's number, where there is one.
    #[serde(default)]
    pub node: Option<u64>,
    /// Another name that has a part in it: where it is moved to.
    #[serde(default)]
    pub to: Option<Spot>,
}

/// A name in a folder; the folder itself where there is no name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spot {
    /// The folder's number, as the kernel has it.
    pub folder: u64,
    /// The name.
    #[serde(with = "crate::json::path")]
    pub name: PathBuf,
}

/// What somebody might do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum What {
    /// To open a file for reading.
    Read,
    /// To open it for writing.
    Write,
    /// To open it for writing at its end.
    Append,
    /// To give it another length.
    Truncate,
    /// To run it.
    Exec,
    /// To list a folder.
    List,
    /// To make a file.
    Create,
    /// To make a folder.
    Mkdir,
    /// To remove a file or a folder.
    Remove,
    /// To change mode, owner or times.
    Attributes,
    /// To move a file or a folder.
    Rename,
    /// To give a file another name.
    Link,
}

impl What {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Append => "append",
            Self::Truncate => "truncate",
            Self::Exec => "exec",
            Self::List => "list",
            Self::Create => "create",
            Self::Mkdir => "mkdir",
            Self::Remove => "remove",
            Self::Attributes => "attributes",
            Self::Rename => "rename",
            Self::Link => "link",
        }
    }
}

/// Somebody who is asked about.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Asker {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The groups.
    pub groups: Vec<u32>,
    /// The program's path, where it matters.
    #[serde(default)]
    pub exe: Option<String>,
}

/// What rules make of a file for somebody.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Verdict {
    /// Who.
    pub uid: u32,
    /// The file of rules.
    pub file: String,
    /// The paths below the source that it was decided by.
    pub paths: Vec<String>,
    /// The bytes of all of them in hexadecimal digits, if one is not UTF-8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths_hex: Vec<String>,
    /// What happens to each use.
    pub uses: Vec<UseVerdict>,
}

/// What happens to one use of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UseVerdict {
    /// `read`, `write`, `create` and so on.
    pub what: String,
    /// `allowed`, the name of the error that it gets, or `depends` where that depends on the program.
    pub answer: String,
    /// The flow, where it is allowed.
    pub flow: Option<String>,
    /// The policy that places it, where it must be made and a rule names one.
    pub place: Option<String>,
    /// The rules that decided: `NAME (line N)`; none where no rule matches.
    pub rules: Vec<String>,
    /// Why, one after the other.
    pub reasons: Vec<String>,
}

/// How sure an answer is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Known {
    /// The node flows so: it is open, or its backing file is kept for the next open.
    Settled,
    /// The node is not open; this is what an open would give now.
    Expected,
}

/// A status as a server would give it.
#[cfg(test)]
pub(super) fn sample() -> Status {
    let text = r#"{"version":"0.1.0","pid":5,"mountpoint":"/mnt","folder":"/a","uptime_s":1,"protocol":"7.45","session":{
        "path":"/mnt","source":"/a","connection":42,
        "transport":{"kind":"cloned","why":"no io_uring","queues":2,"depth":8,"payload_max":1048576},
        "negotiated":{"minor":45,"flags":0,"max_write":1048576,"max_pages":256,"max_readahead":131072,
            "max_background":64,"congestion_threshold":48,"time_gran":1,"max_stack_depth":1,"ops":0,
            "passthrough_off":null},
        "flows":{"passthrough":3},"downgrades":{},"ops":{"LOOKUP":{"requests":7,"errors":1}},"queues":{"0":7},
        "read_bytes":0,"written_bytes":0,"nodes_open":1,"backing_ids_kept":0,"malformed":0,"panics":0},"pool":null,"rules":null}"#;
    serde_json::from_str(text).expect("is a status")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn the_lines_are_what_the_documentation_says() {
        let line = |request: &Request| serde_json::to_string(request).expect("is plain data");
        assert_eq!(line(&Request::Status), r#"{"ask":"status"}"#);
        assert_eq!(line(&Request::Why { node: 7, asker: None }), r#"{"ask":"why","node":7}"#);
        let why: Request =
            serde_json::from_str(r#"{"node":18446744073709551615,"ask":"why"}"#).expect("parses");
        assert_eq!(why, Request::Why { node: u64::MAX, asker: None });
        assert!(serde_json::from_str::<Request>(r#"{"ask":"stop"}"#).is_err());
    }

    #[test]
    fn a_status_survives_its_way() {
        let reply = Reply::Status(Box::new(sample()));
        let line = serde_json::to_string(&reply).expect("is plain data");
        assert_eq!(serde_json::from_str::<Reply>(&line).expect("parses"), reply);
    }

    #[test]
    fn a_newer_server_may_say_more() {
        let mut value = serde_json::to_value(sample()).expect("is plain data");
        value["new"] = 1.into();
        assert_eq!(serde_json::from_value::<Status>(value).expect("parses"), sample());
    }
}
