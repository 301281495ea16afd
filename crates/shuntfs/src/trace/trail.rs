//! What a request leaves behind, between its begin and its answer.

use std::time::{Instant, SystemTime};

use shuntfs_sys::threads;
use shuntfs_transport::{Done, Exchange};
use shuntfs_wire::{Errno, Fh, InHeader, Name, NodeId, Op, Opcode, SetattrValid};

use super::record::{NodePlace, TraceRecord, nothing};
use crate::delegation::{Flow, Flows};
use crate::filesystem::Filesystem;
use crate::server::{Local, Server};

/// A request that somebody looks at.
#[derive(Debug)]
pub(crate) struct Trail {
    header: InHeader,
    /// The open file that it names, 0 for none.
    fh: u64,
    since: Instant,
    record: TraceRecord,
    /// Of the open file, before the request: a RELEASE ends it.
    flows: Option<Flows>,
}

/// Takes down what a request asks for, while it is there: its answer is written to the same memory. `None` where nobody wants it.
#[cold]
#[inline(never)]
pub(crate) fn begin<F: Filesystem>(server: &Server<F>, local: &Local, x: &Exchange) -> Option<Box<Trail>> {
    let header = x.header();
    if !local.core.hub.may_take(&header) {
        return None;
    }
    let mut record = of_header(&header);
    record.queue = local.queue.index();
    let (mut fh, mut folder) = (0, None);
    if let Ok(request) = x.request() {
        fh = open_file(&request.op);
        folder = of_op(&request.op, &mut record);
    }
    record.place = place_of(server, header.nodeid, fh);
    record.second_place = folder.and_then(|folder| place_of(server, folder, 0));
    let flows = header.node().and_then(|node| local.core.nodes.flow_of(node));
    Some(Box::new(Trail { header, fh, since: Instant::now(), record, flows }))
}

impl Trail {
    /// The node that the answer leads to; 0 for a name that does not exist.
    pub(crate) fn found(&mut self, node: u64) {
        self.record.found = Some(node).filter(|node| *node != 0);
        if node == 0 {
            self.record.errno = Some(Errno::NOENT);
        }
    }

    /// So many bytes were taken.
    pub(crate) fn moved(&mut self, len: u64) {
        self.record.moved = Some(len);
    }

    /// The request is answered.
    pub(crate) fn end<F: Filesystem>(self: Box<Self>, server: &Server<F>, local: &Local, done: &Done) {
        let Self { header, fh, since, mut record, flows } = *self;
        record.duration = since.elapsed();
        if record.place.is_none() {
            // To serve it, the file system may have opened what tells the path.
            record.place = place_of(server, header.nodeid, fh);
        }
        record.errno = done.errno().or(record.errno);
        record.is_linked = done.is_linked();
        let node = record.found.or(Some(record.node)).and_then(NodeId::new);
        let flows = flows.or_else(|| node.and_then(|node| local.core.nodes.flow_of(node)));
        record.flow = flows.and_then(|flows| flow_of(record.operation(), flows));
        if let Some(Opcode::Read | Opcode::Readdir | Opcode::Readdirplus | Opcode::Readlink) =
            record.operation()
        {
            record.moved = done.sent_len().filter(|_| record.errno.is_none()).map(|len| len as u64);
        }
        // It calls the filters of those who look, which may panic.
        let _is_missing =
            local.core.counters.ask_aside("a trace's filter", || local.core.hub.put(&header, record));
    }
}

fn place_of<F: Filesystem>(server: &Server<F>, node: u64, fh: u64) -> Option<NodePlace> {
    server.place_for_people(NodeId::new(node)?, Fh(fh))
}

/// Which of a file's flows an operation goes by; `None` for one that has nothing to do with its bytes.
fn flow_of(operation: Option<Opcode>, flows: Flows) -> Option<Flow> {
    use Opcode::{
        CopyFileRange, CopyFileRange64, Create, Fallocate, Flush, Fsync, Lseek, Open, Read, Release, Write,
    };
    match operation? {
        Write | Fallocate => Some(flows.writes.flow),
        Open | Create | Read | Release | Flush | Fsync | Lseek | CopyFileRange | CopyFileRange64 => {
            Some(flows.reads.flow)
        }
        _ => None,
    }
}

fn of_header(header: &InHeader) -> TraceRecord {
    TraceRecord {
        began: SystemTime::now(),
        unique: header.unique,
        opcode: header.opcode,
        pid: header.pid,
        comm: Some(header.pid).filter(|pid| *pid != 0).and_then(threads::name_of).unwrap_or_default(),
        uid: header.uid,
        gid: header.gid,
        node: header.nodeid,
        ..nothing()
    }
}

/// The open file that an operation names, 0 where it names none.
fn open_file(op: &Op<'_>) -> u64 {
    match op {
        Op::Read(arg) => arg.fh,
        Op::Write { arg, .. } => arg.fh,
        Op::Release(arg) => arg.fh,
        Op::Flush(arg) => arg.fh,
        Op::Fsync(arg) => arg.fh,
        Op::Getattr(arg) => arg.fh,
        Op::Setattr(arg) if arg.valid.contains(SetattrValid::FH) => arg.fh,
        Op::Fallocate(arg) => arg.fh,
        Op::Lseek(arg) => arg.fh,
        Op::CopyFileRange(arg) | Op::CopyFileRange64(arg) => arg.fh_in,
        Op::Getlk(arg) | Op::Setlk(arg) | Op::Setlkw(arg) => arg.fh,
        _ => 0,
    }
}

/// What the operation says; the folder of its second name.
fn of_op(op: &Op<'_>, record: &mut TraceRecord) -> Option<u64> {
    let mut range = |offset: u64, len: u64| (record.offset, record.len) = (Some(offset), Some(len));
    match op {
        Op::Lookup { name }
        | Op::Mknod { name, .. }
        | Op::Mkdir { name, .. }
        | Op::Unlink { name }
        | Op::Rmdir { name }
        | Op::Create { name, .. } => record.name = Some(name.as_bytes().to_vec()),
        Op::LookupDot => record.name = Some(b".".to_vec()),
        Op::LookupDotDot => record.name = Some(b"..".to_vec()),
        Op::Link { arg, name } => {
            record.name = Some(name.as_bytes().to_vec());
            record.found = Some(arg.oldnodeid);
        }
        Op::Symlink { name, target } => {
            record.name = Some(name.as_bytes().to_vec());
            record.second = Some(target.to_bytes().to_vec());
        }
        Op::Rename { arg, name, new_name } => return two_names(record, (name, new_name), arg.newdir),
        Op::Rename2 { arg, name, new_name } => return two_names(record, (name, new_name), arg.newdir),
        Op::Read(arg) | Op::Readdir(arg) | Op::Readdirplus(arg) => range(arg.offset, arg.size.into()),
        Op::Write { arg, .. } => range(arg.offset, arg.size.into()),
        Op::Fallocate(arg) => range(arg.offset, arg.length),
        Op::CopyFileRange(arg) | Op::CopyFileRange64(arg) => {
            range(arg.off_in, arg.len);
            record.found = Some(arg.nodeid_out);
        }
        Op::Lseek(arg) => record.offset = Some(arg.offset),
        Op::Setattr(arg) if arg.valid.contains(SetattrValid::SIZE) => {
            record.len = Some(arg.size);
        }
        Op::Getxattr { name, .. } | Op::Setxattr { name, .. } | Op::Removexattr { name } => {
            record.name = Some(name.to_bytes().to_vec());
            record.is_attribute = true;
        }
        _ => {}
    }
    None
}

fn two_names(record: &mut TraceRecord, (name, new_name): (&Name<'_>, &Name<'_>), folder: u64) -> Option<u64> {
    record.name = Some(name.as_bytes().to_vec());
    record.second = Some(new_name.as_bytes().to_vec());
    Some(folder)
}
