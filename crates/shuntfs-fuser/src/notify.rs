//! What tells the kernel of changes behind its back.

use std::ffi::{CString, OsStr};
use std::io::{self, IoSlice};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use shuntfs_sys::FuseDevice;
use shuntfs_wire::{Name, NodeId, Notification};

use crate::ids::INodeNo;

/// The kernel's number of somebody who polls.
#[derive(Copy, Clone, Debug)]
pub struct PollHandle(
    /// The number.
    pub u64,
);

/// Tells somebody who polls to look again.
#[derive(Clone, Debug)]
pub struct PollNotifier {
    handle: PollHandle,
    notifier: Notifier,
}

/// Tells the kernel of changes behind its back.
///
/// Not to be used from inside a request: the kernel takes locks that the caller of a request may hold.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<FuseDevice>);

impl PollNotifier {
    pub(crate) fn new(device: &Arc<FuseDevice>, handle: u64) -> Self {
        Self { handle: PollHandle(handle), notifier: Notifier::new(device) }
    }

    /// The kernel's number.
    pub fn handle(&self) -> PollHandle {
        self.handle
    }

    /// Tells.
    ///
    /// # Errors
    /// The kernel's.
    pub fn notify(self) -> io::Result<()> {
        self.notifier.poll(self.handle)
    }
}

impl Notifier {
    pub(crate) fn new(device: &Arc<FuseDevice>) -> Self {
        Self(Arc::clone(device))
    }

    /// Who polls is to look again.
    ///
    /// # Errors
    /// The kernel's.
    pub fn poll(&self, kh: PollHandle) -> io::Result<()> {
        self.send(&Notification::Poll { kh: kh.0 })
    }

    /// What the kernel keeps of a name is wrong. That it keeps nothing is no error.
    ///
    /// # Errors
    /// The kernel's; EINVAL for what is no name.
    pub fn inval_entry(&self, parent: INodeNo, name: &OsStr) -> io::Result<()> {
        let (parent, name) = (node(parent)?, c_name(name)?);
        let name = Name::new(&name).ok_or(io::ErrorKind::InvalidInput)?;
        known(self.send(&Notification::InvalEntry { parent, name, expire_only: false }))
    }

    /// What the kernel keeps of a node's attributes, and of its data from `offset` on, is wrong; with a negative
    /// `offset` the attributes alone. That it keeps nothing is no error.
    ///
    /// # Errors
    /// The kernel's.
    pub fn inval_inode(&self, ino: INodeNo, offset: i64, len: i64) -> io::Result<()> {
        known(self.send(&Notification::InvalInode { node: node(ino)?, offset, len }))
    }

    /// Puts data into the kernel's cache. That it does not know the node is no error.
    ///
    /// # Errors
    /// The kernel's.
    pub fn store(&self, ino: INodeNo, offset: u64, data: &[u8]) -> io::Result<()> {
        known(self.send(&Notification::Store { node: node(ino)?, offset, data }))
    }

    /// A name is gone, and those who watch it are to know. That the kernel does not know it is no error.
    ///
    /// # Errors
    /// The kernel's; EINVAL for what is no name.
    pub fn delete(&self, parent: INodeNo, child: INodeNo, name: &OsStr) -> io::Result<()> {
        let (parent, child, name) = (node(parent)?, node(child)?, c_name(name)?);
        let name = Name::new(&name).ok_or(io::ErrorKind::InvalidInput)?;
        known(self.send(&Notification::Delete { parent, child, name }))
    }

    fn send(&self, notification: &Notification<'_>) -> io::Result<()> {
        let mut message = Vec::new();
        notification.encode(&mut message);
        self.0.write(&[IoSlice::new(&message)])?;
        Ok(())
    }
}

fn node(ino: INodeNo) -> io::Result<NodeId> {
    NodeId::new(ino.0).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn c_name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The kernel may have let go of it by itself.
fn known(outcome: io::Result<()>) -> io::Result<()> {
    outcome.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::sender::test::{device, written};

    #[test]
    fn notifications_are_written_whole() {
        let (device, theirs) = device();
        let notifier = Notifier::new(&device);
        notifier.inval_entry(INodeNo::ROOT, OsStr::new("ab")).unwrap();
        PollNotifier::new(&device, 9).notify().unwrap();
        drop(notifier);
        let mut expected = Vec::new();
        let mut all = Vec::new();
        let name = Name::new(c"ab").unwrap();
        for notification in [
            Notification::InvalEntry { parent: NodeId::ROOT, name, expire_only: false },
            Notification::Poll { kh: 9 },
        ] {
            notification.encode(&mut expected);
            all.extend_from_slice(&expected);
        }
        assert_eq!(written(device, theirs), all);
    }

    #[test]
    fn what_names_nothing_is_refused_here() {
        let (device, theirs) = device();
        let notifier = Notifier::new(&device);
        assert!(notifier.inval_inode(INodeNo(0), 0, 0).is_err());
        assert!(notifier.inval_entry(INodeNo::ROOT, OsStr::new("a/b")).is_err());
        assert!(notifier.inval_entry(INodeNo::ROOT, OsStr::new("a\0b")).is_err());
        drop(notifier);
        assert!(written(device, theirs).is_empty());
    }
}
