//! Who calls.

use std::fmt;
use std::sync::Arc;

use crate::kernel::{Caller, Kernel};

/// A process that uses the mount: its methods are system calls. Paths start with `/`, which is the root of the mount, and
/// errors are what the calls would give.
///
/// Permissions are not checked: that is what a real kernel does by itself under `default_permissions`. Files have a
/// umask of 022.
#[derive(Clone)]
pub struct Process {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) caller: Caller,
}

impl Process {
    /// Who it is.
    #[must_use]
    pub fn caller(&self) -> Caller {
        self.caller
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("caller", &self.caller).finish_non_exhaustive()
    }
}
