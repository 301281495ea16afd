//! An operation on a queue's ring, as a future.
//!
//! # Safety
//! The memory that an operation names belongs to the caller and stays valid while the future lives: dropping
//! an unfinished one asks the kernel to end it and waits until it is done with the memory.
#![expect(unsafe_code, reason = "operations name memory that the kernel fills")]

use std::future::Future;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use shuntfs_sys::OsError;

use crate::queue::Queue;
use crate::token::Token;

/// The operations that futures await, by index.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    states: Vec<State>,
    free: Vec<u32>,
    under_way: usize,
}

#[derive(Debug)]
enum State {
    Free,
    Waiting(Option<Waker>),
    Done(i32),
}

impl Ops {
    fn add(&mut self) -> u32 {
        self.under_way += 1;
        if let Some(index) = self.free.pop() {
            self.states[index as usize] = State::Waiting(None);
            return index;
        }
        let index = u32::try_from(self.states.len()).expect("at most one operation a slot");
        self.states.push(State::Waiting(None));
        index
    }

    /// How many the kernel has not completed.
    pub(crate) fn count(&self) -> usize {
        self.under_way
    }

    pub(crate) fn complete(&mut self, index: u32, result: i32) {
        let state = self.states.get_mut(index as usize);
        match state.map(|state| std::mem::replace(state, State::Done(result))) {
            Some(State::Waiting(waker)) => {
                self.under_way -= 1;
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            other => tracing::error!(index, result, ?other, "an operation completed that nobody began"),
        }
    }

    /// Those that the kernel has not completed.
    fn waiting(&self) -> impl Iterator<Item = u32> {
        (0_u32..).zip(&self.states).filter(|(_, state)| matches!(state, State::Waiting(_))).map(|(at, _)| at)
    }

    fn is_waiting(&self, index: u32) -> bool {
        matches!(self.states[index as usize], State::Waiting(_))
    }

    fn take(&mut self, index: u32, waker: Option<&Waker>) -> Option<i32> {
        let state = &mut self.states[index as usize];
        match state {
            State::Done(result) => {
                let result = *result;
                *state = State::Free;
                self.free.push(index);
                Some(result)
            }
            State::Waiting(slot) => {
                *slot = waker.cloned();
                None
            }
            State::Free => None,
        }
    }
}

/// An operation under way.
#[derive(Debug)]
#[must_use = "an operation is awaited, or dropping it waits"]
pub struct RingOp<'q> {
    queue: &'q Queue,
    index: Option<u32>,
}

impl Queue {
    /// Reads `len` bytes of a file at `offset` through the ring.
    ///
    /// # Safety
    /// `into` must be valid for writes of `len` bytes, and untouched, while the future lives; the future must
    /// not be leaked.
    pub unsafe fn read(&self, fd: BorrowedFd<'_>, into: (*mut u8, u32), offset: u64) -> RingOp<'_> {
        let index = self.ops().borrow_mut().add();
        let token = Token::Op(index).encode();
        // SAFETY: the caller keeps the memory while the future lives, and `RingOp` lives until completion.
        self.with_ring(|ring| unsafe { ring.push_read(fd, into, offset, token, false) });
        RingOp { queue: self, index: Some(index) }
    }

    /// Reads a file at `offset` through the ring, into memory that the future owns; gives it back, and how many bytes
    /// were read. The memory's length is how many are asked for.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn read_owned(
        &self,
        fd: BorrowedFd<'_>,
        mut into: Vec<u8>,
        offset: u64,
    ) -> shuntfs_sys::Result<(Vec<u8>, usize)> {
        let len = u32::try_from(into.len()).unwrap_or(u32::MAX);
        // SAFETY: the bytes lie on the heap and belong to this future, which touches them only after the operation. Where the
        // future is dropped the operation goes first, because it came after; where it is leaked, so are they.
        let count = unsafe { self.read(fd, (into.as_mut_ptr(), len), offset) }.await?;
        Ok((into, count))
    }

    /// Writes `len` bytes to a file at `offset` through the ring.
    ///
    /// # Safety
    /// `from` must be valid for reads of `len` bytes, and unchanged, while the future lives; the future must
    /// not be leaked.
    pub unsafe fn write(&self, fd: BorrowedFd<'_>, from: (*const u8, u32), offset: u64) -> RingOp<'_> {
        let index = self.ops().borrow_mut().add();
        let token = Token::Op(index).encode();
        // SAFETY: the caller keeps the memory while the future lives, and `RingOp` lives until completion.
        self.with_ring(|ring| unsafe { ring.push_write(fd, from, offset, token) });
        RingOp { queue: self, index: Some(index) }
    }
}

impl Queue {
    /// Asks the kernel to end all operations that futures await; each then completes, many with ECANCELED.
    pub fn cancel_ops(&self) {
        for index in self.ops().borrow().waiting() {
            self.cancel(Token::Op(index));
        }
    }

    /// Asks the kernel to end the operation of this token, which completes in any case.
    pub fn cancel(&self, token: Token) {
        self.with_ring(|ring| ring.push_cancel(token.encode(), Token::Cancel.encode()));
    }
}

impl Future for RingOp<'_> {
    type Output = shuntfs_sys::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let index = self.index.expect("polled after it ended");
        let Some(result) = self.queue.ops().borrow_mut().take(index, Some(cx.waker())) else {
            return Poll::Pending;
        };
        self.index = None;
        Poll::Ready(usize::try_from(result).map_err(|_| OsError::from_raw_os_error(result.saturating_neg())))
    }
}

impl Drop for RingOp<'_> {
    fn drop(&mut self) {
        let Some(index) = self.index else { return };
        if self.queue.ops().borrow().is_waiting(index) {
            self.queue.cancel(Token::Op(index));
        }
        while self.queue.ops().borrow_mut().take(index, None).is_none() {
            if let Err(error) = self.queue.turn(true, None) {
                // The kernel may still write to the memory: going on would be worse than ending.
                tracing::error!(%error, "the ring broke with an operation under way");
                std::process::abort();
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::{OffloadPool, Ready, Tasks};
    use std::os::fd::AsFd;

    #[test]
    fn reads_complete_and_dropping_one_waits() {
        let Ok(ring) = shuntfs_sys::uring::Ring::new(8) else {
            println!("SKIPPED: io_uring is not to be had here");
            return;
        };
        let ready = Ready::new(1).expect("bell");
        let queue = Queue::new(0, ready.clone(), OffloadPool::new(1, || ()), Some(ring));
        let file = std::fs::File::open("/proc/self/exe").expect("own program");
        let mut tasks = Tasks::new(1, &ready);
        let (inside, theirs) = (queue.clone(), file.try_clone().expect("dup"));
        let first = tasks.start(0, async move {
            let mut bytes = [0_u8; 4];
            // SAFETY: the buffer lives in this future, which outlives the operation.
            let count = unsafe { inside.read(theirs.as_fd(), (bytes.as_mut_ptr(), 4), 0) }.await;
            (count, bytes)
        });
        assert!(first.is_pending());
        queue.turn(true, None).expect("enter");
        assert_eq!(ready.take(), Some(0));
        let Poll::Ready(Ok((count, bytes))) = tasks.poll(0) else { panic!("complete") };
        assert_eq!((count, &bytes), (Ok(4), b"\x7fELF"));

        let mut bytes = [0_u8; 4];
        // SAFETY: dropping the operation waits for the kernel, and the buffer outlives it.
        drop(unsafe { queue.read(file.as_fd(), (bytes.as_mut_ptr(), 4), 0) });
        assert_eq!(queue.ops_count(), 0);
    }

    /// Nothing comes out of the pipe while the operation waits: dropping it must not wait for that.
    #[test]
    fn dropping_an_operation_ends_it() {
        let Ok(ring) = shuntfs_sys::uring::Ring::new(8) else {
            println!("SKIPPED: io_uring is not to be had here");
            return;
        };
        let ready = Ready::new(1).expect("bell");
        let queue = Queue::new(0, ready, OffloadPool::new(1, || ()), Some(ring));
        let (end, other) = std::io::pipe().expect("a pipe");
        for wait in [false, true] {
            let mut bytes = [0_u8; 4];
            // SAFETY: dropping the operation waits for the kernel, and the buffer outlives it.
            let read = unsafe { queue.read(end.as_fd(), (bytes.as_mut_ptr(), 4), u64::MAX) };
            assert_eq!(queue.ops_count(), 1);
            if wait {
                let limit = Some(std::time::Duration::from_millis(5));
                // What is left of an attempt to end the one before may come first.
                while queue.turn(true, limit).is_ok() {}
                assert_eq!(queue.ops_count(), 1);
            }
            drop(read);
            assert_eq!(queue.ops_count(), 0);
        }
        drop(other);
    }
}
