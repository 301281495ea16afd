//! Tells a service manager how the server is: the datagrams of sd_notify(3).

use std::io;
use std::time::Duration;

use shuntfs_sys::passing::Datagrams;

/// How long a datagram waits for room: the manager may be slow, and must not hold up a mount.
const PATIENCE: Duration = Duration::from_secs(2);

/// The mount answers.
pub(crate) fn ready(status: &str) {
    send(&format!("READY=1\nMAINPID={}\nSTATUS={}", std::process::id(), status.replace('\n', " ")));
}

/// The mount is being removed.
pub(crate) fn stopping(status: &str) {
    send(&format!("STOPPING=1\nSTATUS={}", status.replace('\n', " ")));
}

/// How things are.
pub(crate) fn status(status: &str) {
    send(&format!("STATUS={}", status.replace('\n', " ")));
}

fn send(message: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return };
    let sent = Datagrams::to(&socket, PATIENCE).and_then(|to| to.send(message.as_bytes(), &[]));
    if let Err(error) = sent {
        tracing::warn!(
            "the service manager at {} was not told: {}",
            socket.display(),
            io::Error::from(error)
        );
    }
}
