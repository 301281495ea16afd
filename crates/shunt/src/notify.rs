//! Tells a service manager how the server is: the datagrams of sd_notify(3).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The mount answers.
pub(crate) fn ready(status: &str) {
    send(&format!("READY=1\nMAINPID={}\nSTATUS={}", std::process::id(), status.replace('\n', " ")));
}

/// The mount is being taken away.
pub(crate) fn stopping(status: &str) {
    send(&format!("STOPPING=1\nSTATUS={}", status.replace('\n', " ")));
}

/// How things are.
pub(crate) fn status(status: &str) {
    send(&format!("STATUS={}", status.replace('\n', " ")));
}

fn send(message: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return };
    if let Err(error) = send_to(&socket, message) {
        tracing::warn!("the service manager at {} was not told: {error}", socket.to_string_lossy());
    }
}

fn send_to(socket: &OsStr, message: &str) -> io::Result<()> {
    // The manager may be slow, and must not hold up a mount.
    let datagram = UnixDatagram::unbound()?;
    datagram.set_write_timeout(Some(std::time::Duration::from_secs(2)))?;
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    datagram.send_to_addr(message.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn both_kinds_of_socket_are_reached() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let name = format!("shunt-notify-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).expect("a name");
        let abstract_name = format!("@{name}");
        let cases = [
            (UnixDatagram::bind(&path).expect("binds"), path.as_os_str()),
            (UnixDatagram::bind_addr(&abstract_address).expect("binds"), OsStr::new(&abstract_name)),
        ];
        for (socket, name) in cases {
            socket.set_read_timeout(Some(std::time::Duration::from_secs(5))).expect("is a socket");
            send_to(name, "READY=1").expect("sends");
            let mut buffer = [0; 64];
            let len = socket.recv(&mut buffer).expect("arrives");
            assert_eq!(&buffer[..len], b"READY=1");
        }
        assert!(send_to(OsStr::new("/nonexistent/socket"), "READY=1").is_err());
    }
}
