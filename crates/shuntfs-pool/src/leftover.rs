//! Nodes of a dead server that the kernel does not know.
//!
//! A server that dies between counting a lookup and answering leaves it counted, and a FORGET that it had read does not come again. Where nodes have
//! handles that costs a few words. Without, the node keeps a descriptor, and with it the space of a file that may have been removed: so the kernel is
//! asked whether it knows the node, which an invalidation of its attributes tells.
//!
//! What was answered may not have arrived: the kernel knows a node a moment after it has read the answer. Answers of the dead server that were not
//! read are given again as soon as the next one begins, so the kernel is asked after [`GRACE`]. If a caller has slept for so long in the kernel, it
//! gets ESTALE, for which names are looked up again.

use std::sync::Arc;
use std::time::Duration;

use shuntfs::NotifyError;

use crate::node::{Marks, Node};
use crate::shared::Shared;

/// How long answers may be under way.
const GRACE: Duration = Duration::from_secs(3);

/// Starts a thread that removes them, if there may be any.
pub(crate) fn sweep(shared: &Arc<Shared>) {
    let left = shared.table.take_left();
    if left.is_empty() {
        return;
    }
    let weak = Arc::downgrade(shared);
    let work = move || {
        std::thread::sleep(GRACE);
        for id in left {
            let Some(shared) = weak.upgrade() else { return };
            if let Some(node) = shared.table.find(id).filter(|node| node.has(Marks::LEFT)) {
                ask(&shared, &node);
            }
        }
    };
    if let Err(error) = std::thread::Builder::new().name("shunt-leftover".into()).spawn(work) {
        tracing::warn!(%error, "nodes that only a dead server knew keep their descriptors");
    }
}

fn ask(shared: &Shared, node: &Arc<Node>) {
    let answer = shared.notifier.get().map(|notifier| notifier.attributes(node.id));
    if answer == Some(Err(NotifyError::Unknown)) && shared.table.drop_left(node) {
        shared.forgot(node);
        tracing::debug!(node = node.id.get(), "the kernel does not know this node of a dead server");
    }
}
