//! The keeper is not the first that the kernel kills where memory is short, and waits for no page of its own when it is needed. Its servers
//! are as they would be without it.

use std::fs;

use shuntfs_sys::{OsError, limits, memory};

const FILE: &str = "/proc/self/oom_score_adj";
const SHELTERED: &str = "-900";

/// What the process was like before.
#[derive(Debug)]
pub(crate) struct Shelter {
    /// How likely it was to be killed, where that was changed.
    score: Option<String>,
    /// Whether its memory was locked here.
    has_locked: bool,
}

impl Shelter {
    /// Shelters this process, as far as it may (`CAP_SYS_RESOURCE`, `CAP_IPC_LOCK` or RLIMIT_MEMLOCK).
    pub(crate) fn take() -> Self {
        let before = fs::read_to_string(FILE).ok();
        let score = match fs::write(FILE, SHELTERED) {
            Ok(()) => before,
            Err(error) => {
                tracing::debug!(%error, "the keeper is as likely to be killed for memory as others");
                None
            }
        };
        Self { score, has_locked: lock() }
    }

    /// Shelters it again, as far as it was.
    pub(crate) fn enter(&self) {
        if self.score.is_some()
            && let Err(error) = fs::write(FILE, SHELTERED)
        {
            tracing::debug!(%error, "the keeper is as likely to be killed for memory as others");
        }
    }

    /// In a child, and before this process becomes another program: it is as its parent was before. It has no memory locked, because a fork hands none on.
    pub(crate) fn leave(&self) {
        if let Some(before) = &self.score
            && let Err(error) = fs::write(FILE, before.trim())
        {
            tracing::warn!(%error, "a server is not the one that is killed where memory is short");
        }
    }
}

impl Drop for Shelter {
    fn drop(&mut self) {
        self.leave();
        if self.has_locked {
            memory::unlock_memory();
        }
    }
}

/// Locks the memory of this process, but where somebody else did, whose business it then is to unlock it.
fn lock() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if locked_kib(&status).is_none_or(|kib| kib > 0) {
        return false;
    }
    match memory::lock_memory() {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!("{}", why_not(error, limits::memlock()));
            false
        }
    }
}

/// How much memory a process has locked, by `/proc/PID/status`.
fn locked_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

fn why_not(error: OsError, limit: Option<u64>) -> String {
    let reason = match limit {
        Some(limit) if matches!(error, OsError::NOMEM | OsError::PERM) => {
            format!("RLIMIT_MEMLOCK allows {limit} bytes, and the keeper has no CAP_IPC_LOCK")
        }
        _ => error.to_string(),
    };
    format!("the keeper's memory is not locked, and may be paged out where memory is short ({reason})")
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn locked_memory_is_read() {
        let status = |text: &str| locked_kib(&format!("Name:\ta\nVmLck:\t{text}\nVmPin:\t       7 kB\n"));
        assert_eq!(status("       0 kB"), Some(0));
        assert_eq!(status("    8192 kB"), Some(8192));
        assert_eq!(status("much"), None);
        assert_eq!(locked_kib("Name:\ta\n"), None);
    }

    #[test]
    fn the_limit_is_named_where_it_is_the_reason() {
        let of = why_not;
        assert!(of(OsError::NOMEM, Some(65_536)).contains("RLIMIT_MEMLOCK allows 65536 bytes"));
        assert!(of(OsError::PERM, Some(0)).contains("RLIMIT_MEMLOCK"));
        assert!(!of(OsError::NOMEM, None).contains("RLIMIT_MEMLOCK"));
        assert!(!of(OsError::INVAL, Some(0)).contains("RLIMIT_MEMLOCK"));
    }
}
