//! What a server says to its keeper.
//!
//! One message is one datagram, so that a server that is killed in the middle of one has said nothing. Both ends are open in both
//! processes, and stay so: a server's end is told by its end, not by the socket's.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
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
    /// Another program is to go on: its descriptor, and one for whoever asked. Both are numbers in the table that both share, and the keeper's
    /// from now on.
    Replace(RawFd, RawFd),
    /// Every slot of its rings holds something, as it was asked for: it can be killed now.
    Filled,
    /// That cannot be, and why. It serves.
    NotFilled(String),
}

/// What a keeper asks a server for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Asked {
    /// That the server with this process number fills the slots of its rings.
    Fill(u32),
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
        say(&self.speaks, said)
    }

    /// Asks a server.
    pub(crate) fn ask(&self, asked: Asked) -> io::Result<()> {
        self.listens.send(&serde_json::to_vec(&asked)?).map(drop)
    }

    /// For another thread of a server.
    pub(crate) fn line(&self) -> io::Result<Line> {
        self.speaks.try_clone().map(Line)
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

fn say(speaks: &UnixDatagram, said: &Said) -> io::Result<()> {
    let message = serde_json::to_vec(said)?;
    if message.len() > LEN_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"));
    }
    speaks.send(&message).map(drop)
}

/// A server's way to its keeper, for any thread ([`Seat::line`](crate::Seat::line)).
#[derive(Debug)]
pub struct Line(UnixDatagram);

impl Line {
    /// Has another program go on instead of this one, where it can: the keeper tries it, and [`Attendant::answer`](crate::Attendant::answer) is
    /// told how it went, with `asker`. This process is killed on the way.
    ///
    /// Who may ask, and which program may be run, is the caller's to judge.
    ///
    /// # Errors
    /// Those of sending a datagram; nothing happens then.
    pub fn replace(&self, program: OwnedFd, asker: OwnedFd) -> io::Result<()> {
        say(&self.0, &Said::Replace(program.as_raw_fd(), asker.as_raw_fd()))?;
        // They are the keeper's, which has the same table.
        let _theirs = (program.into_raw_fd(), asker.into_raw_fd());
        Ok(())
    }
}

impl Line {
    pub(crate) fn say(&self, said: &Said) -> io::Result<()> {
        say(&self.0, said)
    }

    /// Waits for what a keeper asks for. What is no question is passed over.
    pub(crate) fn asked(&self) -> io::Result<Asked> {
        let mut room = [0; LEN_MAX];
        loop {
            match self.0.recv(&mut room) {
                Ok(len) => match serde_json::from_slice(&room[..len]) {
                    Ok(asked) => return Ok(asked),
                    Err(error) => tracing::warn!(%error, "a keeper asked something that is no question"),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
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
        let given = || OwnedFd::from(channel.speaks.try_clone().expect("a duplicate"));
        let (program, asker) = (given(), given());
        let numbers = (program.as_raw_fd(), asker.as_raw_fd());
        channel.line().and_then(|line| line.replace(program, asker)).expect("there is room");
        assert_eq!(channel.next(), Some(Said::Ready));
        assert_eq!(channel.next(), Some(Said::Failed("why".into())));
        assert_eq!(channel.next(), Some(Said::Replace(numbers.0, numbers.1)));
        assert_eq!(channel.next(), None);
        channel.listens.send(b"nothing").expect("there is room");
        channel.ask(Asked::Fill(7)).expect("there is room");
        assert_eq!(channel.line().and_then(|line| line.asked()).expect("it was asked"), Asked::Fill(7));
        let long = Said::Failed("x".repeat(LEN_MAX));
        assert_eq!(channel.say(&long).map_err(|error| error.kind()), Err(io::ErrorKind::InvalidInput));
    }
}
