//! What a caller of poll(2) waits for.

use bitflags::bitflags;

bitflags! {
    /// What a file is ready for, or what a caller waits for, in the numbers of poll(2).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct PollEvents: u32 {
        /// There are bytes to be read (`POLLIN`).
        const IN = 0x1;
        /// There is something exceptional (`POLLPRI`).
        const PRIORITY = 0x2;
        /// Bytes can be written (`POLLOUT`).
        const OUT = 0x4;
        /// An error (`POLLERR`).
        const ERROR = 0x8;
        /// The other side has gone (`POLLHUP`).
        const HANGUP = 0x10;
        /// There is ordinary data (`POLLRDNORM`), which select(2) and epoll(7) ask for beside `IN`.
        const READ_NORMAL = 0x40;
        /// Ordinary data can be written (`POLLWRNORM`).
        const WRITE_NORMAL = 0x100;
        /// Other numbers of this machine.
        const _ = !0;
    }
}

/// Arguments of POLL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poll {
    /// What the caller waits for.
    pub events: PollEvents,
    /// Who waits, to be told by [`crate::Notifier::poll`] once when this changes; `None` where nobody does.
    pub waiter: Option<PollHandle>,
}

/// Somebody who polls an open file. The same for all polls of one file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PollHandle(pub(crate) u64);
