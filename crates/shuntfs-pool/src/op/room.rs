//! What is done where there may be no room for it: in a merge the file is then moved to another branch, and it is done there.

use std::sync::Arc;

use shuntfs::{Cx, Errno, NodeId, Result};

use crate::file::PoolFile;
use crate::merge;
use crate::node::{Change, Node};
use crate::pool::Pool;
use crate::shared::Shared;

/// How often a file is moved for one request. It is moved to where there is room; only others who take that meanwhile have it moved again.
const MOVES_MAX: usize = 8;

/// Whether an error says that there is no room, for anybody or for the file's owner.
pub(crate) fn is_full(error: Errno) -> bool {
    matches!(error, Errno::NOSPC | Errno::DQUOT)
}

/// Waits until a file is not being moved, and keeps it from being moved. Whoever has this must not ask for another one of the same file.
pub(crate) async fn change(pool: &Pool, cx: &Cx<'_>, node: &Arc<Node>) -> Change {
    if let Some(change) = Change::begin(node) {
        return change;
    }
    let node = Arc::clone(node);
    // A move takes as long as the file is large.
    Box::pin(pool.run_aside(cx, move |_| Change::wait(&node))).await
}

/// The same for a node by its number, if it is one that can be moved.
pub(crate) async fn change_of(pool: &Pool, cx: &Cx<'_>, id: NodeId) -> Change {
    if pool.shared.merge.is_none() {
        return Change::NONE;
    }
    match pool.shared.node(id) {
        Ok(node) => {
            if node.parts().is_none() {
                // It may be moved while nobody has it open, too.
                node.make_mobile();
            }
            change(pool, cx, &node).await
        }
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
        let change = change(pool, cx, &file.node).await;
        let outcome = act().await;
        drop(change);
        let Err(error) = outcome else { return outcome };
        if !is_full(error) || moves == MOVES_MAX || !make_room(pool, cx, (file, len), error).await {
            return outcome;
        }
        moves += 1;
    }
}

/// Moves a file to where there is room for `len` bytes more; whether it may be tried again there.
pub(crate) async fn make_room(pool: &Pool, cx: &Cx<'_>, (file, len): (&PoolFile, u64), error: Errno) -> bool {
    if pool.shared.merge.is_none() {
        return false;
    }
    let (node, is_backed) = (Arc::clone(&file.node), file.is_backed());
    let relocate = move |shared: &Shared| {
        let moved = merge::relocate(shared, &node, is_backed, len);
        moved.inspect_err(|why| merge::tell_full(shared, &node, error, why)).is_ok()
    };
    Box::pin(pool.run_aside(cx, relocate)).await
}
