//! Names: looking up, making, moving, removing; and the names that ask for notifications.

use shuntfs_wire::{CreateOut, Errno, NodeId, Notification, Op, Request};
use zerocopy::IntoBytes;

use super::{Memory, Node};

const FILE: u32 = 0o100_000;
const FOLDER: u32 = 0o40_000;
const LINK: u32 = 0o120_000;

impl Memory {
    /// Names that are looked up to make the server do something: no file can be seen by them.
    pub(super) fn notification(&self, name: &[u8]) -> Option<Vec<u8>> {
        let mut message = Vec::new();
        match name {
            // All that can be forgotten is queued before this thread reads again, and so comes in one request.
            b"forget-many" => {
                let nodes: Vec<NodeId> =
                    self.nodes.keys().filter_map(|id| NodeId::new(*id)).skip(1).collect();
                Notification::Prune { nodes: &nodes }.encode(&mut message);
            }
            b"retrieve" => {
                let node = self.nodes.get(&1)?.names.get(b"file".as_slice())?;
                let node = NodeId::new(*node)?;
                Notification::Retrieve { unique: 7, node, offset: 0, size: 64 }.encode(&mut message);
            }
            _ => return None,
        }
        Some(message)
    }

    pub(super) fn name_op(&mut self, request: &Request<'_>) -> Result<Vec<u8>, Errno> {
        let parent = request.header.nodeid;
        let (uid, gid) = (request.header.uid, request.header.gid);
        let node = |mode: u32| Node { mode, uid, gid, ..Node::default() };
        let id = match request.op {
            Op::Lookup { name } => *self.node(parent)?.names.get(name.as_bytes()).ok_or(Errno::NOENT)?,
            Op::Symlink { name, target } => {
                let link = Node { data: target.to_bytes().to_vec(), ..node(LINK | 0o777) };
                self.make(parent, name.as_bytes(), link)?
            }
            Op::Mknod { arg, name } => self.make(parent, name.as_bytes(), node(arg.mode))?,
            Op::Mkdir { arg, name } => self.make(parent, name.as_bytes(), node(FOLDER | arg.mode))?,
            Op::Link { arg, name } => {
                self.node(parent)?.names.insert(name.as_bytes().to_vec(), arg.oldnodeid);
                arg.oldnodeid
            }
            Op::Create { arg, name } => {
                let id = self.make(parent, name.as_bytes(), node(FILE | arg.mode))?;
                return self.created(id);
            }
            Op::Tmpfile { arg } => {
                let id = self.add(node(FILE | arg.mode));
                return self.created(id);
            }
            Op::Unlink { name } | Op::Rmdir { name } => {
                self.node(parent)?.names.remove(name.as_bytes()).ok_or(Errno::NOENT)?;
                return Ok(Vec::new());
            }
            Op::Rename { arg, name, new_name } => {
                return self.rename((parent, name.as_bytes()), (arg.newdir, new_name.as_bytes()));
            }
            Op::Rename2 { arg, name, new_name } => {
                return self.rename((parent, name.as_bytes()), (arg.newdir, new_name.as_bytes()));
            }
            _ => return Err(Errno::NOSYS),
        };
        Ok(self.entry_out(id)?.as_bytes().to_vec())
    }

    fn add(&mut self, node: Node) -> u64 {
        let id = self.nodes.keys().next_back().copied().unwrap_or(1) + 1;
        self.nodes.insert(id, node);
        id
    }

    fn make(&mut self, parent: u64, name: &[u8], node: Node) -> Result<u64, Errno> {
        if self.node(parent)?.names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let id = self.add(node);
        self.node(parent)?.names.insert(name.to_vec(), id);
        Ok(id)
    }

    fn created(&mut self, id: u64) -> Result<Vec<u8>, Errno> {
        let out = CreateOut { entry: self.entry_out(id)?, open: self.open_out() };
        Ok(out.as_bytes().to_vec())
    }

    /// Exchanges where the new name is taken and replaces nothing: enough for what is provoked.
    fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) -> Result<Vec<u8>, Errno> {
        let moved = self.node(from.0)?.names.remove(from.1).ok_or(Errno::NOENT)?;
        let other = self.node(to.0)?.names.insert(to.1.to_vec(), moved);
        if let Some(other) = other {
            self.node(from.0)?.names.insert(from.1.to_vec(), other);
        }
        Ok(Vec::new())
    }
}
