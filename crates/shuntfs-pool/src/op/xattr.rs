//! Extended attributes: all of them are the lower file system's, but those by which a merge is asked and set.

use std::ffi::CStr;

use shuntfs::{Errno, NodeId, Result};
use shuntfs_sys::xattr::{get_xattr, list_xattr};
use shuntfs_verified::NODE_XATTR;

use crate::error::errno;
use crate::guard::{Guard, XattrChanges};
use crate::merge;
use crate::node::Marks;
use crate::sealed;
use crate::shared::Shared;
use crate::who::Who;

const CAPABILITY: &CStr = c"security.capability";
/// Names that only a superuser sees.
const TRUSTED: &[u8] = b"trusted.";
/// Names of ACLs.
const ACL: &[u8] = b"system.posix_acl_";
/// The longest list that the kernel takes.
const LIST_MAX: usize = 65_536;

/// GETXATTR into `value`; an empty one asks for the length.
pub(crate) fn get(shared: &Shared, id: NodeId, name: &CStr, value: &mut [u8]) -> Result<usize> {
    if name == sealed::DIGEST
        && let Some(digest) = sealed::digest(shared, id)
    {
        return copy(digest.to_string().as_bytes(), value);
    }
    if name != NODE_XATTR && sealed::is_own_xattr(shared, name.to_bytes()) {
        return Err(Errno::NODATA);
    }
    if let Some(merge) = &shared.merge
        && let Some(answer) = merge::query(shared, merge, id, name)
    {
        return copy(&answer?, value);
    }
    let node = shared.node(id)?;
    if name == NODE_XATTR {
        return copy(id.get().to_string().as_bytes(), value);
    }
    // optimisation: the kernel asks for this before writes, for each file again and again.
    if name == CAPABILITY && node.has(Marks::NO_CAPABILITY) && !node.has(Marks::CAPABILITY_SET) {
        return Err(Errno::NODATA);
    }
    let descriptor = shared.descriptor(&node)?;
    let found = get_xattr(&descriptor, name, value).map_err(errno);
    if found == Err(Errno::NODATA) && name == CAPABILITY && shared.is_ours_alone() && !node.has(Marks::VARIES)
    {
        node.mark(Marks::NO_CAPABILITY);
    }
    if found == Err(Errno::OPNOTSUPP) && shared.merge.is_some() && name.to_bytes().starts_with(ACL) {
        // Other branches have ACLs, so the kernel asks for them here, too, and would let nobody in.
        return Err(Errno::NODATA);
    }
    found
}

/// Copies a value, or only tells its length.
fn copy(bytes: &[u8], value: &mut [u8]) -> Result<usize> {
    if !value.is_empty() {
        value.get_mut(..bytes.len()).ok_or(Errno::RANGE)?.copy_from_slice(bytes);
    }
    Ok(bytes.len())
}

/// LISTXATTR into `list`; an empty one asks for the length. Names in `trusted.` are for the superuser.
pub(crate) fn list(shared: &Shared, id: NodeId, is_superuser: bool, list: &mut [u8]) -> Result<usize> {
    if shared.controls(id).is_some() {
        return copy(&merge::list_settings(), list);
    }
    let node = shared.node(id)?;
    let descriptor = shared.descriptor(&node)?;
    if is_superuser && shared.sealed.is_none() {
        return list_xattr(&descriptor, list).map_err(errno);
    }
    let needed = list_xattr(&descriptor, &mut []).map_err(errno)?;
    if needed == 0 {
        return Ok(0);
    }
    let mut all = vec![0; LIST_MAX];
    let len = list_xattr(&descriptor, &mut all).map_err(errno)?;
    let is_shown =
        |name: &[u8]| (is_superuser || !name.starts_with(TRUSTED)) && !sealed::is_own_xattr(shared, name);
    copy_shown(&all[..len], list, is_shown)
}

/// Whether a name asks a merge where something is.
fn is_query(shared: &Shared, name: &CStr) -> bool {
    shared.merge.is_some() && name.to_bytes().starts_with(merge::QUERIES)
}

/// Copies the names that are shown, or only tells their length.
fn copy_shown(all: &[u8], list: &mut [u8], is_shown: impl Fn(&[u8]) -> bool) -> Result<usize> {
    let mut len = 0;
    for name in all.split_inclusive(|byte| *byte == 0).filter(|name| is_shown(name)) {
        if !list.is_empty() {
            list.get_mut(len..len + name.len()).ok_or(Errno::RANGE)?.copy_from_slice(name);
        }
        len += name.len();
    }
    Ok(len)
}

/// An attribute to set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set<'s> {
    pub(crate) name: &'s CStr,
    pub(crate) value: &'s [u8],
    pub(crate) flags: u32,
    pub(crate) kill_sgid: bool,
}

/// SETXATTR.
pub(crate) fn set(shared: &Shared, who: Who, id: NodeId, set: Set<'_>) -> Result<()> {
    if let Some(merge) = shared.controls(id) {
        return merge::set_setting(shared, merge, who, set.name, set.value, set.flags);
    }
    if is_query(shared, set.name) || set.name == NODE_XATTR {
        // Below it would be stored and never be read.
        return Err(Errno::PERM);
    }
    let node = &shared.node(id)?;
    let judged = Guard::new(shared, who).judge(XattrChanges { node, name: set.name })?;
    // An attribute that was not there when this request began, and is there now, was made by it, before a server died. Setting the same value again
    // changes nothing.
    let flags = if who.note() == Some(WAS_MISSING) { set.flags & !XATTR_CREATE } else { set.flags };
    judged.set(shared, set.value, flags, set.kill_sgid)
}

/// `XATTR_CREATE` of `<linux/xattr.h>`.
pub(crate) const XATTR_CREATE: u32 = 1;

/// What is noted of an attribute before it is made or removed.
const WAS_MISSING: [u64; 2] = [1, 0];
const WAS_THERE: [u64; 2] = [2, 0];

/// Whether an attribute exists, as the note of a request that makes or removes it.
pub(crate) fn presence(shared: &Shared, id: NodeId, name: &CStr) -> Result<[u64; 2]> {
    match get(shared, id, name, &mut []) {
        Ok(_) => Ok(WAS_THERE),
        Err(Errno::NODATA) => Ok(WAS_MISSING),
        Err(error) => Err(error),
    }
}

/// REMOVEXATTR.
pub(crate) fn remove(shared: &Shared, who: Who, id: NodeId, name: &CStr) -> Result<()> {
    if shared.controls(id).is_some() || is_query(shared, name) || name == NODE_XATTR {
        return Err(Errno::NODATA);
    }
    let node = &shared.node(id)?;
    match Guard::new(shared, who).judge(XattrChanges { node, name })?.remove(shared) {
        Err(Errno::NODATA) if who.note() == Some(WAS_THERE) => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::tests::{create, pool};

    #[test]
    fn a_request_that_is_resent_fails_as_it_would_have() {
        let (_folder, shared) = pool(|_| ());
        let (file, _opened) = create(&shared, "file", 0);
        let root = Who::root();
        let name = c"user.it";
        let make = Set { name, value: b"old", flags: XATTR_CREATE, kill_sgid: false };
        assert_eq!(presence(&shared, file, name), Ok(WAS_MISSING));
        assert_eq!(set(&shared, root, file, make), Ok(()));
        // The same request, which the server had carried out and not answered.
        assert_eq!(set(&shared, root.noted(WAS_MISSING), file, make), Ok(()));
        // Another one, which must fail however often it is resent.
        assert_eq!(presence(&shared, file, name), Ok(WAS_THERE));
        let other = Set { value: b"new", ..make };
        for who in [root, root.begun(), root.noted(WAS_THERE)] {
            assert_eq!(set(&shared, who, file, other), Err(Errno::EXIST));
        }
        let mut value = [0; 3];
        assert_eq!(get(&shared, file, name, &mut value), Ok(3));
        assert_eq!(&value, b"old");
        assert_eq!(remove(&shared, root.noted(WAS_THERE), file, name), Ok(()));
        assert_eq!(remove(&shared, root.noted(WAS_THERE), file, name), Ok(()));
        for who in [root, root.begun(), root.noted(WAS_MISSING)] {
            assert_eq!(remove(&shared, who, file, name), Err(Errno::NODATA));
        }
    }

    #[test]
    fn trusted_names_are_left_out_and_counted_out() {
        let all = b"user.a\0trusted.b\0security.c\0trusted.\0";
        let untrusted = |name: &[u8]| !name.starts_with(TRUSTED);
        let shown = b"user.a\0security.c\0";
        assert_eq!(copy_shown(all, &mut [], untrusted), Ok(shown.len()));
        let mut room = [0; 64];
        assert_eq!(copy_shown(all, &mut room, untrusted), Ok(shown.len()));
        assert_eq!(&room[..shown.len()], shown);
        assert_eq!(copy_shown(all, &mut [0; 8], untrusted), Err(Errno::RANGE));
        assert_eq!(copy_shown(b"", &mut room, untrusted), Ok(0));
    }
}
