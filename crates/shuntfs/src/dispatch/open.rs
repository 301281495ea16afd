//! OPEN, CREATE, TMPFILE, FLUSH, RELEASE: where a wish becomes a flow.

use std::sync::Arc;

use shuntfs_wire::{
    CreateIn, CreateOut, EntryOut, Errno, Fh, FopenFlags, LockOwner, LookupCount, Name, NodeId, Op, OpenOut,
    ReleaseFlags, ReleaseIn, Result,
};

use super::answer::Answer;
use crate::args::{Create, OpSet, Tmpfile};
use crate::attr::Entry;
use crate::cx::Cx;
use crate::delegation::{Access, Delegation, Flow, LowerFile, Opened};
use crate::encode;
use crate::filesystem::Filesystem;
use crate::flow::Wish;
use crate::nodes::{self, Counted, Nodes};
use crate::notify::Notifier;
use crate::open_flags::OpenFlags;
use crate::range_map;
use crate::server::{Direction, Local, Open, Server};

pub(super) async fn serve<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    cx: &Cx<'_>,
    node: NodeId,
    op: Op<'_>,
) -> Result<Answer> {
    let fs = &*server.fs;
    match op {
        Op::Open(arg) => {
            let flags = server.flags(arg.flags);
            let opened = fs.open(cx, node, flags).await?;
            let asked = Asked { flags, maker: Maker::Others, unique: cx.first_unique() };
            install(server, local, node, opened, asked).map(Answer::Open)
        }
        Op::Create { arg, name } => {
            let CreateIn { flags, mode, umask, .. } = arg;
            let op = Create { parent: node, name, mode, umask, flags: server.flags(flags) };
            let (entry, opened) = fs.create(cx, op).await?;
            let untold = Untold { server, node: entry.node, place: Some((node, name)) };
            let asked = Asked { flags: op.flags, maker: Maker::ThisOpen, unique: cx.first_unique() };
            created(server, local, &entry, untold, (opened, asked))
        }
        Op::Tmpfile { arg, .. } => {
            let CreateIn { flags, mode, umask, .. } = arg;
            let op = Tmpfile { parent: node, mode, umask, flags: server.flags(flags) };
            let (entry, opened) = fs.tmpfile(cx, op).await?;
            let untold = Untold { server, node: entry.node, place: None };
            let asked = Asked { flags: op.flags, maker: Maker::ThisOpen, unique: cx.first_unique() };
            created(server, local, &entry, untold, (opened, asked))
        }
        Op::Flush(arg) => {
            let open = server.file_for(cx, node, arg.fh, OpenFlags::READ_ONLY).await?;
            fs.flush(cx, &open.file, LockOwner(arg.lock_owner)).await.map(|()| Answer::Empty)
        }
        Op::Release(arg) => release(server, cx, arg).await,
        _ => Ok(Answer::NotOffered),
    }
}

fn created<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    entry: &Entry,
    untold: Untold<'_, F>,
    (opened, asked): (Opened<F::File>, Asked),
) -> Result<Answer> {
    let node = entry.node.ok_or(Errno::IO)?;
    let open = if server.gate.ops().contains(OpSet::OPEN) {
        install(server, local, node, opened, asked)?
    } else {
        // A kernel that has been told once that opens are not answered sends no RELEASE for this one either, so nothing may
        // wait for it. What is opened for nothing later keeps its pages; this does, too.
        drop(opened);
        OpenOut { fh: 0, open_flags: FopenFlags::KEEP_CACHE, backing_id: 0 }
    };
    std::mem::forget(untold);
    let entry: EntryOut = encode::entry_out(entry);
    Ok(Answer::Created(CreateOut { entry, open }))
}

/// A creation of which the kernel does not get to hear, unless this is forgotten: the lookup count is taken back, and the kernel
/// is to look the name up again, which it believes to stand for nothing.
struct Untold<'a, F: Filesystem> {
    server: &'a Server<F>,
    node: Option<NodeId>,
    /// Folder and name, where it has one.
    place: Option<(NodeId, Name<'a>)>,
}

impl<F: Filesystem> Drop for Untold<'_, F> {
    fn drop(&mut self) {
        if let Some(node) = self.node {
            self.server.fs.forget(node, LookupCount(1));
        }
        if let Some((parent, name)) = self.place {
            Notifier::new(Arc::downgrade(&self.server.core)).doubt(parent, name);
        }
    }
}

/// Who made the file that is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Maker {
    ThisOpen,
    Others,
}

/// What is known of an open.
#[derive(Clone, Copy, Debug)]
struct Asked {
    flags: OpenFlags,
    maker: Maker,
    /// The request's number.
    unique: u64,
}

/// Settles an open, counts it and gives it a number. What fails or panics on the way is undone. A checked open of a node that
/// is open unchecked fails by EBUSY, and the other way round.
///
/// Where we are to move the bytes of an open that may write, the lower file is opened at once. The caller then hears now what
/// forbids it: a file system that became read-only, a program that runs. Whoever has just made a file may open it whatever
/// its mode says, so a creation does not fail for this; but now is when it is likeliest to work, before its mode is changed.
fn install<F: Filesystem>(
    server: &Server<F>,
    local: &Local,
    node: NodeId,
    opened: Opened<F::File>,
    Asked { flags, maker, unique }: Asked,
) -> Result<OpenOut> {
    let Opened { file, delegation, cache, flush } = opened;
    let file = Arc::new(file);
    let (wish, lifted) = lift(&delegation, flags);
    let lower = || -> Result<Arc<LowerFile>> {
        match lifted.as_ref().unwrap_or(&delegation) {
            Delegation::Passthrough(backing) | Delegation::VerifiedBelow(backing) => {
                server.lower_of(node, &file, backing, Access::Register)
            }
            _ => Err(Errno::BADF),
        }
    };
    let in_pages = may_lie_in_pages(server, &file, &delegation, flags);
    let settled = server.core.nodes.settle_open(node, nodes::Ask { wish, cache, in_pages }, &lower)?;
    let undo = Undo { nodes: &server.core.nodes, node, counted: settled.counted };
    let flows = settled.flows;
    // A map that could not be lifted after all is asked for each request.
    let delegation = lifted.filter(|_| flows.reads.flow != Flow::Ranges).unwrap_or(delegation);
    let open = Open::new(node, file, settled.counted, delegation);
    if flags.may_write() && matches!(flows.writes.flow, Flow::Splice | Flow::Relay | Flow::ZeroCopy) {
        match server.lower(&open, Direction::Write) {
            Err(errno) if maker == Maker::ThisOpen => {
                tracing::debug!(%errno, "a new file's lower file waits")
            }
            outcome => drop(outcome?),
        }
    }
    local.counters.opened(flows);
    server.fs.opened(node, &open.file, flows);
    let open = Arc::new(open);
    let fh = server.files.insert(Arc::clone(&open)).ok_or(Errno::NFILE)?;
    if let Some(keeps) = &server.keeps
        && let Err(error) = keeps.file_opened(&server.fs, fh, &open, (&settled, wish.worth(), unique))
    {
        server.files.remove(fh);
        return Err(error);
    }
    drop(open);
    std::mem::forget(undo);
    let needs_flush = flush && server.gate.ops().contains(OpSet::FLUSH);
    let open_flags = settled.flags | if needs_flush { FopenFlags::empty() } else { FopenFlags::NOFLUSH };
    let backing_id = settled.backing.map_or(0, |id| id.0);
    Ok(OpenOut { fh: fh.0, open_flags, backing_id: i32::try_from(backing_id).unwrap_or_default() })
}

/// Whether the data of an open's requests may lie in pages that nobody here sees: that of its WRITEs, too, if there may be any, as each that
/// must be seen would have to be fetched.
fn may_lie_in_pages<F: Filesystem>(
    server: &Server<F>,
    file: &F::File,
    delegation: &Delegation,
    flags: OpenFlags,
) -> bool {
    !flags.may_write()
        || match delegation.of_writes() {
            Delegation::Splice(_) | Delegation::Passthrough(_) if !server.fs.exchanges_lower(file) => true,
            Delegation::PerRange(_) => true,
            _ => server.fs.takes_unseen_data(file),
        }
}

/// The wish of a delegation, and what it is lifted to.
fn lift(delegation: &Delegation, flags: OpenFlags) -> (Wish, Option<Delegation>) {
    if let Delegation::PerRange(map) = delegation
        && let Some((backing, key)) = range_map::lifted(&**map, flags)
    {
        return (Wish::Lifted(key), Some(Delegation::Passthrough(backing)));
    }
    (Wish::of(delegation), None)
}

async fn release<F: Filesystem>(server: &Server<F>, cx: &Cx<'_>, arg: ReleaseIn) -> Result<Answer> {
    if arg.fh == 0 && !server.gate.ops().contains(OpSet::OPEN) {
        return Ok(Answer::Empty);
    }
    if let Some(keeps) = &server.keeps {
        keeps.file_closes(Fh(arg.fh));
    }
    let open = match server.files.remove(Fh(arg.fh)) {
        Some(open) => open,
        // A server that is dead had closed it.
        None if cx.is_resent() => return Ok(Answer::Empty),
        None => return Err(Errno::BADF),
    };
    server.core.nodes.close(open.node, open.counted);
    let flock = arg.release_flags.contains(ReleaseFlags::FLOCK_UNLOCK).then_some(LockOwner(arg.lock_owner));
    let (node, file) = (open.node, Arc::clone(&open.file));
    // The lower file that moved its bytes is closed before the file system hears of the end.
    drop(open);
    server.fs.release(cx, node, file, flock).await;
    Ok(Answer::Empty)
}

/// Takes a counted open back, unless it is forgotten.
struct Undo<'a> {
    nodes: &'a Nodes,
    node: NodeId,
    counted: Counted,
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        self.nodes.undo(self.node, self.counted);
    }
}
