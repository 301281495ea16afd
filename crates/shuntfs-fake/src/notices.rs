//! Notifications: what the server says without being asked.

use shuntfs_sys::OsError;
use shuntfs_wire::{
    InvalEntryFlags, NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyPruneOut,
    NotifyStoreOut, OutHeader,
};
use zerocopy::FromBytes;

use crate::books::Books;
use crate::breach::{Breach, Rule};

type Taken = Result<(), OsError>;

/// Takes a notification in; what the server's `write` gets, and a breach where it is malformed.
pub(crate) fn take(books: &mut Books, header: OutHeader, body: &[u8], len: usize) -> (Taken, Option<Breach>) {
    let whole = header.len as usize == len;
    let taken = if whole { apply(books, header.error, body) } else { None };
    match taken {
        Some(outcome) => (outcome, None),
        None => {
            let what = format!("notification {} with {} bytes is not one", header.error, body.len());
            (Err(OsError::INVAL), Some(Breach { rule: Rule::Notification, what }))
        }
    }
}

/// `None` where it is malformed.
fn apply(books: &mut Books, code: i32, body: &[u8]) -> Option<Taken> {
    match code {
        // Who polls asks again, and RETRIEVE needs pages of a real kernel: neither is held here.
        1 => (body.len() == 8).then_some(Ok(())),
        2 => {
            let arg = NotifyInvalInodeOut::read_from_bytes(body).ok()?;
            let Some(inode) = books.inodes.get_mut(&arg.ino) else { return Some(Err(OsError::NOENT)) };
            inode.doubt();
            if let Ok(offset) = u64::try_from(arg.off) {
                inode.pages.forget(offset, u64::try_from(arg.len).ok().filter(|len| *len > 0));
            }
            Some(Ok(()))
        }
        3 => {
            let (arg, rest) = NotifyInvalEntryOut::read_from_prefix(body).ok()?;
            let name = name(rest, arg.namelen)?;
            // Both are looked up again; the kernel tells them apart by what happens to mounts and watches.
            let _expires = arg.flags.contains(InvalEntryFlags::EXPIRE_ONLY);
            Some(drop_name(books, arg.parent, name))
        }
        4 => {
            let (arg, data) = NotifyStoreOut::read_from_prefix(body).ok()?;
            let Some(inode) = books.inodes.get_mut(&arg.nodeid) else { return Some(Err(OsError::NOENT)) };
            (arg.size as usize == data.len()).then(|| {
                inode.attr.size = inode.attr.size.max(arg.offset + data.len() as u64);
                inode.pages.write(arg.offset, data);
                Ok(())
            })
        }
        5 => (body.len() == 32).then_some(Err(OsError::NOENT)),
        6 => {
            let (arg, rest) = NotifyDeleteOut::read_from_prefix(body).ok()?;
            let name = name(rest, arg.namelen)?;
            books.changed(arg.child);
            Some(drop_name(books, arg.parent, name))
        }
        7 if !books.resends => Some(Err(OsError::INVAL)),
        7 => body.is_empty().then(|| {
            books.requests.resend();
            Ok(())
        }),
        8 => body.is_empty().then(|| {
            books.epoch += 1;
            Ok(())
        }),
        9 => {
            let (arg, rest) = NotifyPruneOut::read_from_prefix(body).ok()?;
            (arg.count as usize * 8 == rest.len()).then_some(Ok(()))
        }
        _ => None,
    }
}

fn drop_name(books: &mut Books, parent: u64, name: &[u8]) -> Taken {
    if !books.inodes.contains_key(&parent) {
        return Err(OsError::NOENT);
    }
    // The listing and the attributes of the folder go with the name.
    books.changed(parent);
    match books.names.remove(&(parent, name.to_vec())) {
        Some(_) => Ok(()),
        None => Err(OsError::NOENT),
    }
}

/// The name of so many bytes, without its NUL.
fn name(bytes: &[u8], len: u32) -> Option<&[u8]> {
    let (name, nul) = bytes.split_at_checked(len as usize)?;
    (nul == [0] && !name.is_empty()).then_some(name)
}
