//! The state of one mount at one moment, as metrics and `shunt top` read it.

use serde::Deserialize;

use crate::control::Status;
use crate::failure::Failure;
use crate::mounts::shown;
use crate::status;

/// The state of one mount. Nothing in it must be obeyed by a terminal: control characters are written out.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    /// The mount point, or what stands for it.
    pub(crate) mount: String,
    /// What its server says; `None` where it does not answer.
    pub(crate) status: Option<Status>,
    /// What it says of its pool, where there is one.
    pub(crate) pool: Option<PoolFacts>,
}

/// What is read of a pool. Servers of other versions may say more, or less.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct PoolFacts {
    pub(crate) nodes: u64,
    pub(crate) descriptors: u64,
    pub(crate) files_moved: u64,
    pub(crate) overdrawn: u64,
    pub(crate) branches: Vec<BranchFacts>,
}

/// What is read of a branch.
#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
pub(crate) struct BranchFacts {
    pub(crate) path: String,
    pub(crate) mounted_read_only: bool,
    pub(crate) total: Option<u64>,
    pub(crate) available: Option<u64>,
    pub(crate) min_free: u64,
    pub(crate) health: String,
    pub(crate) why: Option<String>,
    pub(crate) errors: u64,
    pub(crate) nodes: u64,
    pub(crate) open_files: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) lookup_ns: Option<u64>,
}

impl Snapshot {
    /// Of a mount whose server answered. `status` must be clean.
    pub(crate) fn of(mount: String, status: Status) -> Self {
        let pool = serde_json::from_value(status.pool.clone()).unwrap_or_default();
        Self { mount, status: Some(status), pool }
    }

    /// Of a mount whose server did not answer.
    pub(crate) fn silent(mount: String) -> Self {
        Self { mount, status: None, pool: None }
    }
}

/// What stands for the mount point of a mount that is not in the tree any more, and still serves who has files open.
pub(crate) fn detached(connection: impl std::fmt::Display) -> String {
    format!("(detached {connection})")
}

/// A server's words with every control character written out: it may be another user's.
pub(crate) fn cleaned_status(status: &Status) -> Result<Status, Failure> {
    status::cleaned(status, |_, text| shown(text))
}

#[cfg(test)]
pub(super) fn sample(mount: &str) -> Snapshot {
    Snapshot::of(mount.to_owned(), full_status())
}

/// A status with everything in it that there may be.
#[cfg(test)]
pub(crate) fn full_status() -> Status {
    let text = include_str!("sample.json");
    serde_json::from_str(text).expect("is a status")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_a_server_says_is_clean_before_anything_is_made_of_it() {
        let mut status = full_status();
        status.folder = "/a\u{1b}[31m\nb".into();
        status.session.ops.clear();
        let requests = serde_json::from_str(r#"{"requests":1,"errors":0}"#).expect("is one");
        status.session.ops.insert("READ\u{7}".into(), requests);
        let clean = cleaned_status(&status).expect("is one");
        assert_eq!(clean.folder, "/a\\x1b[31m\\nb");
        assert!(clean.session.ops.contains_key("READ\\x07"), "{:?}", clean.session.ops);
    }

    #[test]
    fn a_mount_without_a_pool_has_none() {
        let status = Status { pool: serde_json::Value::Null, ..full_status() };
        assert!(Snapshot::of("/m".into(), status).pool.is_none());
        assert_eq!(sample("/m").pool.expect("has one").branches.len(), 2);
    }
}
