//! What a program does in the process of its keeper.

use shuntfs::takeover::KeptMount;

/// What a program does in its keeper besides keeping. The keeper has one thread and waits for nothing but its server: what is done here
/// must be short, start no thread, and leave no descriptor open.
pub trait Attendant {
    /// Callers are served, for the first time.
    fn ready(&mut self, mount: &KeptMount) {
        let _ = mount;
    }

    /// SIGHUP came. Whether it asks to end, as SIGINT and SIGTERM do.
    fn hangup_ends(&mut self) -> bool {
        true
    }

    /// An end was asked for, by a signal or by a server ([`Seat::ask_to_end`](crate::Seat::ask_to_end)), for the `asked`-th time.
    fn end(&mut self, mount: &KeptMount, asked: u32) {
        let outcome = mount.end(asked);
        tracing::warn!(%outcome, "a signal came");
    }

    /// No server lives, and none follows; the mount goes now, where it is still there.
    fn ends(&mut self, mount: &KeptMount) {
        let _ = mount;
    }
}

/// Nothing besides.
pub(crate) struct Plain;

impl Attendant for Plain {}
