//! An operation on a queue's ring, as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use shuntfs_sys::{OsError, Result};

use crate::queue::Queue;

/// An operation under way. Dropping it gives the operation up and does not wait: see `ops.rs`.
#[derive(Debug)]
pub(crate) struct RingOp<'q> {
    queue: &'q Queue,
    index: Option<u32>,
}

impl<'q> RingOp<'q> {
    pub(crate) fn new(queue: &'q Queue, index: u32) -> Self {
        Self { queue, index: Some(index) }
    }
}

impl Future for RingOp<'_> {
    /// How many bytes, and memory that was handed over.
    type Output = Result<(usize, Vec<u8>)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let index = self.index.expect("polled after it ended");
        let taken = self.queue.ops().borrow_mut().take(index, cx.waker());
        let Ok((result, bytes)) = taken else { return Poll::Pending };
        self.index = None;
        Poll::Ready(match usize::try_from(result) {
            Ok(count) => Ok((count, bytes)),
            Err(_) => Err(OsError::from_raw_os_error(result.saturating_neg())),
        })
    }
}

impl Drop for RingOp<'_> {
    fn drop(&mut self) {
        if let Some(index) = self.index {
            self.queue.give_up(index);
        }
    }
}
