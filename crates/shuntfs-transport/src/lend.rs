//! Payload lent to threads of the offload pool, to be looked at.
//!
//! # Safety
//! The bytes are borrowed by the future that lends them, and it does not end before every thread is done with them: not
//! when it is awaited, and not when it is dropped half way, which waits. A future that is leaked leaks the borrow, and with it
//! the exchange whose slot the bytes lie in: the slot is then never given to the kernel again.
#![expect(unsafe_code, reason = "a borrow cannot be handed to a thread that may outlive it by its type")]

use std::ops::Range;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use shuntfs_runtime::Queue;

/// What looks at a part of the bytes, and is told which part it is.
pub type Judge<T> = Arc<dyn Fn(&[u8], Range<usize>) -> T + Send + Sync>;

/// Has `judge` look at each part: at the first one here, at the others on the offload pool.
pub(crate) async fn examine<T: Send + 'static>(
    queue: &Queue,
    bytes: &[u8],
    parts: &[Range<usize>],
    judge: &Judge<T>,
) -> Vec<T> {
    let Some((first, others)) = parts.split_first() else { return Vec::new() };
    let loans = Loans::default();
    let mut elsewhere = Vec::with_capacity(others.len());
    for part in others {
        let (lent, judge, part) = (loans.lend(&bytes[part.clone()]), Arc::clone(judge), part.clone());
        elsewhere.push(queue.offload(move || judge(lent.bytes(), part)));
    }
    let mut outcomes = Vec::with_capacity(parts.len());
    outcomes.push(judge(&bytes[first.clone()], first.clone()));
    for outcome in elsewhere {
        outcomes.push(outcome.await);
    }
    outcomes
}

/// How many loans are out. Dropping it waits for the last.
#[derive(Default)]
struct Loans {
    out: Arc<Out>,
}

#[derive(Default)]
struct Out {
    count: Mutex<usize>,
    last: Condvar,
}

/// Bytes on loan.
struct Lent {
    start: *const u8,
    len: usize,
    out: Arc<Out>,
}

// SAFETY: the bytes are only read, and outlive the loan (see the module's text).
unsafe impl Send for Lent {}

impl Loans {
    fn lend(&self, bytes: &[u8]) -> Lent {
        *self.out.count.lock() += 1;
        Lent { start: bytes.as_ptr(), len: bytes.len(), out: Arc::clone(&self.out) }
    }
}

impl Lent {
    fn bytes(&self) -> &[u8] {
        // SAFETY: whoever lent the bytes keeps them borrowed until this loan is dropped.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut count = self.out.count.lock();
        *count -= 1;
        if *count == 0 {
            self.out.last.notify_all();
        }
    }
}

impl Drop for Loans {
    fn drop(&mut self) {
        let mut count = self.out.count.lock();
        while *count > 0 {
            self.out.last.wait(&mut count);
        }
    }
}

#[cfg(test)]
mod test {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use shuntfs_runtime::{OffloadPool, Ready};

    use super::*;

    fn queue() -> Queue {
        Queue::new(0, Ready::new(1).expect("a bell"), OffloadPool::new(4, || ()), None)
    }

    fn finish<T>(future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                return value;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    #[test]
    fn every_part_is_seen_once_and_in_order() {
        let bytes: Vec<u8> = (0..100).collect();
        let judge: Judge<(usize, u32)> =
            Arc::new(|bytes, part| (part.start, bytes.iter().map(|byte| u32::from(*byte)).sum()));
        let parts = [0..10, 10..60, 60..60, 60..100];
        let sums = finish(examine(&queue(), &bytes, &parts, &judge));
        assert_eq!(sums, [(0, 45), (10, 1725), (60, 0), (60, 3180)]);
        assert!(finish(examine(&queue(), &bytes, &[], &judge)).is_empty());
    }

    /// What is dropped half way must not leave a thread that reads memory which is somebody else's by then.
    #[test]
    fn dropping_it_waits_for_every_thread() {
        let done = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&done);
        let judge: Judge<()> = Arc::new(move |_, part| {
            if part.start > 0 {
                std::thread::sleep(Duration::from_millis(20));
            }
            counts.fetch_add(1, Ordering::SeqCst);
        });
        let queue = queue();
        let bytes = vec![0; 4];
        let parts = [0..1, 1..2, 2..3, 3..4];
        {
            let mut future = pin!(examine(&queue, &bytes, &parts, &judge));
            let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(polled.is_pending());
        }
        assert_eq!(done.load(Ordering::SeqCst), 4);
    }

    #[test]
    #[should_panic(expected = "told to")]
    fn a_panic_elsewhere_is_a_panic_here() {
        let judge: Judge<()> = Arc::new(|_, part| assert!(part.start == 0, "told to"));
        finish(examine(&queue(), &[0; 8], &[0..4, 4..8], &judge));
    }
}
