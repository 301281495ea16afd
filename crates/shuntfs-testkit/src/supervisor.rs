//! Ends a mount from outside, for tests whose own process serves it.
//!
//! A process that serves a mount and uses it cannot be ended from inside where it hangs: the thread that waits for an
//! answer holds the device open, so that not even its death ends the connection. So another process waits: for the end
//! of the test, or for the limit, whichever comes first, and then removes what is still mounted.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::fusectl::Connection;

/// Standard input ends with the process of the test. `umount -f` aborts the connection even where the mount stays busy,
/// and needs no control file system.
const SCRIPT: &str = r#"
    timeout "$1" cat > /dev/null
    if [ $? = 124 ]; then echo "$2 is stuck: its connection is aborted after $1 s" >&2; fi
    if [ -n "$3" ]; then echo 1 > "/sys/fs/fuse/connections/$3/abort"; fi 2> /dev/null
    for round in 1 2 3 4; do
        grep -qF " $2 " /proc/self/mountinfo || break
        umount -f "$2"; umount -l "$2"
    done 2> /dev/null
"#;

/// Watches over a mount until it is dropped, which must be after the mount has ended.
#[derive(Debug)]
pub struct Supervisor(Child);

impl Supervisor {
    /// Ends the mount on `target` after `limit`, and when this process ends.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn of(target: &Path, limit: Duration) -> Result<Self> {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(SCRIPT).arg("supervisor").arg(limit.as_secs().to_string()).arg(target);
        command.args(Connection::of(target)?.map(|connection| connection.number().to_string()));
        // In a group of its own: what ends the tests by Ctrl-C or a time limit must not end it.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        command.spawn().map(Self).context("cannot start a supervisor")
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            kill_process_group(group, Signal::KILL).unwrap_or_default();
        }
        drop(self.0.wait());
    }
}
