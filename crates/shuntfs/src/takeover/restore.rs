//! What a predecessor had open is open again.

use std::collections::HashSet;
use std::sync::Arc;

use shuntfs_sys::descriptors::LeftDescriptors;

use super::error::TakeoverError;
use super::store::{FoundOpen, OpenRecord, Store, StoreError, Table};
use super::surviving::{FileIdentity, LeftOpen, Surviving};
use crate::server::{Open, Server};
use shuntfs_wire::Fh;

/// Puts everything that was open into the tables of a server that has not begun. What was opened by a request of `unfinished` was never
/// answered, and is closed.
///
/// # Errors
/// [`TakeoverError`].
pub(super) fn restore<F: Surviving>(
    server: &Server<F>,
    store: &Store,
    left: &mut LeftDescriptors,
    unfinished: &HashSet<u64>,
) -> Result<(), TakeoverError> {
    let mut backings = HashSet::new();
    let files = open_again(store, Table::Files, unfinished, left, |index, open, left| {
        let damaged =
            || StoreError::Record { what: "open file", index, why: "it contradicts others of its node" };
        let taken = server.fs.take_file(open.node, left);
        let Some((file, delegation)) = taken.map_err(TakeoverError::FileSystem)? else { return Ok(None) };
        if !server.core.nodes.restore(open.node, open) {
            return Err(damaged().into());
        }
        if open.backing > 0 {
            backings.insert(open.backing);
        }
        server.fs.opened(open.node, &file, open.flows);
        Ok(Some(Open::new(open.node, Arc::new(file), open.counted, delegation)))
    })?;
    server.files.restore(files);
    let dirs = open_again(store, Table::Folders, unfinished, left, |_, open, left| {
        server.fs.take_dir(open.node, left).map_err(TakeoverError::FileSystem)
    })?;
    server.dirs.restore(dirs);
    sweep(server, store, &backings);
    Ok(())
}

type Places<T> = Vec<(u32, Option<Arc<T>>)>;

fn open_again<T>(
    store: &Store,
    table: Table,
    unfinished: &HashSet<u64>,
    left: &mut LeftDescriptors,
    mut take: impl FnMut(u32, &OpenRecord, LeftOpen) -> Result<Option<T>, TakeoverError>,
) -> Result<Places<T>, TakeoverError> {
    let mut places = Vec::new();
    for FoundOpen { index, generation, open } in store.found_opens(table)? {
        let closes = || store.closes(table, Fh(u64::from(generation) << 32 | u64::from(index)));
        let Some(open) = open.filter(|open| !unfinished.contains(&open.unique)) else {
            closes();
            places.push((generation, None));
            continue;
        };
        let wrong = |why| StoreError::Record { what: "open file or folder", index, why };
        let file = match open.descriptor {
            None => None,
            Some((number, identity)) => {
                let file = left.take(number).ok_or_else(|| wrong("its descriptor is not open"))?;
                if FileIdentity::of(&file) != Ok(identity) {
                    return Err(wrong("its descriptor leads elsewhere").into());
                }
                Some(file)
            }
        };
        let taken = take(index, &open, LeftOpen { file, words: open.words })?;
        if taken.is_none() {
            closes();
        }
        places.push((generation, taken.map(Arc::new)));
    }
    Ok(places)
}

/// Gives back the numbers of lower files that no open file needs: those that were kept for later, and those that nobody knows of.
fn sweep<F: Surviving>(server: &Server<F>, store: &Store, needed: &HashSet<u32>) {
    let device = &server.core.device;
    if server.core.negotiated.passthrough_off.is_some() {
        return;
    }
    // The state itself is a regular file, and tells which number is the next.
    let next = match device.backing_open(store) {
        Ok(next) => next,
        Err(error) => return tracing::debug!(%error, "backing ids are not swept"),
    };
    let below = store.backings_below(next).unwrap_or_default();
    for id in below.into_iter().chain([next]).filter(|id| !needed.contains(id)) {
        // Most of them are gone already.
        let _gone = device.backing_close(id);
        store.backing_goes(id);
    }
}
