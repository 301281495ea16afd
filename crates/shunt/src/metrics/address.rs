//! Where a server listens for scrapes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Reads an address: a port of this machine alone, or an address with a port.
///
/// # Errors
/// What is needed.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(local, port));
    }
    if let Some(port) = text.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        return Ok(SocketAddr::new(local, port));
    }
    // `:9101` means every address to some programs, and this machine to others: it is not guessed.
    text.parse().map_err(|_| {
        "a port (9101, of 127.0.0.1), or an address and a port (192.0.2.1:9101, [::1]:9101)".to_owned()
    })
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn a_port_alone_is_of_this_machine() {
        for (text, address) in [
            ("9101", "127.0.0.1:9101"),
            ("localhost:0", "127.0.0.1:0"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("0.0.0.0:9101", "0.0.0.0:9101"),
            ("[::1]:9101", "[::1]:9101"),
        ] {
            assert_eq!(
                listen_address(text).map(|address| address.to_string()).as_deref(),
                Ok(address),
                "{text}"
            );
        }
        for text in ["", ":9101", "65536", "-1", "example.org:80", "::1", "127.0.0.1", "[::1]", "9101 "] {
            assert!(listen_address(text).is_err(), "{text}");
        }
    }
}
