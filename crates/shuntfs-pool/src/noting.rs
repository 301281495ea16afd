//! What is noted of a request that changes names or attributes before it does, so that the next server can complete it.

use std::ffi::CStr;

use shuntfs::{Cx, NodeId, Rename, Result};

use crate::merge::Merge;
use crate::name_buf::NameBuf;
use crate::op::rename::{self, Named};
use crate::op::{remove, xattr};
use crate::pool::Pool;

impl Pool {
    /// Whether a server that is dead has exchanged two names. Where none had begun to, it is noted what they lead to.
    pub(crate) async fn was_exchanged(&self, cx: &Cx<'_>, op: Rename<'_>) -> Result<bool> {
        let (from, to) = (NameBuf::new(op.name)?, NameBuf::new(op.new_name)?);
        let (parent, new_parent) = (op.parent, op.new_parent);
        let now = self.run(cx, move |shared| {
            rename::inodes(shared, Named { parent, name: &from }, Named { parent: new_parent, name: &to })
        });
        let now = now.await?;
        match cx.begun_note() {
            Some(before) => {
                let is_done = rename::was_exchanged(before, now)?;
                let (from, to) = (NameBuf::new(op.name)?, NameBuf::new(op.new_name)?);
                if is_done {
                    let noted = self.run(cx, move |shared| {
                        let (from, to) =
                            (Named { parent, name: &from }, Named { parent: new_parent, name: &to });
                        rename::note_exchanged(shared, from, to)
                    });
                    noted.await?;
                }
                Ok(is_done)
            }
            None => {
                cx.note_begun(now);
                Ok(false)
            }
        }
    }

    /// Notes whether an attribute exists, which the request that makes or removes it cannot tell when it is resent.
    pub(crate) async fn note_xattr(&self, cx: &Cx<'_>, node: NodeId, name: &CStr) {
        if cx.keeps_notes() && cx.begun_note().is_none() {
            let name = name.to_owned();
            let presence = self.run(cx, move |shared| xattr::presence(shared, node, &name));
            // Errors are those of the change.
            presence.await.into_iter().for_each(|presence| cx.note_begun(presence));
        }
    }

    /// Notes on which branches a name is removed, if that cannot be told from what is left.
    pub(crate) async fn note_removal(&self, cx: &Cx<'_>, parent: NodeId, name: &NameBuf) {
        if cx.keeps_notes() && self.shared.merge.as_ref().is_some_and(Merge::leaves_copies) {
            let name = *name;
            let picked = self.run(cx, move |shared| remove::picked(shared, parent, &name));
            // Errors are those of the removal.
            picked.await.into_iter().for_each(|picked| cx.note_begun([picked, 0]));
        }
    }

    /// Notes on which branches a name moves, if that takes several steps.
    pub(crate) async fn note_move(&self, cx: &Cx<'_>, from: (NodeId, &NameBuf), to: (NodeId, &NameBuf)) {
        if cx.keeps_notes() && self.shared.merge.is_some() {
            let ((parent, from), (new_parent, to)) = ((from.0, *from.1), (to.0, *to.1));
            let note = self.run(cx, move |shared| {
                rename::branches(
                    shared,
                    Named { parent, name: &from },
                    Named { parent: new_parent, name: &to },
                )
            });
            // Errors are those of the rename.
            note.await.into_iter().filter(|note| *note != [0; 2]).for_each(|note| cx.note_begun(note));
        }
    }
}
