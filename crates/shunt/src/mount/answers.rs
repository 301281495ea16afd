//! What the server says of itself at its control socket.

use std::path::Path;
use std::sync::Arc;

use super::session::Mounted;
use crate::control::{Answers, Known, Status, Why};

/// Answers for one mount.
#[derive(Debug)]
pub(super) struct SessionAnswers {
    mounted: Arc<Mounted>,
    source: String,
    connection: u64,
}

impl SessionAnswers {
    pub(super) fn new(mounted: Arc<Mounted>, source: &Path, connection: u64) -> Self {
        Self { mounted, source: source.to_string_lossy().into_owned(), connection }
    }
}

impl Answers for SessionAnswers {
    fn status(&self) -> Status {
        let _ = &self.mounted;
        Status { source: self.source.clone(), connection: self.connection, ..Status::default() }
    }
    fn why(&self, node: u64) -> Why {
        Why {
            node,
            known: Known::Expected,
            flow: String::new(),
            meaning: String::new(),
            reason: String::new(),
            reason_meaning: String::new(),
        }
    }
}
