//! The keeper is not the first that the kernel kills where memory is short; its servers are as likely as they would be without it.

use std::fs;

const FILE: &str = "/proc/self/oom_score_adj";
const SHELTERED: &str = "-900";

/// What the process was like before.
#[derive(Debug)]
pub(crate) struct Shelter(Option<String>);

impl Shelter {
    /// Shelters this process, where it may (`CAP_SYS_RESOURCE`).
    pub(crate) fn take() -> Self {
        let before = fs::read_to_string(FILE).ok();
        match fs::write(FILE, SHELTERED) {
            Ok(()) => Self(before),
            Err(error) => {
                tracing::debug!(%error, "the keeper is as likely to be killed for memory as others");
                Self(None)
            }
        }
    }

    /// In a child: it is as its parent was before.
    pub(crate) fn leave(&self) {
        if let Some(before) = &self.0
            && let Err(error) = fs::write(FILE, before.trim())
        {
            tracing::warn!(%error, "a server is not the one that is killed where memory is short");
        }
    }
}

impl Drop for Shelter {
    fn drop(&mut self) {
        self.leave();
    }
}
