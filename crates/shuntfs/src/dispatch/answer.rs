//! How a request ends.

use std::sync::Arc;

use shuntfs_transport::{Done, Exchange};
use shuntfs_wire as wire;
use shuntfs_wire::{ByteRange, Errno};
use zerocopy::{Immutable, IntoBytes};

use crate::counters;
use crate::delegation::{Flow, LowerFile};
use crate::server::Local;
use crate::trace::Trail;

/// The answer to one request.
#[derive(Debug)]
pub(super) enum Answer {
    /// With nothing but success.
    Empty,
    /// Not at all: the kernel expects none.
    Silent,
    /// With so many bytes that are in the payload already.
    Payload(usize),
    /// The same, of a file, and what moved them there.
    Read(usize, Flow),
    Init(wire::InitOut),
    Attr(wire::AttrOut),
    Statx(wire::StatxOut),
    Entry(wire::EntryOut),
    Open(wire::OpenOut),
    Created(wire::CreateOut),
    Write(wire::WriteOut),
    /// The same, and what moved the data to the file.
    Written(wire::WriteOut, Flow),
    Copied(wire::CopyFileRangeOut),
    Lseek(wire::LseekOut),
    Lock(wire::LkOut),
    Polled(wire::PollOut),
    Xattr(wire::GetxattrOut),
    Statfs(wire::StatfsOut),
    /// With a lower file's bytes.
    RelayRead(Arc<LowerFile>, ByteRange),
    /// With how much of the data a lower file took.
    RelayWrite(Arc<LowerFile>, u64),
    Error(Errno),
    /// As a dead server would have answered it: what it had noted here.
    Again(u32),
    /// The operation is not in the chosen set; the kernel may remember that.
    NotOffered,
}

impl Answer {
    pub(super) fn is_relayed_read(&self) -> bool {
        matches!(self, Self::RelayRead(..))
    }

    /// What moves the bytes of a READ or WRITE; the transport may yet choose a pipe for those of a lower file.
    pub(super) fn flow(&self) -> Option<Flow> {
        match self {
            Self::Read(_, flow) | Self::Written(_, flow) => Some(*flow),
            Self::RelayRead(..) | Self::RelayWrite(..) => Some(Flow::Relay),
            _ => None,
        }
    }

    /// Tells whoever looks what the answer's length does not.
    #[cold]
    pub(super) fn leave(&self, trail: &mut Trail) {
        match self {
            Self::Entry(out) => trail.found(out.nodeid),
            Self::Created(out) => trail.found(out.entry.nodeid),
            Self::Write(out) | Self::Written(out, _) => trail.moved(out.size.into()),
            Self::Copied(out) => trail.moved(out.bytes_copied),
            _ => {}
        }
    }

    /// An operation's error. ENOSYS from a file system is never meant for the connection.
    pub(super) fn error(errno: Errno) -> Self {
        Self::Error(if errno == Errno::NOSYS { Errno::OPNOTSUPP } else { errno })
    }
}

/// Hands an answer to the transport that is in our hands.
/// Where that is `noted`, a successor can answer the same.
pub(super) fn finish(local: &Local, mut x: Exchange, answer: Answer, noted: Option<u32>) -> Done {
    let len = match answer {
        Answer::Empty => 0,
        Answer::Silent => return x.silent(),
        Answer::Payload(len) | Answer::Read(len, _) => len,
        Answer::Init(out) => put(&mut x, &out),
        Answer::Attr(out) => put(&mut x, &out),
        Answer::Statx(out) => put(&mut x, &out),
        Answer::Entry(out) => put(&mut x, &out),
        Answer::Open(out) => put(&mut x, &out),
        Answer::Created(out) => put(&mut x, &out),
        Answer::Write(out) | Answer::Written(out, _) => put(&mut x, &out),
        Answer::Copied(out) => put(&mut x, &out),
        Answer::Lseek(out) => put(&mut x, &out),
        Answer::Lock(out) => put(&mut x, &out),
        Answer::Polled(out) => put(&mut x, &out),
        Answer::Xattr(out) => put(&mut x, &out),
        Answer::Statfs(out) => put(&mut x, &out),
        Answer::RelayRead(..) | Answer::RelayWrite(..) => unreachable!("these are awaited"),
        Answer::Again(at) => match again(local, &mut x, at) {
            Ok(len) => len,
            Err(errno) => return refuse(local, x, errno),
        },
        Answer::Error(errno) => {
            note(local, noted, Some(errno), &[]);
            return refuse(local, x, errno);
        }
        Answer::NotOffered => return refuse(local, x, Errno::NOSYS),
    };
    if noted.is_some() {
        note(local, noted, None, &x.payload()[..len]);
    }
    x.reply(len)
}

fn note(local: &Local, noted: Option<u32>, errno: Option<Errno>, reply: &[u8]) {
    if let (Some(requests), Some(at)) = (&local.core.requests, noted) {
        requests.done(at, errno, reply);
    }
}

fn again(local: &Local, x: &mut Exchange, at: u32) -> Result<usize, Errno> {
    local.core.requests.as_ref().ok_or(Errno::IO)?.answer(at, x.payload_mut())
}

/// Has the transport answer with a lower file's bytes.
pub(super) async fn relay_read(local: &Local, x: Exchange, lower: &Arc<LowerFile>, at: ByteRange) -> Done {
    let flow = if x.is_in_pages() { Flow::ZeroCopy } else { Flow::Relay };
    let done = x.relay_read(lower, at).await;
    // What the kernel alone knows counts as it was asked for.
    let len = done.sent_len().map_or(u64::from(at.len), |len| len as u64);
    lower.count_read(len);
    if done.was_spliced() {
        local.counters.read(Flow::Splice, len);
        local.counters.spliced_reads.bump();
    } else {
        local.counters.read(flow, len);
    }
    done
}

fn refuse(local: &Local, x: Exchange, errno: Errno) -> Done {
    local.counters.errors[counters::place(x.header().opcode)].bump();
    x.error(errno)
}

fn put(x: &mut Exchange, out: &(impl IntoBytes + Immutable)) -> usize {
    let bytes = out.as_bytes();
    x.payload_mut()[..bytes.len()].copy_from_slice(bytes);
    bytes.len()
}
