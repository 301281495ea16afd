//! Bytes between a request and a file of the image that may be open past the page cache.
//!
//! Direct I/O wants the offset, the length and the memory aligned. A payload's place is known. The caller's own pages, which zero copy
//! moves, lie as the caller put them: where the file refuses them (EINVAL), they go through the page cache.

use std::sync::Arc;

use shuntfs::{Cx, Errno, Filled, LowerFile, ReadReply, Result, WriteData, Written};

/// The two ways to one file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways<'a> {
    /// Past the page cache, and the alignment that this takes, where the request's offset and length have it.
    direct: Option<(&'a Arc<LowerFile>, u64)>,
    cached: &'a Arc<LowerFile>,
}

impl<'a> Ways<'a> {
    /// The ways for `len` bytes at `offset` of a file.
    pub(crate) fn new(
        direct: Option<&'a (Arc<LowerFile>, u64)>,
        cached: &'a Arc<LowerFile>,
        (offset, len): (u64, u64),
    ) -> Self {
        let direct = direct.filter(|(_, align)| (offset | len).is_multiple_of(*align));
        Self { direct: direct.map(|(file, align)| (file, *align)), cached }
    }

    /// Reads into the answer.
    pub(crate) async fn read<'q>(self, cx: &Cx<'_>, reply: ReadReply<'q>, offset: u64) -> Result<Filled<'q>> {
        let Some((direct, _)) = self.direct else { return reply.read_from(cx, self.cached, offset).await };
        let mut cached = Some(self.cached);
        let next = |error| cached.take().filter(|_| error == Errno::INVAL).map(Arc::clone);
        reply.read_from_or(cx, direct, offset, next).await
    }

    /// Writes the data, or the first of it.
    pub(crate) async fn write(self, cx: &Cx<'_>, data: WriteData<'_>, offset: u64) -> Result<Written> {
        let fits = |align| data.is_unseen() || (data.as_slice().as_ptr().addr() as u64).is_multiple_of(align);
        if let Some((direct, _)) = self.direct.filter(|(_, align)| fits(*align)) {
            match data.write_to(cx, direct, offset).await {
                Err(Errno::INVAL) => {}
                outcome => return outcome,
            }
        }
        data.write_to(cx, self.cached, offset).await
    }
}
