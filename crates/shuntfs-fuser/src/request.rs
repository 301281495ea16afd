//! Who asks.

use shuntfs_wire::InHeader;

use crate::ids::RequestId;

/// Who asks, and the request's number.
#[derive(Debug)]
pub struct Request {
    header: InHeader,
}

impl Request {
    pub(crate) fn new(header: InHeader) -> Self {
        Self { header }
    }

    /// The request's number.
    #[inline]
    pub fn unique(&self) -> RequestId {
        RequestId(self.header.unique)
    }

    /// The caller's file system user.
    #[inline]
    pub fn uid(&self) -> u32 {
        self.header.uid
    }

    /// The caller's file system group.
    #[inline]
    pub fn gid(&self) -> u32 {
        self.header.gid
    }

    /// The calling thread.
    #[inline]
    pub fn pid(&self) -> u32 {
        self.header.pid
    }
}
