//! GETLK, SETLK, SETLKW, and the end of locks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuntfs::{Cx, Errno, LockOwner, LockRange, LockRequest, LockType, LowerFile, Result};
use shuntfs_sys::locks::{FlockOp, HeldLock, LockKind, LockSpec, flock, ofd_lock, ofd_test};

use crate::error::errno;
use crate::file::PoolFile;
use crate::mode;
use crate::node::{Change, Marks};
use crate::op::room;
use crate::pool::Pool;
use crate::shared::Shared;

/// "To the end", as the kernel writes it.
const END: u64 = u64::MAX >> 1;

/// GETLK.
pub(crate) async fn getlk(pool: &Pool, cx: &Cx<'_>, file: &PoolFile, lock: LockRequest) -> Result<LockRange> {
    let shared = &pool.shared;
    let id = file.node.id;
    let lower = match shared.locks.file(id, lock.owner) {
        Some(lower) => lower,
        None => file.reader(shared)?,
    };
    let spec = spec(lock.range);
    let held = pool.run(cx, move |_| ofd_test(&lower, spec)).await.map_err(errno)?;
    let Some(HeldLock { spec, pid }) = held else {
        return Ok(LockRange { kind: LockType::Unlock, ..lock.range });
    };
    let end = if spec.len == 0 { END } else { spec.start.saturating_add(spec.len - 1) };
    let kind = if spec.kind == LockKind::Read { LockType::Read } else { LockType::Write };
    // A lock of the mount is an open file's below, so whose process it is only our own notes tell.
    let pid =
        pid.filter(|pid| *pid != 0).or_else(|| shared.locks.process_at(id, lock.owner, spec.start, end));
    Ok(LockRange { start: spec.start, end, kind, pid: pid.unwrap_or(0) })
}

/// SETLK and SETLKW.
pub(crate) async fn setlk(pool: &Pool, cx: &Cx<'_>, file: &PoolFile, lock: LockRequest) -> Result<()> {
    let unlocks = lock.range.kind == LockType::Unlock;
    // A file that is being moved is locked where it comes to, and one that was locked is not moved.
    let change = if unlocks { Change::NONE } else { room::change(&file.node).await };
    let Some(lower) = lock_file(&pool.shared, file, lock)? else { return Ok(()) };
    let attempt = attempt(lower, lock);
    let mut first = attempt.clone();
    let first = pool.run(cx, move |_| first.make()).await;
    drop(change);
    let outcome = match first {
        Err(Errno::AGAIN) if lock.wait && !unlocks => {
            let mut again = attempt;
            let waiting = pool.shared.locks.waiters.wait(cx.uid(), Box::new(move || again.make()))?;
            waiting.unless(cx.interrupted()).await
        }
        outcome => outcome,
    };
    outcome?;
    if !lock.flock {
        pool.shared.locks.note(file.node.id, lock.owner, lock.range);
    }
    if lock.range.kind != LockType::Write {
        // Given back, or made less than it may have been.
        pool.shared.locks.waiters.kick();
    }
    Ok(())
}

/// FLUSH: a close drops every POSIX lock of its process on the file, through whatever open file it came.
pub(crate) fn flush(shared: &Shared, file: &PoolFile, owner: LockOwner) {
    shared.locks.drop_owners(file.node.id, &[owner]);
    file.lock_owners.lock().retain(|held| *held != owner);
}

/// The lower file that carries the lock; `None` where there is nothing to unlock.
fn lock_file(shared: &Shared, file: &PoolFile, lock: LockRequest) -> Result<Option<Arc<LowerFile>>> {
    // First: a file that was locked is not moved to another branch.
    if lock.range.kind != LockType::Unlock {
        file.node.mark(Marks::LOCKED_BELOW);
    }
    if lock.flock {
        let lower = file.reader(shared)?;
        shared.locks.keep_flock(file.node.id, file.opened, &lower)?;
        file.has_flock.store(true, Ordering::Relaxed);
        return Ok(Some(lower));
    }
    if lock.range.kind == LockType::Unlock {
        return Ok(shared.locks.file(file.node.id, lock.owner));
    }
    let mut owners = file.lock_owners.lock();
    if !owners.contains(&lock.owner) {
        owners.push(lock.owner);
    }
    drop(owners);
    shared.locks.file_or((file.node.id, file.opened), lock.owner, || open_for_locks(shared, file)).map(Some)
}

/// The kernel has checked that the caller's open file suits the kind of lock. A write lock wants a file that is
/// open for writing below; where that cannot be (it is being executed, say), read locks at least.
fn open_for_locks(shared: &Shared, file: &PoolFile) -> Result<Arc<LowerFile>> {
    match shared.open_node(&file.node, mode::O_RDWR | mode::O_NONBLOCK) {
        Err(Errno::ACCES | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => {
            shared.open_node(&file.node, mode::O_RDONLY | mode::O_NONBLOCK)
        }
        outcome => outcome,
    }
}

#[derive(Clone, Debug)]
struct Attempt {
    lower: Arc<LowerFile>,
    spec: LockSpec,
    flock: bool,
}

fn attempt(lower: Arc<LowerFile>, lock: LockRequest) -> Attempt {
    Attempt { lower, spec: spec(lock.range), flock: lock.flock }
}

impl Attempt {
    /// Tries once; EAGAIN where something stands in the way.
    fn make(&mut self) -> Result<()> {
        let made = if self.flock {
            let op = match self.spec.kind {
                LockKind::Read => FlockOp::Shared,
                LockKind::Write => FlockOp::Exclusive,
                LockKind::Unlock => FlockOp::Unlock,
            };
            flock(&self.lower, op, false)
        } else {
            ofd_lock(&self.lower, self.spec, false)
        };
        match made.map_err(errno) {
            // POSIX lets a lock that stands in the way be told in either way.
            Err(Errno::ACCES) => Err(Errno::AGAIN),
            outcome => outcome,
        }
    }
}

fn spec(range: LockRange) -> LockSpec {
    let kind = match range.kind {
        LockType::Read => LockKind::Read,
        LockType::Write => LockKind::Write,
        LockType::Unlock => LockKind::Unlock,
    };
    let len = if range.end >= END { 0 } else { (range.end + 1).saturating_sub(range.start) };
    LockSpec { kind, start: range.start, len }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn ranges_become_lengths() {
        let range = |start, end| LockRange { start, end, kind: LockType::Read, pid: 0 };
        assert_eq!(spec(range(0, 0)).len, 1);
        assert_eq!(spec(range(10, 19)).len, 10);
        assert_eq!(spec(range(10, END)).len, 0, "to the end");
        assert_eq!(spec(range(0, END - 1)).len, END);
    }
}
