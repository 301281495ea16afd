//! POLL.

use crate::macros::{flag_set, layout, wire_struct};

flag_set! {
    /// Flags of POLL.
    pub struct PollFlags: u32 {
        /// Tell by [`crate::Notification::Poll`] when it changes.
        const SCHEDULE_NOTIFY = 1 << 0;
    }
}

wire_struct! {
    /// Arguments of POLL.
    pub struct PollIn {
        /// The open file.
        pub fh: u64,
        /// The kernel's number for it, to be repeated by the notification.
        pub kh: u64,
        /// Whether to notify.
        pub flags: PollFlags,
        /// `POLL*`: what the caller waits for.
        pub events: u32,
    }
}

layout!(PollIn, 24, kh @ 8, flags @ 16, events @ 20);

wire_struct! {
    /// The answer to POLL.
    pub struct PollOut {
        /// `POLL*`: what it is ready for.
        pub revents: u32,
        /// Zero.
        pub padding: u32,
    }
}

layout!(PollOut, 8);
