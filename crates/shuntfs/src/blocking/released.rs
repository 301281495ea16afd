//! Waiting for a lock, with no thread that waits.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use crate::cx::Cx;

/// Tells everybody who waits for a lock that some lock was given back, and that it is time to try again.
#[derive(Debug, Default)]
pub(super) struct Released {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    count: u64,
    waiters: Vec<Waker>,
}

impl Released {
    /// How often locks were given back; to be asked before a lock is tried.
    pub(super) fn count(&self) -> u64 {
        self.inner.lock().count
    }

    /// A lock was given back.
    pub(super) fn tell(&self) {
        let mut inner = self.inner.lock();
        inner.count += 1;
        let waiters = std::mem::take(&mut inner.waiters);
        drop(inner);
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Waits until a lock was given back since `seen` was asked for; false where the caller was interrupted meanwhile.
    pub(super) async fn since(&self, seen: u64, cx: &Cx<'_>) -> bool {
        let mut interrupted = pin!(cx.interrupted());
        poll_fn(|context| {
            if interrupted.as_mut().poll(context).is_ready() {
                return Poll::Ready(false);
            }
            let mut inner = self.inner.lock();
            if inner.count != seen {
                return Poll::Ready(true);
            }
            if !inner.waiters.iter().any(|waiter| waiter.will_wake(context.waker())) {
                inner.waiters.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}
