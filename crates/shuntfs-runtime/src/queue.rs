//! One queue: its number, its device, its slots, its ring where it has one, and what its futures await.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use shuntfs_sys::OsError;
use shuntfs_sys::device::FuseDevice;
use shuntfs_sys::uring::{Completion, Ring};

use crate::hold::Use;
use crate::offload::OffloadPool;
use crate::ops::{Completed, Ops};
use crate::ready::Ready;
use crate::slots::Slots;
use crate::token::Token;

/// A file that is read and written through a ring.
pub trait RingFile: AsFd + Send + Sync + 'static {
    /// Whether its file system waits though it is told not to, as FUSE does: the calls are then made by a thread of the kernel, and not in
    /// the submission, where they would keep the whole queue. Default: no.
    fn waits(&self) -> bool {
        false
    }
}

impl RingFile for File {}

/// One queue, cheap to clone, at home in one thread.
#[derive(Clone, Debug)]
pub struct Queue {
    inner: Rc<Inner>,
}

/// What a queue is made of.
#[derive(Debug)]
pub struct QueueParts {
    /// Its number, counted from 0.
    pub index: usize,
    /// What requests come from and answers go to.
    pub device: Arc<FuseDevice>,
    /// Which slots are ready.
    pub ready: Arc<Ready>,
    /// The memory of its requests.
    pub slots: Slots,
    /// Where blocking work is done.
    pub pool: Arc<OffloadPool>,
    /// A ring that this thread made.
    pub ring: Option<Ring>,
}

#[derive(Debug)]
struct Inner {
    index: usize,
    /// Before whatever it names.
    ring: Option<RefCell<Ring>>,
    device: Arc<FuseDevice>,
    ready: Arc<Ready>,
    slots: Slots,
    pool: Arc<OffloadPool>,
    ops: RefCell<Ops>,
    /// Files that submissions name which the kernel has not seen. From then on it has them itself.
    files: RefCell<Vec<Arc<dyn Any + Send + Sync>>>,
    /// Completions that are the transport's.
    reaped: RefCell<VecDeque<(Token, i32)>>,
}

/// How long a queue that waits keeps a file open after the kernel has it.
const KEPT: Duration = Duration::from_secs(1);

impl Queue {
    /// Makes a queue.
    #[must_use]
    pub fn new(parts: QueueParts) -> Self {
        let QueueParts { index, device, ready, slots, pool, ring } = parts;
        let inner = Inner {
            index,
            ring: ring.map(RefCell::new),
            device,
            ready,
            slots,
            pool,
            ops: RefCell::default(),
            files: RefCell::default(),
            reaped: RefCell::default(),
        };
        Self { inner: Rc::new(inner) }
    }

    /// The queue's number, counted from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.inner.index
    }

    /// What requests come from and answers go to.
    #[must_use]
    pub fn device(&self) -> &Arc<FuseDevice> {
        &self.inner.device
    }

    /// Which slots are ready, shared with other threads.
    #[must_use]
    pub fn ready(&self) -> &Arc<Ready> {
        &self.inner.ready
    }

    /// How many slots there are.
    #[must_use]
    pub fn slots_count(&self) -> usize {
        self.inner.slots.count()
    }

    /// Whether the queue has a ring.
    #[must_use]
    pub fn has_ring(&self) -> bool {
        self.inner.ring.is_some()
    }

    /// Runs blocking work on the offload pool.
    pub fn offload<T, W>(&self, work: W) -> impl Future<Output = T> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
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

    /// How many operations that futures await, or awaited, are under way.
    #[must_use]
    pub fn ops_count(&self) -> usize {
        self.inner.ops.borrow().under_way()
    }

    /// Whether submissions are queued that the kernel has not seen.
    #[must_use]
    pub fn has_queued(&self) -> bool {
        self.has_ring() && self.with_ring(|ring| ring.has_queued())
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
        // What an idle queue read last would take its room on the disk for as long as it is open here, removed or not.
        let until_let_go = (limit.is_none() && !self.inner.files.borrow().is_empty()).then_some(KEPT);
        let limit = limit.or(until_let_go).filter(|_| want > 0);
        let entered = match self.with_ring(|ring| ring.enter(want, limit)) {
            Err(OsError::TIME) if until_let_go.is_some() => Ok(()),
            entered => entered,
        };
        // The thread is awake: what completed wakes futures without ringing its own bell.
        self.inner.ready.woke();
        let mut files = self.inner.files.borrow_mut();
        if !files.is_empty() && !self.has_queued() {
            files.clear();
        }
        drop(files);
        self.reap();
        entered
    }

    /// The next completion that is not an operation's. The slot of an entry or a link is nobody's then.
    #[must_use]
    pub fn next(&self) -> Option<(Token, i32)> {
        self.inner.reaped.borrow_mut().pop_front()
    }

    /// Asks the kernel to end the operations that are under way, all or those that use one slot; each then completes, many with
    /// ECANCELED.
    pub fn cancel_ops(&self, slot: Option<u32>) {
        for index in self.inner.ops.borrow().waiting(slot) {
            self.cancel(Token::Op(index));
        }
    }

    /// Asks the kernel to end the operation of this token, which completes in any case.
    pub fn cancel(&self, token: Token) {
        self.with_ring(|ring| ring.push_cancel(token.encode(), Token::Cancel.encode()));
    }

    /// Ends all operations, and waits until they have. For a thread whose futures are gone.
    ///
    /// # Errors
    /// The ring is broken; the memory of what was under way is then never freed.
    pub fn end_ops(&self) -> shuntfs_sys::Result<()> {
        if self.ops_count() > 0 {
            self.cancel_ops(None);
        }
        while self.ops_count() > 0 {
            self.turn(true, None)?;
            while self.next().is_some() {}
        }
        Ok(())
    }

    pub(crate) fn ops(&self) -> &RefCell<Ops> {
        &self.inner.ops
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.inner.slots
    }

    /// Keeps a file open until the kernel has seen the submissions that name it.
    pub(crate) fn keep_until_submitted<F: Send + Sync + 'static>(&self, file: &Arc<F>) {
        let file: Arc<F> = Arc::clone(file);
        self.inner.files.borrow_mut().push(file);
    }

    pub(crate) fn give_up(&self, index: u32) {
        let (is_under_way, _waker) = self.inner.ops.borrow_mut().give_up(index);
        if is_under_way {
            self.cancel(Token::Op(index));
        }
    }

    fn reap(&self) {
        while let Some(Completion { user_data, result }) = self.with_ring(Ring::next_completion) {
            match Token::decode(user_data) {
                Some(Token::Op(index)) => self.complete(index, result),
                Some(Token::Cancel) => tracing::debug!(result, "an operation ended before it was cancelled"),
                Some(token) => {
                    if let Token::Entry(slot) | Token::Link(slot) = token {
                        let hold = self.inner.slots.hold(slot);
                        if !hold.is_given() {
                            tracing::error!(?token, result, "an entry completed that is not the kernel's");
                            continue;
                        }
                        hold.end(Use::Has);
                    }
                    self.inner.reaped.borrow_mut().push_back((token, result));
                }
                None => tracing::error!(user_data, result, "a completion of nobody"),
            }
        }
    }

    fn complete(&self, index: u32, result: i32) {
        let completed = self.inner.ops.borrow_mut().complete(index, result);
        let Some(Completed { slot, waker }) = completed else {
            tracing::error!(index, result, "an operation completed that nobody began");
            return;
        };
        if let Some((slot, what)) = slot {
            self.inner.slots.hold(slot).end(what);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
