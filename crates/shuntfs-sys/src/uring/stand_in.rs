//! A ring whose device is not the kernel's but a test's: what takes the place of the driver's part.
//!
//! The ring itself stays the kernel's, and with it the order of submissions, links and completions. A command to the driver is sent to the
//! peer as a packet, by the ring, when its turn has come; the peer completes it with a message to the ring (`IORING_OP_MSG_RING`). The table
//! of buffers is the peer's, too: an operation on a place of it becomes one on the memory that the peer has put there.
//!
//! # Safety
//! A message, and memory of the table that an operation uses, is kept here until the completion that ends its use. What is under way when
//! the ring goes is never freed.
#![expect(unsafe_code, reason = "submissions are read, and name memory that the kernel fills")]

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

use super::ring::{UringCommand, failing, from_io};
use crate::Result;
use crate::region::Region;

/// Which way the bytes of an operation on the table of buffers go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moves {
    /// Into the pages.
    In,
    /// Out of them.
    Out,
}

/// What happens to a command that was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queued {
    /// It reaches the peer by [`RingEnd::next_command`], when its turn has come.
    Sent,
    /// The peer has it, and completes it later.
    Taken,
    /// It completes as it is submitted, as what a driver refuses does.
    Done(Result<()>),
}

/// What is asked while a ring's thread queues submissions, before the ring has seen them.
pub trait RingPeer: Send + Sync + fmt::Debug {
    /// The ring is to have a table of so many places for buffers.
    ///
    /// # Errors
    /// Those of `IORING_REGISTER_BUFFERS2`: ENOMEM, EINVAL.
    fn make_table(&self, places: u16) -> Result<()>;

    /// Memory of the server, by address and length, is pinned and put into a place of the table.
    ///
    /// # Errors
    /// Those of `IORING_REGISTER_BUFFERS_UPDATE`: ENOMEM, EINVAL, EFAULT.
    fn pin(&self, place: u16, memory: (u64, usize)) -> Result<()>;

    /// The memory in a place of the table, for an operation on a part of it.
    ///
    /// # Errors
    /// EFAULT where there is none, or not for this.
    fn pages(&self, place: u16, moves: Moves, part: Range<u32>) -> Result<Arc<Pages>>;

    /// An operation on this memory, in a place of the table, has completed.
    fn moved(&self, place: u16, pages: &Arc<Pages>);

    /// A command is queued, the one that completes with `user_data`; whether behind an operation that it waits for.
    fn queued(&self, user_data: u64, command: &UringCommand, is_linked: bool) -> Queued;
}

/// Memory that stands for the pages of a caller.
#[derive(Debug)]
pub struct Pages {
    region: Region,
    len: usize,
}

impl Pages {
    /// So many bytes, which are zero.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn new(len: usize) -> Result<Self> {
        Ok(Self { region: Region::reserve(len)?, len })
    }

    /// Where they begin.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.region.start().as_ptr().addr() as u64
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The driver's end of a ring.
pub struct RingEnd {
    commands: OwnedFd,
    /// The server's ring, which is told of completions by this one.
    target: OwnedFd,
    teller: Mutex<IoUring>,
}

impl fmt::Debug for RingEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingEnd").field("target", &self.target).finish_non_exhaustive()
    }
}

impl RingEnd {
    /// Waits for the next command, and for what it is to complete with; `None` when the ring is gone.
    #[must_use]
    pub fn next_command(&self) -> Option<(u64, UringCommand)> {
        let mut message = [0; MESSAGE];
        let received = rustix::net::recv(&self.commands, &mut message, RecvFlags::empty());
        let (MESSAGE, _) = received.ok()? else { return None };
        Some(unpack(&message))
    }

    /// Completes a command.
    ///
    /// # Errors
    /// What the kernel says of the message; EINVAL before Linux 5.18.
    pub fn complete(&self, user_data: u64, result: i32) -> Result<()> {
        let mut teller = self.teller.lock().unwrap_or_else(PoisonError::into_inner);
        let target = Fd(self.target.as_raw_fd());
        let message = opcode::MsgRingData::new(target, result, user_data, None).build();
        // SAFETY: it names no memory, and the target is open for as long as this is.
        unsafe { teller.submission().push(&message) }.map_err(|_| Errno::BUSY)?;
        teller.submit_and_wait(1).map_err(|error| from_io(&error))?;
        let told = teller.completion().next().map_or(0, |told| told.result());
        if told < 0 { Err(Errno::from_raw_os_error(-told)) } else { Ok(()) }
    }
}

/// What a ring has of the stand-in.
pub(super) struct StandIn {
    peer: Arc<dyn RingPeer>,
    commands: OwnedFd,
    /// The packets under way, by what their commands complete with.
    messages: HashMap<u64, Box<[u8; MESSAGE]>>,
    /// The memory of operations under way, by what they complete with.
    moving: HashMap<u64, (u16, Arc<Pages>)>,
    /// Commands and the operations that they are linked behind: the one completes, or the other.
    links: Vec<Link>,
}

#[derive(Clone, Copy)]
struct Link {
    first: u64,
    command: u64,
}

impl StandIn {
    /// The two ends; `meet` gets the peer's, and says whom to ask.
    pub(super) fn attach(
        ring: &IoUring<squeue::Entry128, cqueue::Entry>,
        meet: impl FnOnce(RingEnd) -> Result<Arc<dyn RingPeer>>,
    ) -> Result<Self> {
        let kind = SocketType::SEQPACKET;
        let (commands, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        // SAFETY: the ring is open here, and the borrow ends before it can be closed.
        let target = unsafe { std::os::fd::BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        let target = rustix::io::fcntl_dupfd_cloexec(target, 0)?;
        let teller = Mutex::new(IoUring::new(4).map_err(|error| from_io(&error))?);
        let peer = meet(RingEnd { commands: theirs, target, teller })?;
        Ok(Self { peer, commands, messages: HashMap::new(), moving: HashMap::new(), links: Vec::new() })
    }

    pub(super) fn make_table(&self, places: u16) -> Result<()> {
        self.peer.make_table(places)
    }

    pub(super) fn pin(&self, place: u16, memory: (u64, usize)) -> Result<()> {
        self.peer.pin(place, memory)
    }

    /// What is submitted instead of this one.
    pub(super) fn translate(&mut self, entry: squeue::Entry128) -> squeue::Entry128 {
        let seen = Seen::of(&entry);
        match seen.opcode() {
            opcode::ReadFixed::CODE => self.moves(&seen, Moves::In),
            opcode::WriteFixed::CODE => self.moves(&seen, Moves::Out),
            opcode::UringCmd80::CODE => self.command(&seen, false),
            _ => entry,
        }
    }

    /// The same for a command that is linked behind an operation.
    pub(super) fn translate_linked(
        &mut self,
        first: squeue::Entry128,
        second: squeue::Entry128,
    ) -> (squeue::Entry128, squeue::Entry128) {
        let second = Seen::of(&second);
        self.links.push(Link { first: Seen::of(&first).user_data(), command: second.user_data() });
        (self.translate(first), self.command(&second, true))
    }

    /// A submission has completed, and of two that were linked both are over.
    pub(super) fn completed(&mut self, user_data: u64) {
        let is_it = |link: &Link| link.first == user_data || link.command == user_data;
        let link = self.links.iter().position(is_it).map(|at| self.links.swap_remove(at));
        let (first, command) = link.map_or((user_data, user_data), |link| (link.first, link.command));
        self.messages.remove(&command);
        if let Some((place, pages)) = self.moving.remove(&first) {
            self.peer.moved(place, &pages);
        }
    }

    fn moves(&mut self, seen: &Seen, moves: Moves) -> squeue::Entry128 {
        let (place, start, len) = (seen.place(), seen.address(), seen.len());
        let user_data = seen.user_data();
        let part = u32::try_from(start).map_err(|_| Errno::FAULT);
        let pages = part.and_then(|start| {
            self.peer
                .pages(place, moves, start..start.saturating_add(len))
                .map(|pages| (start as usize, pages))
        });
        let (start, pages) = match pages {
            Ok((start, pages)) if start + len as usize <= pages.len => (start, pages),
            Ok(_) => return failing(user_data, Errno::FAULT),
            Err(error) => return failing(user_data, error),
        };
        let memory = pages.region.start().as_ptr().wrapping_add(start);
        let (fd, offset) = (Fd(seen.fd()), seen.offset());
        let entry = match moves {
            Moves::In => opcode::Read::new(fd, memory, len).offset(offset).build(),
            Moves::Out => opcode::Write::new(fd, memory.cast_const(), len).offset(offset).build(),
        };
        let same = self.moving.insert(user_data, (place, pages));
        assert!(same.is_none(), "operations under way carry different numbers");
        entry.user_data(user_data).into()
    }

    fn command(&mut self, seen: &Seen, is_linked: bool) -> squeue::Entry128 {
        let user_data = seen.user_data();
        let command = seen.command();
        match self.peer.queued(user_data, &command, is_linked) {
            Queued::Sent => {}
            Queued::Taken => {
                let nothing: squeue::Entry128 = opcode::Nop::new().build().user_data(user_data).into();
                return nothing.flags(squeue::Flags::SKIP_SUCCESS);
            }
            Queued::Done(Ok(())) => return opcode::Nop::new().build().user_data(user_data).into(),
            Queued::Done(Err(error)) => return failing(user_data, error),
        }
        let message = Box::new(pack(user_data, &command));
        let (from, len) = (message.as_ptr(), u32::try_from(MESSAGE).expect("small"));
        // Its own completion is not told: the peer's is.
        let entry = opcode::Send::new(Fd(self.commands.as_raw_fd()), from, len)
            .flags(libc::MSG_NOSIGNAL)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(user_data);
        let same = self.messages.insert(user_data, message);
        assert!(same.is_none(), "commands under way carry different numbers");
        entry.into()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        std::mem::forget((std::mem::take(&mut self.messages), std::mem::take(&mut self.moving)));
    }
}

/// A command as a packet: what it completes with, its number, its iovecs and their count, its bytes, and the place of its pinned memory,
/// one more than that, or zero.
const MESSAGE: usize = 68;

fn pack(user_data: u64, command: &UringCommand) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    message[..8].copy_from_slice(&user_data.to_ne_bytes());
    message[8..12].copy_from_slice(&command.op.to_ne_bytes());
    message[12..16].copy_from_slice(&command.iovecs_count.to_ne_bytes());
    message[16..24].copy_from_slice(&command.iovecs.to_ne_bytes());
    message[24..64].copy_from_slice(&command.bytes);
    message[64..].copy_from_slice(&command.pinned.map_or(0, |place| u32::from(place) + 1).to_ne_bytes());
    message
}

fn unpack(message: &[u8; MESSAGE]) -> (u64, UringCommand) {
    let mut bytes = [0; 40];
    bytes.copy_from_slice(&message[24..64]);
    let command = UringCommand {
        op: word(message, 8),
        bytes,
        iovecs: long(message, 16),
        iovecs_count: word(message, 12),
        pinned: word(message, 64).checked_sub(1).and_then(|place| u16::try_from(place).ok()),
    };
    (long(message, 0), command)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A submission, byte for byte: `struct io_uring_sqe`.
struct Seen([u8; 128]);

impl Seen {
    fn of(entry: &squeue::Entry128) -> Self {
        // SAFETY: the entry is `repr(C)` over the kernel's 128 bytes, all of which are initialised.
        Self(unsafe { std::ptr::from_ref(entry).cast::<[u8; 128]>().read() })
    }

    fn opcode(&self) -> u8 {
        self.0[0]
    }

    fn fd(&self) -> i32 {
        word(&self.0, 4).cast_signed()
    }

    fn offset(&self) -> u64 {
        long(&self.0, 8)
    }

    fn address(&self) -> u64 {
        long(&self.0, 16)
    }

    fn len(&self) -> u32 {
        word(&self.0, 24)
    }

    fn user_data(&self) -> u64 {
        long(&self.0, 32)
    }

    fn place(&self) -> u16 {
        u16::from_ne_bytes([self.0[40], self.0[41]])
    }

    fn command(&self) -> UringCommand {
        let mut bytes = [0; 40];
        bytes.copy_from_slice(&self.0[48..88]);
        // `IORING_URING_CMD_FIXED` in `uring_cmd_flags`.
        let pinned = (word(&self.0, 28) & 1 != 0).then(|| self.place());
        UringCommand { op: word(&self.0, 8), bytes, iovecs: self.address(), iovecs_count: self.len(), pinned }
    }
}

#[cfg(test)]
mod test;
