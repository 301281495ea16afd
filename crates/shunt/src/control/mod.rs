//! The control socket of a server: how `status`, `why` and `list` ask a running mount.
//!
//! One Unix socket a mount, `/run/shunt/ID` for root and `$XDG_RUNTIME_DIR/shunt/ID` for others, where ID is
//! the connection's number (the minor of the mount's `st_dev`); `/run/user/UID` and `/tmp/shunt-UID` stand in where that
//! variable names no folder of the user's own. The name can be found without touching the
//! mount, so that a stuck one can still be asked. Requests and replies are one line of JSON each. The socket
//! has mode 0600, and the server answers only its own user and root.

mod client;
mod farewell;
mod place;
mod process;
mod protocol;
mod server;

pub use client::{AskError, Awaited, Client};
pub use farewell::{Farewell, Listener};
pub(crate) use place::remove_left;
pub use place::{SocketFile, folders_of, sockets, sweep};
pub use process::ProcessStatus;
pub use protocol::{
    Asker, Known, Question, Reply, Request, RightsStatus, RuleStatus, Spot, Status, TakeoverStatus,
    UseVerdict, Verdict, VerifyStatus, What, Why,
};
pub(crate) use server::NO_KEEPER;
pub use server::{Answers, Server, answer_upgrade};

pub use crate::load::{FileLoad, Load, LoadCounts, ProcessLoad};
pub use crate::trace::{TraceLine, TraceNews, TraceQuestion};
