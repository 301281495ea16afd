//! One queue: its number, its ring where it has one, and what its futures await.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use shuntfs_sys::uring::{Completion, Ring};

use crate::offload::{Offload, OffloadPool};
use crate::ready::Ready;
use crate::ring_op::Ops;
use crate::token::Token;

/// One queue, cheap to clone, at home in one thread.
#[derive(Clone, Debug)]
pub struct Queue {
    inner: Rc<Inner>,
}

#[derive(Debug)]
struct Inner {
    index: usize,
    ready: Arc<Ready>,
    pool: Arc<OffloadPool>,
    ring: Option<RefCell<Ring>>,
    ops: RefCell<Ops>,
    /// Completions that are the transport's, reaped while somebody else waited.
    reaped: RefCell<VecDeque<(Token, i32)>>,
}

impl Queue {
    /// Makes a queue; `ring` must have been made by this thread.
    #[must_use]
    pub fn new(index: usize, ready: Arc<Ready>, pool: Arc<OffloadPool>, ring: Option<Ring>) -> Self {
        let inner = Inner {
            index,
            ready,
            pool,
            ring: ring.map(RefCell::new),
            ops: RefCell::new(Ops::default()),
            reaped: RefCell::new(VecDeque::new()),
        };
        Self { inner: Rc::new(inner) }
    }

    /// The queue's number, counted from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.inner.index
    }

    /// Which slots are ready, shared with other threads.
    #[must_use]
    pub fn ready(&self) -> &Arc<Ready> {
        &self.inner.ready
    }

    /// Whether the queue has a ring.
    #[must_use]
    pub fn has_ring(&self) -> bool {
        self.inner.ring.is_some()
    }

    /// Runs blocking work on the offload pool.
    pub fn offload<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Offload<T> {
        self.inner.pool.run(work)
    }

    /// Calls `push` with the ring, to queue submissions.
    ///
    /// # Panics
    /// Where the queue has no ring, or `push` comes back here.
    pub fn with_ring<R>(&self, push: impl FnOnce(&mut Ring) -> R) -> R {
        let ring = self.inner.ring.as_ref().expect("the caller asked has_ring");
        push(&mut ring.borrow_mut())
    }

    /// How many operations that futures await are under way.
    #[must_use]
    pub fn ops_count(&self) -> usize {
        self.inner.ops.borrow().count()
    }

    /// Submits what is queued; waits for a completion where `wait` holds; hands on the completions of
    /// operations to their futures and keeps the others for [`Queue::next`].
    ///
    /// # Errors
    /// ETIME where nothing came within `limit`; others mean that the ring is broken.
    pub fn turn(&self, wait: bool, limit: Option<Duration>) -> shuntfs_sys::Result<()> {
        self.turn_for(u32::from(wait), limit)
    }

    /// The same, waiting for so many completions.
    ///
    /// # Errors
    /// As of [`Queue::turn`].
    pub fn turn_for(&self, want: u32, limit: Option<Duration>) -> shuntfs_sys::Result<()> {
        let want = if self.inner.reaped.borrow().is_empty() { want } else { 0 };
        let entered = self.with_ring(|ring| ring.enter(want, limit.filter(|_| want > 0)));
        // The thread is awake: what completed wakes futures without ringing its own bell.
        self.inner.ready.woke();
        self.reap();
        entered
    }

    /// The next completion that is not an operation's.
    #[must_use]
    pub fn next(&self) -> Option<(Token, i32)> {
        self.inner.reaped.borrow_mut().pop_front()
    }

    pub(crate) fn ops(&self) -> &RefCell<Ops> {
        &self.inner.ops
    }

    fn reap(&self) {
        while let Some(Completion { user_data, result }) = self.with_ring(Ring::next_completion) {
            match Token::decode(user_data) {
                Some(Token::Op(index)) => self.inner.ops.borrow_mut().complete(index, result),
                Some(Token::Cancel) => tracing::debug!(result, "an operation ended before it was cancelled"),
                Some(token) => self.inner.reaped.borrow_mut().push_back((token, result)),
                None => tracing::error!(user_data, result, "a completion of nobody"),
            }
        }
    }
}
