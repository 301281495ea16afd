//! FORGET and BATCH_FORGET, which nobody answers.

use shuntfs_wire::{InHeader, LookupCount, NodeId, Op};

use crate::filesystem::Filesystem;
use crate::server::Server;

pub(super) fn forget<F: Filesystem>(server: &Server<F>, header: InHeader, op: &Op<'_>) {
    match op {
        Op::Forget(arg) => {
            if let Some(node) = header.node() {
                one(server, node, LookupCount(arg.nlookup));
            }
        }
        Op::BatchForget(all) => {
            for item in *all {
                if let Some(node) = item.node() {
                    one(server, node, item.lookups());
                }
            }
        }
        _ => {}
    }
}

/// The kernel sends a node's whole count when it drops the inode, so a FORGET is the end of the backing id;
/// for the rare one that takes back a single lookup of a race, registering again is all it costs.
fn one<F: Filesystem>(server: &Server<F>, node: NodeId, lookups: LookupCount) {
    server.core.nodes.forget(node);
    server.fs.forget(node, lookups);
}
