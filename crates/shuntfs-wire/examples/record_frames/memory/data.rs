//! Contents: data, listings, extended attributes, attributes to set.

use shuntfs_wire::{
    DirentSink, Errno, GetxattrOut, Kstatfs, LseekOut, Op, ReadIn, Request, SetattrIn, SetattrValid,
    StatfsOut, WriteOut,
};
use zerocopy::IntoBytes;

use super::Memory;

/// How many records a listing has at most, so that it takes several requests.
const RECORDS: usize = 3;

impl Memory {
    pub(super) fn data_op(&mut self, request: &Request<'_>) -> Result<Vec<u8>, Errno> {
        let id = request.header.nodeid;
        match request.op {
            Op::Readlink => Ok(self.node(id)?.data.clone()),
            Op::Read(arg) => {
                let data = &self.node(id)?.data;
                let start = usize::try_from(arg.offset).map_err(|_| Errno::INVAL)?.min(data.len());
                let end = start.saturating_add(arg.size as usize).min(data.len());
                Ok(data.get(start..end).unwrap_or_default().to_vec())
            }
            Op::Write { arg, data } => {
                let end = usize::try_from(arg.offset).map_err(|_| Errno::INVAL)? + data.len();
                let file = &mut self.node(id)?.data;
                file.resize(file.len().max(end), 0);
                file.get_mut(end - data.len()..end).ok_or(Errno::IO)?.copy_from_slice(data);
                Ok(WriteOut { size: arg.size, padding: 0 }.as_bytes().to_vec())
            }
            // The kernel then asks with the older operation.
            Op::CopyFileRange64(_) => Err(Errno::NOSYS),
            Op::CopyFileRange(arg) => {
                let size = u32::try_from(arg.len).map_err(|_| Errno::INVAL)?;
                Ok(WriteOut { size, padding: 0 }.as_bytes().to_vec())
            }
            Op::Fallocate(_) => Ok(Vec::new()),
            Op::Lseek(arg) => Ok(LseekOut { offset: arg.offset }.as_bytes().to_vec()),
            Op::Statfs => {
                let st = Kstatfs {
                    blocks: 100,
                    bfree: 50,
                    bsize: 4096,
                    frsize: 4096,
                    namelen: 255,
                    ..Kstatfs::default()
                };
                Ok(StatfsOut { st }.as_bytes().to_vec())
            }
            Op::Readdir(arg) => self.list(id, &arg, false),
            Op::Readdirplus(arg) => self.list(id, &arg, true),
            _ => self.xattr_op(request),
        }
    }

    fn xattr_op(&mut self, request: &Request<'_>) -> Result<Vec<u8>, Errno> {
        let xattrs = &mut self.node(request.header.nodeid)?.xattrs;
        match request.op {
            Op::Setxattr { name, value, .. } => {
                xattrs.insert(name.to_bytes().to_vec(), value.to_vec());
                Ok(Vec::new())
            }
            Op::Getxattr { arg, name } => sized(arg.size, xattrs.get(name.to_bytes()).ok_or(Errno::NODATA)?),
            Op::Listxattr(arg) => {
                let names =
                    xattrs.keys().flat_map(|name| name.iter().copied().chain([0])).collect::<Vec<u8>>();
                sized(arg.size, &names)
            }
            Op::Removexattr { name } => {
                xattrs.remove(name.to_bytes()).ok_or(Errno::NODATA)?;
                Ok(Vec::new())
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn list(&self, id: u64, arg: &ReadIn, plus: bool) -> Result<Vec<u8>, Errno> {
        let names = &self.nodes.get(&id).ok_or(Errno::NOENT)?.names;
        let mut memory = vec![0; arg.size as usize];
        let mut sink = DirentSink::new(&mut memory);
        let start = usize::try_from(arg.offset).map_err(|_| Errno::INVAL)?;
        for (place, (name, child)) in names.iter().enumerate().skip(start).take(RECORDS) {
            let next = place as u64 + 1;
            let entry = self.entry_out(*child)?;
            let kind = u8::try_from(entry.attr.mode >> 12).map_err(|_| Errno::IO)?;
            let fits = match plus {
                true => sink.push_plus(&entry, *child, next, kind, name),
                false => sink.push(*child, next, kind, name),
            };
            if !fits {
                break;
            }
        }
        let len = sink.len() as usize;
        memory.truncate(len);
        Ok(memory)
    }

    pub(super) fn setattr(&mut self, id: u64, arg: &SetattrIn) -> Result<Vec<u8>, Errno> {
        let node = self.node(id)?;
        if arg.valid.contains(SetattrValid::MODE) {
            node.mode = arg.mode;
        }
        if arg.valid.contains(SetattrValid::SIZE) {
            node.data.resize(usize::try_from(arg.size).map_err(|_| Errno::FBIG)?, 0);
        }
        self.attr_out(id)
    }
}

/// The value, or only its length where there is no room for it.
fn sized(room: u32, value: &[u8]) -> Result<Vec<u8>, Errno> {
    let size = u32::try_from(value.len()).map_err(|_| Errno::RANGE)?;
    match room {
        0 => Ok(GetxattrOut { size, padding: 0 }.as_bytes().to_vec()),
        room if room < size => Err(Errno::RANGE),
        _ => Ok(value.to_vec()),
    }
}
