//! What a server says to its keeper.
//!
//! One message is one datagram, so that a server that is killed in the middle of one has said nothing. Both ends are open in both
//! processes, and stay so: a server's end is told by its end, not by the socket's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use serde::{Deserialize, Serialize};
use shuntfs::takeover::Handover;

/// More is no message of ours.
const LEN_MAX: usize = 16 << 10;

/// What a server says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Said {
    /// What its successors need, before anybody is served. The clones, and the state of file systems that have some, are numbers in the table
    /// that both share.
    Handover(Handover, Vec<RawFd>, Option<RawFd>),
    /// It serves.
    Ready,
    /// It cannot serve, and why.
    Failed(String),
    /// A signal that asks to end came to it, and not to its keeper.
    AskedToEnd,
}

/// The way from the servers to their keeper.
#[derive(Debug)]
pub(crate) struct Channel {
    speaks: UnixDatagram,
    listens: UnixDatagram,
}

impl Channel {
    pub(crate) fn new() -> io::Result<Self> {
        let (speaks, listens) = UnixDatagram::pair()?;
        listens.set_nonblocking(true)?;
        Ok(Self { speaks, listens })
    }

    pub(crate) fn say(&self, said: &Said) -> io::Result<()> {
        let message = serde_json::to_vec(said)?;
        if message.len() > LEN_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"));
        }
        self.speaks.send(&message).map(drop)
    }

    /// The next message that waits; `None` where there is none. What is no message is passed over.
    pub(crate) fn next(&self) -> Option<Said> {
        let mut room = [0; LEN_MAX];
        loop {
            let len = match self.listens.recv(&mut room) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_nothing_waits) => return None,
            };
            match serde_json::from_slice(&room[..len]) {
                Ok(said) => return Some(said),
                Err(error) => tracing::warn!(%error, "a server said something that is no message"),
            }
        }
    }
}

/// Readable when something was said.
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listens.as_fd()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_is_no_message_is_passed_over() {
        let channel = Channel::new().expect("a pair");
        assert_eq!(channel.next(), None);
        channel.speaks.send(b"{\"Handover\":[]}").expect("there is room");
        channel.speaks.send(&[0xff; 100]).expect("there is room");
        channel.say(&Said::Ready).expect("there is room");
        channel.say(&Said::Failed("why".into())).expect("there is room");
        assert_eq!(channel.next(), Some(Said::Ready));
        assert_eq!(channel.next(), Some(Said::Failed("why".into())));
        assert_eq!(channel.next(), None);
        let long = Said::Failed("x".repeat(LEN_MAX));
        assert_eq!(channel.say(&long).map_err(|error| error.kind()), Err(io::ErrorKind::InvalidInput));
    }
}
