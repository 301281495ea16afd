//! What a program does in the process of its keeper.

use std::os::fd::OwnedFd;

use shuntfs::takeover::KeptMount;

use crate::passing::Relay;

/// What a program does in its keeper besides keeping. The keeper has one thread and waits for nothing but its server: what is done here
/// must be short, start no thread, and leave no descriptor open.
pub trait Attendant {
    /// Callers are served, for the first time.
    fn ready(&mut self, mount: &KeptMount) {
        let _ = mount;
    }

    /// SIGHUP came. Whether it asks to end, as SIGINT and SIGTERM do; if not, it is sent to the server, which must take it. One that comes while
    /// no server lives is for the next one.
    fn hangup_ends(&mut self) -> bool {
        true
    }

    /// An end was asked for, by a signal or by a server ([`Seat::ask_to_end`](crate::Seat::ask_to_end)), for the `asked`-th time.
    fn end(&mut self, mount: &KeptMount, asked: u32) {
        let outcome = mount.end(asked);
        tracing::warn!(%outcome, "a signal came");
    }

    /// Whether the server must be killed, with none after it, and the device closed: nothing else ends the connection. Asked after [`Attendant::end`].
    fn lets_go(&self) -> bool {
        false
    }

    /// How another program goes on instead of this one, which a server has asked for ([`Line::replace`](crate::Line::replace)); `None`
    /// where none can.
    fn relay(&self) -> Option<Relay> {
        None
    }

    /// Tells whoever had asked for another program how that went: at once where it cannot be, and otherwise once callers are served again,
    /// by that one, or by the one before. `asker` is what was given with the question.
    fn answer(&mut self, asker: OwnedFd, outcome: Result<(), String>) {
        drop((asker, outcome));
    }

    /// No server lives, and none follows; the mount goes now, where it is still there.
    fn ends(&mut self, mount: &KeptMount) {
        let _ = mount;
    }
}

/// Nothing besides.
#[derive(Default)]
pub(crate) struct Plain {
    lets_go: bool,
}

impl Attendant for Plain {
    fn end(&mut self, mount: &KeptMount, asked: u32) {
        let outcome = mount.end(asked);
        tracing::warn!(%outcome, "a signal came");
        // Who may not unmount and has no way to abort either.
        self.lets_go = asked > 2 && !mount.has_ended();
    }

    fn lets_go(&self) -> bool {
        self.lets_go
    }
}
