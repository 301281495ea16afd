//! One request, from its bytes to its answer.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use shuntfs_transport::{Done, Exchange};
use shuntfs_wire::{Errno, InHeader, NodeId, Op, Opcode};

use super::answer::{Answer, finish, relay_read};
use super::{attrs, dirs, forget, ioctl, locks, names, open, read, space, write, xattr};
use crate::args::OpSet;
use crate::counters;
use crate::cx::Cx;
use crate::delegation::Flow;
use crate::filesystem::Filesystem;
use crate::latency::Latencies;
use crate::server::{Local, Server};
use crate::takeover::{Begun, keeps_result};
use crate::trace;

/// Serves one request. An operation that panics is answered EIO, and the queue goes on.
///
/// A future is moved into its place whole, however little of it is in use, at each `await` on the way down and once into the slot. So
/// what is seldom needed and large is on the heap, and what has ended when it is called is no future at all.
pub(crate) async fn dispatch<F: Filesystem>(seat: Rc<(Arc<Server<F>>, Local)>, mut x: Exchange) -> Done {
    let (server, local) = (&*seat.0, &seat.1);
    let header = x.header();
    let count = &local.counters.requests[counters::place(header.opcode)];
    count.bump();
    let timed = Latencies::start(header.operation(), count.read());
    let mut trail = if server.gate.is_traced() { trace::begin(server, local, &x) } else { None };
    // What is needed later is kept here alone: each copy would be in the future, too.
    let notes = Notes { local, header, noted: note(local, &header) };
    let answer = if let Some(known) = notes.noted.and_then(known) {
        known
    } else {
        let mut serving = pin!(serve(server, local, &mut x));
        // The file system's own state is its own to keep whole; ours is behind locks that do not poison and
        // guards that undo.
        poll_fn(|task| match catch_unwind(AssertUnwindSafe(|| serving.as_mut().poll(task))) {
            Ok(poll) => poll,
            Err(panic) => Poll::Ready(panicked(local, notes.header, panic.as_ref())),
        })
        .await
    };
    if let Some(trail) = &mut trail {
        answer.leave(trail);
    }
    // A linked answer leaves without us: what we could time is not how long it took.
    let mut timed = timed.filter(|_| !(answer.is_relayed_read() && local.core.nodes.has_ring()));
    if let Some(timed) = &mut timed {
        let flow = answer.flow();
        timed.flow = if flow == Some(Flow::Relay) && x.is_in_pages() { Some(Flow::ZeroCopy) } else { flow };
    }
    // The answer is written where something may still be read or written that an operation left behind.
    x.settled().await;
    let done = match answer {
        _ if !notes.header.operation().is_none_or(Opcode::wants_reply) => x.silent(),
        Answer::RelayRead(lower, at) => relay_read(local, x, &lower, at).await,
        Answer::RelayWrite(lower, offset) => x.relay_write(&lower, offset).await,
        ready => finish(local, x, ready, notes.noted.and_then(|begun| keeps(begun, &notes.header))),
    };
    notes.end();
    if let Some(mut timed) = timed {
        if done.was_spliced() {
            timed.flow = Some(Flow::Splice);
        }
        local.counters.latencies.end(timed);
    }
    local.counters.finished.bump();
    if let Some(trail) = trail {
        trail.end(server, local, &done);
    }
    done
}

/// What was noted of a request for a successor.
struct Notes<'l> {
    local: &'l Local,
    header: InHeader,
    noted: Option<Begun>,
}

impl Notes<'_> {
    /// It is about to be answered.
    fn end(mut self) {
        if let (Some(requests), Some(at)) = (&self.local.core.requests, place(self.noted.take())) {
            requests.end(at, &self.header, &self.local.notes);
        }
    }
}

impl Drop for Notes<'_> {
    /// One that waits for a lock was taken back, and is begun again. Of another one nobody knows how far it came.
    fn drop(&mut self) {
        let waits = self.header.operation() == Some(Opcode::Setlkw);
        if let (true, Some(requests), Some(at)) = (waits, &self.local.core.requests, place(self.noted)) {
            requests.forget(at);
            requests.end(at, &self.header, &self.local.notes);
            // It will count as another request.
            self.local.counters.finished.bump();
        }
    }
}

/// Where a request is noted.
fn place(noted: Option<Begun>) -> Option<u32> {
    match noted? {
        Begun::Serve(at) | Begun::Answer(at) | Begun::Refuse(at) => Some(at),
        Begun::Unnoted => None,
    }
}

/// Notes a request for a successor, where there may be one.
fn note(local: &Local, header: &InHeader) -> Option<Begun> {
    let requests = local.core.requests.as_ref()?;
    let is_answered = header.operation().is_some_and(Opcode::wants_reply);
    is_answered.then(|| requests.begin(header, &local.notes))
}

/// The answer to a request that need not be served.
fn known(begun: Begun) -> Option<Answer> {
    match begun {
        Begun::Answer(at) => Some(Answer::Again(at)),
        Begun::Refuse(_) => Some(Answer::Error(Errno::IO)),
        Begun::Serve(_) | Begun::Unnoted => None,
    }
}

/// Where the result of a request is kept, if it must be.
fn keeps(begun: Begun, header: &InHeader) -> Option<u32> {
    match begun {
        Begun::Serve(at) if keeps_result(header.operation()) => Some(at),
        _ => None,
    }
}

async fn serve<F: Filesystem>(server: &Server<F>, local: &Local, x: &mut Exchange) -> Answer {
    let header = x.header();
    if !is_offered(server.gate.ops(), header.operation()) {
        return Answer::NotOffered;
    }
    if x.has_unseen_data() {
        match Box::pin(write::unseen(server, local, x)).await {
            Ok(Some(answer)) => return answer,
            Ok(None) => {}
            Err(errno) => return Answer::error(errno),
        }
    }
    let request = match x.request() {
        Ok(request) => request,
        Err(error) => {
            local.counters.malformed.bump();
            tracing::error!(?header, %error, "a request that does not parse");
            return Answer::Error(Errno::IO);
        }
    };
    let node = header.node().unwrap_or(NodeId::ROOT);
    let answer = match request.op {
        // These answer into the memory that the request lies in, so they take all they need out of it first.
        Op::Read(arg) => read::read(server, local, x, arg).await,
        Op::Readdir(arg) => dirs::readdir(server, local, x, arg, false).await,
        Op::Readdirplus(arg) => dirs::readdir(server, local, x, arg, true).await,
        Op::Readlink => xattr::readlink(server, local, x).await,
        // On the heap, as all other requests would have to have room for it.
        Op::Setlkw(arg) if locks::may_wait(&arg) => Box::pin(locks::wait(server, local, x, arg)).await,
        Op::Getxattr { arg, name } => match xattr::NameBuf::new(name) {
            Ok(name) => xattr::getxattr(server, local, x, arg, &name).await,
            Err(errno) => Err(errno),
        },
        Op::Listxattr(arg) => xattr::listxattr(server, local, x, arg).await,
        Op::Ioctl { arg, data } => {
            let input = ioctl::copy(data);
            Box::pin(ioctl::ioctl(server, local, x, arg, &input)).await
        }
        Op::Write { arg, data } => write::write(server, local, x, arg, data).await,
        Op::Forget(_) | Op::BatchForget(_) => {
            forget::forget(server, header, &request.op);
            Ok(Answer::Silent)
        }
        op => {
            let signal = x.signal();
            let cx = Cx::new(local, header, &signal).with_group(request.extensions.groups().next());
            shared(server, local, &cx, node, op).await
        }
    };
    answer.unwrap_or_else(Answer::error)
}

/// The operations that borrow from the request until they end.
async fn shared<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    cx: &Cx<'_>,
    node: NodeId,
    op: Op<'_>,
) -> Result<Answer, Errno> {
    match op {
        Op::Getattr(_) | Op::Setattr(_) | Op::Statx(_) | Op::Access(_) | Op::Statfs => {
            attrs::serve(server, cx, node, op).await
        }
        Op::Open(_) | Op::Create { .. } | Op::Tmpfile { .. } | Op::Release(_) | Op::Flush(_) => {
            open::serve(server, local, cx, node, op).await
        }
        Op::Opendir(_) | Op::Releasedir(_) | Op::Fsyncdir(_) => dirs::serve(server, cx, node, op).await,
        Op::Fsync(_)
        | Op::Fallocate(_)
        | Op::Lseek(_)
        | Op::CopyFileRange(_)
        | Op::CopyFileRange64(_)
        | Op::Poll(_) => space::serve(server, cx, node, op).await,
        Op::Setxattr { .. } | Op::Removexattr { .. } => xattr::change(server, cx, node, op).await,
        Op::Getlk(_) | Op::Setlk(_) | Op::Setlkw(_) => Box::pin(locks::serve(server, cx, node, op)).await,
        op => names::serve(server, cx, node, op).await,
    }
}

/// Whether the file system chose to answer an operation. The kernel remembers a no.
fn is_offered(ops: OpSet, opcode: Option<Opcode>) -> bool {
    let Some(opcode) = opcode else { return false };
    match opcode {
        Opcode::Getxattr | Opcode::Setxattr | Opcode::Listxattr | Opcode::Removexattr => {
            ops.contains(OpSet::XATTR)
        }
        Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw => {
            ops.intersects(OpSet::POSIX_LOCKS | OpSet::FLOCK_LOCKS)
        }
        Opcode::Fallocate => ops.contains(OpSet::FALLOCATE),
        Opcode::Lseek => ops.contains(OpSet::LSEEK),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => ops.contains(OpSet::COPY_FILE_RANGE),
        Opcode::Tmpfile => ops.contains(OpSet::TMPFILE),
        Opcode::Statx => ops.contains(OpSet::STATX),
        Opcode::Ioctl => ops.contains(OpSet::IOCTL),
        Opcode::Access => ops.contains(OpSet::ACCESS),
        Opcode::Flush => ops.contains(OpSet::FLUSH),
        Opcode::Fsync | Opcode::Fsyncdir => ops.contains(OpSet::FSYNC),
        Opcode::Create => ops.contains(OpSet::CREATE),
        Opcode::Link => ops.contains(OpSet::LINK),
        Opcode::Rename2 => ops.contains(OpSet::RENAME2),
        Opcode::Open => ops.contains(OpSet::OPEN),
        Opcode::Opendir => ops.contains(OpSet::OPENDIR),
        Opcode::Poll => ops.contains(OpSet::POLL),
        // Nothing of ours answers these: block devices, DAX, CUSE, and what the kernel does well by itself.
        Opcode::Bmap | Opcode::Syncfs | Opcode::Setupmapping | Opcode::Removemapping | Opcode::CuseInit => {
            false
        }
        _ => true,
    }
}

fn panicked(local: &Local, header: InHeader, panic: &(dyn Any + Send)) -> Answer {
    let said = counters::said_by(panic);
    local.counters.panics.bump();
    let operation = header.operation().map_or("an unknown operation", Opcode::name);
    tracing::error!(operation, node = header.nodeid, said, "the file system panicked");
    Answer::Error(Errno::IO)
}

#[cfg(test)]
mod test {
    use std::convert::Infallible;
    use std::time::Duration;

    use super::*;
    use crate::attr::{AttrReply, Entry, Statfs};
    use crate::delegation::{Opened, OpenedDir};
    use crate::init::{InitError, Offered, Wanted};
    use crate::open_flags::OpenFlags;
    use crate::reply::{DirSink, Listed};
    use shuntfs_wire::{LookupCount, Name, Result};

    /// Answers nothing, so that only the library's own part of a request is measured.
    struct Nothing;

    impl Filesystem for Nothing {
        type File = Infallible;
        type Dir = Infallible;

        const OPS: OpSet = OpSet::all();

        fn init(&self, _: &Offered) -> std::result::Result<Wanted, InitError> {
            Ok(Wanted::default())
        }

        fn forget(&self, _: NodeId, _: LookupCount) {}

        async fn lookup(&self, _: &Cx<'_>, _: NodeId, _: Name<'_>) -> Result<Entry> {
            Ok(Entry::negative(Duration::ZERO))
        }

        async fn getattr(&self, _: &Cx<'_>, _: NodeId, _: Option<&Infallible>) -> Result<AttrReply> {
            Err(Errno::IO)
        }

        async fn open(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<Opened<Infallible>> {
            Err(Errno::IO)
        }

        async fn opendir(&self, _: &Cx<'_>, _: NodeId, _: OpenFlags) -> Result<OpenedDir<Infallible>> {
            Err(Errno::IO)
        }

        async fn readdir<'q>(
            &self,
            _: &Cx<'_>,
            _: NodeId,
            _: &Infallible,
            _: u64,
            out: DirSink<'q>,
        ) -> Result<Listed<'q>> {
            Ok(out.finish())
        }

        async fn statfs(&self, _: &Cx<'_>, _: NodeId) -> Result<Statfs> {
            Ok(Statfs::default())
        }
    }

    fn size_of_future<A, B, Fut>(_: impl Fn(A, B) -> Fut) -> usize {
        size_of::<Fut>()
    }

    /// A future lives in its slot, allocated once. It costs this much memory times the depth of all queues, and is moved there whole.
    #[test]
    fn the_future_of_a_request_stays_small() {
        let size = size_of_future(|seat: Rc<(Arc<Server<Nothing>>, Local)>, x| dispatch(seat, x));
        assert!(size <= 1664, "{size} bytes");
    }

    #[test]
    fn the_chosen_set_decides_and_nothing_else() {
        for opcode in Opcode::ALL.iter().copied() {
            let with_all = is_offered(OpSet::all(), Some(opcode));
            let with_none = is_offered(OpSet::empty(), Some(opcode));
            assert!(with_all || !with_none, "{opcode}: more operations never take one away");
        }
        let required = [
            Opcode::Lookup,
            Opcode::Getattr,
            Opcode::Read,
            Opcode::Write,
            Opcode::Readdir,
            Opcode::Readdirplus,
            Opcode::Release,
            Opcode::Releasedir,
            Opcode::Statfs,
            Opcode::Forget,
            Opcode::BatchForget,
            Opcode::NotifyReply,
            Opcode::Rename,
        ];
        for opcode in required {
            assert!(is_offered(OpSet::empty(), Some(opcode)), "{opcode}");
        }
        for (bit, opcode) in [
            (OpSet::XATTR, Opcode::Getxattr),
            (OpSet::FLOCK_LOCKS, Opcode::Setlkw),
            (OpSet::FSYNC, Opcode::Fsyncdir),
            (OpSet::COPY_FILE_RANGE, Opcode::CopyFileRange64),
            (OpSet::OPENDIR, Opcode::Opendir),
            (OpSet::POLL, Opcode::Poll),
        ] {
            assert!(
                is_offered(bit, Some(opcode))
                    && !is_offered(OpSet::all() - bit - OpSet::POSIX_LOCKS, Some(opcode))
            );
        }
        assert!(!is_offered(OpSet::all(), Some(Opcode::Bmap)));
        assert!(!is_offered(OpSet::all(), None));
    }
}
