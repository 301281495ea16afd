//! File systems whose operations are futures, on tokio.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use crate::attr::{FileAttr, FileType};
use crate::errno::Errno;
use crate::filesystem::Filesystem;
use crate::flags::OpenFlags;
use crate::ids::{FileHandle, Generation, INodeNo, LockOwner, RequestId};
use crate::reply::{ReplyAttr, ReplyData, ReplyEntry};
use crate::reply_dir::ReplyDirectory;
use crate::request::Request;

/// What an operation comes to.
pub type Result<T> = std::result::Result<T, Errno>;

/// Who asks, to be kept.
#[derive(Debug)]
pub struct RequestContext {
    uid: u32,
    gid: u32,
    pid: u32,
    request_id: RequestId,
}

impl RequestContext {
    /// The caller's user.
    pub fn user_id(&self) -> u32 {
        self.uid
    }

    /// The caller's group.
    pub fn group_id(&self) -> u32 {
        self.gid
    }

    /// The calling thread.
    pub fn process_id(&self) -> u32 {
        self.pid
    }

    /// The request's number.
    pub fn request_id(&self) -> RequestId {
        self.request_id
    }
}

impl From<&Request> for RequestContext {
    fn from(req: &Request) -> Self {
        Self { uid: req.uid(), gid: req.gid(), pid: req.pid(), request_id: req.unique() }
    }
}

/// Where names are added to a listing.
#[derive(Debug)]
pub struct DirEntListBuilder<'a> {
    entries: &'a mut ReplyDirectory,
}

impl DirEntListBuilder<'_> {
    /// As [`ReplyDirectory::add`].
    #[must_use]
    pub fn add<T: AsRef<OsStr>>(&mut self, ino: INodeNo, offset: u64, kind: FileType, name: T) -> bool {
        self.entries.add(ino, offset, kind, name)
    }
}

/// What [`AsyncFilesystem::lookup`] answers.
#[derive(Debug)]
pub struct LookupResponse {
    ttl: Duration,
    attr: FileAttr,
    generation: Generation,
}

impl LookupResponse {
    /// Name and attributes hold for `ttl`.
    pub fn new(ttl: Duration, attr: FileAttr, generation: Generation) -> Self {
        Self { ttl, attr, generation }
    }
}

/// What [`AsyncFilesystem::getattr`] answers.
#[derive(Debug)]
pub struct GetAttrResponse {
    ttl: Duration,
    attr: FileAttr,
}

impl GetAttrResponse {
    /// The attributes hold for `ttl`.
    pub fn new(ttl: Duration, attr: FileAttr) -> Self {
        Self { ttl, attr }
    }
}

/// A file system whose operations are futures.
#[async_trait::async_trait]
#[expect(clippy::too_many_arguments, reason = "fuser's interface")]
pub trait AsyncFilesystem: Send + Sync + 'static {
    /// As [`Filesystem::lookup`].
    async fn lookup(&self, context: &RequestContext, parent: INodeNo, name: &OsStr)
    -> Result<LookupResponse>;

    /// As [`Filesystem::getattr`].
    async fn getattr(
        &self,
        context: &RequestContext,
        ino: INodeNo,
        file_handle: Option<FileHandle>,
    ) -> Result<GetAttrResponse>;

    /// As [`Filesystem::read`]; the data goes to `out_data`.
    async fn read(
        &self,
        context: &RequestContext,
        ino: INodeNo,
        file_handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock: Option<LockOwner>,
        out_data: &mut Vec<u8>,
    ) -> Result<()>;

    /// As [`Filesystem::readdir`]; the names go to `builder`.
    async fn readdir(
        &self,
        context: &RequestContext,
        ino: INodeNo,
        file_handle: FileHandle,
        offset: u64,
        builder: DirEntListBuilder<'_>,
    ) -> Result<()>;
}

/// Runs an [`AsyncFilesystem`] on threads of tokio.
#[derive(Debug)]
pub struct TokioAdapter<T: AsyncFilesystem> {
    inner: Arc<T>,
    runtime: tokio::runtime::Runtime,
}

impl<T: AsyncFilesystem> TokioAdapter<T> {
    /// Starts the threads.
    ///
    /// # Panics
    /// Where no thread is available.
    pub fn new(inner: T) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        Self { inner: Arc::new(inner), runtime: runtime.expect("threads are to be had") }
    }
}

impl<T: AsyncFilesystem> Filesystem for TokioAdapter<T> {
    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (context, inner, name) = (req.into(), Arc::clone(&self.inner), name.to_owned());
        self.runtime.spawn(async move {
            match inner.lookup(&context, parent, &name).await {
                Ok(found) => reply.entry(&found.ttl, &found.attr, found.generation),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn getattr(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let (context, inner) = (req.into(), Arc::clone(&self.inner));
        self.runtime.spawn(async move {
            match inner.getattr(&context, ino, fh).await {
                Ok(found) => reply.attr(&found.ttl, &found.attr),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (context, inner) = (req.into(), Arc::clone(&self.inner));
        self.runtime.spawn(async move {
            let mut data = Vec::new();
            match inner.read(&context, ino, fh, offset, size, flags, lock_owner, &mut data).await {
                Ok(()) => reply.data(&data),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn readdir(&self, req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let (context, inner) = (req.into(), Arc::clone(&self.inner));
        self.runtime.spawn(async move {
            let builder = DirEntListBuilder { entries: &mut reply };
            match inner.readdir(&context, ino, fh, offset, builder).await {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(errno),
            }
        });
    }
}
