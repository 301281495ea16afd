//! The right to answer a request once, from any thread.
//!
//! An answer to a request that came from a device is written to that device at once, by whoever gives it, and to the
//! descriptor that the request was read from: the kernel looks for it there. On io_uring only the queue's own thread can
//! answer, so the answer is left with the request's future, which is woken.

use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use shuntfs_sys::{FuseDevice, OsError};
use shuntfs_wire as wire;
use shuntfs_wire::{OutHeader, Unique};
use zerocopy::{Immutable, IntoBytes};

use crate::backing::BackingId;
use crate::errno::Errno;

/// The right to answer one request. Dropped unused, it answers EIO.
#[derive(Debug)]
pub(crate) struct Answer {
    device: Arc<FuseDevice>,
    unique: u64,
    way: Option<Way>,
}

#[derive(Debug)]
enum Way {
    Device,
    Later(Arc<Later>),
}

/// Where an answer waits for the thread that can send it.
#[derive(Debug, Default)]
pub(crate) struct Later(Mutex<State>);

/// The bytes of an answer, or an error.
pub(crate) type Outcome = Result<Vec<u8>, wire::Errno>;

#[derive(Debug, Default)]
struct State {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Answer {
    /// To a request that was read from `device`.
    pub(crate) fn at_once(device: &Arc<FuseDevice>, unique: u64) -> Self {
        Self { device: Arc::clone(device), unique, way: Some(Way::Device) }
    }

    /// To a request whose future waits at `later`.
    pub(crate) fn later(device: &Arc<FuseDevice>, unique: u64, later: &Arc<Later>) -> Self {
        Self { device: Arc::clone(device), unique, way: Some(Way::Later(Arc::clone(later))) }
    }

    /// Answers with success and nothing else.
    pub(crate) fn empty(self) {
        self.bytes(&[]);
    }

    /// Answers with one struct.
    pub(crate) fn with(self, body: &(impl IntoBytes + Immutable)) {
        self.bytes(&[body.as_bytes()]);
    }

    /// Answers with at most two pieces of data.
    pub(crate) fn bytes(mut self, pieces: &[&[u8]]) {
        self.send(Ok(pieces));
    }

    /// Answers with an error.
    pub(crate) fn error(mut self, errno: Errno) {
        self.send(Err(errno.to_wire()));
    }

    /// Registers a backing file.
    pub(crate) fn open_backing(&self, fd: BorrowedFd<'_>) -> std::io::Result<BackingId> {
        BackingId::open(&self.device, fd)
    }

    /// Takes over a backing id.
    pub(crate) fn wrap_backing(&self, id: u32) -> BackingId {
        BackingId::wrap(&self.device, id)
    }

    fn send(&mut self, answer: Result<&[&[u8]], wire::Errno>) {
        match self.way.take() {
            Some(Way::Device) => write(&self.device, Unique(self.unique), answer),
            Some(Way::Later(later)) => later.put(answer.map(<[&[u8]]>::concat)),
            None => {}
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.way.is_some() {
            tracing::warn!(unique = self.unique, "a request was dropped unanswered: its caller gets EIO");
            self.send(Err(wire::Errno::IO));
        }
    }
}

/// Writes an answer.
pub(crate) fn write(device: &FuseDevice, unique: Unique, answer: Result<&[&[u8]], wire::Errno>) {
    let pieces = answer.unwrap_or_default();
    let header = match answer {
        Ok(_) => OutHeader::success(unique, pieces.iter().map(|piece| piece.len()).sum()),
        Err(errno) => OutHeader::error(unique, errno),
    };
    let mut message = [IoSlice::new(header.as_bytes()), IoSlice::new(&[]), IoSlice::new(&[])];
    for (place, piece) in message[1..].iter_mut().zip(pieces) {
        *place = IoSlice::new(piece);
    }
    match device.write(&message[..=pieces.len()]) {
        // NOENT: the caller is gone. The rest: the connection is.
        Ok(_) | Err(OsError::NOENT | OsError::NODEV | OsError::CONNABORTED | OsError::NOTCONN) => {}
        // The kernel then gives the caller EIO.
        Err(error) => tracing::error!(%error, unique = unique.0, "the kernel refuses an answer"),
    }
}

impl Later {
    /// Waits for the answer.
    pub(crate) async fn wait(&self) -> Outcome {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock();
            match state.outcome.take() {
                Some(outcome) => Poll::Ready(outcome),
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn put(&self, outcome: Outcome) {
        let mut state = self.0.lock();
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
pub(crate) mod test {
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::pin::pin;
    use std::task::Context;

    use super::*;

    /// A stand-in for a device, and what is written to it.
    pub(crate) fn device() -> (Arc<FuseDevice>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Arc::new(FuseDevice::from_fd(ours.into()).unwrap()), theirs)
    }

    /// All that was written, once the device is dropped.
    pub(crate) fn written(device: Arc<FuseDevice>, mut theirs: UnixStream) -> Vec<u8> {
        drop(device);
        let mut bytes = Vec::new();
        theirs.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn an_answer_carries_length_and_number() {
        let (device, theirs) = device();
        Answer::at_once(&device, 7).bytes(&[b"ab", b"cde"]);
        Answer::at_once(&device, 8).error(Errno::ENOENT);
        let expected = [
            OutHeader { len: 21, error: 0, unique: 7 }.as_bytes(),
            b"abcde",
            OutHeader { len: 16, error: -2, unique: 8 }.as_bytes(),
        ];
        assert_eq!(written(device, theirs), expected.concat());
    }

    #[test]
    fn what_is_dropped_is_answered_eio() {
        let (device, theirs) = device();
        drop(Answer::at_once(&device, 9));
        let expected = OutHeader { len: 16, error: -5, unique: 9 };
        assert_eq!(written(device, theirs), expected.as_bytes());
    }

    #[test]
    fn an_answer_from_another_thread_wakes_who_waits() {
        let (device, theirs) = device();
        let later = Arc::new(Later::default());
        let answer = Answer::later(&device, 1, &later);
        let mut waits = pin!(later.wait());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        std::thread::spawn(move || answer.bytes(&[b"x"])).join().unwrap();
        assert_eq!(waits.as_mut().poll(&mut cx), Poll::Ready(Ok(b"x".to_vec())));
        assert!(written(device, theirs).is_empty(), "nothing goes to the device");
    }
}
