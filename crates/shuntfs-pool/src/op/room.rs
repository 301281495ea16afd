//! What is done where there may be no room for it: in a merge the file is then moved to another branch, and it is done there.

use std::sync::Arc;

use shuntfs::{Cx, Errno, NodeId, Result};

use crate::file::PoolFile;
use crate::merge;
use crate::node::{Change, Move, Node};
use crate::pool::Pool;
use crate::shared::Shared;

/// How often a file is moved for one request. It is moved to where there is room; only others who take that meanwhile have it moved again.
const MOVES_MAX: usize = 8;

/// Whether an error says that there is no room, for anybody or for the file's owner.
pub(crate) fn is_full(error: Errno) -> bool {
    matches!(error, Errno::NOSPC | Errno::DQUOT)
}

/// Begins to change a file that nobody need have open; `None` while it is being moved. What may be opened and moved before the change has ended is
/// counted from its beginning.
pub(crate) fn begin(shared: &Shared, node: &Arc<Node>) -> Option<Change> {
    if shared.merge.is_some() && node.parts().is_none() {
        node.make_mobile();
    }
    Change::begin(node)
}

/// Waits until a file is not being moved, and keeps it from being moved. Whoever has this must not ask for another one of the same file.
pub(crate) async fn change(node: &Arc<Node>) -> Change {
    match Change::begin(node) {
        Some(change) => change,
        // On the heap, as every request would have to have room for it.
        None => Box::pin(Change::wait(node)).await,
    }
}

/// The same for a node by its number, if it is one that can be moved.
pub(crate) async fn change_of(pool: &Pool, id: NodeId) -> Change {
    if pool.shared.merge.is_none() {
        return Change::NONE;
    }
    match pool.shared.node(id) {
        Ok(node) => match begin(&pool.shared, &node) {
            Some(change) => change,
            None => Box::pin(Change::wait(&node)).await,
        },
        // Whatever comes next says so, too.
        Err(_) => Change::NONE,
    }
}

/// Does something to an open file that needs about `len` bytes of room; where there is none, the file is moved and it is done again.
pub(crate) async fn with_room<T>(
    pool: &Pool,
    cx: &Cx<'_>,
    (file, len): (&PoolFile, u64),
    act: impl AsyncFn() -> Result<T>,
) -> Result<T> {
    let mut moves = 0;
    loop {
        let change = change(&file.node).await;
        let outcome = act().await;
        drop(change);
        let Err(error) = outcome else { return outcome };
        if !is_full(error) || moves == MOVES_MAX || !Box::pin(make_room(pool, cx, (file, len), error)).await {
            return outcome;
        }
        moves += 1;
    }
}

/// Moves a file to where there is room for `len` bytes more; whether it may be tried again there.
pub(crate) async fn make_room(pool: &Pool, cx: &Cx<'_>, (file, len): (&PoolFile, u64), error: Errno) -> bool {
    let Some(merge) = &pool.shared.merge else { return false };
    let (shared, node) = (&pool.shared, &file.node);
    if let Err(why) = merge::check_move(shared, node, file.is_backed()) {
        merge::tell_full(shared, node, error, &why);
        return false;
    }
    // Only the copying takes a thread, and not too many at once.
    let Some(moving) = Move::begun(node).await else { return true };
    let permit = merge.copying.permit().await;
    let ticket = moving.ticket();
    let relocate = move |shared: &Shared| {
        let node = Arc::clone(moving.node());
        let moved = merge::relocate(shared, moving, len);
        moved.inspect_err(|why| merge::tell_full(shared, &node, error, why)).is_ok()
    };
    let is_moved = pool.run_aside(cx, relocate).await;
    // It may be left behind with a disk that hangs. Then nobody else is to wait for it.
    node.make_mobile().give_up(ticket);
    drop(permit);
    is_moved
}
