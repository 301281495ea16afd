//! Cutting and changing what files hold, and asking below what they hold.

use std::sync::Arc;

use shuntfs::{Cx, Errno, LowerFile, Result, SetAttr, Whence, WriteData, Written};
use shuntfs_sys::data::{copy_range, fallocate, seek_data, seek_hole, write_at};
use shuntfs_sys::{OsError, stat_of, truncate};

use crate::branch::touches_nothing;
use crate::error::errno;
use crate::guard::{ContentChanges, ContentCut, Judged, ReadBelow};
use crate::merge;
use crate::mode;
use crate::shared::Shared;
use crate::who::keeping_set_ids;

/// A lower file that may be changed.
#[derive(Debug)]
pub(crate) struct Target {
    lower: Arc<LowerFile>,
    /// Whether a change of the data would strip suid or sgid from its mode, as last seen.
    has_privileges: bool,
}

/// A lower file that may only grow.
#[derive(Debug)]
pub(crate) struct Growing(Arc<LowerFile>);

/// A lower file that may be asked.
#[derive(Debug)]
pub(crate) struct Source(Arc<LowerFile>);

impl Judged<ContentCut<'_>> {
    /// Gives a file another length: by `writable`, an open lower file of the caller's, where there is one.
    pub(crate) fn cut(self, shared: &Shared, writable: Option<Arc<LowerFile>>, set: &SetAttr) -> Result<()> {
        let ContentCut { node, len, .. } = self.change;
        let keep = !set.kill_priv && self.who.keeps_set_ids() && node.has_privileges();
        let cut = |file: &LowerFile| {
            // To cut a long file may take long on any disk.
            touches_nothing();
            keeping_set_ids(keep, || truncate(file, len)).map_err(errno)
        };
        match writable {
            // What is wrong is told when the file could not be moved to another branch either.
            Some(file) => cut(&file),
            None => {
                let opened = shared.open_node(node, mode::O_WRONLY | mode::O_NONBLOCK);
                let cut = opened.and_then(|file| cut(&file));
                cut.inspect_err(|error| merge::pass_on_of(shared, node, *error))
            }
        }
    }
}

impl Judged<ContentChanges<'_>> {
    /// Whether what is written must go to the end.
    pub(crate) fn only_grows(&self) -> bool {
        self.terms.append_only
    }

    /// The lower file to change.
    pub(crate) fn target(self, shared: &Shared) -> Result<Target> {
        let file = self.change.file;
        Ok(Target { lower: file.mover(shared)?, has_privileges: file.node.has_privileges() })
    }

    /// The lower file to append to.
    pub(crate) fn growing(self, shared: &Shared) -> Result<Growing> {
        self.change.file.appender(shared).map(Growing)
    }
}

impl Target {
    /// Whether a write by this caller leaves suid and sgid, for which the thread needs a capability that it gave up.
    pub(crate) fn keeps_set_ids(&self, by_superuser: bool, data: &WriteData<'_>) -> bool {
        !data.kill_priv() && by_superuser && self.has_privileges
    }

    /// Writes; suid and sgid go.
    pub(crate) async fn write(self, cx: &Cx<'_>, data: WriteData<'_>, offset: u64) -> Result<Written> {
        // The thread lacks CAP_FSETID, so the lower file system strips what is to go.
        data.write_to(cx, &self.lower, offset).await
    }

    /// Writes; suid and sgid stay.
    pub(crate) fn write_keeping(self, bytes: &[u8], offset: u64) -> Result<usize> {
        keeping_set_ids(true, || write_at(&self.lower, bytes, offset)).map_err(errno)
    }

    /// Allocates or frees space. The kernel has stripped what a change of the data strips.
    pub(crate) fn allocate(self, mode: u32, offset: u64, len: u64) -> Result<()> {
        keeping_set_ids(self.has_privileges, || fallocate(&self.lower, mode, offset, len)).map_err(errno)
    }

    /// Copies from another lower file.
    pub(crate) fn copy(self, from: &Source, offsets: (u64, u64), len: usize) -> Result<usize> {
        let copy = || copy_range(&from.0, offsets.0, &self.lower, offsets.1, len);
        keeping_set_ids(self.has_privileges, copy).map_err(errno)
    }
}

impl Growing {
    /// Appends what starts at the end, and nothing else; whatever happens in between, the lower file appends.
    pub(crate) fn append(self, bytes: &[u8], offset: u64) -> Result<usize> {
        let end = stat_of(&self.0).map_err(errno)?.size;
        if offset == end { write_at(&self.0, bytes, offset).map_err(errno) } else { Err(Errno::PERM) }
    }
}

impl Judged<ReadBelow<'_>> {
    /// The lower file to ask.
    pub(crate) fn source(self, shared: &Shared) -> Result<Source> {
        self.change.file.reader(shared).map(Source)
    }
}

impl Source {
    /// Where data or a hole begins.
    pub(crate) fn seek(self, offset: u64, whence: Whence) -> Result<u64> {
        let found = match whence {
            Whence::Data => seek_data(&self.0, offset),
            Whence::Hole => seek_hole(&self.0, offset),
            _ => Err(OsError::INVAL),
        };
        found.map_err(errno)
    }

    /// For ioctls that only ask.
    pub(crate) fn into_lower(self) -> Arc<LowerFile> {
        self.0
    }
}
